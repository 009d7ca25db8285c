"""The front of cycles against FIFO memory of designs."""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.backends.fpga.depths.front import DesignRuns
from allo_dse.backends.fpga.depths.solver import DepthSolver, most_tokens, solve_depths
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.backends.fpga.network import SMALLEST_DEPTH, fpga_network
from allo_dse.cli.main import main
from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import replace
from allo_dse.mapper.fold.fold import unfolded

from ...compiler.samples import systolic, tiled
from ...support.values import present
from .cost import programs

STUDY = """
import allo_dse as dse
from tests.compiler.samples import systolic

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
    costs = FpgaMapping.of(design)
    most, least = (costs.fifos_at(front.points[k].depths) for k in (0, -1))
    assert least.lut < most.lut


def burst(words: int) -> Any:
    return programs.burst(words)


def test_a_circle_that_no_depth_helps_is_named_with_what_does() -> None:
    design = design_of(programs.feedback(16))
    for ask in (dse.FpgaSimulator().evaluate, dse.depth_front):
        with pytest.raises(dse.SimulationError, match=r"wait for each other at (there|back) and (there|back)") as error:
            ask(design)
        assert "interval" in error.value.hint
    slower = (dse.pipeline("add:i", [8]).directive(8), dse.pipeline("keep:i", [8]).directive(8))
    assert dse.FpgaSimulator().evaluate(replace(design, schedule=slower))["latency_cycles"] > 0


def test_a_study_finds_the_front_of_latency_against_fifo_memory(tmp_path: Path) -> None:
    study = dse.Study(
        "burst",
        program=burst,
        params={"words": 64},
        device="u280",
        objectives=[dse.minimize("latency_cycles"), dse.minimize("fifo_bits")],
        extra_choices=[dse.StreamDepths()],
    )
    result = study.run(run_dir=tmp_path / "run", trials=200, progress="quiet", verify=False)
    assert present(result.certificate).complete
    designs = [best.design for best in result.front]
    unfolded_ones = [(best, d) for best, d in zip(result.front, designs, strict=True) if len(FpgaMapping.of(d).fifos)]
    assert len({best.values["fifo_bits"] for best, _ in unfolded_ones}) > 1
    for best, design in unfolded_ones:
        front = dse.depth_front(design)
        point = front.within(present(design.slowdown))
        assert (best.values["latency_cycles"], best.values["fifo_bits"]) == (point.cycles, point.memory_bits)
        assert point.cycles <= front.best_cycles * (1 + present(design.slowdown))
        exported = dict(best.metrics["stream_depths"])
        assert cycles_at(design, exported) == point.cycles


def test_depths_are_decided_once(tmp_path: Path) -> None:
    choices: list[Any] = [dse.StreamDepths()]
    study = dse.Study(
        "burst",
        program=burst,
        params={"words": 64},
        device="u280",
        objectives=[dse.minimize("latency_cycles")],
        schedules=[dse.stream_depth("values", [2, 4])],
        extra_choices=choices,
    )
    with pytest.raises(dse.StudyError, match="both decide depths"):
        study.run(run_dir=tmp_path / "run", trials=2, progress="quiet", verify=False)
    with pytest.raises(dse.StudyError, match="ascending shares"):
        dse.StreamDepths([0.1, 0.0])


def test_no_depths_are_better_than_the_front() -> None:
    design = design_of(systolic(K=8))
    runs, front = DesignRuns(FpgaMapping.of(design)), dse.depth_front(design)
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


@pytest.mark.parametrize(
    "region",
    [programs.burst(64), programs.burst(5), systolic(M=2, N=3, K=8), programs.skewed(), programs.dealt(16)],
    ids=["burst", "short", "systolic", "skewed", "dealt"],
)
def test_solved_depths_are_what_trying_all_finds(region: Any) -> None:
    mapping = FpgaMapping.of(design_of(region))
    solved, _ = solve_depths(mapping)
    most = most_tokens(mapping)
    assert most
    solver = DepthSolver(fpga_network(mapping, dict.fromkeys(most, SMALLEST_DEPTH)), list(most))
    depths = solver.grow(most)
    enough = solver.run(depths)[1].cycles / 0.999

    def keeps(tried: dict[str, int]) -> bool:
        _, result = solver.run(tried)
        return result.finished and result.cycles <= enough

    for name in most:
        tried = range(SMALLEST_DEPTH, depths[name] + 1)
        depths[name] = next(depth for depth in tried if keeps({**depths, name: depth}))
    assert solved == depths


@pytest.mark.parametrize("bits", [0, -1, True, {"s": 0}])
def test_widths_of_a_trace_are_positive(bits: Any) -> None:
    trace = dse.Trace.build({"s": 4}, {"p": [dse.Loop(4, ops=[dse.Put("s")])]})
    with pytest.raises(AlloDseError, match=r"bits of stream s: .* is no width in bits"):
        dse.depth_front(trace, bits=bits)
