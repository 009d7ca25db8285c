"""Scalar arithmetic: result types and code."""

from __future__ import annotations

import ast
from collections.abc import Callable

import numpy as np

from allo_dse.common.records import replace
from allo_dse.lang.types import DType, Int, UInt, bfloat16, float32, float64, index, int32
from allo_dse.lang.types import bool as bool_

from ..model.index_forms import Form
from ..model.mlir_text import element_type
from ..model.values import Buffer, Const, Meta, Scalar, Tuple, Value, Variable
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
    if a.is_float or b.is_float:
        return _common_float(a, b)
    if a.is_fixed or b.is_fixed:
        return _common_fixed(a, b)
    if "index" in (a.kind, b.kind):
        a, b = (int32 if t.kind == "index" else t for t in (a, b))
    signed = a.is_signed or b.is_signed
    widths = [t.bits + (1 if signed and not t.is_signed else 0) for t in (a, b)]
    return integer(max(widths), signed) if (a.kind, b.kind) != ("bool", "bool") else bool_


def _common_float(a: DType, b: DType) -> DType:
    if not (a.is_float and b.is_float):
        return a if a.is_float else b
    if a.bits == b.bits:
        return float32  # float16 and bfloat16
    return a if a.bits > b.bits else b


def _common_fixed(a: DType, b: DType) -> DType:
    a, b = (int32 if t.kind == "index" else t for t in (a, b))
    signed = a.is_signed or b.is_signed
    fraction = max(a.fraction_bits, b.fraction_bits)
    whole = max(t.bits - t.fraction_bits + (1 if signed and not t.is_signed else 0) for t in (a, b))
    return fixed(whole + fraction, fraction, signed)


def fixed(bits: int, fraction: int, signed: bool) -> DType:
    prefix = "fixed" if signed else "ufixed"
    return DType(f"{prefix}{bits}_{fraction}", "fixed" if signed else "ufixed", bits, fraction)


def result_type(op: str, a: DType, b: DType) -> DType:
    """The type of `a op b`."""
    if a.kind == b.kind == "index" and op not in ("<<", ">>"):
        return index if op != "/" else float32
    both = common(a, b)
    if both.is_float:
        return both
    a, b = (int32 if t.kind == "index" else t for t in (a, b))
    if both.is_fixed:
        return _fixed_result(op, a, b, both)
    if op in ("+", "-"):
        return integer(common(a, b).bits + 1, both.is_signed or op == "-")
    if op == "*":
        return integer(a.bits + b.bits, both.is_signed)
    if op in ("<<", ">>"):
        return a if a.kind != "bool" else UInt(1)
    if op in ("/", "//"):
        return integer(both.bits + both.is_signed, both.is_signed)
    return both


def _fixed_result(op: str, a: DType, b: DType, both: DType) -> DType:
    if op in ("<<", ">>"):
        return a
    if op in ("+", "-"):
        return fixed(both.bits + 1, both.fraction_bits, both.is_signed or op == "-")
    if op == "*":
        return fixed(a.bits + b.bits, a.fraction_bits + b.fraction_bits, both.is_signed)
    return both


def holds(dtype: DType, form: Form) -> bool:
    """Return whether an integer type can represent all values of a form."""
    if form.low is None or form.high is None:
        return dtype.kind == "index"
    lowest, highest = (
        (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)
    )
    return bool(np.all(form.low >= lowest) and np.all(form.high <= highest))


def mean_the_same(a: DType, b: DType) -> bool:
    """Return whether two types with the same MLIR type also interpret bits alike."""
    return a.is_float == b.is_float and a.fraction_bits == b.fraction_bits


_INT = {"+": "addi", "-": "subi", "*": "muli", "&": "andi", "|": "ori", "^": "xori", "<<": "shli"}
_FLOAT = {"+": "addf", "-": "subf", "*": "mulf", "/": "divf", "min": "minimumf", "max": "maximumf"}
_ORDER = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge", "==": "eq", "!=": "ne"}


def as_scalar(task: Task, value: Value, node: ast.AST, like: DType | None = None) -> Scalar:
    """A run-time scalar; a Python number takes the type `like` when that is floating-point or `index`."""
    if isinstance(value, Scalar):
        return value
    if isinstance(value, Variable):
        type_ = f"memref<{element_type(value.dtype)}>"
        return Scalar(task.text.op(f"memref.load {value.ssa}[] : {type_}"), value.dtype)
    if isinstance(value, Meta):
        if value.is_boolean:
            value = Const(bool(task.uniform(value)))
        elif value.array.dtype.kind == "O":
            task.fail(node, "a number that differs between tasks must fit 64 bits")
        elif np.issubdtype(value.array.dtype, np.floating):
            dtype = like if like is not None and like.is_float else float32
            return Scalar(task.table_entry(value.array, dtype), dtype)
        else:
            return Scalar(task.pid(value), index, form_of(value))
    if isinstance(value, Buffer) and value.shape == ():
        task.touch(value, write=False)
        return Scalar(task.text.op(f"memref.load {value.ssa}[] : {value.type}"), value.dtype)
    if isinstance(value, Const) and is_number(value.value):
        dtype = const_type(value.value)
        if like is not None and (like.is_float or (like.kind == "index" and dtype.kind == "int")):
            dtype = like
        return Scalar(task.text.constant(value.value, dtype), dtype, form_of(value) if dtype.is_integer else None)
    if isinstance(value, Const):
        task.fail(node, f"expected a number, not {_describe(value.value)}")
    if isinstance(value, Tuple):
        task.fail(node, f"expected a scalar here, not {len(value.items)} values", "take them apart: a, b = ...")
    task.fail(node, "expected a scalar here", "index the tile, or use an operation on whole tiles such as allo.add")


def _describe(value: object) -> str:
    return f"{type(value).__name__} {value!r}" if not callable(value) else f"`{getattr(value, '__name__', value)}`"


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
    if source.kind != "index" and element_type(source) == element_type(to) and mean_the_same(source, to):
        return Scalar(value.ssa, to)
    if source.is_float and to.is_float:
        return _float_to_float(task, value, to)
    if source.is_fixed or to.is_fixed:
        return _convert_fixed(task, value, to)
    if source.is_float:
        return _float_to_int(task, value, to)
    if to.is_float:
        if source.kind == "index":
            value = convert(task, value, Int(64))
        op = "sitofp" if value.dtype.is_signed else "uitofp"
        return _cast(task, op, value, to)
    return _int_to_int(task, value, to)


def _cast(task: Task, op: str, value: Scalar, to: DType) -> Scalar:
    text = f"arith.{op} {value.ssa} : {element_type(value.dtype)} to {element_type(to)}"
    return Scalar(task.text.op(text), to)


def _float_to_float(task: Task, value: Scalar, to: DType) -> Scalar:
    if value.dtype.bits == to.bits:  # between float16 and bfloat16
        value = _cast(task, "extf", value, float32)
    elif value.dtype == float64 and to == bfloat16:  # as its own libraries do, which know float32 alone
        value = _cast(task, "truncf", value, float32)
    return _cast(task, "extf" if value.dtype.bits < to.bits else "truncf", value, to)


def _float_to_int(task: Task, value: Scalar, to: DType) -> Scalar:
    if to.kind == "bool":
        zero = task.text.constant(0.0, value.dtype)
        type_ = element_type(value.dtype)
        return Scalar(task.text.op(f"arith.cmpf une, {value.ssa}, {zero} : {type_}"), bool_)
    wide = Int(max(64, to.bits))  # wraps if it does not fit, instead of being undefined
    return convert(task, _cast(task, "fptosi", value, wide), to)


def _int_to_int(task: Task, value: Scalar, to: DType) -> Scalar:
    source = value.dtype
    if to.kind == "bool":
        zero = task.text.constant(0, source)
        return Scalar(task.text.op(f"arith.cmpi ne, {value.ssa}, {zero} : {element_type(source)}"), bool_)
    if "index" in (source.kind, to.kind):
        return _cast(task, "index_cast" if source.is_signed else "index_castui", value, to)
    if to.bits < source.bits:
        return _cast(task, "trunci", value, to)
    return _cast(task, "extsi" if source.is_signed else "extui", value, to)


def _convert_fixed(task: Task, value: Scalar, to: DType) -> Scalar:
    source = value.dtype
    if to.kind == "index":
        return convert(task, convert(task, value, Int(64)), to)
    if any(one.is_float and one.bits == 16 for one in (source, to)):  # float16 does not reach as far as raw integers
        return convert(task, convert(task, value, float32), to)
    if source.is_float:
        scaled = binary_as(task, "*", value, Scalar(task.text.constant(2.0**to.fraction_bits, source), source), source)
        type_ = element_type(source)
        floor = Scalar(task.text.op(f"math.floor {scaled.ssa} : {type_}"), source)
        return Scalar(_float_to_int(task, floor, integer(to.bits, to.is_signed)).ssa, to)
    raw = Scalar(value.ssa, integer(source.bits, source.is_signed)) if source.is_fixed else value
    if to.is_float:
        number = convert(task, raw, to)
        scale = Scalar(task.text.constant(2.0**-source.fraction_bits, to), to)
        return binary_as(task, "*", number, scale, to)
    places = to.fraction_bits - source.fraction_bits
    wide = integer(max(to.bits, source.bits + max(places, 0)), source.is_signed)
    raw = convert(task, raw, wide)
    if places:
        amount = Scalar(task.text.constant(abs(places), int32), int32)
        raw = shift(task, "<<" if places > 0 else ">>", raw, amount, (abs(places), abs(places)))
    return Scalar(convert(task, raw, integer(to.bits, to.is_signed)).ssa, to)


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
        raw = integer(dtype.bits, dtype.is_signed) if dtype.is_fixed else dtype
        value = Scalar(a.ssa, raw) if dtype.is_fixed else convert(task, a, raw)
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


def negated(task: Task, value: Scalar) -> Scalar:
    """The code of `-value` of a floating-point number; `0 - value` has another zero."""
    task.scalar_op()
    return Scalar(task.text.op(f"arith.negf {value.ssa} : {element_type(value.dtype)}"), value.dtype)


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
        predicate = {"!=": "une"}.get(op, "o" + _ORDER[op])
        text = f"arith.cmpf {predicate}, {a.ssa}, {b.ssa} : {element_type(dtype)}"
    else:
        sign = "" if op in ("==", "!=") else "s" if dtype.is_signed else "u"
        text = f"arith.cmpi {sign}{_ORDER[op]}, {a.ssa}, {b.ssa} : {element_type(dtype)}"
    return Scalar(task.text.op(text), bool_)


def binary_as(task: Task, op: str, a: Scalar, b: Scalar, dtype: DType) -> Scalar:
    """`a op b` where both operands and the result have type `dtype`; factors of fixed-point numbers may have others."""
    if dtype.is_fixed:
        return convert(task, _binary_fixed(task, op, a, b, result_type(op, a.dtype, b.dtype)), dtype)
    type_ = element_type(dtype)

    def emit(name: str, x: str, y: str) -> str:
        return task.text.op(f"{name} {x}, {y} : {type_}")

    if dtype.is_float:
        return Scalar(_float_binary(task, op, a, b, dtype), dtype)
    if op in _INT:
        return Scalar(emit(f"arith.{_INT[op]}", a.ssa, b.ssa), dtype)
    sign = "s" if dtype.is_signed else "u"
    if op == "//":
        return Scalar(emit("arith.floordivsi" if dtype.is_signed else "arith.divui", a.ssa, b.ssa), dtype)
    if op == "%" and dtype.is_signed:
        quotient = emit("arith.floordivsi", a.ssa, b.ssa)
        return Scalar(emit("arith.subi", a.ssa, emit("arith.muli", quotient, b.ssa)), dtype)
    if op == "**":
        return _integer_power(task, a, b, dtype)
    names = {"/": f"div{sign}i", "%": "remui", ">>": f"shr{sign}i", "min": f"min{sign}i", "max": f"max{sign}i"}
    return Scalar(emit(f"arith.{names[op]}", a.ssa, b.ssa), dtype)


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
            return Scalar(text.constant(0, dtype), dtype)
        bounds = (width - 1, width - 1)
    if bounds is not None and bounds[0] == bounds[1]:
        return binary_as(task, op, value, Scalar(text.constant(bounds[0], dtype), dtype), dtype)
    if bounds is not None and 0 <= bounds[0] <= bounds[1] < width:
        return binary_as(task, op, value, convert(task, by, dtype), dtype)
    if by.dtype.kind != "index":
        by = convert(task, by, integer(max(by.dtype.bits, width.bit_length() + 1), by.dtype.is_signed))
    type_ = element_type(by.dtype)
    inside = text.op(f"arith.cmpi ult, {by.ssa}, {text.constant(width, by.dtype)} : {type_}")
    most = text.constant(width - 1 if keeps_sign else 0, by.dtype)
    amount = Scalar(text.op(f"arith.select {inside}, {by.ssa}, {most} : {type_}"), by.dtype)
    moved = binary_as(task, op, value, convert(task, amount, dtype), dtype)
    if keeps_sign:
        return moved
    zero = text.constant(0, dtype)
    return Scalar(text.op(f"arith.select {inside}, {moved.ssa}, {zero} : {element_type(dtype)}"), dtype)


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


def _float_binary(task: Task, op: str, a: Scalar, b: Scalar, dtype: DType) -> str:
    type_ = element_type(dtype)
    if op in _FLOAT:
        return task.text.op(f"arith.{_FLOAT[op]} {a.ssa}, {b.ssa} : {type_}")
    if op == "**":
        return task.text.op(f"math.powf {a.ssa}, {b.ssa} : {type_}")
    return _float_division(task, op, a.ssa, b.ssa, dtype)


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
    raw = integer(dtype.bits, dtype.is_signed)
    a, b = (convert(task, v, int32) if v.dtype.kind == "index" else v for v in (a, b))
    if op == "*":
        x, y = (convert(task, Scalar(v.ssa, integer(v.dtype.bits, v.dtype.is_signed)), raw) for v in (a, b))
        return Scalar(binary_as(task, "*", x, y, raw).ssa, dtype)
    x, y = (Scalar(convert(task, v, dtype).ssa, raw) for v in (a, b))
    if op == "/":
        wide = integer(raw.bits + dtype.fraction_bits, raw.is_signed)
        shift = Scalar(task.text.constant(dtype.fraction_bits, wide), wide)
        x, y = binary_as(task, "<<", convert(task, x, wide), shift, wide), convert(task, y, wide)
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

    def code(task: Task, x: Scalar) -> Scalar:
        return Scalar(task.text.op(f"math.{op} {x.ssa} : {element_type(x.dtype)}"), x.dtype)

    return computed_in_float(task, value, code)
