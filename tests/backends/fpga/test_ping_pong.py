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


BUFFERED = dse.memory("pipe", ["pipo"]).directive("pipo")


def test_tasks_work_in_the_banks_of_a_buffer_that_a_fifo_would_copy() -> None:
    program = dse.load_program(programs.block_stages())
    (_, copied), (design, banks) = evaluated(program), evaluated(program, BUFFERED)
    # A block of 256 elements takes a block RAM: at each end, and for the FIFO of two blocks a third one.
    assert copied["bram18"] - banks["bram18"] == 1
    assert (banks["fifo_bits"], copied["fifo_bits"] > 0) == (0, True)
    # Stages of 256 rounds: the second one follows the first one by a block. Each copy takes another 256 cycles.
    assert 4 * 256 < banks["latency_cycles"] - 2 * U280.external.latency_cycles < 4.1 * 256
    assert copied["latency_cycles"] - banks["latency_cycles"] > 4 * 256
    bounds = dse.FpgaSimulator().bounding()(design, 1)
    assert bounds["latency_cycles"][0] <= banks["latency_cycles"]
    assert bounds["bram18"] == (banks["bram18"],) * 2
    given = np.random.default_rng(0).integers(-99, 99, (3, 16, 16)).astype(np.int32)
    _, found = csim(hls_project(design), given, np.zeros_like(given))
    assert (found == 3 * (given + given.swapaxes(1, 2))).all()


def test_a_task_between_two_buffers_and_arrays_of_buffers() -> None:
    program = dse.load_program(programs.three_stages(64))
    names = ("first", "second")
    directives = [dse.memory(name, ["pipo"]).directive("pipo") for name in names]
    split = dse.partition("reverse:turned", 1, [4]).directive(4)
    design, metrics = evaluated(program, *directives, split)
    assert metrics["fifo_bits"] == 0
    assert metrics["latency_cycles"] < evaluated(program)[1]["latency_cycles"]
    given = np.random.default_rng(0).integers(-9, 9, (2, 64)).astype(np.int32)
    project = hls_project(design)
    assert "#pragma HLS array_partition variable=second dim=1 cyclic factor=4" in project.hls_code
    _, found = csim(project, given, np.zeros(2, np.int32))
    filled = given + np.arange(64)
    assert (found == 6 * (filled * filled[:, :1]).sum(axis=1)).all()


@pytest.mark.parametrize("kind", ["handed on", "in part", "summed", "used later", "changed"])
def test_blocks_are_filled_completely_and_then_only_read(kind: str) -> None:
    study = dse.Study(
        "s", program=programs.block_stages(kind), device="u280", schedules=[dse.memory("pipe", ["auto", "pipo"])],
        objectives=[dse.minimize("latency_cycles")],
    )  # fmt: skip
    folds = 2
    assert sum(1 for _ in study.space.designs()) == folds * (1 + (kind == "handed on"))


def test_one_node_cannot_run_both_tasks_of_a_buffer() -> None:
    study = dse.Study(
        "s", program=programs.block_stages(), device="u280", schedules=[dse.memory("pipe", ["pipo"])],
        objectives=[dse.minimize("latency_cycles")],
    )  # fmt: skip
    designs = [candidate.design for candidate in study.space.designs()]
    found = {design.fold.node_count: [one.constraint for one in design.mapping.violations] for design in designs}
    assert found == {1: ["ping_pong"], 2: []}
