"""The graph of a design's page: what is known of its nodes and streams, and how it is searched and clicked."""

from pathlib import Path
from typing import Any

import pytest

from allo_dse.backends.npu.place.placed_design import PlacedDesign
from allo_dse.dashboard.app.pages.graphs import counted
from allo_dse.dashboard.data.analysis import measured
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.figures.graph import LAYERS, arrangement, box_facts, elements, flow_facts, stylesheet
from allo_dse.dashboard.figures.style import LIGHT
from allo_dse.dashboard.programs import Programs
from allo_dse.drawing.summary import summarise
from allo_dse.eval.backend import backend_of
from allo_dse.tune.study import load_studies

from .conftest import wait_text

STUDIES = Path(__file__).parents[2] / "studies"
GRAPH = "[...document.querySelectorAll('*')].find(e => e._cyreg)?._cyreg.cy"


def made(directory: Path, file: str, **settings: str) -> Path:
    study = load_studies(STUDIES / file, settings)[0]
    command = ["allo-tune", str(STUDIES / file), *(f"--set={name}={value}" for name, value in settings.items())]
    study.run(trials=4, run_dir=directory / "run", progress="quiet", verify=False, command=command)
    return directory / "run"


@pytest.fixture(scope="module")
def systolic(tmp_path_factory: Any) -> Path:
    return made(tmp_path_factory.mktemp("systolic"), "systolic_fpga.py", size="4")


def test_streams_say_their_depth_and_their_tokens_and_nodes_what_they_do(systolic: Path) -> None:
    board = Board.open([systolic])
    programs, ref = Programs(board), board.knee
    assert ref is not None
    programs.load(0)
    design = programs.candidate(ref).design
    summary, run = summarise(design.vmg), backend_of(design.device).record(design, measured(board.runs[0], ref.row))
    assert arrangement(summary) == LAYERS
    flows = [dict(facts) for facts in flow_facts(summary, run)]
    assert len(flows) == len(summary.flows) > 0
    whole = run.recording.whole
    for facts, flow in zip(flows, summary.flows, strict=True):
        assert facts["tokens simulated"] == facts["tokens over the run"] == f"{flow.tokens:,}"
        assert int(facts["most tokens held at a time"]) <= int(facts["depth"]) <= whole.cycles
    boxes = [dict(facts) for facts in box_facts(summary, run, None)]
    for facts in boxes:
        shares = [int(facts[name].rstrip("%")) for name in facts if name.startswith(("works", "waits", "idle"))]
        assert len(shares) == 5
        assert abs(sum(shares) - 100) <= 3  # rounded
        assert facts["runs"]
        assert all(facts)  # no value stands without its name
    drawn = elements(summary, box_facts(summary, run, None), flow_facts(summary, run))
    names = {item["data"]["id"] for item in drawn}
    assert {item["data"][end] for item in drawn for end in ("source", "target") if end in item["data"]} <= names


def test_nodes_on_an_array_say_what_they_hold(tmp_path: Path) -> None:
    board = Board.open([made(tmp_path, "attention_npu.py")])
    programs, ref = Programs(board), board.knee
    assert ref is not None
    programs.load(0)
    design, placed = programs.candidate(ref).design, programs.placement(ref)
    assert isinstance(placed, PlacedDesign)
    summary, run = summarise(design.vmg), programs.recorded(ref)
    streams = sum(flow.streams for flow in summary.flows)
    assert counted(summary).endswith(f" {streams:,} streams in {len(summary.flows)} lines")
    assert run.note.startswith("all ")
    assert run.note.endswith(" of the schedule, without the host's time")  # which the design's latency has
    for number, facts in enumerate(box_facts(summary, run, placed)):
        use = placed.usage[placed.tiles[number]]
        assert dict(facts)["memory"].startswith(f"{use.bytes:,} of ")
        assert "works" in dict(facts)
    assert all("depth" in dict(facts) for facts in flow_facts(summary, run))


def test_a_search_is_a_text_whatever_it_contains() -> None:
    fades, hit, _ = stylesheet(LIGHT, ' pe"] , node ')[-3:]
    assert fades["style"]["opacity"] < 1
    assert hit["selector"] == 'node[label @*= "pe\\"] , node"]'
    assert stylesheet(LIGHT, "  ") == stylesheet(LIGHT)


def tapped(page: Any, what: str, said: str) -> None:
    """Tap a part of the graph until something is said of it: the component draws twice, and forgets the first."""
    page.wait_for_function(
        f"""said => {{ {GRAPH}?.{what}?.emit('tap');
            return document.querySelector('.graph-facts').textContent.includes(said); }}""",
        arg=said,
        polling=100,
    )


def test_nodes_and_streams_are_found_and_clicked(systolic: Path, visit: Any, serve: Any) -> None:
    url, context = serve(systolic)
    context.programs.load(0)
    page = visit(url).open("design")
    page.wait_for_function(f"() => {GRAPH}?.nodes().length")
    titles = page.evaluate(f"() => {GRAPH}.nodes().map(n => n.data('title'))")
    tapped(page, "nodes()[0]", titles[0])
    wait_text(page, ".graph-facts", "waits for a token")
    tapped(page, "edges()[0]", "most tokens held at a time")
    page.get_by_label("find").fill(titles[0].upper())
    page.wait_for_function(f"() => {GRAPH}.nodes().filter(n => n.numericStyle('opacity') === 1).length === 1")
    page.get_by_label("as written").check()
    wait_text(page, "#page-design", "boxes (")
