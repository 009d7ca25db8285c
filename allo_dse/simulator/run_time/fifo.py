"""Code for the time-stamped FIFO: rules T2 (get), T3 (put), T5 (occupancy) and T12 (polls) of docs/timing.md."""

from __future__ import annotations

from allo_dse.common.mlir.bindings import ir
from allo_dse.common.records import Frozen

from .builder import Emitter, Word, function
from .records import Entry, Event, Header, Node, State, Stream

WAKE_READER, WAKE_WRITER, PAUSE = "df_wake_reader", "df_wake_writer", "df_pause"
MOVE = ".move_"
"""In the name of every function of `called_move`."""


def define_wakes(module: ir.Module) -> None:
    """`df_wake_...(header, stream word)`: queue the node registered there as runnable and clear the registration;
    `df_pause(node, clock, get stalls, put stalls)`: keep these in a node's record."""
    for name, push in ((WAKE_READER, _push_reader), (WAKE_WRITER, push_ready)):
        e, (header, place) = function(module, name, 2)
        node = e.load_ptr(place)
        e.store(0, place)
        push(e, header, node)
        e.return_()
    e, (node, clock, gets, puts) = function(module, PAUSE, 1, words=3)
    e.store(clock, node, Node.CLOCK)
    e.increase(node, Node.STALL_GET, gets)
    e.increase(node, Node.STALL_PUT, puts)
    e.return_()


def _push_reader(e: Emitter, header: ir.Value, node: ir.Value) -> None:
    """Queue a node for which there is a token: before all others, where tokens are to go as far as they can."""
    last, first, after = e.new_block(), e.new_block(), e.new_block()
    e.branch_if(e.is_(e.load(header, Header.TOKENS_FIRST), "==", 0), last, first)
    e.go(last)
    push_ready(e, header, node)
    e.branch(after)
    e.go(first)
    head = e.sub(e.load(header, Header.READY_HEAD), 1)
    e.store(node, e.load_ptr(header, Header.READY), e.bits_and(head, e.load(header, Header.READY_MASK)))
    e.store(head, header, Header.READY_HEAD)
    e.branch(after)
    e.go(after)


def push_ready(e: Emitter, header: ir.Value, node: ir.Value) -> None:
    """Queue a node that can run."""
    tail = e.load(header, Header.READY_TAIL)
    position = e.bits_and(tail, e.load(header, Header.READY_MASK))
    e.store(node, e.load_ptr(header, Header.READY), position)
    e.store(e.add(tail, 1), header, Header.READY_TAIL)


def record(e: Emitter, streams: ir.Value, number: ir.Value) -> ir.Value:
    """Address of a stream's record, by its number (an index)."""
    return e.field(streams, e.mul(e.from_index(number), int(Stream.SIZE)))


def may_move(e: Emitter, stream: ir.Value, *, getting: bool) -> ir.Value:
    """Return whether a stream has a token to get, or room to put one."""
    head, tail = e.load(stream, Stream.HEAD), e.load(stream, Stream.TAIL)
    return e.is_(head, "<", tail) if getting else e.is_(e.sub(tail, head), "<", e.load(stream, Stream.DEPTH))


def poll(
    e: Emitter, stream: ir.Value, clock: ir.Value, *, getting: bool, yes: ir.Block, no: ir.Block, unknown: ir.Block
) -> None:
    """Branch by whether a get, or a put, would go on at once; `unknown` where the other side has not come so far."""
    known = e.new_block()
    e.branch_if(may_move(e, stream, getting=getting), known, unknown)
    e.go(known)
    _, soonest = _soonest(e, _view(e, stream, getting, None), getting)
    e.branch_if(e.is_(soonest, "<=", clock), yes, no)


def block(e: Emitter, node: ir.Value, stream: ir.Value, state: State, op: Word) -> None:
    """Register `node` as waiting in operation `op` of `stream`; the opposite operation wakes it."""
    e.store(stream, node, Node.WAITS_ON)
    e.store(e.add(op, int(state)), node, Node.WAITS_IN)
    e.store(node, stream, Stream.WAITER)


class _View(Frozen):
    """The words of a stream that an operation needs, loaded once, before anything is stored."""

    stream: ir.Value
    count: ir.Value
    """Number of the token that the operation puts or takes."""
    others: ir.Value
    """How many operations of the other side have been executed."""
    mask: ir.Value
    ring: ir.Value
    words: ir.Value
    most: ir.Value

    def entry(self, e: Emitter, token: ir.Value) -> ir.Value:
        return e.field(self.ring, e.mul(e.bits_and(token, self.mask), self.words))


def _view(e: Emitter, stream: ir.Value, getting: bool, words: int | None) -> _View:
    count, others = (Stream.HEAD, Stream.TAIL) if getting else (Stream.TAIL, Stream.HEAD)
    return _View(
        stream,
        e.load(stream, count),
        e.load(stream, others),
        e.load(stream, Stream.MASK),
        e.load_ptr(stream, Stream.RING),
        e.word(words) if words else e.half(stream, Stream.FORMAT, 1),
        e.load(stream, Stream.OCCUPANCY),
    )


def _soonest(e: Emitter, view: _View, getting: bool) -> tuple[ir.Value, ir.Value]:
    """Return the entry of the token to get, or of the one whose slot a put takes, and the clock from which it may."""
    entry = view.entry(e, view.count if getting else e.sub(view.count, e.load(view.stream, Stream.DEPTH)))
    then = e.load(entry, Entry.PUT if getting else Entry.TAKEN)
    return entry, e.add(then, e.half(view.stream, Stream.FORMAT, 0) if getting else 1)


def move(
    e: Emitter, getting: bool, header: ir.Value, stream: ir.Value, clock: ir.Value, words: int | None = None
) -> tuple[ir.Value, ir.Value]:
    """Take the oldest token of a stream, or add one, whose bytes are yet to be written; there is one, or room for it.

    Args:
        words: words per ring entry, where known.

    Returns:
        The clock after it, and the address of the token's bytes.
    """
    view = _view(e, stream, getting, words)
    entry, soonest = _soonest(e, view, getting)
    now = e.max(clock, soonest)
    entry = entry if getting else view.entry(e, view.count)
    e.store(now, entry, Entry.TAKEN if getting else Entry.PUT)
    e.store(e.add(view.count, 1), stream, Stream.HEAD if getting else Stream.TAIL)
    _observe(e, view, now, getting)
    # Whoever waits there waits for this: the one that runs cannot be it.
    with e.when(e.is_(e.load(stream, Stream.WAITER), "!=", 0), rare=True):
        e.call(WAKE_WRITER if getting else WAKE_READER, [header, e.field(stream, Stream.WAITER)])
    return now, e.field(entry, Entry.TOKEN)


def called_move(
    module: ir.Module,
    prefix: str,
    e: Emitter,
    getting: bool,
    header: ir.Value,
    stream: ir.Value,
    clock: ir.Value,
    words: int | None,
) -> tuple[ir.Value, ir.Value]:
    """`move` as a function of a module, for code that has many; `prefix` is of the functions' names."""
    name, results = f"{prefix}{MOVE}{'get' if getting else 'put'}{words or ''}", [e.i64, e.ptr]
    if name not in ir.SymbolTable(module.operation):
        own, (own_header, own_stream, own_clock) = function(module, name, 2, results, words=1)
        own.return_(move(own, getting, own_header, own_stream, own_clock, words))
    now, token = e.call(name, [header, stream, clock], results)
    return now, token


# T5: occupancy in time, not in order of execution. Tokens m..n are in the FIFO together iff get m is not before put n.
# So the maximum is the largest n + 1 - m over pairs with time(put n) <= time(get m). The later executed one of the two
# tests the pair, and only pairs that would raise the maximum are tested: one comparison per operation.


def _observe(e: Emitter, view: _View, now: ir.Value, getting: bool) -> None:
    further = e.add if getting else e.sub
    at = e.variable(further(view.count, view.most))
    with e.forever() as (_, leave):
        token = e.get(at)
        there = e.is_(token, "<" if getting else "inside", view.others)
        e.leave_unless(there, leave, rare=True)
        other = e.load(view.entry(e, token), Entry.PUT if getting else Entry.TAKEN)
        e.leave_unless(e.is_(other, "<=" if getting else ">=", now), leave)
        e.increase(view.stream, Stream.OCCUPANCY, 1)
        e.set(at, further(token, 1))


# Python empties the event log's buffer. When it is full, nodes begin no new operation and the run loop returns.


def is_full(e: Emitter, header: ir.Value) -> ir.Value:
    return e.is_(e.load(header, Header.EVENT), "==", e.load(header, Header.EVENT_END))


def write(
    e: Emitter, header: ir.Value, node: ir.Value, what: ir.Value, on: ir.Value, requested: ir.Value, completed: ir.Value
) -> None:
    """Add an event; there must be room.

    Args:
        what: the operation, in the form of `Node.WAITS_IN`.
        on: the stream or resource.
        requested, completed: clock before and after it.
    """
    event = e.load_ptr(header, Header.EVENT)
    e.store(e.load(node, Node.SLOT), event, Event.SLOT)
    e.store(what, event, Event.WHAT)
    e.store(on, event, Event.ON)
    e.store(requested, event, Event.REQUESTED)
    e.store(completed, event, Event.COMPLETED)
    e.store(e.add(e.address(event), e.load(header, Header.EVENT_STEP)), header, Header.EVENT)
