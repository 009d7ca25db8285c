"""The front of cycles against FIFO memory of designs."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.cli.main import main
from allo_dse.eval.fpga.depth_front import DesignRuns
from allo_dse.mapper.fold.fold import unfolded
from tests.backends.fpga import programs
from tests.frontend.samples import systolic, tiled

STUDY = """
import allo_dse as dse
from tests.frontend.samples import systolic

def study():
    return dse.Study("small", program=systolic, params={"M": 2, "N": 2, "K": 8}, device="u280",
                     objectives=[dse.minimize("latency_cycles")], trials=1)
"""


def design_of(region: Any) -> dse.Design:
    program = dse.load_program(region)
    return dse.Design(program, unfolded(program), dse.Buffering(), dse.Device.load("u280"))


def cycles_at(design: dse.Design, depths: dict[str, int]) -> int:
    fixed = dse.Design(
        design.program, design.fold, dse.Buffering(), design.device, depths=tuple(sorted(depths.items()))
    )
    return int(dse.FpgaSimulator().evaluate(fixed)["latency_cycles"])


def test_points_are_what_the_simulator_says_at_their_depths() -> None:
    design = design_of(programs.burst(64))
    front = dse.depth_front(design)
    assert len(front.points) > 1
    for point in front.points:
        assert cycles_at(design, dict(point.depths)) == point.cycles
    costs = design.mapping.fpga
    most, least = (costs.fifo_total(costs.fifos, front.points[k].depths) for k in (0, -1))
    assert least.lut < most.lut


def test_no_depths_are_better_than_the_front() -> None:
    design = design_of(systolic(K=8))
    runs, front = DesignRuns(design.mapping.fpga), dse.depth_front(design)
    steps = [runs.steps(s, int(tokens)) for s, tokens in enumerate(runs.tokens)]
    for chosen in itertools.product(*(sorted({0, len(own) - 1}) for own in steps)):
        depths = {name: steps[s][k][0] for s, (name, k) in enumerate(zip(runs.streams, chosen, strict=True))}
        bits = sum(steps[s][k][1] for s, k in enumerate(chosen))
        cycles = cycles_at(design, depths)
        assert any(point.cycles <= cycles and point.memory_bits <= bits for point in front.points)


def test_a_design_without_fifos_has_no_front() -> None:
    with pytest.raises(dse.SimulationError, match="has no FIFOs"):
        dse.depth_front(design_of(tiled(M=8, N=8, K=8, P0=2, P1=2)))


def test_designs_of_runs(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    study = tmp_path / "small.py"
    study.write_text(STUDY)
    for command in (["small.py", "--run-dir", "run", "--quiet"], ["depths", "0", "--run", "run", "--json"]):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["allo-tune", *command])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        assert not ended.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["lossless"]["cycles"] <= found["best_cycles"]  # shallow FIFOs are read a cycle earlier
    assert found["built"]["depths"].keys() == found["lossless"]["depths"].keys()
