"""One round of a pipelined loop, independent of its interval, its trip count and the partition of its arrays."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain, combinations, pairwise, product
from typing import Any, TypeVar, cast

from msgspec import field as struct_field

from allo_dse.common.records import MOST_SMALL_KEPT, Frozen, once, replace
from allo_dse.compiler.ir.affine import Linear, Test, decided, forms_of
from allo_dse.compiler.ir.nest import WIRING, Access, Branch, Op, ops_of, walk
from allo_dse.compiler.program.compiled import TaskClass
from allo_dse.device.device import FpgaDevice

from ..body_walk import accesses
from ..memory import Accesses, Memories, Storage, Unrolled, addresses_of, busiest_bank, copies_of, split
from ..plan import Item, Plan, Planned, planned, sources_in, substituted
from ..simplify import simplified
from .binding import Addresses, by_array
from .effects import ArrayUse, Effects, Element, Use, effects_of
from .events import may_happen
from .schedule import MOST_COPIES, Walk
from .sums import Time

# Unrolled loops in a form whose linear indices distinguish the elements of their copies.
#
# Loops with the same values share one variable, so that copy n of one loop and copy n of the next use the same element.
# A loop is written out, copy by copy, if copies use results of other copies (`x[u + 1] = x[u] + y`) or write the same
# element (`x[u // 2] += y`). It is cut where a condition changes, as after the first copy of `if u == 0: x = 0`, so
# that in each part either all copies execute an operation or none does.


_MOST_ACCESSES = 1 << 10
"""Most accesses of written-out loops in one round; with more, copies count as independent."""
_MOST_WALKED = 1 << 9
"""Most accesses of a round whose copies are all walked to count registers; with more, the third represents the rest."""
_PARTS = -1 << 32  # and less: variables of parts of loops


def told_apart(levels: Iterable[tuple[Item, ...]]) -> Iterator[tuple[Item, ...]]:
    """Return the operations of one round, level by level, with unrolled loops in the form of this module."""
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


def _shared(items: Iterable[Item], known: dict[range, list[int]], around: tuple[int, ...]) -> Iterator[Item]:
    """The items with one variable for loops of the same values that are not inside each other.

    Args:
        known: variables by values. around: the variables of loops around the items.
    """
    for item in items:
        if isinstance(item, Planned):
            same = known.setdefault(item.values, [])
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


class _Use(Frozen, dict=True):
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
    """Return the variables of loops whose copies use results of other copies."""
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
            yield from _conditions(item.body, {**unrolled, item.variable: item.values})
        elif isinstance(item, Branch):
            yield item.test, unrolled
            yield from _conditions((*item.sides[0], *item.sides[1]), unrolled)  # type: ignore[arg-type]


def _changes(test: Test | None, unrolled: Unrolled) -> Iterator[tuple[int, Iterable[int]]]:
    """Yield, by variable, the values from which copies of loops differ in a condition from earlier ones."""
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
    """Return the variables of loops whose copies leave results to each other, or may do so."""
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


class _Writer(Frozen):
    """Writer of the copies of some loops: each is a loop of one round, with its variable as a constant inside.

    Attributes:
        cuts: by variable, the values at which another part of a loop begins.
        every: the variables of loops whose copies are parts of their own.
    """

    cuts: Mapping[int, Set[int]]
    every: Set[int]
    _variables: dict[tuple[int, int], int] = struct_field(default_factory=dict)

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
        values, own = loop.values, self.cuts.get(loop.variable, ())
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


Level = tuple[Item, ...]
_Made = TypeVar("_Made")


@dataclass(frozen=True, eq=False)
class Round:
    """One round of flattened loops. Its results are cached, because many schedules have few different rounds.

    Attributes:
        variables: of the flattened loops, that of the pipelined one last; none of operations outside loops.
        before, after: operations of each level around the inner loop.
    """

    device: FpgaDevice
    variables: tuple[int, ...]
    before: tuple[Level, ...]
    body: Level
    after: tuple[Level, ...]
    _walks: dict[Hashable, Walk] = field(default_factory=dict, repr=False)
    _busiest: dict[Hashable, int] = field(default_factory=dict, repr=False)

    @cached_property
    def effects(self) -> Effects:
        """Effects of a round of the inner loop."""
        return effects_of(self.body)

    @cached_property
    def whole(self) -> Effects:
        """Effects of a round of all levels."""
        if not any(self.before) and not any(self.after):
            return self.effects
        return effects_of(self.body, *(itertools.chain(*parts) for parts in (self.before, self.after)))

    @cached_property
    def footprint(self) -> ArrayUse:
        """Arrays that all its levels use; loops with streams, as memory of no name, follow one another."""
        used = {op.access.array for op, _ in self.whole.uses if op.access is not None}
        streams = {"" for op in ops_of(self.everything) if op.direction}
        return ArrayUse(used, self.whole.stored, self.accesses.keys() | streams)

    @cached_property
    def _updated(self) -> frozenset[str]:
        """Arrays with one element that the rounds of the inner loop update.

        The compiler looks for it before it unrolls anything, so an index that uses a loop inside prevents it.
        """
        moving = {
            access.array
            for access, unrolled in accesses(self.body, {})
            if access.spread
            or any(form is None or form.variables & {*self.variables[-1:], *unrolled} for form in access.index)
        }
        return frozenset(self.effects.carried) - moving

    @cached_property
    def begun(self) -> frozenset[str]:
        """Arrays with one element that the level around the inner loop begins anew, and stores once after it."""
        if not self.before:
            return frozenset()
        first, last = (
            {
                (op.access.array, op.access.index)
                for op in ops_of(level[-1])
                if op.access is not None and op.access.write
            }
            for level in (self.before, self.after)
        )
        begun = {element for element in first if element[0] in self._updated}
        puts = sum(op.direction == "put" for op in ops_of(self.after[-1]))
        return frozenset(array for array, _ in begun) if len(begun | last) + puts <= 1 else frozenset()

    def promoted(self, storages: Mapping[str, Storage]) -> frozenset[str]:
        """Arrays in memory on the chip with one element in a register while the inner loop runs."""
        return frozenset(a for a in self._updated if not (storages[a].in_registers or storages[a].strides))

    def memories(self, storages: Mapping[str, Storage]) -> Memories:
        """Return the memories of its arrays."""
        return Memories.of({array: storages[array] for array in self.arrays}, self.device)

    @property
    def everything(self) -> Level:
        """Operations of all levels."""
        return tuple(item for part in (*self.before, self.body, *self.after) for item in part)

    @property
    def arrays(self) -> frozenset[str]:
        """Arrays that the round uses."""
        return frozenset(op.access.array for op in ops_of(self.everything) if op.access is not None)

    @cached_property
    def _early_ops(self) -> frozenset[int]:
        return frozenset(id(op) for op, _ in self.early)

    @cached_property
    def early(self) -> tuple[Use, ...]:
        """Loads that are the same in all rounds, of arrays that these do not write: they are done before the loop."""
        return tuple(use for use in self.whole.exposed if self._is_early(*use)) if self.variables else ()

    def _is_early(self, op: Op, unrolled: Unrolled) -> bool:
        assert op.access is not None
        moving = set(self.variables)
        index = op.access.index
        if not index or op.access.array in self.whole.stored:
            return False
        return all(form is not None and not form.variables & moving for form in index)

    @property
    def early_addresses(self) -> Mapping[str, Accesses]:
        """Loads that are done before the loop, by array."""
        return by_array(self.early)

    @cached_property
    def accesses(self) -> Mapping[str, Accesses]:
        """Accesses of each round that need a port, by array."""
        return by_array(use for use in self.whole.uses if id(use[0]) not in self._early_ops)

    @cached_property
    def addresses(self) -> Mapping[str, Addresses]:
        """The same as different addresses."""
        return {array: Addresses.of(group) for array, group in self.accesses.items()}

    def port_cycles(self, storages: Mapping[str, Storage], *, early: bool = False) -> dict[str, int]:
        """Cycles that its accesses take, or the loads before the loop, per array."""
        found = {}
        for array, group in (self.early_addresses if early else self.accesses).items():
            storage = storages[array]
            key = (storage.array, storage.splits, storage.in_registers, early)
            if key not in self._busiest:
                self._busiest[key] = busiest_bank(storage, group)
            found[array] = math.ceil(self._busiest[key] / storage.ports(self.device))
        return found

    @cached_property
    def _copies(self) -> tuple[bool, bool]:
        """Two flags: walks leave out copies of unrolled loops; all copies are few enough to be walked."""
        left_out = any(isinstance(item, Planned) and item.trips > MOST_COPIES for item in walk(self.everything))
        return left_out, sum(copies_of(own) for _, own in accesses(self.everything, {})) <= _MOST_WALKED

    def walk(
        self,
        registers: Memories,
        carried: Mapping[Element, Time],
        *,
        fabric: bool,
        body_only: bool = False,
        ports: Mapping[str, int] | None = None,
    ) -> Walk:
        """Return the times of its operations; see `Walk`.

        Args:
            ports: cycles that the loads of each array take. With these all copies of unrolled loops are walked, if they
                are not too many.
        """
        loads = {array: n / sum(self.addresses[array]) for array, n in (ports or {}).items() if n > 1}
        left_out, few = self._copies
        whole = ports is not None and few and (left_out or bool(loads))
        key = (registers, tuple(carried.items()), fabric, body_only, whole, tuple(loads.items()))
        if key not in self._walks:
            self._walks[key] = walk = Walk(
                self.device,
                registers,
                fabric,
                carried,
                whole=whole,
                load_cycles=loads,
                early=self._early_ops,
                variables=self.variables,
            )
            if body_only:
                walk.level = len(self.before)
                walk.block(self.body)
            else:
                self._go_through(walk)
                walk.events = list(filter(may_happen, walk.events))
        return self._walks[key]

    def _go_through(self, walk: Walk) -> None:
        deepest = len(self.before)
        for walk.level, items in enumerate((*self.before, self.body)):
            walk.block(items)
        walk.guard = True
        for walk.level in reversed(range(deepest)):
            walk.block(self.after[walk.level])


@dataclass(frozen=True, eq=False)
class KnownRounds:
    """The different nests and rounds of a program's loops on a device, in whatever schedules."""

    device: FpgaDevice
    _known: dict[Hashable, Round] = field(default_factory=dict, repr=False)
    _nests: dict[Hashable, tuple[Item, ...]] = field(default_factory=dict, repr=False)
    _of_loops: dict[Hashable, tuple[Planned, object]] = field(default_factory=dict, repr=False)
    _sources: dict[Hashable, list[list[int]]] = field(default_factory=dict, repr=False)

    def of(self, variables: tuple[int, ...], before: tuple[Level, ...], body: Level, after: tuple[Level, ...]) -> Round:
        """The round that is made of these."""
        key = (variables, before, body, after)
        if key not in self._known:
            *outside, inside = told_apart((*before, *after, body))
            around, behind = tuple(outside[: len(before)]), tuple(outside[len(before) :])
            self._known[key] = Round(self.device, variables, around, inside, behind)
        return self._known[key]

    def once(self, loop: Planned, made: Callable[[], _Made], *about: Hashable) -> _Made:
        """Return the cached result of `made` for a loop that `planned` returned; other loops are made each time.

        Args:
            about: what the result depends on beside the loop.
        """
        # The loop is kept, and so its number, as well.
        return cast(_Made, once(self._of_loops, (id(loop), *about), lambda: (loop, made()), MOST_SMALL_KEPT)[1])

    def planned(self, task_class: TaskClass, plan: Plan, pids: Mapping[int, int]) -> tuple[Item, ...]:
        """Return the result of `planned` for a task of the class, cached by nest.

        A nest depends only on its own loops, and is the same object for all plans that agree on these.
        """
        own, body = (task_class.kernel, task_class.name), simplified(task_class.body.mlir).body
        if own not in self._sources:
            self._sources[own] = [sorted(sources_in((node,))) for node in body]
        found: list[Item] = []
        for place, (node, sources) in enumerate(zip(body, self._sources[own], strict=True)):
            said = tuple((number, plan.loops[number]) for number in sources if number in plan.loops)
            key = (own, place, said, plan.lanes, tuple(pids.values()))
            made = partial(planned, (node,), plan, pids, self.device.hls.pipeline_loops)
            nest: tuple[Item, ...] = once(self._nests, key, made, MOST_SMALL_KEPT)
            found += nest
        return tuple(found)
