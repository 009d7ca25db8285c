"""The smallest increase of FIFO depths that lets a deadlocked network finish.

Deeper FIFOs never block a network that shallower ones let through, so each depth can be bisected: first the full
FIFOs of each deadlock's cycle are made deeper until the run finishes, then each goes back as far as it can. No depth
of the answer can then be one less, and the runs that show it are real ones.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from allo_dse.errors import SimulationError

from ..network.network import IntArray, Network

MAX_DEPTH = 1 << 20
SEARCHED_ORDERS = 4
"""Up to so many FIFOs, each is tried as the one that is kept deep, for the least total."""


class Outcome(Protocol):
    """What the search needs to know of a run."""

    @property
    def network(self) -> Network: ...

    @property
    def finished(self) -> bool: ...

    @property
    def deadlock(self) -> Any: ...


Rerun = Callable[[Network, float], Outcome]
"""Runs a network within a time limit in seconds."""


@dataclass(frozen=True)
class Increase:
    """How much deeper FIFOs must be for a deadlocked network to finish.

    Attributes:
        changes: (stream, depth it has, depth it needs); of streams that share a depth the first one. Empty if no
            increase is known.
        depth: of all streams, with the changes.
        is_minimal: whether none of the depths can be one less; False when time ran out.
        reason: why no increase is known.
    """

    changes: tuple[tuple[int, int, int], ...]
    depth: IntArray
    is_minimal: bool = True
    reason: str = ""

    def describe(self, name: Callable[[int], str]) -> str:
        """What to do, in a sentence; `name` gives the names of streams."""
        if not self.changes:
            return self.reason
        what = ", ".join(f"{name(stream)} from {old} to {new}" for stream, old, new in self.changes)
        return f"raise {what}" + ("" if self.is_minimal else " (perhaps less is enough: the search ran out of time)")


def smallest_increase(
    result: Outcome,
    rerun: Rerun,
    *,
    arrays: Sequence[object] | None = None,
    max_depth: int = MAX_DEPTH,
    seconds: float = 5.0,
) -> Increase:
    """Find the smallest increase of depths that clears a deadlock.

    Arrays that tasks write hold what they held before, afterwards.

    Args:
        result: of the run that did not finish.
        arrays: per stream a key; streams of equal keys share one depth, as the streams of an array do.
        max_depth: depths beyond this are not tried.
        seconds: about how long to search.
    """
    network = result.network
    keep = [tensor.copy() for tensor in network.tensors]
    search = _Search(network, rerun, _groups(network, arrays), max_depth, time.perf_counter() + seconds)
    try:
        return search.run(result)
    finally:
        for tensor, values in zip(network.tensors, keep, strict=True):
            tensor[...] = values


def _groups(network: Network, arrays: Sequence[object] | None) -> IntArray:
    """Per stream a number; streams of the same number share a depth."""
    if arrays is None:
        return np.arange(network.stream_count)
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in arrays], np.int64)


class _OutOfTime(Exception):
    """The search has used its seconds."""


@dataclass(frozen=True)
class _Search:
    network: Network
    rerun: Rerun
    group: IntArray
    max_depth: int
    deadline: float

    def run(self, result: Outcome) -> Increase:
        raised: dict[int, int] = {}
        try:
            while not result.finished:
                full = self._full(result)
                if not full:
                    return self._none("no depth helps: the tasks wait for tokens that nobody will put")
                raised |= {g: 4 * raised.get(g, self._old(g)) for g in full}
                if max(raised.values()) > self.max_depth:
                    return self._none(f"no depth up to {self.max_depth:,} helps")
                result = self._try(raised)
        except _OutOfTime:
            return self._none("no depth that helps was found in the time allowed")
        return self._least(raised)

    def _least(self, raised: Mapping[int, int]) -> Increase:
        """Of several ways to lower the depths again, the one that adds the fewest tokens."""
        orders = [list(raised)]
        if len(raised) <= SEARCHED_ORDERS:
            orders = [[h for h in raised if h != g] + [g] for g in raised]
        best, is_minimal = dict(raised), False
        try:
            for order in orders:
                found = self._lowered(raised, order)
                if not is_minimal or self._added(found) < self._added(best):
                    best, is_minimal = found, True
        except _OutOfTime:
            pass
        changes = [(int(np.argmax(self.group == g)), self._old(g), d) for g, d in best.items() if d > self._old(g)]
        return Increase(tuple(sorted(changes)), self._depths(best), is_minimal)

    def _lowered(self, raised: Mapping[int, int], order: Sequence[int]) -> dict[int, int]:
        """Lower the depths of a finishing run one after the other, as far as it still finishes."""
        depths = dict(raised)
        for g in order:
            fails, works = self._old(g) - 1, depths[g]
            while works - fails > 1:
                # The old depth first: most FIFOs of a cycle need no more.
                middle = self._old(g) if fails < self._old(g) else (fails + works) // 2
                if self._try({**depths, g: middle}).finished:
                    works = middle
                else:
                    fails = middle
            depths[g] = works
        return depths

    def _try(self, raised: Mapping[int, int]) -> Outcome:
        left = self.deadline - time.perf_counter()
        if left <= 0:
            raise _OutOfTime
        try:
            return self.rerun(self.network.with_depths(self._depths(raised)), left)
        except SimulationError as error:
            raise _OutOfTime from error

    def _full(self, result: Outcome) -> set[int]:
        assert result.deadlock is not None
        return {int(self.group[b.stream]) for b in result.deadlock.cycle if b.direction == "put"}

    def _old(self, group: int) -> int:
        return int(self.network.depth[self.group == group].min())

    def _depths(self, raised: Mapping[int, int]) -> IntArray:
        depth = self.network.depth.copy()
        for g, value in raised.items():
            mine = self.group == g
            depth[mine] = np.maximum(depth[mine], value)
        return depth

    def _added(self, raised: Mapping[int, int]) -> int:
        return int((self._depths(raised) - self.network.depth).sum())

    def _none(self, reason: str) -> Increase:
        return Increase((), self.network.depth, reason=reason)
