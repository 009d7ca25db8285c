"""Deadlocks are named: which tasks wait for each other, in which operation, on which stream."""

from __future__ import annotations

import pytest

from allo_dse.common.errors import SimulationError
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.deadlock import DeadlockError
from allo_dse.simulator.engine.engine import compile_bodies, table_engine
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import Labels, NetworkBuilder
from allo_dse.simulator.network.tables import Table

SPLIT = """
func.func @split(%left: index, %right: index) {
  %v = arith.constant 1 : i32
  affine.for %i = 0 to 4 {
    "df.put"(%left, %v) {op = 3} : (index, i32) -> ()
  }
  affine.for %i = 0 to 4 {
    "df.put"(%right, %v) {op = 4} : (index, i32) -> ()
  }
  return
}"""
MERGE = """
func.func @merge(%left: index, %right: index) {
  affine.for %i = 0 to 4 {
    %a = "df.get"(%left) {op = 0} : (index) -> i32
    %b = "df.get"(%right) {op = 1} : (index) -> i32
  }
  return
}"""


class Names(Labels):
    def task(self, task: int) -> str:
        return ["split", "merge"][task]

    def stream(self, stream: int) -> str:
        return ["left", "right"][stream]

    def operation(self, task: int, op: int) -> str:
        return f"line {10 + op}"


def test_a_path_too_shallow_for_the_other_is_named() -> None:
    engine = compile_bodies([Body("split", SPLIT), Body("merge", MERGE)])

    def run(depth: int) -> RunResult:
        b = NetworkBuilder()
        streams = b.streams([depth, 1], token_bytes=4)
        b.tasks("split", engine.signatures["split"].words(1, list(streams)))
        b.tasks("merge", engine.signatures["merge"].words(1, list(streams)))
        return engine.run(b.build())

    result = run(2)
    assert not result.finished
    assert result.deadlock is not None
    assert result.deadlock.describe(Names()) == (
        "deadlock: 2 of 2 blocked tasks wait for each other\n"
        "  split waits to put to left (full, 2 tokens; line 13; cycle 2)\n"
        "  merge waits to get from right (empty; line 11; cycle 1)"
    )
    with pytest.raises(DeadlockError, match="raise stream 0 from 2 to 3"):
        result.require_finished()
    cleared = run(3)
    assert cleared.finished
    assert cleared.deadlock is None
    cleared.require_finished()


def test_tasks_that_all_wait_for_a_first_token_are_told_that_no_depth_helps() -> None:
    b = NetworkBuilder()
    ring = b.streams([2, 2, 2])
    table = Table()
    table.wait(7)
    table.get(0)
    table.put(1)
    for i in range(3):
        b.process(table, [ring[i], ring[(i + 1) % 3]])
    deadlock = table_engine().run(b.build()).deadlock
    assert deadlock is not None
    assert [x.task for x in deadlock.cycle] == [0, 2, 1]
    assert {x.op for x in deadlock.cycle} == {1}
    assert "no depth helps" in deadlock.hint


def test_a_task_that_waits_for_one_that_has_ended() -> None:
    b = NetworkBuilder()
    stream = b.stream(4)
    source, sink = Table(), Table()
    with source.repeat(2):
        source.put(0)
    with sink.repeat(3):
        sink.get(0)
    b.process(source, [stream])
    b.process(sink, [stream])
    deadlock = table_engine().run(b.build()).deadlock
    assert deadlock is not None
    assert deadlock.cycle == ()
    assert deadlock.describe() == (
        "deadlock: task 1 waits to get from stream 0 (empty; operation 0; cycle 2), but task 0 has ended"
    )
    assert "disagree" in deadlock.hint


def test_a_node_that_waits_for_its_own_later_task() -> None:
    b = NetworkBuilder()
    stream = b.stream(2)
    put, get = Table(), Table()
    put.put(0)
    get.get(0)
    first, second = b.process(get, [stream]), b.process(put, [stream])
    b.node([first, second])
    deadlock = table_engine().run(b.build()).deadlock
    assert deadlock is not None
    assert [(x.task, x.peer) for x in deadlock.cycle] == [(first, second)]


def test_two_consumers_of_a_stream_are_an_error() -> None:
    b = NetworkBuilder()
    stream = b.stream(2)
    table = Table()
    table.get(0)
    b.process(table, [stream])
    b.process(table, [stream])
    with pytest.raises(SimulationError, match="several nodes get from stream 0"):
        _ = table_engine().run(b.build()).deadlock
