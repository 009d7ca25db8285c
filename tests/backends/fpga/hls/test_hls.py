"""The HLS evaluator with a stand-in for the tool: its reports take the place of the model, misbehaviour is named."""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.fpga.hls import emit_project
from allo_dse.backends.fpga.hls.evaluator import HlsTool, HlsToolError
from allo_dse.backends.fpga.hls.retime import retiming
from allo_dse.backends.fpga.recording import recorded
from allo_dse.backends.fpga.report.report_files import read_hls_report
from allo_dse.common.errors import SimulationError
from allo_dse.compiler.program.compiled import Directive
from allo_dse.dashboard.app.pages.design import model_against_tool
from allo_dse.dashboard.figures.timeline import part_words
from allo_dse.device.device import FpgaDevice
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.space.design import Design
from allo_dse.tune.show.output import predicted_reported_rows
from tests.support.commands import allo_tune

from . import stand_in

install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32

N = 64


def chain() -> Any:
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


def cyclic() -> Any:
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


def design(make: Callable[..., Any] = chain, **options: Any) -> Design:
    program = dse.load_program(make)
    return Design(program, unfolded(program), dse.Buffering(), FpgaDevice.load("u280"), **options)


def loops_of(subject: Design, ii: int, depth: int) -> stand_in.Loops:
    """What the tool would say of the project: every function's nest as one loop, named by its labels."""
    project = emit_project(subject.program, device=FpgaDevice.of(subject.device))
    return {
        f"{function}_Pipeline": [("_".join(labels), N * N, ii, depth)] for function, labels in project.loops.items()
    }


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory that is first on PATH, with a report for `chain` at II 3 and depth 12."""
    directory = tmp_path / "tool"
    directory.mkdir()
    monkeypatch.setenv("PATH", f"{directory}{os.pathsep}{os.environ['PATH']}")
    report = stand_in.report_xml("top", loops_of(design(), 3, 12), latency=4321, units=[("fmul", "fulldsp", 5, 2)])
    (directory / "csynth.xml").write_text(report)
    source = Path(__file__).parents[3] / "data" / "hls" / "project" / "solution1" / "sim" / "report" / "top_cosim.rpt"
    shutil.copy(source, directory)
    return directory


def test_cycles_are_the_simulators_at_the_intervals_of_the_report(tool: Path) -> None:
    stand_in.install(tool)
    metrics = HlsTool().evaluate(design())
    model = FpgaSimulator("declared").evaluate(design())
    slower = 2 * (N * N - 1)  # II 3, where the model says 1; both loops run at the same time
    assert metrics.latency_cycles == pytest.approx(model.latency_cycles + slower, abs=30)
    assert metrics.cycles_from.startswith("simulator")
    assert metrics.report_latency_cycles == 4321
    assert (metrics.dsp, metrics.lut, metrics.bram18) == (3, 1200, 4)
    assert metrics.latency_us == pytest.approx(metrics.latency_cycles * 3.33e-3)
    assert (metrics.loops_matched, metrics.loops_unmatched) == (2, [])
    assert metrics.hls_tool == "2023.2"


def test_resources_that_a_report_does_not_state_are_not_known(tool: Path) -> None:
    """They were 0, and nothing of the device seemed to be used."""
    stand_in.install(tool)
    whole = HlsTool().evaluate(design())
    assert (whole.binding, whole.utilization) == ("bram18", whole.bram18_utilization)
    report = (tool / "csynth.xml").read_text()
    (tool / "csynth.xml").write_text(report.replace("<LUT>1200</LUT>", "<LUT>-</LUT>"))
    metrics = HlsTool().evaluate(design())
    assert (metrics.ff, metrics.uram) == (900, 0)
    assert not {"lut", "lut_utilization", "utilization", "binding"} & set(metrics)


def test_a_recording_of_a_design_that_the_tool_has_measured_is_of_what_it_reported(tool: Path) -> None:
    stand_in.install(tool)
    metrics = HlsTool().evaluate(design())
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
        cycles.append(HlsTool().evaluate(design()).latency_cycles)
    assert cycles[1] - cycles[0] == pytest.approx(200, abs=4)  # both processes are 100 deeper


def test_copies_of_tensors_take_the_time_of_their_processes(tool: Path) -> None:
    stand_in.install(tool)
    cycles = []
    for copy in (8263, 12359):  # of 2 and 3 cycles an element; an element a cycle needs no process for bursts
        text = stand_in.report_xml("top", loops_of(design(), 1, 10), latency=1, copies={"load_A": copy})
        (tool / "csynth.xml").write_text(text)
        cycles.append(HlsTool().evaluate(design()).latency_cycles)
    assert cycles[1] - cycles[0] == pytest.approx(4096, abs=4)


def test_loops_are_found_by_their_labels(tool: Path, tmp_path: Path) -> None:
    subject = design()
    project = emit_project(subject.program, device=FpgaDevice.of(subject.device))
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
    metrics = HlsTool(cosim=True).evaluate(design())
    assert (metrics.latency_cycles, metrics.cycles_from) == (208, "co-simulation")
    failed = (tool / "top_cosim.rpt").read_text().replace("Pass", "Fail")
    (tool / "top_cosim.rpt").write_text(failed)
    with pytest.raises(HlsToolError, match="co-simulation of top failed"):
        HlsTool(cosim=True).evaluate(design())


def test_the_newer_tool_gets_its_steps_from_the_environment(tool: Path) -> None:
    stand_in.install(tool, name="vitis-run")
    assert HlsTool().unavailable() is None
    assert HlsTool(cosim=True).evaluate(design()).latency_cycles == 208


def test_projects_that_are_kept_are_not_made_again(tool: Path, tmp_path: Path) -> None:
    stand_in.install(tool)
    evaluator = HlsTool(directory=tmp_path / "kept")
    first = evaluator.evaluate(design())
    assert dict(evaluator.evaluate(design())) == dict(first)
    assert stand_in.calls(tool) == 1
    assert (tmp_path / "kept" / design().key / "kernel.cpp").exists()
    evaluator.evaluate(design(depths=(("pipe", 8),)))
    assert stand_in.calls(tool) == 2
    (kernel,) = (tmp_path / "kept").glob(f"{design().key}/kernel.cpp")
    assert first.stream_depths == {"pipe": 2}
    assert "hls::stream<float, 2>" in kernel.read_text()
    HlsTool(directory=tmp_path / "kept", depths="declared").evaluate(design())  # another kernel
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
    evaluator = HlsTool(directory=tmp_path / "kept")
    with pytest.raises(HlsToolError, match=message) as caught:
        evaluator.evaluate(design())
    assert caught.value.hint
    stand_in.install(tool)  # a failure is not remembered
    assert evaluator.evaluate(design()).loops_matched == 2


def test_a_tool_that_hangs_is_ended_with_its_children(tool: Path) -> None:
    stand_in.install(tool, "hang")
    child = tool / "child"
    for seconds in (1, 10, 100):  # until it has started one
        with pytest.raises(HlsToolError, match=f"longer than {seconds} s at csynth"):
            HlsTool(seconds=seconds).evaluate(design())
        if child.exists() and child.read_text():
            break
    assert stand_in.ends(int(child.read_text()))


def test_what_the_tool_leaves_running_is_ended(tool: Path) -> None:
    stand_in.install(tool, "leave")
    assert HlsTool().evaluate(design()).loops_matched == 2
    assert stand_in.ends(int((tool / "child").read_text()))


@pytest.mark.parametrize("mode", ["slow", "flood"])
def test_slow_and_talkative_tools_are_borne(tool: Path, mode: str) -> None:
    stand_in.install(tool, mode)
    assert HlsTool().evaluate(design()).loops_matched == 2


def test_without_a_tool_there_is_a_message(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    reason = HlsTool().unavailable()
    assert reason is not None
    assert "vitis_hls" in reason
    with pytest.raises(HlsToolError, match="no HLS tool"):
        HlsTool().evaluate(design())


@pytest.mark.parametrize("is_here", [True, False])
def test_a_study_goes_on_without_the_tool(
    tool: Path, tmp_path: Path, is_here: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    if is_here:
        stand_in.install(tool)
    study = dse.Study(
        "chain",
        program=chain,
        device="u280",
        objectives=[dse.minimize("latency_cycles")],
        rungs=[dse.Rung(HlsTool(seconds=60), at_most=1)],
    )
    result = study.run(4, run_dir=tmp_path / "run", progress="plain")
    best = result.best("latency_cycles")
    assert best.metrics.evaluator == ("hls 1" if is_here else f"{FpgaSimulator.name} {FpgaSimulator.version}")
    assert ("(hls 1) is left out: no HLS tool on PATH" in capsys.readouterr().err) != is_here


_STUDY = """
import sys
sys.path.insert(0, {root!r})
import allo_dse as dse
from tests.backends.fpga.hls.test_hls import chain

study = dse.Study(
    "chain",
    program=chain,
    device="u280",
    schedules="auto",
    objectives=[dse.minimize("latency_cycles")],
    rungs=[dse.Rung(dse.HlsTool(seconds=60), at_most=2)],
)
"""


@pytest.mark.parametrize("mode", ["ok", "crash"])
def test_a_run_says_what_the_tool_made_of_its_designs(tool: Path, tmp_path: Path, mode: str) -> None:
    stand_in.install(tool, mode)
    (tmp_path / "study.py").write_text(_STUDY.format(root=str(Path(__file__).parents[4])))
    done = allo_tune("study.py", "--trials", "8", "--run-dir", "run", cwd=tmp_path)
    shown = " ".join(done.stdout.split())
    if mode == "crash":
        assert done.returncode == 1, done.stderr
        said = r"hls 1 failed for (\d) of \1 designs, which are left out: \1 x HlsToolError: vitis_hls failed with"
        assert re.search(said, shown), shown
        assert "undeclared identifier" in shown
        assert "Model against" not in shown
    else:
        assert done.returncode == 0, done.stderr
        assert "Model against hls 1" in shown
        assert "failed" not in shown
        main_of(tmp_path, "calibrate", "run", "-o", "mine.toml")
        row = FpgaDevice.load(tmp_path / "mine.toml").operator("f32", "mul")
        assert row is not None
        assert (row.latency, row.dsp) == (5, 2)


def main_of(directory: Path, *arguments: str) -> str:
    """What the command line says, run in a directory."""
    done = allo_tune(*arguments, cwd=directory)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_predictions_stand_beside_what_was_reported(tool: Path) -> None:
    stand_in.install(tool)
    subject = design(schedule=(Directive("pipeline", "scale", "i", {"initiation_interval": 1}),))
    (tool / "csynth.xml").write_text(stand_in.report_xml("top", loops_of(subject, 3, 21), latency=1, dsp=7))
    metrics = HlsTool(depths="declared").evaluate(subject)
    found = metrics.predicted_reported
    model = FpgaSimulator(depths="declared").evaluate(subject)
    assert found["cycles"] == model.latency_cycles
    assert found["resources"]["dsp"] == [model.dsp, 7]
    # The model pipelines the loop around the one that the report has, whose rounds it unrolls.
    assert [(one["loop"], one["ii"]) for one in found["loops"] if one["function"] == "scale_all"] == [
        ("i_0", [64, None]),
        ("j_1", [None, 3]),
    ]
    rows = predicted_reported_rows(metrics)
    assert ("scale_all/j_1", "depth", "-", "21", "") in rows
    assert ("design", "dsp", "3", "7", "-57 %") in rows
    assert predicted_reported_rows({}) == []


def test_loops_that_model_and_tool_pipeline_stand_in_one_row(tool: Path) -> None:
    stand_in.install(tool)
    inner = tuple(
        Directive("pipeline", kernel, "j", {"initiation_interval": 1, "rewind": False}) for kernel in ("scale", "load")
    )
    metrics = HlsTool(depths="declared").evaluate(design(schedule=inner))
    loops = metrics.predicted_reported["loops"]
    assert [one["ii"] for one in loops] == [[1, 3], [1, 3]]
    assert ("scale_all/j_1", "ii", "1", "3", "-67 %") in predicted_reported_rows(metrics)


def test_the_earlier_name_is_the_same_evaluator() -> None:
    assert dse.HlsEvaluator is dse.HlsTool is HlsTool


def test_deadlocks_are_errors_whatever_the_report_says(tool: Path) -> None:
    stand_in.install(tool)
    (tool / "csynth.xml").write_text(stand_in.report_xml("top", {}, latency=100))
    with pytest.raises(SimulationError, match="deadlock"):
        HlsTool().evaluate(design(cyclic))


def test_the_design_page_shows_predicted_against_reported(tool: Path) -> None:
    stand_in.install(tool)
    metrics = HlsTool(depths="declared").evaluate(design())
    (shown,) = model_against_tool(metrics)
    text = str(shown)
    assert "Model against the HLS tool" in text
    assert all(cell in text for row in predicted_reported_rows(metrics) for cell in row if cell)
    assert model_against_tool({}) == []
