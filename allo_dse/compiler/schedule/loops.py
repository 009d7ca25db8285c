"""split, reorder, fuse and tile: other loops around the same statements."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise, product
from typing import Literal

from msgspec import Struct

from allo_dse.common.errors import ProgramError
from allo_dse.common.mlir.bindings import arith, ir, nested_ops, scf

from ..ir.affine import UNKNOWN, Linear, Ranges, extent
from ..ir.nest import Access, Branch, Loop, Node, Op
from .body import LOOP, Body, inner_block, is_pure, number_of, numbered, statements
from .find import Found

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


class Reference(Struct, frozen=True, eq=False):
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
    ops = list(_walk(nodes, ()))
    updates = _updates([op for op, _ in ops])
    found = []
    for order, (op, loops) in enumerate(ops):
        if op.stream is not None:
            found.append(Reference(Access(f"stream {op.stream}", True, ()), loops, order))
        if op.access is not None:
            found.append(Reference(op.access, loops, order, updates.get(id(op), -1)))
    return found


def _walk(nodes: Sequence[Node], loops: tuple[Loop, ...]) -> Iterator[tuple[Op, tuple[Loop, ...]]]:
    for node in nodes:
        if isinstance(node, Loop):
            yield from _walk(node.body, (*loops, node))
        elif isinstance(node, Branch):
            for side in node.sides:
                yield from _walk(side, loops)
        else:
            yield node, loops


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
        low = extent(loop.lower, ranges) if loop.lower is not None else UNKNOWN
        high = extent(loop.upper, ranges) if loop.upper is not None else UNKNOWN
        ranges[loop.variable] = (low[0], max(low[0], high[1] - 1))
    return ranges


class Pairing(Struct, frozen=True):
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
        for depth in range(len(self.left)):
            longer = [(*vector, direction) for vector, direction in product(vectors, _ALL)]
            vectors = [vector for vector in longer if self._meet(one, other, vector)]
            if not vectors:
                return
            assert len(vectors[0]) == depth + 1
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


_ALL: tuple[Direction, ...] = ("<", "=", ">")


def _span(
    factors: tuple[int, int], left: tuple[int, int], right: tuple[int, int], direction: Direction | None
) -> tuple[int, int] | None:
    """The smallest and largest value of `a * x - b * y` for `x` and `y` in their ranges, in a direction to each other;
    None where there are no such values."""
    a, b = factors
    (x0, x1), (y0, y1) = left, right
    if direction is None:
        corners = [(x, y) for x in (x0, x1) for y in (y0, y1)]
    elif direction == "=":
        low, high = max(x0, y0), min(x1, y1)
        corners = [(low, low), (high, high)] if low <= high else []
    elif direction == "<":
        corners = _below((x0, x1), (y0, y1))
    else:
        corners = [(x, y) for y, x in _below((y0, y1), (x0, x1))]
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


def is_update(one: Reference, other: Reference) -> bool:
    """Return whether two accesses belong to one sum, whose terms may come in any order."""
    return one.update >= 0 and one.update == other.update


def private(nodes: Sequence[Node]) -> set[str]:
    """The arrays that the code writes before it reads them, whatever they held: each iteration has its own."""
    seen: set[str] = set()
    found: set[str] = set()
    for node in nodes:
        for array in _overwritten(node):
            if array not in seen:
                found.add(array)
        seen |= {op.access.array for op, _ in _walk([node], ()) if op.access is not None}
    return found


def _overwritten(node: Node) -> Iterator[str]:
    """The scalars that a statement sets."""
    if isinstance(node, Op) and node.access is not None and node.access.write and not node.access.index:
        yield node.access.array


def constant(value: int) -> ir.Value:
    """A number, where code is being written."""
    return arith.ConstantOp(ir.IndexType.get(), value).result


def known(value: ir.Value) -> int | None:
    """The number that a value is, if it is one."""
    if isinstance(value, ir.BlockArgument) or value.owner.name != "arith.constant":
        return None
    return int(ir.IntegerAttr(value.owner.attributes["value"]).value)


def bounds(loop: ir.Operation) -> tuple[ir.Value, ir.Value, ir.Value]:
    """First value, end and step."""
    if loop.name != "scf.for":
        raise ProgramError("a loop that data ends cannot be rewritten", hint="write it as `for i in range(...)`")
    low, high, step = list(loop.operands)[:3]
    return low, high, step


def trips_of(loop: ir.Operation) -> int | None:
    """Return the number of iterations of a loop, if it is a constant."""
    low, high, step = (known(value) for value in bounds(loop))
    return None if low is None or high is None or not step else max(0, -(-(high - low) // step))


def _trips(loop: ir.Operation) -> ir.Value:
    """Return the number of iterations of a loop as a value, which is computed before it."""
    number = trips_of(loop)
    if number is not None:
        return constant(number)
    low, high, step = bounds(loop)
    if known(step) != 1:
        raise ProgramError("a loop whose bounds and step both vary cannot be rewritten")
    return high if known(low) == 0 else arith.SubIOp(high, low).result


def variable(loop: ir.Operation) -> ir.Value:
    return inner_block(loop).arguments[0]


def new_loop(end: ir.Value, mark: ir.IntegerAttr) -> ir.Operation:
    """A loop from 0 to an end, where code is being written."""
    made = scf.ForOp(constant(0), end, constant(1)).operation
    made.attributes[LOOP] = mark
    with ir.InsertionPoint(inner_block(made)):
        scf.YieldOp([])
    return made


def _value_at(loop: ir.Operation, round_: ir.Value) -> ir.Value:
    """Return the value of a loop's variable in a given iteration."""
    low, _, step = bounds(loop)
    scaled = round_ if known(step) == 1 else arith.MulIOp(round_, step).result
    return scaled if known(low) == 0 else arith.AddIOp(low, scaled).result


def _take_over(target: ir.Operation, loop: ir.Operation) -> None:
    """Move the statements of one loop to the end of another, and erase the first."""
    end = list(inner_block(target).operations)[-1]
    for op in statements(inner_block(loop)):
        op.move_before(end)
    loop.erase()


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
        outer = new_loop(rounds, body.marked(source, f"{source.name}.outer"))
    with ir.InsertionPoint.at_block_terminator(inner_block(outer)):
        first = arith.MulIOp(variable(outer), size).result
        exact = trips is not None and trips % factor == 0
        end = size if exact else arith.MinSIOp(size, arith.SubIOp(total, first).result).result
        inner = new_loop(end, body.marked(source, f"{source.name}.inner"))
    with ir.InsertionPoint.at_block_terminator(inner_block(inner)):
        value = _value_at(loop, arith.AddIOp(first, variable(inner)).result)
        variable(loop).replace_all_uses_with(value)
    _take_over(inner, loop)


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
    total = 1
    for size in sizes:
        total *= size
    with ir.InsertionPoint(loops[0]):
        whole = new_loop(constant(total), body.marked(body.source(loops[0]), name))
    mapping: dict[ir.Value, ir.Value] = {}
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


def reorder(body: Body, wanted: Sequence[ir.Operation]) -> None:
    """The loops in another order, each in the place of one of them.

    before:  for i: for j: for k        after reorder(k, i):  for k: for j: for i

    Raises:
        ProgramError: where results could differ, and where other statements stand between the loops.
    """
    chain = perfect(list(_between(wanted)))
    places = [position for position, loop in enumerate(chain) if any(loop == one for one in wanted)]
    order = list(range(len(chain)))
    for place, loop in zip(places, wanted, strict=True):
        order[place] = next(position for position, other in enumerate(chain) if other == loop)
    if order == list(range(len(chain))):
        return
    _check_bounds(body, chain, order)
    check_order(body, chain, order)
    with ir.InsertionPoint(chain[0]):
        point = ir.InsertionPoint(chain[0])
    mapping: dict[ir.Value, ir.Value] = {}
    made: list[ir.Operation] = []
    for position in order:
        loop = chain[position]
        with point:
            low, high, step = (_copied(value, chain, mapping) for value in bounds(loop))
            new = scf.ForOp(low, high, step).operation
            for name in loop.attributes:
                new.attributes[str(name)] = loop.attributes[str(name)]
            with ir.InsertionPoint(inner_block(new)):
                scf.YieldOp([])
        mapping[variable(loop)] = variable(new)
        made.append(new)
        point = ir.InsertionPoint.at_block_terminator(inner_block(new))
    _sink(chain, made[-1], mapping)


def _between(wanted: Sequence[ir.Operation]) -> list[ir.Operation]:
    """All loops from the outermost to the innermost of some that stand in each other."""
    for innermost in wanted:
        chain = [innermost]
        outer = innermost.parent
        while outer is not None and outer.name == "scf.for":
            chain.append(outer)
            outer = outer.parent
        if all(any(one == loop for loop in chain) for one in wanted):
            last = max(position for position, loop in enumerate(chain) if any(loop == one for one in wanted))
            return chain[: last + 1][::-1]
    raise ProgramError("these loops are not nested in each other", hint="name loops of one nest")


def perfect(loops: Sequence[ir.Operation]) -> list[ir.Operation]:
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


def _check_bounds(body: Body, chain: Sequence[ir.Operation], order: Sequence[int]) -> None:
    """Refuse to move a loop out of one that its bounds depend on."""
    for place, position in enumerate(order):
        inside = [chain[later] for later in order[place + 1 :]]
        for value in bounds(chain[position]):
            for loop in inside:
                if _depends(value, variable(loop)):
                    names = body.source(chain[position]).name, body.source(loop).name
                    raise ProgramError(
                        f"the bounds of loop `{names[0]}` depend on `{names[1]}`, which must stay outside"
                    )


def _depends(value: ir.Value, other: ir.Value) -> bool:
    if value == other:
        return True
    return not isinstance(value, ir.BlockArgument) and any(_depends(v, other) for v in value.owner.operands)


def check_order(body: Body, chain: Sequence[ir.Operation], order: Sequence[int]) -> None:
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
    pairing = Pairing(tuple(loops), tuple(loops), value_ranges(_around(nest.body, loops[0]) + loops, {}))
    found = [reference for reference in references(inner) if reference.access.array not in own]
    inside = [loop for reference in found for loop in reference.loops]
    pairing = Pairing(pairing.left, pairing.right, value_ranges(inside, pairing.ranges))
    for one in found:
        for other in found:
            if is_update(one, other):
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


def _around(nodes: Sequence[object], target: Loop) -> list[Loop]:
    """The loops around a loop, outermost first."""
    for node in nodes:
        if node is target:
            return []
        if isinstance(node, Loop) and _contains(node.body, target):
            return [node, *_around(node.body, target)]
        for side in getattr(node, "sides", ()):
            if _contains(side, target):
                return _around(side, target)
    return []


def _contains(nodes: Sequence[object], target: Loop) -> bool:
    return any(
        node is target
        or (isinstance(node, Loop) and _contains(node.body, target))
        or any(_contains(side, target) for side in getattr(node, "sides", ()))
        for node in nodes
    )


def _copied(value: ir.Value, chain: Sequence[ir.Operation], mapping: dict[ir.Value, ir.Value]) -> ir.Value:
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


def _sink(chain: Sequence[ir.Operation], target: ir.Operation, mapping: dict[ir.Value, ir.Value]) -> None:
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


def share_constants(function: ir.Operation) -> None:
    """Write each number once, at the beginning of the function."""
    block = function.regions[0].blocks[0]
    constants = [op for op in nested_ops(function, parents_first=True) if op.name == "arith.constant"]
    every = [op for op in constants if isinstance(op.results[0].type, ir.IndexType)]
    shared: dict[int, ir.Operation] = {}
    for op in every:
        value = known(op.results[0])
        assert value is not None
        if value in shared:
            op.results[0].replace_all_uses_with(shared[value].results[0])
            op.erase()
        else:
            shared[value] = op
            op.move_before(block.operations[0])
