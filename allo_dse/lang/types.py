"""Element types, tensor types and stream types, as programs write them.

int16, Int(5), UInt(256), bfloat16, Fixed(16, 8)      element types
int16[M, K]                                           a tensor of them
int16[M, K] @ [S(0), R]                               a tensor that is sharded over the kernel's mesh
Stream[int16[Mt, Nt], 2]                              a stream of blocks, two tokens deep
Stream[float32, 4][P0, P1]                            an array of streams
"""

from __future__ import annotations

import builtins
import math
import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import EllipsisType
from typing import Any, Literal, SupportsIndex, TypeAlias, TypeVar

from allo_dse.common.errors import ProgramError

from .memory import Layout, Memory, as_layout
from .rules import current_rules

Kind = Literal["int", "uint", "float", "bfloat", "fixed", "ufixed", "index", "bool"]
MAX_BITS = 1024
MAX_DEPTH = 2**31 - 1
Shape: TypeAlias = SupportsIndex | tuple[SupportsIndex, ...]
"""Extents in a bracket: `int16[M]`, `int16[M, K]`."""


@dataclass(frozen=True)
class DType:
    """An element type: its name as programs write it, its kind and its width in bits."""

    name: str
    kind: Kind
    bits: int
    fraction_bits: int = 0

    @property
    def bytes(self) -> int:
        """Size of one element in memory, in bytes."""
        return -(-self.bits // 8)

    @property
    def is_integer(self) -> builtins.bool:
        """Return whether values are whole numbers (`index` and `bool` included)."""
        return self.kind in ("int", "uint", "index", "bool")

    @property
    def is_float(self) -> builtins.bool:
        return self.kind in ("float", "bfloat")

    @property
    def is_fixed(self) -> builtins.bool:
        return self.kind in ("fixed", "ufixed")

    @property
    def is_signed(self) -> builtins.bool:
        """Return whether the highest bit is a sign.

        A one-bit integer is 0 or 1: programs use `int1` for flags.
        """
        return self.kind in ("fixed", "index") or (self.kind == "int" and self.bits > 1)

    @property
    def limits(self) -> tuple[int, int]:
        """The least integer, and the number after the largest."""
        return (-(1 << self.bits - 1), 1 << self.bits - 1) if self.is_signed else (0, 1 << self.bits)

    @property
    def fracs(self) -> int:
        """Number of bits after the point; for a float, stored bits of its significand."""
        return self.bits - 1 - self.exponent if self.is_float else self.fraction_bits

    @property
    def exponent(self) -> int:
        """Number of exponent bits of a float; 0 for other types."""
        return {"bfloat16": 8, "float16": 5, "float32": 8, "float64": 11}.get(self.name, 0)

    def __getitem__(self, shape: Shape) -> Any:
        if any(isinstance(extent, TypeVar) for extent in (shape if isinstance(shape, tuple) else (shape,))):
            return GenericType()
        extents = _extents(shape, "a tensor")
        current_rules().allow("elements", math.prod(extents), "a tensor")
        return TensorType(self, extents)

    def __matmul__(self, layout: object) -> object:
        return TensorType(self, ()) @ layout

    def __call__(self, value: object) -> Any:
        """Cast a value, in a kernel. Outside of kernels there is nothing to cast to."""
        raise ProgramError(f"{self.name}(...) is a cast and can only be used inside a kernel")

    def __repr__(self) -> str:
        return self.name


@dataclass(frozen=True)
class TensorType:
    """A tensor; `layout` is None if the program gives none (replicated), `memory` is its memory on a device."""

    dtype: DType
    shape: tuple[int, ...]
    layout: Layout | None = None
    memory: Memory | None = field(default=None, compare=False)

    def __matmul__(self, layout: object) -> object:
        """Attach a layout, `Stateful`, or a `Memory` (which does not change the type)."""
        if layout is Stateful:
            return StatefulType(self)
        if isinstance(layout, Memory):
            return replace(self, memory=layout)
        return replace(self, layout=as_layout(layout))

    def __getitem__(self, index: object) -> TensorType:
        raise ProgramError(f"{self} already has a shape", hint="write all extents in one bracket: int16[M, N]")

    def __repr__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


@dataclass(frozen=True)
class StreamType:
    """A stream, or an array of streams when `shape` is not empty; `block` is empty for scalar tokens."""

    dtype: DType
    block: tuple[int, ...]
    depth: int
    shape: tuple[int, ...] = ()

    def __getitem__(self, shape: Shape) -> StreamType:
        if self.shape:
            raise ProgramError("this array of streams already has a shape")
        extents = _extents(shape, "an array of streams")
        current_rules().allow("streams", math.prod(extents), "an array")
        return replace(self, shape=extents)

    def __repr__(self) -> str:
        token = repr(TensorType(self.dtype, self.block)) if self.block else repr(self.dtype)
        array = f"[{', '.join(map(str, self.shape))}]" if self.shape else ""
        return f"Stream[{token}, {self.depth}]{array}"


@dataclass(frozen=True)
class GenericType:
    """A type that depends on type parameters (`float32[M]` in `def f[M](...)`).

    It is read again once the parameters have values.
    """

    def __getitem__(self, shape: object) -> GenericType:
        return self

    def __matmul__(self, layout: object) -> GenericType:
        return self


class Stream:
    """`Stream[token, depth]`: a bounded first-in first-out channel from one task to another."""

    DEFAULT_DEPTH = 2

    def __class_getitem__(cls, item: object) -> Any:
        return stream_type(*item) if isinstance(item, tuple) else stream_type(item)


def stream_type(token: object, depth: SupportsIndex = Stream.DEFAULT_DEPTH) -> Any:
    """The type of a stream of elements, or of blocks of them."""
    if isinstance(token, GenericType):
        return token
    if isinstance(token, DType):
        token = TensorType(token, ())
    if not isinstance(token, TensorType):
        raise ProgramError(f"a stream carries elements or blocks of them, not {token!r}")
    tokens = _extent(depth, "a stream's depth")
    if tokens < 1:
        raise ProgramError(f"a stream's depth must be at least 1, not {tokens}")
    if tokens > MAX_DEPTH:
        raise ProgramError(f"a stream's depth must be at most {MAX_DEPTH:,}, not {tokens:,}")
    return StreamType(token.dtype, token.shape, tokens)


@dataclass(frozen=True)
class ConstExprType:
    """The annotation of a variable that is computed at compile time."""

    dtype: DType


class Struct:
    """`Struct({"x": int32, "y": float32})`: a variable of several fields, set by a dict and used as `p["x"]`."""

    def __init__(self, fields: Mapping[str, DType]) -> None:
        self.fields = {name: _element(dtype) for name, dtype in fields.items()}

    def __repr__(self) -> str:
        return f"Struct({self.fields})"


class ConstExpr:
    """`x: ConstExpr[int32] = M // P0`: a variable whose value is computed at compile time."""

    def __class_getitem__(cls, dtype: object) -> ConstExprType:
        return ConstExprType(_element(dtype))


@dataclass(frozen=True)
class StatefulType:
    """The annotation of a variable that keeps its value from one call to the next."""

    type: TensorType


class Stateful:
    """`x: Stateful[int32]` or `x: int32[4] @ Stateful`: a variable that keeps its value from one call to the next."""

    def __class_getitem__(cls, item: object) -> StatefulType:
        return StatefulType(item if isinstance(item, TensorType) else TensorType(_element(item), ()))


stateful = Stateful


def Int(bits: int) -> DType:
    """A signed integer of 1 to 1024 bits."""
    return DType(f"int{_width(bits)}", "int", bits)


def UInt(bits: int) -> DType:
    """An unsigned integer of 1 to 1024 bits."""
    return DType(f"uint{_width(bits)}", "uint", bits)


def Fixed(bits: int, fraction_bits: int) -> DType:
    """A signed fixed-point number of `bits` bits, `fraction_bits` of them after the point."""
    return DType(f"fixed{_width(bits)}_{_fraction(bits, fraction_bits)}", "fixed", bits, fraction_bits)


def UFixed(bits: int, fraction_bits: int) -> DType:
    """An unsigned fixed-point number of `bits` bits, `fraction_bits` of them after the point."""
    return DType(f"ufixed{_width(bits)}_{_fraction(bits, fraction_bits)}", "ufixed", bits, fraction_bits)


def Float(bits: int) -> DType:
    """An IEEE floating-point number of 16, 32 or 64 bits."""
    if bits not in (16, 32, 64):
        raise ProgramError(f"there is no float of {bits} bits", hint="use 16, 32 or 64")
    return DType(f"float{bits}", "float", bits)


def _width(bits: SupportsIndex) -> int:
    width = _extent(bits, "a width")
    if not 1 <= width <= MAX_BITS:
        raise ProgramError(f"a width must be 1 to {MAX_BITS} bits, not {width}")
    return width


def _fraction(bits: int, fraction_bits: SupportsIndex) -> int:
    fraction = _extent(fraction_bits, "the number of fraction bits")
    if not 0 <= fraction <= bits:
        raise ProgramError(f"a number of {bits} bits cannot have {fraction} fraction bits")
    return fraction


def _element(dtype: object) -> DType:
    if not isinstance(dtype, DType):
        raise ProgramError(f"expected an element type such as int32, not {dtype!r}")
    return dtype


def _extent(value: SupportsIndex | EllipsisType, what: str) -> int:
    if isinstance(value, EllipsisType):
        raise ProgramError(
            f"{what} must be known before it runs",
            hint="extents are constants of a program: float32[N], where N may be one of its parameters",
        )
    try:
        return operator.index(value)
    except TypeError:
        raise ProgramError(f"{what} must be an integer, not {value!r}") from None


def _extents(shape: Shape, what: str) -> tuple[int, ...]:
    extents = tuple(_extent(n, f"an extent of {what}") for n in (shape if isinstance(shape, tuple) else (shape,)))
    for extent in extents:
        if extent < 0:
            raise ProgramError(f"an extent of {what} must not be negative, not {extent}")
    return extents


AlloType = DType
bool = DType("bool", "bool", 1)
index = DType("index", "index", 64)
bfloat16 = DType("bfloat16", "bfloat", 16)
float16, float32, float64 = Float(16), Float(32), Float(64)
int1, int2, int3, int4, int5, int6, int7, int8, int9, int10, int11, int12, int13, int14, int15, int16 = (
    Int(n) for n in range(1, 17)
)
int32, int64, int128, int256, int512 = (Int(n) for n in (32, 64, 128, 256, 512))
(
    uint1,
    uint2,
    uint3,
    uint4,
    uint5,
    uint6,
    uint7,
    uint8,
    uint9,
    uint10,
    uint11,
    uint12,
    uint13,
    uint14,
    uint15,
    uint16,
) = (UInt(n) for n in range(1, 17))
uint32, uint64, uint128, uint256, uint512 = (UInt(n) for n in (32, 64, 128, 256, 512))
Index = index
