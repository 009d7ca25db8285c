"""What one round of a pipelined loop does, whatever its interval, how often it runs and how its arrays are split."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

from allo_dse.device.device import FpgaDevice
from allo_dse.ir.nest import Op, read_nest
from allo_dse.program.tasks import TaskClass

from ..item_walks import accesses
from ..memory import Accesses, Storage, busiest_bank
from ..operators import Unit
from ..plan import Item, Plan, Planned, planned, sources_in
from .asap import Walk
from .binding import Addresses, Staged, by_array, staged, units
from .copies import told_apart
from .effects import Effects, Element, Use, effects_of
from .events import may_happen
from .sums import Time

Level = tuple[Item, ...]
_Made = TypeVar("_Made")
_NESTS_KEPT = 4096
"""Of one program, in all schedules."""


@dataclass(frozen=True, eq=False)
class Round:
    """One round of flattened loops. What it is asked for is kept: many schedules have few different rounds.

    Attributes:
        variable: of the loop that is pipelined.
        before, after: operations of each level around the inner loop.
    """

    device: FpgaDevice
    variable: int
    before: tuple[Level, ...]
    body: Level
    after: tuple[Level, ...]
    _walks: dict[Hashable, Walk] = field(default_factory=dict, repr=False)
    _busiest: dict[Hashable, int] = field(default_factory=dict, repr=False)
    _units: dict[bool, tuple[tuple[Unit, int], ...]] = field(default_factory=dict, repr=False)

    @cached_property
    def effects(self) -> Effects:
        """What a round of the inner loop does."""
        return effects_of(self.body)

    @cached_property
    def whole(self) -> Effects:
        """What a round of all levels does."""
        if not any(self.before) and not any(self.after):
            return self.effects
        return effects_of(self.body, *(itertools.chain(*parts) for parts in (self.before, self.after)))

    @property
    def uses(self) -> tuple[Use, ...]:
        """Loads and stores of all levels that need a port."""
        return self.whole.uses

    @cached_property
    def _updated(self) -> frozenset[str]:
        """Arrays of which the rounds of the inner loop update one element.

        The compiler looks for it before it unrolls anything, so an index that uses a loop inside prevents it.
        """
        moving = {
            access.array
            for access, unrolled in accesses(self.body, {})
            if access.spread
            or any(form is None or form.variables & {self.variable, *unrolled} for form in access.index)
        }
        return frozenset(self.effects.carried) - moving

    def promoted(self, storages: Mapping[str, Storage]) -> frozenset[str]:
        """Arrays in memory of which an element is in a register while the inner loop runs."""
        return frozenset(array for array in self._updated if not storages[array].in_registers)

    def registers(self, storages: Mapping[str, Storage]) -> frozenset[str]:
        """Those of its arrays that are in registers."""
        return frozenset(array for array in self.arrays if storages[array].in_registers)

    @property
    def _everything(self) -> Level:
        return tuple(item for part in (*self.before, self.body, *self.after) for item in part)

    @property
    def arrays(self) -> frozenset[str]:
        """Those that it uses."""
        return frozenset(op.access.array for op in _ops(self._everything) if op.access is not None)

    @cached_property
    def accesses(self) -> Mapping[str, Accesses]:
        """By array, those that need a port."""
        return by_array(self.uses)

    @cached_property
    def addresses(self) -> Mapping[str, Addresses]:
        """The same as different addresses."""
        return {array: Addresses.of(group) for array, group in self.accesses.items()}

    @cached_property
    def _loads(self) -> Mapping[str, Accesses]:
        return by_array(use for use in self.uses if not (use[0].access and use[0].access.write))

    def port_cycles(self, storages: Mapping[str, Storage], *, loads: bool = False) -> dict[str, int]:
        """Cycles that its accesses take, or its loads alone, per array."""
        found = {}
        for array, group in (self._loads if loads else self.accesses).items():
            storage = storages[array]
            key = (storage.array, storage.splits, storage.in_registers, loads)
            busiest = self._busiest.get(key)
            if busiest is None:
                busiest = self._busiest[key] = busiest_bank(storage, group)
            found[array] = math.ceil(busiest / storage.ports(self.device))
        return found

    def units(self, *, fabric: bool) -> tuple[tuple[Unit, int], ...]:
        """Operators by kind, with the number of copies that a round has.

        Args:
            fabric: floating-point sums take the adder without DSPs.
        """
        if fabric not in self._units:
            self._units[fabric] = tuple(units(self._everything, self.device, fabric=fabric))
        return self._units[fabric]

    @property
    def staged(self) -> tuple[Staged, ...]:
        """What loads and operators of more than a cycle give to later stages."""
        return tuple(staged(self._everything))

    def walk(
        self, registers: frozenset[str], carried: Mapping[Element, Time], *, fabric: bool, body_only: bool = False
    ) -> Walk:
        """When its operations happen; see `Walk`."""
        key = (registers, tuple(carried.items()), fabric, body_only)
        if key not in self._walks:
            self._walks[key] = walk = Walk(self.device, registers, fabric, carried)
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


def _ops(items: Iterable[Item]) -> Iterator[Op]:
    for item in items:
        if isinstance(item, Op):
            yield item
        elif isinstance(item, Planned):
            yield from _ops(item.body)
        else:
            for side in item.sides:
                yield from _ops(side)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class KnownRounds:
    """The different nests and rounds of a program's loops on a device, in whatever schedules."""

    device: FpgaDevice
    _known: dict[Hashable, Round] = field(default_factory=dict, repr=False)
    _nests: dict[Hashable, tuple[Item, ...]] = field(default_factory=dict, repr=False)
    _of_loops: dict[int, tuple[Planned, object]] = field(default_factory=dict, repr=False)
    _sources: dict[Hashable, list[list[int]]] = field(default_factory=dict, repr=False)

    def of(self, variable: int, before: tuple[Level, ...], body: Level, after: tuple[Level, ...]) -> Round:
        """The round that is made of these."""
        key = (variable, before, body, after)
        if key not in self._known:
            *outside, inside = told_apart((*before, *after, body))
            around, behind = tuple(outside[: len(before)]), tuple(outside[len(before) :])
            self._known[key] = Round(self.device, variable, around, inside, behind)
        return self._known[key]

    def once(self, loop: Planned, made: Callable[[], _Made]) -> _Made:
        """What is made of a loop that `planned` has given; of equal loops that it has not given, each time."""
        if id(loop) not in self._of_loops:
            if len(self._of_loops) == _NESTS_KEPT:
                self._of_loops.clear()
            self._of_loops[id(loop)] = loop, made()
        return cast(_Made, self._of_loops[id(loop)][1])  # which keeps the loop, and so its number, as well

    def planned(self, task_class: TaskClass, plan: Plan, pids: Mapping[int, int]) -> tuple[Item, ...]:
        """What `planned` makes of a task of the class: what stands side by side in it hangs on its own loops alone, and
        is the same object wherever a plan says the same of these."""
        own, body = (task_class.kernel, task_class.name), read_nest(task_class.body.mlir).body
        if own not in self._sources:
            self._sources[own] = [sorted(sources_in((node,))) for node in body]
        found: list[Item] = []
        for place, (node, sources) in enumerate(zip(body, self._sources[own], strict=True)):
            said = tuple((number, plan.loops[number]) for number in sources if number in plan.loops)
            key = (own, place, said, tuple(pids.values()))
            if key not in self._nests:
                if len(self._nests) == _NESTS_KEPT:
                    self._nests.clear()
                self._nests[key] = planned((node,), plan, pids, self.device.hls.unroll_up_to)
            found += self._nests[key]
        return tuple(found)
