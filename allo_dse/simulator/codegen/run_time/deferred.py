"""Code for the registers of a pipeline: puts that are due later than operations behind them in program order (T7).

They wait in a queue of the node, latest first, and are performed when their turn comes. Times in the queue do not count
the cycles for which the pipeline has been frozen since it was entered (`Node.FROZEN`); adding them gives the clock.
"""

from __future__ import annotations

from allo_dse.ir.bindings import func, ir

from . import events, fifo
from .emit import Emitter, function
from .record_fields import Deferred, Node, State, Stream
from .variant import Variant

FLUSH, DEFER = "df_flush", "df_defer"


def define_deferred(module: ir.Module, variant: Variant) -> None:
    """`df_flush(header, node, until)`: perform the puts due until then; false if one must wait, which is registered.

    `df_defer(node, due, operation, stream)`: queue a put; returns where its token goes.
    """
    ptr, word = Emitter.pointer_type(), Emitter.word_type()
    flush = function(module, FLUSH, [ptr, ptr, word], [Emitter.bit_type()])
    _define_flush(flush, variant)
    defer = function(module, DEFER, [ptr, word, word, ptr], [ptr])
    _define_defer(defer)


def _define_flush(op: func.FuncOp, variant: Variant) -> None:
    header, node, until = op.arguments
    e = Emitter(op.entry_block)
    with e.forever() as (_, done):
        count = e.load(node, Node.DEFERRED)
        e.leave_unless(e.is_(count, ">", 0), done)
        entry = _entry(e, node, e.sub(count, 1))
        due = e.load(entry, Deferred.DUE)
        e.leave_unless(e.is_(due, "<=", until), done)
        if variant.record:
            with e.when(events.is_full(e, header), rare=True):
                fifo.push_ready(e, header, node)
                e.return_([e.bit(False)])
        stream, what = e.load_ptr(entry, Deferred.STREAM), e.load(entry, Deferred.WHAT)
        wait, go = e.new_block(), e.new_block()
        e.branch_if(fifo.can_put(e, stream), go, wait)
        e.go(wait)
        fifo.block(e, node, stream, State.READY, what)
        e.return_([e.bit(False)])
        e.go(go)
        before = e.add(due, e.load(node, Node.FROZEN))
        now, _ = fifo.put(e, header, stream, before)
        if variant.record:
            events.write(e, header, node, what, e.address(stream), before, now)
        e.increase(node, Node.STALL_PUT, e.sub(now, before))
        e.store(e.sub(now, due), node, Node.FROZEN)
        e.store(e.sub(count, 1), node, Node.DEFERRED)
    e.return_([e.bit(True)])


def _define_defer(op: func.FuncOp) -> None:
    """Earlier puts of the same stream that still wait go first: the token's place is behind theirs."""
    node, due, what, stream = op.arguments
    e = Emitter(op.entry_block)
    hole, ahead = e.variable(e.load(node, Node.DEFERRED)), e.variable(0)
    e.increase(node, Node.DEFERRED, 1)
    place = e.variable(e.get(hole))
    with e.forever() as (_, stop):
        at = e.get(place)
        e.leave_unless(e.is_(at, ">", 0), stop)
        # What is due by then goes first, and at equal times what comes first in the program (T7).
        other = _entry(e, node, e.sub(at, 1))
        with e.when(e.same_ptr(e.load_ptr(other, Deferred.STREAM), stream)):
            e.set(ahead, e.add(e.get(ahead), 1))
        with e.when(e.is_(e.load(other, Deferred.DUE), "<=", due)):
            target = _entry(e, node, at)
            for field in (Deferred.DUE, Deferred.WHAT, Deferred.STREAM):
                e.store(e.load(other, field), target, field)
            e.set(hole, e.sub(at, 1))
        e.set(place, e.sub(at, 1))
    entry = _entry(e, node, e.get(hole))
    e.store(due, entry, Deferred.DUE)
    e.store(what, entry, Deferred.WHAT)
    e.store(stream, entry, Deferred.STREAM)
    token = e.add(e.load(stream, Stream.TAIL), e.get(ahead))
    e.return_([fifo.token_at(e, stream, token)])


def _entry(e: Emitter, node: ir.Value, number: ir.Value) -> ir.Value:
    return e.field(e.load_ptr(node, Node.QUEUE), e.mul(number, int(Deferred.SIZE)))
