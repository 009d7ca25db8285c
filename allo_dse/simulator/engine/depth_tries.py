"""Tries of the depth search (`deadlock.depths`) that are runs of the engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from allo_dse.common.errors import SimulationError

from ..deadlock.depths import Growth, Increase, NoDepthHelps, OutOfWork, Search
from ..deadlock.explain import Deadlock
from ..network.network import IntArray, Network

MAX_DEPTH = 1 << 20
SEARCH_WORK = 20_000_000
"""Turns of the scheduler, and tasks and streams set up for runs, that a search may cost: about two seconds' work."""

OUT_OF_WORK = "no depth that helps was found within the work allowed"


class Outcome(Protocol):
    """Properties of a run that the depth search needs."""

    @property
    def network(self) -> Network: ...

    @property
    def finished(self) -> bool: ...

    @property
    def deadlock(self) -> Deadlock | None: ...

    @property
    def turns(self) -> int: ...


Rerun = Callable[[Network, int], Outcome]
"""Runs a network for at most so many turns of the scheduler."""


def smallest_increase(
    result: Outcome,
    rerun: Rerun,
    *,
    arrays: Sequence[object] | None = None,
    max_depth: int = MAX_DEPTH,
    work: int = SEARCH_WORK,
) -> Increase:
    """Find the smallest increase of depths that clears a deadlock.

    Arrays that tasks write hold what they held before, afterwards.

    Args:
        result: of the run that did not finish.
        arrays: per stream a key; streams of equal keys share one depth, as the streams of an array do.
        max_depth: depths beyond this are not tried.
        work: see `SEARCH_WORK`.
    """
    network = result.network
    keep = [tensor.copy() for tensor in network.tensors]
    runs = _Runs(result, rerun, _groups(network, arrays), max_depth, work)
    try:
        found = Search(runs, runs.start, runs.weight).run(max_runs=0)
    except NoDepthHelps as error:
        return Increase((), network.depth, reason=str(error))
    except OutOfWork:
        return Increase((), network.depth, is_minimal=False, reason=OUT_OF_WORK)
    finally:
        for tensor, values in zip(network.tensors, keep, strict=True):
            tensor[...] = values
    changed = [g for g, (new, old) in enumerate(zip(found.depths, runs.start, strict=True)) if new > old]
    changes = tuple(sorted((int(np.argmax(runs.group == g)), runs.start[g], found.depths[g]) for g in changed))
    depths = runs.depths(found.depths)
    added = int((depths - network.depth).sum())
    return Increase(changes, depths, added, found.at_least, found.runs, found.is_minimal)


def _groups(network: Network, arrays: Sequence[object] | None) -> IntArray:
    """Per stream a number; streams of the same number share a depth."""
    if arrays is None:
        return np.arange(network.stream_count)
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(key, len(numbers)) for key in arrays], np.int64)


class _Runs:
    """Runs at depths given per group: the full streams of a deadlock's cycle become four times as deep."""

    is_least = False

    def __init__(self, result: Outcome, rerun: Rerun, group: IntArray, max_depth: int, work: int) -> None:
        self._network, self._first, self._rerun = result.network, result, rerun
        self.group = group
        count = int(group.max(initial=-1)) + 1
        start = np.full(count, np.iinfo(np.int64).max)
        np.minimum.at(start, group, self._network.depth)
        self.start = tuple(start.tolist())
        self.weight = tuple(np.bincount(group, minlength=count).tolist())
        self._max_depth, self._work = max_depth, work

    def depths(self, of_groups: Sequence[int]) -> IntArray:
        """Per stream its depth; streams of a group that are deeper stay so."""
        return np.maximum(self._network.depth, np.array(of_groups, np.int64)[self.group])

    def __call__(self, depths: tuple[int, ...]) -> Growth:
        result = self._first if depths == self.start else self._run(depths)
        if result.finished:
            return []
        assert result.deadlock is not None
        full = {int(self.group[b.stream]) for b in result.deadlock.cycle if b.direction == "put"}
        if not full:
            raise NoDepthHelps("no depth helps: the tasks wait for tokens that no task will put")
        if max(4 * depths[g] for g in full) > self._max_depth:
            raise NoDepthHelps(f"no depth up to {self._max_depth:,} helps")
        return [(g, 3 * depths[g]) for g in sorted(full)]

    def _run(self, depths: Sequence[int]) -> Outcome:
        network = self._network
        self._work -= network.task_count + network.stream_count
        if self._work <= 0:
            raise OutOfWork
        try:
            result = self._rerun(network.with_depths(self.depths(depths)), self._work)
        except SimulationError as error:
            raise OutOfWork from error
        self._work -= result.turns
        return result
