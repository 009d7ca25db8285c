"""Mesh folds as `mapping_primitives`: the list Allo takes, and a small program that makes it.

Tasks along chained axes are chained first, one node after the other; then nodes are bundled. Where streams lead from
node to node of one kernel, the nodes they connect are bundled together, as tuples.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
from msgspec import Struct

from allo_dse.common.records import Frozen, Ints, replace
from allo_dse.compiler.program.compiled import CompiledProgram, Kernel
from allo_dse.compiler.program.tensors import IntArray

from ..axes import AxisRule
from ..graph.groups import (
    ChainLeaves,
    ChainPart,
    MeshLeaves,
    NodeGroup,
    Task,
    Tree,
    bundle_name,
    chain_name,
    repeat,
    seq,
)
from ..graph.program_graph import ProgramGraph
from .fold import JointFold, KernelFold, MeshFold

# Folding by mesh axes: from a `MeshFold` to groups of nodes, without touching a single task.


def mesh_groups(graph: ProgramGraph, fold: MeshFold) -> tuple[NodeGroup, ...]:
    """Groups of nodes of a normalised and legal fold: kernel by kernel, then by the classes their nodes execute.

    Nodes that kernels share come in the place of the first of them.
    """
    joint = JointFold.of(graph, fold)
    heads = {members[0]: members for members in joint.chains}
    tails = {kernel for members in joint.chains for kernel in members[1:]}
    groups: list[NodeGroup] = []
    for number, kernel_fold in enumerate(fold.kernels):
        if number in heads:
            members = heads[number]
            own = tuple(fold.kernels[member] for member in members)
            groups += graph.groups((members, own), partial(_shared_groups, joint, members))
        elif number not in tails:
            rules = graph.rules[number]
            groups += graph.groups(kernel_fold, partial(kernel_groups, graph.program, number, kernel_fold, rules))
    return tuple(groups)


def kernel_groups(
    program: CompiledProgram, number: int, fold: KernelFold, rules: tuple[AxisRule, ...], shared: int = 0
) -> list[NodeGroup]:
    """Groups of nodes of one kernel.

    Args:
        shared: how many outer loops are left to the caller: the tree and the leaves are those of one iteration, with
            the loops left out as the first entries of `loop_axes` and `loop_stride`.
    """
    kernel = program.kernels[number]
    strides = [math.prod(kernel.mesh[axis + 1 :]) for axis in range(len(kernel.mesh))]
    chained = chained_axes(fold, kernel.mesh)
    loop_axes = (*fold.order, *chained)
    trips = tuple(kernel.mesh[a] // fold.axes[a].spatial for a in range(len(kernel.mesh)))
    first, spatial_stride, loop_stride = program.first_task[number], [], [0] * len(kernel.mesh)
    for axis, choice in enumerate(fold.axes):
        between, within = axis_steps(choice.pattern, choice.spatial, trips[axis])
        spatial_stride.append(between * strides[axis])
        loop_stride[axis] = within * strides[axis]
        # Tasks run in the order of streams: if streams lead towards smaller pids, a node begins with its last task.
        if axis in chained and rules[axis].direction < 0:
            first += (trips[axis] - 1) * loop_stride[axis]
            loop_stride[axis] *= -1
    bundled = math.prod(trips[a] for a in fold.order[shared:])
    sequences, shape = _class_sequences(kernel.varying_classes, kernel.mesh, fold, chained, rules)
    patterns, group_of = _distinct(sequences)
    groups = []
    for group, classes in enumerate(patterns):
        leaves = MeshLeaves(
            kernel=number,
            first=first,
            spatial=tuple(axis.spatial for axis in fold.axes),
            spatial_stride=tuple(spatial_stride),
            loops=tuple(trips[a] for a in loop_axes[shared:]),
            loop_axes=loop_axes,
            loop_stride=tuple(loop_stride[a] for a in loop_axes),
            group_of=group_of.reshape(shape),
            group=group,
        )
        groups.append(NodeGroup(_tree(number, bundled, classes), leaves.count, leaves))
    return groups


def _shared_groups(joint: JointFold, members: Ints) -> list[NodeGroup]:
    """Groups of the nodes that chained kernels share."""
    program, shared = joint.graph.program, joint.shared_loops(members)
    trips: Ints = ()
    parts, trees, kinds = [], [], []
    for kernel in members:
        fold = joint.fold.kernels[kernel]
        own = kernel_groups(program, kernel, fold, joint.graph.rules[kernel], shared)
        leaves = own[0].leaves
        assert isinstance(leaves, MeshLeaves)
        trips = tuple(program.kernels[kernel].mesh[a] // fold.axes[a].spatial for a in fold.order[:shared])
        links = [-1 if rule.link is None else rule.link for rule in joint.graph.rules[kernel]]
        # Order axes by `link`, the number that connected axes share: node n of all chained kernels is then one node.
        order = sorted(range(len(links)), key=links.__getitem__)
        base = leaves.every_base.transpose(order).reshape(-1)
        parts.append(ChainPart(base, leaves.loop_stride[:shared], leaves.loops, leaves.loop_stride[shared:]))
        kinds.append(np.broadcast_to(leaves.group_of, leaves.spatial).transpose(order).reshape(-1))
        trees.append([group.tree for group in own])
    # Nodes with equal trees for each kernel form one group, which is costed and scheduled once.
    patterns, group_of = _distinct(np.stack(kinds, axis=1))
    groups = []
    for number, pattern in enumerate(patterns):
        nodes = np.flatnonzero(group_of == number)
        tree = repeat(math.prod(trips), seq(own[kind] for own, kind in zip(trees, pattern, strict=True)))
        own_parts = tuple(replace(part, base=part.base[nodes]) for part in parts)
        groups.append(NodeGroup(tree, len(nodes), ChainLeaves(own_parts, trips)))
    return groups


def chained_axes(fold: KernelFold, mesh: Ints) -> Ints:
    """The axes a normalised fold chains, as loops from the outermost to the innermost."""
    return tuple(a for a, axis in enumerate(fold.axes) if axis.how == "chain" and axis.spatial < mesh[a])


def axis_steps(pattern: str, spatial: int, trip_count: int) -> tuple[int, int]:
    """Return the distances along the axis between neighbouring nodes' tasks, and between one node's consecutive
    tasks."""
    return (1, spatial) if pattern == "cyclic" else (trip_count, 1)


def _distinct(rows: IntArray) -> tuple[list[Ints], IntArray]:
    """The different rows in lexicographic order, and which of them each row is: for a handful, where sorting an array
    takes longer."""
    listed = list(map(tuple, rows.tolist()))
    patterns = sorted(set(listed))
    number = {row: n for n, row in enumerate(patterns)}
    return patterns, np.array([number[row] for row in listed], np.int64)


@lru_cache(maxsize=4096)
def _tree(kernel: int, bundled: int, classes: Ints) -> Tree:
    """A chain of tasks of these classes, repeated; shared, because trees of thousands of tasks recur in a search."""
    return repeat(bundled, seq([Task(kernel, cls) for cls in classes]))


def _class_sequences(
    table: IntArray, mesh: Ints, fold: KernelFold, chained: Ints, rules: tuple[AxisRule, ...]
) -> tuple[IntArray, Ints]:
    """Per spatial coordinate the classes in execution order: (coordinates, chain length), and the coordinates' shape.

    Axes along which the class does not vary (of length 1 in `table`) have one coordinate.
    """
    rank = table.ndim
    split: list[int] = []
    for axis, (extent, choice) in enumerate(zip(mesh, fold.axes, strict=True)):
        trips = extent // choice.spatial if axis in chained else 1
        if table.shape[axis] == 1:
            split += [1, 1]
            continue
        if rules[axis].direction < 0 and trips > 1:
            table = np.flip(table.reshape(*table.shape[:axis], choice.spatial, trips, -1), axis + 1).reshape(
                table.shape
            )
        split += [choice.spatial, trips] if axis in chained else [table.shape[axis], 1]
    digits = table.reshape(split)
    lengths = [mesh[a] // fold.axes[a].spatial if a in chained else 1 for a in range(rank)]
    spatial = tuple(split[0::2])
    # Every axis is now two digits: its node and its place in the chain. With the nodes' digits in front, each row of
    # the reshaped array is a node, and its columns are the chain from the outermost loop to the innermost.
    digits = digits.transpose(*range(0, 2 * rank, 2), *range(1, 2 * rank, 2))
    return np.broadcast_to(digits, (*spatial, *lengths)).reshape(math.prod(spatial), -1), spatial


Primitives = list[tuple[str, list[Any]]]
Rules = Sequence[Sequence[AxisRule]]


class Plan(Frozen):
    """One kernel's fold as roles of its axes.

    Attributes:
        chained: axes along which tasks are chained, outermost loop first.
        bundled: axes along which nodes are bundled, outermost loop first; without those that other kernels share.
        linked: other axes along which streams lead from node to node: nodes along them are bundled as tuples.
        free: the remaining axes, whose nodes are bundled separately.
    """

    kernel: Kernel
    fold: KernelFold
    rules: Sequence[AxisRule]
    chained: Ints
    bundled: Ints
    linked: Ints
    free: Ints

    def places(self, axis: int, made: Made) -> Sequence[int]:
        """The tasks along an axis that is not chained which a walk looks at."""
        return (
            [self.pid(axis, u, 0) for u in range(self.fold.axes[axis].spatial)]
            if made.heads
            else range(self.kernel.mesh[axis])
        )

    def trips(self, axis: int) -> int:
        return self.kernel.mesh[axis] // self.fold.axes[axis].spatial

    def pid(self, axis: int, u: int, v: int) -> int:
        """Index along an axis of the task that node `u` executes in iteration `v`."""
        choice, trips = self.fold.axes[axis], self.trips(axis)
        between, within = axis_steps(choice.pattern, choice.spatial, trips)
        if axis in self.chained and self.rules[axis].direction < 0:
            v = trips - 1 - v
        return between * u + within * v

    def pids(self, axis: int, u: int) -> list[int]:
        """Return the pids of all iterations."""
        return [self.pid(axis, u, v) for v in range(self.trips(axis))]

    def pid_text(self, axis: int) -> str:
        """`pid` as an expression in `u<axis>` and `v<axis>`."""
        choice, trips = self.fold.axes[axis], self.trips(axis)
        v = f"v{axis}"
        if axis in self.chained and self.rules[axis].direction < 0:
            v = f"{trips - 1} - {v}"
        if choice.spatial == 1:
            return v
        return f"u{axis} + {choice.spatial} * {v}" if choice.pattern == "cyclic" else f"{trips} * u{axis} + {v}"


class Made(Struct):
    """Primitives of a fold, made one after the other.

    Attributes:
        heads: whether only the first node of every bundle is looked at. Then the nodes that are made in the end, their
            names and their order are the same, without a step for each task; the primitives are not complete.
        first_task: of every node, by the nodes' names.
    """

    heads: bool = False
    primitives: Primitives = []
    first_task: dict[str, str] = {}

    def chain(self, first: str, second: str) -> str:
        self.primitives.append(("chain", [first, second]))
        name = chain_name((first, second))
        self.first_task[name] = self.first_task[first]
        return name

    def bundle(self, rows: Sequence[tuple[str, ...]], count: int) -> list[str]:
        """Bundle rows of alike nodes, and return the nodes that result."""
        self.primitives.append(("bundle", list(rows) if len(rows[0]) > 1 else [row[0] for row in rows]))
        names = [bundle_name(name, count) for name in rows[0]]
        self.first_task.update(zip(names, map(self.first_task.__getitem__, rows[0]), strict=True))
        return names


def plans(program: CompiledProgram, fold: MeshFold, rules: Rules) -> list[Plan]:
    """Return the plan of each kernel's own fold."""
    result = []
    for kernel, kernel_fold, kernel_rules in zip(program.kernels, fold.kernels, rules, strict=True):
        chained = chained_axes(kernel_fold, kernel.mesh)
        bundled = tuple(a for a in kernel_fold.order if kernel_rules[a].link is None or kernel_rules[a].follows)
        others = [a for a in range(len(kernel.mesh)) if a not in bundled]
        linked = tuple(a for a in others if kernel_rules[a].streams and kernel_fold.axes[a].spatial > 1)
        free = tuple(a for a in range(len(kernel.mesh)) if a not in linked)
        result.append(Plan(kernel, kernel_fold, kernel_rules, chained, bundled, linked, free))
    return result


def mesh_primitives(program: CompiledProgram, fold: MeshFold, rules: Rules) -> Primitives:
    """The sequence that folds the program's graph as a normalised fold of independent kernels does."""
    made = Made()
    for plan in plans(program, fold, rules):
        if plan.chained or plan.bundled:
            bundle_nodes(plan, chain_nodes(plan, made), made)
    return made.primitives


Coordinate = tuple[int, ...]


def chain_nodes(plan: Plan, made: Made) -> dict[Coordinate, str]:
    """Chain what is chained; returns nodes by the node's index along chained axes and the task's along others."""
    kernel, rank = plan.kernel, len(plan.kernel.mesh)
    extents = [range(x.spatial) if a in plan.chained else plan.places(a, made) for a, x in enumerate(plan.fold.axes)]
    if not plan.chained:
        single = {pid: kernel.task_name(pid) for pid in itertools.product(*extents)}
        made.first_task.update((name, name) for name in single.values())
        return single
    order = [a for a in range(rank) if a not in plan.chained] + list(plan.chained)
    nodes = {}
    for picked in itertools.product(*(extents[a] for a in order)):
        at = dict(zip(order, picked, strict=True))
        pid, tasks = [at[a] for a in range(rank)], []
        for step in itertools.product(*(plan.pids(axis, at[axis]) for axis in plan.chained)):
            for axis, value in zip(plan.chained, step, strict=True):
                pid[axis] = value
            tasks.append(kernel.task_name(tuple(pid)))
        node = tasks[0]
        made.first_task[node] = node
        for task in tasks[1:]:
            node = made.chain(node, task)
        nodes[tuple(at[a] for a in range(rank))] = node
    return nodes


def bundle_nodes(plan: Plan, nodes: dict[Coordinate, str], made: Made) -> dict[Coordinate, str]:
    """Bundle nodes, or tuples of linked nodes, over all iterations of the kernel's own bundled loops.

    Returns nodes by the node's index along chained and bundled axes and the task's along others.
    """
    if not plan.bundled:
        return nodes
    own = {*plan.chained, *plan.bundled}
    extents = [range(x.spatial) if a in own else plan.places(a, made) for a, x in enumerate(plan.fold.axes)]
    trips = [plan.trips(a) for a in plan.bundled]
    bundled = [(axis, plan.free.index(axis)) for axis in plan.bundled]
    members = list(itertools.product(*(extents[a] for a in plan.linked)))
    result = {}
    # Positions in `picked + member` of the axes of a node's place, in mesh order.
    order = [(*plan.free, *plan.linked).index(a) for a in range(len(extents))]
    for picked in itertools.product(*(extents[a] for a in plan.free)):
        rows: list[tuple[str, ...]] = []
        alike = (plan.pids(axis, picked[place])[: 1 if made.heads else None] for axis, place in bundled)
        for pids in itertools.product(*alike):
            task = list(picked)
            for (_, place), value in zip(bundled, pids, strict=True):
                task[place] = value
            rows.append(tuple(nodes[_in_order((*task, *member), order)] for member in members))
        for member, node in zip(members, made.bundle(rows, math.prod(trips)), strict=True):
            result[_in_order((*picked, *member), order)] = node
    return result


def _in_order(values: Coordinate, order: Sequence[int]) -> Coordinate:
    return tuple([values[position] for position in order])


def mesh_source(program: CompiledProgram, fold: MeshFold, rules: Rules) -> str:
    """Python text of a function `mapping_primitives()` that returns the same list as `mesh_primitives`."""
    lines = ["def mapping_primitives():", f'    """Fold {program.name} onto {fold.node_count} nodes."""']
    lines.append("    primitives = []")
    for plan in plans(program, fold, rules):
        if plan.chained:
            lines += _chain_source(plan)
        if plan.bundled:
            lines += _bundle_source(plan)
    return "\n".join([*lines, "    return primitives", ""])


def _chain_source(plan: Plan) -> list[str]:
    mesh, name = plan.kernel.mesh, plan.kernel.name
    lines = [f"    # {name}: {' x '.join(map(str, mesh))} tasks, chained along {_axes_text(plan.chained)}"]
    lines.append(f"    {name}_nodes = {{}}")
    indent = 4
    for axis in (a for a in range(len(mesh)) if a not in plan.chained):
        lines.append(f"{' ' * indent}for p{axis} in range({mesh[axis]}):")
        indent += 4
    for axis in plan.chained:
        if plan.fold.axes[axis].spatial > 1:
            lines.append(f"{' ' * indent}for u{axis} in range({plan.fold.axes[axis].spatial}):")
            indent += 4
    digits = "".join(f"_{{{plan.pid_text(a) if a in plan.chained else f'p{a}'}}}" for a in range(len(mesh)))
    loops = " ".join(f"for v{a} in range({plan.trips(a)})" for a in plan.chained)
    key = ", ".join(_chained_key(plan, a) if a in plan.chained else f"p{a}" for a in range(len(mesh)))
    body = [
        f'node, *tasks = [f"{name}{digits}" {loops}]',
        "for task in tasks:",
        '    primitives.append(("chain", [node, task]))',
        '    node = f"{node}-{task}"',
        f"{name}_nodes[{key}{',' if len(mesh) == 1 else ''}] = node",
    ]
    return lines + [" " * indent + line for line in body]


def _chained_key(plan: Plan, axis: int) -> str:
    return f"u{axis}" if plan.fold.axes[axis].spatial > 1 else "0"


def _bundle_source(plan: Plan) -> list[str]:
    mesh, name = plan.kernel.mesh, plan.kernel.name
    lines = [f"    # {name}: bundled along {_axes_text(plan.bundled)}"]
    indent = 4
    for axis in plan.free:
        if plan.fold.axes[axis].spatial > 1:
            lines.append(f"{' ' * indent}for u{axis} in range({plan.fold.axes[axis].spatial}):")
            indent += 4
    index = [plan.pid_text(a) if a in plan.bundled else _chained_key(plan, a) for a in range(len(mesh))]
    if plan.chained:
        node = f"{name}_nodes[{', '.join(index)}{',' if len(mesh) == 1 else ''}]"
    else:
        node = f'f"{name}{"".join(f"_{{{i}}}" for i in index)}"'
    if plan.linked:
        members = " ".join(f"for u{a} in range({plan.fold.axes[a].spatial})" for a in plan.linked)
        node = f"tuple({node} {members})"
    loops = [f"    for v{a} in range({plan.trips(a)})" for a in plan.bundled]
    body = ["rows = [", f"    {node}", *loops, "]", 'primitives.append(("bundle", rows))']
    return lines + [" " * indent + line for line in body]


def _axes_text(axes: Sequence[int]) -> str:
    return ("axis " if len(axes) == 1 else "axes ") + ", ".join(map(str, axes))


def list_source(primitives: Primitives) -> str:
    """Python text of a function that returns a list spelled out, for graphs that were folded node by node."""
    lines = [f"        ({kind!r}, {operands!r})," for kind, operands in primitives]
    return "\n".join(["def mapping_primitives():", "    return [", *lines, "    ]", ""])
