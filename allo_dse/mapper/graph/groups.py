"""Groups of folded nodes with one schedule tree, and the tasks they execute.

Mesh folds know their tasks by arithmetic: task ids are linear in mesh digits, so what a node executes is
`base[node] + offset[leaf]`, and neither is computed before someone asks. Graphs folded node by node hold an array.
"""

from __future__ import annotations

import difflib
import itertools
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import groupby
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, cast

import numpy as np

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import Frozen, Ints
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import IntArray

# Schedule trees: the tasks that a folded node executes, in their order.
#
#     Task(kernel, cls)      one task of a class
#     Seq(children)          the children one after the other (made by `chain`)
#     Repeat(count, child)   `count` sets of tasks through the same tree, in turn (made by `bundle`)
#
# A tree does not identify the tasks: nodes with equal trees share one tree and differ in their leaves. Trees are
# immutable, hashable and canonical, so that equal schedules are equal trees: build them with `seq` and `repeat`.


class Task(Frozen):
    """One task of class `cls` of the kernel at position `kernel`."""

    kernel: int
    cls: int

    @property
    def leaf_count(self) -> int:
        return 1


@dataclass(frozen=True, slots=True)
class Seq:
    """Children one after the other: at least two, none of them a `Seq`."""

    children: tuple[Tree, ...]
    leaf_count: int = field(init=False, repr=False, compare=False)
    _hash: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if len(self.children) < 2 or any(isinstance(child, Seq) for child in self.children):
            raise ValueError("a Seq has two or more children and no Seq among them; build it with seq()")
        object.__setattr__(self, "leaf_count", sum(child.leaf_count for child in self.children))
        object.__setattr__(self, "_hash", hash(("Seq", self.children)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Repeat:
    """`count` >= 2 times the same tree for different tasks; the child is not a `Repeat`."""

    count: int
    child: Task | Seq

    def __post_init__(self) -> None:
        if self.count < 2 or isinstance(self.child, Repeat):
            raise ValueError("a Repeat has a count of two or more and no Repeat as child; build it with repeat()")

    @property
    def leaf_count(self) -> int:
        return self.count * self.child.leaf_count


Tree: TypeAlias = Task | Seq | Repeat


def seq(children: Iterable[Tree]) -> Tree:
    """The children one after the other; a `Seq` among them is spliced in, a single child is itself."""
    flat = [part for child in children for part in (child.children if isinstance(child, Seq) else (child,))]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def repeat(count: int, child: Tree) -> Tree:
    """`count` times `child`; once is the child itself, and a repeated `Repeat` is one `Repeat`."""
    if count == 1:
        return child
    if isinstance(child, Repeat):
        return Repeat(count * child.count, child.child)
    return Repeat(count, child)


def leaf_tasks(tree: Tree) -> Iterator[Task]:
    """The task classes a node executes, in order; `tree.leaf_count` of them."""
    if isinstance(tree, Task):
        yield tree
    elif isinstance(tree, Seq):
        for child in tree.children:
            yield from leaf_tasks(child)
    else:
        for _ in range(tree.count):
            yield from leaf_tasks(tree.child)


def first_leaves(tree: Tree) -> dict[Task, int]:
    """Each task class that a node executes, with the position of its first leaf; repetitions are not walked through."""
    found: dict[Task, int] = {}

    def visit(part: Tree, start: int) -> None:
        if isinstance(part, Task):
            found.setdefault(part, start)
        elif isinstance(part, Repeat):
            visit(part.child, start)
        else:
            for child in part.children:
                visit(child, start)
                start += child.leaf_count

    visit(tree, 0)
    return found


def text(tree: Tree, names: dict[Task, str] | None = None) -> str:
    """One line, equal for equal trees: `64x[first; 30*middle; last]`, where `30*` is a run of equal children."""
    if isinstance(tree, Task):
        return names[tree] if names else f"{tree.kernel}.{tree.cls}"
    if isinstance(tree, Repeat):
        inner = text(tree.child, names)
        return f"{tree.count}x{inner}" if isinstance(tree.child, Seq) else f"{tree.count}x[{inner}]"
    runs = ((text(child, names), sum(1 for _ in run)) for child, run in groupby(tree.children))
    return "[" + "; ".join(name if count == 1 else f"{count}*{name}" for name, count in runs) + "]"


Given = ParamSpec("Given")
Made = TypeVar("Made")
IntOrInts = TypeVar("IntOrInts", int, IntArray)


class Leaves(Protocol):
    """The tasks that each node of a group executes."""

    @property
    def leaf_count(self) -> int:
        """The number of tasks that each node executes."""

    @property
    def loops(self) -> Ints | None:
        """Trip counts of the temporal loops, outermost first (product: `leaf_count`); None if not a loop nest."""

    def tasks(self, start: int = 0, stop: int | None = None) -> IntArray:
        """Task ids of leaves `start` to `stop` (excluded) of every node, in execution order: (count, stop - start)."""


class ArrayLeaves(Frozen, eq=False):
    """Leaves given as an array of task ids, of shape (count, leaf_count)."""

    array: IntArray

    @property
    def leaf_count(self) -> int:
        return int(self.array.shape[1])

    @property
    def loops(self) -> Ints | None:
        return None

    def tasks(self, start: int = 0, stop: int | None = None) -> IntArray:
        return self.array[:, start:stop]


class MeshLeaves(Frozen, eq=False, dict=True):
    """Leaves of a mesh fold: `tasks()[node, leaf] == base[node] + offsets()[leaf]`.

    Attributes:
        kernel: position of the kernel.
        first: task id of the first task of the node at spatial coordinate 0.
        spatial: nodes along each mesh axis.
        spatial_stride: what one step along each spatial axis adds to the task id.
        loops, loop_axes, loop_stride: trip counts of the temporal loops, outermost first, the mesh axis each runs
            along, and what one iteration adds to the task id.
        group_of: which group each spatial coordinate belongs to, broadcastable to `spatial`.
        group: this group's number in it.
    """

    kernel: int
    first: int
    spatial: Ints
    spatial_stride: Ints
    loops: Ints
    loop_axes: Ints
    loop_stride: Ints
    group_of: IntArray
    group: int

    @cached_property
    def count(self) -> int:
        return int(np.count_nonzero(self.group_of == self.group)) * (math.prod(self.spatial) // self.group_of.size)

    @property
    def leaf_count(self) -> int:
        return math.prod(self.loops)

    @property
    def nodes(self) -> IntArray:
        """Row-major position of each node of the group in the grid of spatial coordinates: (count,)."""
        if self.count == math.prod(self.spatial):
            return np.arange(self.count)
        return np.flatnonzero(np.broadcast_to(self.group_of == self.group, self.spatial))

    @property
    def every_base(self) -> IntArray:
        """First task id at each spatial coordinate, of this group or another: of shape `spatial`."""
        base = np.full((1,) * len(self.spatial), self.first, np.int64)
        for axis, (extent, stride) in enumerate(zip(self.spatial, self.spatial_stride, strict=True)):
            if extent > 1:
                shape = [1] * len(self.spatial)
                shape[axis] = extent
                base = base + (np.arange(extent) * stride).reshape(shape)
        return base

    @cached_property
    def base(self) -> IntArray:
        """First task id of each node: (count,)."""
        flat = self.every_base.reshape(-1)
        return flat if len(flat) == self.count else flat[self.nodes]

    def offsets(self, start: int = 0, stop: int | None = None) -> IntArray:
        """Return the offsets of leaves `start` to `stop` from a node's first task id: (stop - start,)."""
        return nest_offsets(np.arange(*slice(start, stop).indices(self.leaf_count)), self.loops, self.loop_stride)

    def tasks(self, start: int = 0, stop: int | None = None) -> IntArray:
        return self.base[:, None] + self.offsets(start, stop)[None, :]


class ChainPart(Frozen, eq=False):
    """The tasks of one kernel in nodes that several kernels share.

    Attributes:
        base: first task id of each node: (count,).
        shared_stride: what one iteration of each shared loop adds to the task id.
        loops, loop_stride: trip counts of its own loops, outermost first, and what one iteration adds to the task id.
    """

    base: IntArray
    shared_stride: Ints
    loops: Ints
    loop_stride: Ints

    @property
    def leaf_count(self) -> int:
        """Tasks in one iteration of the shared loops."""
        return math.prod(self.loops)


class ChainLeaves(Frozen, eq=False, dict=True):
    """Leaves of nodes that run tasks of several kernels, one kernel after the other, in loops that they share.

    Attributes:
        shared: trip counts of the shared loops, outermost first.
    """

    parts: tuple[ChainPart, ...]
    shared: Ints

    @cached_property
    def round_length(self) -> int:
        return sum(part.leaf_count for part in self.parts)

    @property
    def leaf_count(self) -> int:
        return math.prod(self.shared) * self.round_length

    @property
    def loops(self) -> Ints:
        return (*self.shared, self.round_length)

    @cached_property
    def _first_round(self) -> IntArray:
        """The tasks of the first round of every node: (count, round_length)."""
        tasks = [
            part.base[:, None] + nest_offsets(np.arange(part.leaf_count), part.loops, part.loop_stride)
            for part in self.parts
        ]
        return np.concatenate(tasks, axis=1)

    @cached_property
    def _strides(self) -> IntArray:
        """Strides of each shared loop at each place of a round: (loops, round_length)."""
        strides = np.array([part.shared_stride for part in self.parts], np.int64).reshape(len(self.parts), -1)
        return np.repeat(strides, [part.leaf_count for part in self.parts], axis=0).T

    def tasks(self, start: int = 0, stop: int | None = None) -> IntArray:
        rounds, place = np.divmod(np.arange(*slice(start, stop).indices(self.leaf_count)), self.round_length)
        strides = self._strides[:, place]
        found: IntArray = self._first_round[:, place] + nest_offsets(rounds, self.shared, strides)[None, :]
        return found


def nest_offsets(iterations: IntOrInts, loops: Sequence[int], strides: Sequence[int] | IntArray) -> IntOrInts:
    """Return the offset that a loop nest adds at an iteration, or at several, counted over the whole nest.

    Args:
        strides: the offset that one iteration of each loop adds; for several iterations also (loops, iterations).
    """
    total: IntOrInts = iterations * 0
    for trips, stride in zip(reversed(loops), reversed(strides), strict=True):
        iterations, digits = divmod(iterations, trips)
        total = total + digits * stride
    return total


class Shared:
    """Something that data is derived from, which is kept with it."""

    @cached_property
    def _made(self) -> dict[Hashable, object]:
        return {}

    def once(
        self: Own, make: Callable[Concatenate[Own, Given], Made], *given: Given.args, **named: Given.kwargs
    ) -> Made:
        """Return `make(self, ...)`, computed at the first call and kept. Arguments must be hashable."""
        key = make, given, *named.values()
        if key not in self._made:
            self._made[key] = make(self, *given, **named)
        return cast(Made, self._made[key])

    def table(self, name: str) -> dict[Any, Any]:
        """Return a table by keys of their own, which is empty at first."""
        return cast(dict[Any, Any], self._made.setdefault(name, {}))


Own = TypeVar("Own", bound=Shared)


@dataclass(frozen=True, eq=False)
class NodeGroup(Shared):
    """`count` nodes that execute the same schedule tree, each for its own tasks; folds that have it share it."""

    tree: Tree
    count: int
    leaves: Leaves

    @cached_property
    def first_tasks(self) -> IntArray:
        """The tasks of the first node, in the order of its tree."""
        found: IntArray = self.leaves.tasks()[0].copy()
        return found


# Names of nodes, spelled as in Allo.
#
#     task    <kernel>_<i>_<j>...
#     chain   the names of its parts, joined by `-`
#     bundle  the name of its first part, `x`, and the number of parts


def task_names(program: CompiledProgram) -> list[str]:
    """The name of every task, by task id."""
    names: list[str] = []
    for kernel in program.kernels:
        prefixes = [kernel.name]
        for extent in kernel.mesh:
            digits = [f"_{i}" for i in range(extent)]
            prefixes = [prefix + digit for prefix, digit in itertools.product(prefixes, digits)]
        names += prefixes
    if len(set(names)) != len(names):
        twice = next(name for name, count in Counter(names).items() if count > 1)
        raise AlloDseError(f"two tasks are called {twice}", hint="rename one of the kernels")
    return names


def chain_name(parts: Sequence[str]) -> str:
    return "-".join(parts)


def bundle_name(first: str, count: int) -> str:
    return f"{first}x{count}"


def node_name(task_name: Callable[[int], str], tree: Tree, leaves: Sequence[int]) -> str:
    """The name of a node that executes `leaves` (task ids) by a schedule tree."""
    if isinstance(tree, Task):
        return task_name(leaves[0])
    if isinstance(tree, Repeat):
        return bundle_name(node_name(task_name, tree.child, leaves[: tree.child.leaf_count]), tree.count)
    parts, start = [], 0
    for child in tree.children:
        parts.append(node_name(task_name, child, leaves[start : start + child.leaf_count]))
        start += child.leaf_count
    return chain_name(parts)


def short_node_name(program: CompiledProgram, group: NodeGroup, position: int) -> str:
    """A node of a group by its first task, with `-…` when it chains others and `x<count>` when it bundles.

    For messages and pictures: a name in full spells out every task of a chain.
    """
    tree = group.tree
    rounds, body = (tree.count, tree.child) if isinstance(tree, Repeat) else (1, tree)
    name = program.task_name(int(group.leaves.tasks(0, 1)[position, 0]))
    name += "-…" if isinstance(body, Seq) else ""
    return name + (f"x{rounds}" if rounds > 1 else "")


def unknown_name_hint(program: CompiledProgram, name: str, nodes: Collection[str]) -> str:
    """Return a hint for a name that no node has."""
    kernels = {kernel.name: kernel for kernel in program.kernels}
    parts = re.fullmatch(r"(.+?)((?:_\d+)+)", name)
    if parts and (kernel := kernels.get(parts[1])):
        first, last = (kernel.task_name(tuple(f * (n - 1) for n in kernel.mesh)) for f in (0, 1))
        return f"{kernel.name} has mesh {list(kernel.mesh)}: its tasks are {first} to {last}"
    if parts and (close := difflib.get_close_matches(parts[1], kernels, n=1)):
        meant = f"{close[0]}{parts[2]}"
        if meant in nodes:
            return f"did you mean {meant}?"
    close = difflib.get_close_matches(name, itertools.islice(nodes, 2000), n=1)
    return f"did you mean {close[0]}?" if close else "node names are in vmg.nodes"
