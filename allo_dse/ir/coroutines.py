"""Turning a task body into a coroutine that suspends in stream operations.

`structure` lowers the structured part (linalg, affine, scf) to blocks while the stream operations survive as opaque
operations. `to_coroutine` then cuts each block at each stream operation, so that

        ...                               ...
        %t = "df.take"(%s)                cond_br can_get(%s), ^go, ^wait
        ...                             ^wait:   register at %s; suspend, then ^go
                                        ^go:     take the token, advance the clock
                                        ...

and gives the function its prologue and its end. Values that live across a suspension need no care: LLVM keeps them in
the coroutine's frame. The clock is a stack slot, which LLVM promotes to a register before it splits the coroutine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from . import fifo
from .bindings import async_dialect, ir, linalg, memref
from .dialect import GetBlock, Offer, PutBlock, Take
from .emit import USUALLY, Emitter, Variable
from .jit import run_passes
from .layout import STATE_BITS, WORD, Header, Node, State, entry_words

TO_BLOCKS = "builtin.module(func.func(convert-linalg-to-loops,lower-affine,convert-scf-to-cf),canonicalize,cse)"
FRAME_BYTES = 1024
"""Local arrays up to this size live in the coroutine's frame, where LLVM can keep scalars in registers; larger ones
are allocated."""


def structure(module: Any) -> None:
    """Reduce stream operations to `df.take` and `df.offer`, and control flow to branches."""
    for op in find(module, lambda name: name in _ACCESS):
        _ACCESS[op.name](op)
    run_passes(module, TO_BLOCKS)


def find(root: Any, wanted: Callable[[str], bool]) -> list[Any]:
    """All operations under `root` whose name is wanted, in order."""
    found: list[Any] = []

    def visit(op: Any) -> Any:
        if wanted(op.name):
            found.append(op)
        return ir.WalkResult.ADVANCE

    root.operation.walk(visit)
    return found


def _scalar_get(op: Any) -> None:
    value = op.results[0]
    with ir.InsertionPoint(op), op.location:
        token = Take(ir.MemRefType.get([], value.type), op.operands[0], op.attributes["op"]).token
        value.replace_all_uses_with(memref.LoadOp(token, []).result)
    op.erase()


def _scalar_put(op: Any) -> None:
    stream, value = op.operands
    with ir.InsertionPoint(op), op.location:
        token = Offer(ir.MemRefType.get([], value.type), stream, op.attributes["op"]).token
        memref.StoreOp(value, token, [])
    op.erase()


def _block_op(op: Any, kind: Any) -> None:
    stream, buffer = op.operands
    type_ = ir.MemRefType(buffer.type)
    with ir.InsertionPoint(op), op.location:
        token = kind(ir.MemRefType.get(type_.shape, type_.element_type), stream, op.attributes["op"]).token
        source, target = (token, buffer) if kind is Take else (buffer, token)
        linalg.copy(source, outs=[target])
    op.erase()


_ACCESS: dict[str, Callable[[Any], None]] = {
    "df.get": _scalar_get,
    "df.put": _scalar_put,
    GetBlock.OPERATION_NAME: lambda op: _block_op(op, Take),
    PutBlock.OPERATION_NAME: lambda op: _block_op(op, Offer),
}


@dataclass(frozen=True)
class _Coroutine:
    """Values of the prologue that every suspension refers to."""

    header: Any
    node: Any
    costs: Any
    streams: Any
    records: Sequence[tuple[Any, Any]]
    """Numbers of streams that are parameters, and the streams' records."""
    handle: Any
    clock: Variable
    stall_get: Variable
    stall_put: Variable
    cleanup: Any
    suspended: Any


def to_coroutine(function: Any, streams: Sequence[int]) -> None:
    """Make a lowered task body a coroutine.

    It gets more arguments, pointers all: header, node, its cost sites, and the record of each stream that a parameter
    in `streams` (positions) is the number of. Computed in the coroutine, the records' addresses would be computed
    again after each suspension; as arguments they are kept in the frame.
    """
    ptr = Emitter.pointer_type()
    entry = function.regions[0].blocks[0]
    with ir.Location.unknown():
        header, node, costs = [entry.add_argument(ptr, ir.Location.unknown()) for _ in range(3)]
        numbers = [entry.arguments[i] for i in streams]
        records = [(number, entry.add_argument(ptr, ir.Location.unknown())) for number in numbers]
        inputs = [a.type for a in entry.arguments]
        function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(inputs, []))
        stream_ops = find(function, lambda name: name in ("df.take", "df.offer"))
        cost_ops = find(function, lambda name: name == "df.cost")
        returns = find(function, lambda name: name == "func.return")
        c = _prologue(function, entry, header, node, costs, records)
        for op in cost_ops:
            _lower_cost(c, op, entry)
        for op in stream_ops:
            _lower_stream_op(c, op, entry)
        for op in returns:
            _lower_return(c, op, entry)


def _prologue(function: Any, entry: Any, header: Any, node: Any, costs: Any, records: Any) -> _Coroutine:
    """Begin the coroutine in `entry`, whose own operations move to a block behind it."""
    body = _cut(entry, entry.operations[0])
    e = Emitter(entry)
    with e.here():
        identity = async_dialect.coro_id()
        handle = async_dialect.coro_begin(identity)
        frame = ir.Operation.create("builtin.unrealized_conversion_cast", [e.ptr], [handle]).result
    e.store(frame, node, Node.HANDLE)
    clock, stall_get, stall_put = e.variable(e.load(node, Node.CLOCK)), e.variable(0), e.variable(0)
    streams = e.load_ptr(header, Header.STREAMS)
    owned = _hoist_arrays(function, e)
    cleanup = _last_block(function).create_after()
    suspended = cleanup.create_after()
    e.branch(body)
    end = Emitter(cleanup, entry)
    with end.here():
        for array in owned:
            memref.DeallocOp(array)
        async_dialect.coro_free(identity, handle)
    end.branch(suspended)
    with ir.InsertionPoint(suspended):
        async_dialect.coro_end(handle)
    Emitter(suspended, entry).return_()
    return _Coroutine(header, node, costs, streams, records, handle, clock, stall_get, stall_put, cleanup, suspended)


def _hoist_arrays(function: Any, e: Emitter) -> list[Any]:
    """Move the body's arrays to the prologue, so that every way out can free them; returns those to be freed."""
    owned = []
    for op in find(function, lambda name: name == "memref.dealloc"):
        if _is_static_alloc(op.operands[0].owner):
            op.erase()
    for op in find(function, lambda name: name in ("memref.alloc", "memref.alloca")):
        if len(op.operands):
            continue
        small = op.name == "memref.alloca" or storage_bytes(op.results[0].type) <= FRAME_BYTES
        with e.here():
            kind = memref.AllocaOp if small else memref.AllocOp
            array = kind(op.results[0].type, [], []).result
        op.results[0].replace_all_uses_with(array)
        op.erase()
        if not small:
            owned.append(array)
    return owned


def _is_static_alloc(op: Any) -> bool:
    return op.name == "memref.alloc" and not len(op.operands)


def storage_bytes(type_: Any) -> int:
    """Bytes of a contiguous array of a memref type, or of one value: LLVM keeps integers in the next power of two."""
    if not isinstance(type_, ir.MemRefType):
        return _element_bytes(type_)
    array = ir.MemRefType(type_)
    return math.prod(array.shape) * _element_bytes(array.element_type)


def _element_bytes(type_: Any) -> int:
    if isinstance(type_, ir.IndexType):
        return WORD
    width = type_.width
    size = 1 << max(0, (-(-width // 8) - 1).bit_length())
    return size if size <= 16 else -(-width // 128) * 16


def _last_block(function: Any) -> Any:
    blocks = list(function.regions[0].blocks)
    return blocks[-1]


def _cut(block: Any, op: Any) -> Any:
    """Move `op` and what follows it to a new block behind `block`."""
    rest = block.create_after()
    moving = False
    for other in list(block.operations):
        moving = moving or other.operation == op.operation
        if moving:
            rest.append(other.operation)
    return rest


def _lower_cost(c: _Coroutine, op: Any, entry: Any) -> None:
    site = ir.IntegerAttr(op.attributes["site"]).value
    block = op.block
    rest = _cut(block, op)
    e = Emitter(block, entry)
    e.set(c.clock, e.add(e.get(c.clock), e.load(c.costs, site)))
    e.branch(rest)
    op.erase()


def _lower_stream_op(c: _Coroutine, op: Any, entry: Any) -> None:
    getting = op.name == "df.take"
    number, result = ir.IntegerAttr(op.attributes["op"]).value, op.results[0]
    block = op.block
    rest = _cut(block, op)
    e = Emitter(block, entry)
    go, wait = e.new_block(), e.new_block()
    stream = _record(c, e, op.operands[0])
    e.branch_if((fifo.can_get if getting else fifo.can_put)(e, stream), go, wait, odds=USUALLY)
    e.go(wait)
    fifo.block(e, c.node, stream, State.GET if getting else State.PUT, number << STATE_BITS)
    _suspend(c, e, go)
    e.go(go)
    before = e.get(c.clock)
    words = entry_words(storage_bytes(result.type))
    now, token = (fifo.get if getting else fifo.put)(e, c.header, stream, before, words)
    e.set(c.clock, now)
    stall = c.stall_get if getting else c.stall_put
    e.set(stall, e.add(e.get(stall), e.sub(now, before)))
    result.replace_all_uses_with(e.array(token, result.type))
    e.branch(rest)
    op.erase()


def _record(c: _Coroutine, e: Emitter, number: Any) -> Any:
    for known, address in c.records:
        if known == number:
            return address
    return fifo.record(e, c.streams, number)


def _suspend(c: _Coroutine, e: Emitter, go: Any) -> None:
    """Suspend; the clock and the stalls wait in the node's record.

    LLVM spills a value that lives across a suspension where it is defined, on the fast path. These change with every
    operation, so they are stored by hand, here, and loaded again on the way back.
    """
    _save_clock(c, e)
    resumed = e.new_block()
    with e.here():
        async_dialect.CoroSuspendOp(async_dialect.coro_save(c.handle), c.suspended, resumed, c.cleanup)
    e.go(resumed)
    e.set(c.clock, e.load(c.node, Node.CLOCK))
    e.set(c.stall_get, 0)
    e.set(c.stall_put, 0)
    e.branch(go)


def _save_clock(c: _Coroutine, e: Emitter) -> None:
    e.store(e.get(c.clock), c.node, Node.CLOCK)
    e.increase(c.node, Node.STALL_GET, e.get(c.stall_get))
    e.increase(c.node, Node.STALL_PUT, e.get(c.stall_put))


def _lower_return(c: _Coroutine, op: Any, entry: Any) -> None:
    e = Emitter(op.block, entry)
    op.erase()
    _save_clock(c, e)
    e.store(0, c.node, Node.ACTIVE)
    e.branch(c.cleanup)
