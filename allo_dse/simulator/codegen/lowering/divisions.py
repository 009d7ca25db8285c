"""Integer divisions as compiled code can do them.

Processors trap when they divide by zero, and the smallest number by -1. Hardware gives some value and goes on; so does
compiled code here: the dividend. A study that meets such a design must not lose its process.

MLIR's own expansion of floor divisions is wrong beyond 64 bits.
"""

from __future__ import annotations

from allo_dse.ir.bindings import arith, ir

from .stream_ops import find

_SIGNED = ("arith.divsi", "arith.remsi", "arith.floordivsi", "arith.ceildivsi")
_MACHINE_BITS = 64
_UNSIGNED = ("arith.divui", "arith.remui", "arith.ceildivui")


def guard_divisions(root: ir.Module) -> None:
    """Divide by one wherever a division below `root` could trap."""
    for op in find(root, lambda name: name in _SIGNED + _UNSIGNED):
        dividend, divisor = op.operands
        known = _constant(divisor)
        signed = op.name in _SIGNED
        if known is None or known == 0 or (signed and known == -1):
            with ir.InsertionPoint(op):
                op.operands[1] = _safe(dividend, divisor, signed=signed)
        if op.name == "arith.floordivsi" and _width(divisor.type) > _MACHINE_BITS:
            with ir.InsertionPoint(op):
                op.results[0].replace_all_uses_with(_floor(*op.operands))
            op.erase()


def _floor(dividend: ir.Value, divisor: ir.Value) -> ir.Value:
    """The quotient, less one where the remainder is not zero and has the other sign than the divisor."""

    def compare(predicate: arith.CmpIPredicate, value: ir.Value, to: ir.Value) -> ir.Value:
        return arith.CmpIOp(predicate, value, to).result

    zero = arith.ConstantOp(divisor.type, ir.Attribute.parse(f"0 : {divisor.type}")).result
    quotient = arith.DivSIOp(dividend, divisor).result
    remainder = arith.RemSIOp(dividend, divisor).result
    negative = [compare(arith.CmpIPredicate.slt, value, zero) for value in (remainder, divisor)]
    inexact = compare(arith.CmpIPredicate.ne, remainder, zero)
    below = arith.AndIOp(inexact, arith.XOrIOp(*negative).result).result
    return arith.SubIOp(quotient, arith.ExtUIOp(divisor.type, below).result).result


def _safe(dividend: ir.Value, divisor: ir.Value, *, signed: bool) -> ir.Value:
    def constant(value: int) -> ir.Value:
        return arith.ConstantOp(divisor.type, ir.Attribute.parse(f"{value} : {divisor.type}")).result

    def equal(value: ir.Value, to: int) -> ir.Value:
        return arith.CmpIOp(arith.CmpIPredicate.eq, value, constant(to)).result

    traps = equal(divisor, 0)
    if signed:
        smallest = -(1 << (_width(divisor.type) - 1))
        overflows = arith.AndIOp(equal(divisor, -1), equal(dividend, smallest)).result
        traps = arith.OrIOp(traps, overflows).result
    return arith.SelectOp(traps, constant(1), divisor).result


def _width(type_: ir.Type) -> int:
    return 64 if isinstance(type_, ir.IndexType) else ir.IntegerType(type_).width


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    text = str(owner.attributes["value"]).partition(" :")[0]  # IntegerAttr.value stops at 64 bits
    return {"true": 1, "false": 0}.get(text) if not text.lstrip("-").isdigit() else int(text)
