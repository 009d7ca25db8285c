"""unfold and outline: parts of a nest that hardware keeps apart, as processes of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from allo_dse.ir.bindings import ir
from allo_dse.ir.nest import Loop, Node
from allo_dse.ir.nested_ops import nested_ops
from allo_dse.lang.diagnostics import ProgramError

from .body import LOOP, NAME, Body, inner_block, number_of, numbered, statements
from .fifo import accesses, touches
from .find import Found
from .reshape_loops import bounds, constant, known, trips_of, variable

MOST_COPIES = 4096
_MEMORY = ("memref.alloc", "memref.alloca")


@dataclass(frozen=True)
class Unfolded:
    """What unfolding a nest made.

    Attributes:
        copies: how many rounds stand by themselves now.
        memories: names of arrays of which every copy but the first has its own, and the names of those.
    """

    copies: int
    memories: Mapping[str, tuple[str, ...]]


def unfold(nest: Sequence[Found], axes: Sequence[int]) -> Unfolded:
    """Write out the rounds of some loops of a nest one after the other, each with numbers for their variables.

    before:  for i in 0..2: for k: f(i, k)        after unfold([0]):  for k: f(0, k); for k: f(1, k)

    The order of all statements stays. Memory that every round fills before it reads it becomes each copy's own, so that
    copies can run at once; each copy is a call of its own, as of a function.

    Raises:
        ProgramError: where the number of rounds is not known, or is too large.
    """
    body = nest[0].body
    own = _memory_of_rounds(nest[min(axes)], nest[max(axes)])
    numbers = [number_of(nest[axis].op) for axis in sorted(axes)]
    copies = 1
    for axis in axes:
        trips = trips_of(nest[axis].op)
        if trips is None:
            raise ProgramError(f"unfold: how often `{nest[axis].name}` runs is not known when the program is compiled")
        copies *= trips
    if copies > MOST_COPIES:
        raise ProgramError(f"unfold: {copies:,} copies; the limit is {MOST_COPIES:,}", hint="split the loops first")
    groups = [[nest[min(axes)].op]]
    for number in numbers:
        groups = [rounds for group in groups for rounds in _peeled(_numbered(group, number))]
    memories = _give_memory(groups, own)
    for group in groups:
        body.copies |= as_call(body, group)
    return Unfolded(len(groups), memories)


def outline(found: Found, name: str) -> None:
    """Make a loop a function of its own, by name: what it does stays where it is.

    before:  for i: for j: ...        after outline(i, "f"):  f(), of which `i` and `j` are loops
    """
    as_call(found.body, [found.op], name)


def as_call(body: Body, group: Sequence[ir.Operation], function: str | None = None) -> set[int]:
    """Number the calls that a part of a body makes anew, itself as one of them; those numbers.

    Args:
        function: a name for that function.
    """
    loops = [op for top in group for op in nested_ops(top, parents_first=True) if LOOP in op.attributes]
    if not loops:
        return set()
    outermost = body.source(loops[0])
    free = count(1 + max(source.call for source in body.sources))
    calls: dict[tuple[str, int], int] = {}
    for loop in loops:
        source = body.source(loop)
        if (source.function, source.call) == (outermost.function, outermost.call) and function is not None:
            own = replace(source, function=function)
        else:
            own = source
        if (source.function, source.call) not in calls:
            calls[source.function, source.call] = next(free)
        call = calls[source.function, source.call]
        body.sources.append(replace(own, call=call))
        loop.attributes[LOOP] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), len(body.sources) - 1)
    for (owner, before, name), value in list(body.arrays.items()):
        if (owner, before) in calls:
            renamed = function if function is not None and owner == outermost.function else owner
            body.arrays[renamed, calls[owner, before], name] = value
    return set(calls.values())


def _numbered(group: Sequence[ir.Operation], number: int) -> ir.Operation:
    """The loop of a part of the body that has a number."""
    inside = (op for top in group for op in nested_ops(top, parents_first=True))
    return next(op for op in inside if LOOP in op.attributes and number_of(op) == number)


def _peeled(loop: ir.Operation) -> list[list[ir.Operation]]:
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


def _memory_of_rounds(outermost: Found, innermost: Found) -> list[ir.Operation]:
    """The memory that only the rounds of a nest use, and that each fills before it reads it."""
    body = outermost.body
    nest = body.nest()
    if nest.unsupported is not None:
        return []
    rounds = numbered(nest, number_of(innermost.op)).body
    inside = {id_of(op) for op in nested_ops(outermost.op)}
    return [
        op
        for op in body.operations()
        if op.name in _MEMORY
        and all(id_of(user) in inside for user in _users(op) if user.name != "memref.dealloc")
        and _filled_first(rounds, body.name_of(op.results[0]), list(ir.MemRefType(op.results[0].type).shape))
    ]


def id_of(op: ir.Operation) -> int:
    """A number that is the same for all handles of an operation."""
    return hash(op)


def _users(op: ir.Operation) -> Iterator[ir.Operation]:
    return (use.owner.operation for use in op.results[0].uses)


def _filled_first(rounds: Sequence[Node], array: str, shape: Sequence[int]) -> bool:
    """Whether the first statement that uses an array writes all of it, whatever it held."""
    first = next((node for node in rounds if touches(node, array)), None)
    if first is None or (isinstance(first, Loop) and touches(first, array, write=False)):
        return False
    written = accesses([first], array, shape, write=True)
    size = 1
    for extent in shape:
        size *= extent
    return written is not None and len(set(written.tolist())) == size


def _give_memory(groups: Sequence[Sequence[ir.Operation]], own: Sequence[ir.Operation]) -> dict[str, tuple[str, ...]]:
    """Memory of its own for every group but the first; names of it by the name of the first's."""
    made: dict[str, tuple[str, ...]] = {}
    for memory in own:
        name = str(ir.StringAttr(memory.attributes[NAME]).value) if NAME in memory.attributes else ""
        freed = next((user for user in _users(memory) if user.name == "memref.dealloc"), None)
        names = []
        for number, group in enumerate(groups[1:], 1):
            copy = memory.clone(ir.InsertionPoint(memory)).operation
            if name:
                copy.attributes[NAME] = ir.StringAttr.get(f"{name}_{number}")
                names.append(f"{name}_{number}")
            for op in (inner for top in group for inner in nested_ops(top)):
                for position, operand in enumerate(op.operands):
                    if operand == memory.results[0]:
                        op.operands[position] = copy.results[0]
            if freed is not None:
                freed.clone(ir.InsertionPoint(freed)).operation.operands[0] = copy.results[0]
        if names:
            made[name] = tuple(names)
    return made
