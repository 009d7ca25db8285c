"""Reducing a body's stream operations to `df.take` and `df.offer`, and its control flow to branches.

Operations that do not wait become `df.try_take` and `df.try_offer`; `df.empty` and `df.full` stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from allo_dse.common.mlir.bindings import Op, arith, ir, memref, nested_ops, scf
from allo_dse.common.mlir.dialect import GetBlock, Offer, PutBlock, Take, TryOffer, TryTake
from allo_dse.common.mlir.jit import run_passes

from ..run_time.records import WORD

TO_BLOCKS = (
    "builtin.module(func.func(convert-linalg-to-loops,lower-affine),canonicalize,func.func(convert-scf-to-cf),cse)"
)


def reduce_stream_ops(module: ir.Module) -> None:
    """Replace stream operations by `df.take` and `df.offer` and the copying of values."""
    for op in find(module, lambda name: name in _ACCESS):
        _ACCESS[op.name](op)


def to_blocks(module: ir.Module) -> None:
    """Lower control flow to branches."""
    run_passes(module, TO_BLOCKS)


def find(root: ir.Module | Op, wanted: Callable[[str], bool]) -> list[ir.Operation]:
    """All operations under `root` whose name is wanted, in order."""
    return [op for op in nested_ops(root) if wanted(op.name)]


def _reduced(kind: type[Take | Offer], token: ir.Type, op: ir.Operation) -> ir.Value:
    """The operation, of kind Take or Offer, that stands for a stream operation."""
    found: ir.Value = kind(token, op.operands[0], op.attributes["op"]).token
    return found


def _scalar_get(op: ir.Operation) -> None:
    value = op.results[0]
    with ir.InsertionPoint(op), op.location:
        token = _reduced(Take, ir.MemRefType.get([], value.type), op)
        value.replace_all_uses_with(memref.LoadOp(token, []).result)
    op.erase()


def _scalar_put(op: ir.Operation) -> None:
    value = op.operands[1]
    with ir.InsertionPoint(op), op.location:
        token = _reduced(Offer, ir.MemRefType.get([], value.type), op)
        memref.StoreOp(value, token, [])
    op.erase()


def _block_op(op: ir.Operation, kind: type[Take | Offer]) -> None:
    buffer = op.operands[1]
    type_ = ir.MemRefType(buffer.type)
    with ir.InsertionPoint(op), op.location:
        token = _reduced(kind, ir.MemRefType.get(type_.shape, type_.element_type), op)
        source, target = (token, buffer) if kind is Take else (buffer, token)
        _copy(source, target)
    op.erase()


def _copy(source: ir.Value, target: ir.Value) -> None:
    from allo_dse.common.mlir.bindings import linalg

    linalg.copy(source, outs=[target])


def _zero(type_: ir.Type) -> ir.Value:
    is_float = isinstance(type_, ir.FloatType)
    value = ir.FloatAttr.get(type_, 0.0) if is_float else ir.IntegerAttr.get(type_, 0)
    return arith.ConstantOp(type_, value).result


def _tried(kind: type[TryTake | TryOffer], type_: ir.Type, op: ir.Operation) -> tuple[ir.Value, ir.Value]:
    """The operation, of kind TryTake or TryOffer, that stands for `op`: its token and whether there is one."""
    new = kind(type_, ir.IntegerType.get_signless(1), op.operands[0], op.attributes["op"])
    return new.token, new.ok


def _scalar_try_get(op: ir.Operation) -> None:
    value, answer = op.results
    with ir.InsertionPoint(op), op.location:
        token, ok = _tried(TryTake, ir.MemRefType.get([], value.type), op)
        # Reading is safe even if there is no token.
        loaded = memref.LoadOp(token, []).result
        value.replace_all_uses_with(arith.SelectOp(ok, loaded, _zero(value.type)).result)
        answer.replace_all_uses_with(ok)
    op.erase()


def _scalar_try_put(op: ir.Operation) -> None:
    value = op.operands[1]
    with ir.InsertionPoint(op), op.location:
        token, ok = _tried(TryOffer, ir.MemRefType.get([], value.type), op)
        with ir.InsertionPoint(scf.IfOp(ok).then_block):
            memref.StoreOp(value, token, [])
            scf.YieldOp([])
        op.results[0].replace_all_uses_with(ok)
    op.erase()


def _block_try(op: ir.Operation, kind: type[TryTake | TryOffer]) -> None:
    buffer = op.operands[1]
    type_ = ir.MemRefType(buffer.type)
    with ir.InsertionPoint(op), op.location:
        token, ok = _tried(kind, ir.MemRefType.get(type_.shape, type_.element_type), op)
        source, target = (token, buffer) if kind is TryTake else (buffer, token)
        with ir.InsertionPoint(scf.IfOp(ok).then_block):
            _copy(source, target)
            scf.YieldOp([])
        op.results[0].replace_all_uses_with(ok)
    op.erase()


_ACCESS: dict[str, Callable[[ir.Operation], None]] = {
    "df.get": _scalar_get,
    "df.put": _scalar_put,
    GetBlock.OPERATION_NAME: lambda op: _block_op(op, Take),
    PutBlock.OPERATION_NAME: lambda op: _block_op(op, Offer),
    "df.try_get": _scalar_try_get,
    "df.try_put": _scalar_try_put,
    "df.try_get_block": lambda op: _block_try(op, TryTake),
    "df.try_put_block": lambda op: _block_try(op, TryOffer),
}


def storage_bytes(type_: ir.Type) -> int:
    """Bytes of a contiguous array of a memref type, or of one value: LLVM keeps integers in the next power of two."""
    if not isinstance(type_, ir.MemRefType):
        return _element_bytes(type_)
    array = ir.MemRefType(type_)
    return math.prod(array.shape) * _element_bytes(array.element_type)


def _element_bytes(type_: ir.Type) -> int:
    if isinstance(type_, ir.IndexType):
        return WORD
    assert isinstance(type_, ir.IntegerType | ir.FloatType)
    width = type_.width
    size = 1 << max(0, (-(-width // 8) - 1).bit_length())
    return size if size <= 16 else -(-width // 128) * 16
