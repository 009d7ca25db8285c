"""Designs of an FPGA on their page: timeline, resources, evaluators, failures, and the HLS project, which runs."""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allo_dse.backends.fpga import recording as fpga_recording
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.pages.design import printed_text
from allo_dse.dashboard.app.pages.timeline import moved
from allo_dse.dashboard.data.runs import Board, Ref
from allo_dse.dashboard.figures.timeline import held_rows, help_rows, part_words, path_rows, whole_words
from allo_dse.dashboard.programs import Programs
from allo_dse.eval.recording import Recorded
from allo_dse.simulator.engine import recording
from allo_dse.tune.study import load_studies

from ..support.values import present
from .conftest import served, wait_text

STUDY = """
import allo_dse as dse
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from studies.systolic_fpga import plain


class Tool(FpgaSimulator):
    name = "tool"
    isolate = True

    def evaluate(self, design):
        if design.program.task_count > 8:
            print("module pe: 3.42 ns")
            raise RuntimeError("timing not met")
        return super().evaluate(design)


def study():
    return dse.Study(
        "systolic", program=plain, params={"M": 8, "N": 8, "K": 64, "P": dse.powers_of_two(2, 4)}, device="u280",
        objectives=[dse.minimize("latency_cycles"), dse.minimize("dsp")],
        schedules=[dse.pack("A", [8, 64])],
        rungs=[dse.Rung(Tool, best=1.0)],
        reference=lambda A, B: A.astype("int16") @ B.astype("int16").T,
    )
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: Any) -> Any:
    directory = tmp_path_factory.mktemp("fpga")
    file = directory / "systolic.py"
    file.write_text(STUDY)
    command = ["allo-tune", str(file)]
    load_studies(file, {})[0].run(trials=24, run_dir=directory / "run", progress="quiet", command=command)
    return directory / "run"


@pytest.fixture(scope="module")
def dashboard(run: Any) -> Iterator[tuple[str, Context]]:
    with served(run) as (url, context):
        yield url, context


def failed_and_measured(table: Any) -> Any:
    """A design that the second evaluator failed on, and one that both have measured."""
    promoted = [key for key, rungs in table.promoted.items() if len(rungs) == 2]
    failed = next(key for key in promoted if not table.rungs(key)[1].metrics)
    return failed, next(key for key in promoted if table.rungs(key)[1].metrics and key in table.verified)


def resources(page: Any) -> Any:
    """What is drawn of a design's resources, as soon as it is."""
    page.wait_for_function("() => document.querySelector('#resources .js-plotly-plot')?.data?.length")
    return page.evaluate("() => document.querySelector('#resources .js-plotly-plot').data.map(t => ({ y: t.y }))")


def test_the_recording_is_of_the_run_that_was_measured(run: Any) -> None:
    board = Board.open([run])
    programs = Programs(board)
    programs.load(0)
    for key in failed_and_measured(board.runs[0]):
        ref = Ref(0, board.runs[0].row_of[key])
        found = programs.recorded(ref)
        part = found.part(found.place("middle"))
        cycles = present(board.runs[0].rungs(key)[0].metrics)["latency_cycles"]
        assert part.is_whole
        assert part.timeline.cycles == found.cycles == cycles
        for words in (whole_words(found), part_words(found, part)):
            assert words.startswith(f"All {cycles:,} cycles of the run, at the cost model's intervals.")
        assert path_rows(found, part)
        assert {"DRAM", "pe"} <= {row[0] for row in help_rows(found)}
        assert all(0.49 < helps.share < 1.01 for helps in found.helps)
        assert {"right", "down"} <= {row[0] for row in held_rows(found)}
        kinds = {total.name: total for total in found.totals}
        assert set(kinds) == {"load_a", "load_b", "pe", "load A", "load B", "store C"}
        assert 1 <= kinds["pe"].count <= 16
        assert all(0 <= sum(total.shares) <= 1.001 for total in found.totals)


def recorded_briefly(run: Any) -> Recorded:
    board = Board.open([run])
    programs = Programs(board)
    programs.load(0)
    key = failed_and_measured(board.runs[0])[1]
    return programs.recorded(Ref(0, board.runs[0].row_of[key]))


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few operations are kept, so that runs are long."""
    monkeypatch.setattr(fpga_recording, "MAX_EVENTS", 2_000)
    monkeypatch.setattr(recording, "WINDOW_BUFFER_EVENTS", 256)


def test_parts_of_a_long_run_say_what_they_are_of(run: Any, brief: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    found = recorded_briefly(run)
    whole, length = found.recording.cycles, found.length
    assert length < whole // 2
    middle = found.part(found.place("middle"))
    low = (whole - length) // 2
    high = middle.timeline.end
    assert part_words(found, middle).startswith(f"Cycles {low:,} to {high:,} of {whole:,}, at the cost")
    first, last = (found.part(found.place(name)) for name in ("first", "last"))
    assert first.timeline.start == 0
    assert first.timeline.end < whole
    assert "more operations are not kept at a time" in part_words(found, first)
    assert last.timeline.end == whole
    assert found.opening == found.place("middle")
    monkeypatch.setattr("allo_dse.eval.recording._FAR", 0)
    assert found.opening == found.place("first")
    assert last.timeline.cycles >= length


def test_what_is_used_on_the_page_says_which_part_is_shown(run: Any, brief: Any) -> None:
    found = recorded_briefly(run)
    whole, now = found.recording.cycles, (100, 200)

    def by(name: str, how: str = "n_clicks", **more: Any) -> Any:
        given: dict[str, Any] = {"now": now, "selected": None, "clicked": None, **more}
        return moved(found, f"{name}.{how}", given["now"], given["selected"], given["clicked"])

    assert by("part-show") == (100, 200)
    assert by("part-later") == (200, 300)
    assert by("part-earlier") == (0, 100)
    assert by("part-earlier", now=(30, 130)) == (0, 100)
    assert by("part-later", now=(whole - 150, whole - 50)) == (whole - 100, whole)
    assert by("part-show", now=(200, 100)) == (100, 200)
    assert by("part-show", now=(-50, 10 * whole)) == (0, whole)
    assert by("part-show", now=(None, 7)) is None
    assert by("part-first") == found.place("first")
    area = {"range": {"x": [10.4, 90.6], "y": [0, 1]}}
    assert by("overview-plot", "selectedData", selected=area) == (10, 91)
    assert by("overview-plot", "selectedData", selected=None) is None
    half = found.length // 2
    start, end = by("overview-plot", "clickData", clicked={"points": [{"x": whole / 2}]})
    assert abs(start - (whole / 2 - half)) <= 1
    assert abs(end - (whole / 2 + half)) <= 2


def test_what_helps_by_nothing_has_no_sign() -> None:
    found: Any = SimpleNamespace(cycles=1_000.0, helps=[SimpleNamespace(name="pe", share=0.9999)])
    assert help_rows(found) == [["pe", "1,000", "0.0 %"]]


def test_an_fpga_design_has_timeline_resources_evaluators_and_an_hls_project(
    dashboard: Any, visit: Any, tmp_path: Path
) -> None:
    url, context = dashboard
    _, key = failed_and_measured(context.board.runs[0])
    page = visit(url).open(f"design?design=0:{key}")
    page.wait_for_selector(f"h2 code:text-is('{key}')")
    assert {"lut (LUTs)", "ff (flip-flops)", "dsp (slices)", "bram18 (blocks)", "uram (blocks)"} == set(
        resources(page)[0]["y"]
    )
    head = page.locator("#design-page .card:has(h2:text-is('Metrics by evaluator')) th").all_inner_texts()
    assert [name.split(" ")[0] for name in head] == ["", "fpga-simulator", "tool"]
    page.locator(".badge:text-is('verified')").wait_for()
    page.click("button:has-text('Compile the program')")
    for plot in ("timeline-plot", "totals-plot", "occupancy-plot"):
        page.wait_for_function(f"() => document.querySelector('#{plot} .js-plotly-plot')?.data?.length")
    names = page.evaluate("() => document.querySelector('#timeline-plot .js-plotly-plot').data.map(t => t.name)")
    assert {"works", "waits for a token", "critical path"} <= set(names)
    wait_text(page, "#page-design", "sets the pace")
    help_card = page.locator("#design-page .card:has(h2:text-is('What would help'))")
    help_card.locator("td:text-is('DRAM')").wait_for()
    page.wait_for_selector("canvas[data-id]", state="attached")
    with page.expect_download() as download:
        page.click("#design-page button:text-is('HLS project')")
    zipfile.ZipFile(download.value.path()).extractall(tmp_path)
    names = {path.name for path in tmp_path.iterdir()}
    assert {"kernel.cpp", "kernel.h", "testbench.cpp", "Makefile", "run_hls.tcl"} <= names
    if shutil.which("g++") and shutil.which("make"):
        made = subprocess.run(["make", "csim"], cwd=tmp_path, capture_output=True, text=True, timeout=300)
        assert made.returncode == 0, made.stderr


def test_any_part_of_a_run_can_be_looked_at(run: Any, serve: Any, visit: Any, brief: Any) -> None:
    url, context = serve(run)
    _, key = failed_and_measured(context.board.runs[0])
    context.programs.load(0)
    page = visit(url).open(f"design?design=0:{key}")

    def shown() -> Any:
        """Where the timeline's axis begins and ends."""
        drawn = "() => document.querySelector('#timeline-plot .js-plotly-plot')?.layout?.xaxis?.range"
        return page.wait_for_function(drawn).json_value()

    def wait_until(start: Any, end: int | None) -> None:
        page.wait_for_function(
            """([start, end]) => { const plot = document.querySelector('#timeline-plot .js-plotly-plot');
            const range = plot?.layout?.xaxis?.range;
            return range && Math.abs(range[0] - start) < 1 && (end === null || Math.abs(range[1] - end) < 1); }""",
            arg=[start, end],
        )

    page.wait_for_function(  # what lies above has its height
        "() => document.querySelector('canvas[data-id]')"
    )
    whole = present(context.board.runs[0].rungs(key)[0].metrics)["latency_cycles"]
    start, end = shown()
    assert 0 < start < end < whole
    page.get_by_text(f"Cycles {start:,} to {end:,} of {whole:,}, at the cost").wait_for()
    page.click("#part-first")
    wait_until(0, None)
    page.fill("#part-from", "100")
    page.fill("#part-to", "150")
    page.press("#part-to", "Enter")
    wait_until(100, 150)
    page.click("#part-later")
    wait_until(150, 200)
    page.wait_for_function("() => document.querySelector('#part-from').value === '150'")
    box = page.locator("#overview-plot .nsewdrag").first.bounding_box()
    middle = box["y"] + box["height"] / 2
    page.mouse.move(box["x"] + 0.5 * box["width"], middle)
    page.mouse.down()
    page.mouse.move(box["x"] + 0.505 * box["width"], middle, steps=3)
    page.mouse.move(box["x"] + 0.51 * box["width"], middle, steps=3)
    page.mouse.up()
    wait_until(whole / 2, None)
    frame = page.evaluate("() => document.querySelector('#overview-plot .js-plotly-plot').layout.shapes[0].x0")
    assert frame == shown()[0]
    page.click("#theme-button")  # the page is drawn again, with the same part
    page.wait_for_function("() => document.querySelector('#timeline-plot .js-plotly-plot')?.layout?.xaxis?.range")
    wait_until(frame, None)


def test_a_design_that_failed_says_where_why_and_what_was_printed(run: Any, serve: Any, visit: Any) -> None:
    url, context = serve(run)  # where the program is not compiled: there is less to draw
    key, _ = failed_and_measured(context.board.runs[0])
    page = visit(url).open(f"design?design=0:{key}")
    page.wait_for_selector(f"h2 code:text-is('{key}')")
    card = page.locator(f"#design-page .card:has(h2:text-is('Failed: tool {FpgaSimulator.version}'))")
    card.wait_for()
    assert "timing not met" in card.inner_text()
    card.locator("summary").click()
    assert "module pe: 3.42 ns" in card.inner_text()
    page.locator(".badge:text-is('failed: RuntimeError: timing not met')").wait_for()
    assert len(resources(page)) == 1


def test_only_files_of_the_runs_logs_are_shown(run: Any) -> None:
    assert printed_text(run, "run.json") == ""
    assert printed_text(run, "logs/../run.json") == ""
    assert printed_text(run, str(run / "run.json")) == ""
    assert printed_text(run, "") == ""
    name = next((run / "logs").iterdir()).name
    assert "3.42 ns" in printed_text(run, f"logs/{name}")


def test_the_command_that_reproduces_the_run_runs(run: Any, tmp_path: Path) -> None:
    facts, other = json.loads((run / "run.json").read_text()), tmp_path / "again"
    options = ["--trials", "4", "--run-dir", str(other)]
    command = [sys.executable, "-m", "allo_dse", *facts["command"][1:], *options]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}  # where the study's program is
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    first, again = (next(iter(Board.open([path]).runs[0].keys)) for path in (run, other))
    assert again == first
