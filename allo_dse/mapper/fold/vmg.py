"""The virtual mapping graph (VMG): the tasks of a program, and how they are folded onto nodes."""

from __future__ import annotations

import hashlib
import json
import math
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import ClassVar
from weakref import WeakValueDictionary

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import IllegalFold
from allo_dse.common.notebooks import Pictured
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray

from ..graph.groups import Leaves, NodeGroup, Repeat, node_name, text
from ..graph.kernel_graph import precedence_cycle
from ..graph.program_graph import MOST_TASKS, ProgramGraph
from .builder import Builder, Primitive
from .fold import AxisFold, JointFold, KernelFold, MeshFold, Step, unfolded
from .node_edges import FoldUses, NodeEdges, node_edges, node_grids
from .node_fold_search import NodeFold
from .primitives import (
    Coordinate,
    Made,
    Plan,
    Primitives,
    bundle_nodes,
    chain_nodes,
    list_source,
    mesh_groups,
    mesh_primitives,
    mesh_source,
    plans,
)

# Folds across kernels as `mapping_primitives`.
#
# Each kernel is folded by itself first: its chains, and the loops that it shares with no other kernel. Then follow,
# from the inside out (`JointFold.steps`), bundles of nodes that exchange tokens along a linked axis, and chains of
# kernels.


class _Nodes(Struct):
    """The nodes of one kernel, or of several that share them.

    Attributes:
        links: the linked axes along which they are laid out.
        at: names of the nodes, by their places along `links`: the task's until the axis is bundled, then the node's.
    """

    links: tuple[int, ...]
    at: dict[Coordinate, tuple[str, ...]]


def joint_names(joint: JointFold) -> dict[str, str]:
    """The nodes' names by their first task's, in the order in which the sequence makes them; tasks by themselves come
    first."""
    made = Made(heads=True)
    final = _make(joint, made)
    names = {made.first_task[name]: name for name in made.first_task if name in final}
    return dict(sorted(names.items(), key=lambda item: item[0] != item[1]))


def _make(joint: JointFold, made: Made) -> set[str]:
    """Carry out a joint fold; returns the names of the nodes that it leaves."""
    own = plans(joint.graph.program, joint.fold, joint.graph.rules)
    nodes: dict[int, _Nodes] = {}
    chained = [chain_nodes(plan, made) for plan in own]
    for kernel, (plan, names) in enumerate(zip(own, chained, strict=True)):
        nodes[kernel] = _by_links(plan, bundle_nodes(plan, names, made))
    for step in joint.steps or []:
        if step.chain:
            _chain(step, nodes, made)
        else:
            _bundle(step, joint, own, nodes, made)
    return {name for kernel in nodes.values() for row in kernel.at.values() for name in row}


def _by_links(plan: Plan, names: dict[Coordinate, str]) -> _Nodes:
    """A kernel's nodes by their places along linked axes; those at other places of other axes stand side by side."""
    axes = [axis for axis, rule in enumerate(plan.rules) if rule.link is not None]
    found: dict[Coordinate, list[str]] = {}
    for coordinate, name in names.items():
        found.setdefault(tuple(coordinate[axis] for axis in axes), []).append(name)
    links = tuple(link for axis in axes if (link := plan.rules[axis].link) is not None)
    return _Nodes(links, {place: tuple(row) for place, row in found.items()})


def _chain(step: Step, nodes: dict[int, _Nodes], made: Made) -> None:
    """Chain corresponding nodes; all members then hold the merged ones."""
    head, *others = (nodes[kernel] for kernel in step.chain)
    merged = {}
    rests = [{_key(other, place): row for place, row in other.at.items()} for other in others]
    for place, (name,) in head.at.items():
        for rest in rests:
            (follower,) = rest[_key(head, place)]
            name = made.chain(name, follower)
        merged[_key(head, place)] = (name,)
    for member in (head, *others):
        member.at = {place: merged[_key(member, place)] for place in member.at}


def _key(nodes: _Nodes, place: Coordinate) -> tuple[tuple[int, int], ...]:
    """A place, leaving out axes on which all nodes are at 0."""
    wide = [any(other[i] for other in nodes.at) for i in range(len(nodes.links))]
    return tuple(sorted((link, at) for link, at, kept in zip(nodes.links, place, wide, strict=True) if kept))


def _bundle(step: Step, joint: JointFold, own: list[Plan], nodes: dict[int, _Nodes], made: Made) -> None:
    """Bundle all nodes at one place of a linked axis with those at other places."""
    link = step.link
    assert link is not None
    taking = [kernel for kernel, loops in enumerate(joint.loops) if link in [other for other, _ in loops]]
    plan = own[taking[0]]
    axis = [rule.link for rule in plan.rules].index(link)
    heads = [plan.pid(axis, u, 0) for u in range(plan.fold.axes[axis].spatial)]
    trips = plan.trips(axis)
    new_names: dict[str, str] = {}
    positions = [(nodes[kernel], nodes[kernel].links.index(link)) for kernel in taking]

    def nodes_at(own: _Nodes, position: int, pid: int) -> Iterator[str]:
        """All nodes at one place of the linked axis."""
        return (name for place, row in own.at.items() if place[position] == pid for name in row)

    for u in range(len(heads)):
        places = range(1 if made.heads else trips)
        pids = [plan.pid(axis, u, v) for v in places]
        rows = [tuple(dict.fromkeys(name for own in positions for name in nodes_at(*own, pid))) for pid in pids]
        new_names |= zip(rows[0], made.bundle(rows, trips), strict=True)
    for mine, position in positions:
        mine.at = {
            (*place[:position], u, *place[position + 1 :]): tuple(new_names[name] for name in row)
            for u, first in enumerate(heads)
            for place, row in mine.at.items()
            if place[position] == first
        }


_LATEST_FOLDS = 256
_LATEST: deque[VMG] = deque(maxlen=_LATEST_FOLDS)
"""Folds that no design may have at the moment, but others soon, of any programs; at most `MOST_TASKS` together."""

__all__ = ["VMG", "Leaves", "NodeEdges", "NodeGroup"]


@dataclass(frozen=True, eq=False)
class VMG(Pictured):
    """Tasks of a program, each on exactly one node; immutable. `VMG.of(program)` is the unfolded graph.

    Attributes:
        graph: the program's tasks and streams, shared by all graphs folded from one.
        groups: the nodes, grouped by schedule tree. Nodes are numbered group by group.
        mesh_fold: the normalised fold this graph was made by; None once it was folded node by node.
        applied: the primitives that made a graph without `mesh_fold`.
        labels: the nodes' names, by node number, once the graph was folded node by node.
    """

    picture: ClassVar = "allo_dse.drawing:vmg_svg"

    graph: ProgramGraph
    groups: tuple[NodeGroup, ...]
    mesh_fold: MeshFold | None
    applied: tuple[tuple[str, tuple[object, ...]], ...] = ()
    labels: tuple[str, ...] = ()

    @staticmethod
    def of(program: CompiledProgram) -> VMG:
        """The unfolded graph: every task on a node of its own, one group per task class."""
        graph, fold = ProgramGraph(program), unfolded(program)
        return VMG(graph, mesh_groups(graph, fold), fold)

    def __repr__(self) -> str:
        return f"VMG({self.program.name!r}, {self.task_count:,} tasks on {self.node_count:,} nodes)"

    @property
    def program(self) -> CompiledProgram:
        return self.graph.program

    @cached_property
    def node_count(self) -> int:
        return sum(group.count for group in self.groups)

    @property
    def task_count(self) -> int:
        return self.program.task_count

    @cached_property
    def node_of_task(self) -> IntArray:
        """Node number of every task: (task_count,)."""
        owner = np.empty(self.task_count, np.int64)
        for first, group in self.numbered_groups:
            owner[group.leaves.tasks()] = np.arange(first, first + group.count)[:, None]
        return owner

    @property
    def numbered_groups(self) -> Iterator[tuple[int, NodeGroup]]:
        """The groups, each with the number of its first node."""
        return zip(accumulate((group.count for group in self.groups), initial=0), self.groups, strict=False)

    @cached_property
    def uses(self) -> FoldUses:
        """Tasks, exchanges and memory of the nodes."""
        return FoldUses(self.graph, self.groups, self.node_of_task, self.merges)

    @cached_property
    def merges(self) -> bool:
        """True if streams between two nodes may share a FIFO: some node has several tasks, here or beside the slice."""
        return self.node_count < self.task_count

    @cached_property
    def edges(self) -> NodeEdges:
        """Streams between nodes, added up per pair of nodes and stream array."""
        part, fold = self.slice, self.mesh_fold
        if part is self or fold is None or fold.chains:
            edges, node = self.graph.edges, self.node_of_task
            return node_edges(node[edges.source], node[edges.target], edges.array, np.ones(len(edges), np.int64))
        grids, rounds = node_grids(self.groups), dict[int, int]()
        copies: dict[int, IntArray] = {}
        for kernel, grid in node_grids(part.groups).items():
            cut = self.graph.separate[kernel]
            # Separate axes last, in one order for all kernels: nodes in the same column exchange streams.
            order = [axis for axis in range(grid.ndim) if axis not in cut] + [*cut]
            nodes = np.transpose(grid, order).ravel().tolist()
            copies |= zip(nodes, np.transpose(grids[kernel], order).reshape(grid.size, -1), strict=True)
            mesh, axes = self.program.kernels[kernel].mesh, fold.kernels[kernel].axes
            rounds |= dict.fromkeys(nodes, math.prod(mesh[axis] // axes[axis].spatial for axis in cut))
        columns = (
            column.tolist() for column in (part.edges.source, part.edges.target, part.edges.array, part.edges.count)
        )
        rows = [
            np.array(np.broadcast_arrays(copies[source], copies[target], array, count * rounds[source]))
            for source, target, array, count in zip(*columns, strict=True)
        ]
        return node_edges(*np.concatenate(rows, axis=1)) if rows else part.edges

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        """The nodes' names, by node number."""
        if self.labels:
            return self.labels
        name = self.graph.name_of
        if self.joint is not None:
            first = (task for group in self.groups for task in group.leaves.tasks(0, 1)[:, 0].tolist())
            return tuple(self.joint_names[name(task)] for task in first)
        rows = ((group, row) for group in self.groups for row in _named_leaves(group).tolist())
        return tuple(node_name(name, group.tree, row) for group, row in rows)

    def node_name(self, node: int) -> str:
        """The name of one node, without naming the others."""
        if self.labels or self.joint is not None:
            return self.nodes[node]
        for group in self.groups:
            if node < group.count:
                return node_name(self.program.task_name, group.tree, _named_leaves(group)[node].tolist())
            node -= group.count
        raise IndexError(f"node {node}: the graph has {self.node_count} nodes")

    @cached_property
    def joint(self) -> JointFold | None:
        """The mesh fold this graph was made by, if it folds kernels together."""
        joint = None if self.mesh_fold is None else JointFold.of(self.graph, self.mesh_fold)
        return joint if joint is not None and joint.is_joint else None

    @cached_property
    def slice(self) -> VMG:
        """The same fold of `graph.slice`; the graph itself where no axis is separate, or its loops are not outermost.

        Nodes at other places exchange tokens alike. So do later rounds of the outermost loops: both ends of each stream
        move all of its tokens in one round. A round that ends leaves the FIFOs empty. In one that does not, blocked
        nodes wait for blocked ones only, as the others have moved all tokens of the round.
        """
        fold, graph = self.mesh_fold, self.graph
        if fold is None or not any(graph.separate):
            return self
        loops, kernels = [len({*own.order} & {*cut}) for own, cut in zip(fold.kernels, graph.separate, strict=True)], []
        for own, cut, count, kernel in zip(
            fold.kernels, graph.separate, loops, graph.slice.program.kernels, strict=True
        ):
            if not set(own.order[:count]) <= set(cut):
                return self
            axes = tuple(AxisFold(1) if axis in cut else one for axis, one in enumerate(own.axes))
            kernels.append(KernelFold(own.kernel, axes, own.order).normalised(kernel.mesh))
        joint = self.joint
        if joint and any(loops[one] > joint.shared_loops(members) for members in joint.chains for one in members):
            return self
        part = MeshFold(tuple(kernels), fold.chains)
        found = VMG(graph.slice, mesh_groups(graph.slice, part), part)
        vars(found).update(merges=self.merges)
        return found

    @cached_property
    def joint_names(self) -> dict[str, str]:
        """Names of the nodes by their first task, in the order of making; only for a graph that folds kernels
        together."""
        assert self.joint is not None
        return joint_names(self.joint)

    @cached_property
    def key(self) -> str:
        """Hash of the folded graph: equal exactly for equal graphs, whatever sequence made them. Order-free."""
        # What is hashed is stated per task (the first task of its node, its place in that node, its node's schedule
        # tree), so that the order of nodes and groups plays no role.
        trees = [text(group.tree) for group in self.groups]
        rank = {tree: number for number, tree in enumerate(sorted(set(trees)))}
        form = np.empty((3, self.program.task_count), np.int32)
        for group, tree in zip(self.groups, trees, strict=True):
            tasks = group.leaves.tasks()
            form[0, tasks] = tasks[:, :1]
            form[1, tasks] = np.arange(tasks.shape[1])
            form[2, tasks] = rank[tree]
        kernels = [[k.name, list(k.mesh), [c.name for c in k.classes]] for k in self.program.kernels]
        digest = hashlib.blake2b(json.dumps([self.program.name, kernels]).encode(), digest_size=16)
        digest.update(json.dumps(sorted(rank)).encode())
        digest.update(form.tobytes())
        return digest.hexdigest()

    @property
    def mapping_primitives(self) -> Primitives:
        """The `chain` and `bundle` sequence that folds the program's unfolded graph into this one, as Allo takes it."""
        if self.joint is not None:
            _make(self.joint, made := Made())
            return made.primitives
        if self.mesh_fold is not None:
            return mesh_primitives(self.program, self.mesh_fold, self.graph.rules)
        return [(kind, list(operands)) for kind, operands in self.applied]

    def mapping_source(self) -> str:
        """Python text of a function `mapping_primitives()` that returns `mapping_primitives`.

        Loops where kernels are folded by themselves.
        """
        if self.mesh_fold is not None and self.joint is None:
            return mesh_source(self.program, self.mesh_fold, self.graph.rules)
        return list_source(self.mapping_primitives)

    def fold(self, fold: MeshFold | NodeFold) -> VMG:
        """Fold whole mesh axes of an unfolded graph, which costs nothing per task; or single tasks.

        before:  one node per task        after:  one node per spatial coordinate of `fold`, with a loop nest of tasks

        Raises:
            IllegalFold: if the fold does not fit the meshes, breaks an axis rule, or the graph is folded already.
        """
        if self.mesh_fold is None or self.node_count != self.task_count:
            raise IllegalFold("a mesh fold starts from the unfolded graph", hint="use program.vmg.fold(...)")
        if isinstance(fold, NodeFold):
            return self.apply(fold.primitives(self.graph))
        if (known := self._folded.get(fold)) is not None:  # as designs that differ only in their schedules
            return known
        normal = fold.normalised(self.graph)
        if (known := self._folded.get(normal)) is None:
            for reason in JointFold.of(self.graph, normal).violations():
                raise IllegalFold(reason, hint="fold_choices(program) lists the legal folds")
            known = self._folded[normal] = VMG(self.graph, mesh_groups(self.graph, normal), normal)
            self.graph.use()
            _LATEST.append(known)
            while len(_LATEST) > max(1, MOST_TASKS // self.task_count):
                _LATEST.popleft()
        return known

    @cached_property
    def _folded(self) -> WeakValueDictionary[MeshFold, VMG]:
        """Folds of this graph that some design has: designs of one fold share what is derived from it."""
        return WeakValueDictionary()

    def chain(self, first: str, second: str) -> VMG:
        """Run `second` after `first` on one processing element.

        before:  first ──s──► second        after:  [first ; second]   (s becomes a local buffer)

        The new node is called `first-second`.

        Raises:
            IllegalFold: if a path leads from `second` back to `first`, or a name is not a node's.
        """
        return self.apply([("chain", [first, second])])

    def bundle(self, nodes: Sequence[str | Sequence[str]]) -> VMG:
        """Run alike nodes, or alike subgraphs, in turn on the processing elements of the first of them.

        before:  p ──► a0 ──► q        after:  p ──► 2x[a] ──► q
                 p ──► a1 ──► q

        before:  a0 ──► b0             after:  2x[a] ──► 2x[b]      (bundle of the tuples (a0, b0) and (a1, b1))
                 a1 ──► b1

        The new nodes are called by the first tuple: `a0x2`, `b0x2`.

        Raises:
            IllegalFold: if the nodes execute different task classes, have different peers, wait for each other, or are
                fewer than two.
        """
        return self.apply([("bundle", list(nodes))])

    def apply(self, mapping_primitives: Sequence[Primitive]) -> VMG:
        """Carry out a sequence of `("chain", [a, b])` and `("bundle", [...])`, as if one by one.

        Raises:
            IllegalFold: for the first primitive that is illegal.
        """
        builder = Builder(self.graph, self.groups, self.nodes)
        builder.apply(mapping_primitives)
        groups, labels = builder.finish()
        added = tuple((kind, tuple(operands)) for kind, operands in mapping_primitives)
        before = tuple((kind, tuple(operands)) for kind, operands in self.mapping_primitives)
        return VMG(self.graph, groups, None, before + added, labels)

    def precedence_cycle(self) -> list[str] | None:
        """Tasks that wait for each other in a circle, in order; None if there are none (see `schedulable`)."""
        return None if self._cycle is None else [self.program.task_name(task) for task in self._cycle]

    @property
    def schedulable(self) -> bool:
        """True if tasks can be executed in some order without waiting for later ones, so that no depths can
        deadlock.

        False does not mean that the graph deadlocks: tasks that talk back and forth may run at deep enough streams,
        which only a simulation can tell.
        """
        return self._cycle is None

    @cached_property
    def _cycle(self) -> list[int] | None:
        return precedence_cycle(self.graph, self.groups, self.node_of_task)


def _named_leaves(group: NodeGroup) -> IntArray:
    """The tasks that appear in the nodes' names: those of the first iteration of a bundle."""
    tree = group.tree
    return group.leaves.tasks(0, tree.child.leaf_count if isinstance(tree, Repeat) else tree.leaf_count)
