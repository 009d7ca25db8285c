"""Indexing: elements and parts of tiles, streams of an array, constant arrays."""

from __future__ import annotations

import ast
import math
from collections.abc import Sequence
from types import FunctionType, NoneType
from typing import Any

import numpy as np

from allo_dse.common.records import Array, Frozen
from allo_dse.lang.region import Instance, Region
from allo_dse.lang.types import DType, UInt, index

from ..model import values as meta
from ..model.mlir_text import element_type, memref_type
from ..model.values import Buffer, Const, Meta, Record, Scalar, StreamRef, Tuple, Value, Variable, integer_of
from ..regions.task_state import Task
from .index_checks import Limit, bounds_of, check_attribute, form_of, is_flat, wrong_index
from .scalars import as_index, as_scalar, binary_as, convert, integer, shift

# Distances of index expressions that move with the same variables: `(i + 1) * 4` and `i * 4`.


# A factor per variable; the entry "" is the constant part.
Form = dict[str, int]


def constant_difference(task: Task, low: ast.expr | None, high: ast.expr) -> int | None:
    """`high - low` if it is the same for all tasks and all values of run-time variables, else None."""
    first, last = {} if low is None else _form(task, low), _form(task, high)
    if first is not None and last is not None:
        difference = _add(last, first, -1)
        constant = difference.pop("", 0)
        if not any(difference.values()):
            return constant
    values = [Const(0) if low is None else task.lower(low), task.lower(high)]
    begin, end = (meta.as_meta(value, len(task.kernel.mesh)) for value in values)
    if isinstance(begin, Meta) and isinstance(end, Meta):
        return int(task.uniform(meta.combine("-", end, begin)))
    return None


def _add(a: Form, b: Form, factor: int) -> Form:
    return {name: a.get(name, 0) + factor * b.get(name, 0) for name in a.keys() | b.keys()}


def _form(task: Task, node: ast.expr) -> Form | None:
    """An expression as a sum of variables and a constant."""
    match node:
        case ast.Constant(int(number)):
            return {"": number}
        case ast.Name(name):
            value = task.lower(node)
            if not isinstance(value, Const):
                return {name: 1}
            known = integer_of(value)
            return None if known is None else {"": known}
        case ast.BinOp(left, ast.Add() | ast.Sub() | ast.Mult() as op, right):
            one, other = _form(task, left), _form(task, right)
        case _:
            return None
    if one is None or other is None:
        return None
    if not isinstance(op, ast.Mult):
        return _add(one, other, 1 if isinstance(op, ast.Add) else -1)
    if not set(one) <= {""}:
        one, other = other, one
    return {name: factor * one.get("", 0) for name, factor in other.items()} if set(one) <= {""} else None


# Bits of integers, `x[3]` and `x[8:16]`, as values and as targets.


def _range(task: Task, node: ast.Subscript, dtype: DType) -> tuple[Value, int | Scalar]:
    """Return the bits that a subscript selects: the lowest bit, and their number.

    The number is a run-time `index` if it depends on data.
    """
    part, width = node.slice, 1
    if not isinstance(part, ast.Slice):
        low = task.lower(part)
        is_integer = low.dtype.is_integer if isinstance(low, Scalar) else form_of(low) is not None
        if not is_integer:
            task.fail(part, f"the position of a bit of {dtype} must be an integer")
    else:
        if part.step is not None:
            task.fail(part.step, "bits cannot be taken in steps")
        low = Const(0) if part.lower is None else task.lower(part.lower)
        high = part.upper or ast.copy_location(ast.Constant(dtype.bits), node)
        found = constant_difference(task, part.lower, high)
        if found is None:
            first, end = (as_index(task, v, node) for v in (low, task.lower(high)))
            return low, binary_as(task, "-", end, first, index)
        width = found
    known = task.uniform(low) if isinstance(low, Meta) else low.value if isinstance(low, Const) else None
    if width < 1 or (known is not None and not 0 <= known <= dtype.bits - width):
        task.fail(node, f"bits {known}:{(known or 0) + width} are out of range for {dtype}")
    return Const(known) if known is not None else low, width


def _mask(task: Task, width: int | Scalar, raw: DType) -> Scalar:
    """A mask of the selected number of bits, at least one, at the lower end."""
    if isinstance(width, int):
        return task.number((1 << width) - 1, raw)
    ones, bits = task.number(-1, raw), task.number(raw.bits, index)
    return shift(task, ">>", ones, binary_as(task, "-", bits, width, index))


def _check(task: Task, dtype: DType, node: ast.AST) -> None:
    if dtype.kind not in ("int", "uint"):
        task.fail(node, f"a value of type {dtype} cannot be indexed", "only tiles and the bits of integers can")


def _move(task: Task, op: str, value: Scalar, low: Value, node: ast.AST) -> Scalar:
    """A value shifted by the position of the lowest selected bit."""
    return shift(task, op, value, as_scalar(task, low, node, like=index), bounds_of(task, low))


def bits_of(task: Task, value: Scalar, node: ast.Subscript) -> Value:
    """The bits that a subscript takes out of an integer, as an unsigned integer of their number.

    Where their number depends on data, the result is as wide as the integer.
    """
    _check(task, value.dtype, node)
    task.notice("bits", node)
    low, width = _range(task, node, value.dtype)
    raw = integer(value.dtype.bits, False)
    shifted = _move(task, ">>", Scalar(value.ssa, raw), low, node)
    task.scalar_op()
    if isinstance(width, Scalar):
        return binary_as(task, "&", shifted, _mask(task, width, raw), raw)
    return convert(task, shifted, UInt(width))


def with_bits(task: Task, old: Scalar, node: ast.Subscript, value: Value) -> Scalar:
    """The integer `old` with the bits that a subscript names replaced."""
    _check(task, old.dtype, node)
    low, width = _range(task, node, old.dtype)
    raw = integer(old.dtype.bits, False)
    mask = _mask(task, width, raw)
    part = binary_as(task, "&", convert(task, as_scalar(task, value, node), raw), mask, raw)
    part = _move(task, "<<", part, low, node)
    field = _move(task, "<<", mask, low, node)
    keep = binary_as(task, "^", field, task.number(-1, raw), raw)
    kept = binary_as(task, "&", Scalar(old.ssa, raw), keep, raw)
    task.scalar_op()
    return Scalar(binary_as(task, "|", kept, part, raw).ssa, old.dtype)


def reversed_bits(task: Task, value: Scalar) -> Scalar:
    """The integer with the bits of `value` in reverse order."""
    type_ = element_type(value.dtype)
    raw = integer(value.dtype.bits, False)
    one = task.number(1, raw)
    zero, bits, step = (task.text.constant(n, index) for n in (0, value.dtype.bits, 1))
    result, left, taken = task.text.name(), task.text.name(), task.text.name()
    start = f"({left} = {value.ssa}, {taken} = {task.text.constant(0, raw)}) -> ({type_}, {type_})"
    with task.text.block(f"{result}:2 = scf.for {task.text.name()} = {zero} to {bits} step {step} iter_args{start} {{"):
        moved = shift(task, "<<", Scalar(taken, raw), one, (1, 1))
        last = binary_as(task, "&", Scalar(left, raw), one, raw)
        both = binary_as(task, "|", moved, last, raw)
        rest = shift(task, ">>", Scalar(left, raw), one, (1, 1))
        task.text.line(f"scf.yield {rest.ssa}, {both.ssa} : {type_}, {type_}")
    task.scalar_op()
    return Scalar(f"{result}#1", value.dtype)


class Range(Frozen, eq=False):
    """A slice along one dimension: where it starts, how many elements it has, and its step."""

    start: Value
    size: int
    step: int = 1


def parts_of(node: ast.Subscript) -> list[ast.expr]:
    """The indices of a subscript."""
    return list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]


class Position(Frozen):
    """The position of an element, as MLIR writes it.

    Attributes:
        indices: one value per dimension.
        checks: the attribute that lists the indices to check at run time (see `allo_dse.simulator.codegen.bodies`).
    """

    indices: tuple[str, ...] = ()
    checks: str = ""

    def of(self, buffer: Buffer) -> str:
        """The operand of a load or store."""
        return f"{buffer.ssa}[{', '.join(self.indices)}]{self.checks} : {buffer.type}"


def view(task: Task, base: Buffer, node: ast.Subscript) -> tuple[Buffer, Position | None]:
    """Resolve a subscript of a tile.

    Returns:
        The tile and the position of one element, or a part of the tile and None.
    """
    parts = parts_of(node)
    if len(parts) > len(base.shape):
        task.fail(node, f"{len(parts)} indices for a tile of shape {list(base.shape)}")
    ranges: list[Value | Range] = []
    for dimension, (part, extent) in enumerate(zip(parts, base.shape, strict=False)):
        if isinstance(part, ast.Slice):
            ranges.append(_slice(task, part, dimension, extent))
        else:
            value = task.lower(part)
            _check_index(task, value, dimension, extent, part, flat=True)
            ranges.append(value)
    if len(ranges) == len(base.shape) and not any(isinstance(r, Range) for r in ranges):
        return base, position(task, base, [r for r in ranges if not isinstance(r, Range)], parts)
    for part, range_ in zip(parts, ranges, strict=True):
        if not isinstance(part, (ast.Slice, ast.Name, ast.Constant)):
            task.notice("index beside a slice", part)
        elif isinstance(range_, Range) and range_.size == 1:
            task.notice("slice of one", node)
    missing = [Range(Const(0), extent) for extent in base.shape[len(ranges) :]]
    return subview(task, base, [*ranges, *missing], node), None


def position(task: Task, base: Buffer, values: Sequence[Value], nodes: Sequence[ast.expr]) -> Position:
    """The element of an array at an index per dimension."""
    indices = tuple(as_index(task, value, node).ssa for value, node in zip(values, nodes, strict=True))
    if any(is_flat(task, value, extent) for value, extent in zip(values, base.shape, strict=True)):
        # The element at the row-major position of the indices; checked at run time to be in the array.
        size = math.prod(base.shape)
        flat = task.text.constant(0, index)
        for at, extent in zip(indices, base.shape, strict=True):
            row = task.text.op(f"arith.muli {flat}, {task.text.constant(extent, index)} : index")
            flat = task.text.op(f"arith.addi {row}, {at} : index")
        whole = ast.copy_location(ast.Tuple(list(nodes), ast.Load()), nodes[0])
        check = check_attribute(task, [Limit(0, Scalar(flat, index), size, whole, f"an array of {size} elements")])
        rest = task.text.op(f"arith.addi {task.text.constant(0, index)}, {flat}{check} : index")
        places = []
        for extent in reversed(base.shape):
            places.append(task.text.op(f"arith.remui {rest}, {task.text.constant(extent, index)} : index"))
            rest = task.text.op(f"arith.divui {rest}, {task.text.constant(extent, index)} : index")
        return Position(tuple(reversed(places)))
    limits = [
        Limit(dimension, value, extent, node, f"dimension {dimension} of size {extent}")
        for dimension, (value, extent, node) in enumerate(zip(values, base.shape, nodes, strict=True))
    ]
    return Position(indices, check_attribute(task, limits))


def _check_index(task: Task, value: Value, dimension: int, extent: int, node: ast.AST, flat: bool = False) -> None:
    if isinstance(value, Const) and (integer_of(value) is None or isinstance(value.value, bool)):
        task.fail(node, f"an index must be an integer, not {value.value!r}")
    wrong = wrong_index(task, value, extent)
    if wrong is not None and not (flat and is_flat(task, value, extent)):
        message = f"index {wrong.value} is out of range for dimension {dimension} of size {extent}"
        task.fail(node, message, wrong.where)


def _slice(task: Task, node: ast.Slice, dimension: int, extent: int) -> Range:
    step = 1 if node.step is None else constant_int(task, task.lower(node.step), node.step, "a slice's step")
    if step < 1:
        task.fail(node, f"a slice's step must be positive, not {step}")
    start = Const(0) if node.lower is None else task.lower(node.lower)
    stop = Const(extent) if node.upper is None else task.lower(node.upper)
    length = _length(task, node, start, stop)
    if length is None:
        task.fail(node, "the size of a slice must be known at compile time", "use a loop over single elements")
    if any(isinstance(bound, Scalar) for bound in (start, stop)):
        task.notice("slice", node)
    wrong = wrong_index(task, start, extent + 1) or wrong_index(task, stop, extent + 1)
    if length < 0 or wrong is not None:
        low, high = bounds_of(task, start), bounds_of(task, stop)
        first, last = (low or ("?", "?"))[0], (high or ("?", "?"))[1]
        message = f"slice {first}:{last} is out of range for dimension {dimension} of size {extent}"
        task.fail(node, message, "" if wrong is None else wrong.where)
    return Range(start, -(-length // step), step)


def _length(task: Task, node: ast.Slice, start: Value, stop: Value) -> int | None:
    """Return the number of elements in a slice, if it is the same for all tasks and run-time values."""
    if isinstance(start, Const) and isinstance(stop, Const) and type(start.value) is int and type(stop.value) is int:
        return stop.value - start.value
    upper = node.upper
    if upper is None:
        assert isinstance(stop, Const)
        upper = ast.copy_location(ast.Constant(stop.value), node)
    return constant_difference(task, node.lower, upper)


def subview(task: Task, base: Buffer, ranges: Sequence[Value | Range], node: ast.AST) -> Buffer:
    """A part of a tile; dimensions with a single index are dropped."""
    whole = [isinstance(r, Range) and r.size == extent for r, extent in zip(ranges, base.shape, strict=True)]
    if all(whole):
        return base
    strided = memref_type(base.dtype, base.shape, strided=True)
    source = base.ssa if base.type == strided else task.text.op(f"memref.cast {base.ssa} : {base.type} to {strided}")
    starts = [r.start if isinstance(r, Range) else r for r in ranges]
    offsets = [as_index(task, start, node).ssa for start in starts]
    ends = [r.step * (r.size - 1) if isinstance(r, Range) else 0 for r in ranges]
    limits = [
        Limit(dimension, start, extent - end, node, f"dimension {dimension} of size {extent}")
        for dimension, (start, extent, end) in enumerate(zip(starts, base.shape, ends, strict=True))
    ]
    checks = check_attribute(task, limits)
    sizes = [str(r.size) if isinstance(r, Range) else "1" for r in ranges]
    steps = [str(r.step) if isinstance(r, Range) else "1" for r in ranges]
    shape = tuple(r.size for r in ranges if isinstance(r, Range))
    type_ = memref_type(base.dtype, shape, strided=True)
    part = f"[{', '.join(offsets)}] [{', '.join(sizes)}] [{', '.join(steps)}]"
    ssa = task.text.op(f"memref.subview {source}{part}{checks} : {strided} to {type_}")
    return Buffer(ssa, base.dtype, shape, type_, base.root, base.arg, base.constant)


def constant_int(task: Task, value: Value, node: ast.AST, what: str) -> int:
    """An integer that must be known at compile time, and the same for all tasks of the set."""
    value = Const(task.uniform(value)) if isinstance(value, Meta) else value
    if not isinstance(value, Const):
        task.fail(node, f"{what} must be known at compile time")
    if (known := integer_of(value)) is None:
        task.fail(node, f"{what} must be an integer, not {value.value!r}")
    return known


def subscript(task: Task, node: ast.Subscript) -> Value:
    """The value of `base[...]`."""
    base = task.lower(node.value)
    match base:
        case StreamRef():
            return task.lower_streams(base, node)
        case Const(value):
            return _constant_subscript(task, value, node)
        case Scalar() | Buffer(shape=()):
            return bits_of(task, as_scalar(task, base, node.value), node)
        case Buffer():
            part, where = view(task, base, node)
            if where is None:
                return part
            task.touch(part, write=False)
            task.scalar_op()
            return task.emit(f"memref.load {where.of(part)}", part.dtype)
        case Record():
            return task.get(field_of(task, base, node))
    hint = "declare an array, x: int32[8], and set its elements" if isinstance(base, Tuple) else ""
    task.fail(node, "this cannot be indexed", hint)


def field_of(task: Task, record: Record, node: ast.Subscript) -> Variable:
    """The part of a record that a subscript names."""
    field = record.fields.get(str(node.slice.value)) if isinstance(node.slice, ast.Constant) else None
    if field is None:
        task.fail(node, f"its parts are named {', '.join(map(repr, record.fields))}")
    return field


def _constant_subscript(task: Task, base: Any, node: ast.Subscript) -> Value:
    if any(isinstance(p, ast.Slice) for p in parts_of(node)):
        names = {part.id for part in ast.walk(node.slice) if isinstance(part, ast.Name)}
        if all(isinstance(task.find(name), (Const, NoneType)) for name in names):
            return Const(task.source.file.evaluate(node, task.constants()))
        array = _numbers(task, base, node)
        return view(task, task.constant_buffer(array), node)[0]
    indices = [task.lower(p) for p in parts_of(node)]
    if isinstance(base, (Region, FunctionType)):
        indices = [Const(task.uniform(i)) if isinstance(i, Meta) else i for i in indices]
    if all(isinstance(i, Const) for i in indices):
        values = tuple(i.value for i in indices if isinstance(i, Const))
        if isinstance(base, FunctionType):
            return Const(Instance(base, values))
        try:
            return Const(base[values if len(values) > 1 or isinstance(node.slice, ast.Tuple) else values[0]])
        except Exception as error:
            task.fail(node, f"cannot index this constant: {error}")
    array = _numbers(task, base, node)
    if len(indices) > array.ndim:
        task.fail(node, f"{len(indices)} indices for an array of {array.ndim} dimensions")
    for dimension, (value, part) in enumerate(zip(indices, parts_of(node), strict=True)):
        _check_index(task, value, dimension, array.shape[dimension], part)
    if len(indices) == array.ndim and all(isinstance(i, (Const, Meta)) for i in indices):
        where = tuple(i.array if isinstance(i, Meta) else i.value for i in indices if isinstance(i, (Const, Meta)))
        return meta.table(array[tuple(np.clip(w, 0, n - 1) for w, n in zip(where, array.shape, strict=True))])
    buffer = task.constant_buffer(array)
    if len(indices) != array.ndim:
        return subview(task, buffer, [*indices, *(Range(Const(0), n) for n in array.shape[len(indices) :])], node)
    place = position(task, buffer, indices, parts_of(node))
    return task.emit(f"memref.load {place.of(buffer)}", buffer.dtype)


def _numbers(task: Task, base: Any, node: ast.AST) -> Array:
    """A constant as an array in memory."""
    array = np.asarray(base) if isinstance(base, (list, tuple, np.ndarray, np.generic)) else np.empty(0, object)
    if array.dtype.kind not in "biuf":
        message = f"{type(base).__name__} {base!r} cannot be indexed by values that differ between tasks"
        task.fail(node, message, "only arrays of numbers can")
    return array
