"""What replay is compared with: the rules of docs/timing.md in forty lines of Numba, processes polled in turn."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from allo_dse.simulator.replay.trace import Trace


@numba.njit
def poll(first, due, kind, stream, depth, base, put, got, puts, gets, stall):  # type: ignore[no-untyped-def]
    """Replay; returns whether every process has ended. Events are sorted by process and due time."""
    position = first[:-1].copy()
    moved = True
    while moved:
        moved = False
        for p in range(len(stall)):
            while position[p] < first[p + 1]:
                e = position[p]
                s = stream[e]
                t = due[e] + stall[p]
                if kind[e] == 0:
                    if gets[s] == puts[s]:
                        break
                    t = max(t, put[base[s] + gets[s]] + (1 if depth[s] <= 2 else 2))
                    got[base[s] + gets[s]] = t
                    gets[s] += 1
                else:
                    if puts[s] - gets[s] == depth[s]:
                        break
                    if puts[s] >= depth[s]:
                        t = max(t, got[base[s] + puts[s] - depth[s]] + 1)
                    put[base[s] + puts[s]] = t
                    puts[s] += 1
                stall[p] = t - due[e]
                position[p] += 1
                moved = True
    return (position == first[1:]).all()


class Reference:
    """A trace as the reference wants it."""

    def __init__(self, trace: Trace) -> None:
        events, data = trace.data.events, trace.data
        loops = data.loops
        process = np.array([loop.process for loop in loops])[events.loop]
        ii = np.array([loop.ii for loop in loops])[events.loop]
        due = data.bases[events.loop] + events.iteration * ii + events.stage
        order = np.lexsort((due, process))
        self.first = np.concatenate([[0], np.cumsum(np.bincount(process, minlength=len(data.processes)))])
        self.due, self.kind, self.stream = due[order], events.kind[order], events.stream[order]
        tokens = np.bincount(events.stream, minlength=len(data.streams))
        self.base = np.concatenate([[0], np.cumsum(tokens)])
        self.end = data.process_end

    def cycles(self, depth: np.ndarray[Any, Any]) -> int:
        times, counts = np.empty((2, int(self.base[-1])), np.int64), np.zeros((2, len(self.base) - 1), np.int64)
        stall = np.zeros(len(self.end), np.int64)
        done = poll(self.first, self.due, self.kind, self.stream, depth, self.base, *times, *counts, stall)
        return int((self.end + stall).max()) if done else -1
