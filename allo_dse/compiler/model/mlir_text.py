"""Writes the MLIR text of one function."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from allo_dse.common.records import Array
from allo_dse.lang.types import DType


def element_type(dtype: DType) -> str:
    """The MLIR type of one element (integers are signless)."""
    if dtype.kind == "index":
        return "index"
    if dtype.kind == "bfloat":
        return "bf16"
    return f"f{dtype.bits}" if dtype.kind == "float" else f"i{dtype.bits}"


def memref_type(dtype: DType, shape: Sequence[int], strided: bool = False) -> str:
    """The memref type of a tile: contiguous, or with strides and an offset that are known at run time."""
    extents = "".join(f"{n}x" for n in shape)
    layout = f", strided<[{', '.join('?' * len(shape))}], offset: ?>" if strided and shape else ""
    return f"memref<{extents}{element_type(dtype)}{layout}>"


def literal(value: float, dtype: DType) -> str:
    """A number as MLIR writes it."""
    if dtype.kind == "bool":
        return "true" if value else "false"
    if not dtype.is_float:
        bits = 64 if dtype.kind == "index" else dtype.bits
        wrapped = int(value) & ((1 << bits) - 1)
        return str(wrapped - (1 << bits) if wrapped >> (bits - 1) else wrapped)
    value = float(value)
    if math.isfinite(value):
        text = repr(value)
        mantissa, exponent, power = text.partition("e")
        return text if "." in mantissa else f"{mantissa}.0{exponent}{power}"
    kind = {64: "Qd", 16: "He"}.get(dtype.bits if dtype.kind == "float" else 0, "If")
    bits = struct.unpack(f"<{kind[0]}", struct.pack(f"<{kind[1]}", value))[0]
    if dtype.kind == "bfloat":  # the upper half of a float32
        bits >>= 16
    return f"0x{bits:0{dtype.bits // 4}X}"  # infinities and NaN as bit patterns


def dense(array: Array, dtype: DType) -> str:
    """The elements of a constant array as MLIR writes them."""
    if array.ndim == 0:
        return literal(array.item(), dtype)
    return f"[{', '.join(dense(row, dtype) for row in array)}]"


def _named(name: str) -> str:
    """The attribute that tells code generators a variable's name in the source."""
    return f' {{df.name = "{name}"}}' if name else ""


class FunctionText:
    """The body of a function under construction.

    Constants, values that depend on the pid only, and local arrays stand at the top; arrays are freed at the end.

    Attributes:
        arrays: the values of local arrays and mutable scalars, in the order in which they are allocated.
    """

    def __init__(self) -> None:
        self._head: list[str] = []
        self._lines: list[str] = []
        self._allocated: list[tuple[str, str]] = []
        self._shared: dict[str, str] = {}
        self._globals: dict[tuple[str, str], str] = {}
        self._counter = 0
        self.arrays: list[str] = []
        self._depth = 1

    def name(self) -> str:
        """A fresh value name."""
        self._counter += 1
        return f"%{self._counter - 1}"

    def line(self, text: str) -> None:
        """An operation without results."""
        self._lines.append("  " * self._depth + text)

    def op(self, text: str) -> str:
        """Write an operation with one result; returns the result's name."""
        result = self.name()
        self.line(f"{result} = {text}")
        return result

    def shared(self, text: str) -> str:
        """An operation at the top of the function, written once however often it is asked for."""
        if text not in self._shared:
            self._shared[text] = self.name()
            self._head.append(f"  {self._shared[text]} = {text}")
        return self._shared[text]

    def constant(self, value: float, dtype: DType) -> str:
        text = literal(value, dtype)
        type_ = "" if dtype.kind == "bool" else f" : {element_type(dtype)}"
        return self.shared(f"arith.constant {text}{type_}")

    def alloc(self, type_: str, name: str = "") -> str:
        """A local array; `name` is its name in the source."""
        result = self.name()
        self._head.append(f"  {result} = memref.alloc(){_named(name)} : {type_}")
        self._allocated.append((result, type_))
        self.arrays.append(result)
        return result

    def slot(self, type_: str, name: str = "") -> str:
        """A mutable scalar; `name` is its name in the source."""
        result = self.name()
        self._head.append(f"  {result} = memref.alloca(){_named(name)} : {type_}")
        self.arrays.append(result)
        return result

    def global_constant(self, symbol: str, dense: str, type_: str) -> str:
        """A constant array; `symbol` is made unique by numbering."""
        name = self._globals.setdefault((type_, dense), f"{symbol}_table{len(self._globals)}")
        return self.shared(f"memref.get_global @{name} : {type_}")

    @contextmanager
    def continued(self, closing: str = "}") -> Iterator[None]:
        """The second region of an operation, after the first was closed with "} else {"."""
        self._depth += 1
        yield
        self._depth -= 1
        self.line(closing)

    @contextmanager
    def block(self, opening: str, closing: str = "}") -> Iterator[None]:
        """An operation with a region."""
        self.open(opening)
        yield
        self.close(closing)

    def open(self, opening: str) -> None:
        """The beginning of an operation with a region."""
        self.line(opening)
        self._depth += 1

    def close(self, closing: str = "}") -> None:
        """The end of an operation with a region."""
        self._depth -= 1
        self.line(closing)

    @contextmanager
    def captured(self) -> Iterator[list[str]]:
        """Operations written inside go into the list instead, to be placed later with `choose`."""
        outer, self._lines = self._lines, []
        lines = self._lines
        depth, self._depth = self._depth, 0
        yield lines
        self._lines, self._depth = outer, depth

    def choose(self, condition: str, type_: str, then: Sequence[str], otherwise: Sequence[str]) -> str:
        """`scf.if` with a result; both sides are captured lines that end in a yield."""
        result = self.name()
        with self.block(f"{result} = scf.if {condition} -> ({type_}) {{", "} else {"):
            self._lines.extend("  " * self._depth + line for line in then)
        self._depth += 1
        self._lines.extend("  " * self._depth + line for line in otherwise)
        self._depth -= 1
        self.line("}")
        return result

    def finish(self, symbol: str, arguments: Sequence[tuple[str, str]]) -> str:
        """The text of the function, and of the constant arrays it uses."""
        tables = [
            f'memref.global "private" constant @{name} : {type_} = dense<{dense}>'
            for (type_, dense), name in self._globals.items()
        ]
        signature = ", ".join(f"{name}: {type_}" for name, type_ in arguments)
        free = [f"  memref.dealloc {name} : {type_}" for name, type_ in self._allocated]
        body = [*self._head, *self._lines, *free, "  return"]
        return "\n".join([*tables, f"func.func @{symbol}({signature}) {{", *body, "}", ""])
