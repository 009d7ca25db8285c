"""The folds of kernels that depend on each other, because axes are linked or nodes are shared: made and counted."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from ..axes.axes import AxisRule
from ..fold.fold import AxisFold, KernelFold
from ..fold.fold_options import AxisSpace, KernelSpace
from ..fold.joint import joint_orders
from ..graph.kernel_graph import Chains, KernelGraph, node_sets
from ..model.disjoint_sets import DisjointSets

if TYPE_CHECKING:
    from .fold_bounds import FoldBounds, Needs

NOTHING: Needs = (0, 0, 0, 0, 0)

MOST_LISTED, MOST_LISTS = 4096, 64
"""Sizes that a unit keeps for one budget of nodes, and budgets."""

Sizes = dict[int, tuple[int, ...]]
"""Per kernel how many nodes it has along each axis."""


def add_needs(first: Needs, second: Needs) -> Needs:
    return tuple(a + b for a, b in zip(first, second, strict=True))


def independent_parts(rules: Sequence[Sequence[AxisRule]], chains: Chains) -> list[tuple[tuple[int, ...], Chains]]:
    """Kernels in parts that fold independently of each other, with the chains of each part."""
    first: dict[int, int] = {}
    ties = list(itertools.chain.from_iterable(itertools.pairwise(members) for members in chains))
    links = [(rule.link, kernel) for kernel, axes in enumerate(rules) for rule in axes if rule.link is not None]
    ties += [(first.setdefault(link, kernel), kernel) for link, kernel in links]
    sets = DisjointSets(range(len(rules)))
    for a, b in ties:
        sets.join(a, b)
    parts = map(tuple, sets.groups())
    return [(kernels, tuple(members for members in chains if members[0] in kernels)) for kernels in parts]


class _Variable(Struct, frozen=True):
    """An axis whose number of nodes is chosen by itself, and all places that follow the choice."""

    space: AxisSpace
    places: tuple[tuple[int, int], ...]


class FoldUnit(Struct, frozen=True, eq=False, dict=True):
    """The folds of some kernels that depend on each other.

    Attributes:
        rules, spaces: of all kernels of the program.
        kernels: positions of the kernels concerned.
        chains: which of them share nodes.
    """

    graph: KernelGraph
    rules: Sequence[Sequence[AxisRule]]
    spaces: Sequence[KernelSpace]
    kernels: tuple[int, ...]
    chains: Chains

    @cached_property
    def sets(self) -> list[Sequence[int]]:
        """The kernels in sets that have nodes of their own."""
        return node_sets(self.chains, self.kernels)

    def needs(self, max_nodes: int | None, bounds: FoldBounds | None) -> Counter[Needs]:
        """How many folds there are that need so much."""
        key = (max_nodes, bounds)
        if key not in self._counted:
            found: Counter[Needs] = Counter()
            for needs, sizes in self.sizes(max_nodes, bounds):
                found[needs] += self.count(sizes)
            self._counted[key] = found
        return self._counted[key]

    def count(self, sizes: Sizes) -> int:
        """How many folds have so many nodes along their axes."""
        options = math.prod(len(v.space.options_for(self._nodes(v, sizes))) for v in self._variables)
        own = math.prod(math.factorial(len(self._own_loops(k, sizes[k]))) for k in self.kernels)
        return options * own * len(self._orders(self._linked_loops(sizes)))

    def folds(self, sizes: Sizes) -> Iterator[dict[int, KernelFold]]:
        """All folds with so many nodes along their axes."""
        options = [range(len(v.space.options_for(self._nodes(v, sizes)))) for v in self._variables]
        orders = list(self._loop_orders(sizes))
        for picked in itertools.product(*options):
            axes = {
                (kernel, axis): self.spaces[kernel].axes[axis].options_for(sizes[kernel][axis])[option]
                for v, option in zip(self._variables, picked, strict=True)
                for kernel, axis in v.places
            }
            for order in orders:
                yield {kernel: self._fold(kernel, axes, order[kernel]) for kernel in self.kernels}

    def _fold(self, kernel: int, axes: dict[tuple[int, int], AxisFold], order: tuple[int, ...]) -> KernelFold:
        space = self.spaces[kernel]
        return KernelFold(space.kernel, tuple(axes[kernel, axis] for axis in range(len(space.axes))), order)

    @cached_property
    def _counted(self) -> dict[tuple[int | None, FoldBounds | None], Counter[Needs]]:
        return {}

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
        """The numbers of nodes along all axes that keep the limits, and what they need; where they are few, they are
        listed once."""
        key = (max_nodes, bounds)
        if key not in self._listed:
            every = self._sizes(max_nodes, bounds)
            first = list(itertools.islice(every, MOST_LISTED + 1))
            if len(first) > MOST_LISTED or len(self._listed) == MOST_LISTS:
                yield from itertools.chain(first, every)
                return
            self._listed[key] = first
        yield from self._listed[key]

    @cached_property
    def _listed(self) -> dict[tuple[int | None, FoldBounds | None], list[tuple[Needs, Sizes]]]:
        return {}

    def _sizes(self, max_nodes: int | None, bounds: FoldBounds | None) -> Iterator[tuple[Needs, Sizes]]:
        least = {kernel: [axis.spatial[0] for axis in self.spaces[kernel].axes] for kernel in self.kernels}
        for chosen in self._choices(0, least, max_nodes):
            sizes = {kernel: tuple(own) for kernel, own in chosen.items()}
            if not all(self._same_grid(members, sizes) for members in self.chains):
                continue
            needs: Needs = (self._node_count(sizes), 0, 0, 0, 0)
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
        # Variables that are not set have their fewest nodes, and more never make fewer in all: what exceeds the budget
        # now exceeds it however the others are set.
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
        # Kernels that share nodes have equal grids in the end; until all are set, the largest is what they come to.
        return sum(max(math.prod(sizes[kernel]) for kernel in members) for members in self.sets)

    def _same_grid(self, members: tuple[int, ...], sizes: Sizes) -> bool:
        """Whether the kernels of a chain are laid out along the same links, and along nothing else."""
        grids = {
            frozenset(rule.link for rule, nodes in zip(self.rules[kernel], sizes[kernel], strict=True) if nodes > 1)
            for kernel in members
        }
        return len(grids) == 1 and None not in grids.pop()

    def _linked_loops(self, sizes: Sizes) -> tuple[tuple[int, ...], ...]:
        """Per kernel the links along which it has a temporal loop."""
        return tuple(
            tuple(
                rule.link
                for rule, nodes in zip(self.rules[kernel], sizes[kernel], strict=True)
                if rule.link is not None and rule.how == "bundle" and not rule.follows and nodes < rule.extent
            )
            for kernel in self.kernels
        )

    def _own_loops(self, kernel: int, sizes: tuple[int, ...]) -> list[int]:
        """The axes of a kernel that are bundled loops of its own, in any order."""
        axes = self.spaces[kernel].axes
        return [a for a, n in enumerate(sizes) if axes[a].is_loop(n) and self.rules[kernel][a].link is None]

    def _followers(self, kernel: int, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """The axis of a kernel that is its innermost loop, because it follows a chain of another kernel."""
        axes = self.spaces[kernel].axes
        return tuple(a for a, n in enumerate(sizes) if axes[a].is_loop(n) and self.rules[kernel][a].follows)

    def _orders(self, links: tuple[tuple[int, ...], ...]) -> list[tuple[tuple[int, ...], ...]]:
        if links not in self._known_orders:
            self._known_orders[links] = joint_orders(self.graph, self.kernels, links, self.chains)
        return self._known_orders[links]

    @cached_property
    def _known_orders(self) -> dict[tuple[tuple[int, ...], ...], list[tuple[tuple[int, ...], ...]]]:
        return {}

    def _loop_orders(self, sizes: Sizes) -> Iterator[dict[int, tuple[int, ...]]]:
        """Per kernel the axes of its bundled loops, outermost first."""
        own = [list(itertools.permutations(self._own_loops(kernel, sizes[kernel]))) for kernel in self.kernels]
        axis_of = [{rule.link: axis for axis, rule in enumerate(self.rules[kernel])} for kernel in self.kernels]
        for linked in self._orders(self._linked_loops(sizes)):
            outer = [tuple(axes[link] for link in order) for axes, order in zip(axis_of, linked, strict=True)]
            for inner in itertools.product(*own):
                yield {
                    kernel: outer[i] + inner[i] + self._followers(kernel, sizes[kernel])
                    for i, kernel in enumerate(self.kernels)
                }
