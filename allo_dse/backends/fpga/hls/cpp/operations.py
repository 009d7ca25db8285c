"""Operations on scalars (`arith`, `math`) as C++ expressions."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import AlloDseError
from allo_dse.common.mlir.bindings import ir

from .expressions import (
    BOOL,
    INDEX,
    NATIVE_BITS,
    Element,
    Node,
    as_signed,
    as_unsigned,
    call,
    cast,
    const,
    element_of,
    exact,
    extend,
    render,
    ring,
    tree,
    truncate,
    typed,
)

_FLOAT32 = Element("float", 32)
_RING = {"addi": "+", "subi": "-", "muli": "*", "andi": "&", "ori": "|", "xori": "^"}
_LOGIC = {"addi": "!=", "subi": "!=", "muli": "&&", "andi": "&&", "ori": "||", "xori": "!="}  # of single bits
_FLOAT = {"addf": "+", "subf": "-", "mulf": "*", "divf": "/"}
_DIVIDE = {"divsi": "/", "remsi": "%", "divui": "/", "remui": "%"}
_ROUNDED = {"floordivsi": "allo::floor_div", "ceildivsi": "allo::ceil_div"}
_EXTREME = {"max": "allo::maximum", "min": "allo::minimum"}
_SAME_NAME = (
    "exp exp2 expm1 log log2 log10 log1p sqrt rsqrt cbrt sin cos tan asin acos atan sinh cosh tanh erf floor ceil",
    "round trunc atan2 fma",
)
_MATH = {name: f"hls::{name}" for line in _SAME_NAME for name in line.split(" ")}
_MATH |= {"absf": "hls::fabs", "powf": "hls::pow", "copysign": "hls::copysign", "roundeven": "hls::rint"}
_ORDER = {0: "==", 1: "!=", 2: "<", 3: "<=", 4: ">", 5: ">=", 6: "<", 7: "<=", 8: ">", 9: ">="}
_FIRST_UNSIGNED = 6
_FLOAT_ORDER = {1: "==", 2: ">", 3: ">=", 4: "<", 5: "<=", 8: "==", 9: ">", 10: ">=", 11: "<", 12: "<=", 13: "!="}


def constant(op: ir.Operation) -> Node:
    """`arith.constant` of a scalar."""
    attribute, type_ = op.attributes["value"], element_of(op.results[0].type)
    if type_ == BOOL:
        return const(str(attribute).startswith(("true", "1", "-1")), BOOL)
    if type_.is_float:
        return const(ir.FloatAttr(attribute).value, type_)
    return const(int(str(attribute).split(" ")[0]), type_)


def scalar(op: ir.Operation, args: Sequence[Node]) -> Node:
    """The value of a scalar operation.

    Raises:
        AlloDseError: for an operation that has no translation.
    """
    dialect, _, name = op.name.partition(".")
    type_ = element_of(op.results[0].type)
    if dialect == "math":
        return _math(op.name, name, args, type_)
    if name in _CONVERSIONS:
        return _CONVERSIONS[name](args[0], type_)
    if name in _RING:
        a, b = args
        if type_ != BOOL:
            return ring(_RING[name], a, b, type_.bits)
        if name == "xori" and b.op == "const":
            return tree("!", BOOL, a) if b.value else a
        return tree(_LOGIC[name], BOOL, a, b)
    if name in _FLOAT:
        # bfloat16 arithmetic is done in float; every result is rounded.
        return exact(tree(_FLOAT[name], type_, *args, exact=type_.kind != "bfloat"))
    if name == "negf":
        return tree("neg", type_, args[0])
    if name == "remf":
        return call("hls::fmod", type_, *args)
    if name in _DIVIDE or name in _ROUNDED or name in ("shli", "shrsi", "shrui"):
        return _division_or_shift(name, args, type_)
    if name[:3] in _EXTREME:
        return _extreme(name, args, type_)
    if name in ("cmpi", "cmpf"):
        return _comparison(name, ir.IntegerAttr(op.attributes["predicate"]).value, args)
    if name == "select":
        return choice(args[0], args[1], args[2], type_)
    raise AlloDseError(f"HLS C++ has no translation for {op.name}")


def _division_or_shift(name: str, args: Sequence[Node], type_: Element) -> Node:
    a, b = args
    if name == "shli":
        return tree("<<", type_, typed(as_signed(a)), _amount(b), exact=type_.bits in (32, 64) or not type_.is_native)
    if name in ("shrsi", "shrui"):
        value = as_signed(a) if name == "shrsi" else as_unsigned(a)
        return tree(">>", value.type, value, _amount(b), exact=True)
    if name == "floordivsi" and b.op == "const" and b.value > 0 and b.value & (b.value - 1) == 0:
        return _division_or_shift("shrsi", (a, const(b.value.bit_length() - 1, b.type)), type_)
    if name in _ROUNDED:
        return call(f"{_ROUNDED[name]}<{type_}>", type_, as_signed(a), as_signed(b))
    read = as_signed if name.endswith("si") else as_unsigned
    result = type_.signed if name.endswith("si") else type_.unsigned
    a, b = read(a), read(b)
    if b.op != "const" or b.value in (0, -1):
        b = call(f"allo::divisor<{result}>", result, a, b)
    return tree(_DIVIDE[name], result, a, b, exact=type_.bits in (32, 64))


def _amount(node: Node) -> Node:
    """A shift amount."""
    if node.op == "const":
        return const(node.value, INDEX)
    value = as_unsigned(node)
    return value if value.type.is_native and value.type.bits <= 32 else cast(value, INDEX)


def _extreme(name: str, args: Sequence[Node], type_: Element) -> Node:
    if name in ("maxnumf", "minnumf"):
        return call(f"hls::f{name[:3]}", type_, *args)
    if type_.is_float:
        return call(f"{_EXTREME[name[:3]]}<{type_}>", type_, *args)
    if type_ == BOOL:  # read as unsigned, the only way in which programs compare single bits
        return tree("||" if name[:3] == "max" else "&&", BOOL, *args)
    wanted = type_.unsigned if name.endswith("ui") else type_.signed
    read = as_unsigned if name.endswith("ui") else as_signed
    return call(f"{_EXTREME[name[:3]]}<{wanted}>", wanted, *(read(a) for a in args))


def _comparison(name: str, predicate: int, args: Sequence[Node]) -> Node:
    a, b = args
    if name == "cmpf":
        if predicate == 7:
            return tree("&&", BOOL, tree("==", BOOL, a, a), tree("==", BOOL, b, b))
        if predicate not in _FLOAT_ORDER:
            raise AlloDseError(f"HLS C++ has no translation for the comparison {predicate} of floating-point numbers")
        return tree(_FLOAT_ORDER[predicate], BOOL, a, b)
    if a.type == BOOL:
        return tree(_ORDER[predicate], BOOL, a, b)
    unsigned = predicate >= _FIRST_UNSIGNED or (predicate < 2 and a.type.kind == "uint")
    read = as_unsigned if unsigned else as_signed
    return tree(_ORDER[predicate], BOOL, read(a), read(b))


def choice(condition: Node, yes: Node, no: Node, type_: Element) -> Node:
    """Return `condition ? yes : no`, which computes only the chosen operand."""
    if type_ == BOOL and no.op == "const" and not no.value:
        return tree("&&", BOOL, condition, yes)
    if type_ == BOOL and yes.op == "const" and yes.value:
        return tree("||", BOOL, condition, no)
    if type_.is_integer:
        type_ = yes.type if yes.type == no.type else type_
        yes, no = (as_unsigned(n) if type_.kind == "uint" else as_signed(n) for n in (yes, no))
        if not type_.is_native or yes.op == no.op == "const":
            yes, no = typed(yes), typed(no)
    return tree("?", type_, condition, yes, no, exact=not type_.is_integer or type_.bits >= 32)


# -- conversions -----------------------------------------------------------------------------------------------------


def _to_bool_or_int(a: Node, type_: Element) -> Node:
    if type_ == BOOL:
        one = ring("&", a, const(1, a.type), a.type.bits)
        return tree("!=", BOOL, exact(one), const(0, a.type))
    return truncate(a, type_.bits)


def _signed_extension(a: Node, type_: Element) -> Node:
    if a.type == BOOL:
        return tree("?", type_, a, tree("cast", type_, const(-1, type_)), tree("cast", type_, const(0, type_)))
    return extend(as_signed(a), type_.signed)


def _index_cast(a: Node, type_: Element) -> Node:
    """Convert between `index`, which is `int` in C++, and integers."""
    if type_ == BOOL:
        return _to_bool_or_int(a, BOOL)
    if a.type == BOOL:
        return extend(a, type_)
    if a.type.bits == type_.bits:
        return as_signed(a)
    return extend(as_signed(a), type_.signed) if a.type.bits < type_.bits else truncate(as_signed(a), type_.bits)


def _from_int(a: Node, type_: Element, signed: bool) -> Node:
    if a.type == BOOL:
        return cast(cast(a, INDEX), type_)
    value = as_signed(a) if signed else as_unsigned(a)
    if value.type.bits > NATIVE_BITS[-1]:
        through = Element("float", max(32, type_.bits))
        return cast(call(f"allo::rounded<{through}>", through, typed(value)), type_)
    if type_.kind == "bfloat" or type_.bits == 16:
        return cast(cast(value, _FLOAT32), type_)
    return cast(value, type_)


def _between_floats(a: Node, type_: Element) -> Node:
    if "bfloat" in (a.type.kind, type_.kind) and _FLOAT32 not in (a.type, type_):
        return cast(cast(a, _FLOAT32), type_)
    return cast(a, type_)


def _to_int(a: Node, type_: Element) -> Node:
    if a.type.bits == 16:
        a = cast(a, _FLOAT32)
    return cast(a, type_)


_CONVERSIONS: dict[str, Callable[[Node, Element], Node]] = {
    "trunci": _to_bool_or_int,
    "extsi": _signed_extension,
    "extui": lambda a, type_: extend(a, type_) if a.type == BOOL else extend(as_unsigned(a), type_.unsigned),
    "index_cast": _index_cast,
    "index_castui": lambda a, type_: (
        _index_cast(a, type_) if BOOL in (a.type, type_) or a.type.bits >= type_.bits else extend(as_unsigned(a), type_)
    ),
    "sitofp": lambda a, type_: _from_int(a, type_, True),
    "uitofp": lambda a, type_: _from_int(a, type_, False),
    "fptosi": _to_int,
    "fptoui": lambda a, type_: _to_int(a, type_.unsigned),
    "extf": _between_floats,
    "truncf": _between_floats,
    "bitcast": lambda a, type_: (
        a if type_.is_integer and a.type.is_integer else call(f"allo::bit_cast<{type_}>", type_, exact(a))
    ),
}


def _math(full: str, name: str, args: Sequence[Node], type_: Element) -> Node:
    if name == "absi":
        negative = exact(ring("-", const(0, type_), as_signed(args[0]), type_.bits))
        return call(f"allo::maximum<{type_}>", type_, as_signed(args[0]), negative)
    if name not in _MATH:
        raise AlloDseError(f"HLS C++ has no translation for {full}")
    if type_.kind == "bfloat":
        return cast(call(_MATH[name], _FLOAT32, *(cast(a, _FLOAT32) for a in args)), type_)
    return call(_MATH[name], type_, *args)


# Constant arrays of task bodies, and initial values, as C++.


_GLOBAL = re.compile(r'memref\.global "private" constant @(\S+) : memref<([^>]*)> = dense<(.*)>$', re.MULTILINE)


def tables_of(mlir: str) -> dict[str, tuple[str, str]]:
    """Per constant array of a body its MLIR type (`4x8xi16`) and its elements in nested brackets."""
    return {name: (type_, _listed(type_, elements)) for name, type_, elements in _GLOBAL.findall(mlir)}


def _listed(type_: str, elements: str) -> str:
    """The elements in brackets. MLIR prints more than a hundred of them as one string of their bytes."""
    if not elements.startswith('"0x'):
        return elements
    shape, element = elements_of(type_)
    raw = bytes.fromhex(elements.strip('"')[2:])
    width = len(raw) // math.prod(shape) if element.kind != "bool" else 1
    numbers = np.frombuffer(raw, f"<{'u' if element.is_float else 'i'}{width}").reshape(shape).tolist()
    return str(numbers) if not element.is_float else re.sub(r"\d+", lambda found: hex(int(found.group())), str(numbers))


def elements_of(type_: str) -> tuple[tuple[int, ...], Element]:
    """Shape and element type of `4x8xi16`."""
    *extents, name = type_.split("x")
    return tuple(map(int, extents)), element_of(ir.Type.parse(name))


def initialiser(elements: str, element: Element) -> str:
    """MLIR's nested lists as nested braces."""
    text = re.sub(r"[^\[\], ]+", lambda match: _literal(match.group(), element), elements)
    return text.replace("[", "{").replace("]", "}")


def _literal(text: str, element: Element) -> str:
    if element.kind == "bool":
        return text
    if not element.is_float:
        return render(const(int(text), element))
    if text.startswith("0x"):
        return f"allo::bit_cast<{element}>((uint{element.bits}_t){text})"
    return render(const(float(text), element))


def nested(values: NDArray[np.generic], element: Element) -> str:
    """A NumPy array as nested braces."""
    if values.dtype.kind == "V":  # a compiler evaluates narrow floats that are given by their bits
        return re.sub(r"\d+", r"{\g<0>, 0}", nested(values.view(np.uint16), Element("int", 32)))
    if values.ndim:
        return "{" + ", ".join(nested(row, element) for row in values) + "}"
    return render(const(values.item() if element.is_float else int(values), element))
