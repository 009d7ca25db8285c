"""Nests that hand arrays on through ping-pong buffers: frames overlap, and nothing that is computed changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.choices.nests import is_chain
from allo_dse.backends.fpga.hls import csim
from allo_dse.backends.fpga.hls.design_project import hls_project
from allo_dse.common.errors import StudyError
from allo_dse.compiler.ir.nest import read_nest
from allo_dse.device.device import FpgaDevice
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.space.design import Design

from .cost import programs

N = 32
U280 = FpgaDevice.load("u280")
AT_ONCE = dse.dataflow("stages").directive("at once")


def two_stages() -> dse.Program:
    """The second nest reads in another order than the first one writes, so that no FIFO could be between them."""
    return dse.load_program(programs.two_stages(N))


def evaluated(program: dse.Program, *schedule: Any) -> tuple[Design, Any]:
    design = Design(program, unfolded(program), dse.Buffering(), U280, schedule)
    return design, dse.FpgaSimulator().evaluate(design)


def test_the_interval_of_two_stages_halves_and_the_array_is_held_twice() -> None:
    program = two_stages()
    copied = [dse.memory(name, ["bram"]).directive("bram") for name in "AB"]
    (_, turns), (design, overlap) = evaluated(program, *copied), evaluated(program, *copied, AT_ONCE)
    assert turns.latency_cycles == overlap.latency_cycles
    assert turns["interval_cycles"] > 2 * N * N
    assert N * N < overlap["interval_cycles"] < 1.1 * N * N
    banks = U280.arrays.bram18(N * N, 32)
    # The array between the nests, and the copies of the tensors that the nests use, which are alone in their node.
    assert overlap["bram18"] - turns["bram18"] == banks
    given = np.random.default_rng(0).integers(-99, 99, (N, N)).astype(np.int32)
    project = hls_project(design)
    assert project.hls_code.count("#pragma HLS dataflow") == 2
    _, found = csim(project, given, np.zeros((N, N), np.int32))
    assert (found == 3 * given.T + 1).all()


def test_a_search_finds_both(tmp_path: Path) -> None:
    study = dse.Study(
        "stages", program=programs.two_stages(N), device="u280", schedules=[dse.dataflow("stages")],
        objectives=[dse.minimize("interval_cycles"), dse.minimize("bram18")],
    )  # fmt: skip
    front = study.run(9, run_dir=tmp_path, progress="quiet", verify=False).pareto
    assert sorted(front["interval_cycles"] < 1.1 * N * N + 100) == [False, True]


@pytest.mark.parametrize(
    ("kind", "chain"), [("handed on", True), ("two readers", False), ("written twice", False), ("read first", False)]
)
def test_nests_run_at_once_where_each_array_is_filled_by_one_and_read_by_one_other(kind: str, chain: bool) -> None:
    region = programs.handing_on(kind)
    (task_class,) = dse.load_program(region).task_classes
    assert is_chain(read_nest(task_class.body.mlir)) is chain
    study = dse.Study(
        "k", program=region, device="u280", schedules=[dse.dataflow("k")], objectives=[dse.minimize("latency_cycles")]
    )
    assert sum(1 for _ in study.space.designs()) == 1 + chain


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(StudyError, match="there is no kernel 'stage'"):
        dse.Study(
            "s", program=programs.two_stages(N), device="u280", schedules=[dse.dataflow("stage")],
            objectives=[dse.minimize("latency_cycles")],
        ).space.designs().__next__()  # fmt: skip
