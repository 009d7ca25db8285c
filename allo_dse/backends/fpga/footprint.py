"""Part of its tile that a task class reads and writes: a box whose position is a linear function of the pid."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np

from allo_dse.common.errors import AlloDseError
from allo_dse.common.mlir.bindings import ir
from allo_dse.common.mlir.dialect import text_context
from allo_dse.common.mlir.jit import run_passes
from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass
from allo_dse.compiler.program.tensors import IntArray, TensorPort

from .linear import Atom, IndexSum, linear_forms


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


_PASSES = "builtin.module(func.func(convert-linalg-to-loops,lower-affine),canonicalize,cse)"


def lowered(module: ir.Module) -> ir.Operation:
    """Lower a module to loops and scalar operations; returns its function."""
    run_passes(module, _PASSES)
    return next(op for op in module.body.operations if op.operation.name == "func.func").operation


def parts_of(task_class: TaskClass, function: ir.Operation, members: IntArray) -> tuple[Part, ...]:
    """The parts of tensors that tasks of a class use, by argument.

    Raises:
        AlloDseError: for tiles that do not follow the process id linearly.
    """
    arguments, rank = list(function.regions[0].blocks[0].arguments), members.shape[1]
    ports = sorted(task_class.tensor_ports, key=lambda port: port.arg)
    marks = footprints(function, arguments[rank : rank + len(ports)], arguments[:rank], members)
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
    tasks = Counter[str]()
    for task_class, own, _ in program.tasks_by_class:
        tasks.update(dict.fromkeys((port.tensor.name for port in task_class.used_ports), len(own)))
    users = defaultdict[str, list[Users]](list)
    with text_context():
        for task_class, own, pids in program.tasks_by_class:
            if len(own) and any(tasks[port.tensor.name] > 1 for port in task_class.used_ports):
                module = ir.Module.parse(task_class.body.mlir)
                for part in parts_of(task_class, lowered(module), pids):
                    users[part.port.tensor.name].append((task_class.kernel, pids, part))
    return frozenset(tensor.name for tensor in program.tensors if tensor.shape and overlap(users[tensor.name]))


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


class _Range(Frozen):
    low: IndexSum
    high: IndexSum  # inclusive


@dataclass
class _Access:
    ranges: tuple[_Range | None, ...]
    write: bool
    certain: bool


def footprints(
    function: ir.Operation, tensors: Sequence[ir.Value], pids: Sequence[ir.Value], members: IntArray
) -> list[Footprint]:
    """The footprint of each tensor argument.

    Args:
        tensors, pids: those arguments of the function.
        members: the pids of the tasks of the class, (n, mesh rank).
    """
    finder = _Finder(linear_forms(function), {pid: axis for axis, pid in enumerate(pids)})
    result = []
    for tensor in tensors:
        accesses = finder.accesses(tensor)
        extents = tuple(ir.MemRefType(tensor.type).shape)
        result.append(_footprint(accesses, extents, members))
    return result


def _footprint(accesses: list[_Access], extents: tuple[int, ...], members: IntArray) -> Footprint:
    if not accesses:
        return Footprint(None, False, False, False)
    reads, writes = any(not a.write for a in accesses), any(a.write for a in accesses)
    sides = [_side([a.ranges[dim] for a in accesses], extent, members) for dim, extent in enumerate(extents)]
    box = Box(tuple(start for start, _ in sides), tuple(extent for _, extent in sides))
    sure = not reads and any(a.certain and _covers(a, box) for a in accesses)
    return Footprint(box, reads, writes, sure)


def _side(ranges: list[_Range | None], extent: int, members: IntArray) -> tuple[IndexSum, int]:
    """Return the smallest range that holds all ranges; the whole side if one is unknown or out of bounds."""
    everything = IndexSum(), extent
    if any(r is None for r in ranges):
        return everything
    known = [r for r in ranges if r is not None]
    low, high = known[0].low, known[0].high
    for other in known[1:]:
        down, up = other.low - low, other.high - high
        # Forms that differ by a constant are in one order for every pid; others cannot be compared.
        if not (down.is_const and up.is_const):
            return everything
        low, high = (other.low if down.const < 0 else low), (other.high if up.const > 0 else high)
    length = high - low
    if not length.is_const or length.const < 0:
        return everything
    firsts = Box((low,), (1,)).corners(members)[:, 0]
    if firsts.min() < 0 or firsts.max() + length.const >= extent:
        return everything
    return low, length.const + 1


def _covers(access: _Access, box: Box) -> bool:
    return all(
        r is not None and r.low == start and (r.high - r.low) == IndexSum(extent - 1)
        for r, start, extent in zip(access.ranges, box.starts, box.extents, strict=True)
    )


class _Finder:
    """Accesses of a function's tensors."""

    def __init__(self, forms: Mapping[ir.Value, IndexSum], axes: Mapping[Atom, int]) -> None:
        self.forms = forms
        self.axes = axes

    def accesses(self, memref: ir.Value) -> list[_Access]:
        rank = ir.MemRefType(memref.type).rank
        return self._of(memref, [(IndexSum(), 1)] * rank, list(range(rank)))

    def _of(self, memref: ir.Value, place: list[tuple[IndexSum, int]], dims: list[int]) -> list[_Access]:
        """Return the accesses of a view; `place` is its place in the tensor, `dims` maps its dimensions to the
        tensor's.
        """
        found = []
        for use in memref.uses:
            op = use.owner.operation
            if op.name == "memref.load":
                found.append(self._element(op, list(op.operands)[1:], place, dims, False))
            elif op.name == "memref.store":
                found.append(self._element(op, list(op.operands)[2:], place, dims, True))
            elif op.name == "memref.cast":
                found += self._of(op.results[0], place, dims)
            elif op.name == "memref.subview":
                found += self._part(op, place, dims)
            elif op.name.startswith("df."):
                found.append(self._block(op, place, dims, ir.MemRefType(memref.type).shape))
            elif op.name != "memref.dealloc":
                unknown = (None,) * len(place)
                found += [_Access(unknown, write, False) for write in (False, True)]
        return found

    def _part(self, op: ir.Operation, place: list[tuple[IndexSum, int]], dims: list[int]) -> list[_Access]:
        inner, parts = list(place), subview_parts(op, self.forms.__getitem__)
        for dim, (start, step, _) in zip(dims, parts, strict=True):
            inner[dim] = (place[dim][0] + start * place[dim][1], place[dim][1] * step)
        own = [dim for dim, (_, _, kept) in zip(dims, parts, strict=True) if kept is not None]
        return self._of(op.results[0], inner, own)

    def _element(
        self,
        op: ir.Operation,
        indices: list[ir.Value],
        place: list[tuple[IndexSum, int]],
        dims: list[int],
        write: bool,
    ) -> _Access:
        forms = [start for start, _ in place]
        for dim, index in zip(dims, indices, strict=True):
            forms[dim] = forms[dim] + self.forms[index] * place[dim][1]
        loops, always = _loops(op)
        ranges = tuple(self._range(form, loops) for form in forms)
        return _Access(ranges, write, write and always and self._dense(forms, loops))

    def _block(
        self, op: ir.Operation, place: list[tuple[IndexSum, int]], dims: list[int], shape: Sequence[int]
    ) -> _Access:
        """A block that is put from a tile, or received into one."""
        loops, always = _loops(op)
        ranges: list[_Range | None] = []
        for dim, (start, step) in enumerate(place):
            side = self._range(start, loops)
            extent = shape[dims.index(dim)] if dim in dims else 1
            ranges.append(None if side is None else _Range(side.low, side.high + (extent - 1) * step))
        fixed = all(not set(start.terms) - set(self.axes) for start, _ in place)
        unit = all(step == 1 for _, step in place)
        certain = op.name == "df.get_block" and always and fixed and unit and self._dense([], loops)
        return _Access(tuple(ranges), "get_block" in op.name, certain)

    def _range(self, form: IndexSum, loops: Mapping[Atom, ir.Operation]) -> _Range | None:
        """The values of an index over all iterations."""
        low = high = form
        # A linear form is least and greatest where each variable is at its first or last value, by the sign of its
        # factor. The bounds of a loop may name variables of loops around it: one step for each level replaces all.
        for _ in range(len(loops) + 1):
            if not (set(low.terms) | set(high.terms)) - set(self.axes):
                named: dict[Atom, IndexSum] = {pid: IndexSum(0, {axis: 1}) for pid, axis in self.axes.items()}
                return _Range(low.replaced(named), high.replaced(named))
            bounds = {v: b for v, loop in loops.items() if (b := self._bounds(loop)) is not None}
            low = low.replaced({v: bounds[v][low.terms[v] < 0] for v in low.terms if v in bounds})
            high = high.replaced({v: bounds[v][high.terms[v] > 0] for v in high.terms if v in bounds})
        return None

    def _bounds(self, loop: ir.Operation) -> tuple[IndexSum, IndexSum] | None:
        """The first and last value of a loop's variable."""
        low, high, step = (self.forms[operand] for operand in list(loop.operands)[:3])
        if not step.is_const:
            return None
        length = high - low
        if length.is_const:
            return (low, low + (length.const - 1) // step.const * step.const) if length.const > 0 else None
        return low, high - 1

    def _dense(self, forms: list[IndexSum], loops: Mapping[Atom, ir.Operation]) -> bool:
        """Return whether a store reaches every element of its box: each dimension follows its own loop, in steps of
        1."""
        used: set[Atom] = set()
        for form in forms:
            moving = [v for v in form.terms if v not in self.axes]
            if len(moving) > 1 or any(v in used or v not in loops or abs(form.terms[v]) != 1 for v in moving):
                return False
            used.update(moving)
        for variable, loop in loops.items():
            low, high, step = (self.forms[operand] for operand in list(loop.operands)[:3])
            runs = (high - low).is_const and (high - low).const > 0 and not set(low.terms) - set(self.axes)
            if not runs or (variable in used and step != IndexSum(1)):
                return False
        return True


def subview_parts(op: ir.Operation, form: Callable[[ir.Value], IndexSum]) -> list[tuple[IndexSum, int, int | None]]:
    """Return begin, step, and dimension in the result for each source dimension of a `memref.subview`."""
    dynamic = ir.ShapedType.get_dynamic_stride_or_offset()
    offsets, sizes, steps = (
        list(ir.DenseI64ArrayAttr(op.attributes[name])) for name in ("static_offsets", "static_sizes", "static_strides")
    )
    operands = iter(list(op.operands)[1:])
    dropped = len(sizes) - ir.MemRefType(op.results[0].type).rank
    parts: list[tuple[IndexSum, int, int | None]] = []
    kept = 0
    for offset, size, step in zip(offsets, sizes, steps, strict=True):
        start = form(next(operands)) if offset == dynamic else IndexSum(offset)
        drop = dropped > 0 and size == 1  # any extent of one may be dropped: its index is 0
        parts.append((start, step, None if drop else kept))
        dropped, kept = dropped - drop, kept + (not drop)
    return parts


def _loops(op: ir.Operation) -> tuple[dict[Atom, ir.Operation], bool]:
    """The counted loops around an operation, by variable, and whether nothing else decides if it is carried out."""
    loops: dict[Atom, ir.Operation] = {}
    always, outer = True, op.parent
    while outer is not None and outer.name != "func.func":
        if outer.name == "scf.for":
            loops[outer.regions[0].blocks[0].arguments[0]] = outer
        else:
            always = False
        outer = outer.parent
    return loops, always
