"""Constant arrays of task bodies, and initial values, as C++."""

from __future__ import annotations

import math
import re

import numpy as np
from numpy.typing import NDArray

from .elements import Element
from .expressions import const, render

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
    if name == "bf16":
        element = Element("bfloat", 16)
    elif name == "i1":
        element = Element("bool", 1)
    elif name == "index":
        element = Element("int", 32)
    else:
        element = Element("float" if name[0] == "f" else "int", int(name[1:]))
    return tuple(map(int, extents)), element


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
    if values.ndim:
        return "{" + ", ".join(nested(row, element) for row in values) + "}"
    value = values.item()
    if element.kind == "bool":
        return "true" if value else "false"
    return render(const(value if element.is_float else int(value), element))
