"""Code of the run loop: a queue of runnable nodes, and a heap of requests for shared resources.

A blocked node is registered at its stream and queued again by the opposite operation, so the cost of a turn does not
depend on the number of nodes. When no node can run, the pending request with the smallest (clock, node) is granted:
every later request comes from a clock at least as large, so service in this order is first come, first served (T11).
A poll whose answer is not yet decided is such a request without a resource: once it is granted, nothing can happen at
its stream before its time any more.
"""

from __future__ import annotations

from collections.abc import Sequence

from allo_dse.common.mlir.bindings import ir

from . import fifo
from . import operation_tables as tables
from .builder import Emitter, function
from .operation_tables import PUSH_REQUEST
from .records import Header, Node, Resource, Slot, State

RUN = "df_run"
DESTROY = "df_destroy"
TURN, START_SLOT, GRANT, BEFORE = "df_turn", "df_start_slot", "df_grant", "df_before"
PREFETCHED = 4
"""Cache lines of a coroutine's frame that are fetched ahead."""


def define_requests(module: ir.Module) -> None:
    """`df_push_request(header, node)`: the node asks for a resource, or for the answer to a poll, at its clock."""
    _define_before(module)
    _define_request(module)


def define_scheduler(module: ir.Module, record: bool) -> None:
    """`df_run(header)`, in a module that has the table process and requests."""
    _define_grant(module, record)
    _define_start(module)
    _define_turn(module)
    _define_run(module, record)
    _define_destroy(module)


def _define_run(module: ir.Module, record: bool) -> None:
    e, (header,) = function(module, RUN, 1, public=True)
    with e.forever() as (again, stop):
        if record:
            with e.when(fifo.is_full(e, header), rare=True):
                e.store(1, header, Header.STATUS)
                e.branch(stop)
        head = e.load(header, Header.READY_HEAD)
        with e.when(e.is_(head, "==", e.load(header, Header.READY_TAIL))):
            idle = e.is_(e.load(header, Header.PENDING_COUNT), "==", 0)
            with e.when(idle):
                e.store(0, header, Header.STATUS)
                e.branch(stop)
            e.call(GRANT, [header])
            e.branch(again)
        left = e.load(header, Header.BUDGET)
        with e.when(e.is_(left, "<=", 0)):
            e.store(1, header, Header.STATUS)
            e.branch(stop)
        e.store(e.sub(left, 1), header, Header.BUDGET)
        position = e.bits_and(head, e.load(header, Header.READY_MASK))
        node = e.load_ptr(e.load_ptr(header, Header.READY), position)
        e.store(e.add(head, 1), header, Header.READY_HEAD)
        # Fetch the frame of the node that comes next; every place of the queue names some node.
        position = e.bits_and(e.add(head, 1), e.load(header, Header.READY_MASK))
        frame = e.load_ptr(e.load_ptr(e.load_ptr(header, Header.READY), position), Node.HANDLE)
        for line in range(PREFETCHED):
            e.op("llvm.intr.prefetch", [], e.field(frame, 8 * line), rw="0 : i32", hint="3 : i32", cache="1 : i32")
        e.call(TURN, [header, node])
        with e.when(e.is_(e.load(header, Header.ANCHOR), "==", 0), rare=True):
            e.store(1, header, Header.STATUS)
            e.branch(stop)
    e.return_()


def _define_turn(module: ir.Module) -> None:
    """Run one node until it blocks: go on with its slot, and start the next ones as they end."""
    e, (header, node) = function(module, TURN, 2)
    with e.forever() as (_, stop):
        slot = e.load_ptr(node, Node.SLOT)
        start, go_on, table, coroutine, ran = (e.new_block() for _ in range(5))
        active = e.load(node, Node.ACTIVE)
        e.branch_if(e.is_(active, "==", 0), start, go_on)
        e.go(start)
        with e.when(e.is_(e.address(slot), "==", e.load(node, Node.SLOT_END))):
            e.store(int(State.FINISHED), node, Node.WAITS_IN)
            e.increase(header, Header.FINISHED, 1)
            e.branch(stop)
        e.store(e.add(e.load(slot, Slot.BODY), 1), node, Node.ACTIVE)
        e.store(e.load(node, Node.CLOCK), slot, Slot.START)
        e.call(START_SLOT, [header, node, slot])
        e.branch(ran)
        e.go(go_on)
        e.branch_if(e.is_(active, "==", 1), table, coroutine)
        e.go(table)
        e.call(tables.STEP, [header, node])
        e.branch(ran)
        e.go(coroutine)
        e.op("llvm.intr.coro.resume", [], e.load_ptr(node, Node.HANDLE))
        e.branch(ran)
        e.go(ran)
        with e.when(e.is_(e.load(node, Node.ACTIVE), "!=", 0)):
            e.branch(stop)
        e.store(e.load(node, Node.CLOCK), slot, Slot.END)
        e.store(e.field(slot, int(Slot.SIZE)), node, Node.SLOT)
    e.return_()


def _define_start(module: ir.Module) -> None:
    """Start the current slot of a node; a compiled body runs until it blocks for the first time."""
    e, (header, node, slot) = function(module, START_SLOT, 3)
    with e.when(e.is_(e.load(slot, Slot.BODY), "==", 0)):
        e.call(tables.START, [node])
        e.call(tables.STEP, [header, node])
        e.return_()
    e.call_at(e.load_ptr(header, Header.START_BODY), [header, node, slot])
    e.return_()


def _define_before(module: ir.Module) -> None:
    """Order of two waiting nodes: by clock, then by node number (their records are in that order)."""
    e, (a, b) = function(module, BEFORE, 2, [Emitter.bit_type()])
    first, second = e.load(a, Node.CLOCK), e.load(b, Node.CLOCK)
    with e.when(e.is_(first, "!=", second)):
        e.return_([e.is_(first, "<", second)])
    e.return_([e.is_(e.address(a), "<", e.address(b))])


def _define_request(module: ir.Module) -> None:
    """Add a node to the heap of pending requests."""
    e, (header, node) = function(module, PUSH_REQUEST, 2)
    heap, count = e.load_ptr(header, Header.PENDING), e.load(header, Header.PENDING_COUNT)
    e.store(e.add(count, 1), header, Header.PENDING_COUNT)
    hole = e.variable(count)
    with e.forever() as (_, stop):
        place = e.get(hole)
        e.leave_unless(e.is_(place, ">", 0), stop)
        parent = e.shift_right(e.sub(place, 1), 1)
        other = e.load_ptr(heap, parent)
        e.leave_unless(e.call(BEFORE, [node, other], [Emitter.bit_type()])[0], stop)
        e.store(other, heap, place)
        e.set(hole, parent)
    e.store(node, heap, e.get(hole))
    e.return_()


def _define_grant(module: ir.Module, record: bool) -> None:
    """Serve the first pending request, from max(request time, server free) on; then the node can run again."""
    e, (header,) = function(module, GRANT, 1)
    heap = e.load_ptr(header, Header.PENDING)
    node = e.load_ptr(heap)
    count = e.sub(e.load(header, Header.PENDING_COUNT), 1)
    e.store(count, header, Header.PENDING_COUNT)
    with e.when(e.is_(count, ">", 0)):
        _sift_down(e, heap, count)
    with e.when(e.is_(e.load(node, Node.WAITS_ON), "==", 0), rare=True):
        e.store(1, node, Node.GRANTED)
        fifo.push_ready(e, header, node)
        e.return_()
    server = e.load_ptr(node, Node.WAITS_ON)
    asked = e.load(node, Node.CLOCK)
    cycles = e.load(node, Node.SERVICE)
    begin = e.max(asked, e.load(server, Resource.FREE))
    end = e.add(begin, cycles)
    e.store(end, server, Resource.FREE)
    e.increase(server, Resource.BUSY, cycles)
    e.increase(server, Resource.REQUESTS, 1)
    e.increase(node, Node.STALL_REQUEST, e.sub(begin, asked))
    if record:
        fifo.write(e, header, node, e.load(node, Node.WAITS_IN), e.address(server), asked, begin)
    e.store(end, node, Node.CLOCK)
    e.store(1, node, Node.GRANTED)
    fifo.push_ready(e, header, node)
    e.return_()


def _sift_down(e: Emitter, heap: ir.Value, count: ir.Value) -> None:
    """Put the last element of a heap that has lost its first into place."""
    node = e.load_ptr(heap, count)
    hole = e.variable(0)
    with e.forever() as (_, stop):
        child = e.variable(e.add(e.shift_left(e.get(hole), 1), 1))
        e.leave_unless(e.is_(e.get(child), "<", count), stop)
        right = e.add(e.get(child), 1)
        with e.when(e.is_(right, "<", count)):
            nearer = e.call(BEFORE, [e.load_ptr(heap, right), e.load_ptr(heap, e.get(child))], [Emitter.bit_type()])[0]
            with e.when(nearer):
                e.set(child, right)
        other = e.load_ptr(heap, e.get(child))
        e.leave_unless(e.call(BEFORE, [other, node], [Emitter.bit_type()])[0], stop)
        e.store(other, heap, e.get(hole))
        e.set(hole, e.get(child))
    e.store(node, heap, e.get(hole))


def _define_destroy(module: ir.Module) -> None:
    """`df_destroy(frame)`: free a coroutine that has not ended."""
    e, (frame,) = function(module, DESTROY, 1, public=True)
    e.op("llvm.intr.coro.destroy", [], frame)
    e.return_()


# The run-time module has the scheduler and the table process, compiled once for all task bodies.


START_BODY = "df_start_body"


def add_runtime(module: ir.Module, record: bool) -> None:
    """Add the scheduler and the table process."""
    with ir.Location.unknown():
        fifo.define_wakes(module)
        define_requests(module)
        tables.define_table_process(module, record)
        define_scheduler(module, record)


def add_bodies_runtime(module: ir.Module, starts: Sequence[str], *, polls: bool) -> None:
    """Add what compiled bodies call, and `df_start_body(header, node, slot)`, by which the scheduler starts them.

    Args:
        starts: names of functions (header, node, arguments) that start bodies, from number 1 on.
        polls: whether any body tests the fill of its streams.
    """
    with ir.Location.unknown():
        fifo.define_wakes(module)
        if polls:
            define_requests(module)
        e, (header, node, slot) = function(module, START_BODY, 3, public=True)
        blocks = [e.new_block() for _ in starts]
        e.switch(e.sub(e.load(slot, Slot.BODY), 1), blocks[0], blocks)
        for block, name in zip(blocks, starts, strict=True):
            e.go(block)
            e.call(name, [header, node, e.load_ptr(slot, Slot.ARGUMENTS)])
            e.return_()
