"""unfold and outline: make parts of a nest separate processes in hardware."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

from allo_dse.common.errors import ProgramError
from allo_dse.common.mlir.bindings import Operation, Value, ir, nested_ops
from allo_dse.common.records import replace

from ..ir.nest import LOOP, Loop, Node
from .body import NAME, Body, inner_block, number_of, numbered, statements
from .lookup import Found
from .loops import bounds, constant, known, trips_of, variable
from .streams import accesses, touches

MOST_COPIES = 4096
_MEMORY = ("memref.alloc", "memref.alloca")


def unfold(nest: Sequence[Found], axes: Sequence[int]) -> dict[str, str]:
    """Write out the rounds of some loops of a nest one after the other, each with numbers for their variables.

    before:  for i in 0..2: for k: f(i, k)        after unfold([0]):  for k: f(0, k); for k: f(1, k)

    The order of all statements stays. Memory that every round fills before it reads it becomes each copy's own, so that
    copies can run at once; each copy is a call of its own, as of a function (`Body.copies`).

    Returns:
        Names of the memory that was added, and of what it is in place of.

    Raises:
        ProgramError: where the number of rounds is not known, or is too large.
    """
    body = nest[0].body
    copies = 1
    for axis in axes:
        trips = trips_of(nest[axis].op)
        if trips is None or known(bounds(nest[axis].op)[0]) is None:
            raise ProgramError(f"unfold: how often `{nest[axis].name}` runs is not known when the program is compiled")
        copies *= trips
    if copies > MOST_COPIES:
        raise ProgramError(f"unfold: {copies:,} copies; the limit is {MOST_COPIES:,}", hint="split the loops first")
    made = body.names()
    places: dict[int, tuple[int, ...]] = {}
    for axis in sorted(axes, reverse=True):
        loop = nest[axis].op
        own = _memory_of_rounds(body, loop)
        rounds = _peeled(loop)
        before, places = places, {}
        for number, group in enumerate(rounds):
            memory = _memory_of(group, own, made) if number else {}
            for (_, old), new in as_call(body, group, memory=memory).items():
                if old in before:
                    places[new] = (number, *before[old])
                elif axis == max(axes):
                    places[new] = (number,)
    body.copies.update(places)
    return {name: first for name, first in made.items() if name != first}


def outline(found: Found, name: str) -> None:
    """Make a loop a function of its own, by name: what it does stays where it is.

    before:  for i: for j: ...        after outline(i, "f"):  f(), of which `i` and `j` are loops
    """
    as_call(found.body, [found.op], name)


def as_call(
    body: Body,
    group: Sequence[Operation],
    function: str | None = None,
    memory: Mapping[Value, Value] | None = None,
) -> dict[tuple[str, int], int]:
    """Number the calls that a part of a body makes anew, itself as one of them; the new numbers by function and call.

    Args:
        function: a name for that function.
        memory: what the part uses in place of other memory.
    """
    loops = [op for top in group for op in nested_ops(top, parents_first=True) if LOOP in op.attributes]
    if not loops:
        return {}
    outermost = body.source(loops[0])
    free = count(1 + max(source.call for source in body.sources))
    calls: dict[tuple[str, int], int] = {}
    for loop in loops:
        own = body.source(loop)
        key = own.function, own.call
        if key not in calls:
            calls[key] = next(free)
        if key == (outermost.function, outermost.call) and function is not None:
            own = replace(own, function=function)
        loop.attributes[LOOP] = body.marked(replace(own, call=calls[key]), own.name)
    for (owner, before, name), value in list(body.arrays.items()):
        if (owner, before) in calls:
            renamed = function if function is not None and owner == outermost.function else owner
            body.arrays[renamed, calls[owner, before], name] = (memory or {}).get(value, value)
    return calls


def _peeled(loop: Operation) -> list[list[Operation]]:
    """The rounds of a loop in its place; the statements of each."""
    low, _, step = (known(value) for value in bounds(loop))
    trips = trips_of(loop)
    assert low is not None
    assert step is not None
    assert trips is not None
    rounds = []
    with ir.InsertionPoint(loop):
        for number in range(trips):
            value = constant(low + number * step)
            copy = loop.clone(ir.InsertionPoint(loop)).operation
            variable(copy).replace_all_uses_with(value)
            made = statements(inner_block(copy))
            for op in made:
                op.move_before(copy)
            copy.erase()
            rounds.append(made)
    loop.erase()
    return rounds


def _memory_of_rounds(body: Body, loop: Operation) -> list[Operation]:
    """The memory that only the rounds of a loop use, and that each fills before it reads it."""
    nest = body.nest()
    if nest.unsupported is not None:
        return []
    rounds = numbered(nest, number_of(loop)).body
    inside = set(nested_ops(loop))
    return [
        op
        for op in body.operations()
        if op.name in _MEMORY
        and all(user in inside for user in _users(op) if user.name != "memref.dealloc")
        and _filled_first(rounds, body.name_of(op.results[0]), list(ir.MemRefType(op.results[0].type).shape))
    ]


def _users(op: Operation) -> Iterator[Operation]:
    return (use.owner.operation for use in op.results[0].uses)


def _filled_first(rounds: Sequence[Node], array: str, shape: Sequence[int]) -> bool:
    """Return whether the first statement that uses an array overwrites all of it."""
    first = next((node for node in rounds if touches(node, array)), None)
    if first is None or (isinstance(first, Loop) and touches(first, array, write=False)):
        return False
    written = accesses([first], array, shape, write=True)
    return written is not None and len(set(written.tolist())) == math.prod(shape)


def _memory_of(group: Sequence[Operation], own: Sequence[Operation], names: dict[str, str]) -> dict[Value, Value]:
    """Memory of its own for a round, by what it is in place of."""
    made: dict[Value, Value] = {memory.results[0]: copy_of(memory, names) for memory in own}
    for op in (inner for top in group for inner in nested_ops(top)):
        for position, operand in enumerate(op.operands):
            if operand in made:
                op.operands[position] = made[operand]
    return made


def copy_of(memory: Operation, names: dict[str, str]) -> Value:
    """Other memory of the same kind; its name is added to `names`, with that of the first."""
    copy = memory.clone(ir.InsertionPoint(memory)).operation
    if NAME in memory.attributes:
        first = str(ir.StringAttr(memory.attributes[NAME]).value)
        number = next(n for n in count(1) if f"{first}_{n}" not in names)
        names[f"{first}_{number}"] = first
        copy.attributes[NAME] = ir.StringAttr.get(f"{first}_{number}")
    for user in list(_users(memory)):
        if user.name == "memref.dealloc":
            user.clone(ir.InsertionPoint(user)).operation.operands[0] = copy.results[0]
    return copy.results[0]
