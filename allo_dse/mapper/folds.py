"""The space of mesh folds: what is generated is legal, so nothing has to be filtered.

Per kernel and axis the legal options follow from the axis rules (`axes.py`); kernels fold independently and share the
budget of nodes. Folds are handed out normalised: two different ones are two different folded graphs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from ..frontend.program import CompiledProgram
from .axes import AxisRule, How, axis_rules
from .fold import AxisFold, KernelFold, MeshFold, unfolded, violations

__all__ = ["AxisFold", "AxisSpace", "FoldSpace", "KernelFold", "KernelSpace", "MeshFold", "fold_choices", "unfolded"]


@lru_cache(maxsize=1024)
def divisors(number: int) -> tuple[int, ...]:
    """All divisors, ascending."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return tuple(sorted({*small, *(number // d for d in small)}))


@dataclass(frozen=True)
class AxisSpace:
    """The legal folds of one mesh axis.

    Attributes:
        axis: its position in the mesh.
        extent: tasks along it.
        how: how it is folded; None when it stays spatial.
        spatial: legal numbers of nodes along it, ascending.
        reason: why fewer than all divisors are legal; empty when they all are.
    """

    axis: int
    extent: int
    how: How | None
    spatial: tuple[int, ...]
    reason: str

    def fitting(self, limit: int | None) -> tuple[int, ...]:
        """The legal numbers of nodes that are at most `limit`."""
        return self.spatial if limit is None else tuple(n for n in self.spatial if n <= limit)

    def options(self, limit: int | None = None) -> tuple[AxisFold, ...]:
        """The legal folds with at most `limit` nodes along this axis, normalised."""
        return tuple(fold for n in self.fitting(limit) for fold in self.options_for(n))

    def options_for(self, spatial: int) -> tuple[AxisFold, ...]:
        """The legal folds onto exactly `spatial` nodes, normalised."""
        if spatial == self.extent or self.how is None:
            return (AxisFold(spatial),)
        if spatial == 1 or self.how == "chain":
            return (AxisFold(spatial, "block", self.how),)
        return (AxisFold(spatial, "block", self.how), AxisFold(spatial, "cyclic", self.how))

    def is_loop(self, spatial: int) -> bool:
        """Whether folding onto `spatial` nodes makes a bundled loop, which has a place in the loop order."""
        return self.how == "bundle" and spatial < self.extent


@dataclass(frozen=True)
class KernelSpace:
    """The legal folds of one kernel."""

    kernel: str
    axes: tuple[AxisSpace, ...]

    @property
    def least_nodes(self) -> int:
        """The fewest nodes the kernel can be folded onto."""
        return math.prod(axis.spatial[0] for axis in self.axes)

    def fold(self, axes: tuple[AxisFold, ...], order: tuple[int, ...] = ()) -> KernelFold:
        """The kernel's fold, normalised; `order` can be any permutation of mesh axes, only bundled loops count."""
        return KernelFold(self.kernel, axes, order).normalised(tuple(axis.extent for axis in self.axes))

    def orders(self, axes: tuple[AxisFold, ...]) -> list[tuple[int, ...]]:
        """The loop orders that differ for these axis folds, outermost loop first."""
        loops = [space.axis for space, fold in zip(self.axes, axes, strict=True) if space.is_loop(fold.spatial)]
        return list(itertools.permutations(loops))

    def counts(self, limit: int | None) -> Counter[int]:
        """How many folds there are onto each number of nodes up to `limit`."""
        found: Counter[tuple[int, int]] = Counter({(1, 0): 1})
        rest = self.least_nodes
        for axis in self.axes:
            rest //= axis.spatial[0]
            grown: Counter[tuple[int, int]] = Counter()
            for (nodes, loops), count in found.items():
                for n in axis.fitting(None if limit is None else limit // (nodes * rest)):
                    grown[nodes * n, loops + axis.is_loop(n)] += count * len(axis.options_for(n))
            found = grown
        result: Counter[int] = Counter()
        for (nodes, loops), count in found.items():
            result[nodes] += count * math.factorial(loops)
        return result

    def folds(self, limit: int | None) -> Iterator[KernelFold]:
        """All folds onto at most `limit` nodes."""
        for axes in self._axes(0, limit, self.least_nodes):
            for order in self.orders(axes):
                yield KernelFold(self.kernel, axes, order)

    def _axes(self, first: int, limit: int | None, rest: int) -> Iterator[tuple[AxisFold, ...]]:
        """Axis folds from axis `first` on; `rest` is the fewest nodes those axes need."""
        if first == len(self.axes):
            yield ()
            return
        axis = self.axes[first]
        rest //= axis.spatial[0]
        for option in axis.options(None if limit is None else limit // rest):
            for others in self._axes(first + 1, None if limit is None else limit // option.spatial, rest):
                yield (option, *others)


@dataclass(frozen=True, eq=False)
class FoldSpace:
    """All mesh folds of a program onto at most `max_nodes` nodes.

    Attributes:
        max_nodes: the budget of nodes; None for no limit.
        kernels: the legal folds of each kernel, in program order. A sampler chooses axis by axis: `axis.fitting(limit)`
            with what `node_limit` and the axes chosen so far leave, `axis.options_for(n)`, then one of `orders(axes)`.
    """

    program: CompiledProgram
    max_nodes: int | None
    rules: tuple[tuple[AxisRule, ...], ...]
    kernels: tuple[KernelSpace, ...]

    @property
    def least_nodes(self) -> int:
        """The fewest nodes the program can be folded onto; the space is empty if they exceed `max_nodes`."""
        return sum(kernel.least_nodes for kernel in self.kernels)

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why axes cannot be folded freely, one line per axis concerned."""
        return tuple(f"{k.kernel}, axis {a.axis}: {a.reason}" for k in self.kernels for a in k.axes if a.reason)

    def node_limit(self, kernel: int, used: int = 0) -> int | None:
        """Nodes a kernel may have when the ones before it have `used` and the ones after it as few as they can."""
        if self.max_nodes is None:
            return None
        return self.max_nodes - used - sum(k.least_nodes for k in self.kernels[kernel + 1 :])

    def axis_limit(self, kernel: int, chosen: tuple[int, ...], used: int = 0) -> int | None:
        """Nodes along the next axis of a kernel, after `chosen` nodes along its first axes, that keep within budget."""
        limit = self.node_limit(kernel, used)
        if limit is None:
            return None
        rest = math.prod(axis.spatial[0] for axis in self.kernels[kernel].axes[len(chosen) + 1 :])
        return limit // (math.prod(chosen) * rest)

    def count(self) -> int:
        """How many folds there are; exact, and not by enumeration."""
        totals: Counter[int] = Counter({0: 1})
        for number, kernel in enumerate(self.kernels):
            grown: Counter[int] = Counter()
            for used, ways in totals.items():
                limit = self.node_limit(number, used)
                for nodes, count in kernel.counts(limit).items():
                    grown[used + nodes] += ways * count
            totals = grown
        return totals.total()

    def __iter__(self) -> Iterator[MeshFold]:
        """All folds, always in the same order."""
        for kernels in self._folds(0, 0):
            yield MeshFold(kernels)

    def _folds(self, number: int, used: int) -> Iterator[tuple[KernelFold, ...]]:
        if number == len(self.kernels):
            yield ()
            return
        for fold in self.kernels[number].folds(self.node_limit(number, used)):
            for others in self._folds(number + 1, used + fold.node_count):
                yield (fold, *others)

    def contains(self, fold: MeshFold) -> bool:
        """Whether a fold of this program's meshes, normalised or not, is legal and within the budget.

        Raises:
            IllegalFold: if it is not a fold of these meshes at all (other kernels, other ranks, no divisors).
        """
        fold = fold.normalised(self.program)
        if self.max_nodes is not None and fold.node_count > self.max_nodes:
            return False
        return not any(next(violations(k, r), None) for k, r in zip(fold.kernels, self.rules, strict=True))

    def to_dict(self) -> dict[str, Any]:
        """Plain data: per kernel and axis the options, for reports."""
        return {
            "max_nodes": self.max_nodes,
            "count": self.count(),
            "kernels": {
                k.kernel: [{"how": a.how, "spatial": list(a.spatial), "reason": a.reason} for a in k.axes]
                for k in self.kernels
            },
        }


def fold_choices(program: CompiledProgram, max_nodes: int | None = None) -> FoldSpace:
    """The legal mesh folds of a program onto at most `max_nodes` nodes (None: any number).

    Takes the same time for a mesh of two million tasks as for one of two.
    """
    rules = axis_rules(program)
    kernels = tuple(
        KernelSpace(kernel.name, tuple(_axis_space(axis, rule) for axis, rule in enumerate(axis_list)))
        for kernel, axis_list in zip(program.kernels, rules, strict=True)
    )
    return FoldSpace(program, max_nodes, rules, kernels)


def _axis_space(axis: int, rule: AxisRule) -> AxisSpace:
    if rule.how is None:
        spatial: tuple[int, ...] = (rule.extent,)
    elif rule.how == "chain" and not rule.partial:
        spatial = (1, rule.extent)
    else:
        spatial = divisors(rule.extent)
    return AxisSpace(axis, rule.extent, rule.how, spatial, rule.reason)
