"""The space of mesh folds. Only legal folds are generated, so nothing has to be filtered.

Per kernel and axis the legal options follow from the axis rules (`axes.py`). Kernels whose axes are linked fold
together, kernels can share nodes (`joint.py`), and all of them share the budget of nodes and of the device's channels.
Folds are yielded normalised: two different ones are two different folded graphs.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Protocol

import numpy as np
from msgspec import field

from allo_dse.common.records import Frozen, Ints, JsonObject
from allo_dse.compiler.program.compiled import CompiledProgram

from ..axes import AxisRule
from ..graph.kernel_graph import Chains, KernelGraph, node_sets
from ..graph.program_graph import ProgramGraph
from ..graph_algorithms import DisjointSets
from .fold import (
    AxisFold,
    AxisSpace,
    JointFold,
    KernelFold,
    KernelSpace,
    MeshFold,
    axis_space,
    joint_orders,
    unfolded,
)

# Enumerating and counting folds of kernels that depend on each other through linked axes or shared nodes.


Needs = tuple[int, ...]
"""Nodes, and then what else a device has a limited number of: the needs of kernels add up."""


class FoldBounds(Protocol):
    """Lower bounds of what folds need of a device, known before the folded graph is built."""

    @property
    def nothing(self) -> Needs:
        """The needs of no kernel: as many zeros as there are quantities."""

    def needs(self, kernel: int, sizes: Sequence[int]) -> Needs:
        """Return the least needs of a kernel on a number of nodes per axis; nodes are counted elsewhere and 0 here."""

    def fits(self, needs: Needs) -> bool:
        """Return whether the device has enough for the total needs of the kernels."""

    def core_fits(self, members: Sequence[tuple[int, Sequence[int]]]) -> bool:
        """Return whether a node can hold the kernels that share it, each with its number of nodes per axis."""

    def tasks_fit(self, tasks: Sequence[int]) -> bool:
        """Return whether a node can hold some tasks."""


def no_needs(bounds: FoldBounds | None) -> Needs:
    """Return the needs of no kernel; without bounds, only nodes are counted."""
    return (0,) if bounds is None else bounds.nothing


MOST_CHAININGS = 2048
"""Choices of chains that are counted within a limit: each takes about a millisecond."""
MOST_LISTED, MOST_LISTS = 4096, 64
"""Sizes that a unit keeps for one budget of nodes, and budgets."""

Sizes = dict[int, Ints]
"""Per kernel how many nodes it has along each axis."""


Limits = tuple[int | None, FoldBounds | None]
"""A budget of nodes, and what a device has."""


def add_needs(first: Needs, second: Needs) -> Needs:
    return tuple(a + b for a, b in zip(first, second, strict=True))


class _Variable(Frozen):
    """An axis whose number of nodes is chosen by itself, and all places that follow the choice."""

    space: AxisSpace
    places: tuple[tuple[int, int], ...]


class FoldUnit(Frozen, eq=False, dict=True):
    """The folds of some kernels that depend on each other.

    Attributes:
        rules, spaces: of all kernels of the program.
        kernels: positions of the kernels concerned.
        chains: which of them share nodes.
    """

    graph: KernelGraph
    rules: Sequence[Sequence[AxisRule]]
    spaces: Sequence[KernelSpace]
    kernels: Ints
    chains: Chains
    _counted: dict[Limits, Counter[Needs]] = field(default_factory=dict)
    _listed: dict[Limits, list[tuple[Needs, Sizes]]] = field(default_factory=dict)
    _known_orders: dict[tuple[Ints, ...], list[tuple[Ints, ...]]] = field(default_factory=dict)

    @cached_property
    def sets(self) -> list[Sequence[int]]:
        """The kernels in sets that have nodes of their own."""
        return node_sets(self.chains, self.kernels)

    def needs(self, max_nodes: int | None, bounds: FoldBounds | None) -> Counter[Needs]:
        """Count the folds by the resources that they need."""
        key = (max_nodes, bounds)
        if key not in self._counted:
            found: Counter[Needs] = Counter()
            for needs, sizes in self.sizes(max_nodes, bounds):
                found[needs] += self.count(sizes)
            self._counted[key] = found
        return self._counted[key]

    def count(self, sizes: Sizes) -> int:
        """Return the number of folds with the given numbers of nodes along their axes."""
        options = math.prod(len(v.space.options_for(self._nodes(v, sizes))) for v in self._variables)
        own = math.prod(math.factorial(len(self._loops(k, sizes[k])[0])) for k in self.kernels)
        return options * own * len(self._orders(self._linked_loops(sizes)))

    def folds(self, sizes: Sizes) -> Iterator[dict[int, KernelFold]]:
        """Yield all folds with the given numbers of nodes along their axes."""
        options = [range(len(v.space.options_for(self._nodes(v, sizes)))) for v in self._variables]
        orders = list(self._loop_orders(sizes))
        for picked in itertools.product(*options):
            axes = {
                (kernel, axis): self.spaces[kernel].axes[axis].options_for(sizes[kernel][axis])[option]
                for v, option in zip(self._variables, picked, strict=True)
                for kernel, axis in v.places
            }
            for order in orders:
                yield {
                    kernel: KernelFold(
                        self.spaces[kernel].kernel,
                        tuple(axes[kernel, axis] for axis in range(len(self.spaces[kernel].axes))),
                        order[kernel],
                    )
                    for kernel in self.kernels
                }

    @cached_property
    def _variables(self) -> tuple[_Variable, ...]:
        places: dict[tuple[int, int] | int, list[tuple[int, int]]] = {}
        for kernel in self.kernels:
            for axis, rule in enumerate(self.rules[kernel]):
                key = (kernel, axis) if rule.link is None else rule.link
                places.setdefault(key, []).append((kernel, axis))
        return tuple(_Variable(self.spaces[own[0][0]].axes[own[0][1]], tuple(own)) for own in places.values())

    @staticmethod
    def _nodes(variable: _Variable, sizes: Sizes) -> int:
        kernel, axis = variable.places[0]
        return sizes[kernel][axis]

    def sizes(self, max_nodes: int | None, bounds: FoldBounds | None) -> Iterator[tuple[Needs, Sizes]]:
        """Yield the numbers of nodes along all axes that keep the limits, with their needs.

        Short lists are kept.
        """
        key = (max_nodes, bounds)
        if key not in self._listed:
            every = self._sizes(max_nodes, bounds)
            first = list(itertools.islice(every, MOST_LISTED + 1))
            if len(first) > MOST_LISTED or len(self._listed) == MOST_LISTS:
                yield from itertools.chain(first, every)
                return
            self._listed[key] = first
        yield from self._listed[key]

    def _sizes(self, max_nodes: int | None, bounds: FoldBounds | None) -> Iterator[tuple[Needs, Sizes]]:
        least = {kernel: [axis.spatial[0] for axis in self.spaces[kernel].axes] for kernel in self.kernels}
        for chosen in self._choices(0, least, max_nodes):
            sizes = {kernel: tuple(own) for kernel, own in chosen.items()}
            # A chain's kernels are laid out along the same links, and along nothing else.
            grids = [
                {frozenset(r.link for r, n in zip(self.rules[k], sizes[k], strict=True) if n > 1) for k in members}
                for members in self.chains
            ]
            if any(len(grid) > 1 or None in next(iter(grid)) for grid in grids):
                continue
            needs: Needs = (self._node_count(sizes), *no_needs(bounds)[1:])
            if bounds is not None:
                if not all(bounds.core_fits([(k, sizes[k]) for k in members]) for members in self.sets):
                    continue
                for kernel in self.kernels:
                    needs = add_needs(needs, bounds.needs(kernel, sizes[kernel]))
                if not bounds.fits(needs):
                    continue
            yield needs, sizes

    def _choices(
        self, first: int, chosen: dict[int, list[int]], max_nodes: int | None
    ) -> Iterator[dict[int, list[int]]]:
        """All ways to set the variables from `first` on; those not set yet have the fewest nodes they can have."""
        # Unset variables have their fewest nodes, and the total never falls as one of them grows. So a choice that
        # exceeds the budget now exceeds it with any values of the others.
        if max_nodes is not None and self._node_count(chosen) > max_nodes:
            return
        if first == len(self._variables):
            yield chosen
            return
        variable = self._variables[first]
        for nodes in variable.space.spatial:
            own = {kernel: list(sizes) for kernel, sizes in chosen.items()}
            for kernel, axis in variable.places:
                own[kernel][axis] = nodes
            yield from self._choices(first + 1, own, max_nodes)

    def _node_count(self, sizes: dict[int, list[int]] | Sizes) -> int:
        # Kernels that share nodes end with equal grids; until all are set, the largest one is a lower bound.
        return sum(max(math.prod(sizes[kernel]) for kernel in members) for members in self.sets)

    def _linked_loops(self, sizes: Sizes) -> tuple[Ints, ...]:
        """Per kernel the links along which it has a temporal loop."""
        return tuple(
            tuple(
                rule.link
                for rule, nodes in zip(self.rules[kernel], sizes[kernel], strict=True)
                if rule.link is not None and rule.how == "bundle" and not rule.follows and nodes < rule.extent
            )
            for kernel in self.kernels
        )

    def _loops(self, kernel: int, sizes: Ints) -> tuple[list[int], Ints]:
        """The axes of a kernel that are bundled loops of its own, in any order; and the one that is its innermost loop,
        because it follows a chain of another kernel."""
        axes, rules = self.spaces[kernel].axes, self.rules[kernel]
        loops = [a for a, n in enumerate(sizes) if axes[a].is_loop(n)]
        return [a for a in loops if rules[a].link is None], tuple(a for a in loops if rules[a].follows)

    def _orders(self, links: tuple[Ints, ...]) -> list[tuple[Ints, ...]]:
        if links not in self._known_orders:
            self._known_orders[links] = joint_orders(self.graph, self.kernels, links, self.chains)
        return self._known_orders[links]

    def _loop_orders(self, sizes: Sizes) -> Iterator[dict[int, Ints]]:
        """Per kernel the axes of its bundled loops, outermost first."""
        loops = [self._loops(kernel, sizes[kernel]) for kernel in self.kernels]
        own = [list(itertools.permutations(free)) for free, _ in loops]
        axis_of = [{rule.link: axis for axis, rule in enumerate(self.rules[kernel])} for kernel in self.kernels]
        for linked in self._orders(self._linked_loops(sizes)):
            outer = [tuple(axes[link] for link in order) for axes, order in zip(axis_of, linked, strict=True)]
            for inner in itertools.product(*own):
                yield {kernel: outer[i] + inner[i] + loops[i][1] for i, kernel in enumerate(self.kernels)}


__all__ = ["AxisFold", "AxisSpace", "FoldSpace", "KernelFold", "KernelSpace", "MeshFold", "fold_choices", "unfolded"]


class Layout(Frozen):
    """Folds onto the same nodes: they differ in the order of loops, and in which tasks of an axis share a node.

    Attributes:
        names: of the kernels of each chain.
        chains: the same by their positions.
        sizes: per kernel the number of nodes along each axis.
    """

    names: tuple[tuple[str, ...], ...]
    chains: Chains
    sizes: tuple[Ints, ...]
    _units: tuple[FoldUnit, ...]

    @property
    def count(self) -> int:
        """The number of its folds."""
        return math.prod(unit.count(dict(enumerate(self.sizes))) for unit in self._units)

    def folds(self) -> Iterator[MeshFold]:
        """All of them, always in the same order."""
        for parts in itertools.product(*(unit.folds(dict(enumerate(self.sizes))) for unit in self._units)):
            found = {kernel: fold for part in parts for kernel, fold in part.items()}
            yield MeshFold(tuple(found[k] for k in range(len(found))), self.names)


class FoldSpace(Frozen, eq=False, dict=True):
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
    _units: dict[tuple[Ints, Chains], FoldUnit] = field(default_factory=dict)

    @property
    def least_nodes(self) -> int:
        """The fewest nodes that the program may be folded onto; the space is empty if they exceed `max_nodes`.

        Each chain is legal by itself. The fold needs more nodes where chains exclude each other.
        """
        rank, least = self.graph.rank, [kernel.least_nodes for kernel in self.kernels]
        sizes = [tuple(axis.spatial[0] for axis in kernel.axes) for kernel in self.kernels]
        alone = [((kernel,), nodes) for kernel, nodes in enumerate(least)]
        together = [
            (members, 1)
            for members in self.graph.single_chains
            if all(least[k] == 1 for k in members)
            and (self.bounds is None or self.bounds.core_fits([(k, sizes[k]) for k in members]))
        ]
        by_first: dict[int, list[tuple[int, int]]] = {}
        for members, nodes in (*alone, *together):
            by_first.setdefault(rank[members[0]], []).append((sum(1 << rank[k] for k in members), nodes))
        fewest = {0: 0}  # by the kernels left, as bits by their ranks

        def solve(left: int) -> int:
            if left not in fewest:
                first = (left & -left).bit_length() - 1
                fits = ((own, nodes) for own, nodes in by_first[first] if own & left == own)
                fewest[left] = min(nodes + solve(left ^ own) for own, nodes in fits)
            return fewest[left]

        return solve((1 << len(least)) - 1)

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
        """The rule of each mesh axis of each kernel."""
        return self.program_graph.rules

    @property
    def graph(self) -> KernelGraph:
        """The kernels and the streams between them."""
        return self.program_graph.kernels

    @property
    def heads(self) -> tuple[Ints, ...]:
        """Per kernel the kernels that can begin a chain that it is part of, in program order."""
        found: list[set[int]] = [set() for _ in self.kernels]
        for first, *others in self.graph.single_chains:
            for kernel in others:
                if first not in found[kernel] and self._can_share((first, kernel)):
                    found[kernel].add(first)
        return tuple(tuple(sorted(heads)) for heads in found)

    def _can_share(self, kernels: Ints) -> bool:
        """Return whether kernels can share their nodes, judged by their axes and the limits of one core."""
        sizes = [(k, tuple(axis.spatial[0] for axis in self.kernels[k].axes)) for k in kernels]
        links = [{rule.link for rule, nodes in zip(self.rules[k], own, strict=True) if nodes > 1} for k, own in sizes]
        alike = all(own == links[0] and None not in own for own in links)
        return alike and (self.bounds is None or self.bounds.core_fits(sizes))

    def joint_orders(self, wanted: Sequence[Ints]) -> list[Ints]:
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
        """The exact number of folds, found without making them."""
        return sum(counts.total() for counts in self._counts_by_chains())

    def count_within(self, limit: int) -> int | None:
        """Return the number of folds, or None if it exceeds `limit`, or if there are many choices of chains."""
        if next(itertools.islice(self.graph.partitions(), MOST_CHAININGS, None), None) is not None:
            return None
        found = 0
        for counts in self._counts_by_chains():
            found += counts.total()
            if found > limit:
                return None
        return found

    @cached_property
    def _total(self) -> int:
        return self.count()

    def counts(self) -> dict[int, int]:
        """Return the number of folds onto each number of nodes, in ascending order."""
        found = sum(self._counts_by_chains(), Counter[int]())
        return dict(sorted(found.items()))

    def probe(self, rng: np.random.Generator) -> int:
        """Return an unbiased estimate of the number of folds, from one choice of chains where there are many."""
        choices = self.graph.random_partition(rng)
        if choices is None:
            return self._total
        chains, ways = choices
        return ways * self._counts(self._parts(chains)).total()

    def _counts_by_chains(self) -> Iterator[Counter[int]]:
        """For each choice of chains, the number of folds onto each number of nodes."""
        return (self._counts(self._parts(chains)) for chains in self.graph.partitions())

    def _counts(self, units: Sequence[FoldUnit]) -> Counter[int]:
        totals: Counter[Needs] = Counter({no_needs(self.bounds): 1})
        for unit in units:
            before, totals = totals, Counter()
            for (a, ways), (b, count) in itertools.product(
                before.items(), unit.needs(self.max_nodes, self.bounds).items()
            ):
                if self._fits(needs := add_needs(a, b)):
                    totals[needs] += ways * count
        found = Counter[int]()
        for needs, ways in totals.items():
            found[needs[0]] += ways
        return found

    @property
    def pruned_share(self) -> float:
        """The share of all legal folds that are never made, because they cannot fit."""
        every = FoldSpace(self.program_graph, None, self.kernels).count()
        return 1 - self.count() / every

    def _fits(self, needs: Needs) -> bool:
        return (self.max_nodes is None or needs[0] <= self.max_nodes) and (not self.bounds or self.bounds.fits(needs))

    def _parts(self, chains: Chains) -> list[FoldUnit]:
        """Kernels in parts that fold independently of each other, with the chains of each part."""
        first: dict[int, int] = {}
        ties = list(itertools.chain.from_iterable(itertools.pairwise(members) for members in chains))
        links = [
            (rule.link, kernel) for kernel, axes in enumerate(self.rules) for rule in axes if rule.link is not None
        ]
        ties += [(first.setdefault(link, kernel), kernel) for link, kernel in links]
        sets = DisjointSets(range(len(self.rules)))
        for a, b in ties:
            sets.join(a, b)
        groups = map(tuple, sets.groups())
        parts = [(kernels, tuple(members for members in chains if members[0] in kernels)) for kernels in groups]
        for part in parts:
            if part not in self._units:
                self._units[part] = FoldUnit(self.graph, self.rules, self.kernels, *part)
        return [self._units[part] for part in parts]

    def __iter__(self) -> Iterator[MeshFold]:
        """All folds, always in the same order: those without chains first."""
        return (fold for layout in self.layouts() for fold in layout.folds())

    def layouts(self, nodes: int | None = None) -> Iterator[Layout]:
        """Yield all folds by their nodes along each axis, in the order of iteration."""
        for chains in self.graph.partitions():
            units = self._parts(chains)
            names = tuple(tuple(self.kernels[k].kernel for k in members) for members in chains)
            for sizes in self._sizes(units, no_needs(self.bounds), nodes):
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
        """Return whether a normalised fold keeps all rules and the budget of nodes."""
        if self.max_nodes is not None and fold.node_count > self.max_nodes:
            return False
        return next(JointFold.of(self.program_graph, fold).violations(), None) is None

    def contains(self, fold: MeshFold) -> bool:
        """Return whether iteration yields a fold: it must be legal and within the device's limits.

        Raises:
            IllegalFold: if it is not a fold of these meshes at all (other kernels, other ranks, no divisors).
        """
        fold = fold.normalised(self.program_graph)
        if not (legal := self.is_legal(fold)) or not self.bounds:
            return legal
        sizes = [tuple(axis.spatial for axis in kernel.axes) for kernel in fold.kernels]
        sets = node_sets(JointFold.of(self.program_graph, fold).chains, range(len(sizes)))
        needs = self.bounds.nothing
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
