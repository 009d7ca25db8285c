"""Common parts of every coroutine of a task body: its prologue, its exits, and its suspension."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, structs

from allo_dse.ir.bindings import Op, async_dialect, ir, memref

from ..run_time import fifo
from ..run_time.emit import Emitter, Variable
from ..run_time.record_fields import Header, Node
from ..run_time.variant import Variant
from .signature import Pipeline
from .stream_ops import find, storage_bytes

FRAME_BYTES = 1024
"""Local arrays up to this size live in the coroutine's frame, where LLVM can keep scalars in registers; larger ones
are allocated."""


class Inputs(Struct, frozen=True):
    """Inputs of a coroutine besides the body's parameters."""

    variant: Variant
    header: ir.Value
    node: ir.Value
    costs: ir.Value
    pipelines: Sequence[Pipeline]
    records: Sequence[tuple[ir.Value, ir.Value]]
    """Numbers of streams that are parameters, and the streams' records."""
    moves: fifo.Moves | None
    """Gets and puts that the body calls; None where their code stands in it."""


class Coroutine(Inputs, frozen=True):
    """Values of the prologue that every suspension refers to."""

    streams: ir.Value
    handle: ir.Value
    clock: Variable
    stall_get: Variable
    stall_put: Variable
    cleanup: ir.Block
    suspended: ir.Block
    tails: Sequence[Variable]
    """Per pipeline, cycles from the begin of the last round to the end of the loop."""


def prologue(function: ir.Operation, entry: ir.Block, inputs: Inputs) -> Coroutine:
    """Begin the coroutine in `entry`, whose own operations move to a block behind it."""
    body = cut(entry, entry.operations[0])
    e = Emitter(entry)
    with e.here():
        identity = async_dialect.coro_id()
        handle = async_dialect.coro_begin(identity)
        frame = ir.Operation.create("builtin.unrealized_conversion_cast", [e.ptr], [handle]).result
    e.store(frame, inputs.node, Node.HANDLE)
    clock, stall_get, stall_put = e.variable(e.load(inputs.node, Node.CLOCK)), e.variable(0), e.variable(0)
    streams = e.load_ptr(inputs.header, Header.STREAMS)
    tails = [e.variable(0) for _ in inputs.pipelines]
    owned = _hoist_arrays(function, e)
    cleanup = list(function.regions[0].blocks)[-1].create_after()
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
    return Coroutine(
        **structs.asdict(inputs),
        streams=streams,
        handle=handle,
        clock=clock,
        stall_get=stall_get,
        stall_put=stall_put,
        cleanup=cleanup,
        suspended=suspended,
        tails=tails,
    )


def _hoist_arrays(function: ir.Operation, e: Emitter) -> list[ir.Value]:
    """Move the body's arrays to the prologue, so that every way out can free them; returns those to be freed."""
    owned: list[ir.Value] = []
    for op in find(function, lambda name: name == "memref.dealloc"):
        array = op.operands[0].owner
        if array.name == "memref.alloc" and not len(array.operands):
            op.erase()
    for op in find(function, lambda name: name in ("memref.alloc", "memref.alloca")):
        if len(op.operands):
            continue
        small = op.name == "memref.alloca" or storage_bytes(op.results[0].type) <= FRAME_BYTES
        with e.here():
            kind = memref.AllocaOp if small else memref.AllocOp
            hoisted = kind(op.results[0].type, [], []).result
        op.results[0].replace_all_uses_with(hoisted)
        op.erase()
        if not small:
            owned.append(hoisted)
    return owned


def cut(block: ir.Block, op: Op) -> ir.Block:
    """Move `op` and what follows it to a new block behind `block`."""
    rest = block.create_after()
    moving = False
    for other in list(block.operations):
        moving = moving or other.operation == op.operation
        if moving:
            rest.append(other.operation)
    return rest


def begin_suspended(c: Coroutine, entry: ir.Block) -> None:
    """Suspend at the end of the prologue, in `entry`.

    LLVM makes two functions of a coroutine: what it does up to its first suspension, and all it does from any of them
    on. What comes after this one is compiled only once.
    """
    _wait(c, Emitter(entry), cut(entry, list(entry.operations)[-1]))


def suspend(c: Coroutine, e: Emitter, go: ir.Block) -> None:
    """Suspend; the clock and the stalls wait in the node's record.

    LLVM spills a value that lives across a suspension where it is defined, on the fast path. These change with every
    operation, so they are stored by hand, here, and loaded again on the way back.
    """
    _save_clock(c, e)
    resumed = e.new_block()
    _wait(c, e, resumed)
    e.go(resumed)
    e.set(c.clock, e.load(c.node, Node.CLOCK))
    e.set(c.stall_get, 0)
    e.set(c.stall_put, 0)
    e.branch(go)


def _wait(c: Coroutine, e: Emitter, resumed: ir.Block) -> None:
    with e.here():
        async_dialect.CoroSuspendOp(async_dialect.coro_save(c.handle), c.suspended, resumed, c.cleanup)


def _save_clock(c: Coroutine, e: Emitter) -> None:
    e.store(e.get(c.clock), c.node, Node.CLOCK)
    e.increase(c.node, Node.STALL_GET, e.get(c.stall_get))
    e.increase(c.node, Node.STALL_PUT, e.get(c.stall_put))


def lower_return(c: Coroutine, op: ir.Operation, entry: ir.Block) -> None:
    e = Emitter(op.block, entry)
    op.erase()
    _save_clock(c, e)
    e.store(0, c.node, Node.ACTIVE)
    e.branch(c.cleanup)
