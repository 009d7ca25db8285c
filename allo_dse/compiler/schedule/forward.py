"""The primitive `to` along an axis: each copy passes elements on to the next, as in a systolic array."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from msgspec import Struct

from allo_dse.common.mlir.bindings import ir, memref, nested_ops
from allo_dse.lang.diagnostics import ProgramError

from ..ir.nest import LOOP
from .body import Body, around
from .unfold import copy_of


class Reader(Struct, frozen=True):
    """A copy of an unfolded nest, by its rounds, and how it uses an array, or an array of its own in its place."""

    place: tuple[int, ...]
    memory: ir.Value
    loads: list[ir.Operation]
    fill: ir.Operation | None


def hand_on(body: Body, memories: Iterable[ir.Value], axis: int, names: dict[str, str]) -> list[ir.Value]:
    """Chain the copies along an axis that read the same elements; returns the FIFOs between them.

    before:  for k: a[k] = A[k];  for k: f(a[k]);  for k: g(a[k])
    after:   for k: a[k] = A[k];  for k: { f(a[k]); b[k] = a[k] };  for k: g(b[k])

    Nothing is done, and nothing returned, where copies write what others read: they hand it on themselves.
    """
    found = [reader for memory in memories for reader in _readers(body, memory)]
    made = []
    for _, lane in groupby(sorted(found, key=lambda r: (_others(r, axis), r.place[axis])), lambda r: _others(r, axis)):
        readers = list(lane)
        source = readers[0].memory
        if readers[0].fill is None:
            made.append(source)
        for one, other in pairwise(readers):
            if other.fill is None:
                target = copy_of(source.owner, names)
                for load in other.loads:
                    load.operands[0] = target
            else:
                target = other.memory
                _check_same(body, readers[0], other)
                other.fill.erase()
            for load in one.loads:
                with _behind(load):
                    memref.StoreOp(load.results[0], target, list(load.operands)[1:])
            made.append(target)
    return made


def branch(body: Body, memory: ir.Value, reader: str, names: dict[str, str]) -> ir.Value:
    """Give one of several nests that read an array its own memory; writes go to both.

    before:  for i: b[i] = A[i];  for i: C[i] = b[i];  for i: D[i] = b[i]
    after:   for i: { b[i] = A[i]; c[i] = A[i] };  for i: C[i] = c[i];  for i: D[i] = b[i]

    Args:
        reader: the nest, by its name, that of its function, or of an array that it writes.
    """
    if isinstance(memory, ir.BlockArgument):
        return memory
    users = [use.owner.operation for use in memory.uses]
    loads: dict[ir.Operation, list[ir.Operation]] = {}
    for op in users:
        if op.name == "memref.load":
            loads.setdefault([op, *around(op)][-2], []).append(op)
    meant = [nest for nest in loads if reader in _called(body, nest)]
    if len(loads) < 2 or len(meant) != 1:
        return memory
    made = copy_of(memory.owner, names)
    for op in users:
        if op.name == "memref.store":
            with _behind(op):
                memref.StoreOp(op.operands[0], made, list(op.operands)[2:])
    for op in loads[meant[0]]:
        op.operands[0] = made
    return made


def _behind(op: ir.Operation) -> ir.InsertionPoint:
    point: ir.InsertionPoint = ir.InsertionPoint.after(op)  # type: ignore[attr-defined]  # newer than its stubs
    return point


def _called(body: Body, nest: ir.Operation) -> set[str]:
    """Names of a nest: its own, its function's, and those of the arrays that it writes."""
    found = set()
    for op in nested_ops(nest):
        if LOOP in op.attributes:
            found |= {body.source(op).band, body.source(op).function}
        elif op.name == "memref.store":
            found.add(body.name_of(_root(op.operands[1])))
    return found


def _others(reader: Reader, axis: int) -> tuple[int, ...]:
    """Return a reader's position without one axis: it is equal for all copies in a line along that axis."""
    return reader.place[:axis] + reader.place[axis + 1 :]


def _readers(body: Body, memory: ir.Value) -> Iterator[Reader]:
    """The copies that read an array, if they do nothing else with it but fill it where it is their own."""
    if isinstance(memory, ir.BlockArgument):
        return
    loads: dict[int, list[ir.Operation]] = {}
    fills: dict[int, ir.Operation] = {}
    for use in memory.uses:
        op = use.owner.operation
        copy = _copy(body, op)
        if op.name == "memref.load" and copy is not None:
            loads.setdefault(body.source(copy).call, []).append(op)
        elif op.name == "memref.store" and copy is not None and list(op.operands)[1] == memory:
            fills[body.source(copy).call] = copy
        elif op.name not in ("memref.dealloc", "memref.store"):
            return
    if fills and (len(loads) != 1 or fills.keys() != loads.keys()):
        return
    for call, ops in loads.items():
        yield Reader(body.copies[call], memory, ops[::-1], fills.get(call))


def _copy(body: Body, op: ir.Operation) -> ir.Operation | None:
    """The outermost loop around an operation that belongs to a copy."""
    loops = (outer for outer in around(op) if LOOP in outer.attributes)
    return next(reversed([loop for loop in loops if body.source(loop).call in body.copies]), None)


def _check_same(body: Body, first: Reader, other: Reader) -> None:
    """Refuse two copies that fill their arrays with different elements."""
    assert first.fill is not None
    assert other.fill is not None
    name = body.name_of(first.memory)
    if not _same_op(first.fill, other.fill, {first.memory: other.memory}):
        raise ProgramError(f"to: the copies along this axis do not fill `{name}` alike", hint="choose the other axis")
    written = {_root(op.operands[1]) for op in nested_ops(body.function) if op.name == "memref.store"}
    for op in nested_ops(first.fill):
        if op.name == "memref.load" and _root(op.operands[0]) in written:
            raise ProgramError(f"to: what `{name}` is filled from is written, and may differ from copy to copy")


def _root(array: ir.Value) -> ir.Value:
    while not isinstance(array, ir.BlockArgument) and array.owner.name in ("memref.subview", "memref.cast"):
        array = array.owner.operands[0]
    return array


def _same_op(one: ir.Operation, other: ir.Operation, pairs: dict[ir.Value, ir.Value]) -> bool:
    """Return whether two operations are equal, with the second value of each pair in place of the first."""
    attributes = ({str(a): str(op.attributes[a]) for a in op.attributes if str(a) != LOOP} for op in (one, other))
    if one.name != other.name or next(attributes) != next(attributes) or len(one.regions) != len(other.regions):
        return False
    operands = list(one.operands), list(other.operands)
    if len(operands[0]) != len(operands[1]) or any(pairs.get(a, a) != b for a, b in zip(*operands, strict=True)):
        return False
    for mine, theirs in zip(one.regions, other.regions, strict=True):
        for left, right in zip(mine.blocks, theirs.blocks, strict=True):
            pairs.update(zip(left.arguments, right.arguments, strict=True))
            if not _same_ops(
                [op.operation for op in left.operations], [op.operation for op in right.operations], pairs
            ):
                return False
    pairs.update(zip(one.results, other.results, strict=True))
    return True


def _same_ops(one: Sequence[ir.Operation], other: Sequence[ir.Operation], pairs: dict[ir.Value, ir.Value]) -> bool:
    return len(one) == len(other) and all(_same_op(a, b, pairs) for a, b in zip(one, other, strict=True))
