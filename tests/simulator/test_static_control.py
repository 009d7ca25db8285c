"""Bodies whose control is affine are steps that need no execution, and take the times of their execution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.eval.program.functional import run_graph
from allo_dse.simulator.codegen.lowering.control import Move, Repeat, Step, static_steps
from allo_dse.simulator.codegen.lowering.signature import Body
from tests.backends.fpga import programs


def puts(steps: tuple[Step, ...]) -> int:
    return sum(
        step.count * puts(step.steps) if isinstance(step, Repeat) else isinstance(step, Move) and step.is_put
        for step in steps
    )


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
    assert puts(steps) == tokens
    arrays = [np.arange(np.prod(shape), dtype=np.int32).reshape(shape) for shape in shapes]
    with_values, without = (
        run_graph(loaded.vmg, *(a.copy() for a in arrays), values=values).cycles for values in (True, False)
    )
    assert with_values == without
