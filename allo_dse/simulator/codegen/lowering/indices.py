"""Checking indices whose range is only known when a body runs.

An operation with the attribute `df.check = array<i64: number, position, limit, ...>` has indices that must be at least
0 and less than a limit. Compiled code tells the run of one that is not (`df.fault`), and uses 0 in its place: a study
that meets such a program must not lose its process.
"""

from __future__ import annotations

from allo_dse.ir.bindings import arith, ir, scf
from allo_dse.ir.dialect import Fault

from .stream_ops import find

CHECK = "df.check"
_FIRST_INDEX = {"memref.load": 1, "memref.store": 2, "memref.subview": 1, "arith.addi": 1}
"""Per operation, which operand its first index is."""


def guard_indices(root: ir.Module) -> None:
    """Put the checks that `df.check` asks for before the operations below `root`."""
    for op in find(root, lambda name: name in _FIRST_INDEX):
        if CHECK not in op.attributes:
            continue
        numbers = list(ir.DenseI64ArrayAttr(op.attributes[CHECK]))
        for number, position, limit in zip(numbers[::3], numbers[1::3], numbers[2::3], strict=True):
            operand = _FIRST_INDEX[op.name] + position
            with ir.InsertionPoint(op), op.location:
                op.operands[operand] = _checked(op.operands[operand], number, limit)
        del op.attributes[CHECK]


def _checked(index: ir.Value, number: int, limit: int) -> ir.Value:
    def constant(value: int) -> ir.Value:
        return arith.ConstantOp(index.type, ir.IntegerAttr.get(index.type, value)).result

    wrong = arith.CmpIOp(arith.CmpIPredicate.uge, index, constant(limit)).result
    with ir.InsertionPoint(scf.IfOp(wrong).then_block):
        Fault(index, ir.IntegerAttr.get(ir.IntegerType.get_signless(64), number))
        scf.YieldOp([])
    return arith.SelectOp(wrong, constant(0), index).result
