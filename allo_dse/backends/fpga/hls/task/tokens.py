"""Stream operations of task bodies as calls of `hls::stream`."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING

from allo_dse.common.mlir.bindings import ir, nested_ops

from ...cost.simplify import PACKED
from ...linear import IndexSum, atom
from ..cpp.expressions import BOOL, const, leaf, render
from ..cpp.streams import StreamArg

if TYPE_CHECKING:
    from .body import Body

TAKE = "fifo.load"
"""A load from an array that is a FIFO."""


def _stream(body: Body, op: ir.Operation) -> tuple[StreamArg, str]:
    """The stream that an operation uses."""
    form = body.index(op.operands[0])
    base = next(a for a in form.terms if a in body.streams)
    argument = body.streams[base]
    linear = form - atom(base)
    if not argument.dims:
        return argument, argument.name
    text, places = linear.text(body.atom_text), []
    if len(argument.dims) == 1:
        return argument, f"{argument.name}[{text}]"
    for axis, extent in enumerate(argument.dims):
        stride = math.prod(argument.dims[axis + 1 :])
        if linear.is_const:
            place = linear.const // stride
            places.append(f"[{place % extent if axis else place}]")
        else:
            whole = f"({text}) / {stride}" if stride > 1 else f"({text})"
            places.append(f"[{whole} % {extent}]" if axis else f"[{whole}]")
    return argument, argument.name + "".join(places)


def _scalar(body: Body, op: ir.Operation) -> None:
    argument, stream = _stream(body, op)
    carrier, tries = argument.carrier, op.name.startswith("df.try")
    if "put" in op.name:
        text = render(body.node(op.operands[1]))
        if tries:
            _tried(body, op, f"{stream}.write_nb(({carrier.token})({text}))")
        else:
            body.line(f"{stream}.write({text});")
        return
    result = op.results[0]
    if not tries and not list(result.uses):
        body.line(f"{stream}.read();")
        return
    name = body.names.new("value" if tries else f"{argument.name.removesuffix('_in')}_token")
    if tries:
        body.line(f"{carrier.token} {name} = {render(const(0, carrier.element))};")
        _tried(body, op, f"{stream}.read_nb({name})")
    else:
        body.line(f"const {carrier.token} {name} = {stream}.read();")
    body.values[result] = leaf(name, carrier.element)


def _tried(body: Body, op: ir.Operation, attempt: str, name: str = "ok") -> str:
    """Write an operation that does not wait; returns the variable that says whether it happened."""
    success = body.names.new(name)
    body.line(f"const bool {success} = {attempt};")
    body.values[op.results[len(op.results) - 1]] = leaf(success, BOOL)
    return success


def _block(body: Body, op: ir.Operation) -> None:
    argument, stream = _stream(body, op)
    gets, token_type = "get" in op.name, argument.carrier.token
    if argument.carrier.is_buffer:
        return
    if gets:
        body.flush(frozenset([body.views[op.operands[1]].array]))
    if argument.carrier.by_element:
        _copy_block(body, op, lambda place, at: f"{place} = {stream}.read();" if gets else f"{stream}.write({place});")
        return
    tries = op.name.startswith("df.try")
    with nullcontext() if tries else body.block("{"):
        token = body.names.new("token")
        read = "" if tries or not gets else f" = {stream}.read()"
        body.line(f"{'const ' if read else ''}{token_type} {token}{read};")
        success = _tried(body, op, f"{stream}.read_nb({token})") if tries and gets else ""
        with body.block(f"if ({success}) {{") if success else nullcontext():
            _copy_block(
                body, op, lambda place, at: f"{place} = {token}[{at}];" if gets else f"{token}[{at}] = {place};"
            )
        if tries and not gets:
            _tried(body, op, f"{stream}.write_nb({token})")
        elif not gets:
            body.line(f"{stream}.write({token});")


def find_banks(body: Body, function: ir.Operation) -> None:
    """Find the scopes in which a task holds banks of ping-pong buffers. Scopes that overlap end together."""
    scopes = []
    for op in nested_ops(function):
        if op.name in PACKED and _stream(body, op)[0].carrier.is_buffer:
            body.banks[op.operands[1]] = _stream(body, op)[0]
            scopes.append((*_scope(op), op))
    ends: list[tuple[ir.Block, int, int]] = []
    for start, end, op in sorted(scopes, key=lambda scope: -scope[0]):
        end = max([end, *(last for block, first, last in ends if block == op.block and first <= end)])
        ends.append((op.block, start, end))
        own = [one.operation for one in op.block.operations]
        closes = end < len(own) - 1  # else with the body around
        body.opens.setdefault(own[start], []).insert(0, (op, closes))
        body.closes[own[end]] = body.closes.get(own[end], 0) + closes


def _scope(op: ir.Operation) -> tuple[int, int]:
    """Return the numbers of the first and last operation of a block's body that use it, or what is computed between."""
    own = [one.operation for one in op.block.operations]
    place = {inner: number for number, one in enumerate(own) for inner in nested_ops(one)}
    uses = [place[u.owner.operation] for u in op.operands[1].uses if u.owner.operation.name != "memref.dealloc"]
    start, end, known = min(uses), max(uses), -1
    while end != known:
        known = end
        made = (v for one in own[start : end + 1] if one.name != "arith.constant" for v in one.results)
        end = max([end, *(place[use.owner.operation] for value in made for use in value.uses)])
    return start, end


def _open_bank(body: Body, op: ir.Operation) -> None:
    argument, stream = _stream(body, op)
    kind, array = "read" if "get" in op.name else "write", body.views[op.operands[1]].array.name
    body.line(f"hls::{kind}_lock<{argument.carrier.token}> {array}({stream});")


def _copy_block(body: Body, op: ir.Operation, statement: Callable[[str, str], str]) -> None:
    """Loops over the elements of a block, row-major; those of a word move at once."""
    packed = not _stream(body, op)[0].carrier.by_element
    buffer = op.operands[1]
    shape = tuple(ir.MemRefType(buffer.type).shape)
    view = body.views[buffer]
    with ExitStack() as stack:
        counters = []
        for axis, extent in enumerate(shape):
            counter = body.names.new("ijklmn"[axis] if axis < 6 else "i")
            head = f"for (int {counter} = 0; {counter} < {extent}; {counter}++) {{"
            stack.enter_context(body.block(f"{body.labels.new('block')}: {head}" if axis == 0 else head))
            counters.append(counter)
            if packed:
                body.pragma("unroll")
        if not packed:
            body.pragma("pipeline II=1")
        place = body.place(view, [IndexSum(0, {counter: 1}) for counter in counters])
        position = IndexSum()
        for counter, extent in zip(counters, shape, strict=True):
            position = position * extent + IndexSum(0, {counter: 1})
        body.line(statement(place, position.text(str)))


def _occupancy(body: Body, op: ir.Operation) -> None:
    _tried(body, op, f"{_stream(body, op)[1]}.{op.name.removeprefix('df.')}()", "answer")


def _external(body: Body, op: ir.Operation) -> None:
    """A call of a vendor kernel: the address is an argument of the body, the operands are addresses of tiles."""
    callee, *words = op.operands
    arrays = [body.views[_source_of(word)].array for word in words]
    body.flush(frozenset(arrays))
    body.line(f"{body.externals[_source_of(callee)]}({', '.join(array.name for array in arrays)});")


def _source_of(value: ir.Value) -> ir.Value:
    """The argument or memref that an address is computed from."""
    while not isinstance(value, ir.BlockArgument) and not isinstance(value.type, ir.MemRefType):
        value = value.owner.operands[0]
    return value


def _address(body: Body, op: ir.Operation) -> None:
    """Part of the call of a vendor kernel, which is written where it happens."""
    body.addresses.add(op.results[0])


TOKEN_HANDLERS: dict[str, Callable[[Body, ir.Operation], None]] = {
    **{f"df.{way}": _scalar for way in ("get", "put", "try_get", "try_put")},
    **{f"df.{way}_block": _block for way in ("get", "put", "try_get", "try_put")},
    "lock": _open_bank,
    "df.empty": _occupancy,
    "df.full": _occupancy,
    "memref.extract_aligned_pointer_as_index": _address,
    "llvm.inttoptr": _address,
    "llvm.call": _external,
}
