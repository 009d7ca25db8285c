"""Operation tables: the operations of a table process, as data."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError

from ..run_time.records import MAX_NESTING, Code


class Table:
    """The operations of a table process, in order; `repeat` nests.

    Ports are positions in the `streams` and `resources` that a process binds, so processes that do the same share one
    table. Operations with `mark=True` write the clock after them into the process's log, if it has one.
    """

    def __init__(self) -> None:
        self.words = array("q")
        self.stream_ports = 0
        self.resource_ports = 0
        self._nesting = 0

    def __len__(self) -> int:
        """Number of rows."""
        return len(self.words) // 4

    def get(self, port: int, *, mark: bool = False) -> None:
        """Take a token from a stream; waits for one."""
        self.stream_ports = max(self.stream_ports, port + 1)
        self.words.extend((Code.GET, port, 0, mark))

    def put(self, port: int, *, mark: bool = False) -> None:
        """Put a token into a stream; waits for room."""
        self.stream_ports = max(self.stream_ports, port + 1)
        self.words.extend((Code.PUT, port, 0, mark))

    def wait(self, cycles: int, *, mark: bool = False) -> None:
        """Advance the clock by `cycles` >= 0."""
        self.words.extend((Code.WAIT, 0, _cycles(cycles), mark))

    def advance(self, cycles: int) -> None:
        """`wait`, unless for 0 cycles."""
        if cycles:
            self.wait(cycles)

    def request(self, port: int, cycles: int, *, mark: bool = False) -> None:
        """Use a resource for `cycles` >= 0, after all earlier requests; the clock is then at the end of the use."""
        self.resource_ports = max(self.resource_ports, port + 1)
        self.words.extend((Code.REQUEST, port, _cycles(cycles), mark))

    def add(self, rows: NDArray[np.int64]) -> None:
        """Add many operations at once, a row each: `Code`, port, cycles and mark: (operations, 4)."""
        code, port, cycles, _ = rows.T
        stream, resource = (code == Code.GET) | (code == Code.PUT), code == Code.REQUEST
        self.stream_ports = max(self.stream_ports, 1 + int(port[stream].max(initial=-1)))
        self.resource_ports = max(self.resource_ports, 1 + int(port[resource].max(initial=-1)))
        _cycles(int(cycles.min(initial=0)))
        self.words.frombytes(np.ascontiguousarray(rows, np.int64).tobytes())

    @contextmanager
    def repeat(self, count: int) -> Iterator[None]:
        """Repeat the operations added inside `count` >= 0 times."""
        start = len(self)
        if self._nesting == MAX_NESTING:
            raise SimulationError(f"an operation table nests repeats more than {MAX_NESTING} deep")
        self._nesting += 1
        yield
        self._nesting -= 1
        if count == 0:
            del self.words[4 * start :]
        elif count > 1 and len(self) > start:
            self.words.extend((Code.REPEAT, self._nesting, count, len(self) - start))

    @contextmanager
    def writing(self, banks: int, filled: int) -> Iterator[None]:
        """Fill a bank of an array channel inside the block; waits for a bank that no task reads any more."""
        self.put(banks)
        yield
        self.put(filled)

    @contextmanager
    def reading(self, banks: int, filled: int) -> Iterator[None]:
        """Read a bank of an array channel inside the block; waits for one that has been filled."""
        self.get(filled)
        yield
        self.get(banks)

    @contextmanager
    def pipeline(self, count: int, *, ii: int, depth: int) -> Iterator[Pipeline]:
        """Do what is added to the pipeline `count` >= 0 times, a round every `ii` >= 1 cycles, each taking `depth`.

        Operations are due, and are done, as docs/timing.md says (T6, T7).
        """
        pipeline = Pipeline(self)
        yield pipeline
        if ii < 1 or not all(0 <= stage <= depth for stage, *_ in pipeline.ops):
            raise SimulationError(
                f"a pipeline of depth {depth} needs an interval of 1 or more and stages from 0 to {depth}"
            )
        _write_pipeline(self, pipeline.ops, count, ii, depth)


class Pipeline:
    """The operations of one round of a pipelined loop."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self.ops: list[tuple[int, str, int]] = []
        """Stage, kind and port."""

    def get(self, port: int, *, stage: int = 0) -> None:
        """Take a token `stage` cycles after the round begins."""
        self.ops.append((stage, "get", port))

    def put(self, port: int, *, stage: int = 0) -> None:
        """Put a token `stage` cycles after the round begins."""
        self.ops.append((stage, "put", port))


def _write_pipeline(table: Table, ops: Sequence[tuple[int, str, int]], count: int, ii: int, depth: int) -> None:
    """Operations of all rounds by due time: while the pipeline fills, one full interval repeated, and the rest.

    Interval w, the `ii` cycles from w * ii on, holds stage s of round w - s // ii.
    """
    # In intervals `overlap` to count - 1 every stage has an iteration, so all of them do the same. They are one
    # repeated section, and the table does not grow with the iterations.
    overlap = max((stage // ii for stage, *_ in ops), default=0)
    by_interval: dict[int, list[tuple[int, int]]] = {}  # (phase, number), by the intervals after the round's begin
    for number, (stage, *_) in enumerate(ops):
        by_interval.setdefault(stage // ii, []).append((stage % ii, number))
    clock = 0
    for w in range(min(overlap, count)):
        clock = _write_interval(table, ops, by_interval, w, count, ii, clock)
    if count > overlap + 1:
        table.advance(overlap * ii - clock)
        with table.repeat(count - overlap - 1):
            clock = _write_interval(table, ops, by_interval, overlap, count, ii, overlap * ii)
            table.advance((overlap + 1) * ii - clock)
        clock = (count - 1) * ii
    for w in range(max(count - 1, min(overlap, count)), count + overlap):
        clock = _write_interval(table, ops, by_interval, w, count, ii, clock)
    if count:
        table.advance((count - 1) * ii + depth - clock)


def _write_interval(
    table: Table,
    ops: Sequence[tuple[int, str, int]],
    by_interval: Mapping[int, Sequence[tuple[int, int]]],
    interval: int,
    count: int,
    ii: int,
    clock: int,
) -> int:
    """The operations of one interval by due time, older rounds first; returns the clock after them, without stalls."""
    due = [
        (phase, interval - late, number)
        for late, entries in by_interval.items()
        if 0 <= interval - late < count
        for phase, number in entries
    ]
    for phase, _, number in sorted(due):
        table.advance(interval * ii + phase - clock)
        clock = interval * ii + phase
        getattr(table, ops[number][1])(ops[number][2])
    return clock


def _cycles(cycles: int) -> int:
    if cycles < 0:
        raise SimulationError(f"an operation cannot take {cycles} cycles")
    return cycles
