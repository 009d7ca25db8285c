"""The rules of one FIFO (docs/timing.md, T1 to T4), to the cycle and to the token, whoever is executed first."""

from __future__ import annotations

import pytest

from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import NetworkBuilder
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_build import Get, Loop, Put


def run(puts: list[int], gets: list[int], depth: int, *, reader_first: bool = False) -> RunResult:
    """A writer and a reader that are ready for their operations at these cycles, without stalls; latency 1."""
    builder = NetworkBuilder()
    stream = builder.stream(depth, latency=1)
    tables = []
    for kind, times in (("put", puts), ("get", gets)):
        table, clock = Table(), 0
        for time in times:
            table.advance(time - clock)
            clock = time
            getattr(table, kind)(0, mark=True)
        tables.append(table)
    for table in reversed(tables) if reader_first else tables:
        builder.process(table, [stream], log=len(puts))
    return table_engine().run(builder.build())


def times(result: RunResult, reader_first: bool) -> list[list[int]]:
    logs = [result.process_log(i).tolist() for i in range(2)]
    return logs[::-1] if reader_first else logs


@pytest.mark.parametrize("depth", [1, 2, 3, 4, 8])
def test_a_fifo_holds_its_depth_and_not_one_more(depth: int) -> None:
    result = run(list(range(depth + 1)), [], depth)
    assert not result.finished
    assert result.puts.tolist() == [depth]
    assert result.occupancy.tolist() == [depth]
    assert run(list(range(depth)), [], depth).finished


@pytest.mark.parametrize("reader_first", [False, True])
@pytest.mark.parametrize(
    ("puts", "gets", "depth", "done", "held"),
    [
        # One token at a time: it is in the FIFO up to the cycle of its get, and that is its only token.
        ([0, 3, 6, 9], [1, 4, 7, 10], 8, [[0, 3, 6, 9], [1, 4, 7, 10]], 1),
        # A token is put in the cycle in which another is taken: both are there in that cycle.
        ([0, 1, 2, 3], [1, 2, 3, 4], 8, [[0, 1, 2, 3], [1, 2, 3, 4]], 2),
        # With one slot the next token enters a cycle after the last was taken (T3), and is read a cycle later (T2).
        ([0, 1, 2, 3], [1, 2, 3, 4], 1, [[0, 2, 4, 6], [1, 3, 5, 7]], 1),
        # A burst before the first get.
        ([0, 1, 2, 9], [5, 6, 7, 10], 8, [[0, 1, 2, 9], [5, 6, 7, 10]], 3),
        ([0, 1, 2, 3], [5, 6, 7, 8], 2, [[0, 1, 6, 7], [5, 6, 7, 8]], 2),
        # The third put is executed after the get that takes place in its cycle, since the writer runs ahead by two.
        ([0, 9, 10], [1, 10, 11], 2, [[0, 9, 10], [1, 10, 11]], 2),
    ],
)
def test_occupancy_counts_tokens_in_time(
    puts: list[int], gets: list[int], depth: int, done: list[list[int]], held: int, reader_first: bool
) -> None:
    result = run(puts, gets, depth, reader_first=reader_first)
    assert result.finished
    assert times(result, reader_first) == done
    assert result.occupancy.tolist() == [held]


@pytest.mark.parametrize(("interval", "held"), [(1, 2), (2, 1), (3, 1)])
def test_occupancy_of_replays_counts_the_same_tokens(interval: int, held: int) -> None:
    loop = Loop(10, interval, 1, [Put("s")]), Loop(10, interval, 1, [Get("s")])
    result = Trace.build({"s": 2}, {"w": [loop[0]], "r": [loop[1]]}).replay()
    assert result.times.get.tolist() == [1 + interval * k for k in range(10)]
    assert result.occupancy.tolist() == [held]
