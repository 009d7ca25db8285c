"""Saying what held a run up: the critical path by cause, the bottleneck in a sentence, and what everyone waited for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from msgspec import Struct, structs

from allo_dse.common.aliases import JsonObject

from ..network.labels import Labels, node_label
from .critical_path import KINDS, CriticalPath, critical_path
from .timeline import Activity, Timeline

Where = Literal["node", "stream", "resource"]

_PARTS = {"work": "work", "service": "shared resources", "token": "tokens on their way", "room": "full FIFOs"}
_WAYS: dict[Where, str] = {"node": "work", "stream": "tokens and room", "resource": "service"}


class Bottleneck(Struct, frozen=True):
    """What the critical path spends most cycles on.

    Attributes:
        where, number: a node (processing element), a stream or a resource, and its number.
        name: what it is called.
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
        timeline, path: what happened, and the chain of events that fixes the last clock.
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
            ("resource", path.cycles_by(("service",), path.on, network.resources), self._resource),
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

    def _resource(self, resource: int) -> str:
        return self.labels.resource(resource)

    @property
    def bottleneck(self) -> Bottleneck | None:
        """The first of `contributors`; None if the run took no time."""
        return self.contributors[0] if self.contributors else None

    @property
    def shares(self) -> dict[str, float]:
        """Of the run's cycles, how much of the critical path is work, service, tokens on their way, and room."""
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
        """The bottleneck, what the critical path consists of, and the things it spends most cycles on."""
        parts = ", ".join(f"{_PARTS[kind]} {share:.1%}" for kind, share in self.shares.items() if share)
        lines = [self.sentence, f"critical path of {self.timeline.cycles:,} cycles: {parts}"]
        lines += [
            f"  {b.cycles:>12,} cycles {b.share:6.1%}  {b.name} ({_WAYS[b.where]})" for b in self.contributors[:10]
        ]
        if len(self.contributors) > 10:
            lines.append(f"  and {len(self.contributors) - 10} more")
        return "\n".join(lines)

    def to_dict(self, *, steps: int = 10_000) -> JsonObject:
        """Everything as plain data, for JSON; of a longer critical path the first `steps`."""
        timeline, path = self.timeline, self.path
        nodes = [
            {"name": self._node(node), **{a.name.lower(): c for a, c in zip(Activity, cycles, strict=True)}}
            for node, cycles in enumerate(timeline.node_cycles.tolist())
        ]
        columns = (path.kind[:steps], path.task[:steps], path.on[:steps], path.start[:steps], path.end[:steps])
        chain = [
            {"kind": KINDS[kind], "task": self.labels.task(task), "on": self._on(kind, on), "start": start, "end": end}
            for kind, task, on, start, end in zip(*(c.tolist() for c in columns), strict=True)
        ]
        return {
            "cycles": timeline.cycles,
            "bottleneck": self.sentence,
            "shares": self.shares,
            "contributors": [structs.asdict(b) for b in self.contributors],
            "critical_path": chain,
            "critical_path_steps": len(path),
            "nodes": nodes,
        }

    def _on(self, kind: int, on: int) -> str | None:
        if on < 0:
            return None
        return self._resource(on) if KINDS[kind] == "service" else self.labels.stream(on)


def explain(timeline: Timeline, labels: Labels) -> Explanation:
    """Find the critical path of a recorded run.

    Raises:
        SimulationError: if not all events were kept.
    """
    return Explanation(timeline, critical_path(timeline), labels)
