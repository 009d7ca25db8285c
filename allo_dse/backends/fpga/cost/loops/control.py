"""Logic around the operators of a pipelined loop: counters, addresses, the state machine.

Figures per part are those of the tool's reports: an adder or a comparison takes a LUT per bit and a constant more, a
multiplexer a number of LUTs per input, and a state machine a flip-flop per state.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from allo_dse.compiler.ir.affine import Linear
from allo_dse.device.fpga_model import HlsRules, Resources

from ..memory import Accesses, Storage, addresses_of, split
from ..operators import adder_lut, compare_lut
from ..plan import Planned
from ..simplify import signed_digits

DELAYED = 5
"""Rounds at work at once, from which on shift registers keep a pipeline's end and its addresses."""


def bits_for(count: int) -> int:
    """Return the width of a counter up to `count`, in bits."""
    return max(1, count.bit_length())


def fsm(rules: HlsRules, states: int) -> Resources:
    """Return the state machine of a schedule, with one flip-flop per state and a multiplexer of the next state."""
    return Resources(ff=states, lut=round(rules.mux_lut_per_input * (states + 1)) if states > 1 else 0)


def loop_control(rules: HlsRules, loops: Iterable[Planned], ii: int, depth: int) -> Resources:
    """Return the control of a pipelined loop: counters and stages.

    Each flattened loop has a counter, as have the rounds of all, and those of the inner ones of three and more. Over an
    interval of several cycles all but the count of all rounds are kept.
    """
    trips = [loop.trips for loop in loops]
    counters = [bits_for(own) for own in trips]
    counters += [bits_for(math.prod(trips[-inner:])) for inner in range(2, len(trips) + 1)]
    kept = sum(counters[: 2 * len(trips) - 2]) if ii > 1 else 0
    stages = math.ceil(depth / ii)
    adders = sum(adder_lut(rules, bits) for bits in counters)
    adders += sum(compare_lut(rules, bits) for bits in counters[len(trips) - 1 :])
    selects = sum(counters[:-1]) if len(counters) > 1 else 0
    muxes = rules.mux_lut_per_input * 2 * (len(counters) + min(stages, 3) + 1)
    own = Resources(ff=sum(counters) + kept + 2 * stages + 2, lut=adders + selects + round(muxes)) + fsm(rules, ii)
    return own + Resources(ff=rules.delay_ff, lut=rules.delay_lut) if stages >= DELAYED else own


def counter_control(rules: HlsRules, trips: int) -> Resources:
    """Return the counter of a loop that is not pipelined."""
    bits = bits_for(trips)
    lut = adder_lut(rules, bits) + compare_lut(rules, bits) + 2 * rules.mux_lut_per_input
    return Resources(ff=2 * bits, lut=round(lut))


def address_logic(
    rules: HlsRules, accesses: Mapping[str, Accesses], storages: Mapping[str, Storage], stages: int = 2
) -> Resources:
    """Return the logic that computes addresses, and the registers that delay those of stores.

    Arrays of one shape share addresses. Copies of unrolled loops are in banks of their own where a dimension is split.

    Args:
        stages: rounds at work at once; an address waits for its store in a register of each but one.
    """
    found: dict[tuple[object, ...], set[tuple[int, ...]]] = {}
    lut = ff = 0
    shifted = stages >= DELAYED and rules.delay_ff > 0
    for name, group in accesses.items():
        storage = storages[name]
        if storage.in_registers:
            continue
        shape = storage.array.shape
        words = bits_for(math.prod(shape) - 1)
        for access, unrolled in group:
            parts = [split(form, unrolled) or (Linear(()), form) for form in access.index]
            moving = [part if cut is None else Linear(()) for (part, _), cut in zip(parts, storage.splits, strict=True)]
            fixed = tuple(form for _, form in parts)
            places = set(map(tuple, addresses_of(moving, unrolled).tolist()))
            known = found.setdefault((shape, fixed), set())
            moves = any(form is not None and form.variables for form in fixed)
            for place in places - known:  # without an adder, gates set the bits of a constant
                adders = adders_of(fixed, shape, place)
                lut += adders * adder_lut(rules, words) or words * (moves and any(place))
            kept = max(words, rules.delay_ff) if shifted else words * max(1, stages - 1)
            ff += kept * len(places) * access.write
            lut += rules.delay_lut * len(places) * access.write * shifted
            known |= places
    return Resources(ff=ff, lut=lut)


def adders_of(fixed: Sequence[Linear | None], shape: Sequence[int], place: Sequence[int]) -> int:
    """Return the adders of one address in row-major order; factors that are powers of two only shift.

    Args:
        fixed: the index without constants. place: constants of each dimension.
    """
    count, moving = 0, False
    for form, extent, offset in zip(fixed, shape, place, strict=True):
        factors = [factor for _, factor in form.terms] if form is not None else [1]
        terms = len(factors) + (len(form.derived) if form is not None else 0)
        own = offset != 0 and terms > 0
        if moving:
            power = extent & (extent - 1) == 0
            # Products by more than two digits step with the loop.
            count += 0 if power and terms <= 1 and not own else (signed_digits(extent) == 2) + (terms > 0)
        # What a row of 2^n elements begins with is joined to the place in it.
        joined = sum(factor > 1 and factor & (factor - 1) == 0 for factor in factors)
        count += max(0, terms - 1 - joined) + sum(signed_digits(factor) - 1 for factor in factors) + own
        moving |= terms > 0
    return count


def port_muxes(rules: HlsRules, users: Mapping[str, tuple[int, int, int]]) -> int:
    """Return the LUTs that choose which loop has the ports of a memory: an address and an enable each, or nothing.

    Args:
        users: by array how many loops, and pieces of code between them, use it, how many of these store to it, and the
            most ports that one uses.
    """
    inputs = sum(2 * ports * (n + 1) * (n > 1) + 2 * (stores + 1) * (stores > 1) for n, stores, ports in users.values())
    return round(rules.mux_lut_per_input * inputs)
