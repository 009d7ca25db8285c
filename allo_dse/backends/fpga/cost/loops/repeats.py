"""Long sequences of pipelined rounds as nested repetitions, without listing them.

Rows of an image that are all alike become one row that is repeated, and so do the pixels of a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from .events import Again, Part, Pipe, Wait

MOST_ROUNDS = 1 << 25
"""Rounds of one loop whose stream operations are compared."""
_PERIOD = 16  # symbols of the longest repetition that is looked for in a long sequence
_WORK = 1 << 22  # comparisons per step in a short one
_CODE_BITS = 60
IntArray: TypeAlias = NDArray[np.int64]
Ops: TypeAlias = tuple[tuple[int, str, int], ...]
"""Stage, kind and port."""


class Run(Struct, frozen=True):
    """Intervals, or runs of them, that are repeated; `of` has their numbers."""

    of: tuple[int, ...]
    count: int


def interval_parts(happens: Sequence[NDArray[np.bool_]], ops: Ops, interval: int, cycles: int) -> list[Part] | None:
    """Return the parts of a pipeline whose rounds differ in their stream operations; None if they are too irregular.

    Args:
        happens: per operation the rounds that do it: (rounds,).
        ops: in the order of a round; stages count from the round's begin.
        interval: cycles from round to round.
        cycles: of the whole pipeline.
    """
    late = [stage // interval for stage, *_ in ops]
    # Interval w has stage s of round w - s // interval; the last one ends with the pipeline.
    rounds = len(happens[0]) + max(late)
    codes, bits = np.zeros(rounds, np.int64), 0
    for own, delay in zip(happens, late, strict=True):
        if bits == _CODE_BITS:
            codes = np.unique(codes, return_inverse=True)[1].astype(np.int64)
            bits = int(codes.max()).bit_length()
        codes *= 2
        codes[delay : delay + len(own)] += own
        bits += 1
    _, first, numbers = np.unique(codes, return_index=True, return_inverse=True)
    contents = [_interval(happens, ops, late, interval, int(w)) for w in first]
    found = _compressed(numbers[:-1].astype(np.int64), len(contents))
    if found is None:
        return None
    runs, sequence = found
    last = contents[int(numbers[-1])]
    end = Pipe(1, 1, cycles - (rounds - 1) * interval, last) if last else Wait(cycles - (rounds - 1) * interval)
    return [*_parts(sequence, runs, contents, interval), end]


def _interval(happens: Sequence[NDArray[np.bool_]], ops: Ops, late: Sequence[int], interval: int, w: int) -> Ops:
    """Operations of one interval by phase, those of older rounds first."""
    own = [
        (stage % interval, -delay, number, kind, port)
        for number, ((stage, kind, port), delay) in enumerate(zip(ops, late, strict=True))
        if 0 <= w - delay < len(happens[number]) and happens[number][w - delay]
    ]
    return tuple((phase, kind, port) for phase, _, _, kind, port in sorted(own))


def _compressed(sequence: IntArray, symbols: int) -> tuple[dict[int, Run], list[int]] | None:
    """Replace repetitions by new symbols until few are left; None if many are."""
    runs: dict[tuple[tuple[int, ...], int], int] = {}
    while len(sequence) > 1:
        found = _best_period(sequence)
        if found is None:
            break
        period, starts, counts = found
        kept, written = np.ones(len(sequence), bool), sequence.copy()
        end = 0
        for start, count in zip(starts.tolist(), counts.tolist(), strict=True):
            if start < end:
                continue
            end = start + count * period
            run = tuple(sequence[start : start + period].tolist()), count
            kept[start + 1 : end] = False
            written[start] = runs.setdefault(run, symbols + len(runs))
        sequence = written[kept]
    if len(sequence) > _WORK >> 8:
        return None
    return {symbol: Run(of, count) for (of, count), symbol in runs.items()}, sequence.tolist()


def _best_period(sequence: IntArray) -> tuple[int, IntArray, IntArray] | None:
    """Return the period that leaves the fewest symbols, where it begins, and how often it is there; None if none is."""
    size = len(sequence)
    best, saved = None, 0
    for period in range(1, min(size // 2, max(_PERIOD, _WORK // size)) + 1):
        same = np.concatenate(([0], (sequence[period:] == sequence[:-period]).view(np.int8), [0]))
        edges = np.diff(same)
        starts = np.flatnonzero(edges == 1)
        lengths = np.flatnonzero(edges == -1) - starts
        starts, lengths = starts[lengths >= period], lengths[lengths >= period]
        counts = lengths // period + 1
        gain = int((counts * period).sum()) - len(counts)
        if gain > saved:
            best, saved = (period, starts, counts), gain
    return best


def _parts(sequence: Sequence[int], runs: dict[int, Run], contents: Sequence[Ops], interval: int) -> Iterator[Part]:
    for symbol in sequence:
        run = runs.get(symbol)
        if run is None:
            yield Pipe(1, 1, interval, contents[symbol]) if contents[symbol] else Wait(interval)
        elif len(run.of) == 1 and run.of[0] not in runs and not contents[run.of[0]]:
            yield Wait(run.count * interval)
        else:
            yield Again(run.count, tuple(_parts(run.of, runs, contents, interval)))
