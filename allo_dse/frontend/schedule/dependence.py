"""Which orders of the iterations of a nest give the same results.

Two accesses to one element, at least one of them a write, may not change their order. Whether there are iterations in
which two accesses meet is decided by the bounds of their linear forms, one array dimension at a time (Banerjee's
inequalities with direction vectors, and the divisibility test; Allen and Kennedy, "Optimizing Compilers for Modern
Architectures", chapter 3). The answer "independent" is certain; where indices depend on data there is none.

What is not counted: memory that every iteration writes before it reads it, and sums, products, minima and maxima, whose
terms may come in any order (floating-point ones are then rounded otherwise).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Literal

from msgspec import Struct

from allo_dse.ir.linear import UNKNOWN, Linear, Ranges, extent
from allo_dse.ir.nest import Access, Branch, Loop, Node, Op

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
    """Loads and stores of one element of which the store adds something to what the load found."""
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
    """The loads of which a value is the sum (the product, ...)."""
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
    """How the loops of two accesses correspond: `common[i]` are loops whose variables are compared.

    Attributes:
        left, right: the loops common to both, outermost first (the same ones, unless two nests are merged).
        ranges: of all variables.
    """

    left: tuple[Loop, ...]
    right: tuple[Loop, ...]
    ranges: Ranges

    def directions(self, one: Reference, other: Reference) -> Iterator[tuple[Direction, ...]]:
        """The ways in which the iterations of two accesses may lie to each other where they meet."""
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
        """Whether two forms can have one value."""
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
    """Which of two iterations comes first: "<" the first one, "=" neither."""
    return next((direction for direction in vector if direction != "="), "=")


def is_update(one: Reference, other: Reference) -> bool:
    """Whether two accesses belong to one sum, the order of whose terms does not matter."""
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
