"""Runs without payload take the same cycles as runs that compute."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st

from allo_dse.common.mlir.bindings import ir
from allo_dse.common.mlir.dialect import new_context
from allo_dse.simulator.codegen.bodies import lower_body
from allo_dse.simulator.codegen.signature import Body, Tiles
from allo_dse.simulator.codegen.stream_ops import find
from allo_dse.simulator.engine.engine import Engine, compile_bodies, tasks_with_payload
from allo_dse.simulator.engine.run_result import RunResult
from allo_dse.simulator.network.network import Network, NetworkBuilder

from ..engine_bodies import compiled, matrices, systolic_engine, systolic_network
from ..engine_programs import Writer

TASKS = 3


@st.composite
def programs(draw: st.DrawFn) -> tuple[list[Body], list[tuple[int, int]], list[list[int]]]:
    """Bodies, streams as (depth, initial tokens), and per task the sites' cycles; all get all streams."""
    count = draw(st.integers(1, 4))
    ends = [(draw(st.integers(0, TASKS - 1)), draw(st.integers(0, TASKS - 1))) for _ in range(count)]
    bodies, costs = [], []
    for task in range(TASKS):
        gets = [s for s, (_, b) in enumerate(ends) if b == task]
        puts = [s for s, (a, _) in enumerate(ends) if a == task]
        writer = Writer(draw, gets, puts, by_data=draw(st.booleans()))
        bodies.append(Body(f"task{task}", writer.text(f"task{task}", count)))
        costs.append(draw(st.lists(st.integers(0, 5), min_size=writer.sites, max_size=writer.sites)))
    streams = [(depth := draw(st.integers(1, 4)), draw(st.integers(0, depth))) for _ in range(count)]
    return bodies, streams, costs


def network(engine: Engine, streams: list[tuple[int, int]], costs: list[list[int]]) -> Network:
    b = NetworkBuilder()
    depth, initial = zip(*streams, strict=True)
    numbers = b.streams(depth, initial=initial, token_bytes=4)
    for task in range(TASKS):
        x = b.tensor(np.arange(8, dtype=np.int32))
        site = b.costs([*costs[task], 0])
        signature = engine.signatures[f"task{task}"]
        b.tasks(f"task{task}", signature.words(1, [Tiles(x, 0, (1,)), *numbers.tolist()], cost_site=site))
    return b.build()


def outcome(result: RunResult) -> list[list[int]]:
    columns = [result.node_end, result.stall_get, result.stall_put, result.puts, result.gets, result.occupancy]
    return [*(c.tolist() for c in columns), [result.finished]]


@settings(max_examples=40, deadline=None)
@given(programs())
def test_cycles_do_not_depend_on_computing(program: tuple[list[Body], list[tuple[int, int]], list[list[int]]]) -> None:
    bodies, streams, costs = program
    engine = compiled(bodies)
    with_values = engine.run(network(engine, streams, costs))
    without = engine.run(network(engine, streams, costs), payload=False)
    assert outcome(without) == outcome(with_values)
    by_tables = engine.run(network(engine, streams, costs), payload=False, extrapolate=True)
    event(f"as tables: {bool(by_tables.network.rows.size)}")
    assert outcome(by_tables) == outcome(with_values)
    if not without.finished:
        assert without.deadlock == with_values.deadlock


def test_a_systolic_array_without_payload_computes_nothing_and_takes_as_long() -> None:
    a, b, c = matrices(4, 32)
    engine = systolic_engine(32)
    network = systolic_network(engine, a, b, c, depth=2)
    result = engine.run(network, payload=False)
    assert not c.any()
    assert outcome(result) == outcome(engine.run(network))
    np.testing.assert_array_equal(c, a @ b)


PAYLOAD = """
func.func @work(%x: memref<4xf32>, %in: index, %out: index) {
  %zero = arith.constant 0.0 : f32
  %buffer = memref.alloc() : memref<4xf32>
  affine.for %r = 0 to 3 {
    "df.get_block"(%in, %buffer) {op = 0} : (index, memref<4xf32>) -> ()
    affine.for %i = 0 to 4 {
      %v = affine.load %buffer[%i] : memref<4xf32>
      %positive = arith.cmpf ogt, %v, %zero : f32
      scf.if %positive { affine.store %v, %x[%i] : memref<4xf32> }
    }
    linalg.add ins(%buffer, %x : memref<4xf32>, memref<4xf32>) outs(%buffer : memref<4xf32>)
    "df.put_block"(%out, %buffer) {op = 1} : (index, memref<4xf32>) -> ()
  }
  memref.dealloc %buffer : memref<4xf32>
  return
}"""


def test_what_is_left_of_a_body_without_payload() -> None:
    with new_context(), ir.Location.unknown():
        module, signature, _, has_payload = lower_body(Body("work", PAYLOAD), "body1", full=False)
        assert not has_payload
        assert signature == lower_body(Body("work", PAYLOAD), "body1").signature
        left = {op.name for op in find(module, lambda name: True)}
        assert not left & {"memref.load", "memref.store", "memref.alloca", "memref.alloc", "linalg.add", "arith.cmpf"}


@pytest.mark.parametrize(
    ("condition", "needed"),
    [
        ("%t = arith.cmpi slt, %v, %c : i32", True),
        ("%e = memref.load %x[%i] : memref<4xi32>\n%t = arith.cmpi slt, %e, %c : i32", True),
        (
            "memref.store %v, %l[] : memref<i32>\n%e = memref.load %l[] : memref<i32>\n"
            "%t = arith.cmpi slt, %e, %c : i32",
            True,
        ),
        (
            "memref.store %c, %l[] : memref<i32>\n%e = memref.load %l[] : memref<i32>\n"
            "%t = arith.cmpi slt, %e, %c : i32",
            False,
        ),
        ("%j = arith.index_cast %i : index to i32\n%t = arith.cmpi slt, %j, %c : i32", False),
        ("%w = func.call @helper(%v) : (i32) -> i32\n%t = arith.cmpi slt, %w, %c : i32", True),
        (
            "%s = affine.for %k = 0 to 2 iter_args(%a = %c) -> i32 { affine.yield %v : i32 }\n"
            "%t = arith.cmpi slt, %s, %c : i32",
            True,
        ),
        (
            "%s = affine.for %k = 0 to 2 iter_args(%a = %v) -> i32 { affine.yield %a : i32 }\n"
            "%t = arith.cmpi slt, %s, %c : i32",
            True,
        ),
        (
            "%s = affine.for %k = 0 to 2 iter_args(%a = %c) -> i32 { affine.yield %a : i32 }\n"
            "%t = arith.cmpi slt, %s, %c : i32",
            False,
        ),
    ],
)
def test_what_times_depend_on(condition: str, needed: bool) -> None:
    text = f"""
    func.func private @helper(%a: i32) -> i32 {{ return %a : i32 }}
    func.func @body(%x: memref<4xi32>, %in: index, %out: index) {{
      %c = arith.constant 2 : i32
      %l = memref.alloc() : memref<i32>
      affine.for %i = 0 to 4 {{
        %v = "df.get"(%in) {{op = 0}} : (index) -> i32
        {condition}
        scf.if %t {{ "df.put"(%out, %v) {{op = 1}} : (index, i32) -> () }}
      }}
      return
    }}"""
    with new_context(), ir.Location.unknown():
        assert lower_body(Body("body", text), "body1", full=False).has_payload == needed


def test_only_what_feeds_a_decision_is_computed() -> None:
    forward = """
    func.func @forward(%in: index, %out: index) {
      %v = "df.get"(%in) {op = 0} : (index) -> i32
      "df.put"(%out, %v) {op = 1} : (index, i32) -> ()
      return
    }"""
    engine = compile_bodies([Body("forward", forward)])
    b = NetworkBuilder()
    streams = b.streams([1] * 5, token_bytes=4)
    b.tasks("forward", engine.signatures["forward"].words(4, [streams[:-1], streams[1:]]))
    net = b.build()
    assert tasks_with_payload(net, engine.signatures, {"forward": False}).tolist() == [False] * 4
    two_kinds = compile_bodies([Body("forward", forward), Body("last", forward.replace("@forward", "@last"))])
    b = NetworkBuilder()
    streams = b.streams([1] * 5, token_bytes=4)
    words = two_kinds.signatures["forward"].words(4, [streams[:-1], streams[1:]])
    b.tasks("forward", words[:2])
    b.tasks("last", words[2:3])
    b.tasks("forward", words[3:])
    needs = {"forward": False, "last": True}
    assert tasks_with_payload(b.build(), two_kinds.signatures, needs).tolist() == [True, True, True, False]
