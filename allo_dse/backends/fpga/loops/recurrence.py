"""Values that rounds of a pipelined loop hand on to later ones, and the interval that this allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import product

import numpy as np
from msgspec import Struct

from allo_dse.device.device import FpgaDevice
from allo_dse.ir.linear import Linear

from ..memory import addresses_of, split
from ..plan import Planned
from .asap import Walk
from .effects import Effects, Element, Index, Use
from .sums import Time

_FAR = 1 << 20  # a cycle that nothing else reaches, to see what depends on a carried value


class Carried(Struct, frozen=True):
    """An array, or a variable, that a round reads and an earlier one wrote.

    Attributes:
        distance: rounds from the store to the load.
        in_register: whether the value stays in a register from round to round.
        loads: the indices of loads that find what an earlier round has left. lost: of stores that no such load finds.
    """

    array: str
    distance: int
    in_register: bool
    loads: tuple[Index, ...]
    lost: Set[Index]


def carried(loops: tuple[Planned, ...], effects: Effects, registers: Collection[str]) -> list[Carried]:
    """Return the values that rounds of flattened loops, with these effects, hand on; the last loop is pipelined.

    Args:
        registers: arrays that are in registers.
    """
    found = []
    for array in effects.carried:
        uses = [(op, unrolled) for op, unrolled in effects.uses if op.access and op.access.array == array]
        stores, loads = ([use for use in uses if use[0].name == name] for name in ("store", "load"))
        pairs = [(s, ld, d) for s, ld in product(stores, loads) if (d := _between(s, ld, loops)) is not None]
        if pairs:
            nearest = min(d for _, _, d in pairs)
            lost = frozenset(_indices(stores)) - frozenset(_indices(store for store, _, _ in pairs))
            loaded = _indices(load for _, load, _ in pairs)
            found.append(Carried(array, nearest, array in registers, loaded, lost))
    return found


def _indices(uses: Iterable[Use]) -> tuple[Index, ...]:
    return tuple(dict.fromkeys(op.access.index for op, _ in uses if op.access))


def chain_interval(
    found: Sequence[Carried], device: FpgaDevice, walk: Callable[[Mapping[Element, Time]], Walk]
) -> tuple[int, str]:
    """The interval that operations between carried values and their successors allow, and whose value it is.

    Args:
        walk: goes over a round in which some elements have their values at a given time.
    """
    known = {one.array: one for one in found}
    lengths: dict[tuple[str, str], int] = {}
    for one in found:
        done = walk({(one.array, index): (_FAR, 0.0) for index in one.loads})
        for key, (cycle, ns) in done.stored.items():
            other = known.get(key[0])
            if other is None or cycle < _FAR or key[1] in other.lost:
                continue
            if other.in_register:
                # The output of an operator's last register is forwarded in that cycle; other logic ends in a register.
                length = cycle - _FAR + (ns > 0 and key not in done.clocked)
            else:  # written to memory and read again
                late = ns + device.arrays.write_ns > device.clock.usable_ns
                length = cycle - _FAR + late + 2
            way = one.array, other.array
            lengths[way] = max(lengths.get(way, 0), length)
    worst, name = 1, ""
    for one in found:
        interval = math.ceil(lengths.get((one.array, one.array), 1) / one.distance)
        if interval > worst:
            worst, name = interval, one.array
    across = _around(lengths, {one.array: one.distance for one in found}, worst)
    return across or (worst, name)


def _around(lengths: Mapping[tuple[str, str], int], rounds: Mapping[str, int], least: int) -> tuple[int, str] | None:
    """The interval that cycles over several arrays need, and one of these arrays; None where `least` is enough.

    Args:
        lengths: from a value of the first array to the value of the second that it makes. rounds: until that is used.
    """
    across = {way for way in lengths if way[0] != way[1]}
    arrays: Set[str] = set(rounds)
    while arrays != (kept := {a for a, _ in across} & {b for _, b in across}):
        arrays, across = kept, {(a, b) for a, b in across if a in kept and b in kept}
    found, interval = None, least
    while late := _too_long(lengths, rounds, arrays, interval):
        found, interval = late, interval + 1
    return (interval, found) if found else None


def _too_long(
    lengths: Mapping[tuple[str, str], int], rounds: Mapping[str, int], arrays: Set[str], interval: int
) -> str | None:
    """An array on a cycle that takes longer than its rounds begin after each other."""
    behind = {(a, b): lengths[a, b] - interval * rounds[b] for a, b in product(arrays, arrays) if (a, b) in lengths}
    for middle, first, last in product(arrays, repeat=3):
        if (first, middle) in behind and (middle, last) in behind:
            way = behind[first, middle] + behind[middle, last]
            behind[first, last] = max(behind.get((first, last), way), way)
    return next((array for array in sorted(arrays) if behind.get((array, array), 0) > 0), None)


def memory_interval(
    found: Iterable[Carried], ports: Mapping[str, int], walk: Callable[[Mapping[Element, Time]], Walk]
) -> tuple[int, str]:
    """The interval at which rounds do not overlap on a memory that hands values on and takes several cycles of ports.

    Args:
        ports: cycles that the accesses of a round to each array take.
    """
    worst, name = 1, ""
    for one in found:
        if one.in_register or ports.get(one.array, 1) <= 1:
            continue
        last = max((time[0] + 1 for key, time in walk({}).stored.items() if key[0] == one.array), default=0)
        interval = math.ceil((ports[one.array] + last) / one.distance)
        if interval > worst:
            worst, name = interval, one.array
    return worst, name


def _between(store: Use, load: Use, loops: tuple[Planned, ...]) -> int | None:
    """Rounds from a store to the next load of the same element; None when there is none."""
    stride, strides = 1, {}
    for loop in reversed(loops):
        strides[loop.variable] = stride
        stride *= loop.trips
    steps = {loop.variable: loop.step for loop in loops}
    apart: dict[int, set[int]] = {}  # rounds of each loop
    used: set[int] = set()
    nearest = False
    for fixed, offsets in _dimensions(store, load):
        moving = [v for v, _ in fixed.terms if v in strides] if fixed else []
        used.update(moving)
        if fixed is None or fixed.derived or (len(moving) > 1 and offsets != {0}):
            nearest = True
        elif len(moving) == 1:
            step = fixed.factor(moving[0]) * steps[moving[0]]
            reached = {offset // step for offset in offsets if offset % step == 0}
            apart[moving[0]] = apart.get(moving[0], reached) & reached
        elif 0 not in offsets:
            return None
    if nearest:
        return 1
    distances = {0, *(strides[v] for v in strides if v not in used)}
    for variable, rounds in apart.items():
        distances = {d + n * strides[variable] for d in distances for n in rounds}
    return min((d for d in distances if d > 0), default=None)


def _dimensions(store: Use, load: Use) -> Iterator[tuple[Linear | None, set[int]]]:
    """Per dimension what two indices have in common in all copies, and by how much the first may then be more than the
    second; None where that is not known."""
    (one, mine), (other, theirs) = store, load
    assert one.access is not None
    assert other.access is not None
    for a, b in zip(one.access.index, other.access.index, strict=True):
        first, second = split(a, mine), split(b, theirs)
        if first is None or second is None or first[1] != second[1]:
            yield None, set()
        else:
            places = (addresses_of([part[0]], unrolled) for part, unrolled in ((first, mine), (second, theirs)))
            yield first[1], set(np.unique(np.subtract.outer(*places)).tolist())
