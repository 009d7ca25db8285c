"""C++ expressions as trees, so that conversions are written only where they change something."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from allo_dse.common.errors import AlloDseError
from allo_dse.common.mlir.bindings import ir
from allo_dse.common.records import Frozen, replace
from allo_dse.lang.types import DType

# Element types in C++.


NATIVE_BITS = (8, 16, 32, 64)
INT_BITS = 32
"""Width of `int`: of indices, and of a number written alone."""
_FLOATS = {16: "half", 32: "float", 64: "double"}


class Element(Frozen):
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
INDEX = Element("int", INT_BITS)


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


PRIMARY, UNARY = 16, 15
_PRECEDENCE = {"*": 13, "/": 13, "%": 13, "+": 12, "-": 12, "<<": 11, ">>": 11, "<": 9, "<=": 9, ">": 9, ">=": 9}
_PRECEDENCE |= {"==": 8, "!=": 8, "&": 7, "^": 6, "|": 5, "&&": 4, "||": 3, "?": 2}
RING = frozenset({"+", "-", "*", "&", "|", "^"})
"""Operators whose low bits depend on the low bits of their operands only."""
_LONGEST = 90
_INT32 = range(-(1 << 31) + 1, 1 << 31)


class Node(Frozen, eq=False):
    """An expression.

    Attributes:
        op: "leaf", "const", "call", "cast", "extend", a unary "!" or "neg", "?", or a binary operator.
        type: what the value is.
        exact: whether C++ gives the expression that value; otherwise it must be converted to `type` first (sums of
            arbitrary-width integers have more bits, those of short ones are `int`).
        reads: the variables and arrays that it reads.
        value: of a constant.
    """

    op: str
    type: Element
    args: tuple[Node, ...] = ()
    text: str = ""
    exact: bool = True
    reads: frozenset[object] = frozenset()
    value: Any = None

    @property
    def is_simple(self) -> bool:
        return self.op in ("leaf", "const")


def leaf(text: str, type_: Element, reads: frozenset[object] = frozenset()) -> Node:
    return Node("leaf", type_, (), text, reads=reads)


def const(value: float, type_: Element) -> Node:
    return Node("const", type_, value=value)


def tree(op: str, type_: Element, *args: Node, text: str = "", exact: bool = True) -> Node:
    reads = frozenset().union(*(a.reads for a in args)) if args else frozenset()
    return Node(op, type_, args, text, exact, reads)


def call(function: str, type_: Element, *args: Node) -> Node:
    return tree("call", type_, *args, text=function)


def cast(node: Node, type_: Element) -> Node:
    """The value converted as C++ converts it."""
    if node.type == type_ and node.exact:
        return node
    if node.op == "const" and type_.is_integer:
        return const(wrapped(node.value, type_), type_)
    return tree("cast", type_, node)


def wrapped(value: int, type_: Element) -> int:
    """An integer as a type of limited width holds it."""
    value &= (1 << type_.bits) - 1
    return value - (1 << type_.bits) if type_.kind == "int" and value >> (type_.bits - 1) else value


def exact(node: Node) -> Node:
    """The same value with C++ type `node.type`."""
    return node if node.exact else tree("cast", node.type, node)


def as_signed(node: Node) -> Node:
    """An integer read as signed."""
    return exact(node) if node.type.kind == "int" else cast(node, node.type.signed)


def as_unsigned(node: Node) -> Node:
    """An integer read as unsigned."""
    return exact(node) if node.type.kind == "uint" else cast(node, node.type.unsigned)


def typed(node: Node) -> Node:
    """The same value with C++ type `node.type` and no other.

    Elsewhere a value may have a type of more bits: a number written alone is an `int`, or long, and so is what it is
    combined with.
    """
    if node.op == "const":
        alone = node.type.is_native and node.type.bits <= INT_BITS
        return node if alone else tree("cast", node.type, node)
    return exact(node) if node.type.is_native or _bits_in_cpp(node) <= node.type.bits else tree("cast", node.type, node)


def _bits_in_cpp(node: Node) -> int:
    """Width of the type that C++ gives an integer expression."""
    if node.op == "const":
        return INT_BITS if node.value in _INT32 else 2 * INT_BITS
    if node.op in RING:
        return max(map(_bits_in_cpp, node.args))
    return _bits_in_cpp(node.args[0]) if node.op == ">>" else node.type.bits


def extend(node: Node, type_: Element) -> Node:
    """An integer as a wider one of the same value."""
    if node.op == "const":
        return const(node.value, type_)
    return tree("extend", type_, exact(node))


def ring(op: str, a: Node, b: Node, bits: int) -> Node:
    """A sum, difference, product or bitwise combination modulo 2^bits."""
    # As in C++: an unsigned operand of a machine's width makes the result unsigned, one of another width both do.
    unsigned = [n.type.kind == "uint" for n in (a, b)]
    kind = "uint" if all(unsigned) or (any(unsigned) and bits in (32, 64)) else "int"
    type_ = Element(kind, bits)  # type: ignore[arg-type]
    if not type_.is_native:
        a, b = exact(a), exact(b)
    kept = bits in (32, 64) or (op in "&|^" and a.type.kind == b.type.kind and a.exact and b.exact)
    return tree(op, type_, a, b, exact=kept)


def truncate(node: Node, bits: int) -> Node:
    """Return the low bits of an integer, computed in that width from the start if the result is the same."""
    type_ = Element("uint" if node.type.kind == "uint" else "int", bits)
    if node.op == "const":
        return const(wrapped(node.value, type_), type_)
    if node.op == "extend":
        (inner,) = node.args
        if inner.type.kind == "bool":
            return tree("extend", type_, inner)
        if inner.type.bits == bits:
            return inner
        return truncate(inner, bits) if inner.type.bits > bits else extend(inner, replace(inner.type, bits=bits))
    if node.op in RING and node.type.is_integer and node.type.bits > bits:
        a, b = (truncate(arg, bits) for arg in node.args)
        return ring(node.op, a, b, bits)
    if node.op == "?":
        condition, yes, no = node.args[0], truncate(node.args[1], bits), truncate(node.args[2], bits)
        if yes.type == no.type and type_.is_native:
            return tree("?", yes.type, condition, exact(yes), exact(no))
    return tree("cast", type_, exact(node))


def bit_range(node: Node, place: str) -> tuple[int, int, Node] | None:
    """Return the highest bit, the lowest bit and the new value if `place = node` only sets some bits of an integer.

    The form is `place & ~(ones << low) | (value & ones) << low`.
    """
    if node.op != "|" or node.type.is_native:
        return None
    for kept, new in (node.args, node.args[::-1]):
        if kept.op != "&" or kept.args[1].op != "const" or render(exact(kept.args[0])) != place:
            continue
        low = new.args[1].value if new.op == "<<" and new.args[1].op == "const" else 0
        value = _unwrapped(new.args[0] if low else new)
        hole = ~kept.args[1].value & ((1 << node.type.bits) - 1)
        width = (hole >> low).bit_length()
        if hole != ((1 << width) - 1) << low or low + width > node.type.bits:
            continue
        if value.op == "&" and value.args[1].op == "const" and value.args[1].value == (1 << width) - 1:
            return low + width - 1, low, _unwrapped(value.args[0])
        if value.type.bits <= width or value.type.kind == "bool":
            return low + width - 1, low, value
    return None


def _unwrapped(node: Node) -> Node:
    """The integer before it was extended."""
    while node.op == "extend" or (node.op == "cast" and node.args[0].type.bits <= node.type.bits):
        node = node.args[0]
    return node


# -- text ------------------------------------------------------------------------------------------------------------


def render(node: Node, least: int = 0) -> str:
    """C++ text, in parentheses if it binds weaker than `least`."""
    text, precedence = _text(node)
    return f"({text})" if precedence < least else text


def _text(node: Node) -> tuple[str, int]:
    args = node.args
    if node.op == "leaf":
        return node.text, PRIMARY
    if node.op == "const":
        return _const(node)
    if node.op == "call":
        return f"{node.text}({', '.join(render(a) for a in args)})", PRIMARY
    if node.op in ("cast", "extend"):
        return f"({node.type}){render(args[0], UNARY)}", UNARY
    if node.op in ("!", "neg"):
        return f"{'!' if node.op == '!' else '-'}{render(args[0], PRIMARY)}", UNARY
    if node.op == "?":
        condition, yes, no = args
        return f"{render(condition, 3)} ? {render(yes, 3)} : {render(no, 3)}", 2
    precedence = _PRECEDENCE[node.op]
    least = UNARY if node.op in ("&", "|", "^", "<<", ">>") else 5 if node.op in ("&&", "||") else precedence
    right = least + (node.op in _PRECEDENCE and least == precedence)
    return f"{render(args[0], least)} {node.op} {render(args[1], right)}", precedence


def _const(node: Node) -> tuple[str, int]:
    if node.type == BOOL:
        return ("true" if node.value else "false"), PRIMARY
    if node.type.is_float:
        number = float(node.value)
        if not math.isfinite(number):
            text = "NAN" if number != number else "INFINITY" if number > 0 else "-INFINITY"
            return f"({node.type}){text}", UNARY
        if node.type.kind == "float" and node.type.bits >= 32:
            return f"{number!r}{'f' if node.type.bits == 32 else ''}", UNARY if number < 0 else PRIMARY
        return f"({node.type}){number!r}f", UNARY
    value, precedence = node.value, UNARY if node.value < 0 else PRIMARY
    if node.type == Element("uint", 32):
        return f"{value}u", precedence
    if value in _INT32:
        return str(value), precedence
    if value == -(1 << 31) and node.type == Element("int", 32):
        return "(-2147483647 - 1)", PRIMARY
    if 0 <= value < 1 << 64:
        return f"{value}{'ull' if value >> 63 or node.type.kind == 'uint' else 'll'}", PRIMARY
    if -(1 << 63) < value < 0:
        return f"{value}ll", UNARY
    if value == -(1 << 63):
        return "(-9223372036854775807ll - 1)", PRIMARY
    return _wide(value, node.type), _PRECEDENCE["|"]


def _wide(value: int, type_: Element) -> str:
    """An integer of more than 64 bits: a short one shifted, the complement of one, or put together from words."""
    if value == (1 << type_.bits) - 1:
        return f"({type_})-1"
    for number, sign in ((value, ""), (~value, "~")):
        shift = (number & -number).bit_length() - 1
        if 0 < number >> shift < 1 << 64:
            return f"{sign}(({type_}){number >> shift}ull << {shift})"
        if number < 0 and number >> shift == -1:
            return f"{sign}(({type_})-1 << {shift})"
    words = [(value >> shift & (1 << 64) - 1, shift) for shift in range(0, type_.bits, 64)]
    return " | ".join(f"(({type_}){word}ull << {shift})" for word, shift in words if word)


def too_long(node: Node) -> bool:
    """Return whether an expression should get a name before it grows further."""
    return len(render(node)) > _LONGEST


# Names of programs as C++ identifiers.


_RESERVED = frozenset(
    word
    for line in (
        "alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class",
        "compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype",
        "default delete do double dynamic_cast else enum explicit export extern false float for friend goto if inline",
        "int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public",
        "register reinterpret_cast requires return short signed sizeof static static_assert static_cast struct switch",
        "template this thread_local throw true try typedef typeid typename union unsigned using virtual void volatile",
        "wchar_t while xor xor_eq main std hls allo half ap_int ap_uint ap_fixed ap_ufixed stdin stdout stderr errno",
        "NAN INFINITY TASK int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t abs exp log log2",
        "log10 sqrt sin cos tan tanh pow floor ceil round erf gamma j0 j1 jn y0 y1 yn index time clock read write",
        "signal random rand exit abort remove rename div free malloc",
    )
    for word in line.split(" ")
)
"""Keywords, and names of the libraries that a kernel includes."""
_MOST_DIMS = 64


def counter_of(dim: int) -> str:
    """The variable of a loop over a dimension."""
    return "ijklmn"[dim] if dim < 6 else f"n{dim}"


PIDS = frozenset(f"p{axis}" for axis in range(_MOST_DIMS))
LOCALS = PIDS | {"t", "tile", "lane", "word", "element", "place", "way", "shape", "asked", "came", "there", "memory"}
LOCALS |= {counter_of(dim) for dim in range(_MOST_DIMS)}
"""Variables of functions around those of tasks, which would hide names of programs."""


def identifier(name: str) -> str:
    """A valid C++ identifier that resembles `name`; equal for equal names."""
    text = re.sub(r"[^A-Za-z0-9_]", lambda match: f"u{ord(match.group()):x}", name) or "x"
    text = re.sub(r"__+", "_", text)
    if text[0].isdigit() or (text[0] == "_" and (len(text) == 1 or text[1].isupper())):
        text = f"x{text}"
    return f"{text}_" if text in _RESERVED else text


class Names:
    """Identifiers of one scope, each given out once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        self._next: dict[str, int] = {}

    @contextmanager
    def scope(self) -> Iterator[None]:
        """A C++ block: names given out inside are free again behind it."""
        taken, following = set(self._taken), dict(self._next)
        yield
        self._taken, self._next = taken, following

    def new(self, wanted: str) -> str:
        """Return `wanted` as an identifier, with a number appended if it is taken."""
        base = identifier(wanted)
        name = base
        while name in self._taken:
            self._next[base] = self._next.get(base, 0) + 1
            name = f"{base}_{self._next[base]}"
        self._taken.add(name)
        return name
