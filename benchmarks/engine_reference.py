"""What the run engine is compared with: tasks over time-stamped FIFOs in forty lines of Numba, polled in turn."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np


@numba.njit
def poll(kind: Any, stream: Any, work: Any, rounds: Any, depth: Any, latency: Any, size: Any) -> Any:
    """Times and values of tasks that each repeat a row of operations; returns their clocks and sums.

    kind[p, i] is 0 for a get, 1 for a put of what was taken last but one, 2 for the cost of a round, 3 for none.
    """
    tasks, ops = kind.shape
    put, got = np.zeros((len(depth), size), np.int64), np.full((len(depth), size), -1, np.int64)
    token = np.zeros((len(depth), size), np.float32)
    puts, gets = np.zeros(len(depth), np.int64), np.zeros(len(depth), np.int64)
    clock, place, done = np.zeros(tasks, np.int64), np.zeros(tasks, np.int64), np.zeros(tasks, np.int64)
    last, sums = np.ones((tasks, 2), np.float32), np.zeros(tasks, np.float32)
    moved = True
    while moved:
        moved = False
        for p in range(tasks):
            while done[p] < rounds:
                i = place[p]
                s = stream[p, i]
                if kind[p, i] == 0:
                    if gets[s] == puts[s]:
                        break
                    slot = gets[s] % depth[s]
                    clock[p] = got[s, slot] = max(clock[p], put[s, slot] + latency[s])
                    last[p, 0], last[p, 1] = last[p, 1], token[s, slot]
                    gets[s] += 1
                elif kind[p, i] == 1:
                    if puts[s] - gets[s] == depth[s]:
                        break
                    slot = puts[s] % depth[s]
                    clock[p] = put[s, slot] = max(clock[p], got[s, slot] + 1)
                    token[s, slot] = last[p, 0]
                    last[p, 0], last[p, 1] = last[p, 1], last[p, 0]
                    puts[s] += 1
                elif kind[p, i] == 2:
                    clock[p] += work[p]
                    sums[p] += last[p, 0] * last[p, 1]
                moved = True
                place[p] = i + 1 if i + 1 < ops else 0
                done[p] += i + 1 == ops
    return clock, sums


def systolic(size: int, rounds: int, depth: int) -> tuple[Any, ...]:
    """The arguments for a size x size array: cells, then loaders, then drains."""
    across = np.arange(size * (size + 1)).reshape(size, size + 1)
    down = across.size + np.arange(size * (size + 1)).reshape(size + 1, size)
    tasks = [
        [(0, across[i, j]), (0, down[i, j]), (1, across[i, j + 1]), (1, down[i + 1, j]), (2, 0)]
        for i in range(size)
        for j in range(size)
    ]
    ends = [[(1, s), (2, 0), *[(3, 0)] * 3] for s in (*across[:, 0], *down[0])]
    ends += [[(0, s), (2, 0), *[(3, 0)] * 3] for s in (*across[:, -1], *down[-1])]
    table = np.array([*tasks, *ends], np.int64)
    depths = np.full(2 * across.size, depth)
    latency = np.where(depths <= 2, 1, 2)
    return table[:, :, 0].copy(), table[:, :, 1].copy(), np.ones(len(table), np.int64), rounds, depths, latency, depth


def operations(size: int, rounds: int) -> int:
    """Stream operations of such an array."""
    return rounds * 4 * size * (size + 1)
