"""Mesh folds: the assignment of each kernel's tasks to nodes, axis by axis of its mesh.

Along an axis of `n` tasks, `spatial` nodes remain, each with `n / spatial` tasks in time:

    cyclic   node u has the tasks u, u + spatial, u + 2 * spatial, ...
    block    node u has the tasks u * n / spatial, u * n / spatial + 1, ...

`bundle` executes them as a `Repeat`, `chain` as a `Seq` in the direction in which streams run. Chains are innermost.

Kernels whose nodes correspond one to one can share them: a node then runs its tasks of the first kernel, then those of
the second, and so on, once per iteration of the loops that they have in common.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Literal, get_args

from msgspec import to_builtins

from allo_dse.common.errors import IllegalFold
from allo_dse.common.records import Frozen, Ints, JsonObject, divisors_of
from allo_dse.compiler.program.compiled import CompiledProgram

from ..axes import AxisRule, How
from ..graph.kernel_graph import Chains, KernelGraph

if TYPE_CHECKING:
    from ..graph.program_graph import ProgramGraph

Pattern = Literal["cyclic", "block"]
PATTERNS, HOWS = get_args(Pattern), get_args(How)


class AxisFold(Frozen):
    """Fold of one mesh axis onto `spatial` nodes, each with a block of tasks or every `spatial`-th task."""

    spatial: int
    pattern: Pattern = "block"
    how: How = "bundle"


class KernelFold(Frozen):
    """Fold of one kernel.

    Attributes:
        kernel: its name.
        axes: one entry per mesh axis.
        order: the bundled axes as temporal loops, outermost first; those left out follow in mesh order.
    """

    kernel: str
    axes: tuple[AxisFold, ...]
    order: Ints = ()

    @property
    def node_count(self) -> int:
        return math.prod(axis.spatial for axis in self.axes)

    def normalised(self, mesh: Ints) -> KernelFold:
        """The same fold with everything that makes no difference set to one value.

        An axis with one task per node has no pattern and no kind, one on a single node has no pattern, and only bundled
        axes with more than one task per node have a place in the loop order.
        """
        if len(mesh) != len(self.axes):
            raise IllegalFold(f"{self.kernel}: the fold has {len(self.axes)} axes, the mesh {len(mesh)}")
        axes, loops = [], []
        for number, (axis, extent) in enumerate(zip(self.axes, mesh, strict=True)):
            if axis.spatial < 1 or extent % axis.spatial:
                raise IllegalFold(
                    f"{self.kernel}: {axis.spatial} nodes do not divide the {extent} tasks of axis {number}",
                    hint="choose a divisor of the axis",
                )
            if axis.pattern not in PATTERNS or axis.how not in HOWS:
                raise IllegalFold(
                    f"{self.kernel}: axis {number} is folded as {axis.pattern!r}, {axis.how!r}",
                    hint="the pattern is block or cyclic, and what is done is bundle or chain",
                )
            if axis.spatial == extent:
                axes.append(AxisFold(extent))
                continue
            axes.append(AxisFold(axis.spatial, axis.pattern if axis.spatial > 1 else "block", axis.how))
            if axis.how == "bundle":
                loops.append(number)
        if len(set(self.order)) != len(self.order) or not set(self.order) <= set(range(len(mesh))):
            raise IllegalFold(f"{self.kernel}: the loop order {self.order} does not name each mesh axis at most once")
        order = tuple(a for a in self.order if a in loops)
        order += tuple(a for a in loops if a not in order)
        return KernelFold(self.kernel, tuple(axes), order)


class MeshFold(Frozen, dict=True):
    """Folds of all kernels of a program, in program order.

    Attributes:
        chains: kernels that share their nodes, each tuple in the order in which its members run.
    """

    kernels: tuple[KernelFold, ...]
    chains: tuple[tuple[str, ...], ...] = ()

    @property
    def node_count(self) -> int:
        nodes = {kernel.kernel: kernel.node_count for kernel in self.kernels}
        return sum(nodes.values()) - sum(nodes[name] for members in self.chains for name in members[1:])

    def normalised(self, graph: ProgramGraph) -> MeshFold:
        """The one descriptor of this folded graph: hashable, and equal exactly when the folded graphs are equal."""
        program = graph.program
        place = {kernel.name: number for number, kernel in enumerate(program.kernels)}
        if [fold.kernel for fold in self.kernels] != list(place):
            raise IllegalFold(
                f"the fold is for the kernels {', '.join(f.kernel for f in self.kernels) or '(none)'}",
                hint=f"give one KernelFold per kernel of {program.name}, in this order: {', '.join(place)}",
            )
        chained = Counter(name for members in self.chains for name in members)
        for name, times in chained.items():
            if name not in place or times > 1:
                problem = "is chained twice" if name in place else "is not a kernel"
                raise IllegalFold(f"{name} {problem}", hint=f"the kernels of {program.name}: {', '.join(place)}")
        pairs = zip(self.kernels, program.kernels, strict=True)
        kernels = tuple(fold.normalised(kernel.mesh) for fold, kernel in pairs)
        chains = graph.kernels.normalised([[place[n] for n in members] for members in self.chains])
        return MeshFold(kernels, tuple(tuple(kernels[k].kernel for k in members) for members in chains))

    @cached_property
    def text(self) -> str:
        """`to_dict` as JSON."""
        return json.dumps(self.to_dict(), sort_keys=True)

    def to_dict(self) -> JsonObject:
        """Plain data, JSON-serialisable."""
        return {name: value for name, value in to_builtins(self).items() if name == "kernels" or value}


def unfolded(program: CompiledProgram) -> MeshFold:
    """The fold that leaves every task on a node of its own."""
    return MeshFold(tuple(KernelFold(k.name, tuple(map(AxisFold, k.mesh))) for k in program.kernels))


def violations(fold: KernelFold, rules: tuple[AxisRule, ...]) -> Iterator[str]:
    """Yield the ways in which a normalised fold breaks the rules of its kernel's axes."""
    for number, (axis, rule) in enumerate(zip(fold.axes, rules, strict=True)):
        where = f"axis {number}"
        if axis.spatial == rule.extent:
            continue
        if rule.how is None:
            yield f"{where} must stay spatial: {rule.reason}"
        elif axis.how != rule.how:
            why = "streams run along it" if rule.streams else rule.reason or "no stream runs along it"
            yield f"{where} can be folded by {rule.how} only: {why}"
        elif axis.spatial > 1 and not rule.partial:
            yield f"{where} cannot be cut into {axis.spatial} nodes: {rule.reason}"
        elif axis.spatial > 1 and axis.how == "chain" and axis.pattern != "block":
            yield f"{where} is chained and cannot be folded cyclically: streams would lead from node to node and back"
        elif rule.follows and axis.spatial > 1 and axis.pattern != "block":
            yield f"{where} cannot be folded cyclically: it follows a chain of another kernel"
        elif rule.follows and fold.order[-1] != number:
            yield f"{where} must be the innermost loop: it follows a chain of another kernel"


# Legal folds of single axes and kernels, derived from the axis rules.


class AxisSpace(Frozen):
    """The legal folds of one mesh axis.

    Attributes:
        axis: its position in the mesh.
        extent: tasks along it.
        how: how it is folded; None when it stays spatial.
        spatial: legal numbers of nodes along it, ascending.
        reason: why fewer than all divisors are legal; empty when they all are.
        block_only: whether nodes must have consecutive tasks.
    """

    axis: int
    extent: int
    how: How | None
    spatial: Ints
    reason: str
    block_only: bool = False

    def options(self, limit: int | None = None) -> tuple[AxisFold, ...]:
        """The legal folds with at most `limit` nodes along this axis, normalised."""
        return tuple(fold for n in self.spatial if limit is None or n <= limit for fold in self.options_for(n))

    def options_for(self, spatial: int) -> tuple[AxisFold, ...]:
        """The legal folds onto exactly `spatial` nodes, normalised."""
        if spatial == self.extent or self.how is None:
            return (AxisFold(spatial),)
        if spatial == 1 or self.how == "chain" or self.block_only:
            return (AxisFold(spatial, "block", self.how),)
        return (AxisFold(spatial, "block", self.how), AxisFold(spatial, "cyclic", self.how))

    def is_loop(self, spatial: int) -> bool:
        """Return whether folding onto `spatial` nodes makes a bundled loop, which has a place in the loop order."""
        return self.how == "bundle" and spatial < self.extent


class KernelSpace(Frozen):
    """The legal folds of one kernel."""

    kernel: str
    axes: tuple[AxisSpace, ...]

    @property
    def least_nodes(self) -> int:
        """The fewest nodes the kernel can be folded onto."""
        return math.prod(axis.spatial[0] for axis in self.axes)

    def fold(self, axes: tuple[AxisFold, ...], order: Ints = ()) -> KernelFold:
        """The kernel's fold, normalised; `order` can be any permutation of mesh axes, only bundled loops count."""
        return KernelFold(self.kernel, axes, order).normalised(tuple(axis.extent for axis in self.axes))


def axis_space(axis: int, rule: AxisRule) -> AxisSpace:
    if rule.how is None:
        spatial: Ints = (rule.extent,)
    elif rule.how == "chain" and not rule.partial:
        spatial = (1, rule.extent)
    else:
        spatial = divisors_of(rule.extent)
    return AxisSpace(axis, rule.extent, rule.how, spatial, rule.reason, rule.follows)


# Constraints between the folds of a program's kernels, and the effects of sharing nodes.
#
# Axes of different kernels that exchange tokens task by task are *linked* (`AxisRule.link`). They are folded alike,
# and their loops run outside all others, in one order. So tokens are used in the order in which they are made.
#
#     send_q[r] ──► score[r, c] ──► softmax[r]      r linked; score runs its c inside each r


Rules = Sequence[Sequence[AxisRule]]
Loop = tuple[int | None, int]
"""A temporal loop of a kernel: its link, and its mesh axis."""


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


class JointFold(Frozen, dict=True):
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

    @cached_property
    def loops(self) -> list[list[Loop]]:
        """Per kernel its bundled loops, outermost first; one that follows a chain counts as the kernel's own."""
        return [
            [(None if rules[axis].follows else rules[axis].link, axis) for axis in fold.order]
            for fold, rules in zip(self.fold.kernels, self.graph.rules, strict=True)
        ]

    @property
    def is_joint(self) -> bool:
        """True if any kernels are folded together."""
        followed = any(
            rule.follows and axis.spatial < rule.extent
            for fold, rules in zip(self.fold.kernels, self.graph.rules, strict=True)
            for axis, rule in zip(fold.axes, rules, strict=True)
        )
        return bool(self.chains) or followed or any(link is not None for loops in self.loops for link, _ in loops)

    def shared_loops(self, members: Sequence[int]) -> int:
        """Return the number of outer loops that chained kernels share; each iteration runs the whole chain."""
        return shared_loops([self.loops[kernel] for kernel in members])

    def violations(self) -> Iterator[str]:
        """Yield the ways in which kernels break the rules of their axes, and disagree with each other."""
        for kernel, rules in zip(self.fold.kernels, self.graph.rules, strict=True):
            yield from (f"{kernel.kernel}: {reason}" for reason in violations(kernel, rules))
        first: dict[int, tuple[str, tuple[int, str]]] = {}
        for kernel, rules in zip(self.fold.kernels, self.graph.rules, strict=True):
            for number, (axis, rule) in enumerate(zip(kernel.axes, rules, strict=True)):
                if rule.link is None:
                    continue
                where = f"{kernel.kernel}, axis {number}"
                other, nodes = first.setdefault(rule.link, (where, (axis.spatial, axis.pattern)))
                if nodes != (axis.spatial, axis.pattern):
                    yield f"{where}, exchanges tokens with {other}, task by task: they must be folded alike"
        names = [kernel.name for kernel in self.graph.program.kernels]
        for a, b in self.graph.kernels.connected:
            if not in_step(self.loops[a], self.loops[b]):
                pair = f"{names[a]} and {names[b]}"
                yield f"{pair} exchange tokens: the loops that they share must be outermost, and in the same order"
        for members in self.chains:
            grids = [grid_of(self.fold.kernels[k], self.graph.rules[k]) for k in members]
            if None in grids or len(set(grids)) > 1:
                yield f"chain of {', '.join(names[k] for k in members)}: their nodes do not correspond one to one"
        refused = self.graph.kernels.refusal(self.chains)
        if refused:
            head, member = (names[k] for k in refused)
            yield f"chain of {head} and {member}: a path of streams leads from the second back to the first"
        elif self.steps is None:
            yield "chains and bundles need each other: kernels of a chain must share the loops of their neighbours"

    @cached_property
    def steps(self) -> list[Step] | None:
        """Bundles along links and chains of kernels, in an order in which they can be carried out; None without one."""
        return fold_steps(self.loops, self.chains)


class Step(Frozen):
    """One step of a fold across kernels: a bundle along a link, or a chain of kernels."""

    link: int | None = None
    chain: Ints = ()


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
) -> list[tuple[Ints, ...]]:
    """The orders of linked loops that are legal together: per kernel its links, outermost first.

    Args:
        links: the links along which each of `kernels` has a temporal loop.
        chains: of these kernels.
    """
    place = {kernel: number for number, kernel in enumerate(kernels)}
    pairs = [(place[a], place[b]) for a, b in graph.connected if a in place and b in place]
    local = tuple(tuple(place[kernel] for kernel in members) for members in chains)
    result = []
    for orders in itertools.product(*(itertools.permutations(own) for own in links)):
        loops: list[list[Loop]] = [[(link, 0) for link in order] for order in orders]
        if all(in_step(loops[a], loops[b]) for a, b in pairs) and fold_steps(loops, local) is not None:
            result.append(orders)
    return result
