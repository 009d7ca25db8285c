"""The space of mesh folds: what is generated is legal, so nothing has to be filtered.

Per kernel and axis the legal options follow from the axis rules (`axes.py`). Kernels whose axes are linked fold
together, kernels can share nodes (`joint.py`), and all of them share the budget of nodes and of the device's channels.
Folds are handed out normalised: two different ones are two different folded graphs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from allo_dse.common.aliases import JsonObject
from allo_dse.program.compiled import CompiledProgram

from ..axes.axes import AxisRule
from ..fold.fold import AxisFold, KernelFold, MeshFold, unfolded, violations
from ..fold.fold_options import AxisSpace, KernelSpace, axis_space
from ..fold.joint import JointFold
from ..graph.kernel_graph import Chains, KernelGraph, node_sets
from ..graph.program_graph import ProgramGraph
from .fold_units import NOTHING, FoldUnit, Sizes, add_needs, independent_parts

if TYPE_CHECKING:
    from .fold_bounds import FoldBounds, Needs

__all__ = ["AxisFold", "AxisSpace", "FoldSpace", "KernelFold", "KernelSpace", "MeshFold", "fold_choices", "unfolded"]


class Layout(Struct, frozen=True):
    """Folds onto the same nodes: they differ in the order of loops, and in which tasks of an axis share a node.

    Attributes:
        names: of the kernels of each chain.
        chains: the same by their positions.
        sizes: per kernel the number of nodes along each axis.
    """

    names: tuple[tuple[str, ...], ...]
    chains: Chains
    sizes: tuple[tuple[int, ...], ...]
    _units: tuple[FoldUnit, ...]

    @property
    def count(self) -> int:
        """How many folds it has."""
        return math.prod(unit.count(dict(enumerate(self.sizes))) for unit in self._units)

    def folds(self) -> Iterator[MeshFold]:
        """All of them, always in the same order."""
        for parts in itertools.product(*(unit.folds(dict(enumerate(self.sizes))) for unit in self._units)):
            found = {kernel: fold for part in parts for kernel, fold in part.items()}
            yield MeshFold(tuple(found[k] for k in range(len(found))), self.names)


class FoldSpace(Struct, frozen=True, eq=False, dict=True):
    """All mesh folds of a program onto at most `max_nodes` nodes that can fit a device.

    Attributes:
        max_nodes: the budget of nodes; None for no limit.
        kernels: the legal folds of each kernel's axes, in program order.
        bounds: what a device offers; None to leave it out of account.
    """

    program_graph: ProgramGraph
    max_nodes: int | None
    kernels: tuple[KernelSpace, ...]
    bounds: FoldBounds | None = None

    @property
    def least_nodes(self) -> int:
        """The fewest nodes the program can be folded onto; the space is empty if they exceed `max_nodes`."""
        least = [kernel.least_nodes for kernel in self.kernels]
        sizes = [tuple(axis.spatial[0] for axis in kernel.axes) for kernel in self.kernels]
        best = sum(least)
        for chains in self.graph.partitions:
            members = [k for chain in chains for k in chain]
            if any(least[k] > 1 for k in members):
                continue
            if self.bounds and not all(self.bounds.core_fits([(k, sizes[k]) for k in chain]) for chain in chains):
                continue
            best = min(best, sum(least) - len(members) + len(chains))
        return best

    @staticmethod
    def of(graph: ProgramGraph, max_nodes: int | None = None, bounds: FoldBounds | None = None) -> FoldSpace:
        """The space of a program's folds; takes the same time for a mesh of two million tasks as for one of two."""
        kernels = tuple(
            KernelSpace(kernel.name, tuple(axis_space(axis, rule) for axis, rule in enumerate(rules)))
            for kernel, rules in zip(graph.program.kernels, graph.rules, strict=True)
        )
        return FoldSpace(graph, max_nodes, kernels, bounds)

    @property
    def rules(self) -> tuple[tuple[AxisRule, ...], ...]:
        """What each mesh axis of each kernel allows."""
        return self.program_graph.rules

    @property
    def graph(self) -> KernelGraph:
        """The kernels and the streams between them."""
        return self.program_graph.kernels

    @property
    def heads(self) -> tuple[tuple[int, ...], ...]:
        """Per kernel the kernels that can begin a chain that it is part of, in program order."""
        found: list[set[int]] = [set() for _ in self.kernels]
        for chains in self.graph.partitions:
            if len(chains) == 1:
                first, *others = chains[0]
                for kernel in others:
                    if first not in found[kernel] and self._can_share((first, kernel)):
                        found[kernel].add(first)
        return tuple(tuple(sorted(heads)) for heads in found)

    def _can_share(self, kernels: tuple[int, ...]) -> bool:
        """Whether there are folds in which kernels share their nodes, as far as their axes and one core decide."""
        sizes = [(k, tuple(axis.spatial[0] for axis in self.kernels[k].axes)) for k in kernels]
        links = [{rule.link for rule, nodes in zip(self.rules[k], own, strict=True) if nodes > 1} for k, own in sizes]
        alike = all(own == links[0] and None not in own for own in links)
        return alike and (self.bounds is None or self.bounds.core_fits(sizes))

    def joint_orders(self, wanted: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Loop orders near the wanted ones (permutations of each kernel's axes) in which linked loops agree.

        Linked loops are outermost; those that more kernels share come first, otherwise as the first kernel wants them.
        """
        links = [rule.link for rules in self.rules for rule in rules]
        rank: dict[int, int] = {}
        for order, rules in zip(wanted, self.rules, strict=True):
            for axis in order:
                link = rules[axis].link
                if link is not None:
                    rank.setdefault(link, len(rank))

        def place(link: int | None) -> tuple[int, int]:
            return (1, 0) if link is None else (-links.count(link), rank.get(link, 0))

        result = []
        for order, rules in zip(wanted, self.rules, strict=True):
            places = {axis: (2, 0) if rules[axis].follows else place(rules[axis].link) for axis in order}
            result.append(tuple(sorted(order, key=places.__getitem__)))
        return result

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why axes cannot be folded freely, one line per axis concerned."""
        return tuple(f"{k.kernel}, axis {a.axis}: {a.reason}" for k in self.kernels for a in k.axes if a.reason)

    def count(self) -> int:
        """How many folds there are; exact, and without making them."""
        return sum(self.counts().values())

    def counts(self) -> dict[int, int]:
        """How many folds there are onto each number of nodes, in ascending order."""
        found: Counter[int] = Counter()
        for units in self._units_of_chains():
            totals: Counter[Needs] = Counter({NOTHING: 1})
            for unit in units:
                totals = self._joined(totals, unit.needs(self.max_nodes, self.bounds))
            for needs, ways in totals.items():
                found[needs[0]] += ways
        return dict(sorted(found.items()))

    @property
    def pruned_share(self) -> float:
        """The share of all legal folds that are never made, because they cannot fit."""
        every = FoldSpace(self.program_graph, None, self.kernels).count()
        return 1 - self.count() / every

    def _joined(self, first: Counter[Needs], second: Counter[Needs]) -> Counter[Needs]:
        result: Counter[Needs] = Counter()
        for a, ways in first.items():
            for b, count in second.items():
                if self._fits(needs := add_needs(a, b)):
                    result[needs] += ways * count
        return result

    def _fits(self, needs: Needs) -> bool:
        return (self.max_nodes is None or needs[0] <= self.max_nodes) and (not self.bounds or self.bounds.fits(needs))

    def _units_of_chains(self) -> Iterator[list[FoldUnit]]:
        """For each choice of chains, the kernels in parts that fold independently of each other."""
        for chains in self.graph.partitions:
            yield [self._unit(kernels, own) for kernels, own in independent_parts(self.rules, chains)]

    def _unit(self, kernels: tuple[int, ...], chains: Chains) -> FoldUnit:
        found = self._units.get((kernels, chains))
        if found is None:
            found = self._units[kernels, chains] = FoldUnit(self.graph, self.rules, self.kernels, kernels, chains)
        return found

    @cached_property
    def _units(self) -> dict[tuple[tuple[int, ...], Chains], FoldUnit]:
        return {}

    def __iter__(self) -> Iterator[MeshFold]:
        """All folds, always in the same order: those without chains first."""
        return (fold for layout in self.layouts() for fold in layout.folds())

    def layouts(self, nodes: int | None = None) -> Iterator[Layout]:
        """All folds (onto exactly so many nodes) by the number of nodes along each axis, in the order of iteration."""
        for chains, units in zip(self.graph.partitions, self._units_of_chains(), strict=True):
            names = tuple(tuple(self.kernels[k].kernel for k in members) for members in chains)
            for sizes in self._sizes(units, NOTHING, nodes):
                yield Layout(names, chains, tuple(sizes[k] for k in range(len(self.kernels))), tuple(units))

    def _sizes(self, units: list[FoldUnit], used: Needs, nodes: int | None) -> Iterator[Sizes]:
        if not units:
            yield {}
            return
        limit = None if self.max_nodes is None else self.max_nodes - used[0]
        for needs, sizes in units[0].sizes(limit, self.bounds):
            total = add_needs(used, needs)
            enough = nodes is None or len(units) > 1 or total[0] == nodes
            if enough and self._fits(total):
                for others in self._sizes(units[1:], total, nodes):
                    yield sizes | others

    def is_legal(self, fold: MeshFold) -> bool:
        """Whether a fold of this program's meshes, normalised or not, keeps all rules and the budget of nodes.

        Raises:
            IllegalFold: if it is not a fold of these meshes at all (other kernels, other ranks, no divisors).
        """
        fold = fold.normalised(self.program_graph)
        if self.max_nodes is not None and fold.node_count > self.max_nodes:
            return False
        if any(next(violations(k, r), None) for k, r in zip(fold.kernels, self.rules, strict=True)):
            return False
        return next(JointFold.of(self.program_graph, fold).violations(), None) is None

    def contains(self, fold: MeshFold) -> bool:
        """Whether a fold is one of those that iteration gives: legal, and not beyond what the device offers.

        Raises:
            IllegalFold: as `is_legal`.
        """
        fold = fold.normalised(self.program_graph)
        if not self.is_legal(fold) or not self.bounds:
            return self.is_legal(fold)
        sizes = [tuple(axis.spatial for axis in kernel.axes) for kernel in fold.kernels]
        sets = node_sets(JointFold.of(self.program_graph, fold).chains, range(len(sizes)))
        needs = NOTHING
        for kernel, own in enumerate(sizes):
            needs = add_needs(needs, self.bounds.needs(kernel, own))
        return self._fits(needs) and all(self.bounds.core_fits([(k, sizes[k]) for k in members]) for members in sets)

    def to_dict(self) -> JsonObject:
        """Plain data: per kernel and axis the options, for reports."""
        return {
            "max_nodes": self.max_nodes,
            "count": self.count(),
            "pruned_share": self.pruned_share,
            "kernels": {
                k.kernel: [{"how": a.how, "spatial": list(a.spatial), "reason": a.reason} for a in k.axes]
                for k in self.kernels
            },
        }


def fold_choices(program: CompiledProgram, max_nodes: int | None = None, bounds: FoldBounds | None = None) -> FoldSpace:
    """The legal mesh folds of a program onto at most `max_nodes` nodes (None: any number).

    With `bounds`, those that cannot fit a device are left out.

    Takes the same time for a mesh of two million tasks as for one of two.
    """
    return FoldSpace.of(ProgramGraph(program), max_nodes, bounds)
