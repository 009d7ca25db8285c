"""Why a run or a replay stopped before its end: the tasks that wait for each other, and the streams between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import Struct

from allo_dse.common.errors import SimulationError

from ..network.network import Labels
from .deeper import Increase


class DeadlockError(SimulationError):
    """A run in which tasks wait for each other for ever.

    Attributes:
        labels: names of what `deadlock` numbers.
        increase: the smallest increase of depths that clears it, or why none is known; None if it was not looked for.
    """

    def __init__(self, deadlock: Deadlock, labels: Labels, increase: Increase | None = None) -> None:
        hint = increase.describe(labels.array) if increase and increase.changes else deadlock.hint
        super().__init__(deadlock.describe(labels), hint=hint)
        self.deadlock = deadlock
        self.labels = labels
        self.increase = increase

    @property
    def deeper(self) -> dict[str, int]:
        """Depths that clear it, by array of streams; empty where none are known."""
        return {self.labels.array(s): new for s, _, new in self.increase.changes} if self.increase else {}


class Blocked(Struct, frozen=True):
    """A task that waits in a stream operation.

    Attributes:
        op: the operation's number: its `op` attribute in a task body, its row in an operation table.
        clock: the local clock at which it waits.
        held: tokens in the stream: 0 for a get, the stream's depth for a put.
        peer: the task at the stream's other end, or None where that is not known.
        peer_node: the node that runs it, or None.
    """

    task: int
    node: int
    direction: Literal["get", "put"]
    stream: int
    op: int
    clock: int
    held: int
    peer: int | None
    peer_node: int | None

    def describe(self, labels: Labels) -> str:
        state = "empty" if self.direction == "get" else f"full, {self.held} tokens"
        way = "get from" if self.direction == "get" else "put to"
        at = labels.operation(self.task, self.op)
        return (
            f"{labels.task(self.task)} waits to {way} {labels.stream(self.stream)} ({state}; {at}; cycle {self.clock})"
        )


class Deadlock(Struct, frozen=True):
    """Tasks that cannot continue.

    Attributes:
        blocked: all of them, by node.
        cycle: tasks that wait for each other, each for the next and the last for the first. Empty when a task waits
            for one that has ended (the numbers of puts and gets differ).
        starved: such a task, or one whose peer is unknown, when there is no cycle.
    """

    blocked: tuple[Blocked, ...]
    cycle: tuple[Blocked, ...]
    starved: Blocked | None

    @property
    def hint(self) -> str:
        if any(b.direction == "put" for b in self.cycle):
            return "make a full stream of the cycle deeper, or change the order of its puts and gets"
        if self.cycle:
            return "no depth helps: every task of the cycle waits for a token before it puts one"
        return "the tasks at the two ends of the stream disagree on how many tokens it carries"

    def describe(self, labels: Labels | None = None) -> str:
        """Describe the deadlock, one line per task of the cycle."""
        labels = labels or Labels()
        if self.cycle:
            head = f"deadlock: {len(self.cycle)} of {len(self.blocked)} blocked tasks wait for each other"
            return "\n".join([head, *(f"  {b.describe(labels)}" for b in self.cycle)])
        if self.starved is None:
            return f"deadlock: {len(self.blocked)} tasks are blocked"
        other = "another task" if self.starved.peer is None else labels.task(self.starved.peer)
        text = f"deadlock: {self.starved.describe(labels)}"
        return f"{text}, but {other} has ended" if self.starved.peer is not None else text


def deadlock_of(blocked: Sequence[Blocked]) -> Deadlock:
    """Explain a run or a replay that stopped with these tasks waiting."""
    by_node = {b.node: b for b in blocked}
    cycle = wait_cycle(by_node)
    starved = None if cycle else min(blocked, key=lambda b: _reason(by_node, b), default=None)
    return Deadlock(tuple(blocked), cycle, starved)


def _reason(by_node: Mapping[int, Blocked], blocked: Blocked) -> int:
    """Without a cycle all waiting goes back to a task whose peer has ended (0) or is not known (1)."""
    if blocked.peer_node is None:
        return 1
    return 2 if blocked.peer_node in by_node else 0


def wait_cycle(by_node: Mapping[int, Blocked]) -> tuple[Blocked, ...]:
    """A cycle of the graph in which each blocked node points to the node it waits for; empty if there is none."""
    # Each node waits for at most one other, so its path is unique and nodes of earlier paths need no second visit.
    done: set[int] = set()
    for start in by_node:
        path: list[int] = []
        node: int | None = start
        while node is not None and node in by_node and node not in done:
            done.add(node)
            path.append(node)
            node = by_node[node].peer_node
        if node in path:
            return tuple(by_node[n] for n in path[path.index(node) :])
    return ()
