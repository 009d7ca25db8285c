"""Data-dependent control of a task, as observed in a run; the cost model reads it in program order."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StaticControlError
from allo_dse.common.records import Frozen
from allo_dse.compiler.ir.nest import Branch, Loop, Node, Op
from allo_dse.compiler.program.tensors import BoolArray

IntArray = NDArray[np.int64]


class DataTest(Frozen):
    """A condition on data, in one copy of the unrolled loops around it.

    Attributes:
        copies: values of the variables of these loops.
    """

    site: int
    copies: tuple[tuple[int, int], ...] = ()

    def at(self, variable: int, value: int) -> DataTest:
        """Return the same condition in another copy."""
        return DataTest(self.site, tuple((v, value if v == variable else n) for v, n in self.copies))


class Observed:
    """Decisions of one task, to be read once each; those of a site come in the order in which they were made.

    Args:
        decisions: by site (see `compiler.ir.nest.CONTROL`), a row per execution: whether a condition held, or the
            number of iterations of a loop and the last value of its variable.
    """

    def __init__(self, decisions: Mapping[int, IntArray]) -> None:
        self._decisions = decisions
        self._next: defaultdict[int, int] = defaultdict(int)

    def rounds(self, site: int, step: int) -> IntArray:
        """Return the first value of a loop's variable and its iterations, per execution of the loop."""
        rows = self._decisions.get(site, np.zeros((0, 2), np.int64))
        trips, last = rows[:, 0], rows[:, 1]
        return np.stack([np.where(trips > 0, last - (trips - 1) * step, 0), trips], axis=1)

    def loop(self, site: int, step: int) -> tuple[int, int]:
        """Return the first value and the iterations of the next execution of a loop."""
        ((trips, last),) = self._take(site, 1).tolist()
        return (last - (trips - 1) * step if trips else 0), trips

    def holds(self, site: int, times: int) -> BoolArray:
        """Return whether a condition held at each of its next `times` executions."""
        held: BoolArray = self._take(site, times)[:, 0] != 0
        return held

    def _take(self, site: int, times: int) -> IntArray:
        start = self._next[site]
        rows = self._decisions.get(site, np.zeros((0, 2), np.int64))[start : start + times]
        if len(rows) < times:
            raise _misread()
        self._next[site] += times
        return rows

    def require_used(self) -> None:
        """Check that the model has read all decisions that were made.

        Raises:
            StaticControlError: if decisions are left.
        """
        if any(self._next[site] != len(rows) for site, rows in self._decisions.items()):
            raise _misread()


def _misread() -> StaticControlError:
    return StaticControlError(
        "a loop with conditions on data has other rounds in the schedule than in the program",
        hint="unroll loops around such conditions by factors that divide their rounds",
    )


def matters(node: Branch) -> bool:
    """Return whether the taken side of a condition affects a task's times.

    Both sides have their place in the schedule.
    """
    return any(
        (isinstance(inner, Op) and inner.direction is not None)
        or (isinstance(inner, Branch) and matters(inner))
        or not isinstance(inner, Op | Branch)
        for side in node.sides
        for inner in side
    )


def data_sites(nodes: Iterable[Node]) -> Iterator[int]:
    """Yield the sites where data decides on a task's times."""
    for node in nodes:
        if isinstance(node, Loop):
            if node.lower is None or node.upper is None or node.step <= 0:
                yield node.site
            yield from data_sites(node.body)
        elif isinstance(node, Branch):
            if node.test is None and matters(node):
                yield node.site
            for side in node.sides:
                yield from data_sites(side)
