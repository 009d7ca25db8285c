"""Pipelined loops: flattening, initiation interval, depth, and the resources of their operators."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from allo_dse.device.device import FpgaDevice

from .asap import StreamEvent, Time, Walk, multiply_adds
from .linear import Linear
from .memory import Storage, busiest_bank
from .nest import Access, Branch, Op
from .operators import FREE, Unit, float_name, multiply_add, unit_of
from .plan import Item, Planned

_FAR = 1 << 20  # a cycle that nothing else reaches, to see what depends on a carried value


@dataclass(frozen=True)
class Flat:
    """Perfectly nested loops as one: outermost first, the last one is pipelined.

    Attributes:
        before, after: operations of each level around the inner loop.
    """

    loops: tuple[Planned, ...]
    before: tuple[tuple[Item, ...], ...]
    after: tuple[tuple[Item, ...], ...]

    @property
    def trips(self) -> int:
        return math.prod(loop.trips for loop in self.loops)

    @property
    def body(self) -> tuple[Item, ...]:
        return self.loops[-1].body


@dataclass(frozen=True)
class Pipelined:
    """A pipelined loop as it is built.

    Attributes:
        limit: what its interval comes from: "target", "recurrence" (of an array or variable) or "ports" (of an array).
        units: operators by kind, with how many copies one round has of each.
        registers: flip-flops that hold values between stages; muxes: LUTs that choose operands of shared operators.
    """

    flat: Flat
    ii: int
    depth: int
    limit: str
    events: tuple[StreamEvent, ...]
    units: tuple[tuple[Unit, int], ...]
    registers: int
    muxes: int

    @property
    def cycles(self) -> int:
        """From the start of its first round to the end of its last."""
        return (self.flat.trips - 1) * self.ii + self.depth if self.flat.trips else 0

    def at(self, ii: int, depth: int) -> Pipelined:
        """The same loop at another interval and depth; what it puts comes as much later as it is deeper."""
        late = depth - self.depth
        events = tuple(replace(e, stage=max(0, e.stage + late)) if e.kind == "put" else e for e in self.events)
        return replace(self, ii=ii, depth=depth, limit="report", events=events)

    def instances(self, kind: str) -> int:
        """How many operators of a kind there are."""
        return next((math.ceil(n / self.ii) for unit, n in self.units if unit.kind == kind), 0)


def flatten(loop: Planned) -> Flat | None:
    """The nest as one loop; None when the tool does not flatten it: several inner loops, or blocks moved in between."""
    loops, before, after = [loop], [], []
    while loops[-1].mode != "pipeline":
        body = loops[-1].body
        inner = [item for item in body if isinstance(item, Planned) and item.mode != "unroll"]
        if len(inner) != 1 or any(_is_loop_like(item) for item in body if item is not inner[0]):
            return None
        place = body.index(inner[0])
        before.append(body[:place])
        after.append(body[place + 1 :])
        loops.append(inner[0])
    if any(_is_loop_like(item) for item in loops[-1].body):
        return None
    return Flat(tuple(loops), tuple(before), tuple(after))


def _is_loop_like(item: Item) -> bool:
    """Whether an item takes a loop of its own: blocks are moved between array and stream element by element."""
    if isinstance(item, Op):
        return item.block > 0
    if isinstance(item, Planned):
        return item.mode != "unroll" or any(_is_loop_like(inner) for inner in item.body)
    return any(_is_loop_like(inner) for side in item.sides for inner in side)  # type: ignore[arg-type]


def build(flat: Flat, device: FpgaDevice, storages: Mapping[str, Storage]) -> Pipelined:
    """Interval, depth and operators of a pipelined loop."""
    accesses = list(_accesses(_everything(flat), {}))
    port_ii, port_array = _port_interval(accesses, storages, device)
    target = flat.loops[-1].target_ii
    least = max(port_ii, target)
    rec_ii, rec_array = _recurrence(flat, accesses, device, storages, fabric=False)
    fabric = False
    if rec_ii > least:
        faster, array = _recurrence(flat, accesses, device, storages, fabric=True)
        if faster < rec_ii:
            rec_ii, rec_array, fabric = faster, array, True
    walk = _walk(flat, device, storages, fabric=fabric)
    stream_ii = _stream_interval(walk.events)
    ii = max(least, rec_ii, stream_ii)
    limit = "target"
    for candidate, name in (
        (stream_ii, "stream"),
        (rec_ii, f"recurrence of {rec_array}"),
        (port_ii, f"ports of {port_array}"),
    ):
        if candidate == ii and candidate > target:
            limit = name
    depth = max(walk.finish + 1, _stagger(accesses, storages, device) + 2 if port_ii > 1 else 1)
    units = tuple(_units(_everything(flat), device, fabric=fabric))
    return Pipelined(
        flat,
        ii,
        depth,
        limit,
        tuple(walk.events),
        units,
        _registers(flat),
        _muxes(units, accesses, ii, storages, device),
    )


def _everything(flat: Flat) -> list[Item]:
    return [item for part in (*flat.before, flat.body, *flat.after) for item in part]


def _walk(
    flat: Flat,
    device: FpgaDevice,
    storages: Mapping[str, Storage],
    *,
    fabric: bool,
    carried: Mapping[str, Time] | None = None,
    body_only: bool = False,
) -> Walk:
    walk = Walk(device, storages, fabric, carried or {})
    deepest = len(flat.loops) - 1
    if not body_only:
        for level, items in enumerate(flat.before):
            walk.level = level
            walk.block(items)
    walk.level = deepest
    walk.block(flat.body)
    if not body_only:
        walk.guard = 1
        for level in reversed(range(deepest)):
            walk.level = level
            walk.block(flat.after[level])
    return walk


def _accesses(items: Iterable[Item], unrolled: Mapping[int, int]) -> Iterator[tuple[Op, Mapping[int, int]]]:
    """Loads and stores with the unrolled loops around them."""
    for item in items:
        if isinstance(item, Planned):
            span = dict(unrolled)
            # Indices are multiples of the step, counted from the first value.
            span[item.variable] = item.trips
            yield from _accesses(item.body, span)
        elif isinstance(item, Branch):
            for side in item.sides:
                yield from _accesses(side, unrolled)  # type: ignore[arg-type]
        elif item.access is not None and not item.block:
            yield item, unrolled


Accesses = list[tuple[Op, Mapping[int, int]]]


def _port_interval(accesses: Accesses, storages: Mapping[str, Storage], device: FpgaDevice) -> tuple[int, str]:
    """The interval that memory ports allow, and the array that sets it."""
    worst, name = 1, ""
    for array, group in _by_array(accesses).items():
        busiest = busiest_bank(storages[array], group)
        interval = math.ceil(busiest / device.arrays.ports)
        if interval > worst:
            worst, name = interval, array
    return worst, name


def _by_array(accesses: Accesses) -> dict[str, list[tuple[Access, Mapping[int, int]]]]:
    groups: dict[str, list[tuple[Access, Mapping[int, int]]]] = defaultdict(list)
    for op, unrolled in accesses:
        assert op.access is not None
        if op.access.index:
            groups[op.access.array].append((op.access, unrolled))
    return groups


def _stagger(accesses: Accesses, storages: Mapping[str, Storage], device: FpgaDevice) -> int:
    return _port_interval(accesses, storages, device)[0]


def _stream_interval(events: Iterable[StreamEvent]) -> int:
    """A stream moves one token a cycle; operations on either side of a condition do not meet."""
    counts: dict[tuple[int, object], int] = defaultdict(int)
    for event in events:
        counts[event.stream, event.tests[-1][1] if event.tests else True] += 1
    return max(counts.values(), default=1)


def _recurrence(
    flat: Flat, accesses: Accesses, device: FpgaDevice, storages: Mapping[str, Storage], *, fabric: bool
) -> tuple[int, str]:
    """The interval that values carried from round to round allow, and the array or variable that sets it."""
    worst, name = 1, ""
    for array in _carried(flat.body):
        distance = _distance(array, accesses, flat, storages)
        if distance is None:
            continue
        promoted = storages[array].in_registers or _is_invariant(array, accesses, flat.loops[-1].variable)
        walk = _walk(flat, device, storages, fabric=fabric, carried={array: (_FAR, 0.0)}, body_only=True)
        ends = [time for (stored, _), time in walk.stored.items() if stored == array and time[0] >= _FAR]
        if not ends:
            continue
        cycle, ns = max(ends)
        length = cycle - _FAR + (ns > 0)
        if not promoted:  # written to memory and read again
            late = ns + device.arrays.write_ns > device.clock.usable_ns
            length = cycle - _FAR + late + 2
        interval = math.ceil(length / distance)
        if interval > worst:
            worst, name = interval, array
    return worst, name


def _carried(items: Iterable[Item]) -> list[str]:
    """Arrays that a round reads before it writes them."""
    found: dict[str, None] = {}
    written: set[tuple[str, object]] = set()
    read: set[str] = set()
    for op, _ in _accesses(items, {}):
        assert op.access is not None
        key = (op.access.array, op.access.index)
        if op.access.write:
            written.add(key)
            if op.access.array in read:
                found[op.access.array] = None
        elif key not in written:
            read.add(op.access.array)
    return list(found)


def _is_invariant(array: str, accesses: Accesses, variable: int) -> bool:
    """Whether all accesses to an array stay at one element while the innermost loop runs; it is then a register."""
    return all(
        form is not None and not form.factor(variable)
        for op, _ in accesses
        if op.access is not None and op.access.array == array
        for form in op.access.index
    )


def _distance(array: str, accesses: Accesses, flat: Flat, storages: Mapping[str, Storage]) -> int | None:
    """Rounds from a store to the next load of the same element; None when there is none."""
    loads = [op.access for op, _ in accesses if op.access and op.access.array == array and not op.access.write]
    stores = [op.access for op, _ in accesses if op.access and op.access.array == array and op.access.write]
    found = [d for store in stores for load in loads if (d := _between(store, load, flat)) is not None]
    return min(found, default=None)


def _between(store: Access, load: Access, flat: Flat) -> int | None:
    stride, strides = 1, {}
    for loop in reversed(flat.loops):
        strides[loop.variable] = stride
        stride *= loop.trips
    pairs = list(zip(store.index, load.index, strict=True))
    if any(s is None or g is None for s, g in pairs):
        return 1
    forms = [(s, g) for s, g in pairs if s is not None and g is not None]
    if any(s.terms != g.terms for s, g in forms):
        return 1
    steps = {loop.variable: loop.step for loop in flat.loops}
    if all(s.constant == g.constant for s, g in forms):
        free = [strides[v] for v in strides if not any(s.factor(v) for s, _ in forms)]
        return min(free, default=None)
    return _shifted([(s, s.constant - g.constant) for s, g in forms], strides, steps)


def _shifted(forms: list[tuple[Linear, int]], strides: Mapping[int, int], steps: Mapping[int, int]) -> int | None:
    """Rounds after which a load reaches the element that a store at a constant offset wrote; None for never."""
    distance = 0
    for form, offset in forms:
        if not offset:
            continue
        moving = [v for v, _ in form.terms if v in strides]
        if len(moving) != 1:
            return 1
        factor = form.factor(moving[0]) * steps[moving[0]]
        if offset % factor:
            return None
        distance += offset // factor * strides[moving[0]]
    return distance if distance > 0 else None


def _units(items: Iterable[Item], device: FpgaDevice, *, fabric: bool) -> Iterator[tuple[Unit, int]]:
    counts: dict[str, tuple[Unit, int]] = {}
    for unit, copies in _operators(tuple(items), device, 1, fabric=fabric):
        known = counts.get(unit.kind, (unit, 0))
        counts[unit.kind] = (unit, known[1] + copies)
    yield from counts.values()


def _operators(items: tuple[Item, ...], device: FpgaDevice, copies: int, *, fabric: bool) -> Iterator[tuple[Unit, int]]:
    """Every operator of a round, with the number of its copies."""
    fused = multiply_adds(items, device)
    for item in items:
        if isinstance(item, Planned):
            yield from _operators(item.body, device, copies * item.trips, fabric=fabric)
        elif isinstance(item, Branch):
            for side in item.sides:
                yield from _operators(side, device, copies, fabric=fabric)  # type: ignore[arg-type]
            if item.outputs:
                yield unit_of(Op("arith.select", (), item.outputs, "", item.bits), device), copies
        elif item.access is None and item.direction is None and item.name not in FREE:
            if any(v in fused for v in item.outputs):
                continue
            product = next((fused[v] for v in item.inputs if v in fused), None)
            mac = multiply_add(product, device) if product is not None else None
            yield mac or unit_of(item, device, fabric=fabric), copies


def _registers(flat: Flat) -> int:
    """Bits that pass from stage to stage: what loads and operators of more than a cycle give."""
    return sum(bits * copies for bits, copies in _staged(_everything(flat), 1))


def _staged(items: Iterable[Item], copies: int) -> Iterator[tuple[int, int]]:
    for item in items:
        if isinstance(item, Planned):
            yield from _staged(item.body, copies * item.trips)
        elif isinstance(item, Branch):
            for side in item.sides:
                yield from _staged(side, copies)  # type: ignore[arg-type]
        elif item.access is not None and not item.access.index:
            continue
        elif float_name(item) == "add":  # partial sums are used at once, products wait for their turn
            yield item.bits, 1
        elif item.outputs and (item.name in ("load", "df.get") or float_name(item) is not None):
            yield item.bits, copies


def _muxes(
    units: Iterable[tuple[Unit, int]],
    accesses: Accesses,
    ii: int,
    storages: Mapping[str, Storage],
    device: FpgaDevice,
) -> int:
    """LUTs that feed shared operators and ports of memories with what they do in each cycle."""
    per_bit = device.hls.mux_lut_per_input_bit
    total = 0.0
    for unit, copies in units:
        shared = math.ceil(copies / ii)
        if copies > shared and (unit.resources.dsp or unit.latency):
            total += 2 * 32 * per_bit * copies
    for array, group in _by_array(accesses).items():
        storage = storages[array]
        uses = sum(math.prod(unrolled.values()) for _, unrolled in group)
        ports = device.arrays.ports * storage.banks
        if uses > ports and not storage.in_registers:
            total += per_bit * uses * max(1, math.ceil(math.log2(max(2, storage.bank_words))))
    return round(total)
