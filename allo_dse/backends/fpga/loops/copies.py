"""Unrolled loops in a form in which linear indices tell the elements of their copies apart.

Loops with the same values get one variable: of what one loop leaves and the next one uses, copies with the same number
have the same element. A loop is written out, copy by copy, where copies use what other copies leave, as in
`x[u + 1] = x[u] + y`, or leave something in the same element, as in `x[u // 2] += y`. It is cut where a condition
changes, as after the first copy of `if u == 0: x = 0`, so that either all copies of a part do something or none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cached_property
from itertools import chain, combinations, pairwise, product
from typing import Any

from msgspec import Struct, field

from allo_dse.common.records import replace
from allo_dse.ir.linear import Linear, Test, decided, forms_of
from allo_dse.ir.nest import WIRING, Access, Branch, Op

from ..item_walks import accesses
from ..memory import Unrolled, addresses_of, copies_of, split
from ..plan import Item, Planned, substituted

_MOST_ACCESSES = 1 << 10
"""Of loops that are written out in one round; where there would be more, copies count as independent."""
_PARTS = -1 << 32  # and less: variables of parts of loops


def told_apart(levels: Iterable[tuple[Item, ...]]) -> Iterator[tuple[Item, ...]]:
    """Operations of one round, level by level, whose unrolled loops are changed as this module says."""
    known: dict[range, list[int]] = {}
    shared = [tuple(_shared(items, known, ())) for items in levels]
    everything = tuple(chain(*shared))
    cuts: dict[int, set[int]] = defaultdict(set)
    for condition in _conditions(everything, {}):
        for variable, values in _changes(*condition):
            cuts[variable].update(values)
    every = _dependent(everything)
    if _accesses_of(everything, cuts, every) > _MOST_ACCESSES:
        every = set()
    if _accesses_of(everything, cuts, every) > _MOST_ACCESSES:
        cuts.clear()
    writer = _Writer(cuts, every)
    return (tuple(writer.written(items, {})) for items in shared)


def _values(loop: Planned) -> range:
    return range(loop.first, loop.first + loop.trips * loop.step, loop.step)


def _shared(items: Iterable[Item], known: dict[range, list[int]], around: tuple[int, ...]) -> Iterator[Item]:
    """The items with one variable for loops of the same values that are not inside each other.

    Args:
        known: variables by values. around: the variables of loops around the items.
    """
    for item in items:
        if isinstance(item, Planned):
            same = known.setdefault(_values(item), [])
            variable, body = next((v for v in same if v not in around), item.variable), item.body
            if variable not in same:
                same.append(variable)
            if variable != item.variable:
                body = tuple(substituted(inner, item.variable, Linear.variable(variable)) for inner in body)
            yield replace(item, variable=variable, body=tuple(_shared(body, known, (*around, variable))))
        elif isinstance(item, Branch):
            yield replace(item, sides=tuple(tuple(_shared(side, known, around)) for side in item.sides))  # type: ignore[arg-type]
        else:
            yield item


class _Use(Struct, frozen=True, dict=True):
    """Loads or stores of one index, in all copies of the unrolled loops around them.

    Attributes:
        around: the variables of those loops. variables: those that it depends on.
        fixed: per dimension what is the same in all copies; None where nobody knows.
        places: per copy the rest of the index along each dimension; none where there are too many.
        computed: whether this rest is not linear. mixed: whether it has a quotient (or minimum, ...) of copy and round.
    """

    write: bool
    around: tuple[int, ...]
    variables: tuple[int, ...]
    fixed: tuple[Linear | None, ...]
    places: tuple[tuple[int, ...], ...]
    computed: bool
    mixed: bool

    @staticmethod
    def of(access: Access, unrolled: Unrolled) -> _Use:
        own = {v: values for v, values in unrolled.items() if any(v in form.variables for form in access.index if form)}
        parts = [split(form, own) for form in access.index]
        moving, fixed = zip(*(part or (Linear(()), None) for part in parts), strict=True)
        places = addresses_of(moving, own).tolist() if copies_of(own) <= _MOST_ACCESSES else ()
        computed = any(form.derived for form in moving)
        mixed = any(form and not part for form, part in zip(access.index, parts, strict=True))
        return _Use(access.write, tuple(unrolled), tuple(own), fixed, tuple(map(tuple, places)), computed, mixed)

    @cached_property
    def values(self) -> tuple[frozenset[int], ...]:
        """Along each dimension."""
        return tuple(map(frozenset, zip(*self.places, strict=True)))

    @property
    def repeats(self) -> bool:
        """True if two copies store to the same element in a round."""
        return self.write and None not in self.fixed and len(set(self.places)) < len(self.places)

    def meets(self, other: _Use) -> bool:
        """Return whether copies of both uses may access the same element in a round, as far as both are known."""
        both = list(zip(self.fixed, other.fixed, strict=True))
        dims = [n for n, (a, b) in enumerate(both) if a is not None and a == b]
        if not (self.places and other.places) or any(self.values[n].isdisjoint(other.values[n]) for n in dims):
            return False
        if not dims:
            return all(None not in pair for pair in both)
        mine, theirs = ({tuple(place[n] for n in dims) for place in use.places} for use in (self, other))
        return not mine.isdisjoint(theirs)


def _dependent(items: Iterable[Item]) -> set[int]:
    """The variables of the loops of which copies use what others leave."""
    by_array: dict[str, dict[tuple[Linear | None, ...], _Use]] = defaultdict(dict)
    for access, unrolled in accesses(items, {}):
        uses = by_array[access.array]
        if access.index and (access.write or access.index not in uses):
            uses[access.index] = _Use.of(access, unrolled)
    found = set[int]()
    for uses in by_array.values():
        found.update(*(use.variables for use in uses.values() if use.mixed))
        if any(use.write for use in uses.values()):
            found.update(*(use.variables for use in uses.values() if use.computed or use.repeats))
            found.update(*(_that_meet(*pair) for pair in combinations(uses.values(), 2)))
    return found


def _conditions(items: Iterable[Item], unrolled: Unrolled) -> Iterator[tuple[Test | None, Unrolled]]:
    """The conditions in some items, with the unrolled loops around each."""
    for item in items:
        if isinstance(item, Planned):
            yield from _conditions(item.body, {**unrolled, item.variable: _values(item)})
        elif isinstance(item, Branch):
            yield item.test, unrolled
            yield from _conditions((*item.sides[0], *item.sides[1]), unrolled)  # type: ignore[arg-type]


def _changes(test: Test | None, unrolled: Unrolled) -> Iterator[tuple[int, Iterable[int]]]:
    """By variable the values from which on copies of loops differ in a condition from those before."""
    own = {variable: unrolled.get(variable, range(0)) for form in forms_of(test) for variable in form.variables}
    if not own.keys() <= unrolled.keys() or copies_of(own) > _MOST_ACCESSES or _decided(test, own) is not None:
        return
    if len(own) == 1:
        ((variable, values),) = own.items()
        holds = [decided(test, {variable: value}) for value in values]
        yield variable, [value for value, (a, b) in zip(values[1:], pairwise(holds), strict=True) if a != b]
        return
    parts = product(*((values[:1], values[1:]) for values in own.values()))
    alike = all(_decided(test, dict(zip(own, part, strict=True))) is not None for part in parts if all(part))
    yield from ((variable, values[1:2] if alike else values[1:]) for variable, values in own.items())


def _decided(test: Test | None, unrolled: Unrolled) -> bool | None:
    """Return whether a condition holds in all copies of unrolled loops, or in none; None if unknown."""
    own = {variable: unrolled.get(variable, range(0)) for form in forms_of(test) for variable in form.variables}
    if copies_of(own) > _MOST_ACCESSES:
        return None
    holds = {decided(test, dict(zip(own, values, strict=True))) for values in product(*own.values())}
    return holds.pop() if len(holds) == 1 else None


def _that_meet(one: _Use, other: _Use) -> tuple[int, ...]:
    """The variables of which copies leave something to each other, or may do so."""
    if not (one.write or other.write) or not one.around + other.around or not one.meets(other):
        return ()
    # If they may meet but need not, the result of every copy around them is uncertain.
    return one.variables + other.variables if one.fixed == other.fixed else one.around + other.around


def _accesses_of(items: Iterable[Item], cuts: Mapping[int, Set[int]], every: Set[int]) -> int:
    """Count loads and stores after some loops are cut and others written out."""
    total = 0
    for item in items:
        if isinstance(item, Planned):
            parts = item.trips if item.variable in every else 1 + len(cuts.get(item.variable, ()))
            total += _accesses_of(item.body, cuts, every) * parts
        elif isinstance(item, Branch):
            total += _accesses_of((*item.sides[0], *item.sides[1]), cuts, every)  # type: ignore[arg-type]
        else:
            total += item.access is not None
    return total


class _Writer(Struct, frozen=True):
    """Writes the copies of some loops out: each is a loop of one round, whose variable is a number inside.

    Attributes:
        cuts: by variable, the values with which another part of a loop begins. every: the variables of loops of which
            each copy is a part.
    """

    cuts: Mapping[int, Set[int]]
    every: Set[int]
    _variables: dict[tuple[int, int], int] = field(default_factory=dict)

    def written(self, items: Iterable[Item], unrolled: Unrolled) -> Iterator[Item]:
        """The items in this form, inside some loops."""
        for item in items:
            if isinstance(item, Planned):
                for values in self._parts(item):
                    yield self._part(item, values, unrolled)
            elif isinstance(item, Branch):
                taken = _decided(item.test, unrolled)
                sides: Any = tuple(tuple(self.written(side, unrolled)) for side in item.sides)  # type: ignore[arg-type]
                if taken is None:
                    yield replace(item, sides=sides)
                else:
                    yield from sides[not taken]
                    for result, output in zip(item.results[not taken], item.outputs, strict=True):
                        yield Op(WIRING, (result,), (output,), "", item.bits)
            else:
                yield item

    def _parts(self, loop: Planned) -> Iterator[range]:
        values, own = _values(loop), self.cuts.get(loop.variable, ())
        starts = [n for n, value in enumerate(values) if n == 0 or loop.variable in self.every or value in own]
        yield from (values[start:end] for start, end in pairwise([*starts, len(values)]))

    def _part(self, loop: Planned, values: range, unrolled: Unrolled) -> Planned:
        """Copies with these values, of a variable of their own: parts have other elements."""
        if len(values) == loop.trips > 1:
            unrolled, variable, body = {**unrolled, loop.variable: values}, loop.variable, loop.body
        else:
            number = self._variables.setdefault((loop.variable, values[0]), _PARTS - len(self._variables))
            single = len(values) == 1
            variable, form = (loop.variable, Linear((), values[0])) if single else (number, Linear.variable(number))
            unrolled = unrolled if single else {**unrolled, variable: values}
            body = tuple(substituted(inner, loop.variable, form) for inner in loop.body)
        inside = tuple(self.written(body, unrolled))
        return replace(loop, variable=variable, first=values[0], trips=len(values), body=inside)
