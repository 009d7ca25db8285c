"""Turning a task body into a coroutine that suspends in stream operations.

`stream_ops` lowers the structured part (linalg, affine, scf) to blocks while the stream operations survive as opaque
operations. `to_coroutine` then cuts each block at each stream operation, so that

        ...                               ...
        %t = "df.take"(%s)                cond_br may_move(%s), ^go, ^wait
        ...                             ^wait:   register at %s; suspend, then ^go
                                        ^go:     take the token, advance the clock
                                        ...

and gives the function its prologue and its end. Values that live across a suspension need no care: LLVM keeps them in
the coroutine's frame. The clock is a stack slot, which LLVM promotes to a register before it splits the coroutine.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from allo_dse.common.mlir.bindings import Op, async_dialect, ir, memref, nested_ops
from allo_dse.common.mlir.dialect import POLLS
from allo_dse.common.records import Frozen

from ..run_time import fifo
from ..run_time.builder import USUALLY, Emitter, Variable, Word
from ..run_time.operation_tables import PUSH_REQUEST
from ..run_time.records import STATE_BITS, Entry, Header, Node, State, Stream, entry_words
from .outline import site
from .stream_ops import find, storage_bytes

FRAME_BYTES = 1024
"""Local arrays up to this size live in the coroutine's frame, where LLVM can keep scalars in registers; larger ones
are allocated."""


class Coroutine(Frozen):
    """Values that every suspension of a coroutine refers to, besides the body's parameters."""

    streams: ir.Value
    handle: ir.Value
    clock: Variable
    stall_get: Variable
    stall_put: Variable
    cleanup: ir.Block
    suspended: ir.Block
    record: bool
    header: ir.Value
    node: ir.Value
    costs: ir.Value
    records: Sequence[tuple[ir.Value, ir.Value]]
    """Numbers of streams that are parameters, and the streams' records."""
    moves: tuple[ir.Module, str] | None
    """The module and a prefix of the functions of gets and puts; None where their code stands in the body."""


def prologue(function: ir.Operation, entry: ir.Block, *inputs: Any) -> Coroutine:
    """Begin the coroutine in `entry`, whose own operations move to a block behind it.

    Args:
        inputs: the fields of the coroutine from `record` on.
    """
    body, (_, header, node, *_) = cut(entry, entry.operations[0]), inputs
    e = Emitter(entry)
    with e.here():
        identity = async_dialect.coro_id()
        handle = async_dialect.coro_begin(identity)
    e.store(e.op("builtin.unrealized_conversion_cast", [e.ptr], handle).result, node, Node.HANDLE)
    clock, stall_get, stall_put = e.variable(e.load(node, Node.CLOCK)), e.variable(0), e.variable(0)
    streams = e.load_ptr(header, Header.STREAMS)
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
    return Coroutine(streams, handle, clock, stall_get, stall_put, cleanup, suspended, *inputs)


def _hoist_arrays(function: ir.Operation, e: Emitter) -> list[ir.Value]:
    """Move the body's arrays to the prologue, so that every way out can free them; returns those to be freed."""
    owned: list[ir.Value] = []
    for op in find(function, "memref.dealloc"):
        array = op.operands[0].owner
        if array.name == "memref.alloc" and not len(array.operands):
            op.erase()
    for op in find(function, "memref.alloc", "memref.alloca"):
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
    rest, operations = block.create_after(), [other.operation for other in block.operations]
    for moved in operations[operations.index(op.operation) :]:
        rest.append(moved)
    return rest


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
    e.call(fifo.PAUSE, [c.node, *(e.get(one) for one in (c.clock, c.stall_get, c.stall_put))])


INLINED_OPS = 16
"""A body of more stream operations calls functions for them: of one whose loops are unrolled, hundreds would be
compiled one by one, for seconds."""


def is_unrolled(function: ir.Operation) -> bool:
    """Return whether a body of `df.take` and `df.offer` has more stream operations than that."""
    return sum(op.name in _LOWERED and op.name not in _PLAIN_OPS for op in nested_ops(function)) > INLINED_OPS


def to_coroutine(module: ir.Module, function: ir.Operation, streams: Sequence[int], record: bool) -> bool:
    """Make a lowered task body, a function of a module, a coroutine; whether it has to be resumed to begin.

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
        ops = [op for op in nested_ops(function) if op.name in _LOWERED]
        returns = find(function, "func.return")
        name = ir.StringAttr(function.attributes["sym_name"]).value
        moves = (module, name) if is_unrolled(function) else None
        c = prologue(function, entry, record, header, node, costs, records, moves)
        for op in ops:
            block = op.block
            rest = cut(block, op)
            e = Emitter(block, entry)
            _LOWERED[op.name](c, e, op)
            e.branch(rest)
            op.erase()
        for op in returns:
            e = Emitter(op.block, entry)
            op.erase()
            _save_clock(c, e)
            e.store(0, c.node, Node.ACTIVE)
            e.branch(c.cleanup)
        ends = (block.operations[-1].operation.name for block in function.regions[0].blocks)
        suspends = "async.coro.suspend" in ends
        if suspends:
            # LLVM makes two functions of a coroutine: what it does up to its first suspension, and all it does from any
            # of them on. What comes after one at the end of the prologue is compiled only once.
            _wait(c, Emitter(entry), cut(entry, list(entry.operations)[-1]))
        return suspends


def _advance(c: Coroutine, e: Emitter, cycles: Word) -> None:
    e.set(c.clock, e.add(e.get(c.clock), cycles))


def _fault(c: Coroutine, e: Emitter, op: ir.Operation) -> None:
    """Note the first wrong index, and let compiled code return to Python."""
    with e.when(e.is_(e.load(c.header, Header.FAULT), "==", 0)):
        e.store(site(op, "check") + 1, c.header, Header.FAULT)
        e.store(e.from_index(op.operands[0]), c.header, Header.FAULT_INDEX)
        e.store(e.load(c.node, Node.SLOT), c.header, Header.FAULT_SLOT)
    e.store(0, c.header, Header.BUDGET)


_PLAIN_OPS: Mapping[str, Callable[[Coroutine, Emitter, ir.Operation], None]] = {
    "df.cost": lambda c, e, op: _advance(c, e, e.load(c.costs, site(op, "site"))),
    "df.cost_times": lambda c, e, op: _advance(
        c, e, e.mul(e.load(c.costs, site(op, "site")), e.from_index(op.operands[0]))
    ),
    "df.fault": _fault,
    "df.breathe": lambda c, e, op: _yield_at_times(c, e, site(op, "turns")),
}
"""Operations that move no tokens."""


def _lower_stream_op(c: Coroutine, e: Emitter, op: ir.Operation) -> None:
    result, stream = op.results[0], _record(c, e, op.operands[0])
    result.replace_all_uses_with(e.array(_perform(c, e, op, stream), result.type))


def _perform(c: Coroutine, e: Emitter, op: ir.Operation, stream: ir.Value) -> ir.Value:
    """Wait until the operation is possible, do it, and advance the clock by the wait; returns the token's address."""
    getting = op.name in ("df.take", "df.try_take")
    state = State.GET if getting else State.PUT
    number = site(op, "op") << STATE_BITS
    if c.record:
        _wait_for_log(c, e)
    go, wait = e.new_block(), e.new_block()
    e.branch_if(fifo.may_move(e, stream, getting=getting), go, wait, odds=USUALLY)
    e.go(wait)
    fifo.block(e, c.node, stream, state, number)
    suspend(c, e, go)
    e.go(go)
    before = e.get(c.clock)
    words = entry_words(storage_bytes(op.results[0].type))
    if c.moves is None:
        now, token = fifo.move(e, getting, c.header, stream, before, words)
    else:
        now, token = fifo.called_move(*c.moves, e, getting, c.header, stream, before, words)
    stalled = e.sub(now, before)
    e.set(c.clock, now)
    stall = c.stall_get if getting else c.stall_put
    e.set(stall, e.add(e.get(stall), stalled))
    if c.record:
        fifo.write(e, c.header, c.node, e.word(number + state), e.address(stream), before, now)
    return token


def _lower_poll(c: Coroutine, e: Emitter, op: ir.Operation) -> None:
    """An operation that does not wait: when it is known whether it would have to, do it or not; it takes a cycle."""
    stream = _record(c, e, op.operands[0])
    moves = op.name in ("df.try_take", "df.try_offer")
    answer = e.variable(e.bit(not moves))
    # If the get fails, the token is uninitialized memory.
    token = e.variable(e.field(e.load_ptr(stream, Stream.RING), int(Entry.TOKEN)))
    _yield_at_times(c, e)
    with e.forever() as (again, done):
        yes, no, unknown, ask = (e.new_block() for _ in range(4))
        getting = op.name in ("df.try_take", "df.empty")
        fifo.poll(e, stream, e.get(c.clock), getting=getting, yes=yes, no=no, unknown=unknown)
        e.go(unknown)
        e.branch_if(e.is_(e.load(c.node, Node.GRANTED), "!=", 0), no, ask)
        e.go(ask)
        e.store(0, c.node, Node.WAITS_ON)
        e.store((site(op, "op") << STATE_BITS) + int(State.REQUEST), c.node, Node.WAITS_IN)
        e.store(e.get(c.clock), c.node, Node.CLOCK)
        e.call(PUSH_REQUEST, [c.header, c.node])
        suspend(c, e, again)
        e.go(yes)
        e.set(answer, e.bit(moves))
        if moves:
            e.set(token, _perform(c, e, op, stream))
        e.branch(done)
        e.go(no)
        e.branch(done)
    e.store(0, c.node, Node.GRANTED)
    _advance(c, e, 1)
    if moves:
        op.results[0].replace_all_uses_with(e.array(e.get(token), op.results[0].type))
    op.results[-1].replace_all_uses_with(e.get(answer))


def _yield_at_times(c: Coroutine, e: Emitter, turns: int = 1) -> None:
    """A loop that never suspends must let compiled code return to Python all the same."""
    left = e.sub(e.load(c.header, Header.BUDGET), turns)
    e.store(left, c.header, Header.BUDGET)
    with e.when(e.is_(left, "<", 0), rare=True):
        fifo.push_ready(e, c.header, c.node)
        go = e.new_block()
        suspend(c, e, go)
        e.go(go)


def _wait_for_log(c: Coroutine, e: Emitter) -> None:
    """Suspend before an operation that the event log has no room for; the node goes on when Python has emptied it."""
    with e.forever() as (again, leave):
        e.leave_unless(fifo.is_full(e, c.header), leave, rare=True)
        fifo.push_ready(e, c.header, c.node)
        suspend(c, e, again)


def _record(c: Coroutine, e: Emitter, number: ir.Value) -> ir.Value:
    for known, address in c.records:
        if known == number:
            return address
    return fifo.record(e, c.streams, number)


_LOWERED = {
    **_PLAIN_OPS,
    "df.take": _lower_stream_op,
    "df.offer": _lower_stream_op,
    **dict.fromkeys(POLLS, _lower_poll),
}
