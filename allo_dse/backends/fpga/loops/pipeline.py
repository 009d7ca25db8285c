"""Pipelined loops: flattening, initiation interval, depth, and the resources of their operators."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial

from msgspec import Struct

from allo_dse.common.records import replace
from allo_dse.ir.nest import Op

from ..memory import Storage
from ..operators import Unit
from ..plan import Item, Planned
from .binding import held_bits, muxes
from .events import StreamEvent
from .recurrence import Carried, carried, chain_interval, memory_interval
from .round import KnownRounds, Round


@dataclass(frozen=True)
class Flat:
    """Perfectly nested loops as one: outermost first, the last one is pipelined. As what it was built is kept."""

    loops: tuple[Planned, ...]
    round: Round
    _built: dict[Hashable, Pipelined] = field(default_factory=dict, repr=False, compare=False)
    _timed: dict[Hashable, Pipelined] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def trips(self) -> int:
        return math.prod(loop.trips for loop in self.loops)


class Pipelined(Struct, frozen=True):
    """A pipelined loop as it is built.

    Attributes:
        limit: what its interval comes from: "target", "recurrence" (of an array or variable) or "ports" (of an array).
        units: operators by kind, with how many copies one round has of each.
        span: cycles over which these copies are spread, so that they share operators.
        registers: flip-flops that hold values between stages; muxes: LUTs that choose operands of shared operators.
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

    @property
    def cycles(self) -> int:
        """From the start of its first round to the end of its last."""
        return (self.flat.trips - 1) * self.ii + self.depth if self.flat.trips else 0

    def at(self, ii: int, depth: int) -> Pipelined:
        """The same loop at another interval and depth; what it puts comes as much later as it is deeper."""
        late = depth - self.depth
        events = tuple(replace(e, stage=max(0, e.stage + late)) if e.kind == "put" else e for e in self.events)
        return replace(self, ii=ii, depth=depth, limit="report", events=events, span=ii)

    def instances(self, kind: str) -> int:
        """Return the number of operators of a kind."""
        return next((math.ceil(n / self.span) for unit, n in self.units if unit.kind == kind), 0)


def flatten(loop: Planned, storages: Mapping[str, Storage], rounds: KnownRounds) -> Flat | None:
    """The nest as one loop; None when the tool does not flatten it.

    That is when there are several inner loops, blocks are moved in between, bounds of an inner loop depend on outer
    ones or leave it no rounds, or the innermost loop keeps an element of a memory in a register: it is then loaded
    before that loop and stored after it.
    """
    flat = rounds.once(loop, lambda: _flattened(loop, rounds))
    return None if flat is None or (len(flat.loops) > 1 and flat.round.promoted(storages)) else flat


def _flattened(loop: Planned, rounds: KnownRounds) -> Flat | None:
    loops, before, after = [loop], [], []
    while loops[-1].mode != "pipeline":
        body = loops[-1].body
        inner = [item for item in body if isinstance(item, Planned) and item.mode != "unroll"]
        if len(inner) != 1 or any(_is_loop_like(item) for item in body if item is not inner[0]):
            return None
        place = body.index(inner[0])
        before.append(body[:place])
        after.append(body[place + 1 :])
        if inner[0].varies or not inner[0].trips:
            return None
        loops.append(inner[0])
    if any(_is_loop_like(item) for item in loops[-1].body):
        return None
    return Flat(tuple(loops), rounds.of(loops[-1].variable, tuple(before), loops[-1].body, tuple(after)))


def _is_loop_like(item: Item) -> bool:
    """Return whether an item needs a loop of its own: blocks move between array and stream element by element."""
    if isinstance(item, Op):
        return item.block > 0
    if isinstance(item, Planned):
        return item.mode != "unroll" or any(_is_loop_like(inner) for inner in item.body)
    return any(_is_loop_like(inner) for side in item.sides for inner in side)  # type: ignore[arg-type]


def build(flat: Flat, storages: Mapping[str, Storage], *, fabric: bool = False) -> Pipelined:
    """Interval, depth and operators of a pipelined loop.

    Args:
        fabric: floating-point sums take the adder without DSPs in any case.
    """
    once = flat.round
    key = fabric, tuple([storages[array] for array in once.arrays])
    built = flat._built.get(key)
    if built is None:
        kept = {array: replace(storages[array], place="register") for array in once.promoted(storages)}
        own = {array: storages[array] for array in once.arrays} | kept
        built = flat._built[key] = _with_muxes(flat, _timed(flat, own, fabric), own)
    return built


def _timed(flat: Flat, storages: Mapping[str, Storage], fabric: bool) -> Pipelined:
    """The loop but for its multiplexers, which hangs on how fast its arrays are alone."""
    once = flat.round
    ports, registers = once.port_cycles(storages), once.registers(storages)
    # Loads matter if rounds may wait for each other at a memory.
    waits = any(array not in registers and ports.get(array, 1) > 1 for array in once.effects.carried)
    loads = once.port_cycles(storages, loads=True) if waits else {}
    key = fabric, registers, tuple(ports.values()), tuple(loads.values())
    if key not in flat._timed:
        flat._timed[key] = _build(flat, registers, ports, loads, fabric)
    return flat._timed[key]


def _with_muxes(flat: Flat, built: Pipelined, storages: Mapping[str, Storage]) -> Pipelined:
    once = flat.round
    return replace(built, muxes=muxes(once.device, storages, built.span, built.units, once.addresses))


def _build(
    flat: Flat, registers: frozenset[str], ports: Mapping[str, int], loads: Mapping[str, int], fabric: bool
) -> Pipelined:
    once = flat.round
    port_ii, port_array = max(((n, array) for array, n in ports.items()), default=(1, ""), key=lambda p: p[0])
    target = flat.loops[-1].target_ii
    least = max(port_ii, target)
    found = carried(flat.loops, once.effects, registers)
    fabric, (rec_ii, rec_array) = _adders(flat, found, registers, least, asked=fabric)
    again = partial(once.walk, registers, fabric=fabric, body_only=True)
    span_ii, span_array = memory_interval(found, ports, again)
    walk = once.walk(registers, {}, fabric=fabric)
    stream_ii = _stream_interval(walk.events)
    ii = max(least, rec_ii, stream_ii, span_ii)
    limit = "target"
    for candidate, name in (
        (stream_ii, "stream"),
        (rec_ii, f"recurrence of {rec_array}"),
        (span_ii, f"recurrence of {span_array}"),
        (port_ii, f"ports of {port_array}"),
    ):
        if candidate == ii and candidate > target:
            limit = name
    span = ii
    if span_ii == ii > least:  # operators keep up with the loads
        span = max(loads.values(), default=ii)
    units = once.units(fabric=fabric)
    depth = max(walk.finish + 1 + _waiting(units, span, max(port_ii, stream_ii)), port_ii + 2 if port_ii > 1 else 1)
    depth = max(depth, rec_ii, span_ii if span_ii == ii else 0)
    held = held_bits(ports, ii, span, once.staged, once.uses, walk.finish)
    return Pipelined(flat, ii, depth, limit, tuple(walk.events), units, span, held, 0)


def _adders(
    flat: Flat, found: list[Carried], registers: frozenset[str], least: int, *, asked: bool
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
            (chain_interval(some, once.device, partial(once.walk, registers, fabric=choice, body_only=inner)))
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
    shares = (math.ceil(copies / math.ceil(copies / ii)) for unit, copies in units if unit.latency)
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
