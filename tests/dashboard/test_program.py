"""What needs the program: graphs, placement, timeline and exports of designs of a real run."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.dashboard.data.analysis import measured
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.exports import exported, reproduce_text
from allo_dse.dashboard.figures.timeline import part_words
from allo_dse.dashboard.programs import Programs
from allo_dse.dashboard.report import render
from allo_dse.eval.backend import backend_of
from allo_dse.tune.study import load_studies

STUDY = Path(__file__).parents[2] / "studies" / "gemm_npu.py"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("runs") / "gemm"
    study = load_studies(STUDY, {"size": "256"})[0]
    command = ["allo-tune", str(STUDY), "--set", "size=256"]
    study.run(trials=12, run_dir=path, progress="quiet", verify=False, command=command)
    return path


@pytest.fixture(scope="module")
def opened(run: Path) -> Any:
    board = Board.open([run])
    return board, Programs(board), board.knee


def test_nothing_is_executed_until_asked_for(opened: Any) -> None:
    board, programs, ref = opened
    fresh = Programs(board)
    assert not fresh.is_loaded(0)
    with pytest.raises(StudyError, match="not compiled"):
        fresh.candidate(ref)
    programs.load(0)
    assert programs.candidate(ref).key == board.runs[0].keys[ref.row]


def test_mapping_primitives_are_those_of_the_design(opened: Any) -> None:
    board, programs, ref = opened
    name, content = exported(board, programs, ref, "primitives")
    scope: dict[str, Any] = {}
    exec(content, scope)
    design = programs.candidate(ref).design
    assert name.endswith("mapping.py")
    assert [(kind, list(what)) for kind, what in scope["mapping_primitives"]()] == design.mapping_primitives


def test_build_files_are_complete_and_only_fpga_designs_have_hls_projects(opened: Any) -> None:
    board, programs, ref = opened
    _, content = exported(board, programs, ref, "build")
    names = zipfile.ZipFile(io.BytesIO(content)).namelist()
    assert {"mapping.py", "parameters.json", "build.py", "program.py"} <= set(names)
    with pytest.raises(StudyError, match="no project"):
        exported(board, programs, ref, "project")


def test_the_lines_that_rebuild_a_design_run(opened: Any, capsys: pytest.CaptureFixture[str]) -> None:
    board, programs, ref = opened
    lines = reproduce_text(board, programs, ref).splitlines()
    exec("\n".join(lines[lines.index("# this design alone, in Python") :]), {})
    assert str(board.runs[0].columns["latency_us"].value(ref.row))[:8] in capsys.readouterr().out


def test_the_timeline_is_of_what_runs_between_two_interventions_of_the_host(opened: Any) -> None:
    board, programs, ref = opened
    programs.load(0)
    design = programs.candidate(ref).design
    found = backend_of(design.device).record(design, measured(board.runs[0], ref.row))
    part = found.part(found.place("middle"))
    assert found.cycles > 100
    assert "period" in part_words(found, part)
    assert "sets the pace" in part_words(found, part)
    assert {total.name for total in found.totals} >= {"cores", "shim channels"}


def test_the_report_of_a_loaded_program_has_the_same_pictures(opened: Any, visit: Any, tmp_path: Path) -> None:
    board, programs, ref = opened
    programs.load(0)
    html = render(board, programs, None)
    assert "def mapping_primitives" in html
    assert "bound by" in html
    (tmp_path / "report.html").write_text(html)
    page = visit("file://", offline=True).page
    page.goto(f"file://{tmp_path}/report.html")
    for name in ("timeline-0", "totals-0", "occupancy-0", "resources-0"):
        page.locator(f"#{name}").scroll_into_view_if_needed()
        page.wait_for_function(f"() => document.getElementById('{name}').data?.length")
    key = board.runs[0].keys[ref.row]
    section = page.locator("section:has(#timeline-0)")
    assert key in page.inner_text("#design-0")
    sizes = section.locator("img").evaluate_all("images => images.map(image => image.naturalWidth)")
    assert len(sizes) == 3
    assert min(sizes) > 100
    assert "Critical path of the" in section.inner_text()


def test_a_study_that_has_changed_is_not_mistaken_for_the_runs(run: Path, tmp_path: Path) -> None:
    board = Board.open([run])
    other = tmp_path / "gemm_npu.py"
    other.write_text(STUDY.read_text().replace('f"gemm_npu_{dtype}"', 'f"renamed_{dtype}"'))
    with pytest.raises(StudyError, match="no study"):
        Programs(board, other).load(0)


def test_the_page_compiles_draws_and_exports(run: Path, visit: Any, serve: Any) -> None:
    url, context = serve(run)
    page = visit(url).open("design")
    page.click("button:has-text('Compile the program')")
    page.wait_for_function("() => document.querySelector('.svg-box img')?.naturalWidth > 100")
    page.wait_for_function(
        """() => document.querySelector('#timeline-plot .js-plotly-plot')?.data?.some(
            t => t.name === 'critical path')"""
    )
    page.get_by_text("sets the pace").wait_for()
    with page.expect_download() as download:
        page.click("#page-design button:has-text('mapping_primitives')")
    assert "def mapping_primitives" in download.value.path().read_text()
    assert json.loads((run / "run.json").read_text())["study"] == context.board.runs[0].facts.study
