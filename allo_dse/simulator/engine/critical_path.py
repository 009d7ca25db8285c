"""The critical path of a run: the chain of work, tokens, room and service that fixes its last clock.

It is found exactly, by going back from the last event through what determined each time: the put of a token that was
waited for, the get that made room, the request that was served before, or else the work of the task itself.
"""

from __future__ import annotations

from array import array
from typing import TYPE_CHECKING, Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError

from ..codegen.run_time.record_fields import State
from ..network.network import IntArray
from .timeline import Rows, Timeline

if TYPE_CHECKING:
    import pandas as pd

Kind = Literal["work", "service", "token", "room"]
KINDS: tuple[Kind, ...] = ("work", "service", "token", "room")


class CriticalPath(Struct, frozen=True):
    """Steps from cycle 0 to the end of the run, or of the part of it that was recorded, without gaps; one per step.

    Attributes:
        kind: position in `KINDS`: the task works, or is served by a resource; or a token of a stream, or the room that
            its get leaves, is on its way (the FIFO's latency).
        task: who works, is served, gets the token or puts into the room. on: the stream or resource, or -1.
        start, end: cycles.
    """

    kind: IntArray
    task: IntArray
    on: IntArray
    start: IntArray
    end: IntArray

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def frame(self) -> pd.DataFrame:
        """The steps as a table with columns kind, task, on, start, end."""
        import pandas as pd

        return pd.DataFrame(
            {"kind": np.array(KINDS)[self.kind], "task": self.task, "on": self.on, "start": self.start, "end": self.end}
        )

    def cycles_by(self, kinds: tuple[Kind, ...], group: IntArray, count: int) -> IntArray:
        """Cycles of the steps of some kinds, summed by a number per step."""
        mine = np.isin(self.kind, [KINDS.index(k) for k in kinds])
        return np.bincount(group[mine], weights=(self.end - self.start)[mine], minlength=count).astype(np.int64)


def critical_path(timeline: Timeline) -> CriticalPath:
    """The critical path of a recorded run; of a part of one it goes back from the last operation within.

    Raises:
        SimulationError: if not all events were kept.
    """
    if not timeline.events.is_complete:
        raise SimulationError(
            f"only the first {len(timeline.events):,} events of the run were kept, so its critical path is not known",
            hint="record=N keeps up to N events; or record a smaller problem",
        )
    rows = timeline.rows
    cause = _cause_rows(timeline, rows)
    # Every time is a maximum over what it waits for (T2, T3, T11): going back along what attained it leaves no gap.
    # What a part's first operations waited for was before it.
    is_first = (cause < 0) & (rows.completed > rows.requested) & (timeline.window.waits is not None)
    previous = np.where(cause >= 0, cause, np.where(is_first, -1, rows.before))
    return _steps(timeline, rows, cause, is_first, _walk(previous, _last(timeline, rows)))


def _last(timeline: Timeline, rows: Rows) -> int:
    """The row that ends last, not after the timeline; -1 for none."""
    end = np.where(rows.end <= timeline.end, rows.end, -1)
    return int(len(rows) - 1 - np.argmax(end[::-1])) if len(rows) and end.max() >= 0 else -1


def _cause_rows(timeline: Timeline, rows: Rows) -> IntArray:
    result = np.full(len(rows), -1)
    cause = timeline.cause
    known = np.flatnonzero(cause >= 0)
    result[rows.of_event[known]] = rows.of_event[cause[known]]
    return result


def _walk(previous: IntArray, row: int) -> IntArray:
    """Rows on the path, first to last."""
    link = array("q", previous.tobytes())
    found = []
    while row >= 0:
        found.append(row)
        row = link[row]
    return np.array(found[::-1], np.int64)


def _steps(
    timeline: Timeline, rows: Rows, cause: IntArray, is_first: NDArray[np.bool_], path: IntArray
) -> CriticalPath:
    waited = (cause[path] >= 0) | is_first[path]
    came = np.where(is_first[path], timeline.start, rows.end[cause[path]])
    arrival = np.full(len(path), KINDS.index("room"))
    for state, name in ((State.GET, "token"), (State.REQUEST, "service")):
        arrival[rows.kind[path] == state] = KINDS.index(name)
    kind = np.stack(
        [np.where(waited, arrival, KINDS.index("work")), np.full(len(path), KINDS.index("service"))], axis=1
    )
    start = np.stack([np.where(waited, came, rows.idle_since[path]), rows.completed[path]], axis=1)
    end = np.stack([rows.completed[path], rows.end[path]], axis=1)
    on = np.stack([np.where(waited, rows.on[path], -1), rows.on[path]], axis=1)
    task = np.repeat(timeline.network.order[rows.slot[path]], 2)
    start = np.maximum(start, timeline.start)
    keep = (end > start).ravel()
    return _merged(kind.ravel()[keep], task[keep], on.ravel()[keep], start.ravel()[keep], end.ravel()[keep])


def _merged(kind: IntArray, task: IntArray, on: IntArray, start: IntArray, end: IntArray) -> CriticalPath:
    """Join consecutive steps of the same kind, task and stream."""
    if not len(kind):
        return CriticalPath(kind, task, on, start, end)
    new = np.concatenate(([True], (np.diff(kind) != 0) | (np.diff(task) != 0) | (np.diff(on) != 0)))
    last = np.concatenate((np.flatnonzero(new)[1:] - 1, [len(kind) - 1]))
    return CriticalPath(kind[new], task[new], on[new], start[new], end[last])
