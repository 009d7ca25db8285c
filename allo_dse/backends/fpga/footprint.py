"""Part of its tile that a task class reads and writes: a box whose position is a linear function of the pid."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import Frozen, Ints
from allo_dse.compiler.ir.affine import Linear
from allo_dse.compiler.ir.nest import Access, Branch, Loop, Nest, Op, ops_of, read_nest, walk, with_loops
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass
from allo_dse.compiler.program.tensors import IntArray, TensorPort

from .linear import IndexSum


class Box(Frozen):
    """`extents` elements from `starts` on, per dimension of the tile; `starts` are forms over the pid's axes."""

    starts: tuple[IndexSum, ...]
    extents: tuple[int, ...]

    def corners(self, pids: IntArray) -> IntArray:
        """First index per task and dimension: (n, rank)."""
        result = np.zeros((len(pids), len(self.extents)), np.int64)
        for dim, start in enumerate(self.starts):
            result[:, dim] = start.const
            for axis, factor in start.terms.items():
                assert isinstance(axis, int)  # forms over the axes of the pid
                result[:, dim] += factor * pids[:, axis]
        return result


class Footprint(Frozen):
    """Accesses to one tensor argument of a task class; `box` is None if it is not used.

    Attributes:
        overwrites: whether every element of the box is written for certain, and none is read before.
    """

    box: Box | None
    reads: bool
    writes: bool
    overwrites: bool


class Part(Frozen):
    """The part of a tensor that tasks of a class use.

    Attributes:
        origin: where the tile begins in the tensor, per dimension; forms over the pid's axes.
    """

    port: TensorPort
    footprint: Footprint
    origin: tuple[IndexSum, ...]

    @property
    def box(self) -> Box:
        assert self.footprint.box is not None
        return self.footprint.box

    @property
    def copies_in(self) -> bool:
        return self.footprint.reads or (self.footprint.writes and not self.footprint.overwrites)

    @property
    def copies_out(self) -> bool:
        return self.footprint.writes

    @property
    def corner(self) -> tuple[IndexSum, ...]:
        """Start of the box in the tensor, per dimension."""
        return tuple(a + b for a, b in zip(self.origin, self.box.starts, strict=True))


Users: TypeAlias = tuple[str, IntArray, Part]
"""Tasks of a kernel that use a part of a tensor: the kernel's name, their pids (n, mesh rank), and the part."""


def parts_of(task_class: TaskClass, members: IntArray) -> tuple[Part, ...]:
    """The parts of tensors that tasks of a class use, by argument.

    Raises:
        AlloDseError: for tiles that do not follow the process id linearly.
    """
    ports = sorted(task_class.tensor_ports, key=lambda port: port.arg)
    marks = footprints(read_nest(task_class.body.mlir), len(ports), members)
    return tuple(Part(port, mark, _origin(port)) for port, mark in zip(ports, marks, strict=True))


def _origin(port: TensorPort) -> tuple[IndexSum, ...]:
    if not port.tile.grid:
        return ()
    if not port.tile.is_affine:
        raise AlloDseError(f"HLS C++: the tiles of {port.tensor.name} do not follow the process id linearly")
    return tuple(
        IndexSum(offset * extent, {axis: factor * extent for axis, factor in enumerate(row) if factor})
        for row, offset, extent in zip(port.tile.matrix, port.tile.offset, port.tile_shape, strict=True)
    )


# Tensors that tasks access in DRAM themselves, since they cannot have parts of their own.


@lru_cache(maxsize=256)
def contested(program: CompiledProgram) -> frozenset[str]:
    """The tensors of which a task accesses elements that another task writes, or itself as another argument."""
    tasks, written = Counter[str](), set[str]()
    for task_class, own, _ in program.tasks_by_class:
        tasks.update(dict.fromkeys((port.tensor.name for port in task_class.used_ports), len(own)))
        written.update(port.tensor.name for port in task_class.used_ports if port.writes)
    users = defaultdict[str, list[Users]](list)
    for task_class, own, pids in program.tasks_by_class:
        if len(own) and any(
            tasks[port.tensor.name] > 1 for port in task_class.used_ports if port.tensor.name in written
        ):
            for part in parts_of(task_class, pids):
                users[part.port.tensor.name].append((task_class.kernel, pids, part))
    return frozenset(tensor.name for tensor in program.tensors if tensor.shape and overlap(users[tensor.name]))


@lru_cache(maxsize=256)
def partly_written(program: CompiledProgram) -> frozenset[str]:
    """The tensors whose tiles a task may write in part and never reads: it loads them first, so that the rest stays."""
    found = set[str]()
    for task_class, own, pids in program.tasks_by_class:
        if len(own):
            with suppress(AlloDseError):  # tiles that C++ cannot copy
                parts = parts_of(task_class, pids)
                found.update(one.port.tensor.name for one in parts if one.copies_in and not one.footprint.reads)
    return frozenset(found) - contested(program)


def overlap(users: Sequence[Users]) -> bool:
    """Return whether a task accesses an element that another task writes, or that it writes itself as another
    argument."""
    if not any(part.footprint.writes for *_, part in users):
        return False
    numbers: dict[tuple[str | int, ...], int] = {}
    boxes = []
    for kernel, members, part in users:
        if part.footprint.box is not None:
            corners = Box(part.corner, part.box.extents).corners(members)
            for pid, corner in zip(members.tolist(), corners.tolist(), strict=True):
                number = numbers.setdefault((kernel, part.port.arg, *pid), len(numbers))
                box = tuple(slice(c, c + n) for c, n in zip(corner, part.box.extents, strict=True))
                boxes.append((not part.footprint.writes, number, box))
    owner = np.full(users[0][2].port.tensor.shape, -1, np.int64)
    for only_reads, number, box in sorted(boxes, key=lambda one: one[:2]):  # the written ones first
        if not np.isin(owner[box], (-1, number)).all():
            return True
        if not only_reads:
            owner[box] = number
    return False


_Range: TypeAlias = tuple[IndexSum, IndexSum]
"""The least and the greatest value of an index."""


class _Access(Frozen):
    ranges: tuple[_Range | None, ...]
    write: bool
    certain: bool


def footprints(nest: Nest, count: int, members: IntArray) -> list[Footprint]:
    """The footprint of each of the first `count` arrays among a task class's arguments.

    Args:
        members: the pids of the tasks of the class, (n, mesh rank).
    """
    found = defaultdict[str, list[_Access]](list)
    asked = {id(op) for node in walk(nest.body) if isinstance(node, Branch) for op in ops_of((node,))}
    for op, loops in with_loops(nest.body):
        if isinstance(op, Op) and op.access is not None:
            found[op.access.array].append(_access(op, op.access, loops, nest.pids, id(op) not in asked))
    arguments = list(nest.arrays.values())[:count]  # which are declared first
    for array in arguments:
        if array.name in nest.escaped:
            found[array.name] += [_Access((None,) * len(array.shape), write, False) for write in (False, True)]
    return [_footprint(found[array.name], array.shape, members) for array in arguments]


def _access(op: Op, access: Access, loops: Sequence[Loop], pids: Ints, always: bool) -> _Access:
    ranges: list[_Range | None] = []
    for form, extent in zip(access.index, op.block or (1,) * len(access.index), strict=True):
        low, high = (None if form is None else _extreme(form, loops, pids, most=most) for most in (False, True))
        ranges.append(None if low is None or high is None else (low, high + (extent - 1)))
    # A block is written as a whole; of elements, each dimension follows a loop of its own.
    fixed = not op.block or all(form is not None and form.variables <= set(pids) for form in access.index)
    certain = access.write and always and fixed and _dense(access.index, loops, pids)
    return _Access(tuple(ranges), access.write, certain)


def _extreme(form: Linear, loops: Sequence[Loop], pids: Ints, *, most: bool) -> IndexSum | None:
    """Return the least or greatest value of an index over all iterations, as a form over the pid's axes."""
    known = ((loop.variable, _bounds(loop)) for loop in reversed(loops))
    form = form.extreme(((variable, bounds) for variable, bounds in known if bounds is not None), most=most)
    if form.derived or not form.variables <= set(pids):
        return None
    return IndexSum(form.constant, {pids.index(variable): factor for variable, factor in form.terms})


def _bounds(loop: Loop) -> tuple[Linear, Linear] | None:
    """The first and last value of a loop's variable."""
    if loop.lower is None or loop.upper is None or loop.step <= 0:
        return None
    length = loop.upper + loop.lower.scaled(-1)
    if not length.is_constant:
        return loop.lower, loop.upper + Linear((), -1)
    last = (length.constant - 1) // loop.step * loop.step
    return (loop.lower, loop.lower + Linear((), last)) if length.constant > 0 else None


def _dense(forms: Iterable[Linear | None], loops: Sequence[Loop], pids: Ints) -> bool:
    """Return whether a store reaches every element of its box: each dimension follows its own loop, in steps of 1."""
    used, own = set[int](), {loop.variable for loop in loops}
    for form in forms:
        moving = [term for term in form.terms if term[0] not in pids] if form is not None and not form.derived else None
        if moving is None or len(moving) > 1 or any(v in used or v not in own or abs(f) != 1 for v, f in moving):
            return False
        used.update(v for v, _ in moving)
    return all(
        (trips := loop.trips) is not None
        and trips.is_constant
        and trips.constant > 0
        and loop.lower is not None
        and loop.lower.variables <= set(pids)
        and (loop.step == 1 or loop.variable not in used)
        for loop in loops
    )


def _footprint(accesses: list[_Access], extents: tuple[int, ...], members: IntArray) -> Footprint:
    if not accesses:
        return Footprint(None, False, False, False)
    reads, writes = any(not a.write for a in accesses), any(a.write for a in accesses)
    sides = [_side([a.ranges[dim] for a in accesses], extent, members) for dim, extent in enumerate(extents)]
    box = Box(tuple(start for start, _ in sides), tuple(extent for _, extent in sides))
    whole = [(start, start + (extent - 1)) for start, extent in zip(box.starts, box.extents, strict=True)]
    sure = not reads and any(a.certain and list(a.ranges) == whole for a in accesses)
    return Footprint(box, reads, writes, sure)


def _side(ranges: list[_Range | None], extent: int, members: IntArray) -> tuple[IndexSum, int]:
    """Return the smallest range that holds all ranges; the whole side if one is unknown or out of bounds."""
    everything = IndexSum(), extent
    if any(r is None for r in ranges):
        return everything
    known = [r for r in ranges if r is not None]
    low, high = known[0]
    for first, last in known[1:]:
        down, up = first - low, last - high
        # Forms that differ by a constant are in one order for every pid; others cannot be compared.
        if not (down.is_const and up.is_const):
            return everything
        low, high = (first if down.const < 0 else low), (last if up.const > 0 else high)
    length = high - low
    if not length.is_const or length.const < 0:
        return everything
    firsts = Box((low,), (1,)).corners(members)[:, 0]
    if firsts.min() < 0 or firsts.max() + length.const >= extent:
        return everything
    return low, length.const + 1
