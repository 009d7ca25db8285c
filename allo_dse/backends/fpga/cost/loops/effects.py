"""Memory accesses that one round of a loop needs: loads without their value in a register, and stores that are certain.

    effects = effects_of(items)
    effects.uses        # the loads and stores that need a port of their array
    effects.carried     # the arrays of loads that may find what an earlier round stored

In unrolled loops equal indices are equal elements, whichever loop they are in, and other copies have other elements:
`round.py` writes the loops in this form.

A store under a condition only *may* happen. It replaces nothing for sure, so a load after it still needs the old value,
which an earlier round may have stored: `if j == 0: acc = 0` does not end the recurrence of a sum.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Set
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TypeAlias

from allo_dse.common.records import Frozen
from allo_dse.compiler.ir.affine import Linear, Ranges, extent
from allo_dse.compiler.ir.nest import Access, Branch, Op

from ..memory import Unrolled
from ..plan import Item, Planned

Index: TypeAlias = tuple[Linear | None, ...]
Element: TypeAlias = tuple[str, Index]
"""An array and an index."""
Shape: TypeAlias = tuple[object, ...]
"""An index without its constants."""
Use: TypeAlias = tuple[Op, Unrolled]
"""A load or store, with the unrolled loops around it."""


class Effects(Frozen):
    """Loads and stores of a round.

    Attributes:
        uses: those that need a port: loads of what the round has not stored for sure, and stores that none replaces.
        exposed: those of the loads.
        stored: the arrays that are stored to.
    """

    uses: tuple[Use, ...]
    exposed: tuple[Use, ...]
    stored: frozenset[str]

    @property
    def carried(self) -> tuple[str, ...]:
        """Arrays that a round stores to and loads from, with a load that sees the store of an earlier round."""
        arrays = dict.fromkeys(op.access.array for op, _ in self.exposed if op.access is not None)
        return tuple(array for array in arrays if array in self.stored)


class ArrayUse(Frozen):
    """Arrays that a loop uses, those that it stores to, and those whose ports it needs while it runs."""

    used: Set[str]
    stored: Set[str]
    ported: Set[str]


def effects_of(body: Iterable[Item], before: Iterable[Item] = (), after: Iterable[Item] = ()) -> Effects:
    """Return the effects of a round; `before` and `after` surround an inner loop and run in some of its rounds only."""
    reader = _Reader()
    reader.maybe(before)
    reader.block(tuple(body), {})
    reader.maybe(after)
    dead = {id(op) for op in reader.dead}
    uses = tuple(use for use in reader.uses if id(use[0]) not in dead)
    exposed = tuple(use for use in uses if use[0].access is not None and not use[0].access.write)
    return Effects(uses, exposed, frozenset(op.access.array for op, _ in reader.uses if op.access and op.access.write))


@dataclass
class _Reader:
    """Goes over a round in order.

    Attributes:
        known: elements whose value a register holds for sure, since the round has stored or loaded it.
        pending: stores that nothing in memory depends on so far, by element, each with the number of conditions around
            it; a store under no more conditions that comes later makes them superfluous.
        seen: all elements that were ever known or pending, by array and shape. Elements of one shape differ if their
            constants do, so that only other shapes have to be compared.
        conditions: how many are around the place that is read.
        ranges: of the variables of the unrolled loops so far.
    """

    uses: list[Use] = field(default_factory=list)
    dead: list[Op] = field(default_factory=list)
    known: set[Element] = field(default_factory=set)
    pending: dict[Element, tuple[tuple[Op, int], ...]] = field(default_factory=dict)
    seen: dict[str, dict[Shape, set[Element]]] = field(default_factory=dict)
    conditions: int = 0
    ranges: dict[int, tuple[int, int]] = field(default_factory=dict)

    def maybe(self, items: Iterable[Item]) -> None:
        """Items that only some rounds execute."""
        self._either((tuple(items), ()), {})

    def block(self, items: Iterable[Item], unrolled: Unrolled) -> None:
        for item in items:
            if isinstance(item, Planned):
                self.ranges[item.variable] = min(item.values, default=0), max(item.values, default=0)
                self.block(item.body, {**unrolled, item.variable: item.values})
            elif isinstance(item, Branch):
                self._either(item.sides, unrolled)  # type: ignore[arg-type]
            elif item.access is not None and not item.block:
                act = self._store if item.access.write else self._load
                act(item, item.access, unrolled)

    def _either(self, sides: tuple[tuple[Item, ...], tuple[Item, ...]], unrolled: Unrolled) -> None:
        """Read one of two blocks: only facts on which both agree hold after it."""
        known, pending = set(self.known), dict(self.pending)
        self.conditions += 1
        self.block(sides[0], unrolled)
        one, first = self.known, self.pending
        self.known, self.pending = known, dict(pending)
        self.block(sides[1], unrolled)
        self.conditions -= 1
        self.known &= one
        second = self.pending
        self.pending = {}
        for element in {**first, **second}:
            before, mine, theirs = (part.get(element, ()) for part in (pending, first, second))
            # By identity: copies of an unrolled loop may be equal.
            old, *both = ({id(op) for op, _ in part} for part in (before, mine, theirs))
            kept = [use for use in before if id(use[0]) in both[0] & both[1]]
            new = [use for use in (*mine, *theirs) if id(use[0]) not in old]
            self.pending[element] = (*kept, *new)

    def _load(self, op: Op, access: Access, unrolled: Unrolled) -> None:
        element = (access.array, access.index)
        if element in self.known:
            return
        # A conditional store to the very same element is selected in a register, not read from memory.
        self.uses.append((op, _told_apart(access, unrolled)))
        for other in self._possibly_same(element):
            self.pending.pop(other, None)
        if None not in access.index:
            self._know(element)

    def _store(self, op: Op, access: Access, unrolled: Unrolled) -> None:
        element = (access.array, access.index)
        self.uses.append((op, _told_apart(access, unrolled)))
        self.known.difference_update(self._possibly_same(element), (element,))
        if None in access.index:
            return
        before = self.pending.get(element, ())
        self.dead += [other for other, around in before if around >= self.conditions]
        self.pending[element] = (*((o, n) for o, n in before if n < self.conditions), (op, self.conditions))
        self._know(element)

    def _know(self, element: Element) -> None:
        self.known.add(element)
        self.seen.setdefault(element[0], {}).setdefault(shape_of(element), set()).add(element)

    def _possibly_same(self, element: Element) -> list[Element]:
        """Return the other elements that were seen, and are not known to differ from this one."""
        own = shape_of(element)
        return [
            other
            for shape, others in self.seen.get(element[0], {}).items()
            if shape != own
            for other in others
            if not apart(other, element, self.ranges)
        ]


def shape_of(element: Element) -> Shape:
    return tuple(None if form is None else (form.terms, form.derived) for form in element[1])


def _told_apart(access: Access, unrolled: Unrolled) -> Unrolled:
    """Return the unrolled loops whose copies access distinct elements; one load and one store per element remain."""
    if None in access.index:
        return unrolled
    used = {variable for form in access.index if form for variable in form.variables}
    return {variable: values for variable, values in unrolled.items() if variable in used}


def apart(one: Element, other: Element, ranges: Ranges = MappingProxyType({})) -> bool:
    """Return whether two elements differ in every round: they are in different arrays, or apart in some dimension.

    Args:
        ranges: of the variables of unrolled loops.
    """
    if one[0] != other[0]:
        return True
    pairs = [(a, b) for a, b in zip(one[1], other[1], strict=True) if a is not None and b is not None]
    alike = [a.terms == b.terms and a.derived == b.derived for a, b in pairs]
    if any(same and a.constant != b.constant for same, (a, b) in zip(alike, pairs, strict=True)):
        return True
    return any(not same and _differ(a, b, ranges) for same, (a, b) in zip(alike, pairs, strict=True))


def _differ(a: Linear, b: Linear, ranges: Ranges) -> bool:
    """Return whether two forms with different terms never have the same value."""
    difference = a + b.scaled(-1)
    divisor = math.gcd(*(factor for _, factor in (*difference.terms, *difference.derived))) or 1
    if difference.constant % divisor:
        return True
    low, high = extent(difference, ranges) if ranges else (0, 0)
    return low > 0 or high < 0
