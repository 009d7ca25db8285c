"""Element types in C++."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from allo_dse.common.errors import AlloDseError
from allo_dse.ir.bindings import ir
from allo_dse.lang.types import DType

NATIVE_BITS = (8, 16, 32, 64)
INDEX_BITS = 32
_FLOATS = {16: "half", 32: "float", 64: "double"}


class Element(Struct, frozen=True):
    """A C++ scalar type: `bool`, a signed or unsigned integer of any width, or a floating-point number.

    MLIR's integers have no sign; a value is held as whichever type saves conversions.
    """

    kind: Literal["bool", "int", "uint", "float", "bfloat"]
    bits: int

    @property
    def is_integer(self) -> bool:
        return self.kind in ("int", "uint")

    @property
    def is_float(self) -> bool:
        return self.kind in ("float", "bfloat")

    @property
    def is_native(self) -> bool:
        """True if C++ itself has the type."""
        return self.kind in ("bool", "float") or (self.is_integer and self.bits in NATIVE_BITS)

    @property
    def signed(self) -> Element:
        return Element("int", self.bits)

    @property
    def unsigned(self) -> Element:
        return Element("uint", self.bits)

    def __str__(self) -> str:
        if self.kind == "bool":
            return "bool"
        if self.kind == "bfloat":
            return "allo::bfloat16"
        if self.kind == "float":
            return _FLOATS[self.bits]
        prefix = "u" if self.kind == "uint" else ""
        return f"{prefix}int{self.bits}_t" if self.bits in NATIVE_BITS else f"ap_{prefix}int<{self.bits}>"


BOOL = Element("bool", 1)
INDEX = Element("int", INDEX_BITS)


def element_of(type_: ir.Type) -> Element:
    """The C++ type of a value of an MLIR type; integers count as signed."""
    if isinstance(type_, ir.IndexType):
        return INDEX
    if isinstance(type_, ir.BF16Type):
        return Element("bfloat", 16)
    if isinstance(type_, ir.FloatType):
        return Element("float", ir.FloatType(type_).width)
    if isinstance(type_, ir.IntegerType):
        bits = ir.IntegerType(type_).width
        return BOOL if bits == 1 else Element("int", bits)
    raise AlloDseError(f"HLS C++ has no type for {type_}")


def element_of_dtype(dtype: DType) -> Element:
    """The C++ type that holds the bits of a value of a program's element type."""
    if dtype.kind == "index":
        return INDEX
    if dtype.is_float:
        return Element("bfloat" if dtype.kind == "bfloat" else "float", dtype.bits)
    if dtype.bits == 1:
        return BOOL
    return Element("int" if dtype.is_signed else "uint", dtype.bits)


def interface_type(dtype: DType) -> str:
    """The C++ type of an element of a top-level argument: that of the program, fixed point included."""
    if not dtype.is_fixed:
        return str(element_of_dtype(dtype))
    prefix = "" if dtype.is_signed else "u"
    return f"ap_{prefix}fixed<{dtype.bits}, {dtype.bits - dtype.fraction_bits}>"
