"""split, reorder, fuse and tile: other loops around the same statements; compute_at: the nest of another in a loop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Literal, get_args

from allo_dse.common.errors import ProgramError, warn
from allo_dse.common.mlir.bindings import Operation, Value, arith, ir, nested_ops, scf
from allo_dse.common.records import Frozen

from ..ir.affine import UNKNOWN, Linear, Ranges, extent
from ..ir.nest import LOOP, Access, Loop, Node, Op, blocks_of, with_loops
from .body import Body, inner_block, is_pure, nest_down_to, number_of, numbered, statements
from .lookup import Found

# Two accesses to one element, at least one of them a write, must keep their order. Whether two accesses meet is decided
# by the bounds of their linear forms, one array dimension at a time: Banerjee's inequalities with direction vectors,
# and the divisibility test (Allen and Kennedy, "Optimizing Compilers for Modern Architectures", chapter 3). The answer
# "independent" is certain; accesses whose indices depend on data are never independent.
#
# Two kinds of dependence are ignored: memory that every iteration writes before reading it, and sums, products, minima
# and maxima, whose terms may come in any order (floating-point results are then rounded differently).


Direction = Literal["<", "=", ">"]

_ORDERLESS = ("add", "mul", "min", "max", "and", "or", "xor")
_WIDTHS = ("arith.extsi", "arith.extui", "arith.trunci", "arith.extf", "arith.truncf")


class Reference(Frozen, eq=False):
    """An access in a nest.

    Attributes:
        loops: around it, inside the loop where the search began, outermost first.
        order: its place in the text.
        update: the number of the update `x = x + ...` that it belongs to, or -1.
    """

    access: Access
    loops: tuple[Loop, ...]
    order: int
    update: int = -1


def references(nodes: Sequence[Node]) -> list[Reference]:
    """The accesses of a tree; a stream operation is a write to something of its own."""
    ops = [(node, loops) for node, loops in with_loops(nodes) if isinstance(node, Op)]
    updates = _updates([op for op, _ in ops])
    found = []
    for order, (op, loops) in enumerate(ops):
        if op.stream is not None:
            found.append(Reference(Access(f"stream {op.stream}", True, ()), loops, order))
        if op.access is not None:
            found.append(Reference(op.access, loops, order, updates.get(id(op), -1)))
    return found


def _updates(ops: Sequence[Op]) -> dict[int, int]:
    """Pairs of load and store of one element, where the store adds to the loaded value."""
    makers = {output: op for op in ops for output in op.outputs}
    found: dict[int, int] = {}
    for number, store in enumerate(ops):
        if store.access is None or not store.access.write or not store.inputs:
            continue
        for load in _terms(makers, store.inputs[0], None):
            if load.access is not None and (load.access.array, load.access.index) == (
                store.access.array,
                store.access.index,
            ):
                if None not in load.access.index:
                    found[id(store)] = found[id(load)] = number
                break
    return found


def _terms(makers: Mapping[int, Op], value: int, kind: str | None) -> Iterator[Op]:
    """The loads whose sum (product, ...) is a value."""
    maker = makers.get(value)
    if maker is None:
        return
    if maker.name == "load":
        if kind is not None:
            yield maker
        return
    if maker.name in _WIDTHS:
        yield from _terms(makers, maker.inputs[0], kind)
        return
    own = next((name for name in _ORDERLESS if maker.name.startswith(f"arith.{name}")), None)
    if own is not None and kind in (None, own):
        for operand in maker.inputs:
            yield from _terms(makers, operand, own)


def value_ranges(loops: Sequence[Loop], known: Ranges) -> dict[int, tuple[int, int]]:
    """The values of the variables of loops, outermost first; wider where bounds depend on each other."""
    ranges = dict(known)
    for loop in loops:
        low, high = (UNKNOWN if end is None else extent(end, ranges) for end in (loop.lower, loop.upper))
        ranges[loop.variable] = (low[0], max(low[0], high[1] - 1))
    return ranges


class Pairing(Frozen):
    """Corresponding loops of two accesses: the variables of `left[i]` and `right[i]` are compared.

    Attributes:
        left, right: the loops common to both, outermost first (the same ones, unless two nests are merged).
        ranges: of all variables.
    """

    left: tuple[Loop, ...]
    right: tuple[Loop, ...]
    ranges: Ranges

    def directions(self, one: Reference, other: Reference) -> Iterator[tuple[Direction, ...]]:
        """The possible direction vectors between the iterations of two accesses to one element."""
        if one.access.array != other.access.array or not (one.access.write or other.access.write):
            return
        vectors: list[tuple[Direction, ...]] = [()]
        for _ in self.left:
            longer = [(*vector, direction) for vector, direction in product(vectors, get_args(Direction))]
            vectors = [vector for vector in longer if self._meet(one, other, vector)]
        yield from (vector for vector in vectors if vector or self._meet(one, other, vector))

    def _meet(self, one: Reference, other: Reference, vector: tuple[Direction, ...]) -> bool:
        pairs = zip(one.access.index, other.access.index, strict=False)
        return all(a is None or b is None or self._equal(a, b, one, other, vector) for a, b in pairs)

    def _equal(self, a: Linear, b: Linear, one: Reference, other: Reference, vector: tuple[Direction, ...]) -> bool:
        """Return whether two forms can have the same value."""
        if a.derived or b.derived:
            return True
        low = high = a.constant - b.constant
        steps: list[int] = []
        mine, theirs = dict(a.terms), dict(b.terms)
        for position, (left, right) in enumerate(zip(self.left, self.right, strict=True)):
            factors = mine.pop(left.variable, 0), theirs.pop(right.variable, 0)
            direction = vector[position] if position < len(vector) else None
            span = _span(factors, self.ranges[left.variable], self.ranges[right.variable], direction)
            if span is None:
                return False
            low, high = low + span[0], high + span[1]
            steps += [factors[0] - factors[1]] if direction == "=" and left is right else list(factors)
        own = {loop.variable for loop in (*one.loops, *other.loops)}
        for variable in mine.keys() | theirs.keys():
            first, second = mine.get(variable, 0), theirs.get(variable, 0)
            parts = [first, -second] if variable in own else [first - second]
            for factor in parts:
                ends = sorted(factor * end for end in self.ranges.get(variable, UNKNOWN))
                low, high = low + ends[0], high + ends[1]
            steps += parts
        divisor = math.gcd(*steps) if steps else 0
        constant = b.constant - a.constant
        return low <= 0 <= high and (constant % divisor == 0 if divisor else constant == 0)


def _span(
    factors: tuple[int, int], left: tuple[int, int], right: tuple[int, int], direction: Direction | None
) -> tuple[int, int] | None:
    """The smallest and largest value of `a * x - b * y` for `x` and `y` in their ranges, in a direction to each other;
    None where there are no such values."""
    a, b = factors
    if direction is None:
        corners = list(product(left, right))
    elif direction == "=":
        low, high = max(left[0], right[0]), min(left[1], right[1])
        corners = [(low, low), (high, high)] if low <= high else []
    elif direction == "<":
        corners = _below(left, right)
    else:
        corners = [(x, y) for y, x in _below(right, left)]
    values = [a * x - b * y for x, y in corners]
    return (min(values), max(values)) if values else None


def _below(left: tuple[int, int], right: tuple[int, int]) -> list[tuple[int, int]]:
    """The corners of the set of pairs `x < y`."""
    (x0, x1), (y0, y1) = left, right
    corners = [*product(left, right), (x0, x0 + 1), (x1, x1 + 1), (y0 - 1, y0), (y1 - 1, y1)]
    return [(x, y) for x, y in corners if x0 <= x <= x1 and y0 <= y <= y1 and x < y]


def first_order(vector: Sequence[Direction]) -> Direction:
    """Return which of two iterations comes first: "<" the first one, ">" the second one, "=" neither."""
    return next((direction for direction in vector if direction != "="), "=")


def private(nodes: Sequence[Node]) -> set[str]:
    """The arrays that the code writes before it reads them, whatever they held: each iteration has its own."""
    seen: set[str] = set()
    found: set[str] = set()
    for node in nodes:
        used = {op.access.array for op, _ in with_loops([node]) if isinstance(op, Op) and op.access is not None}
        if isinstance(node, Op) and node.access is not None and node.access.write and not node.access.index:
            found |= used - seen
        seen |= used
    return found


def constant(value: int) -> Value:
    """A number, where code is being written."""
    return arith.ConstantOp(ir.IndexType.get(), value).result


def known(value: Value) -> int | None:
    """The number that a value is, if it is one."""
    if isinstance(value, ir.BlockArgument) or value.owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(value.owner.attributes["value"]).value)


def bounds(loop: Operation) -> tuple[Value, Value, Value]:
    """First value, end and step."""
    if loop.name != "scf.for":
        raise ProgramError("a loop that data ends cannot be rewritten", hint="write it as `for i in range(...)`")
    low, high, step = list(loop.operands)[:3]
    return low, high, step


def trips_of(loop: Operation) -> int | None:
    """Return the number of iterations of a loop, if it is a constant."""
    low, high, step = (known(value) for value in bounds(loop))
    return None if low is None or high is None or not step else max(0, -(-(high - low) // step))


def _trips(loop: Operation) -> Value:
    """Return the number of iterations of a loop as a value, which is computed before it."""
    number = trips_of(loop)
    if number is not None:
        return constant(number)
    low, high, step = bounds(loop)
    if known(step) != 1:
        raise ProgramError("a loop whose bounds and step both vary cannot be rewritten")
    return high if known(low) == 0 else arith.SubIOp(high, low).result


def variable(loop: Operation) -> Value:
    return inner_block(loop).arguments[0]


def new_loop(mark: ir.Attribute, *bounds: Value) -> Operation:
    """A loop where code is being written.

    Args:
        bounds: first value, end and step; or the end only, of a loop from 0 by 1.
    """
    made = scf.ForOp(*(bounds if len(bounds) > 1 else (constant(0), *bounds, constant(1)))).operation
    made.attributes[LOOP] = mark
    with ir.InsertionPoint(inner_block(made)):
        scf.YieldOp([])
    return made


def _value_at(loop: Operation, round_: Value) -> Value:
    """Return the value of a loop's variable in a given iteration."""
    low, _, step = bounds(loop)
    scaled = round_ if known(step) == 1 else arith.MulIOp(round_, step).result
    return scaled if known(low) == 0 else arith.AddIOp(low, scaled).result


def split(found: Found, factor: int) -> None:
    """Two loops in place of one, the inner one of `factor` rounds.

    before:  for i in 0..n        after:  for i.outer in 0..ceil(n / f): for i.inner in 0..min(f, n - i.outer * f)
    """
    body, loop = found.body, found.op
    source, trips = body.source(loop), trips_of(loop)
    with ir.InsertionPoint(loop):
        total, size = _trips(loop), constant(factor)
        if trips is not None:
            rounds = constant(-(-trips // factor))
        else:
            rounds = arith.FloorDivSIOp(arith.AddIOp(total, constant(factor - 1)).result, size).result
        outer = new_loop(body.marked(source, f"{source.name}.outer"), rounds)
    with ir.InsertionPoint.at_block_terminator(inner_block(outer)):
        first = arith.MulIOp(variable(outer), size).result
        exact = trips is not None and trips % factor == 0
        end = size if exact else arith.MinSIOp(size, arith.SubIOp(total, first).result).result
        inner = new_loop(body.marked(source, f"{source.name}.inner"), end)
    with ir.InsertionPoint.at_block_terminator(inner_block(inner)):
        value = _value_at(loop, arith.AddIOp(first, variable(inner)).result)
        variable(loop).replace_all_uses_with(value)
    _sink([loop], inner, {})


def fuse(chain: Sequence[Found]) -> str:
    """One loop in place of several that stand directly in each other; returns its name.

    before:  for i in 0..n: for j in 0..m        after:  for i_j_fused in 0..n * m, i = i_j_fused // m, j = the rest
    """
    body = chain[0].body
    loops = perfect([one.op for one in chain])
    numbers = [trips_of(loop) for loop in loops]
    if None in numbers:
        raise ProgramError("loops whose number of rounds varies cannot be fused")
    sizes = [number for number in numbers if number is not None]
    name = "_".join(body.source(loop).name for loop in loops) + "_fused"
    total = math.prod(sizes)
    with ir.InsertionPoint(loops[0]):
        whole = new_loop(body.marked(body.source(loops[0]), name), constant(total))
    mapping: dict[Value, Value] = {}
    with ir.InsertionPoint.at_block_terminator(inner_block(whole)):
        rest = variable(whole)
        for loop, size in zip(loops, sizes, strict=True):
            total //= size
            quotient = rest if total == 1 else arith.FloorDivSIOp(rest, constant(total)).result
            mapping[variable(loop)] = _value_at(loop, quotient)
            used = arith.MulIOp(quotient, constant(total)).result
            rest = constant(0) if total == 1 else arith.SubIOp(rest, used).result  # loops of one round may follow
    _sink(loops, whole, mapping)
    return name


def reorder(body: Body, wanted: Sequence[Operation]) -> None:
    """The loops in another order, each in the place of one of them.

    before:  for i: for j: for k        after reorder(k, i):  for k: for j: for i

    Raises:
        ProgramError: where results could differ, and where other statements stand between the loops.
    """
    chain = perfect(list(_between(wanted)))
    places = [position for position, loop in enumerate(chain) if loop in wanted]
    order = list(range(len(chain)))
    for place, loop in zip(places, wanted, strict=True):
        order[place] = chain.index(loop)
    if order == sorted(order):
        return
    for place, position in enumerate(order):  # no loop may leave one that its bounds depend on
        for loop in (chain[later] for later in order[place + 1 :]):
            if any(_depends(value, variable(loop)) for value in bounds(chain[position])):
                inner, outer = body.source(chain[position]).name, body.source(loop).name
                raise ProgramError(f"the bounds of loop `{inner}` depend on `{outer}`, which must stay outside")
    check_order(body, chain, order)
    point = ir.InsertionPoint(chain[0])
    mapping: dict[Value, Value] = {}
    made: list[Operation] = []
    for position in order:
        loop = chain[position]
        with point:
            new = new_loop(loop.attributes[LOOP], *(_copied(value, chain, mapping) for value in bounds(loop)))
        mapping[variable(loop)] = variable(new)
        made.append(new)
        point = ir.InsertionPoint.at_block_terminator(inner_block(new))
    _sink(chain, made[-1], mapping)


def _between(wanted: Sequence[Operation]) -> list[Operation]:
    """All loops from the outermost to the innermost of some that stand in each other."""
    for innermost in wanted:
        chain = nest_down_to(innermost)
        if all(one in chain for one in wanted):
            return chain[min(map(chain.index, wanted)) :]
    raise ProgramError("these loops are not nested in each other", hint="name loops of one nest")


def perfect(loops: Sequence[Operation]) -> list[Operation]:
    """The loops, outermost first, if only index computations are between them.

    Raises:
        ProgramError: otherwise.
    """
    chain = _between(loops)
    for outer, inner in pairwise(chain):
        if any(op != inner and not is_pure(op) for op in statements(inner_block(outer))):
            raise ProgramError(
                "there are other statements between these loops", hint="only directly nested loops can move"
            )
    return chain


def _depends(value: Value, other: Value) -> bool:
    if value == other:
        return True
    return not isinstance(value, ir.BlockArgument) and any(_depends(v, other) for v in value.owner.operands)


def check_order(body: Body, chain: Sequence[Operation], order: Sequence[int]) -> None:
    """Refuse an order of loops in which an element is read or written too early.

    Raises:
        ProgramError: naming the array, and the loops of its two accesses.
    """
    nest = body.nest()
    if nest.unsupported is not None:
        raise ProgramError(f"loops cannot be reordered here: {nest.unsupported.reason}")
    loops = [numbered(nest, number_of(loop)) for loop in chain]
    inner = loops[-1].body
    own = private(inner)
    outer = next(outer for node, outer in with_loops(nest.body) if node is loops[0])
    found = [reference for reference in references(inner) if reference.access.array not in own]
    inside = [loop for reference in found for loop in reference.loops]
    pairing = Pairing(tuple(loops), tuple(loops), value_ranges([*outer, *loops, *inside], {}))
    for one in found:
        for other in found:
            if one.update == other.update >= 0:  # two terms of one sum, which may come in any order
                continue
            for vector in pairing.directions(one, other):
                moved = [vector[position] for position in order]
                if first_order(vector) == "<" and first_order(moved) == ">":
                    names = [body.source(loop).name for loop in chain]
                    distance = ", ".join(f"{n} {d}" for n, d in zip(names, vector, strict=True))
                    raise ProgramError(
                        f"in this order an element of `{one.access.array}` is used too early",
                        hint=f"an iteration uses what an earlier one leaves there ({distance} later ones)",
                    )


def _copied(value: Value, chain: Sequence[Operation], mapping: dict[Value, Value]) -> Value:
    """A value that is computed in the chain, computed again where code is being written."""
    if value in mapping:
        return mapping[value]
    if isinstance(value, ir.BlockArgument) or not any(value.owner.parent == loop for loop in chain):
        return value
    operands = [_copied(operand, chain, mapping) for operand in value.owner.operands]
    copy = value.owner.clone().operation
    for position, operand in enumerate(operands):
        copy.operands[position] = operand
    mapping.update(zip(value.owner.results, copy.results, strict=True))
    return mapping[value]


def _sink(chain: Sequence[Operation], target: Operation, mapping: dict[Value, Value]) -> None:
    """Move the statements of a chain's innermost loop, and those between its loops, into another loop."""
    end = list(inner_block(target).operations)[-1]
    for outer, inner in pairwise(chain):
        for op in statements(inner_block(outer)):
            if op != inner:
                op.move_before(end)
    for op in statements(inner_block(chain[-1])):
        op.move_before(end)
    for old, new in mapping.items():
        old.replace_all_uses_with(new)
    chain[0].erase()


def erase_unused(block: ir.Block) -> None:
    """Erase unused computations in a block and the blocks inside it."""
    for op in reversed([op.operation for op in block.operations]):
        for region in op.regions:
            for inner in region.blocks:
                erase_unused(inner)
        if is_pure(op) and not any(list(result.uses) for result in op.results):
            op.erase()


def share_constants(function: Operation) -> None:
    """Write each number once, at the beginning of the function."""
    block = function.regions[0].blocks[0]
    constants = [op for op in nested_ops(function, parents_first=True) if op.name == "arith.constant"]
    every = [op for op in constants if isinstance(op.results[0].type, ir.IndexType)]
    shared: dict[int, Operation] = {}
    for op in every:
        value = known(op.results[0])
        assert value is not None
        if value in shared:
            op.results[0].replace_all_uses_with(shared[value].results[0])
            op.erase()
        else:
            shared[value] = op
            op.move_before(block.operations[0])


def compute_at(producer: Found, target: Found) -> None:
    """Run rounds of one nest at the beginning of the rounds of another, down to a loop of that.

    before:  for i: B[i] = ...; for ii: ... B[ii] ...        after:  for ii: B[ii] = ...; ... B[ii] ...

    Args:
        producer: any loop of the nest that is moved.
        target: the innermost loop that is shared.

    Raises:
        ProgramError: where the loops do not have the same rounds, or where results would differ.
    """
    body = target.body
    path, shared = nest_down_to(producer.op), nest_down_to(target.op)
    while path and shared and path[0] == shared[0]:  # loops around both nests
        path, shared = path[1:], shared[1:]
    if not path or not shared:
        raise ProgramError("both loops belong to one nest", hint="compute_at merges two nests")
    first = path[0]
    moved = _same_rounds(body, first, shared)
    if len(moved) < len(shared):
        names = body.source(moved[-1]).name, body.source(shared[len(moved) - 1]).name
        warn(f"compute_at: `{names[0]}` has several loops inside it, which all run in the rounds of `{names[1]}`")
        shared = shared[: len(moved)]
    if first.parent != shared[0].parent:
        raise ProgramError("the two nests are not next to each other")
    check_merged(body, moved, shared)
    at = inner_block(shared[-1]).operations[0]
    mapping = {variable(old): variable(new) for old, new in zip(moved, shared, strict=True)}
    for outer in moved:
        for op in statements(inner_block(outer)):
            if op not in moved:
                op.move_before(at)
    for old, new in mapping.items():
        old.replace_all_uses_with(new)
    moved[0].erase()


def _same_rounds(body: Body, first: Operation, shared: Sequence[Operation]) -> list[Operation]:
    """The loops of the moved nest that correspond to those of the other, as far as they have one loop inside each."""
    moved = [first]
    for depth, other in enumerate(shared):
        if depth:
            inner = [op for op in statements(inner_block(moved[-1])) if not is_pure(op)]
            if not any(op.name == "scf.for" for op in inner):
                raise ProgramError(f"`{body.source(moved[-1]).name}` has no loop directly inside it")
            if len(inner) > 1:
                break
            moved.append(inner[0])
        own, wanted = ([known(value) for value in bounds(loop)] for loop in (moved[-1], other))
        if own != wanted or None in own:
            names = body.source(moved[-1]).name, body.source(other).name
            raise ProgramError(f"loops `{names[0]}` and `{names[1]}` do not have the same rounds")
    return moved


def check_merged(body: Body, moved: Sequence[Operation], shared: Sequence[Operation]) -> None:
    """Check that two nests compute the same as one whose rounds do those of the first and then those of the second.

    Args:
        moved, shared: corresponding loops of the first and of the second nest, outermost first.

    Raises:
        ProgramError: where a round of the second would come before a round of the first that it depends on.
    """
    nest = body.nest()
    if nest.unsupported is not None:
        raise ProgramError(f"loops cannot be merged here: {nest.unsupported.reason}")
    left = [numbered(nest, number_of(loop)) for loop in moved]
    right = [numbered(nest, number_of(loop)) for loop in shared]
    produced, used = references([left[0]]), references([right[0]])
    blocks = [nest.body, *(block for node, _ in with_loops(nest.body) for block in blocks_of(node))]
    block = next(own for own in blocks if any(node is left[0] for node in own))
    places = [next(p for p, node in enumerate(block) if node is loop) for loop in (left[0], right[0])]
    if places[0] > places[1]:
        raise ProgramError("the nest that is moved comes after the other")
    ranges = value_ranges([loop for one in (*produced, *used) for loop in one.loops], {})
    for between in references(block[places[0] + 1 : places[1]]):
        same = (one for one in produced if one.access.array == between.access.array)
        if any(one.access.write or between.access.write for one in same):
            raise ProgramError(f"`{between.access.array}` is used between the two nests")
    pairing = Pairing(tuple(left), tuple(right), ranges)
    for one in produced:
        for other in used:
            if any(first_order(vector) == ">" for vector in pairing.directions(one, other)):
                raise ProgramError(
                    f"elements of `{one.access.array}` would be used before they are computed",
                    hint="choose a loop further out, or reorder the nests first",
                )
