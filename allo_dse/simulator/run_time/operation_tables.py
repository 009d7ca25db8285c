"""Code of the table process: it executes an operation table, so that movers and servers are data, not code.

The process keeps its position in its node record and is called again when it can go on; it needs no coroutine.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from allo_dse.common.mlir.bindings import ir
from allo_dse.common.records import Frozen

from . import fifo
from .builder import RARELY, Emitter, Variable, function
from .records import Code, Header, Node, Op, Process, Slot, State

STEP = "df_table_step"
START = "df_table_start"
PUSH_REQUEST = "df_push_request"


class _Frame(Frozen):
    """State of the interpreter: its records, and the variables that live across operations."""

    e: Emitter
    header: ir.Value
    node: ir.Value
    arguments: ir.Value
    pc: Variable
    clock: Variable
    log: Variable
    log_end: ir.Value
    leave: ir.Block
    record: bool


def define_table_process(module: ir.Module, record: bool) -> None:
    """`df_table_start(node)` begins the node's current slot, `df_table_step(header, node)` runs it until it blocks."""
    e, (node,) = function(module, START, 1)
    arguments = e.load_ptr(e.load_ptr(node, Node.SLOT), Slot.ARGUMENTS)
    e.store(e.load(arguments, Process.OPS), node, Node.HANDLE)
    e.return_()
    _define_step(module, record)


def _define_step(module: ir.Module, record: bool) -> None:
    e, (header, node) = function(module, STEP, 2)
    arguments = e.load_ptr(e.load_ptr(node, Node.SLOT), Slot.ARGUMENTS)
    pc = e.variable(e.load_ptr(node, Node.HANDLE))
    clock = e.variable(e.load(node, Node.CLOCK))
    log = e.variable(e.load_ptr(arguments, Process.LOG))
    log_end = e.load_ptr(arguments, Process.LOG_END)
    with e.forever() as (head, leave):
        frame = _Frame(e, header, node, arguments, pc, clock, log, log_end, leave, record)
        handlers: dict[Code, Callable[[_Frame, ir.Value], None]]
        handlers = {Code.WAIT: _wait, Code.REQUEST: _request, Code.REPEAT: _repeat}
        handlers |= {Code.GET: partial(_stream_op, State.GET), Code.PUT: partial(_stream_op, State.PUT)}
        blocks = {code: e.new_block() for code in Code}
        row = e.get(pc)
        e.switch(e.load(row, Op.CODE), blocks[Code.HALT], [blocks[code] for code in Code])
        for code, handler in handlers.items():
            e.go(blocks[code])
            handler(frame, row)
            e.branch(head)
        e.go(blocks[Code.HALT])
        e.store(0, node, Node.ACTIVE)
        e.branch(leave)
    e.store(e.get(clock), node, Node.CLOCK)
    e.store(e.get(pc), node, Node.HANDLE)
    e.store(e.get(log), arguments, Process.LOG)
    e.return_()


def _next(frame: _Frame, row: ir.Value) -> None:
    """Note the clock if the row is marked, and go to the next row."""
    e = frame.e
    position = e.get(frame.log)
    with (
        e.when(e.is_(e.address(position), "!=", e.address(frame.log_end))),
        e.when(e.is_(e.load(row, Op.MARK), "!=", 0)),
    ):
        e.store(e.get(frame.clock), position)
        e.set(frame.log, e.field(position, 1))
    e.set(frame.pc, e.field(row, int(Op.SIZE)))


def _bound(frame: _Frame, row: ir.Value, table: Process) -> ir.Value:
    """The record that the row's port is bound to."""
    return frame.e.load_ptr(frame.e.load_ptr(frame.arguments, table), frame.e.load(row, Op.OPERAND))


def _stop(frame: _Frame) -> None:
    frame.e.branch(frame.leave)


def _stream_op(state: State, frame: _Frame, row: ir.Value) -> None:
    e = frame.e
    stream = _bound(frame, row, Process.STREAMS)
    getting = state is State.GET
    if frame.record:  # the node goes on when Python has emptied a full event log
        with e.when(fifo.is_full(e, frame.header), rare=True):
            fifo.push_ready(e, frame.header, frame.node)
            _stop(frame)
    blocked, free = e.new_block(), e.new_block()
    e.branch_if(fifo.may_move(e, stream, getting=getting), free, blocked)
    e.go(blocked)
    fifo.block(e, frame.node, stream, state, e.address(row))
    _stop(frame)
    e.go(free)
    before = e.get(frame.clock)
    now, _ = fifo.move(e, getting, frame.header, stream, before)
    e.increase(frame.node, Node.STALL_GET if getting else Node.STALL_PUT, e.sub(now, before))
    e.set(frame.clock, now)
    if frame.record:
        fifo.write(e, frame.header, frame.node, e.add(e.address(row), int(state)), e.address(stream), before, now)
    _next(frame, row)


def _wait(frame: _Frame, row: ir.Value) -> None:
    e = frame.e
    e.set(frame.clock, e.add(e.get(frame.clock), e.load(row, Op.VALUE)))
    _next(frame, row)


def _request(frame: _Frame, row: ir.Value) -> None:
    """Ask for the resource and stop; when the scheduler has granted it, the clock stands at the end of the service."""
    e = frame.e
    ask, granted = e.new_block(), e.new_block()
    e.branch_if(e.is_(e.load(frame.node, Node.GRANTED), "!=", 0), granted, ask)
    e.go(ask)
    e.store(_bound(frame, row, Process.RESOURCES), frame.node, Node.WAITS_ON)
    e.store(e.load(row, Op.VALUE), frame.node, Node.SERVICE)
    e.store(e.add(e.address(row), int(State.REQUEST)), frame.node, Node.WAITS_IN)
    e.store(e.get(frame.clock), frame.node, Node.CLOCK)
    e.call(PUSH_REQUEST, [frame.header, frame.node])
    _stop(frame)
    e.go(granted)
    e.store(0, frame.node, Node.GRANTED)
    _next(frame, row)


def _repeat(frame: _Frame, row: ir.Value) -> None:
    e = frame.e
    counter = e.field(e.field(frame.arguments, int(Process.COUNTERS)), e.load(row, Op.OPERAND))
    done = e.add(e.load(counter), 1)
    again, over, pause, after = (e.new_block() for _ in range(4))
    e.branch_if(e.is_(done, "<", e.load(row, Op.VALUE)), again, over)
    e.go(again)
    e.store(done, counter)
    back = e.mul(e.load(row, Op.MARK), -int(Op.SIZE))
    e.set(frame.pc, e.field(row, back))
    here = e.add(e.address(row), e.address(frame.node))
    with e.when(e.is_(here, "==", e.load(frame.header, Header.ANCHOR)), rare=True):
        skip = e.load(frame.header, Header.ROUNDS)
        e.store(e.sub(skip, 1), frame.header, Header.ROUNDS)
        with e.when(e.is_(skip, "<=", 1)):
            e.store(0, frame.header, Header.ANCHOR)
    left = e.sub(e.load(frame.header, Header.BUDGET), 1)
    e.store(left, frame.header, Header.BUDGET)
    # Even a loop that never blocks must let compiled code return to Python.
    e.branch_if(e.is_(left, "<", 0), pause, after, odds=RARELY)
    e.go(pause)
    fifo.push_ready(e, frame.header, frame.node)
    _stop(frame)
    e.go(over)
    e.store(0, counter)
    e.set(frame.pc, e.field(row, int(Op.SIZE)))
    e.branch(after)
    e.go(after)
