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
from collections.abc import Iterator
from functools import cached_property
from typing import Literal, get_args

from msgspec import Struct, to_builtins

from allo_dse.common.errors import IllegalFold
from allo_dse.common.records import JsonObject, divisors_of
from allo_dse.compiler.program.compiled import CompiledProgram

from ..axes import AxisRule, How
from ..graph.program_graph import ProgramGraph

Pattern = Literal["cyclic", "block"]


class AxisFold(Struct, frozen=True):
    """Fold of one mesh axis onto `spatial` nodes, each with a block of tasks or every `spatial`-th task."""

    spatial: int
    pattern: Pattern = "block"
    how: How = "bundle"


class KernelFold(Struct, frozen=True):
    """Fold of one kernel.

    Attributes:
        kernel: its name.
        axes: one entry per mesh axis.
        order: the bundled axes as temporal loops, outermost first; those left out follow in mesh order.
    """

    kernel: str
    axes: tuple[AxisFold, ...]
    order: tuple[int, ...] = ()

    @property
    def node_count(self) -> int:
        return math.prod(axis.spatial for axis in self.axes)

    def normalised(self, mesh: tuple[int, ...]) -> KernelFold:
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
            if axis.pattern not in get_args(Pattern) or axis.how not in get_args(How):
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


class MeshFold(Struct, frozen=True, dict=True):
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
        names = [kernel.name for kernel in program.kernels]
        if [fold.kernel for fold in self.kernels] != names:
            raise IllegalFold(
                f"the fold is for the kernels {', '.join(f.kernel for f in self.kernels) or '(none)'}",
                hint=f"give one KernelFold per kernel of {program.name}, in this order: {', '.join(names)}",
            )
        chained = [name for members in self.chains for name in members]
        for name in chained:
            if name not in names or chained.count(name) > 1:
                problem = "is chained twice" if name in names else "is not a kernel"
                raise IllegalFold(f"{name} {problem}", hint=f"the kernels of {program.name}: {', '.join(names)}")
        pairs = zip(self.kernels, program.kernels, strict=True)
        kernels = tuple(fold.normalised(kernel.mesh) for fold, kernel in pairs)
        if not chained:
            return MeshFold(kernels)
        chains = graph.kernels.normalised([[names.index(n) for n in members] for members in self.chains])
        return MeshFold(kernels, tuple(tuple(names[k] for k in members) for members in chains))

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


class AxisSpace(Struct, frozen=True):
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
    spatial: tuple[int, ...]
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


class KernelSpace(Struct, frozen=True):
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


def axis_space(axis: int, rule: AxisRule) -> AxisSpace:
    if rule.how is None:
        spatial: tuple[int, ...] = (rule.extent,)
    elif rule.how == "chain" and not rule.partial:
        spatial = (1, rule.extent)
    else:
        spatial = divisors_of(rule.extent)
    return AxisSpace(axis, rule.extent, rule.how, spatial, rule.reason, rule.follows)
