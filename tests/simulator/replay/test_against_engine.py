"""Replay and the run engine agree: the same network as a trace and as operation tables."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.frames import repeated
from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table
from allo_dse.simulator.replay.trace_build import Get, Loop

from .support import multirate, regular, trace_of


def tables(processes: dict[str, list[Loop]], depths: dict[str, int]) -> Network:
    """Tables do their operations in program order, so every operation must be due within its own iteration."""
    builder = NetworkBuilder()
    numbers = {name: builder.stream(depth) for name, depth in depths.items()}
    for loops in processes.values():
        table = Table()
        for number, loop in enumerate(loops):
            with table.repeat(loop.trip):
                clock = 0
                for op in loop.ops:
                    table.wait((op.stage or 0) - clock)
                    clock = op.stage or 0
                    (table.get if isinstance(op, Get) else table.put)(numbers[op.stream])
                table.wait(loop.ii - clock)
            # Between loops the pipeline is emptied and left (T8); the process is done in its last stage (T10).
            table.wait(loop.depth + (1 if number < len(loops) - 1 else -1) - loop.ii)
        builder.process(table, list(numbers.values()))
    return builder.build()


@settings(max_examples=80, deadline=None)
@given(st.one_of(regular(), multirate()), st.data())
def test_replay_is_the_run_engine(network: Any, data: DataObject) -> None:
    processes, depths = network
    for loops in processes.values():
        for i, loop in enumerate(loops):
            stages = sorted(
                data.draw(st.lists(st.integers(0, loop.ii - 1), min_size=len(loop.ops), max_size=len(loop.ops)))
            )
            ops = [type(op)(op.stream, stage) for op, stage in zip(loop.ops, stages, strict=True)]
            loops[i] = Loop(loop.trip, loop.ii, max(loop.depth, loop.ii + 1), ops)
    ran, replayed = table_engine().run(tables(processes, depths)), trace_of((processes, depths)).replay()
    assert ran.finished == replayed.finished
    assert ran.stall_get.tolist() == replayed.stall_get.tolist()
    assert ran.stall_put.tolist() == replayed.stall_put.tolist()
    assert ran.puts.tolist() == replayed.done[0].tolist()
    if ran.finished:
        assert ran.node_end.tolist() == replayed.process_end.tolist()
        assert ran.cycles == replayed.cycles


@settings(max_examples=80, deadline=None)
@given(st.one_of(regular(), multirate()), st.integers(2, 9))
def test_frames_in_a_row_end_if_one_ends_and_leaves_no_tokens(network: Any, frames: int) -> None:
    processes, depths = network
    early = {
        p: [Loop(a.trip, a.ii, a.ii + 1, [type(op)(op.stream) for op in a.ops]) for a in processes[p]]
        for p in processes
    }
    one = tables(early, depths)
    result = table_engine().run(one)
    if result.finished and (result.puts == result.gets).all():
        assert table_engine().run(repeated(one, frames)).finished
