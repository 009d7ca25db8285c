"""Integer extensions that change nothing: only the original bits count later, or the value fits."""

from __future__ import annotations

from collections.abc import Container

from allo_dse.common.mlir.bindings import ir

Interval = tuple[int, int]
EXTENSIONS = ("arith.extsi", "arith.extui")
_SUMS = ("arith.addi", "arith.subi", "arith.muli")


def constant_of(value: ir.Value) -> int | None:
    """Return the value of an integer constant, signed as its type holds it."""
    if isinstance(value, ir.BlockArgument) or value.owner.name != "arith.constant":
        return None
    text = str(value.owner.attributes["value"]).partition(" :")[0]  # IntegerAttr.value stops at 64 bits
    if text in ("true", "false"):
        return int(text == "true")
    return int(text) if text.lstrip("-").isdigit() else None


def width_of(type_: ir.Type) -> int:
    return ir.IntegerType(type_).width


def range_of(width: int, *, signed: bool) -> Interval:
    """Return the values that an integer type holds; one bit is 0 or 1."""
    return (-(1 << width - 1), (1 << width - 1) - 1) if signed and width > 1 else (0, (1 << width) - 1)


class Widths:
    """Analysis of the integer widths in a body, whose field elements are `data`."""

    def __init__(self, data: Container[ir.Value]) -> None:
        self._data = data
        self._needed: dict[ir.Value, int] = {}
        self._intervals: dict[ir.Value, Interval | None] = {}

    def changes_nothing(self, extension: ir.Operation) -> bool:
        """Return whether the polynomial of an extended integer stands for the extension as well."""
        source, result = extension.operands[0], extension.results[0]
        return self.needed_bits(result) <= width_of(source.type) or self._fits(extension)

    def _fits(self, extension: ir.Operation) -> bool:
        known = self.interval(extension.operands[0])
        low, high = range_of(width_of(extension.operands[0].type), signed=extension.name == "arith.extsi")
        return known is not None and low <= known[0] and known[1] <= high

    def needed_bits(self, value: ir.Value) -> int:
        """Return the number of an integer's lowest bits that later operations need."""
        if value not in self._needed:
            self._needed[value] = max((self._needed_by(use) for use in value.uses), default=0)
        return self._needed[value]

    def _needed_by(self, use: ir.OpOperand) -> int:
        op, value = use.owner.operation, use.owner.operands[use.operand_number]
        shifted = op.name == "arith.shli" and use.operand_number == 0
        if (
            op.name in (*_SUMS, *EXTENSIONS, "arith.trunci")
            or shifted
            or (op.name == "arith.select" and use.operand_number)
        ):
            return min(width_of(value.type), self.needed_bits(op.results[0]))
        return width_of(value.type)

    def interval(self, value: ir.Value) -> Interval | None:
        """Bounds of the polynomial itself, where they are known."""
        if value not in self._intervals:
            self._intervals[value] = self._interval(value)
        return self._intervals[value]

    def _interval(self, value: ir.Value) -> Interval | None:
        if value not in self._data:
            known = constant_of(value)
            return range_of(width_of(value.type), signed=True) if known is None else (known, known)
        if isinstance(value, ir.BlockArgument):
            return None
        op = value.owner
        if op.name in EXTENSIONS:
            if self.changes_nothing(op):
                return self.interval(op.operands[0]) if self._fits(op) else None
            return range_of(width_of(op.operands[0].type), signed=op.name == "arith.extsi")
        if op.name not in _SUMS:
            return None
        a, b = (self.interval(operand) for operand in op.operands)
        return None if a is None or b is None else _combined(op.name, a, b)


def _combined(name: str, a: Interval, b: Interval) -> Interval:
    if name == "arith.addi":
        return a[0] + b[0], a[1] + b[1]
    if name == "arith.subi":
        return a[0] - b[1], a[1] - b[0]
    corners = [x * y for x in a for y in b]
    return min(corners), max(corners)
