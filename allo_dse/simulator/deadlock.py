"""Why a run or a replay stopped before its end: the tasks that wait for each other, and the streams between them."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import Frozen

from .network.network import IntArray, Labels

# The smallest increase of stream depths that clears a deadlock: one search, for runs of the engine and for replays.
#
# Whether a network deadlocks does not depend on times, and deeper streams never cause it (docs/timing.md, T13). A try
# at some depths either finishes or says which full streams could help, and by how much they must grow:
#
# * A replay knows the least growth: a full stream of the cycle must take all tokens that its writer puts before it
# comes to the operation that the cycle waits for. If every stream of the cycle grew by less, none of its processes
# could be the first to go on, so one of them must grow by that much. Trying them, smallest total first, finds the
# minimum. * A run only knows the streams. They are made deeper until the run finishes, then each goes back as far as
# it can.
#
# Only tries and their work are limited, never time: the same network gets the same answer on every machine.


SEARCHED_ORDERS = 4
"""Largest number of streams that are each tried as the deep one, for the least total."""
CUT_SHORT = " (perhaps less is enough: the search was cut short)"

Growth = list[tuple[int, int]]
"""Streams with their new depths, one of which must grow; empty if none has to."""


class NoDepthHelps(Exception):
    """No depths clear the deadlock; the message says why."""


class OutOfWork(Exception):
    """The tries have used the work that they may do."""


class Trial(Protocol):
    """Tries depths.

    Attributes:
        is_least: whether less growth than a try asks for cannot help; then one of its streams is enough to go on, else
            all grow.
    """

    is_least: bool

    def __call__(self, depths: tuple[int, ...]) -> Growth:
        """Return candidates to deepen, one of which lets the network get further; raises NoDepthHelps, OutOfWork."""


@dataclass(frozen=True, eq=False)
class Increase:
    """Increase of stream depths that lets a deadlocked network finish.

    Attributes:
        changes: (stream, depth it has, depth it needs); of streams that share a depth the first one. Empty if no
            increase is known, or needed.
        depths: of all streams, with the changes.
        added: slots added in all. at_least: no increase by fewer clears the deadlock.
        runs: depth vectors tried.
        is_minimal: whether no depth can be one less; False if the search was cut short.
        reason: why no increase is known.
        names: of the streams, where known.
    """

    changes: tuple[tuple[int, int, int], ...]
    depths: IntArray
    added: int = 0
    at_least: int = 0
    runs: int = 0
    is_minimal: bool = True
    reason: str = ""
    names: Sequence[str] = field(default=(), repr=False)

    @property
    def proven(self) -> bool:
        """True if no smaller total increase exists."""
        return self.added == self.at_least

    @property
    def increase(self) -> dict[str, int]:
        """The streams that had to grow, by name, with their new depths."""
        return {self.names[stream]: new for stream, _, new in self.changes}

    @property
    def advice(self) -> str:
        """Advice in one sentence."""
        if not self.changes:
            return self.reason or "nothing has to be deeper"
        what = ", ".join(f"{name} to {depth}" for name, depth in self.increase.items())
        return f"raise {what}" + ("" if self.proven else CUT_SHORT)

    def describe(self, name: Callable[[int], str]) -> str:
        """Return the advice in one sentence; `name` gives the names of streams."""
        if not self.changes:
            return self.reason
        what = ", ".join(f"{name(stream)} from {old} to {new}" for stream, old, new in self.changes)
        return f"raise {what}" + ("" if self.is_minimal else CUT_SHORT)


class Found(Frozen):
    """Depths that do not deadlock, and what is known of them; see `Increase`."""

    depths: tuple[int, ...]
    at_least: int
    runs: int
    is_minimal: bool


class Search:
    """The search for the depths of least total that finish.

    Args:
        trial: tries depths, one per stream or group of streams.
        start: depths to begin with, which are also the least allowed.
        weight: streams that share each depth; 1 each if not given.
    """

    def __init__(self, trial: Trial, start: Sequence[int], weight: Sequence[int] | None = None) -> None:
        self._trial = trial
        self._start = tuple(map(int, start))
        self._weight = tuple(weight) if weight is not None else (1,) * len(self._start)
        self._runs = 0

    def run(self, max_runs: int) -> Found:
        """After `max_runs` tries of least growth, streams grow where it costs least, and are then lowered.

        Raises:
            NoDepthHelps: if there are no such depths.
            OutOfWork: if the work was used up before any were found.
        """
        bound, depths = 0, self._start
        if self._trial.is_least:
            bound, depths, finishes = self._best_first(max_runs)
            if finishes:
                return Found(depths, bound, self._runs, True)
        while growth := self._try(depths):
            chosen = [min(growth, key=lambda g: g[1] * self._weight[g[0]])] if self._trial.is_least else growth
            for stream, slots in chosen:
                depths = _with(depths, stream, depths[stream] + slots)
        best, is_minimal = self._least(depths)
        return Found(best, bound, self._runs, is_minimal)

    def _try(self, depths: tuple[int, ...]) -> Growth:
        self._runs += 1
        return self._trial(depths)

    def _added(self, depths: tuple[int, ...]) -> int:
        return sum(w * (new - old) for w, new, old in zip(self._weight, depths, self._start, strict=True))

    def _best_first(self, max_runs: int) -> tuple[int, tuple[int, ...], bool]:
        """The least total of any depths that may finish, such depths, and whether they do."""
        waiting = [(0, self._start)]
        seen = {self._start}
        while self._runs < max_runs:
            added, depths = heapq.heappop(waiting)
            growth = self._try(depths)
            if not growth:
                return added, depths, True
            # Any depths that get further have at least one of these streams at least so much deeper. So every solution
            # is behind one of the entries, and the first solution in order of total depth has the least total
            # (uniform-cost search).
            for stream, slots in growth:
                deeper = _with(depths, stream, depths[stream] + slots)
                if deeper not in seen:
                    seen.add(deeper)
                    heapq.heappush(waiting, (self._added(deeper), deeper))
        # Totals only grow along the search, so the smallest pending total bounds all solutions from below.
        return (*waiting[0], False)

    def _least(self, depths: tuple[int, ...]) -> tuple[tuple[int, ...], bool]:
        """Return the cheapest of several ways to lower the depths again, and whether any way was completed."""
        raised = [s for s, (new, old) in enumerate(zip(depths, self._start, strict=True)) if new > old]
        orders = [raised]
        if len(raised) <= SEARCHED_ORDERS:
            # The stream that is lowered last keeps most of its depth. It is unknown which one should, so each is last
            # once.
            orders = [[t for t in raised if t != s] + [s] for s in raised]
        best, is_minimal = depths, not raised
        try:
            for order in orders:
                found = self._lowered(depths, order)
                if not is_minimal or self._added(found) < self._added(best):
                    best, is_minimal = found, True
        except OutOfWork:
            pass
        return best, is_minimal

    def _lowered(self, depths: tuple[int, ...], order: Sequence[int]) -> tuple[int, ...]:
        """Lower depths that finish one after the other, as far as they still do."""
        for stream in order:
            # Depth is monotonic: a run that finishes also does with deeper streams (docs/timing.md). So bisect.
            fails, works = self._start[stream] - 1, depths[stream]
            while works - fails > 1:
                # Try the old depth first: most streams of a cycle need no more.
                middle = self._start[stream] if fails < self._start[stream] else (fails + works) // 2
                if self._finishes(_with(depths, stream, middle)):
                    works = middle
                else:
                    fails = middle
            depths = _with(depths, stream, works)
        return depths

    def _finishes(self, depths: tuple[int, ...]) -> bool:
        try:
            return not self._try(depths)
        except NoDepthHelps:
            return False


def _with(depths: tuple[int, ...], stream: int, depth: int) -> tuple[int, ...]:
    return (*depths[:stream], depth, *depths[stream + 1 :])


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


class Blocked(Frozen):
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


class Deadlock(Frozen):
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
