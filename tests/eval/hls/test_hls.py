"""The HLS evaluator with a stand-in for the tool: its reports take the place of the model, misbehaviour is named."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

import allo_dse as dse
from allo_dse.backends.hls import emit_project
from allo_dse.backends.hls_report import read_hls_report
from allo_dse.dashboard.figures.recorded_run import part_words
from allo_dse.dashboard.recordings import record as recorded
from allo_dse.device.device import Device
from allo_dse.errors import SimulationError
from allo_dse.eval.fpga.evaluator import FpgaSimulator
from allo_dse.eval.fpga.retime import retiming
from allo_dse.eval.hls.evaluator import HlsEvaluator
from allo_dse.eval.hls.tool import HlsToolError
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.space.design import Design

from . import stand_in

install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32

N = 64


def chain():
    @df.region()
    def top(A: float32[N, N], B: float32[N, N]):
        pipe: Stream[float32, 4]

        @df.kernel(mapping=[1], args=[A])
        def load(a: float32[N, N]):
            for i, j in allo.grid(N, N):
                pipe.put(a[i, j])

        @df.kernel(mapping=[1], args=[B])
        def scale(b: float32[N, N]):
            for i in range(N):
                for j in range(N):
                    x: float32 = pipe.get()
                    b[i, j] = x * x

    return top


def cyclic():
    @df.region()
    def top(A: float32[N], B: float32[N]):
        there: Stream[float32, 2]
        back: Stream[float32, 2]

        @df.kernel(mapping=[1], args=[A])
        def ask(a: float32[N]):
            for i in range(N):
                a[i] = back.get()
                there.put(a[i])

        @df.kernel(mapping=[1], args=[B])
        def answer(b: float32[N]):
            for i in range(N):
                b[i] = there.get()
                back.put(b[i])

    return top


def design(make=chain, **options) -> Design:
    program = dse.load_program(make)
    return Design(program, unfolded(program), dse.Buffering(), Device.load("u280"), **options)


def loops_of(subject: Design, ii: int, depth: int) -> stand_in.Loops:
    """What the tool would say of the project: every function's nest as one loop, named by its labels."""
    project = emit_project(subject.program, device=subject.device)
    return {
        f"{function}_Pipeline": [("_".join(labels), N * N, ii, depth)] for function, labels in project.loops.items()
    }


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is first on PATH, with a report for `chain` at II 3 and depth 12."""
    directory = tmp_path / "tool"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    (directory / "csynth.xml").write_text(stand_in.report_xml("top", loops_of(design(), 3, 12), latency=4321))
    source = Path(__file__).parents[2] / "data" / "hls" / "project" / "solution1" / "sim" / "report" / "top_cosim.rpt"
    shutil.copy(source, directory)
    return directory


def test_cycles_are_the_simulators_at_the_intervals_of_the_report(tool: Path) -> None:
    stand_in.install(tool)
    metrics = HlsEvaluator().evaluate(design())
    model = FpgaSimulator("declared").evaluate(design())
    slower = 2 * (N * N - 1)  # II 3, where the model says 1; both loops run at the same time
    assert metrics.latency_cycles == pytest.approx(model.latency_cycles + slower, abs=30)
    assert metrics.cycles_from.startswith("simulator")
    assert metrics.report_latency_cycles == 4321
    assert (metrics.dsp, metrics.lut, metrics.bram18) == (3, 1200, 4)
    assert metrics.latency_us == pytest.approx(metrics.latency_cycles * 3.33e-3)
    assert (metrics.loops_matched, metrics.loops_unmatched) == (2, [])
    assert metrics.hls_tool == "2023.2"


def test_a_recording_of_a_design_that_the_tool_has_measured_is_of_what_it_reported(tool: Path) -> None:
    stand_in.install(tool)
    metrics = HlsEvaluator().evaluate(design())
    logged = json.loads(json.dumps(dict(metrics)))
    reported = recorded(design(), logged)
    assert reported.cycles == metrics.latency_cycles
    whole = reported.part(reported.place("middle"))
    start = "at the intervals and depths that the HLS tool 2023.2 reports"
    assert part_words(reported, whole).startswith(f"All {metrics.latency_cycles:,} cycles of the run, {start}.")
    del logged["report_times"]  # as in logs from before it was kept
    model = recorded(design(), logged)
    assert model.cycles < metrics.latency_cycles
    said = f"at the cost model's intervals ({metrics.cycles_from}: {metrics.latency_cycles:,} cycles)"
    assert said in part_words(model, model.part(model.place("middle")))


def test_depths_of_the_report_delay_what_is_put(tool: Path) -> None:
    stand_in.install(tool)
    cycles = []
    for depth in (10, 110):
        (tool / "csynth.xml").write_text(stand_in.report_xml("top", loops_of(design(), 1, depth), latency=1))
        cycles.append(HlsEvaluator().evaluate(design()).latency_cycles)
    assert cycles[1] - cycles[0] == pytest.approx(200, abs=4)  # both processes are 100 deeper


def test_copies_of_tensors_take_the_time_of_their_processes(tool: Path) -> None:
    stand_in.install(tool)
    cycles = []
    for copy in (4167, 8263):
        text = stand_in.report_xml("top", loops_of(design(), 1, 10), latency=1, copies={"load_A": copy})
        (tool / "csynth.xml").write_text(text)
        cycles.append(HlsEvaluator().evaluate(design()).latency_cycles)
    assert cycles[1] - cycles[0] == pytest.approx(4096, abs=4)


def test_loops_are_found_by_their_labels(tool: Path, tmp_path: Path) -> None:
    subject = design()
    project = emit_project(subject.program, device=subject.device)
    names = {function: list(labels) for function, labels in project.loops.items()}
    (load, load_labels), (scale, scale_labels) = names.items()
    loops = {
        f"{load}_1": [("_".join(load_labels), 1, 2, 7)],  # the tool copied the function
        f"{load}_2": [("_".join(load_labels), 1, 4, 5)],
        scale: [(scale_labels[-1], 1, 6, 9)],  # not flattened
        "load_A_Pipeline_1": [("VITIS_LOOP_9_1", 1, 1, 3)],
        "something": [("VITIS_LOOP_77_1", 1, 1, 3)],
    }
    file = tmp_path / "csynth.xml"
    file.write_text(stand_in.report_xml("top", loops, latency=1))
    found = retiming(subject.program, project, read_hls_report(file))
    assert found.matched == 4
    assert found.unmatched == ("something/VITIS_LOOP_77_1",)
    values = sorted((t.ii, t.depth) for timing in found.timings.values() for t in timing.values())
    assert values == [(4, 7), (6, 9)]


def test_cosimulation_counts_more_than_the_simulator(tool: Path) -> None:
    stand_in.install(tool)
    metrics = HlsEvaluator(cosim=True).evaluate(design())
    assert (metrics.latency_cycles, metrics.cycles_from) == (208, "co-simulation")
    failed = (tool / "top_cosim.rpt").read_text().replace("Pass", "Fail")
    (tool / "top_cosim.rpt").write_text(failed)
    with pytest.raises(HlsToolError, match="co-simulation of top failed"):
        HlsEvaluator(cosim=True).evaluate(design())


def test_the_newer_tool_gets_its_steps_from_the_environment(tool: Path) -> None:
    stand_in.install(tool, name="vitis-run")
    assert HlsEvaluator().unavailable() is None
    assert HlsEvaluator(cosim=True).evaluate(design()).latency_cycles == 208


def test_projects_that_are_kept_are_not_made_again(tool: Path, tmp_path: Path) -> None:
    stand_in.install(tool)
    evaluator = HlsEvaluator(directory=tmp_path / "kept")
    first = evaluator.evaluate(design())
    assert dict(evaluator.evaluate(design())) == dict(first)
    assert stand_in.calls(tool) == 1
    assert (tmp_path / "kept" / design().key / "kernel.cpp").exists()
    evaluator.evaluate(design(depths=(("pipe", 8),)))
    assert stand_in.calls(tool) == 2
    (kernel,) = (tmp_path / "kept").glob(f"{design().key}/kernel.cpp")
    assert first.stream_depths == {"pipe": 2}
    assert "hls::stream<float, 2>" in kernel.read_text()
    HlsEvaluator(directory=tmp_path / "kept", depths="declared").evaluate(design())  # another kernel
    assert stand_in.calls(tool) == 3
    assert "hls::stream<float, 4>" in kernel.read_text()


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("crash", "failed with exit code 1.*undeclared identifier"),
        ("abort", "was ended by signal 6"),
        ("truncated", "no usable report.*truncated"),
        ("garbage", "no usable report"),
        ("nothing", "no usable report"),
    ],
)
def test_what_goes_wrong_in_the_tool_is_named(tool: Path, tmp_path: Path, mode: str, message: str) -> None:
    stand_in.install(tool, mode)
    evaluator = HlsEvaluator(directory=tmp_path / "kept")
    with pytest.raises(HlsToolError, match=message) as caught:
        evaluator.evaluate(design())
    assert caught.value.hint
    stand_in.install(tool)  # a failure is not remembered
    assert evaluator.evaluate(design()).loops_matched == 2


def test_a_tool_that_hangs_is_ended_with_its_children(tool: Path) -> None:
    stand_in.install(tool, "hang")
    start = time.monotonic()
    with pytest.raises(HlsToolError, match=r"longer than 1 s at csynth"):
        HlsEvaluator(seconds=1).evaluate(design())
    assert time.monotonic() - start < 20
    assert not stand_in.is_running(int((tool / "child").read_text()))


def test_what_the_tool_leaves_running_is_ended(tool: Path) -> None:
    stand_in.install(tool, "leave")
    assert HlsEvaluator().evaluate(design()).loops_matched == 2
    assert not stand_in.is_running(int((tool / "child").read_text()))


@pytest.mark.parametrize("mode", ["slow", "flood"])
def test_slow_and_talkative_tools_are_borne(tool: Path, mode: str) -> None:
    stand_in.install(tool, mode)
    assert HlsEvaluator().evaluate(design()).loops_matched == 2


def test_without_a_tool_there_is_a_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = HlsEvaluator().unavailable()
    assert reason is not None
    assert "vitis_hls" in reason
    with pytest.raises(HlsToolError, match="no HLS tool"):
        HlsEvaluator().evaluate(design())


@pytest.mark.parametrize("is_here", [True, False])
def test_a_study_goes_on_without_the_tool(tool: Path, tmp_path: Path, is_here: bool, capsys) -> None:
    if is_here:
        stand_in.install(tool)
    study = dse.Study(
        "chain",
        program=chain,
        device="u280",
        objectives=[dse.minimize("latency_cycles")],
        rungs=[dse.Rung(HlsEvaluator(seconds=60), at_most=1)],
    )
    result = study.run(4, run_dir=tmp_path / "run", progress="plain")
    best = result.best("latency_cycles")
    assert best.metrics.evaluator == ("hls 1" if is_here else f"{FpgaSimulator.name} {FpgaSimulator.version}")
    assert ("(hls 1) is left out: no HLS tool on PATH" in capsys.readouterr().err) != is_here


def test_deadlocks_are_errors_whatever_the_report_says(tool: Path) -> None:
    stand_in.install(tool)
    (tool / "csynth.xml").write_text(stand_in.report_xml("top", {}, latency=100))
    with pytest.raises(SimulationError, match="deadlock"):
        HlsEvaluator().evaluate(design(cyclic))
