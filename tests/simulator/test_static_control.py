"""Bodies whose control is affine are steps that need no execution, and take the times of their execution."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.eval.execute.run import run_graph
from allo_dse.simulator.codegen.signature import Body
from allo_dse.simulator.codegen.static_steps import Move, Repeat, Step, static_steps
from allo_dse.simulator.engine.run_result import RunResult

from ..backends.fpga.cost import programs


def moves(steps: tuple[Step, ...]) -> int:
    """How many tokens are put, or got."""
    return sum(step.count * moves(step.steps) if isinstance(step, Repeat) else isinstance(step, Move) for step in steps)


@pytest.mark.parametrize(
    ("program", "shapes", "tokens"),
    [(programs.window(7, 9, 3), ((7, 9), (5, 7)), 35), (programs.rows_of_triangle(8), ((8, 8), (36,)), 36)],
    ids=["window", "triangle"],
)
def test_affine_control_is_executed_without_values(program: Any, shapes: Any, tokens: int) -> None:
    loaded = dse.load_program(program)
    body = loaded.kernels[0].classes[0].body
    steps = static_steps(Body(body.symbol, body.mlir))
    assert steps is not None
    assert moves(steps[0]) == tokens
    same_times(loaded, *shapes)


def same_times(loaded: dse.Program, *shapes: tuple[int, ...]) -> RunResult:
    """The run without values, which takes as long as the one with them."""
    arrays = [np.arange(np.prod(shape), dtype=np.int32).reshape(shape) for shape in shapes]
    full, without = (run_graph(loaded.vmg, *(a.copy() for a in arrays), values=values) for values in (True, False))
    assert without.cycles == full.cycles
    np.testing.assert_array_equal(without.puts, full.puts)
    np.testing.assert_array_equal(without.stall_get, full.stall_get)
    return without


def steps_of(loaded: dse.Program, kernel: int, tasks: int) -> list[tuple[Step, ...]]:
    body = loaded.kernels[kernel].classes[0].body
    assert static_steps(Body(body.symbol, body.mlir)) is None
    steps = static_steps(Body(body.symbol, body.mlir), [{0: pid} for pid in range(tasks)])
    assert steps is not None
    return steps


@pytest.mark.parametrize("size", [4, 6, 8, 13])
def test_quotients_remainders_and_pids_are_told(size: int) -> None:
    loaded = dse.load_program(programs.dealt(size))
    expected = [sum(i % 4 == p or i // 8 == p for i in range(p * size, (p + 1) * size)) for p in range(4)]
    for kernel in (0, 1):
        moved = [moves(steps) for steps in steps_of(loaded, kernel, 4)]
        assert moved == expected
    assert same_times(loaded, (4 * size,), (4 * size,)).puts.tolist() == expected


def test_ranges_that_begin_at_a_pid_are_not_executed_round_by_round() -> None:
    size = 250_000
    loaded = dse.load_program(programs.in_parts(size))
    assert [type(step) for step in steps_of(loaded, 0, 4)[1]] == [Repeat]
    times = same_times(loaded, (4 * size,), (4 * size,))
    assert times.operations == 8 * size
    assert times.operations - times.skipped < times.operations / 20


COMPUTED = """
func.func @computed(%p: index, %s: index) {{
  %p64 = arith.index_cast %p : index to i64
  %n = arith.constant {right} : i64
  %q = arith.{op} %p64, %n : i64
  %is = arith.constant {result} : i64
  %same = arith.cmpi eq, %q, %is : i64
  scf.if %same {{
    %v = arith.constant 1 : i32
    "df.put"(%s, %v) {{op = 0}} : (index, i32) -> ()
  }}
  return
}}"""


@given(
    st.sampled_from(["floordivsi", "divsi", "remsi", "ceildivsi", "minsi", "maxsi", "subi", "muli"]),
    st.integers(-50, 50),
    st.integers(-9, 9).filter(bool),
)
def test_whole_numbers_are_computed_as_the_machine_does(op: str, left: int, right: int) -> None:
    quotient = Fraction(left, right)
    result = {
        "floordivsi": math.floor(quotient),
        "divsi": math.trunc(quotient),
        "remsi": left - right * math.trunc(quotient),
        "ceildivsi": math.ceil(quotient),
        "minsi": min(left, right),
        "maxsi": max(left, right),
        "subi": left - right,
        "muli": left * right,
    }[op]
    text = COMPUTED.format(op=op, right=right, result=result)
    found = static_steps(Body("computed", text), [{0: left}])
    assert found is not None
    assert moves(found[0]) == 1


def test_numbers_have_the_bits_of_their_types() -> None:
    text = """
func.func @cut(%p: index, %s: index) {
  %b = arith.index_cast %p : index to i8
  %c = arith.constant 100 : i8
  %d = arith.addi %b, %c : i8
  %zero = arith.constant 0 : i8
  %negative = arith.cmpi slt, %d, %zero : i8
  scf.if %negative {
    %v = arith.constant 1 : i32
    "df.put"(%s, %v) {op = 0} : (index, i32) -> ()
  }
  return
}"""
    found = static_steps(Body("cut", text), [{0: 27}, {0: 28}, {0: 255}, {0: 256 + 28}])
    assert found is not None
    assert [moves(steps) for steps in found] == [0, 1, 0, 1]


def test_control_by_a_variable_of_a_loop_inside_needs_no_values() -> None:
    loaded = dse.load_program(programs.in_bit_order(8))
    run = same_times(loaded, (8,), (8,))
    assert run.puts.tolist() == [8]
