"""Exact count of the rounds of a pipelined loop in which its stream operations happen."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StaticControlError
from allo_dse.common.records import Frozen
from allo_dse.compiler.ir.affine import everywhere, forms_of
from allo_dse.compiler.program.compiled import TaskClass
from allo_dse.eval.execute.observed_control import DataTest, Observed

from ..plan import place_of, refusal
from .events import Again, Guard, Part, Pipe, StreamEvent, Wait

if TYPE_CHECKING:
    from .pipeline import Pipelined

MOST_OPERATIONS = 1 << 18
"""Stream operations of one repetition that are told apart."""


class Rounds(Frozen):
    """Finds the rounds of a pipelined loop.

    Attributes:
        variables: values of what is outside it: process ids and the loops around it.
        observed: what control that depends on data did in a run.
    """

    task_class: TaskClass
    variables: Mapping[int, int]
    observed: Observed | None = None

    def parts(self, loop: Pipelined) -> list[Part]:
        """The loop as repetitions of the shortest part in which the same stream operations return.

        Raises:
            StaticControlError: where a stream operation depends on data, or too many have to be told apart.
        """
        flat = loop.flat
        if not loop.events or not flat.trips:
            return [Wait(loop.cycles)]
        deepest = max(event.level for event in loop.events)
        first = self._repeats_from(loop, deepest)
        inner = math.prod(level.trips for level in flat.loops[deepest + 1 :])
        levels = flat.loops[first : deepest + 1]
        spans = [level.trips for level in levels]
        rounds = math.prod(spans)
        outer = math.prod(level.trips for level in flat.loops[:first])
        if outer * rounds > MOST_ROUNDS and rounds * len(loop.events) > MOST_OPERATIONS:
            raise self._irregular(loop, outer * rounds)
        position = np.indices(spans, sparse=True)
        grid: dict[int, Any] = dict(self.variables)
        grid.update((lv.variable, lv.first + at * lv.step) for lv, at in zip(levels, position, strict=True))
        places = {(event.level, event.after) for event in loop.events}
        reached = {place: self._reached(*place, position, spans, first) for place in places}
        happens = [
            own.ravel() for own in self._happens(loop.events, grid, [reached[e.level, e.after] for e in loop.events])
        ]
        last = (inner - 1) * loop.ii
        late = {(level, after): last if after or level == len(flat.loops) - 1 else 0 for level, after in places}
        done = [(late[event.level, event.after] + event.stage, event.kind, event.stream) for event in loop.events]
        length = rounds * inner
        cycles = (outer * length - 1) * loop.ii + loop.depth
        if not any(own.any() for own in happens):
            return [Wait(cycles)]
        if rounds * len(loop.events) > MOST_OPERATIONS:
            every = [np.tile(own, outer) for own in happens]
            parts = interval_parts(every, tuple(done), inner * loop.ii, cycles)
            if parts is None:
                raise self._irregular(loop, outer * rounds)
            return parts
        starts = range(0, rounds * inner * loop.ii, inner * loop.ii)
        ops = tuple(
            (start + stage, kind, stream)
            for start, round_ in zip(starts, np.array(happens).T.tolist(), strict=True)
            for stage, kind, stream in itertools.compress(done, round_)
        )
        return [Pipe(outer, length * loop.ii, (length - 1) * loop.ii + loop.depth, ops)]

    def _irregular(self, loop: Pipelined, rounds: int) -> StaticControlError:
        return refusal(
            f"its condition tells {rounds:,} rounds apart, more than can be compared",
            place_of(self.task_class, op=loop.events[0].op),
            hint="make the condition depend on inner loops only, or split the loop where it changes",
        )

    def _repeats_from(self, loop: Pipelined, deepest: int) -> int:
        """The outermost level whose rounds differ in their stream operations."""
        first = deepest + 1
        # Thousands of copies of an operation have one place and one tuple of conditions.
        alike = {(event.level, id(event.tests)): event for event in reversed(loop.events)}
        for event in reversed(alike.values()):
            first = min(first, event.level + 1)
            for test, _ in event.tests:
                if isinstance(test, DataTest) and self.observed is None:
                    raise refusal(
                        "whether this stream operation happens depends on data", place_of(self.task_class, op=event.op)
                    )
                if isinstance(test, DataTest):
                    first = 0
                    continue
                used = {variable for form in forms_of(test) for variable in form.variables}
                levels = [n for n, at in enumerate(loop.flat.loops) if at.variable in used]
                first = min([first, *levels])
        return first

    def _reached(
        self, level: int, after: bool, position: Sequence[NDArray[np.int64]], spans: list[int], first: int
    ) -> NDArray[np.bool_]:
        """The rounds that come to a place: in the body of a level, before or after the levels within."""
        found = np.ones(spans, bool)
        for inner in range(max(0, level + 1 - first), len(spans)):
            found &= position[inner] == (spans[inner] - 1 if after else 0)
        return found

    def _happens(
        self, events: Sequence[StreamEvent], grid: Mapping[int, Any], reached: list[NDArray[np.bool_]]
    ) -> list[NDArray[np.bool_]]:
        """The rounds in which stream operations are done, by the conditions around them from outside in."""
        for depth in range(max(len(event.tests) for event in events)):
            inside = [n for n, event in enumerate(events) if len(event.tests) > depth]
            answers = self._answers([(events[n].tests[depth], reached[n]) for n in inside])
            for n in inside:
                test, side = events[n].tests[depth]
                known = {**grid, **dict(events[n].copies)}
                holds_there = answers[test] if isinstance(test, DataTest) else everywhere(test, known)
                reached[n] = reached[n] & (np.asarray(holds_there) == side)
        return reached

    def _answers(self, guards: list[tuple[Guard, NDArray[np.bool_]]]) -> dict[DataTest, NDArray[np.bool_]]:
        """Return the rounds in which data-dependent conditions held. A round decides all copies that it reaches, in
        order.
        """
        sites: dict[int, dict[DataTest, NDArray[np.bool_]]] = {}
        for (test, _), reached in guards:
            if isinstance(test, DataTest):
                sites.setdefault(test.site, {})[test] = reached
        found: dict[DataTest, NDArray[np.bool_]] = {}
        for site, copies in sites.items():
            assert self.observed is not None
            ordered = sorted(copies, key=lambda asked: [value for _, value in asked.copies])
            table = np.stack([copies[asked] for asked in ordered], axis=-1)
            table[table] = self.observed.holds(site, int(table.sum()))
            found.update((asked, table[..., column]) for column, asked in enumerate(ordered))
        return found


# Repetitions: rows of an image that are all alike become one row that is repeated, and so do the pixels of a row.

MOST_ROUNDS = 1 << 25
"""Rounds of one loop whose stream operations are compared."""
_PERIOD = 16  # symbols of the longest repetition that is looked for in a long sequence
_WORK = 1 << 22  # comparisons per step in a short one
_CODE_BITS = 60
IntArray: TypeAlias = NDArray[np.int64]
Ops: TypeAlias = tuple[tuple[int, str, int], ...]
"""Stage, kind and port."""


Run: TypeAlias = tuple[tuple[int, ...], int]
"""Numbers of intervals, or of runs of them, and how often they are repeated."""


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
    runs: dict[Run, int] = {}
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
    return {symbol: run for run, symbol in runs.items()}, sequence.tolist()


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
        of, count = runs.get(symbol, ((), 0))
        if not of:
            yield Pipe(1, 1, interval, contents[symbol]) if contents[symbol] else Wait(interval)
        elif len(of) == 1 and of[0] not in runs and not contents[of[0]]:
            yield Wait(count * interval)
        else:
            yield Again(count, tuple(_parts(of, runs, contents, interval)))
