"""Loops that go on for long let compiled code return to Python now and then, for Ctrl-C and time limits.

Short nests stay as they are. A loop with long iterations asks between them; a loop with short iterations is cut into
pieces first:

    for i = a to b step s:                  for o = a to b step s * n:
        body                                    df.breathe
                                                for i = o to min(o + s * n, b) step s:
                                                    body
"""

from __future__ import annotations

from collections.abc import Sequence

from allo_dse.common.mlir.bindings import arith, ir, scf
from allo_dse.common.mlir.dialect import Breathe
from allo_dse.common.mlir.nested_ops import nested_ops

LONG_ROUNDS = 1 << 22
"""Rounds of all loops of a nest, together, that no one waits for: milliseconds."""
PIECE_ROUNDS = 1 << 16
"""Rounds between two questions, which cost nothing beside so many."""
PIECE_TURNS = 256
"""Turns of the scheduler that a piece counts as: about as long."""
ASSUMED_TRIPS = 1 << 10
"""Of a loop whose bounds are not constant."""
_DATA = ("memref.load", "affine.load", "df.take", "df.get", "scf.if", "scf.while")
_STREAMS = ("df.get", "df.put", "df.try", "df.take", "df.offer")


def breathe(turns: int) -> None:
    """Add the operation at the present place; it counts as `turns` of the scheduler."""
    Breathe(ir.IntegerAttr.get(ir.IntegerType.get_signless(64), turns))


def let_breathe(function: ir.Operation) -> None:
    """Add `df.breathe` to the long loops of a task body."""
    for block in function.regions[0].blocks:
        _look_into(block)


def _look_into(block: ir.Block) -> None:
    for op in list(block.operations):
        one = op.operation
        if one.name in ("scf.for", "affine.for") and not any(op.name.startswith(_STREAMS) for op in nested_ops(one)):
            _treat(one)
        else:
            for region in one.regions:
                for inner in region.blocks:
                    _look_into(inner)


def _treat(loop: ir.Operation) -> None:
    body = loop.regions[0].blocks[0]
    each, trips = _rounds_in(body), _trips(loop)
    if trips is not None and trips * each < LONG_ROUNDS:
        return
    if each >= PIECE_ROUNDS:
        with ir.InsertionPoint.at_block_begin(body), loop.location:
            breathe(PIECE_TURNS)
        _look_into(body)
    elif loop.name == "scf.for" and not len(loop.results):
        _cut(loop, max(1, PIECE_ROUNDS // each))


def _cut(loop: ir.Operation, rounds: int) -> None:
    low, high, step = list(loop.operands)[:3]
    with ir.InsertionPoint(loop), loop.location:
        many = arith.ConstantOp(ir.IndexType.get(), rounds).result
        stride = arith.MulIOp(step, many).result
        pieces = scf.ForOp(low, high, stride)
    with ir.InsertionPoint(pieces.body), loop.location:
        breathe(PIECE_TURNS)
        end = arith.MinSIOp(arith.AddIOp(pieces.induction_variable, stride).result, high).result
        last = scf.YieldOp([])
    loop.move_before(last.operation)
    loop.operands[0], loop.operands[1] = pieces.induction_variable, end


def _rounds_in(block: ir.Block) -> int:
    """Rounds of the loops in a block, together; 1 where there are none."""
    found = 0
    for op in block.operations:
        inner = [each for region in op.regions for each in region.blocks]
        rounds = sum(map(_rounds_in, inner)) if inner else 0
        if op.operation.name in ("scf.for", "affine.for"):
            trips = _trips(op.operation)
            rounds *= ASSUMED_TRIPS if trips is None else trips
        found += rounds
    return max(1, found)


def _trips(loop: ir.Operation) -> int | None:
    """Return a loop's trip count: assumed if its bounds are computed, None if they depend on data."""
    if loop.name == "affine.for":
        return _affine_trips(loop)
    low, high, step = (_constant(value) for value in list(loop.operands)[:3])
    if low is not None and high is not None and step:
        return max(0, -((low - high) // step))
    return None if _depends_on_data(list(loop.operands)[:3]) else ASSUMED_TRIPS


def _affine_trips(loop: ir.Operation) -> int:
    low, high = (ir.AffineMapAttr(loop.attributes[name]).value for name in ("lowerBoundMap", "upperBoundMap"))
    ends = [bound.results[0] for bound in (low, high)]
    if not all(isinstance(end, ir.AffineConstantExpr) for end in ends):
        return ASSUMED_TRIPS
    first, last = (ir.AffineConstantExpr(end).value for end in ends)  # type: ignore[call-arg]
    return max(0, -((first - last) // int(ir.IntegerAttr(loop.attributes["step"]).value)))


def _constant(value: ir.Value) -> int | None:
    owner = value.owner
    if isinstance(owner, ir.Block) or owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(owner.attributes["value"]).value)


def _depends_on_data(values: Sequence[ir.Value]) -> bool:
    todo, seen = list(values), set()
    while todo:
        owner = todo.pop().owner
        if isinstance(owner, ir.Block) or owner in seen:
            continue
        seen.add(owner)
        if owner.name in _DATA:
            return True
        todo += list(owner.operands)
    return False
