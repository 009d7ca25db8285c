"""Pipelined loops: flattening, initiation interval, depth, and the resources of their operators."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import product
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np

from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.ir.affine import Linear
from allo_dse.compiler.ir.nest import Op, ops_of, walk
from allo_dse.device.device import FpgaDevice

from ..memory import OUTSTANDING, IntArray, Memories, Storage, addresses_of, copies_of, split
from ..operators import Unit, compare_lut
from ..plan import Item, Planned
from .binding import Addresses, muxes
from .effects import Effects, Element, Index, Use
from .events import StreamEvent
from .schedule import Walk
from .sums import Time

if TYPE_CHECKING:
    from .loop_round import KnownRounds, Round

# Values carried between rounds of a pipelined loop, and the interval that they allow.


_ADDRESS_BITS = 64  # of a pointer, which the tool compares as a whole
_CHOICE_NS = 0.41  # between two values of 64 bits, as schedules at 5 ns state it
_FAR = 1 << 20  # a cycle that nothing else reaches, to see what depends on a carried value


class Carried(Frozen):
    """An array, or a variable, that a round reads and an earlier one wrote.

    Attributes:
        distance: rounds from the store to the load.
        in_register: whether the value stays in a register from round to round.
        chosen: whether the value of the last round is chosen from a register: that of an element begun anew with each
            round of an outer loop, or that of the last store, where a load may be of its address.
        loads: the indices of loads that find what an earlier round has left. lost: of stores that no such load finds.
        sunk: whether each round begins with the store of the round before, since the first value was stored as well.
    """

    array: str
    distance: int
    in_register: bool
    loads: tuple[Index, ...]
    lost: Set[Index]
    chosen: bool = False
    sunk: bool = False


def carried(
    loops: tuple[Planned, ...],
    effects: Effects,
    registers: Memories,
    begun: Collection[str] = (),
    first: Collection[Element] = (),
) -> list[Carried]:
    """Return the values that rounds of flattened loops, with these effects, hand on; the last loop is pipelined.

    Args:
        registers: arrays that are in registers. begun: those with an element that is begun anew in some rounds.
        first: elements that are stored just before the loops.
    """
    found, variables = [], {loop.variable for loop in loops}
    for array in effects.carried:
        uses = [(op, unrolled) for op, unrolled in effects.uses if op.access and op.access.array == array]
        stores, loads = ([use for use in uses if use[0].name == name] for name in ("store", "load"))
        rounds = _distances(stores, loads, loops)
        if rounds.any():
            nearest = int(rounds[rounds > 0].min())
            kept = _indices(store for store, some in zip(stores, rounds, strict=True) if some.any())
            lost = frozenset(_indices(stores)) - frozenset(kept)
            loaded = _indices(loads[load] for _, load in np.argwhere(rounds))
            in_memory = (
                array not in registers
                and not registers.latency[array]
                and nearest == 1
                and _is_single(stores, loads, variables)
            )
            sunk = in_memory and (array, _index(stores[0])) in first
            chosen = array in begun or (in_memory and not sunk)
            found.append(Carried(array, nearest, array in registers, loaded, lost, chosen, sunk))
    return found


def _is_single(stores: Sequence[Use], loads: Sequence[Use], variables: Set[int]) -> bool:
    """Return whether a round updates one element of an array, and stores no other.

    One that moves with no loop is kept in a register, unless loads may find it.
    """
    if len(stores) > 1 or stores[0][1]:
        return False
    index, loaded = _index(stores[0]), _indices(loads)
    return index in loaded and (len(loaded) > 1 or any(f and f.variables & variables for f in index))


def _indices(uses: Iterable[Use]) -> tuple[Index, ...]:
    return tuple(dict.fromkeys(op.access.index for op, _ in uses if op.access))


def chain_interval(
    found: Sequence[Carried],
    device: FpgaDevice,
    registers: Memories,
    walk: Callable[[Mapping[Element, Time]], Walk],
) -> tuple[int, str]:
    """Return the interval that operations between carried values and their successors allow, and the value that limits
    it.
    """
    known = {one.array: one for one in found}
    lengths: dict[tuple[str, str], int] = {}
    for one in found:
        start = registers.access_ns[one.array] if one.sunk else _CHOICE_NS * one.chosen
        done = walk({(one.array, index): (_FAR, start) for index in one.loads})
        for key, (cycle, ns) in done.stored.items():
            other = known.get(key[0])
            if other is None or cycle < _FAR or key[1] in other.lost:
                continue
            # The output of an operator's last register is forwarded in that cycle; other logic ends in a register.
            length = cycle - _FAR + (ns > 0 and (one.chosen or key not in done.clocked))
            if not other.in_register:  # written to memory and read again, by the next round or the one after it
                late = ns + registers.access_ns[key[0]] > device.clock.usable_ns
                through = cycle - _FAR + late + 2 + one.sunk + 2 * registers.latency[key[0]]
                length = max(length, math.ceil(through / 2)) if other.chosen else through
            way = one.array, other.array
            lengths[way] = max(lengths.get(way, 0), length)
    return least_interval(lengths, {one.array: one.distance for one in found})


def least_interval(lengths: Mapping[tuple[str, str], int], rounds: Mapping[str, int]) -> tuple[int, str]:
    """Return the interval that cycles over one or several arrays need, and an array of one that allows no less.

    Args:
        lengths: from a value of the first array to the value of the second that it makes. rounds: until that is used.
    """
    linked = {way for way in lengths if way[0] != way[1]}
    looped = set(rounds)
    while looped != (kept := {a for a, _ in linked} & {b for _, b in linked}):
        looped, linked = kept, {(a, b) for a, b in linked if a in kept and b in kept}
    behind = {way: n for way, n in lengths.items() if way[0] == way[1] or way in linked}
    enough = range(1, sum(behind.values()) + 2)  # no cycle is longer than the sum of all ways
    interval = enough[bisect_left(enough, True, key=lambda at: not _late(behind, rounds, looped, at))]
    return interval, next(iter(_late(behind, rounds, looped, interval - 1)), "") if interval > 1 else ""


def _late(
    lengths: Mapping[tuple[str, str], int], rounds: Mapping[str, int], looped: Set[str], interval: int
) -> list[str]:
    """Return the arrays on cycles that take longer than their rounds begin after each other.

    Args:
        looped: arrays on cycles of several.
    """
    behind = {(a, b): length - interval * rounds[b] for (a, b), length in lengths.items()}
    for middle, first, last in product(sorted(looped), repeat=3):
        if (first, middle) in behind and (middle, last) in behind:
            way = behind[first, middle] + behind[middle, last]
            behind[first, last] = max(behind.get((first, last), way), way)
    return [array for array in rounds if behind.get((array, array), 0) > 0]


def _distances(stores: Sequence[Use], loads: Sequence[Use], loops: tuple[Planned, ...]) -> IntArray:
    """Return the rounds from each store to the next load of the same element, at least; 0 where there is none.

    Copies of unrolled loops are many, and their pairs more. Indices of one form differ in constants, and only the
    differences of these decide.
    """
    found = np.zeros((len(stores), len(loads)), np.int64)
    for (mine, ours), (theirs, others) in product(_alike(stores), _alike(loads)):
        apart = (ours[:, None] - others).reshape(-1, ours.shape[1])
        _, first, which = np.unique(apart, axis=0, return_index=True, return_inverse=True)
        pairs = zip(*np.divmod(first, len(theirs)), strict=True)
        rounds = [_between(stores[mine[a]], loads[theirs[b]], loops) or 0 for a, b in pairs]
        found[np.ix_(mine, theirs)] = np.take(rounds, which).reshape(len(mine), len(theirs))
    return found


def _alike(uses: Sequence[Use]) -> Iterable[tuple[list[int], IntArray]]:
    """Return positions of uses whose indices have one form, with their constants: int[uses, 1 + dimensions]."""
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for position, use in enumerate(uses):
        forms = tuple(form and replace(form, constant=0) for form in _index(use))
        groups[forms, frozenset(use[1].items())].append(position)
    for positions in groups.values():
        yield (
            positions,
            np.array([[0, *(form.constant if form else 0 for form in _index(uses[one]))] for one in positions]),
        )


def _between(store: Use, load: Use, loops: tuple[Planned, ...]) -> int | None:
    """Rounds from a store to the next load of the same element, at least; None when there is none."""
    stride, strides = 1, {}
    for loop in reversed(loops):
        strides[loop.variable] = stride
        stride *= loop.trips
    steps = {loop.variable: loop.step for loop in loops}
    apart: dict[int, set[int]] = {}  # rounds of each loop
    used: set[int] = set()
    for fixed, offsets in _dimensions(store, load):
        moving = [v for v, _ in fixed.terms if v in strides] if fixed else []
        if fixed is None or fixed.derived or (len(moving) > 1 and offsets != {0}):
            continue  # any round of these loops may be the one
        used.update(moving)
        if len(moving) == 1:
            step = fixed.factor(moving[0]) * steps[moving[0]]
            reached = {offset // step for offset in offsets if offset % step == 0}
            apart[moving[0]] = apart.get(moving[0], reached) & reached
        elif 0 not in offsets:
            return None
    if _never_meet(store, load, loops):
        return None
    distances = {0, *(strides[v] for v in strides if v not in used)}
    for variable, rounds in apart.items():
        distances = {d + n * strides[variable] for d in distances for n in rounds}
    return min((d for d in distances if d > 0), default=None)


def _never_meet(store: Use, load: Use, loops: tuple[Planned, ...]) -> bool:
    """Return whether bounds of the loops keep two elements apart, whatever rounds they are of.

    The tool sees that of a store that moves with the loops; to a fixed element any load may go.
    """
    variables = {loop.variable for loop in loops}
    pairs = [(a, b) for a, b in zip(_index(store), _index(load), strict=True) if a is not None and b is not None]
    if not any(a.variables & variables for a, _ in pairs):
        return False
    unrolled = {**store[1], **load[1]}
    ends = [(v, (Linear((), min(span)), Linear((), max(span)))) for v, span in unrolled.items() if span]
    for loop in reversed(loops):
        end = loop.first + (loop.trips - 1) * loop.step + 1
        lower, upper = loop.bounds or (Linear((), loop.first), Linear((), end))
        ends.append((loop.variable, (lower, upper + Linear((), -1))))
    for a, b in pairs:
        (low, high), (least, most) = (
            [form if form.derived else form.extreme(ends, most=most) for most in (False, True)] for form in (a, b)
        )
        above, below = low + most.scaled(-1), high + least.scaled(-1)
        if (above.is_constant and above.constant > 0) or (below.is_constant and below.constant < 0):
            return True
    return False


def _index(use: Use) -> Index:
    assert use[0].access is not None
    return use[0].access.index


def _dimensions(store: Use, load: Use) -> Iterator[tuple[Linear | None, set[int]]]:
    """Yield, per dimension, the part of two indices that all copies share, and the differences of the rest.

    The shared part is None if that is unknown.
    """
    for a, b in zip(_index(store), _index(load), strict=True):
        first, second = split(a, store[1]), split(b, load[1])
        if first is None or second is None or first[1] != second[1]:
            yield None, set()
        else:
            places = (addresses_of([part[0]], unrolled) for part, (_, unrolled) in ((first, store), (second, load)))
            yield first[1], set(np.unique(np.subtract.outer(*places)).tolist())


@dataclass(frozen=True)
class Flat:
    """Perfectly nested loops as one, outermost first; the last one is pipelined. Its results are cached.

    Attributes:
        first: elements that are stored just before the loops.
    """

    loops: tuple[Planned, ...]
    round: Round
    first: Set[Element] = frozenset()
    _built: dict[Hashable, Pipelined] = field(default_factory=dict, repr=False, compare=False)
    _timed: dict[Hashable, Pipelined] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def trips(self) -> int:
        return math.prod(loop.trips for loop in self.loops)


class Pipelined(Frozen):
    """A pipelined loop as it is built.

    Attributes:
        limit: what its interval comes from: "target", "recurrence" (of an array or variable) or "ports" (of an array).
        units: operators by kind, with how many copies one round has of each.
        span: cycles over which these copies are spread, so that they share operators.
        registers: flip-flops that hold values between stages; muxes: LUTs that choose operands of shared operators.
        early: cycles of loads that are done before the loop, since they are the same in all rounds.
        reused: arrays in memory with a register of the last store, and its address, that a load may take the value of.
    """

    flat: Flat
    ii: int
    depth: int
    limit: str
    events: tuple[StreamEvent, ...]
    units: tuple[tuple[Unit, int], ...]
    span: int
    registers: int
    muxes: int
    early: int = 0
    reused: frozenset[str] = frozenset()

    @property
    def cycles(self) -> int:
        """From the start of its first round to the end of its last."""
        return (self.flat.trips - 1) * self.ii + self.depth if self.flat.trips else 0

    def at(self, ii: int, depth: int) -> Pipelined:
        """Return the loop at another interval and depth; its puts move later by the added depth."""
        late = depth - self.depth
        events = tuple(replace(e, stage=max(0, e.stage + late)) if e.kind == "put" else e for e in self.events)
        return replace(self, ii=ii, depth=depth, limit="report", events=events, span=ii)

    @property
    def operators(self) -> tuple[tuple[Unit, int], ...]:
        """Operators by kind, with how many are built for the copies of an operation in a round."""
        return tuple((unit, math.ceil(n / self.span) if unit.is_shared else n) for unit, n in self.units)


def flatten(
    loop: Planned,
    storages: Mapping[str, Storage],
    rounds: KnownRounds,
    variables: Mapping[int, int] = MappingProxyType({}),
    before: Iterable[object] = (),
) -> Flat | None:
    """The nest as one loop; None when the tool does not flatten it.

    That is when there are several inner loops, blocks are moved in between, bounds of an inner loop depend on loops of
    the nest, or may leave it no rounds while there is something around it, or the innermost loop keeps an element of a
    memory in a register: it is then loaded before that loop and stored after it. If it begins anew and is stored once,
    the register is reset instead.

    Args:
        variables: values of loops around the nest, where bounds depend on them.
        before: what is done just before it.
    """
    flat = rounds.once(loop, lambda: _flattened(loop, rounds, variables, before), *variables.items())
    if flat is None or len(flat.loops) == 1:
        return flat
    if not flat.round.promoted(storages) <= flat.round.begun:
        return None
    # The loop around a burst requests it.
    spans = (
        span for array in flat.round.accesses if storages[array].strides for span, _ in _requests(flat, storages[array])
    )
    return None if any(0 < span < len(flat.loops) for span in spans) else flat


def _requests(flat: Flat, storage: Storage) -> Iterator[tuple[int, int]]:
    """Yield, for loads and for stores in DRAM, how many inner loops a burst spans, and cycles of the port in a round.

    A burst has consecutive addresses (UG1399, "Preconditions and Limitations of Burst Transfer"): of all rounds, or of
    the copies in a round. Other elements are requests of their own, which wait if the adapter has its most under way.
    """
    external, accesses = flat.round.device.external, flat.round.accesses[storage.array.name]
    for write in {access.write for access, _ in accesses}:
        uses = [use for use in accesses if use[0].write is write]
        zips = (zip(access.index, storage.strides, strict=True) for access, _ in uses)
        forms = {sum((form.scaled(n) for form, n in pairs if form), Linear(())) for pairs in zips}
        count, places = sum(copies_of(unrolled) for _, unrolled in uses), [form.constant for form in forms]
        known = all(form and not form.derived for access, _ in uses for form in access.index)
        alike = known and len({form.terms for form in forms}) == 1 and max(places) - min(places) < len(forms)
        span, length, form = -len(uses[0][1]), len(forms) * alike, forms.pop()
        for variable, values in reversed([*((loop.variable, loop.values) for loop in flat.loops), *uses[0][1].items()]):
            if (form.factor(variable) * values.step or None) != length:
                break
            span, length = span + 1, length * len(values)
        words = math.ceil(count * storage.array.bits / external.port_bits)
        apart = (1 if length and span >= 0 else count) * math.ceil(external.latency_cycles / OUTSTANDING)
        yield span, words if span > 0 else max(words, apart)


def _flattened(loop: Planned, rounds: KnownRounds, variables: Mapping[int, int], run: Iterable[object]) -> Flat | None:
    loops, before, after = [loop], [], []
    while loops[-1].mode != "pipeline":
        body = loops[-1].body
        inner = [item for item in body if isinstance(item, Planned) and item.mode != "unroll"]
        if len(inner) != 1 or any(_is_loop_like(item) for item in body if item is not inner[0]):
            return None
        place = body.index(inner[0])
        before.append(body[:place])
        after.append(body[place + 1 :])
        own = {one.variable for one in loops}
        if inner[0].site >= 0 or any(form.variables & own for form in inner[0].bounds or ()):
            return None
        certain = rounds.device.hls.flattens_imperfect and not inner[0].varies and inner[0].trips
        if not certain and len(body) > 1:
            return None
        loops.append(inner[0].at(variables))
    if any(_is_loop_like(item) for item in loops[-1].body):
        return None
    outside = (op.access for op in ops_of(run))
    first = frozenset((access.array, access.index) for access in outside if access is not None and access.write)
    once = rounds.of(tuple(one.variable for one in loops), tuple(before), loops[-1].body, tuple(after))
    return Flat(tuple(loops), once, first)


def _is_loop_like(item: Item) -> bool:
    """Return whether an item needs a loop of its own: blocks move between array and stream element by element."""
    return any(
        bool(inner.block) if isinstance(inner, Op) else isinstance(inner, Planned) and inner.mode != "unroll"
        for inner in walk((item,))
    )


def build(flat: Flat, storages: Mapping[str, Storage], *, fabric: bool = False) -> Pipelined:
    """Interval, depth and operators of a pipelined loop.

    Args:
        fabric: floating-point sums take the adder without DSPs in any case.
    """
    once = flat.round
    key = fabric, tuple([storages[array] for array in once.arrays])
    built = flat._built.get(key)
    if built is None:
        promoted = once.promoted(storages)
        own = {array: storages[array] for array in once.arrays}
        own.update((array, replace(storages[array], place="register")) for array in promoted)
        built = flat._built[key] = _with_muxes(flat, _timed(flat, own, fabric), own, promoted)
    return built


def _timed(flat: Flat, storages: Mapping[str, Storage], fabric: bool) -> Pipelined:
    """Return the loop without its multiplexers; it depends only on the speed of its arrays."""
    once = flat.round
    ports, registers = once.port_cycles(storages), once.memories(storages)
    for array in filter(registers.latency.get, ports):
        ports[array] = max(cycles for _, cycles in _requests(flat, storages[array]))
    key = fabric, registers, tuple(ports.values())
    if key not in flat._timed:
        flat._timed[key] = _build(flat, registers, ports, fabric)
    return flat._timed[key]


def _with_muxes(flat: Flat, built: Pipelined, storages: Mapping[str, Storage], promoted: Iterable[str]) -> Pipelined:
    once = flat.round
    early = max(once.port_cycles(storages, early=True).values(), default=0)
    chosen = muxes(once.device, storages, built.span, built.units, once.addresses)
    memories = {a: loads for a, loads in once.early_addresses.items() if not storages[a].in_registers}
    loads = {array: Addresses.of(group).loads for array, group in memories.items()}
    chosen += round(once.device.hls.mux_lut_per_input * sum(loads.values()))  # they take turns at the ports
    kept = sum(storages[array].array.bits * count for array, count in loads.items())
    kept += sum(storages[array].array.bits for array in promoted)
    for array in built.reused:
        bits, rules = storages[array].array.bits, once.device.hls
        kept += bits + _ADDRESS_BITS
        chosen += compare_lut(rules, _ADDRESS_BITS) + bits + round(4 * rules.mux_lut_per_input)
    return replace(built, muxes=chosen, early=early, registers=built.registers + kept)


def _build(flat: Flat, registers: Memories, ports: Mapping[str, int], fabric: bool) -> Pipelined:
    once = flat.round
    port_ii, port_array = max(((n, array) for array, n in ports.items()), default=(1, ""), key=lambda p: p[0])
    target = flat.loops[-1].target_ii
    least = max(port_ii, target)
    begun = once.begun if len(flat.loops) > 1 else frozenset[str]()
    found = carried(flat.loops, once.effects, registers, begun, flat.first)
    fabric, (rec_ii, rec_array) = _adders(flat, found, registers, least, asked=fabric)
    walk = once.walk(registers, {}, fabric=fabric)
    stream_ii = _stream_interval(walk.events)
    # A round that updates a memory over several cycles may have to end before the next one begins.
    span_ii, span_array = max(
        (
            (
                math.ceil(
                    (ports[one.array] + max(t + 1 for e, (t, _) in walk.stored.items() if e[0] == one.array))
                    / one.distance
                ),
                one.array,
            )
            for one in found
            if once.device.hls.drains_memories and not one.in_register and ports.get(one.array, 1) > 1
        ),
        default=(1, ""),
    )
    ii = span = max(least, rec_ii, stream_ii, span_ii)
    if span_ii == ii > least:  # operators keep up with the loads
        loads, stores = once.addresses[span_array]
        span = math.ceil(ports[span_array] * loads / (loads + stores))
    limit = "target"
    for candidate, name in (
        (stream_ii, "stream"),
        (rec_ii, f"recurrence of {rec_array}"),
        (span_ii, f"recurrence of {span_array}"),
        (port_ii, f"ports of {port_array}"),
    ):
        if candidate == ii and candidate > target:
            limit = name
    units = walk.units()
    depth = max(
        walk.finish + 1 + _waiting(units, span, max(port_ii, stream_ii)),
        port_ii + 2 if port_ii > 1 else 1 + bool(walk.busy),
    )  # addresses take a cycle
    spaced = once.walk(registers, {}, fabric=fabric, ports=ports)
    depth = max(depth, rec_ii, span_ii, (spaced.finish + 1) * spaced.whole)
    held = spaced.held_bits(ii)
    reused = frozenset(one.array for one in found if one.chosen and one.array not in begun)
    return Pipelined(flat, ii, depth, limit, tuple(walk.events), units, span, held, 0, reused=reused)


def _adders(
    flat: Flat, found: list[Carried], registers: Memories, least: int, *, asked: bool
) -> tuple[bool, tuple[int, str]]:
    """Return whether floating-point sums use the adder without DSPs, and the recurrence interval that results.

    The tool takes it where that is `asked` for, or where a recurrence would set the interval, also when it is no
    faster.
    """
    once = flat.round
    # Operations around the inner loop run in some of its rounds only, so both kinds of rounds are checked.
    ways = [(found, True)]
    if once.whole is not once.effects:
        ways.append((carried(flat.loops, once.whole, registers), False))
    full, fabric = (
        max(
            chain_interval(some, once.device, registers, partial(once.walk, registers, fabric=choice, body_only=inner))
            for some, inner in ways
        )
        for choice in (False, True)
    )
    chosen = asked or (full[0] > least and fabric[0] <= full[0])
    return chosen, fabric if chosen else full


def _waiting(units: Iterable[tuple[Unit, int]], ii: int, arrival: int) -> int:
    """Cycles until the last of the operations starts that share an operator.

    Args:
        arrival: cycles in which ports and streams hand out their operands, which delays them anyway.
    """
    if arrival >= ii:
        return 0
    shares = (math.ceil(copies / math.ceil(copies / ii)) for unit, copies in units if unit.is_shared)
    return max(shares, default=1) - 1


def _stream_interval(events: Iterable[StreamEvent]) -> int:
    """A stream moves one token a cycle; operations on either side of one condition do not meet."""
    paths: dict[int, list[tuple[tuple[int, bool], ...]]] = defaultdict(list)
    for event in events:
        paths[event.stream].append(event.path)
    return max(map(_most_at_once, paths.values()), default=1)


def _most_at_once(paths: list[tuple[tuple[int, bool], ...]]) -> int:
    """Most of some operations that one round does, each given by the conditions around it and their sides."""
    inside: dict[int, tuple[list[tuple[tuple[int, bool], ...]], ...]] = {}
    for (condition, side), *rest in filter(None, paths):
        inside.setdefault(condition, ([], []))[side].append(tuple(rest))
    return paths.count(()) + sum(max(map(_most_at_once, sides)) for sides in inside.values())
