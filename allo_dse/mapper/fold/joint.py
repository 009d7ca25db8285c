"""Constraints between the folds of a program's kernels, and the effects of sharing nodes.

Axes of different kernels that exchange tokens task by task are *linked* (`AxisRule.link`). They are folded alike, and
their loops run outside all others, in one order. So tokens are used in the order in which they are made.

    send_q[r] ──► score[r, c] ──► softmax[r]      r linked; score runs its c inside each r
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property

from msgspec import Struct

from allo_dse.compiler.program.compiled import CompiledProgram

from ..axes import AxisRule
from ..graph.kernel_graph import Chains, KernelGraph
from ..graph.program_graph import ProgramGraph
from .fold import AxisFold, KernelFold, MeshFold

Rules = Sequence[Sequence[AxisRule]]
Loop = tuple[int | None, int]
"""A temporal loop of a kernel: its link, and its mesh axis."""


def loops_of(fold: KernelFold, rules: Sequence[AxisRule]) -> list[Loop]:
    """The bundled loops of a normalised fold, outermost first; one that follows a chain counts as the kernel's own."""
    return [(None if rules[axis].follows else rules[axis].link, axis) for axis in fold.order]


def grid_of(fold: KernelFold, rules: Sequence[AxisRule]) -> tuple[tuple[int, AxisFold], ...] | None:
    """The linked axes with several nodes and their folds; None when another axis has several, too.

    Kernels with equal grids have nodes that correspond one to one.
    """
    grid = []
    for axis, rule in zip(fold.axes, rules, strict=True):
        if axis.spatial > 1:
            if rule.link is None:
                return None
            grid.append((rule.link, AxisFold(axis.spatial, axis.pattern)))
    return tuple(sorted(grid, key=lambda item: item[0]))


class JointFold(Struct, frozen=True, dict=True):
    """A normalised fold of all kernels of a program.

    Attributes:
        chains: as in the fold, by position of the kernels.
    """

    graph: ProgramGraph
    fold: MeshFold
    chains: Chains

    @staticmethod
    def of(graph: ProgramGraph, fold: MeshFold) -> JointFold:
        position = {kernel.name: number for number, kernel in enumerate(graph.program.kernels)}
        return JointFold(graph, fold, tuple(tuple(position[n] for n in members) for members in fold.chains))

    @property
    def program(self) -> CompiledProgram:
        return self.graph.program

    @property
    def rules(self) -> tuple[tuple[AxisRule, ...], ...]:
        """The rule of each mesh axis of each kernel."""
        return self.graph.rules

    @cached_property
    def loops(self) -> list[list[Loop]]:
        """Per kernel its bundled loops, outermost first."""
        return [loops_of(fold, rules) for fold, rules in zip(self.fold.kernels, self.rules, strict=True)]

    @property
    def is_joint(self) -> bool:
        """True if any kernels are folded together."""
        followed = any(
            rule.follows and axis.spatial < rule.extent
            for fold, rules in zip(self.fold.kernels, self.rules, strict=True)
            for axis, rule in zip(fold.axes, rules, strict=True)
        )
        return bool(self.chains) or followed or any(link is not None for loops in self.loops for link, _ in loops)

    def shared_loops(self, members: Sequence[int]) -> int:
        """Return the number of outer loops that chained kernels share; each iteration runs the whole chain."""
        return shared_loops([self.loops[kernel] for kernel in members])

    def violations(self) -> Iterator[str]:
        """Yield the disagreements between kernels; their own axes are assumed to be legal."""
        yield from self._unlike_links()
        feeds = self.graph.kernels.feeds
        for a, b in itertools.combinations(range(len(self.loops)), 2):
            if (feeds[a, b] or feeds[b, a]) and not in_step(self.loops[a], self.loops[b]):
                names = " and ".join(self.program.kernels[k].name for k in (a, b))
                yield f"{names} exchange tokens: the loops that they share must be outermost, and in the same order"
        yield from self._chain_violations()

    def _unlike_links(self) -> Iterator[str]:
        first: dict[int, tuple[str, tuple[int, str]]] = {}
        for kernel, rules in zip(self.fold.kernels, self.rules, strict=True):
            for number, (axis, rule) in enumerate(zip(kernel.axes, rules, strict=True)):
                if rule.link is None:
                    continue
                where = f"{kernel.kernel}, axis {number}"
                other, nodes = first.setdefault(rule.link, (where, (axis.spatial, axis.pattern)))
                if nodes != (axis.spatial, axis.pattern):
                    yield f"{where}, exchanges tokens with {other}, task by task: they must be folded alike"

    def _chain_violations(self) -> Iterator[str]:
        names = [kernel.name for kernel in self.program.kernels]
        for members in self.chains:
            grids = [grid_of(self.fold.kernels[k], self.rules[k]) for k in members]
            if None in grids or len(set(grids)) > 1:
                yield f"chain of {', '.join(names[k] for k in members)}: their nodes do not correspond one to one"
        refused = self.graph.kernels.refusal(self.chains)
        if refused:
            first, second = (names[k] for k in refused)
            yield f"chain of {first} and {second}: a path of streams leads from the second back to the first"
        elif self.steps is None:
            yield "chains and bundles need each other: kernels of a chain must share the loops of their neighbours"

    @cached_property
    def steps(self) -> list[Step] | None:
        """Bundles along links and chains of kernels, in an order in which they can be carried out; None without one."""
        return fold_steps(self.loops, self.chains)


class Step(Struct, frozen=True):
    """One step of a fold across kernels: a bundle along a link, or a chain of kernels."""

    link: int | None = None
    chain: tuple[int, ...] = ()


def shared_loops(members: Sequence[Sequence[Loop]]) -> int:
    """Return the number of outer loops that run along the same links."""
    count = 0
    for loops in zip(*members, strict=False):
        links = {link for link, _ in loops}
        if len(links) > 1 or None in links:
            break
        count += 1
    return count


def fold_steps(loops: Sequence[Sequence[Loop]], chains: Chains) -> list[Step] | None:
    """Return an order of bundles along links and of chains; None if they need each other.

    Inner loops are bundled before outer ones. A chain is made after the loops inside it and before those around it.
    Bundles come first where there is a choice.
    """
    links = sorted({link for own in loops for link, _ in own if link is not None})
    steps: list[Step] = [*(Step(link=link) for link in links), *(Step(chain=members) for members in chains)]
    before: set[tuple[int, int]] = set()
    for own in loops:
        linked = [links.index(link) for link, _ in own if link is not None]
        before |= {(inner, outer) for outer, inner in itertools.pairwise(linked)}
    for number, members in enumerate(chains, len(links)):
        shared = shared_loops([loops[kernel] for kernel in members])
        for kernel in members:
            for depth, (link, _) in enumerate(loops[kernel]):
                if link is not None:
                    bundle = links.index(link)
                    before.add((number, bundle) if depth < shared else (bundle, number))
    # Kahn 1962. Always take the first free step, so that equal folds are carried out in equal order.
    order, left = [], list(range(len(steps)))
    while left:
        free = next((s for s in left if not any((other, s) in before for other in left)), None)
        if free is None:
            return None
        order.append(steps[free])
        left.remove(free)
    return order


def in_step(first: Sequence[Loop], second: Sequence[Loop]) -> bool:
    """Return whether two kernels that exchange tokens run their shared loops outermost and in one order."""
    shared = {link for link, _ in first} & {link for link, _ in second} - {None}
    a, b = ([link for link, _ in loops[: len(shared)]] for loops in (first, second))
    return a == b and set(a) == shared


def joint_orders(
    graph: KernelGraph, kernels: Sequence[int], links: Sequence[Sequence[int]], chains: Chains
) -> list[tuple[tuple[int, ...], ...]]:
    """The orders of linked loops that are legal together: per kernel its links, outermost first.

    Args:
        links: the links along which each of `kernels` has a temporal loop.
        chains: of these kernels.
    """
    pairs = [
        (a, b)
        for a, b in itertools.combinations(range(len(kernels)), 2)
        if graph.feeds[kernels[a], kernels[b]] or graph.feeds[kernels[b], kernels[a]]
    ]
    local = tuple(tuple(list(kernels).index(kernel) for kernel in members) for members in chains)
    result = []
    for orders in itertools.product(*(itertools.permutations(own) for own in links)):
        loops: list[list[Loop]] = [[(link, 0) for link in order] for order in orders]
        if all(in_step(loops[a], loops[b]) for a, b in pairs) and fold_steps(loops, local) is not None:
            result.append(orders)
    return result
