"""Bit width that a kernel's indices need: every bit of a loop counter costs registers and adders of the circuit.

Sums and products may wrap around, since addresses are taken modulo the width; what is compared, divided or converted
must be exact. So each index of the structured form is given an interval, and the width is that of the largest.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from allo_dse.ir.bindings import ir
from allo_dse.simulator.codegen.lowering.stream_ops import find

Interval = tuple[int, int]

WIDEST = 32
_ANY: Interval = (-(2 ** (WIDEST - 1)), 2 ** (WIDEST - 1) - 1)


def index_width(function: ir.OpView, mesh: tuple[int, ...]) -> int:
    """Bits, with sign, that hold every index of a function in structured control flow (scf, arith, memref)."""
    known: dict[str, Interval] = {}
    for number, extent in enumerate(mesh):
        known[_name(function.regions[0].blocks[0].arguments[number])] = (0, extent - 1)
    for op in find(function, lambda _: True):
        if op.name == "scf.for":
            low, high = _of(known, op.operands[0])[0], _of(known, op.operands[1])[1]
            step = _of(known, op.operands[2])[1]  # the counter's last value, beyond the bound, is compared too
            known[_name(op.regions[0].blocks[0].arguments[0])] = (low, max(low, min(high + step, _ANY[1])))
        elif len(op.results) == 1 and _is_index(op.results[0]):
            known[_name(op.results[0])] = _interval(op, known)
    values = [known.get(_name(v), _ANY) for op in find(function, lambda _: True) for v in _indices(op)]
    sizes = [(0, math.prod(ir.MemRefType(v.type).shape)) for op in find(function, _touches) for v in _arrays(op)]
    return max([2, *(_bits(interval) for interval in values + sizes)])


def _touches(name: str) -> bool:
    return name in ("memref.load", "memref.store")


def _arrays(op: ir.Operation) -> list[ir.Value]:
    return [value for value in op.operands if isinstance(value.type, ir.MemRefType)]


def _indices(op: ir.Operation) -> list[ir.Value]:
    own: list[ir.Value] = list(op.results)
    for region in op.regions:
        own += [argument for block in region.blocks for argument in block.arguments]
    return [value for value in own if _is_index(value)] if op.name != "func.func" else []


def _is_index(value: ir.Value) -> bool:
    return isinstance(value.type, ir.IndexType)


def _name(value: ir.Value) -> str:
    return value.get_name()


def _of(known: dict[str, Interval], value: ir.Value) -> Interval:
    return known.get(_name(value), _ANY)


def _bits(interval: Interval) -> int:
    return max((-1 - interval[0]).bit_length() if interval[0] < 0 else 0, interval[1].bit_length()) + 1


def _interval(op: ir.Operation, known: dict[str, Interval]) -> Interval:
    if op.name == "arith.constant":
        value = ir.IntegerAttr(op.attributes["value"]).value
        return value, value
    operands = [_of(known, value) for value in op.operands if _is_index(value)]
    if op.name == "arith.index_cast":
        width = ir.IntegerType(op.operands[0].type).width
        return (-(2 ** (width - 1)), 2 ** (width - 1) - 1) if width < WIDEST else _ANY
    combine = _COMBINE.get(op.name)
    if combine is None or not operands:
        return _ANY
    low, high = combine(*operands)
    return (low, high) if _ANY[0] <= low and high <= _ANY[1] else _ANY


def _products(a: Interval, b: Interval) -> Interval:
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)


def _quotient(a: Interval, b: Interval) -> Interval:
    return min(a[0], -abs(a[1]) if b[0] < 0 else 0), max(a[1], abs(a[0]) if b[0] < 0 else 0)


def _remainder(a: Interval, b: Interval) -> Interval:
    most = max(abs(b[0]), abs(b[1])) - 1
    return (-most if a[0] < 0 else 0), most


_COMBINE: dict[str, Callable[[Interval, Interval], Interval]] = {
    "arith.addi": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "arith.subi": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "arith.muli": _products,
    "arith.divsi": _quotient,
    "arith.remsi": _remainder,
    "arith.select": lambda a, b: (min(a[0], b[0]), max(a[1], b[1])),
    "arith.minsi": lambda a, b: (min(a[0], b[0]), min(a[1], b[1])),
    "arith.maxsi": lambda a, b: (max(a[0], b[0]), max(a[1], b[1])),
}
