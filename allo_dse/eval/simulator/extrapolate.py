"""Exact times of long regular networks: a few rounds are simulated, the rest is arithmetic.

The times of a network whose table processes each repeat one section are maxima of sums of earlier times (max-plus
linear), with the same coefficients in every round, and shared resources serve in order of these times. So once the
times of all operations over a window of rounds equal those of a window p rounds before, later by the same amount,
everything repeats with period p as long as the repetition lasts.

What happens when it ends is seen by simulating two short networks that differ by one period: if their beginnings are
equal and their ends are shifted by that amount, so is the end of the long one. Networks for which this does not hold
are simulated in full.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from ...ir.layout import Code, Op
from .engine import Engine, table_engine
from .network import IntArray, Network, Processes
from .result import RunResult

FIRST_ROUNDS = 24
SMALLEST_GAIN = 4
"""Networks are simulated in full unless that saves this factor of rounds."""
MAX_PERIOD = 64


@dataclass(frozen=True)
class Times:
    """What a run of a network shows, as in `RunResult`.

    Attributes:
        rounds: of the repetition; simulated: how many of them were executed to know.
        period: rounds after which times repeat, 0 if they were all executed.
    """

    cycles: int
    finished: bool
    node_end: IntArray
    stall_get: IntArray
    stall_put: IntArray
    stall_request: IntArray
    puts: IntArray
    gets: IntArray
    occupancy: IntArray
    resource_busy: IntArray
    resource_requests: IntArray
    rounds: int
    simulated: int
    period: int


_SUMS = ("node_end", "stall_get", "stall_put", "stall_request", "puts", "gets", "resource_busy", "resource_requests")


def run_extrapolated(network: Network, engine: Engine | None = None) -> Times:
    """Times of a network, by extrapolation where its processes come to repeat themselves, else from a full run."""
    engine = engine or table_engine()
    loops = find_loops(network)
    if loops is not None:
        found = _Search(network, engine, loops).run()
        if found is not None:
            return found
    result = engine.run(network)
    rounds = loops.rounds if loops is not None else 0
    sums = {name: getattr(result, name).copy() for name in _SUMS}
    return Times(
        result.cycles, result.finished, occupancy=result.occupancy, rounds=rounds, simulated=rounds, period=0, **sums
    )


@dataclass(frozen=True)
class Loops:
    """The repeated section of each table process.

    Attributes:
        rounds: how often all of them repeat together.
        row: per process, the row that ends its section. per_round: repetitions of the section in a round.
        spare: repetitions beyond `rounds * per_round`.
        before, inside, after: operations before the section, in one repetition of it, and after it.
        lag: rounds after which a round cannot matter any more, by the depths of the streams.
    """

    rounds: int
    row: IntArray
    per_round: IntArray
    spare: IntArray
    before: IntArray
    inside: IntArray
    after: IntArray
    lag: int


def find_loops(network: Network) -> Loops | None:
    """The repetition of a network of table processes; None if it is not regular enough."""
    if not network.groups or not all(isinstance(g, Processes) for g in network.groups):
        return None
    if network.node_count != network.task_count or not network.rows.size:
        return None
    rows = network.rows.reshape(-1, Op.SIZE)
    tables = {first: _section(rows, first) for first in np.unique(network.first_row).tolist()}
    if any(section is None for section in tables.values()):
        return None
    columns = np.array([tables[first] for first in network.first_row.tolist()], np.int64).T
    row, count, before, inside, after = columns
    base = int(count.min())
    per_round = np.rint(count / base).astype(np.int64)
    spare = count - base * per_round
    if base < SMALLEST_GAIN * FIRST_ROUNDS or (np.abs(spare) > base // SMALLEST_GAIN).any():
        return None
    low = int(np.min(spare // per_round, initial=0))
    return Loops(base + low, row, per_round, spare - low * per_round, before, inside, after, _lag(network))


def _section(rows: IntArray, first: int) -> tuple[int, int, int, int, int] | None:
    """Of a table: the end of its longest outermost repeat, the count, and operations before, inside and after it."""
    last = first
    while rows[last, Op.CODE] != Code.HALT:
        last += 1
    times = np.ones(last - first, np.int64)
    outermost = []
    for row in range(last - 1, first - 1, -1):
        if rows[row, Op.CODE] == Code.REPEAT:
            if times[row - first] == 1:
                outermost.append(row)
            times[row - int(rows[row, Op.MARK]) - first : row - first] *= rows[row, Op.VALUE]
    if not outermost:
        return None
    times[rows[first:last, Op.CODE] == Code.REPEAT] = 0
    row = max(outermost, key=lambda r: int(rows[r, Op.VALUE]))
    begin, count = row - int(rows[row, Op.MARK]), int(rows[row, Op.VALUE])
    inside = int(times[begin - first : row - first].sum()) // count
    return row, count, int(times[: begin - first].sum()), inside, int(times[row - first :].sum())


def _lag(network: Network) -> int:
    """A stream of depth d that carries a token a round lets a round depend on the d before it."""
    return int(max(network.depth.max(initial=1), network.initial.max(initial=0))) + 1


@dataclass(frozen=True)
class _Run:
    """A run of the network with fewer rounds, and the clocks of all operations of all processes."""

    result: RunResult
    rounds: int
    loops: Loops

    @cached_property
    def logs(self) -> list[IntArray]:
        return [self.result.process_log(i) for i in range(len(self.loops.row))]

    def rounds_of(self, process: int, first: int, last: int) -> IntArray:
        """Clocks of a process in some rounds."""
        loops = self.loops
        size = int(loops.inside[process] * loops.per_round[process])
        start = int(loops.before[process])
        return self.logs[process][start + first * size : start + last * size]


@dataclass(frozen=True)
class _Search:
    network: Network
    engine: Engine
    loops: Loops

    def run(self) -> Times | None:
        rounds, all_rounds = FIRST_ROUNDS + 4 * self.loops.lag, self.loops.rounds
        while SMALLEST_GAIN * rounds <= all_rounds:
            run = self._run(rounds)
            if not run.result.finished:
                return None
            found = self._period(run)
            if found is not None:
                times = self._extrapolated(*found, run)
                if times is not None:
                    return times
            rounds *= 2
        return None

    def _run(self, rounds: int) -> _Run:
        """Run the network with fewer rounds, every operation marked."""
        loops = self.loops
        rows = self.network.rows.reshape(-1, Op.SIZE).copy()
        rows[rows[:, Op.CODE] != Code.REPEAT, Op.MARK] = 1
        count = rounds * loops.per_round + loops.spare
        rows[loops.row, Op.VALUE] = count
        size = loops.before + count * loops.inside + loops.after
        groups, first = [], 0
        for group in self.network.groups:
            assert isinstance(group, Processes)
            end = first + len(group.first_row)
            groups.append(replace(group, log_limit=size[first:end]))
            first = end
        return _Run(self.engine.run(replace(self.network, rows=rows.ravel(), groups=tuple(groups))), rounds, loops)

    def _period(self, run: _Run) -> tuple[int, int] | None:
        """Rounds after which the times repeat, and cycles by which they are later then."""
        window = self._window(run)
        end = run.rounds - window
        for period in range(1, min(MAX_PERIOD, end - window) + 1):
            shift = _shift(run, period, end - window, end)
            if shift is not None:
                return period, shift
        return None

    def _window(self, run: _Run) -> int:
        """Rounds that hold the state: those that streams remember and, with shared resources, that overlap in time."""
        if not self.network.resources:
            return self.loops.lag
        middle = run.rounds // 2
        clocks = [run.rounds_of(i, middle, middle + 1) for i in range(len(run.logs)) if self.loops.inside[i]]
        low, high = min(int(c[0]) for c in clocks), max(int(c[-1]) for c in clocks)
        spread = 0
        for process in range(len(run.logs)):
            size = int(self.loops.inside[process] * self.loops.per_round[process])
            if size:
                at = np.searchsorted(run.rounds_of(process, 0, run.rounds), [low, high])
                spread = max(spread, int(np.abs(at // size - middle).max()) + 1)
        return self.loops.lag + spread

    def _extrapolated(self, period: int, shift: int, run: _Run) -> Times | None:
        rounds = run.rounds + (self.loops.rounds - run.rounds) % period
        short = run if rounds == run.rounds else self._run(rounds)
        long = self._run(rounds + period)
        if not (short.result.finished and long.result.finished and self._agree(short, long, shift)):
            return None
        factor = (self.loops.rounds - rounds) // period
        a, b = short.result, long.result
        if (a.occupancy != b.occupancy).any():
            return None
        sums = {name: getattr(a, name) + factor * (getattr(b, name) - getattr(a, name)) for name in _SUMS}
        cycles = int(sums["node_end"].max(initial=0))
        return Times(
            cycles,
            True,
            occupancy=a.occupancy,
            rounds=self.loops.rounds,
            simulated=long.rounds,
            period=period,
            **sums,
        )

    def _agree(self, short: _Run, long: _Run, shift: int) -> bool:
        """Whether both begin alike, and the long one ends like the short one, only later."""
        window = self._window(short)
        common = short.rounds - window
        loops = self.loops
        for process, (a, b) in enumerate(zip(short.logs, long.logs, strict=True)):
            size = int(loops.inside[process] * loops.per_round[process])
            alike = int(loops.before[process]) + common * size
            tail = len(a) - int(loops.before[process]) - (common - window) * size
            if (a[:alike] != b[:alike]).any() or (a[len(a) - tail :] + shift != b[len(b) - tail :]).any():
                return False
        return True


def _shift(run: _Run, period: int, first: int, last: int) -> int | None:
    """By how much all operations of some rounds are later than those `period` rounds before, if by the same."""
    shift = None
    for process in range(len(run.logs)):
        late = run.rounds_of(process, first, last) - run.rounds_of(process, first - period, last - period)
        if not late.size:
            continue
        if shift is None:
            shift = int(late[0])
        if (late != shift).any():
            return None
    return shift
