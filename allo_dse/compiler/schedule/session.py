"""A program while a schedule rewrites it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partialmethod
from itertools import groupby, pairwise
from typing import Any

from allo_dse.common.errors import ProgramError, warn
from allo_dse.common.mlir.bindings import Operation, Value, ir, memref, nested_ops
from allo_dse.common.mlir.dialect import new_context
from allo_dse.common.records import Frozen, Ints, replace
from allo_dse.lang.region import Instance, Region
from allo_dse.lang.schedule import Array, Axis, Primitive

from ..compiler import compile_region
from ..ir.nest import LOOP, Node, loops_of
from ..program.compiled import DATAFLOW, STREAM, CompiledProgram, Directive
from ..program.tensors import IndexMap, TensorPort
from . import lookup
from .body import NAME, Body, around
from .lookup import Found
from .loops import compute_at, erase_unused, fuse, references, reorder, share_constants, split
from .memories import buffer_at, reshape, returned, reuse_at
from .mlir_text import PrintedModule, loop_directive, partition_directive
from .streams import check_fifo, constant_dims
from .unfold import copy_of, outline, unfold

# The primitive `to` along an axis: each copy passes elements on to the next, as in a systolic array.


class Reader(Frozen):
    """A copy of an unfolded nest, by its rounds, and how it uses an array, or an array of its own in its place."""

    place: Ints
    memory: Value
    loads: list[Operation]
    fill: Operation | None


def hand_on(body: Body, memories: Iterable[Value], axis: int, names: dict[str, str]) -> list[Value]:
    """Chain the copies along an axis that read the same elements; returns the FIFOs between them.

    before:  for k: a[k] = A[k];  for k: f(a[k]);  for k: g(a[k])
    after:   for k: a[k] = A[k];  for k: { f(a[k]); b[k] = a[k] };  for k: g(b[k])

    Nothing is done, and nothing returned, where copies write what others read: they hand it on themselves.
    """
    found = [reader for memory in memories for reader in _readers(body, memory)]
    made = []
    for _, lane in groupby(sorted(found, key=lambda r: (_others(r, axis), r.place[axis])), lambda r: _others(r, axis)):
        readers = list(lane)
        source = readers[0].memory
        if readers[0].fill is None:
            made.append(source)
        for one, other in pairwise(readers):
            if other.fill is None:
                target = copy_of(source.owner, names)
                for load in other.loads:
                    load.operands[0] = target
            else:
                target = other.memory
                _check_same(body, readers[0], other)
                other.fill.erase()
            for load in one.loads:
                with _behind(load):
                    memref.StoreOp(load.results[0], target, list(load.operands)[1:])
            made.append(target)
    return made


def branch(body: Body, memory: Value, reader: str, names: dict[str, str]) -> Value:
    """Give one of several nests that read an array its own memory; writes go to both.

    before:  for i: b[i] = A[i];  for i: C[i] = b[i];  for i: D[i] = b[i]
    after:   for i: { b[i] = A[i]; c[i] = A[i] };  for i: C[i] = c[i];  for i: D[i] = b[i]

    Args:
        reader: the nest, by its name, that of its function, or of an array that it writes.
    """
    if isinstance(memory, ir.BlockArgument):
        return memory
    users = [use.owner.operation for use in memory.uses]
    loads: dict[Operation, list[Operation]] = {}
    for op in users:
        if op.name == "memref.load":
            loads.setdefault([op, *around(op)][-2], []).append(op)
    meant = [nest for nest in loads if reader in _called(body, nest)]
    if len(loads) < 2 or len(meant) != 1:
        return memory
    made = copy_of(memory.owner, names)
    for op in users:
        if op.name == "memref.store":
            with _behind(op):
                memref.StoreOp(op.operands[0], made, list(op.operands)[2:])
    for op in loads[meant[0]]:
        op.operands[0] = made
    return made


def _behind(op: Operation) -> ir.InsertionPoint:
    point: ir.InsertionPoint = ir.InsertionPoint.after(op)  # type: ignore[attr-defined]  # newer than its stubs
    return point


def _called(body: Body, nest: Operation) -> set[str]:
    """Names of a nest: its own, its function's, and those of the arrays that it writes."""
    found = set()
    for op in nested_ops(nest):
        if LOOP in op.attributes:
            found |= {body.source(op).band, body.source(op).function}
        elif op.name == "memref.store":
            found.add(body.name_of(_root(op.operands[1])))
    return found


def _others(reader: Reader, axis: int) -> Ints:
    """Return a reader's position without one axis: it is equal for all copies in a line along that axis."""
    return reader.place[:axis] + reader.place[axis + 1 :]


def _readers(body: Body, memory: Value) -> Iterator[Reader]:
    """The copies that read an array, if they do nothing else with it but fill it where it is their own."""
    if isinstance(memory, ir.BlockArgument):
        return
    loads: dict[int, list[Operation]] = {}
    fills: dict[int, Operation] = {}
    for use in memory.uses:
        op = use.owner.operation
        copy = _copy(body, op)
        if op.name == "memref.load" and copy is not None:
            loads.setdefault(body.source(copy).call, []).append(op)
        elif op.name == "memref.store" and copy is not None and list(op.operands)[1] == memory:
            fills[body.source(copy).call] = copy
        elif op.name not in ("memref.dealloc", "memref.store"):
            return
    if fills and (len(loads) != 1 or fills.keys() != loads.keys()):
        return
    for call, ops in loads.items():
        yield Reader(body.copies[call], memory, ops[::-1], fills.get(call))


def _copy(body: Body, op: Operation) -> Operation | None:
    """The outermost loop around an operation that belongs to a copy."""
    copies = [loop for loop in around(op) if LOOP in loop.attributes and body.source(loop).call in body.copies]
    return copies[-1] if copies else None


def _check_same(body: Body, first: Reader, other: Reader) -> None:
    """Refuse two copies that fill their arrays with different elements."""
    assert first.fill is not None
    assert other.fill is not None
    name = body.name_of(first.memory)
    if not _same_op(first.fill, other.fill, {first.memory: other.memory}):
        raise ProgramError(f"to: the copies along this axis do not fill `{name}` alike", hint="choose the other axis")
    written = {_root(op.operands[1]) for op in nested_ops(body.function) if op.name == "memref.store"}
    for op in nested_ops(first.fill):
        if op.name == "memref.load" and _root(op.operands[0]) in written:
            raise ProgramError(f"to: what `{name}` is filled from is written, and may differ from copy to copy")


def _root(array: Value) -> Value:
    while not isinstance(array, ir.BlockArgument) and array.owner.name in ("memref.subview", "memref.cast"):
        array = array.owner.operands[0]
    return array


def _same_op(one: Operation, other: Operation, pairs: dict[Value, Value]) -> bool:
    """Return whether two operations are equal, with the second value of each pair in place of the first."""
    attributes = ({str(a): str(op.attributes[a]) for a in op.attributes if str(a) != LOOP} for op in (one, other))
    if one.name != other.name or next(attributes) != next(attributes) or len(one.regions) != len(other.regions):
        return False
    operands = list(one.operands), list(other.operands)
    if len(operands[0]) != len(operands[1]) or any(pairs.get(a, a) != b for a, b in zip(*operands, strict=True)):
        return False
    for mine, theirs in zip(one.regions, other.regions, strict=True):
        for left, right in zip(mine.blocks, theirs.blocks, strict=True):
            pairs.update(zip(left.arguments, right.arguments, strict=True))
            ops = [[op.operation for op in block.operations] for block in (left, right)]
            if len(ops[0]) != len(ops[1]) or not all(_same_op(a, b, pairs) for a, b in zip(*ops, strict=True)):
                return False
    pairs.update(zip(one.results, other.results, strict=True))
    return True


class Session:
    """A compiled program and the bodies of its task classes, as far as they have been rewritten.

    Attributes:
        top: the name of the outermost function or region.
    """

    def __init__(self, function: Region | Instance) -> None:
        self._compiled = compile_region(function)
        self.top = self._compiled.name
        self._applied: list[Primitive] = []
        self._begin()

    def _begin(self) -> None:
        context = new_context()
        self._bodies = [
            Body.of(task_class, context) for kernel in self._compiled.kernels for task_class in kernel.classes
        ]
        self._directives: list[Directive] = []
        self._unfolded: set[tuple[object, ...]] = set()
        self._shapes: dict[str, Ints] = {}
        for body in self._bodies:
            lookup.name_bands(body)
            _tell_apart(body)
            for loop in body.loops():
                for kind, number in body.source(loop).hints:
                    options = {"initiation_interval": number} if kind == "pipeline" else {"factor": number}
                    self._add(loop_directive(kind, Found(body, loop), options))

    # -- queries -----------------------------------------------------------------------------------------------------

    @property
    def program(self) -> CompiledProgram:
        """The program with the schedule applied."""
        done = {id(body.task_class): body.finished() for body in self._bodies}
        kernels = tuple(
            replace(kernel, classes=tuple(done[id(task_class)] for task_class in kernel.classes))
            for kernel in self._compiled.kernels
        )
        program = replace(self._compiled, kernels=kernels, schedule=(*self._compiled.schedule, *self._directives))
        return _with_shapes(program, self._shapes)

    @property
    def module(self) -> PrintedModule:
        """The program as MLIR."""
        return PrintedModule(self.program)

    def loops(self, function: str) -> dict[str, list[str]]:
        """The nests of a function and the names of their loops."""
        found: dict[str, list[str]] = {}
        for body in self._bodies:
            for loop in body.loops():
                source = body.source(loop)
                names = found.setdefault(source.band, []) if source.function == function else []
                if source.name not in names:
                    names.append(source.name)
        if not found and function not in lookup.functions(self._bodies):
            raise ProgramError(f"there is no function `{function}`", hint="helper functions are known by their names")
        return found

    def has_array(self, name: str) -> bool:
        return any((function, own) == (self.top, name) for body in self._bodies for function, _, own in body.arrays)

    def apply(self, primitive: Primitive) -> Any:
        """Carry out a primitive.

        Raises:
            ProgramError: where it cannot be; the program is then as it was.
        """
        try:
            found = self._carry_out(primitive)
        except ProgramError:
            self._begin()
            for earlier in self._applied:
                self._carry_out(earlier)
            raise
        self._applied.append(primitive)
        return found

    def _carry_out(self, primitive: Primitive) -> Any:
        with self._bodies[0].module.context, ir.Location.unknown():
            carry_out = getattr(self, f"_apply_{primitive.name}", None)
            if carry_out is None:
                raise ProgramError(f"{primitive.name}: there is no such primitive yet")
            found = carry_out(*primitive.args, **dict(primitive.options))
            for body in self._bodies:
                share_constants(body.function)
                erase_unused(body.block)
        return found

    # -- primitives --------------------------------------------------------------------------------------------------

    def _find(self, axis: object) -> list[Found]:
        return lookup.loops(self._bodies, axis, self.top)

    def _apply_split(self, axis: object, factor: object) -> None:
        if isinstance(factor, bool) or not isinstance(factor, int) or factor < 1:
            raise ProgramError(f"split: the factor must be a positive integer, not {factor!r}")
        for found in self._find(axis):
            split(found, factor)

    def _apply_reorder(self, *axes: object) -> None:
        for chain in self._together(axes):
            reorder(chain[0].body, [one.op for one in chain])

    def _apply_fuse(self, *axes: object) -> Axis:
        made = []
        for chain in self._together(axes):
            source = chain[0].body.source(chain[0].op)
            made.append(Axis(source.function, source.band, fuse(chain)))
        return made[-1]

    def _apply_tile(self, *given: object) -> None:
        axes, factors = given[: len(given) // 2], given[len(given) // 2 :]
        if not axes or len(axes) != len(factors):
            raise ProgramError("tile takes one factor per loop", hint='s.tile("i", "j", 8, 4)')
        for axis, factor in zip(axes, factors, strict=True):
            self._apply_split(axis, factor)
        self._apply_reorder(*(_part(axis, part) for part in ("outer", "inner") for axis in axes))

    def _apply_compute_at(self, *axes: object) -> None:
        for producer, target in self._together(axes):
            compute_at(producer, target)

    def _apply_reshape(self, target: object, shape: Sequence[int]) -> None:
        for body, value in lookup.arrays(self._bodies, target, self.top):
            name = lookup.array(target, self.top).name
            for array in (*returned(body, value), value):
                if isinstance(array, ir.BlockArgument):
                    if body.task_class.kernel != self.top:
                        raise ProgramError(f"`{name}` is an argument of a kernel: the region has its shape")
                    self._shapes[body.name_of(array)] = tuple(shape)
                reshape(body, array, name, shape)

    def _beside(self, make: Callable[[Found, Value, str], str], target: object, axis: object) -> Array:
        """A small memory beside an array, for each call of the function of the loop; its name in that function."""
        array = lookup.array(target, self.top)
        made = []
        for found in self._find(axis):
            source = found.body.source(found.op)
            value = lookup.array_of(found.body, array, source.call)
            made.append(Array(source.function, make(found, value, array.name)))
        return made[0]

    _apply_buffer_at = partialmethod(_beside, buffer_at)
    _apply_reuse_at = partialmethod(_beside, reuse_at)

    def _together(self, axes: Sequence[object]) -> list[list[Found]]:
        """The loops of several names, for each call of the functions that they stand in."""
        if not axes:
            raise ProgramError("no loops are named", hint='s.reorder("j", "i")')
        found = [self._find(axis) for axis in axes]
        if len({len(one) for one in found}) != 1:
            raise ProgramError("these loops belong to functions that are not called equally often")
        return [list(one) for one in zip(*found, strict=True)]

    def _directive(self, kind: str, axis: object, **options: object) -> None:
        for found in lookup.loops(self._bodies, axis, self.top, several=True):
            self._add(loop_directive(kind, found, options))

    _apply_pipeline = partialmethod(_directive, "pipeline")
    _apply_unroll = partialmethod(_directive, "unroll")
    _apply_parallel = partialmethod(_directive, "parallel")

    def _apply_partition(self, target: object, **options: object) -> None:
        for body, array in lookup.arrays(self._bodies, target, self.top):
            self._add(partition_directive(body, array, str(target), options))

    def _apply_unfold(self, band_name: object, axes: Sequence[int]) -> list[int]:
        if (band_name, tuple(axes)) in self._unfolded:  # of a function that several schedules compose
            return list(axes)
        self._unfolded.add((band_name, tuple(axes)))
        for nest in lookup.band(self._bodies, str(band_name), self.top):
            if not axes or not all(isinstance(axis, int) and 0 <= axis < len(nest) for axis in axes):
                raise ProgramError(f"unfold: `{band_name}` has loops 0 to {len(nest) - 1}, not {list(axes)}")
            for name, first in unfold(nest, axes).items():  # directives of an array also hold for its copy
                self._directives += [replace(said, name=name) for said in self._directives if said.name == first]
        return list(axes)

    def _apply_outline(self, axis: object, function: str | None) -> str:
        (found,) = self._find(axis)[:1]
        name = function or f"outlined_{found.name}"
        if name in lookup.functions(self._bodies):
            raise ProgramError(f"outline: there is a function `{name}`", hint="give it another name")
        for found in self._find(axis):
            outline(found, name)
        return name

    def _apply_to(self, target: object, dst: object, axis: object, depth: object) -> None:
        if isinstance(depth, bool) or not isinstance(depth, int):
            raise ProgramError(f"to({target}): depth must be an integer, not {depth!r}")
        arrays: dict[Body, list[Value]] = {}
        for body, array in lookup.arrays(self._bodies, target, self.top):
            own = arrays.setdefault(body, [])
            own += [array] if array not in own else []
        for body, own in arrays.items():
            kernel = body.task_class.kernel
            if isinstance(axis, int) and body.copies:
                own = hand_on(body, own, axis, body.names()) or own
            elif axis is None:
                own = [branch(body, array, str(dst), body.names()) for array in own]
            for name, dims in self._check_fifos(body, own, split=axis is not None):
                banks = [{"dim": dim + 1, "partition_type": "complete"} for dim in dims]
                self._directives += [Directive("partition", kernel, name, bank) for bank in banks]
                self._add(Directive(STREAM, kernel, name, {"to": str(dst), "depth": depth}))
            if axis is not None or lookup.array(target, self.top).function == self.top:
                self._add(Directive(DATAFLOW, kernel, self.top))  # nests that pass on a stream run at once

    def _check_fifos(self, body: Body, arrays: Sequence[Value], *, split: bool) -> Iterator[tuple[str, Ints]]:
        """Arrays, and the dimensions along which each is several FIFOs, after it is checked that they can be."""
        nest = body.nest()
        users: dict[str, list[Node]] = {}
        for node in nest.body:
            for name in {reference.access.array for reference in references([node])}:
                users.setdefault(name, []).append(node)
        for array in arrays:
            name, shape = body.name_of(array), ir.MemRefType(array.type).shape
            if isinstance(array, ir.BlockArgument):  # the caller knows the order of arguments
                yield name, ()
                continue
            used = users.get(name, [])
            copies = [loop for loop in loops_of(used) if body.is_copy(loop)] if split else []
            dims = constant_dims(copies, name, shape)
            if nest.unsupported is not None or not check_fifo(used, name, shape, dims):
                warn(f"to: the order in which elements of `{name}` are passed on could not be checked")
            yield name, dims

    def _add(self, directive: Directive) -> None:
        if directive not in self._directives:
            self._directives.append(directive)

    def _apply_dataflow(self, axis: object) -> None:
        if isinstance(axis, str) and axis in lookup.functions(self._bodies):
            self._add(Directive(DATAFLOW, self._compiled.kernels[0].name, axis))
        else:
            self._directive(DATAFLOW, axis)

    def _apply_inline(self, function: str | None = None) -> None:
        known = lookup.functions(self._bodies)
        if function is not None and function not in known:
            raise ProgramError(f"there is no function `{function}`", hint=f"known: {', '.join(known)}")


def _with_shapes(program: CompiledProgram, shapes: Mapping[str, Ints]) -> CompiledProgram:
    """The program of a function, some of its arguments of other shapes."""
    changed = {one: replace(one, shape=shapes[one.name]) for one in program.tensors if one.name in shapes}
    if not changed:
        return program

    def port(old: TensorPort) -> TensorPort:
        shape = changed.get(old.tensor, old.tensor).shape
        rank = len(shape)
        tile = IndexMap((1,) * rank, ((0,),) * rank, (0,) * rank)
        tensor = replace(old.tensor, shape=shape)
        return replace(old, tensor=tensor, layout=(None,) * rank, tile_shape=shape, tile=tile)

    (kernel,) = program.kernels
    classes = tuple(replace(one, tensor_ports=tuple(map(port, one.tensor_ports))) for one in kernel.classes)
    kernel = replace(kernel, classes=classes, args=tuple(changed.get(one, one) for one in kernel.args))
    return replace(program, kernels=(kernel,), tensors=tuple(changed.get(one, one) for one in program.tensors))


def _part(axis: object, part: str) -> object:
    """The outer or inner loop of one that has been split."""
    if isinstance(axis, Axis):
        return Axis(axis.function, axis.band, f"{axis.name}.{part}")
    return f"{axis}.{part}"


def _tell_apart(body: Body) -> None:
    """Give local arrays of one name different ones."""
    taken = set(body.parameters)
    seen: set[Value] = set()
    for (_, _, name), value in body.arrays.items():
        if isinstance(value, ir.BlockArgument) or value in seen:
            continue
        seen.add(value)
        unique, number = name, 1
        while unique in taken:
            number += 1
            unique = f"{name}_{number}"
        taken.add(unique)
        with body.module.context:
            value.owner.attributes[NAME] = ir.StringAttr.get(unique)
