"""The smallest increase of depths that clears a deadlock, against trying all depths by the reference semantics."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.deadlock import DeadlockError
from allo_dse.simulator.engine.engine import compile_bodies, table_engine
from allo_dse.simulator.network.network import BY_DEPTH, Labels, Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table

from ...support.strategies import shuffled
from ..engine_reference import Script, simulate

MOST = 9


@st.composite
def balanced(draw: st.DrawFn) -> tuple[list[Script], int]:
    """Scripts that put and get the same number of tokens on each stream, in any order."""
    processes, streams = draw(st.integers(2, 3)), draw(st.integers(1, 4))
    scripts: list[Script] = [[] for _ in range(processes)]
    for stream in range(streams):
        a, b = shuffled(draw, range(processes))[:2]
        tokens = draw(st.integers(1, 8))
        scripts[a] += [("put", stream, 0)] * tokens
        scripts[b] += [("get", stream, 0)] * tokens
    return [shuffled(draw, script) for script in scripts], streams


def network(scripts: list[Script], depth: list[int]) -> Network:
    b = NetworkBuilder()
    b.streams(depth)
    for script in scripts:
        table = Table()
        for kind, stream, _ in script:
            getattr(table, kind)(stream)
        b.process(table, range(len(depth)))
    return b.build()


def finishes(scripts: list[Script], depth: list[int]) -> bool:
    outcome = simulate(scripts, depth, [1] * len(depth), [0] * len(depth), 0)
    return all(p == len(s) for p, s in zip(outcome.positions, scripts, strict=True))


@settings(max_examples=150, deadline=None)
@given(balanced())
def test_the_increase_clears_the_deadlock_and_none_of_it_can_be_spared(case: tuple[list[Script], int]) -> None:
    scripts, streams = case
    start = [1] * streams
    result = table_engine().run(network(scripts, start))
    assume(not result.finished)
    increase = result.smallest_increase()
    helps = finishes(scripts, [MOST] * streams)
    assert bool(increase.changes) == helps
    if not helps:
        assert "no depth helps" in increase.reason
        return
    assert increase.is_minimal
    depth = increase.depths.tolist()
    assert finishes(scripts, depth)
    assert [(s, 1, d) for s, d in enumerate(depth) if d > 1] == list(increase.changes)
    for stream, _, new in increase.changes:
        assert not finishes(scripts, [new - 1 if s == stream else d for s, d in enumerate(depth)])


@settings(max_examples=40, deadline=None)
@given(balanced())
def test_one_depth_for_all_is_the_least_common_one(case: tuple[list[Script], int]) -> None:
    scripts, streams = case
    result = table_engine().run(network(scripts, [1] * streams))
    assume(not result.finished)
    common = next((d for d in range(1, MOST) if finishes(scripts, [d] * streams)), None)
    increase = result.smallest_increase(arrays=["all"] * streams)
    assert increase.changes == (() if common is None else ((0, 1, common),))


def test_the_cheapest_of_several_ways_is_taken() -> None:
    a: Script = [("put", 0, 0)] * 8 + [("put", 1, 0)] * 3
    b: Script = [("get", 1, 0)] * 3 + [("get", 0, 0)] * 8
    result = table_engine().run(network([a, b], [2, 1]))
    assert result.smallest_increase().changes == ((0, 2, 8),)
    ring: list[Script] = [
        [*[("put", 0, 0)] * 6, *[("get", 1, 0)] * 3],
        [*[("put", 1, 0)] * 3, *[("get", 0, 0)] * 6],
    ]
    result = table_engine().run(network(ring, [1, 1]))
    assert result.smallest_increase().changes == ((1, 1, 3),)
    totals = [x + y for x, y in itertools.product(range(1, 8), repeat=2) if finishes(ring, [x, y])]
    assert min(totals) == 4


SPLIT = """
func.func @split(%x: memref<i32>, %left: index, %right: index) {
  affine.for %i = 0 to 63 {
    %v = memref.load %x[] : memref<i32>
    %one = arith.constant 1 : i32
    %w = arith.addi %v, %one : i32
    memref.store %w, %x[] : memref<i32>
    "df.put"(%left, %v) {op = 0} : (index, i32) -> ()
  }
  affine.for %i = 0 to 63 {
    %v = memref.load %x[] : memref<i32>
    "df.put"(%right, %v) {op = 1} : (index, i32) -> ()
  }
  return
}"""
MERGE = """
func.func @merge(%left: index, %right: index) {
  affine.for %i = 0 to 63 {
    %b = "df.get"(%right) {op = 0} : (index) -> i32
    %a = "df.get"(%left) {op = 1} : (index) -> i32
  }
  return
}"""


class Names(Labels):
    def task(self, task: int) -> str:
        return ["split", "merge"][task]

    def stream(self, stream: int) -> str:
        return f"{self.array(stream)}[0]"

    def array(self, stream: int) -> str:
        return ["left", "right"][stream]

    def operation(self, task: int, op: int) -> str:
        return f"operation {op}"


def test_the_message_says_what_to_raise_and_arrays_stay_as_they_were() -> None:
    engine = compile_bodies([Body("split", SPLIT), Body("merge", MERGE)])
    x = np.zeros((), np.int32)
    b = NetworkBuilder()
    b.tensor(x)
    streams = b.streams([2, 2], token_bytes=4)
    b.tasks("split", engine.signatures["split"].words(1, [Tiles(x, 0, ()), *streams]))
    b.tasks("merge", engine.signatures["merge"].words(1, list(streams)))
    result = engine.run(b.build())
    assert x == 3
    with pytest.raises(DeadlockError, match=r"hint: raise left from 2 to 63$") as error:
        result.require_finished(Names())
    assert error.value.increase is not None
    assert error.value.increase.depths.tolist() == [63, 2]
    assert x == 3
    assert result.network.with_depths(error.value.increase.depths).latency.tolist() == [2, 1]
    with pytest.raises(DeadlockError, match="make a full stream of the cycle deeper"):
        result.require_finished(Names(), search_work=0)


def test_limits_of_the_search_are_said() -> None:
    a: Script = [("put", 0, 0)] * 500 + [("put", 1, 0)] * 500
    b: Script = [("get", 1, 0)] * 500 + [("get", 0, 0)] * 500
    result = table_engine().run(network([a, b], [1, 1]))
    assert result.smallest_increase(max_depth=100).reason == "no depth up to 100 helps"
    assert "within the work allowed" in result.smallest_increase(work=0).reason
    assert result.smallest_increase().changes == ((0, 1, 500),)


def test_latencies_given_stay_whatever_depths_come_and_go() -> None:
    """Also one that is what its depth would give: a network remembers what was asked for, not what it amounts to."""
    b = NetworkBuilder()
    b.streams([2, 2, 8, 8], latency=[BY_DEPTH, 1, BY_DEPTH, 2])
    network = b.build()
    assert network.latency.tolist() == [1, 1, 2, 2]
    for depth, latency in ((64, [2, 1, 2, 2]), (1, [1, 1, 1, 2]), (64, [2, 1, 2, 2])):
        network = network.with_depths(np.full(4, depth))
        assert network.latency.tolist() == latency
