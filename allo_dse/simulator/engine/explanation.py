"""Explanations of a run's time: the critical path by cause, the bottleneck in a sentence, and all waiting."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import Frozen

from ..network.network import IntArray, Labels, node_label
from ..run_time.records import State

if TYPE_CHECKING:
    import pandas as pd

    from .timeline import Rows, Timeline

# The critical path is the chain of work, tokens, room and service that determines the run's last clock. It is exact:
# starting at the last event, each step goes back to the cause of a time. That is the put of an awaited token, the get
# that made room, the request that was served before, or the task's own work.


Kind = Literal["work", "service", "token", "room"]
KINDS: tuple[Kind, ...] = ("work", "service", "token", "room")


class CriticalPath(Frozen):
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
    # Every time is a maximum over its causes (T2, T3, T11), so going back along the maximum leaves no gap. The causes
    # of a part's first operations lie before the part.
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


Where = Literal["node", "stream", "resource"]

_PARTS = {"work": "work", "service": "shared resources", "token": "tokens on their way", "room": "full FIFOs"}
_WAYS: dict[Where, str] = {"node": "work", "stream": "tokens and room", "resource": "service"}


class Bottleneck(Frozen):
    """A place on the critical path, with the cycles spent there.

    Attributes:
        where, number: a node (processing element), a stream or a resource, and its number.
        name: of the place, for people.
        share: of the run's cycles.
    """

    where: Where
    number: int
    name: str
    cycles: int
    share: float


@dataclass(frozen=True)
class Explanation:
    """Why a run took as long as it did.

    Attributes:
        timeline, path: all events, and the chain of events that determines the last clock.
        labels: how things are called.
    """

    timeline: Timeline
    path: CriticalPath
    labels: Labels

    @cached_property
    def contributors(self) -> list[Bottleneck]:
        """Everything on the critical path, by cycles."""
        network, path = self.timeline.network, self.path
        named: list[tuple[Where, Any, Any]] = [
            ("node", path.cycles_by(("work",), network.task_node[path.task], network.node_count), self._node),
            ("stream", path.cycles_by(("token", "room"), path.on, network.stream_count), self.labels.stream),
            ("resource", path.cycles_by(("service",), path.on, network.resources), self.labels.resource),
        ]
        total = max(1, self.timeline.cycles)
        found = [
            Bottleneck(where, number, name(number), int(cycles[number]), int(cycles[number]) / total)
            for where, cycles, name in named
            for number in np.flatnonzero(cycles).tolist()
        ]
        return sorted(found, key=lambda b: -b.cycles)

    def _node(self, node: int) -> str:
        return node_label(self.labels, self.timeline.network, node)

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The first of `contributors`; None if the run took no time."""
        return self.contributors[0] if self.contributors else None

    @property
    def shares(self) -> dict[str, float]:
        """Return the critical path's shares of the run's cycles: work, service, tokens in flight, and room."""
        length = self.path.end - self.path.start
        total = max(1, self.timeline.cycles)
        return {kind: int(length[self.path.kind == i].sum()) / total for i, kind in enumerate(KINDS)}

    @property
    def sentence(self) -> str:
        """The bottleneck in a sentence."""
        worst, cycles = self.bottleneck, self.timeline.cycles
        if worst is None:
            return "The run takes no time."
        of = f"{worst.share:.1%} of the {cycles:,} cycles"
        if worst.where == "node":
            return f"{worst.name} sets the pace: its work is {of}."
        if worst.where == "resource":
            return f"{worst.name} sets the pace: serving requests one after the other is {of}."
        depth = int(self.timeline.network.depth[worst.number])
        room = self.path.cycles_by(("room",), self.path.on, self.timeline.network.stream_count)[worst.number]
        advice = "; a deeper FIFO may help" if room else ""
        return f"{worst.name} (depth {depth}) sets the pace: waiting for its tokens and room is {of}{advice}."

    def __str__(self) -> str:
        """The bottleneck, the causes along the critical path, and the places where it spends most cycles."""
        parts = ", ".join(f"{_PARTS[kind]} {share:.1%}" for kind, share in self.shares.items() if share)
        lines = [self.sentence, f"critical path of {self.timeline.cycles:,} cycles: {parts}"]
        lines += [
            f"  {b.cycles:>12,} cycles {b.share:6.1%}  {b.name} ({_WAYS[b.where]})" for b in self.contributors[:10]
        ]
        if len(self.contributors) > 10:
            lines.append(f"  and {len(self.contributors) - 10} more")
        return "\n".join(lines)


def explain(timeline: Timeline, labels: Labels) -> Explanation:
    """Find the critical path of a recorded run.

    Raises:
        SimulationError: if not all events were kept.
    """
    return Explanation(timeline, critical_path(timeline), labels)
