"""Reducing a body's stream operations to `df.take` and `df.offer`, and its control flow to branches.

Operations that do not wait become `df.try_take` and `df.try_offer`; `df.empty` and `df.full` stay as they are.
"""

from __future__ import annotations

import math
from contextlib import ExitStack

from allo_dse.common.mlir.bindings import Op, arith, ir, memref, nested_ops, scf
from allo_dse.common.mlir.dialect import Offer, Take, TryOffer, TryTake
from allo_dse.common.mlir.jit import run_passes

from ..run_time.records import WORD

TO_BLOCKS = (
    "builtin.module(func.func(convert-linalg-to-loops),expand-strided-metadata,func.func(lower-affine),canonicalize,"
    "func.func(convert-scf-to-cf),cse)"
)


def reduce_stream_ops(module: ir.Module) -> None:
    """Replace stream operations by `df.take` and `df.offer` and the copying of values."""
    for op in find(module, *_ACCESS):
        _reduce(op)


def to_blocks(module: ir.Module) -> None:
    """Lower control flow to branches."""
    run_passes(module, TO_BLOCKS)


def find(root: ir.Module | Op, *names: str) -> list[ir.Operation]:
    """All operations under `root` of some names, in order."""
    return [op for op in nested_ops(root) if op.name in names]


def constant_of(value: ir.Value) -> int | None:
    """Return the value of an integer constant, signed as its type holds it."""
    if isinstance(value, ir.BlockArgument) or value.owner.name != "arith.constant":
        return None
    text = str(value.owner.attributes["value"]).partition(" :")[0]  # IntegerAttr.value stops at 64 bits
    return {"true": 1, "false": 0}.get(text) if not text.lstrip("-").isdigit() else int(text)


_ACCESS = [f"df.{tries}{does}{block}" for tries in ("", "try_") for does in ("get", "put") for block in ("", "_block")]


def _reduce(op: ir.Operation) -> None:
    """Replace an operation by the one that stands for it, and the copy of a value or of a block's elements."""
    gets, tries, is_block = "get" in op.name, "try" in op.name, "block" in op.name
    stream, number = op.operands[0], op.attributes["op"]
    value = op.operands[1] if is_block or not gets else op.results[0]
    block = ir.MemRefType(value.type) if is_block else ir.MemRefType.get([], value.type)
    type_ = ir.MemRefType.get(block.shape, block.element_type)
    with ir.InsertionPoint(op), op.location, ExitStack() as inside:
        if tries:
            tried = (TryTake if gets else TryOffer)(stream, number, type_, ir.IntegerType.get_signless(1))
            token = tried.token
            op.results[len(op.results) - 1].replace_all_uses_with(tried.ok)
        else:
            token = (Take if gets else Offer)(stream, number, type_).token
        if gets and not is_block:  # reading is safe even if there is no token
            loaded = memref.LoadOp(token, []).result
            value.replace_all_uses_with(arith.SelectOp(tried.ok, loaded, _zero(value.type)).result if tries else loaded)
        else:
            if tries:
                inside.enter_context(ir.InsertionPoint(scf.IfOp(tried.ok).then_block))
            if is_block:
                _copy(*(token, value) if gets else (value, token))
            else:
                memref.StoreOp(value, token, [])
            if tries:
                scf.YieldOp([])
    op.erase()


def _copy(source: ir.Value, target: ir.Value) -> None:
    """Emit a `linalg.copy`; importing that dialect's classes takes longer than compiling a small body."""
    ir.Context.current.get_dialect_descriptor("linalg")  # takes as long to load as all others
    segments = {"operandSegmentSizes": ir.Attribute.parse("array<i32: 1, 1>")}
    copy = ir.Operation.create("linalg.copy", [], [source, target], segments, regions=1)
    element = ir.MemRefType(source.type).element_type
    body = copy.regions[0].blocks.append(element, element)
    with ir.InsertionPoint(body):
        ir.Operation.create("linalg.yield", [], [body.arguments[0]])


def _zero(type_: ir.Type) -> ir.Value:
    is_float = isinstance(type_, ir.FloatType)
    value = ir.FloatAttr.get(type_, 0.0) if is_float else ir.IntegerAttr.get(type_, 0)
    return arith.ConstantOp(type_, value).result


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
