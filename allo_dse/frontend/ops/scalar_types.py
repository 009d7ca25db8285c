"""Types of scalar arithmetic.

Integers grow as in HLS: a sum has one bit more than its wider operand, a product as many as both together; storing
truncates. Python numbers are `int32` and `float32`, but take the type of a floating-point or `index` operand.
"""

from __future__ import annotations

import numpy as np

from allo_dse.lang.types import DType, UInt, float32, index, int32
from allo_dse.lang.types import bool as bool_

from ..model.index_forms import Form

MAX_INT_BITS = 4096


def integer(bits: int, signed: bool) -> DType:
    """An integer type, also wider than programs can declare (intermediate results)."""
    bits = min(bits, MAX_INT_BITS)
    return DType(f"{'int' if signed else 'uint'}{bits}", "int" if signed else "uint", bits)


def const_type(value: object) -> DType:
    """The type of a Python number that stands alone."""
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
    """Whether an integer type has all values of a form."""
    if form.low is None or form.high is None:
        return dtype.kind == "index"
    lowest, highest = (
        (-(1 << dtype.bits - 1), (1 << dtype.bits - 1) - 1) if dtype.is_signed else (0, (1 << dtype.bits) - 1)
    )
    return bool(np.all(form.low >= lowest) and np.all(form.high <= highest))


def mean_the_same(a: DType, b: DType) -> bool:
    """Whether two types with the same MLIR type also mean the same bits."""
    return a.is_float == b.is_float and a.fraction_bits == b.fraction_bits
