"""Scalar arithmetic: result types and code."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partialmethod
from typing import Literal

import numpy as np

from allo_dse.common.records import Frozen, replace
from allo_dse.lang.types import DType, Int, UInt, bfloat16, float32, float64, index, int32
from allo_dse.lang.types import bool as bool_

from ..model.index_forms import Form
from ..model.mlir_text import element_type
from ..model.values import INDEX_OPERATIONS, Buffer, Const, Meta, Scalar, Tuple, Value, Variable
from ..regions.task_state import Task
from .index_checks import bounds_of, form_of

# Integers grow as in HLS: a sum has one bit more than its wider operand, a product as many as both together. Storing
# truncates. Python numbers are `int32` and `float32`, but take the type of a floating-point or `index` operand.


MAX_INT_BITS = 4096


def integer(bits: int, signed: bool) -> DType:
    """An integer type, also wider than programs can declare (intermediate results)."""
    bits = min(bits, MAX_INT_BITS)
    return DType(f"{'int' if signed else 'uint'}{bits}", "int" if signed else "uint", bits)


def const_type(value: object) -> DType:
    """The type of a Python number without other operands."""
    if isinstance(value, (bool, np.bool_)):
        return bool_
    if isinstance(value, (int, np.integer)):
        bits = max(32, int(value).bit_length() + 1)
        return int32 if bits == 32 else integer(bits, True)
    return float32


def is_number(value: object) -> bool:
    return isinstance(value, (bool, int, float, np.bool_, np.integer, np.floating))


def common(a: DType, b: DType) -> DType:
    """The type that holds the values of both, without growth."""
    if a == b:
        return a
    if a.is_float != b.is_float:
        return a if a.is_float else b
    if a.is_float:
        return float32 if a.bits == b.bits else max(a, b, key=lambda t: t.bits)  # float16 and bfloat16 have equal bits
    a, b = (int32 if t.kind == "index" else t for t in (a, b))
    signed, fraction = a.is_signed or b.is_signed, max(a.fraction_bits, b.fraction_bits)
    whole = max(t.bits - t.fraction_bits + (signed and not t.is_signed) for t in (a, b))
    return _of_kind(a.is_fixed or b.is_fixed, whole + fraction, fraction, signed)


def _of_kind(is_fixed: bool, bits: int, fraction: int, signed: bool) -> DType:
    """An integer type, or one of fixed-point numbers."""
    if not is_fixed:
        return integer(bits, signed)
    kind: Literal["fixed", "ufixed"] = "fixed" if signed else "ufixed"
    return DType(f"{kind}{bits}_{fraction}", kind, bits, fraction)


def result_type(op: str, a: DType, b: DType) -> DType:
    """The type of `a op b`."""
    if a.kind == b.kind == "index" and op not in ("<<", ">>"):
        return index if op != "/" else float32
    both = common(a, b)
    if both.is_float:
        return both
    a, b = (int32 if t.kind == "index" else t for t in (a, b))
    signed, bits, fraction = both.is_signed, both.bits, both.fraction_bits
    if op in ("<<", ">>"):
        return a if a.kind != "bool" else UInt(1)
    if op in ("+", "-"):
        bits, signed = bits + 1, signed or op == "-"
    elif op == "*":
        bits, fraction = a.bits + b.bits, a.fraction_bits + b.fraction_bits
    elif op in ("/", "//") and not both.is_fixed:
        bits += signed
    else:
        return both
    return _of_kind(both.is_fixed, bits, fraction, signed)


def holds(dtype: DType, form: Form) -> bool:
    """Return whether an integer type can represent all values of a form."""
    if form.low is None or form.high is None:
        return dtype.kind == "index"
    lowest, beyond = dtype.limits
    return bool(np.all(form.low >= lowest) and np.all(form.high < beyond))


_SIGNED = INDEX_OPERATIONS | {"/": "divsi"}
_UNSIGNED = _SIGNED | {"/": "divui", "//": "divui", "%": "remui", ">>": "shrui", "min": "minui", "max": "maxui"}
_FLOAT = {"+": "arith.addf", "-": "arith.subf", "*": "arith.mulf", "/": "arith.divf", "**": "math.powf"}
_FLOAT |= {"min": "arith.minimumf", "max": "arith.maximumf"}
_ORDER = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


def as_scalar(task: Task, value: Value, node: ast.AST, like: DType | None = None) -> Scalar:
    """A run-time scalar; a Python number takes the type `like` when that is floating-point or `index`."""
    match value:
        case Scalar():
            return value
        case Variable():
            return task.get(value)
        case Meta(array) if value.is_boolean:
            return as_scalar(task, Const(bool(task.uniform(value))), node, like)
        case Meta(array) if array.dtype.kind == "O":
            task.fail(node, "a number that differs between tasks must fit 64 bits")
        case Meta(array) if np.issubdtype(array.dtype, np.floating):
            dtype = like if like is not None and like.is_float else float32
            return Scalar(task.table_entry(array, dtype), dtype)
        case Meta():
            return Scalar(task.pid(value), index, form_of(value))
        case Buffer(shape=()):
            task.touch(value, write=False)
            return task.emit(f"memref.load {value.ssa}[] : {value.type}", value.dtype)
        case Const(number) if is_number(number):
            dtype = const_type(number)
            if like is not None and (like.is_float or (like.kind == "index" and dtype.kind == "int")):
                dtype = like
            return Scalar(task.text.constant(number, dtype), dtype, form_of(value) if dtype.is_integer else None)
        case Const(other):
            name = f"`{getattr(other, '__name__', other)}`" if callable(other) else f"{type(other).__name__} {other!r}"
            task.fail(node, f"expected a number, not {name}")
        case Tuple(items):
            task.fail(node, f"expected a scalar here, not {len(items)} values", "take them apart: a, b = ...")
    task.fail(node, "expected a scalar here", "index the tile, or use an operation on whole tiles such as allo.add")


def as_index(task: Task, value: Value, node: ast.AST) -> Scalar:
    """A scalar as a run-time `index`."""
    return convert(task, as_scalar(task, value, node, like=index), index)


# -- conversion ------------------------------------------------------------------------------------------------------


def convert(task: Task, value: Scalar, to: DType) -> Scalar:
    """The value as type `to`: integers are extended or truncated, floats rounded, fixed-point numbers shifted."""
    source = value.dtype
    if source == to:
        return value
    result = _converted(task, value, to)
    keeps = value.form is not None and to.is_integer and to.kind != "bool" and holds(to, value.form)
    return replace(result, form=value.form) if keeps else result


def _converted(task: Task, value: Scalar, to: DType) -> Scalar:
    source = value.dtype
    alike = (source.is_float, source.fraction_bits) == (to.is_float, to.fraction_bits)
    if source.kind != "index" and element_type(source) == element_type(to) and alike:
        return Scalar(value.ssa, to)
    if source.is_float and to.is_float:
        # bfloat16's own libraries know float32 alone; float16 and bfloat16 have no common type either.
        if source.bits == to.bits or (source, to) == (float64, bfloat16):
            value = _cast(task, "extf" if source.bits == to.bits else "truncf", value, float32)
        return _cast(task, "extf" if value.dtype.bits < to.bits else "truncf", value, to)
    if source.is_fixed or to.is_fixed:
        return _convert_fixed(task, value, to)
    if to.kind == "bool":
        return compare(task, "!=", value, task.number(0, source))
    if source.is_float:
        return _float_to_int(task, value, to)
    if to.is_float:
        if source.kind == "index":
            value = convert(task, value, Int(64))
        return _cast(task, "sitofp" if value.dtype.is_signed else "uitofp", value, to)
    if "index" in (source.kind, to.kind):
        return _cast(task, "index_cast" if source.is_signed else "index_castui", value, to)
    return _cast(task, "trunci" if to.bits < source.bits else "extsi" if source.is_signed else "extui", value, to)


def _cast(task: Task, op: str, value: Scalar, to: DType) -> Scalar:
    return task.emit(f"arith.{op} {value.ssa} : {element_type(value.dtype)} to {element_type(to)}", to)


def _float_to_int(task: Task, value: Scalar, to: DType) -> Scalar:
    wide = Int(max(64, to.bits))  # wraps if it does not fit, instead of being undefined
    return convert(task, _cast(task, "fptosi", value, wide), to)


def _convert_fixed(task: Task, value: Scalar, to: DType) -> Scalar:
    source = value.dtype
    if to.kind == "index":
        return convert(task, convert(task, value, Int(64)), to)
    if any(one.is_float and one.bits == 16 for one in (source, to)):  # float16 does not reach as far as raw integers
        return convert(task, convert(task, value, float32), to)
    if source.is_float:
        scaled = Number(task, value, source) * task.number(2.0**to.fraction_bits, source)
        floor = task.emit(f"math.floor {scaled.scalar.ssa} : {element_type(source)}", source)
        return Scalar(_float_to_int(task, floor, _raw(to)).ssa, to)
    raw = Scalar(value.ssa, _raw(source)) if source.is_fixed else value
    if to.is_float:
        number = convert(task, raw, to)
        return binary_as(task, "*", number, task.number(2.0**-source.fraction_bits, to), to)
    places = to.fraction_bits - source.fraction_bits
    raw = convert(task, raw, integer(max(to.bits, source.bits + max(places, 0)), source.is_signed))
    if places:
        amount = task.number(abs(places), int32)
        raw = shift(task, "<<" if places > 0 else ">>", raw, amount, (abs(places), abs(places)))
    return Scalar(convert(task, raw, _raw(to)).ssa, to)


def _raw(dtype: DType) -> DType:
    """The integer type whose values have the bits of a fixed-point type."""
    return integer(dtype.bits, dtype.is_signed)


# -- operations ------------------------------------------------------------------------------------------------------


def binary(task: Task, op: str, left: Value, right: Value, node: ast.AST) -> Scalar:
    """The code of `left op right` for scalars."""
    a, b = operands(task, left, right, node)
    task.scalar_op()
    if op in _ORDER:
        return compare(task, op, a, b)
    dtype = result_type(op, a.dtype, b.dtype)
    if op in ("<<", ">>"):
        if b.dtype.is_fixed or dtype.is_float:
            task.fail(node, f"{a.dtype} {op} {b.dtype} is not defined", "shift by an integer")
        value = Scalar(a.ssa, _raw(dtype)) if dtype.is_fixed else convert(task, a, dtype)
        return Scalar(shift(task, op, value, b, bounds_of(task, right)).ssa, dtype)
    if op == "**":
        require_power(task, dtype, node)
    if dtype.is_fixed:
        return _binary_fixed(task, op, a, b, dtype)
    if op in ("&", "|", "^") and dtype.is_float:
        task.fail(node, f"operator {op} is not defined for {dtype}")
    work, x, y = dtype, convert(task, a, dtype), convert(task, b, dtype)
    if dtype.is_float and dtype.bits == 16 and op not in ("+", "-", "*", "/"):
        work, x, y = float32, convert(task, x, float32), convert(task, y, float32)
    return convert(task, binary_as(task, op, x, y, work), dtype)


def require_power(task: Task, dtype: DType, node: ast.AST) -> None:
    """Refuse powers of numbers that have none."""
    if dtype.is_fixed:
        task.fail(node, "powers of fixed-point numbers are not defined", "multiply")


def operands(task: Task, left: Value, right: Value, node: ast.AST) -> tuple[Scalar, Scalar]:
    """Two scalars, Python numbers having taken the other one's type."""
    if isinstance(left, Const) and not isinstance(right, Const):
        b = as_scalar(task, right, node)
        return as_scalar(task, left, node, like=b.dtype), b
    a = as_scalar(task, left, node)
    return a, as_scalar(task, right, node, like=a.dtype)


def compare(task: Task, op: str, a: Scalar, b: Scalar) -> Scalar:
    """The code of a comparison."""
    dtype = common(a.dtype, b.dtype)
    a, b = convert(task, a, dtype), convert(task, b, dtype)
    if dtype.is_float:
        predicate = "f " + {"!=": "une"}.get(op, "o" + _ORDER[op])
    else:
        predicate = f"i {'' if op in ('==', '!=') else 's' if dtype.is_signed else 'u'}{_ORDER[op]}"
    return task.emit(f"arith.cmp{predicate}, {a.ssa}, {b.ssa} : {element_type(dtype)}", bool_)


def binary_as(task: Task, op: str, a: Scalar, b: Scalar, dtype: DType) -> Scalar:
    """`a op b` where both operands and the result have type `dtype`; factors of fixed-point numbers may have others."""
    if dtype.is_fixed:
        return convert(task, _binary_fixed(task, op, a, b, result_type(op, a.dtype, b.dtype)), dtype)
    type_, names = element_type(dtype), _SIGNED if dtype.is_signed else _UNSIGNED

    def emit(name: str, x: str, y: str) -> str:
        return task.text.op(f"{name} {x}, {y} : {type_}")

    if dtype.is_float:
        if op in ("//", "%"):
            return Scalar(_float_division(task, op, a.ssa, b.ssa, dtype), dtype)
        return Scalar(emit(_FLOAT[op], a.ssa, b.ssa), dtype)
    if op in names:
        return Scalar(emit(f"arith.{names[op]}", a.ssa, b.ssa), dtype)
    if op == "%":
        quotient = emit("arith.floordivsi", a.ssa, b.ssa)
        return Scalar(emit("arith.subi", a.ssa, emit("arith.muli", quotient, b.ssa)), dtype)
    return _integer_power(task, a, b, dtype)


class Number(Frozen, eq=False):
    """A scalar in a formula: operators write the code of operations in one type.

    Attributes:
        dtype: of the results.
    """

    task: Task
    scalar: Scalar
    dtype: DType

    def apply(self, op: str, other: Number | Scalar) -> Number:
        """`self op other`."""
        right = other.scalar if isinstance(other, Number) else other
        return Number(self.task, binary_as(self.task, op, self.scalar, right, self.dtype), self.dtype)

    __add__ = partialmethod(apply, "+")
    __sub__ = partialmethod(apply, "-")
    __mul__ = partialmethod(apply, "*")
    __truediv__ = partialmethod(apply, "/")


def shift(task: Task, op: str, value: Scalar, by: Scalar, bounds: tuple[int, int] | None = None) -> Scalar:
    """`value << by` or `value >> by` of an integer, as wide as `value`: bits shifted out are lost.

    So a shift by its width or more, or by a negative number, leaves 0, or the sign. Machines, C++ and LLVM do other
    things then.

    Args:
        bounds: the smallest and largest value of `by`, where they are known.
    """
    text, dtype, width = task.text, value.dtype, value.dtype.bits
    keeps_sign = op == ">>" and dtype.is_signed
    if bounds is None and not by.dtype.is_signed:
        bounds = (0, (1 << by.dtype.bits) - 1)
    if bounds is not None and (bounds[1] < 0 or bounds[0] >= width):
        if not keeps_sign:
            return task.number(0, dtype)
        bounds = (width - 1, width - 1)
    if bounds is not None and bounds[0] == bounds[1]:
        return binary_as(task, op, value, task.number(bounds[0], dtype), dtype)
    if bounds is not None and 0 <= bounds[0] <= bounds[1] < width:
        return binary_as(task, op, value, convert(task, by, dtype), dtype)
    if by.dtype.kind != "index":
        by = convert(task, by, integer(max(by.dtype.bits, width.bit_length() + 1), by.dtype.is_signed))
    type_ = element_type(by.dtype)
    inside = text.op(f"arith.cmpi ult, {by.ssa}, {text.constant(width, by.dtype)} : {type_}")
    most = text.constant(width - 1 if keeps_sign else 0, by.dtype)
    amount = task.emit(f"arith.select {inside}, {by.ssa}, {most} : {type_}", by.dtype)
    moved = binary_as(task, op, value, convert(task, amount, dtype), dtype)
    if keeps_sign:
        return moved
    return task.emit(f"arith.select {inside}, {moved.ssa}, {text.constant(0, dtype)} : {element_type(dtype)}", dtype)


def _integer_power(task: Task, a: Scalar, b: Scalar, dtype: DType) -> Scalar:
    """`a ** b` by squaring; 1 for negative exponents."""
    type_, text = element_type(dtype), task.text
    zero, one = (text.constant(n, dtype) for n in (0, 1))
    result, types = text.name(), f"({type_}, {type_}, {type_})"
    total, factor, left = (text.name() for _ in range(3))
    start = f"({total} = {one}, {factor} = {a.ssa}, {left} = {b.ssa}) : {types} -> {types} {{"
    with text.block(f"{result}:3 = scf.while {start}", "} do {"):
        more = text.op(f"arith.cmpi {'s' if dtype.is_signed else 'u'}gt, {left}, {zero} : {type_}")
        text.line(f"scf.condition({more}) {total}, {factor}, {left} : {type_}, {type_}, {type_}")
    with text.continued():
        text.line(f"^bb0({total}: {type_}, {factor}: {type_}, {left}: {type_}):")
        odd = text.op(f"arith.cmpi ne, {text.op(f'arith.andi {left}, {one} : {type_}')}, {zero} : {type_}")
        product = text.op(f"arith.muli {total}, {factor} : {type_}")
        chosen = text.op(f"arith.select {odd}, {product}, {total} : {type_}")
        square = text.op(f"arith.muli {factor}, {factor} : {type_}")
        rest = text.op(f"arith.shrui {left}, {one} : {type_}")
        text.line(f"scf.yield {chosen}, {square}, {rest} : {type_}, {type_}, {type_}")
    return Scalar(f"{result}#0", dtype)


def _float_division(task: Task, op: str, a: str, b: str, dtype: DType) -> str:
    """`a // b` and `a % b` as Python computes them: the exact remainder, with the sign of `b`, and what it leaves."""
    type_, zero = element_type(dtype), task.text.constant(0.0, dtype)

    def emit(name: str, *operands: str, types: str = type_) -> str:
        return task.text.op(f"{name} {', '.join(operands)} : {types}")

    rest = emit("arith.remf", a, b)
    signs = [emit("arith.cmpf olt,", x, zero) for x in (rest, b)]
    exact, below = emit("arith.cmpf oeq,", rest, zero), emit("arith.xori", *signs, types="i1")
    if op == "%":
        none = emit("arith.select", signs[1], task.text.constant(-0.0, dtype), zero)
        return emit("arith.select", exact, none, emit("arith.select", below, emit("arith.addf", rest, b), rest))
    below = emit("arith.select", exact, task.text.constant(False, bool_), below, types="i1")
    one, half, quotient = task.text.constant(1.0, dtype), task.text.constant(0.5, dtype), emit("arith.divf", a, b)
    count = emit("arith.divf", emit("arith.subf", a, rest), b)  # an integer but for its rounding
    count = emit("arith.select", below, emit("arith.subf", count, one), count)
    whole = emit("math.floor", count)
    more = emit("arith.cmpf ogt,", emit("arith.subf", count, whole), half)
    whole = emit("arith.select", more, emit("arith.addf", whole, one), whole)
    whole = emit("arith.select", emit("arith.cmpf oeq,", whole, zero), zero, whole)
    zeros = [emit("arith.cmpf oeq,", x, zero) for x in (a, b)]
    return emit("arith.select", emit("arith.ori", *zeros, types="i1"), quotient, whole)


def _binary_fixed(task: Task, op: str, a: Scalar, b: Scalar, dtype: DType) -> Scalar:
    raw = _raw(dtype)
    a, b = (convert(task, v, int32) if v.dtype.kind == "index" else v for v in (a, b))
    if op == "*":
        x, y = (convert(task, Scalar(v.ssa, _raw(v.dtype)), raw) for v in (a, b))
        return Scalar(binary_as(task, "*", x, y, raw).ssa, dtype)
    x, y = (Scalar(convert(task, v, dtype).ssa, raw) for v in (a, b))
    if op == "/":
        wide = integer(raw.bits + dtype.fraction_bits, raw.is_signed)
        places = task.number(dtype.fraction_bits, wide)
        x, y = binary_as(task, "<<", convert(task, x, wide), places, wide), convert(task, y, wide)
        return Scalar(convert(task, binary_as(task, "/", x, y, wide), raw).ssa, dtype)
    result = binary_as(task, op, x, y, raw)
    return convert(task, result, dtype) if op == "//" else Scalar(result.ssa, dtype)  # a quotient rounded is an integer


def truth(task: Task, value: Value, node: ast.AST) -> Scalar:
    """A scalar as a condition."""
    return convert(task, as_scalar(task, value, node), bool_)


def computed_in_float(task: Task, value: Scalar, function: Callable[[Task, Scalar], Scalar]) -> Scalar:
    """A function of one floating-point number; small floats are computed in float32, integers become float32."""
    dtype = value.dtype if value.dtype.is_float else float32
    work = dtype if dtype in (float32, float64) else float32
    return convert(task, function(task, convert(task, value, work)), dtype)


def math_unary(task: Task, op: str, value: Scalar) -> Scalar:
    """A function of MLIR's `math` dialect."""
    return computed_in_float(
        task, value, lambda task, x: task.emit(f"math.{op} {x.ssa} : {element_type(x.dtype)}", x.dtype)
    )
