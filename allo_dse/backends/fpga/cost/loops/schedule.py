"""As-soon-as-possible schedule of one round of a pipelined loop, under operand and memory port constraints.

Times are (cycle, nanoseconds into it). Combinational operations follow each other within a cycle as long as the clock
allows; a result of latency L is there L cycles later. Unrolled loops are walked three times: the delay between
consecutive copies gives the end of the last one. (`round.py` has written out loops whose copies differ.)
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from allo_dse.common.records import replace
from allo_dse.compiler.ir.affine import decided
from allo_dse.compiler.ir.nest import Access, Branch, Op
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.eval.execute.observed_control import DataTest

from ..memory import Memories
from ..operators import FREE, LIGHT_NS, Unit, float_name, multiply_add, unit_of
from ..plan import WIDTHS, Item, Planned
from .control import adders_of, bits_for
from .effects import ArrayUse, Element, Shape, apart, shape_of
from .events import Guard, StreamEvent
from .sums import Sum, Time, kind_of, multiply_adds, replaced_by_sums, used_once

START: Time = (0, 0.0)


class _Held(Struct):
    """A value that an operation hands on.

    Attributes:
        ready: the cycle in which it is there. last: the latest in which an operation takes it.
        copies: how many values this one represents.
        waits: whether the operation, or a load, can be done later instead: all its operands are loads, or wait as well.
        kept: rounds for which an operator's own register keeps it.
    """

    bits: int
    ready: int
    copies: int
    waits: bool
    kept: int
    last: int = 0


MOST_COPIES = 3
"""Copies of an unrolled loop that show the times of all others."""


@dataclass
class Walk:
    """One pass over the operations of a round.

    Attributes:
        registers: memories of the arrays.
        carried: elements whose value comes from an earlier round, with the time at which it is there.
        fabric: whether floating-point sums take the adder with the shorter latency.
        guard: whether this is after the inner loop of a flattened nest.
        clocked: elements whose value comes straight from the last register of an operator of several cycles.
        order: elements in the order in which they are stored.
        whole: whether all copies of unrolled loops are walked, not only three.
        load_cycles: by array the cycles until its ports deliver the next load.
        early: ids of loads that are done before the loop.
        variables: of the loops whose round this is, outermost first.
        held: what operations hand on. origins: by value, which of these it is; the same element is loaded once.
        fused: by value, operators of products that are part of an addition. macs, products: those that its DSP makes
            with registers, and those that it may make instead.
        started: by operator and cycle, how many operations start.
        sums: by value, what is added up. handed: by element, what was stored last.
        loads, stores: how many there are of each array. busy: by memory, the first cycle after its uses. free: by
            array, the first state in which loops, each a module, have left it alone.
        _alike: elements that are stored, by array and by what of their index is no number: among those of a kind only
            equal ones meet.
    """

    device: FpgaDevice
    registers: Memories
    fabric: bool = False
    carried: Mapping[Element, Time] = field(default_factory=dict)
    values: dict[int, Time] = field(default_factory=dict)
    whole: bool = False
    load_cycles: Mapping[str, float] = field(default_factory=dict)
    early: Set[int] = frozenset()
    variables: tuple[int, ...] = ()
    held: dict[Hashable, _Held] = field(default_factory=dict)
    origins: dict[int, Hashable] = field(default_factory=dict)
    stored: dict[Element, Time] = field(default_factory=dict)
    events: list[StreamEvent] = field(default_factory=list)
    last: dict[int, int] = field(default_factory=dict)
    finish: int = 0
    guard: bool = False
    clocked: set[Element] = field(default_factory=set)
    order: list[Element] = field(default_factory=list)
    _alike: defaultdict[str, dict[Shape, dict[Element, None]]] = field(default_factory=lambda: defaultdict(dict))
    pipelined: set[int] = field(default_factory=set)
    level: int = 0
    tests: tuple[Guard, ...] = ()
    copies: tuple[tuple[int, int], ...] = ()
    path: tuple[tuple[int, bool], ...] = ()
    fused: dict[int, Unit] = field(default_factory=dict)
    macs: dict[int, Op] = field(default_factory=dict)
    products: dict[int, Op] = field(default_factory=dict)
    started: Counter[tuple[Unit, int]] = field(default_factory=Counter)
    sums: dict[int, Sum] = field(default_factory=dict)
    handed: dict[Element, Sum] = field(default_factory=dict)
    left: dict[Element, tuple[Hashable, int]] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    free: dict[str, int] = field(default_factory=dict)
    stores: Counter[str] = field(default_factory=Counter)
    loads: Counter[str] = field(default_factory=Counter)
    _alike_copies: int = 1
    _times: dict[Element, Time] = field(default_factory=dict)
    _once: frozenset[int] = frozenset()
    _replaced: frozenset[int] = frozenset()

    def block(self, items: Sequence[Item]) -> None:
        """Walk over operations in order."""
        self._once = used_once(items)
        self._block(items)

    def _block(self, items: Iterable[Item]) -> None:
        items, around = tuple(items), self._replaced
        self._fuse(items)
        self._replaced = replaced_by_sums(items, self._once)
        for item in items:
            if isinstance(item, Planned):
                self._loop(item)
            elif isinstance(item, Branch):
                self._branch(item)
            else:
                self._op(item)
        self._replaced = around

    def _fuse(self, items: tuple[Item, ...]) -> None:
        """Remember products that only feed an addition: one DSP with its registers does both."""
        found = multiply_adds(items, self.device)
        self.fused.update((v, mac) for v, op in found.items() if (mac := multiply_add(op, self.device)))
        self.macs.update((v, op) for v, op in found.items() if self.fused[v].latency)

    def _op(self, op: Op) -> None:
        if op.direction is not None:
            self._stream(op)
        elif op.name == "load":
            self._load(op)
        elif op.name == "store":
            self._store(op)
        elif op.name in FREE:
            self._set(op, self._ready(op.inputs), self._part(op.inputs[0]) if op.name in WIDTHS else None)
            if any(v in self.pipelined for v in op.inputs):
                self.pipelined.update(op.outputs)
            if len(op.inputs) == 1 and op.inputs[0] in self.origins:
                self.origins.update(dict.fromkeys(op.outputs, self.origins[op.inputs[0]]))
            if op.inputs and op.inputs[0] in self.products and op.outputs[0] in self._once:
                self.products[op.outputs[0]] = self.products[op.inputs[0]]
        elif not any(number in self.macs for number in op.outputs):
            self._compute(op)

    def _compute(self, op: Op) -> None:
        product = next((self.macs[v] for v in op.inputs if v in self.macs), None)
        unit = unit_of(op, self.device, fabric=self.fabric)
        if product is None:
            total = self._sum(op, unit)
            done = total.time if total else self.after(self._ready(op.inputs), unit)
            self._set(op, done, total)
            self._take(op.inputs, done[0] - unit.latency)
            self._hold(op, done[0], kept=int(unit.resources.dsp > 0 and float_name(op) is None))
            if op.outputs[0] not in self.fused:
                built = next((self.fused[v] for v in op.inputs if v in self.fused), unit)
                self.started[built, done[0] - unit.latency] += self._alike_copies
            if unit.latency:
                self.pipelined.update(op.outputs)
            if op.name == "arith.muli" and op.outputs[0] in self._once:
                self.products[op.outputs[0]] = op
            return
        mac = multiply_add(product, self.device)
        assert mac is not None
        self.started[mac, 0] += self._alike_copies
        rest = [v for v in op.inputs if v not in self.macs]
        addend, start = self._ready(rest), self._ready(product.inputs)
        other = next((self.products[v] for v in rest if v in self.products), None)
        if other and multiply_add(other, self.device) == mac and (first := self._ready(other.inputs)) < start:
            addend, start = self.after(start, unit_of(product, self.device)), first  # the DSP takes what comes first
        done = self.after(start, mac)
        # The addend enters the DSP in its last stage.
        cycle = max(done[0], addend[0] + (1 if addend[1] > self.device.clock.usable_ns - mac.delay_ns else 0))
        self._set(op, (cycle, mac.delay_ns))
        self._take(product.inputs, done[0] - mac.latency)
        self._take(rest, cycle)
        self._hold(op, cycle, kept=1)

    def call(self, loop: ArrayUse, least: int) -> int:
        """Return the state that starts a pipelined loop, a module that the next state awaits.

        Args:
            least: first state that it may start in.
        """
        ready = (time for (array, _), time in self.stored.items() if array in loop.used and array in self.registers)
        starts = [cycle + (ns > 0) for cycle, ns in ready]
        starts += [max(self.busy.get(array, 0), self.free.get(array, 0)) for array in loop.used | loop.ported]
        start = max([least, *starts])
        self.stored = {element: time for element, time in self.stored.items() if element[0] not in loop.stored}
        self.free.update(dict.fromkeys(loop.stored | loop.ported, start + 2))
        self.finish = max(self.finish, start + 1)
        return start

    def units(self) -> tuple[tuple[Unit, int], ...]:
        """Return operators by kind, with how many copies a round has."""
        found = Counter[Unit]()
        for (unit, _), count in self.started.items():
            found[unit] += count
        return tuple(found.items())

    def _take(self, values: Iterable[int], cycle: int) -> None:
        """Note that an operation takes values in a cycle."""
        for value in values:
            if value in self.origins:
                held = self.held[self.origins[value]]
                held.last = max(held.last, cycle)

    def held_bits(self, ii: int) -> int:
        """Return the flip-flops of values that later stages take, of several rounds if these wait over an interval."""
        for (array, _), (origin, cycle) in self.left.items():
            if origin is not None and array not in self.registers:
                self.held[origin].last = max(self.held[origin].last, cycle)
        total = 0
        for held in self.held.values():
            rounds = math.ceil(max(0, held.last - held.ready) / ii)
            total += held.bits * held.copies * max(0, (min(1, rounds) if held.waits else rounds) - held.kept)
        return total

    def live_bits(self) -> int:
        """Return the flip-flops of values where nothing repeats, with those that variables take."""
        modules = self.device.hls.overlaps_loops  # loops are modules, to which variables are handed on
        origins = [origin for (array, _), (origin, _) in self.left.items() if modules and array in self.registers]
        return self.held_bits(self.finish + 1) + sum(self.held[one].bits for one in origins if one is not None)

    def _part(self, value: int) -> Sum | None:
        """Return the sum behind a value if it has one user, which can then add the leaves itself."""
        return self.sums.get(value) if value in self._once else None

    def _sum(self, op: Op, unit: Unit) -> Sum | None:
        """Return the sum that an operation completes, no later than in the written order."""
        kind = kind_of(op)
        if kind is None:
            return None
        leaves = Counter[Time]()
        for value in op.inputs:
            part = self._part(value)
            leaves.update(part.leaves if part and part.kind == kind else {self.values.get(value, START): 1})
        total = Sum.of(kind, leaves, partial(self.after, unit=unit))
        return replace(total, time=min(total.time, self.after(self._ready(op.inputs), unit)))

    def after(self, ready: Time, unit: Unit) -> Time:
        """Return when an operator is done whose operands are available at `ready`."""
        cycle, ns = ready
        if ns + unit.delay_ns > self.device.clock.usable_ns + 1e-9:
            cycle, ns = cycle + 1, 0.0
        return (cycle + unit.latency, unit.delay_ns) if unit.latency else (cycle, ns + unit.delay_ns)

    def _ready(self, inputs: Iterable[int]) -> Time:
        return max((self.values.get(v, START) for v in inputs), default=START)

    def _set(self, op: Op, time: Time, total: Sum | None = None) -> None:
        for value in op.outputs:
            self.values[value] = time
            self.origins.pop(value, None)
            self.sums.pop(value, None)
            if total:
                self.sums[value] = total
        self.finish = max(self.finish, time[0])

    def _hold(self, op: Op, ready: int, *, kept: int = 0) -> None:
        """Note a value that an operation hands on, in a register if it waits."""
        sources = [self.held[self.origins[v]].waits for v in op.inputs if v in self.origins]
        for value in op.outputs:
            key = value, self.copies
            self.held[key] = _Held(op.bits, ready, self._alike_copies, op.direction is None and all(sources), kept)
            self.origins[value] = key

    def _load(self, op: Op) -> None:
        assert op.access is not None
        element = self._element(op.access)
        known = element in self.stored and None not in element[1]
        handed = self.handed.pop(element, None)
        total = handed if handed and op.outputs[0] in self._replaced else None
        before = self.carried.get((op.access.array, op.access.index))
        asked = max(self._ready(op.inputs), self._addressed(element))
        time = self.stored[element] if known else self._unstored(element, before, asked)
        self._take(op.inputs, asked[0])
        origin = self.left.get(element, (None, 0))[0] if known else None
        if not (known or before or element[0] in self.registers or id(op) in self.early):
            origin = op.outputs[0] if None in element[1] else -1, element, self.stores[element[0]]
            if origin not in self.held:
                cycle = time[0] + int(self.loads[element[0]] * self.load_cycles.get(element[0], 0.0))
                self.loads[element[0]] += 1
                self.held[origin] = _Held(op.bits, cycle, self._alike_copies, True, 0)
            time = max(time[0], self.held[origin].ready), time[1]
            self.busy[element[0]] = max(self.busy.get(element[0], 0), time[0])
            if time[0] - 1 > asked[0] and asked > START and None not in element[1]:
                self.held[origin, "address"] = _Held(
                    bits_for(math.prod(filter(None, self.registers.shapes[element[0]]))),
                    0,
                    self._alike_copies,
                    True,
                    0,
                    1,
                )
        self._set(op, time, total if total and total.time == time else None)
        if origin is not None:
            self.origins[op.outputs[0]] = origin

    def _element(self, access: Access) -> Element:
        """An element: in each copy of an unrolled loop its variable is a number."""
        values = dict(self.copies)
        return access.array, tuple(form and form.at(values) for form in access.index)

    def _unstored(self, element: Element, before: Time | None, asked: Time = START) -> Time:
        """Return when an element is available that this round may have stored, but has not for sure.

        The value that an earlier round has left is available at `before`, and the address at `asked`.
        """
        maybe, free = [self.stored[other] for other in self._perhaps(element)], self.free.get(element[0], 0)
        if element[0] in self.registers:
            return max([before or (free, 0.0), asked, *maybe])
        if before and not maybe:
            return before
        access = self.registers.access_ns[element[0]]
        late = asked[1] + access > self.device.clock.usable_ns
        start = max([free, asked[0] + late, *(time[0] + 1 for time in maybe)])
        return max(before or START, (start + 1 + self.registers.latency[element[0]], access))

    def _addressed(self, element: Element) -> Time:
        """Return when an address in a memory is there, which the counters of the loops decide.

        In flattened loops a counter is chosen after a comparison, one after the other.
        """
        if element not in self._times:
            shape = self.registers.shapes.get(element[0], ())
            known = [(form, n, form.constant) for form, n in zip(element[1], shape, strict=False) if n and form]
            steps, rules, time = 0, self.device.integer, START
            if None not in element[1] and any(form.variables & set(self.variables) for form, *_ in known):
                chosen, adders = len(self.variables) - 1, adders_of(*zip(*known, strict=True))
                steps = chosen + math.ceil(math.log2(adders + 1))
            for step in range(steps):
                delay = rules.add_ns + rules.add_ns_per_bit * bits_for(math.prod(n for _, n, _ in known))
                time = self.after(time, Unit("", 0, delay + LIGHT_NS * (step < chosen), Resources()))
            self._times[element] = time
        return self._times[element]

    def _perhaps(self, element: Element) -> list[Element]:
        """The elements stored in this round that may be this one."""
        own, found = shape_of(element), [element] if element in self.stored else []
        for form, others in self._alike[element[0]].items():
            if form != own or None in form:
                found += [o for o in others if o != element and o in self.stored and not apart(o, element)]
        return found

    def _keep(self, element: Element, time: Time, *, clocked: bool) -> None:
        self.stored[element] = time
        self.stores[element[0]] += 1
        self.order.append(element)
        self._alike[element[0]].setdefault(shape_of(element), {})[element] = None
        if clocked:
            self.clocked.add(element)

    def _store(self, op: Op) -> None:
        assert op.access is not None
        time = self._ready(op.inputs)
        key = self._element(op.access)
        clocked = op.inputs[0] in self.pipelined
        for other in self._perhaps(key):  # the earlier store or this one, whichever is later
            self.stored[other] = max(self.stored[other], time)
            if not clocked:
                self.clocked.discard(other)
        if None not in key[1] or key not in self.stored:
            self._keep(key, time, clocked=clocked)
        total = self._part(op.inputs[0])
        self.handed.pop(key, None)
        if total:
            self.handed[key] = total
        self.left[key] = self.origins.get(op.inputs[0]), self._finish_store(key, time)

    def _finish_store(self, element: Element, time: Time) -> int:
        """Return the cycle in which an element is written."""
        cycle = time[0] + (time[1] + self.registers.access_ns[element[0]] > self.device.clock.usable_ns)
        if element[0] not in self.registers:
            ready, ns = self._addressed(element)
            ready += ns + self.registers.access_ns[element[0]] > self.device.clock.usable_ns
            cycle = max(cycle, ready, self.free.get(element[0], 0))
            self.busy[element[0]] = max(self.busy.get(element[0], 0), cycle + 1)
            self.finish = max(self.finish, cycle + self.registers.latency[element[0]])
        return cycle

    def _stream(self, op: Op) -> None:
        assert op.stream is not None
        assert op.direction is not None
        ready = self._ready(op.inputs)
        cycle = ready[0] + (1 if ready[1] > 0 else 0)
        cycle = max(cycle, self.last.get(op.stream, -1) + 1)
        self.last[op.stream] = cycle
        event = StreamEvent(
            cycle, op.direction, op.stream, op.op, self.tests, self.copies, self.level, self.guard, self.path
        )
        self.events.append(event)
        self._set(op, (cycle, self.device.clock.usable_ns))
        self._hold(op, cycle)
        self.finish = max(self.finish, cycle)

    def _branch(self, branch: Branch) -> None:
        outer, path, before, clocked = self.tests, self.path, dict(self.stored), set(self.clocked)
        condition = self.values.get(branch.condition, START)
        ends, outcomes, clocks, lasts, last, finishes = [], [], [], [], dict(self.last), [self.finish]
        # In a copy of an unrolled loop its variable is a constant, and only one side remains.
        taken = decided(branch.test, dict(self.copies))
        test = DataTest(branch.site, self.copies) if branch.test is None else branch.test
        for number, side in enumerate(branch.sides):
            self.tests = (*outer, (test, number == 0))
            self.path = (*path, (branch.condition, number == 0))
            self.stored, self.last = dict(before), dict(last)  # of one stream only one side moves a token
            if taken is not None:
                self.clocked, self.finish = set(clocked), finishes[0]
            self._block(side)  # type: ignore[arg-type]
            clocks.append(self.clocked)
            lasts.append(self.last)
            finishes.append(self.finish)
            outcomes.append(self.stored)
            ends.append(self._ready(branch.results[number]))
        self.tests, self.path = outer, path
        if taken is None:
            self.stored, (one, other) = before, lasts
            self.last = {stream: max(one.get(stream, -1), other.get(stream, -1)) for stream in {**one, **other}}
            self._join(outcomes, clocked)
        else:
            self.stored, self.clocked, self.last = outcomes[not taken], clocks[not taken], lasts[not taken]
            self.finish, ends = finishes[1 + (not taken)], [ends[not taken]]
        select = Op("arith.select", (), branch.outputs, "", branch.bits)
        if branch.outputs:
            chosen = unit_of(select, self.device)
            self.started[chosen, 0] += self._alike_copies
            self._set(select, self.after(max(condition, *ends), chosen) if taken is None else ends[0])

    def _join(self, outcomes: list[dict[Element, Time]], clocked: set[Element]) -> None:
        """Elements that one side of a condition may have stored are there when either value is.

        The choice is the enable or reset of a register and takes no time of its own.
        """
        before, left = dict(self.stored), {array: time for (array, _), time in self.carried.items()}
        for key in {**outcomes[0], **outcomes[1]}:
            known = before.get(key)
            if outcomes[0].get(key) != known or outcomes[1].get(key) != known:
                sides = (side[key] if key in side else self._unstored(key, left.get(key[0])) for side in outcomes)
                self.stored[key] = max(sides)
        for key in clocked:
            if self.stored.get(key) == before.get(key):
                self.clocked.add(key)

    def _loop(self, loop: Planned) -> None:
        """The copies of an unrolled loop."""
        if loop.trips == 0:
            return
        outer_copies = self.copies
        history: list[dict[Element, Time]] = []
        handed: list[dict[Element, Sum]] = []
        orders: list[list[Element]] = []
        per_copy = 0
        walked, alike = loop.trips if self.whole else min(loop.trips, MOST_COPIES), self._alike_copies
        for copy in range(walked):
            self._alike_copies = alike * (loop.trips - walked + 1 if copy == walked - 1 else 1)
            self.copies = (*outer_copies, (loop.variable, loop.first + copy * loop.step))
            start, stores = len(self.events), len(self.order)
            self._block(loop.body)
            per_copy = len(self.events) - start
            history.append(dict(self.stored))
            handed.append(dict(self.handed))
            orders.append(self.order[stores:])
        self.copies, self._alike_copies = outer_copies, alike
        if loop.trips > walked:
            added_up = self._add_up(loop, handed)
            self._extrapolate(loop, history, orders, added_up)
            self._repeat_events(loop, per_copy)

    def _add_up(self, loop: Planned, handed: list[dict[Element, Sum]]) -> set[Element]:
        """Add up the sums of all copies of an unrolled loop, from those of three copies; return their elements."""
        found = set()
        for element, last in handed[2].items():
            earlier = [sums[element] for sums in handed[:2] if element in sums]
            total = last.repeated(earlier, loop.trips - 3) if len(earlier) == 2 else None
            if total and self.stored.get(element) == last.time:
                self.handed[element] = total
                self._keep(element, total.time, clocked=False)
                self.finish = max(self.finish, total.time[0])
                self._finish_store(element, total.time)
                found.add(element)
        return found

    def _extrapolate(
        self,
        loop: Planned,
        history: list[dict[Element, Time]],
        orders: list[list[Element]],
        added_up: set[Element],
    ) -> None:
        """Extrapolate the times of values passed between copies, and of each copy's stores, to the last copy.

        Args:
            history: of three copies, what is stored after each. orders: what each stores, in order.
            added_up: what is known already.
        """
        usable = self.device.clock.usable_ns
        earlier = {b: a for a, b in zip(*orders[1:], strict=False) if a != b and a[0] == b[0]}
        for key, time in history[2].items():
            if key in added_up or (key not in earlier and history[0].get(key) == history[1].get(key)):
                continue  # a sum, or stored by one of the copies
            before = history[1].get(earlier.get(key, key), time)
            step = _ns(time, usable) - _ns(before, usable)
            if step <= 0:
                continue
            if step >= usable:
                late = (time[0] + (time[0] - before[0]) * (loop.trips - 3), time[1])
            else:  # a register may have come between the last two
                first = _ns(before, usable) - _ns(history[0].get(key, START), usable)
                delay, late = min(step, first) if first > 0 else step, time
                for _ in range(loop.trips - 3):
                    late = self.after(late, Unit("", 0, delay, Resources()))
            last = _ahead(earlier[key], key, loop.trips - 3) if key in earlier else key
            self._keep(last, late, clocked=key in self.clocked)
            self.finish = max(self.finish, late[0])
            self._finish_store(last, late)

    def _repeat_events(self, loop: Planned, per_copy: int) -> None:
        if not per_copy:
            return
        last = self.events[len(self.events) - per_copy :]
        previous = self.events[len(self.events) - 2 * per_copy : len(self.events) - per_copy]
        steps = [event.stage - earlier.stage for event, earlier in zip(last, previous, strict=True)]
        asked = [any(isinstance(test, DataTest) for test, _ in event.tests) for event in last]
        place = len(self.copies)  # of this loop's variable among those of the loops around an event
        for copy in range(3, loop.trips):
            value = (loop.variable, loop.first + copy * loop.step)
            for event, step, asks in zip(last, steps, asked, strict=True):
                stage = event.stage + step * (copy - 2)
                copies = (*event.copies[:place], value, *event.copies[place + 1 :])
                tests = event.tests
                if asks:
                    tests = tuple((t.at(*value) if isinstance(t, DataTest) else t, side) for t, side in tests)
                self.events.append(replace(event, stage=stage, tests=tests, copies=copies))
                self.finish = max(self.finish, stage)
                self.last[event.stream] = max(self.last.get(event.stream, 0), stage)


def _ns(time: Time, usable: float) -> float:
    return time[0] * usable + time[1]


def _ahead(second: Element, third: Element, copies: int) -> Element:
    """Return the element that a later copy stores, extrapolated from those of two consecutive copies."""
    pairs = zip(second[1], third[1], strict=True)
    return third[0], tuple(a and b and b + (b + a.scaled(-1)).scaled(copies) for a, b in pairs)
