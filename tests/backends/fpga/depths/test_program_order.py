"""What is written as C++ ends there too, where pipelines do not hold tokens."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.depths.solver import in_program_order
from allo_dse.backends.fpga.hls.design_project import board_project
from allo_dse.common.records import replace
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.simulator.deadlock import DeadlockError

from .. import test_observed as observed
from ..cost import programs


def made(region: Any) -> dse.Design:
    program = dse.load_program(region)
    return dse.Design(program, unfolded(program), dse.Buffering(), dse.Device.load("u280"))


def test_a_project_s_fifos_hold_what_pipelines_hold() -> None:
    design = made(programs.sums_first(20, at_once=True))
    solved = dse.FpgaSimulator().evaluate(design)["stream_depths"]
    with pytest.raises(DeadlockError):
        dse.simulate(design)
    deeper = in_program_order(design.vmg, solved)
    assert deeper["quotients"] > solved["quotients"]
    assert deeper["values"] == solved["values"]
    dse.simulate(design, depths=deeper)
    pragma = "stream variable=quotients depth="
    assert f"{pragma}{deeper['quotients']}\n" in board_project(design, solved).hls_code
    chosen = replace(design, depths=tuple(sorted(solved.items())))
    assert f"{pragma}{solved['quotients']}\n" in board_project(chosen, solved).hls_code


def test_depths_that_suffice_or_that_nothing_helps_stay() -> None:
    design = made(programs.sums_first(20, at_once=False))
    solved = dse.FpgaSimulator().evaluate(design)["stream_depths"]
    assert in_program_order(design.vmg, solved) == solved


def test_where_data_decides_all_sets_of_inputs_are_run() -> None:
    vmg = made(observed.kept(True)).vmg
    many, few = ({"A": np.where(np.arange(observed.SIZE) < count, 1, -1)} for count in (8, 4))
    depths = {"pipe": 2}
    assert in_program_order(vmg, depths, [many]) == depths
    assert in_program_order(vmg, depths, [many, few]) == depths  # of which the reader waits for ever
