"""The report: one file that opens without a network, with the same pictures and nothing that could be executed."""

import base64
import copy
import json
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import script_json
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.figures.style import DARK, LIGHT
from allo_dse.dashboard.programs import Programs
from allo_dse.dashboard.report import changes, squeezed, write_report

from ..support.values import present
from .synthetic import verify, write_run


def written(path: Path, *runs: Path) -> Any:
    board = Board.open(list(runs))
    size = write_report(board, Programs(board), path)
    assert size == path.stat().st_size
    return board, path.read_text()


def figures(html: str) -> Any:
    """The plots of a report, as its script finds them."""
    letters = present(re.search(r'<script id="figures" type="text/plain">(.*?)</script>', html, re.DOTALL))[1]
    return json.loads(zlib.decompress(base64.b85decode(letters.replace(",", "<").replace("'", "&"))))


def test_a_report_of_a_thousand_designs_is_small(tmp_path: Path) -> None:
    _, html = written(tmp_path / "report.html", write_run(tmp_path / "made", 1_000))
    assert len(html) < 2_000_000


@given(st.text(st.characters(codec="utf-8")))
def test_what_is_squeezed_is_letters(text: str) -> None:
    assert not set("<&") & set(squeezed(text))
    assert zlib.decompress(base64.b85decode(squeezed(text).replace(",", "<").replace("'", "&"))).decode() == text


def test_a_report_opens_without_a_network_in_the_browsers_theme_and_has_a_switch(tmp_path: Path, visit: Any) -> None:
    run = write_run(tmp_path / "made", 200)
    board, _ = written(tmp_path / "report.html", run)
    page = visit("file://", offline=True, color_scheme="dark").page
    page.goto(f"file://{tmp_path}/report.html")
    text = "() => document.getElementById('front-0').layout?.font.color === '{}'"
    page.wait_for_function(text.format(DARK.text))
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(232, 235, 240)"
    page.press("#theme", "Enter")
    page.wait_for_function(text.format(LIGHT.text))
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.locator("#lost").scroll_into_view_if_needed()
    page.wait_for_function("() => document.getElementById('lost').layout?.font.color === '#1b1f24'")
    for plot in (
        "front-0",
        "parallel",
        "history-0",
        "hypervolume",
        "designs-time",
        "importance-0",
        "workers",
        "bound-0",
    ):
        page.locator(f"#{plot}").scroll_into_view_if_needed()
        page.wait_for_function(f"() => document.getElementById('{plot}').data?.length > 0")
    shown = page.evaluate(
        "() => document.getElementById('front-0').data.find(t => t.name === 'Pareto front').text.length"
    )
    assert shown == len(board.runs[0].front)
    rows = page.locator("tbody tr").count()
    assert rows >= len(board.runs[0].front)


def test_every_plot_of_the_report_has_a_text_alternative(tmp_path: Path) -> None:
    _, html = written(tmp_path / "report.html", write_run(tmp_path / "made", 60))
    plots = re.findall(r'<div id="([\w-]+)" role="img" aria-label="([^"]+)"', html)
    assert {name for name, _ in plots} == set(figures(html))
    assert all(label for _, label in plots)


_LEAVES = st.integers(0, 3) | st.sampled_from("ab")
_KEYS = st.sampled_from("xyz")
_VALUES = st.recursive(_LEAVES, lambda part: st.lists(part, max_size=3) | st.dictionaries(_KEYS, part, max_size=3))


@given(_VALUES, _VALUES)
def test_changes_lead_from_one_figure_to_the_other(first: Any, second: Any) -> None:
    value = {"figure": copy.deepcopy(first)}
    for keys, new in changes({"figure": first}, {"figure": second}):
        part = value
        for key in keys[:-1]:
            part = part[key]
        part[keys[-1]] = new
    assert value == {"figure": second}


def test_the_report_says_what_the_run_was(tmp_path: Path) -> None:
    run = write_run(tmp_path / "made", 100)
    board = Board.open([run])
    key = board.runs[0].keys[present(board.runs[0].knee)]
    verify(run, key, ok=True, message="equal to the reference (64x64)")
    _, html = written(tmp_path / "report.html", run)
    for text in ("allo-tune studies/made_up.py", key, "equal to the reference (64x64)", "npu1_4col", "knee"):
        assert text in html


def test_a_report_of_two_runs_has_both(tmp_path: Path) -> None:
    _, html = written(tmp_path / "r.html", write_run(tmp_path / "one", 60), write_run(tmp_path / "two", 60))
    names = {trace.get("name") for trace in figures(html)["front-0"]["figure"]["data"]}
    assert {"front: one", "front: two"} <= names


def test_names_cannot_break_out_of_the_report(tmp_path: Path) -> None:
    name = "</script><script>alert(1)</script>"
    run = write_run(tmp_path / "<img src=x>", 60, name=name)
    _, html = written(tmp_path / "report.html", run)
    assert name not in html
    assert "<img src=x>" not in html
    assert "front-0" in figures(html)


def test_json_in_scripts_survives_any_text() -> None:
    text = "</script> <!-- & \u2028 ü"
    encoded = script_json({"x": text})
    assert json.loads(encoded)["x"] == text
    assert not set("<>&\u2028") & set(encoded)


def test_a_run_without_designs_has_no_report(tmp_path: Path) -> None:
    board = Board.open([write_run(tmp_path / "made", 0)])
    with pytest.raises(StudyError, match="no evaluated design"):
        write_report(board, Programs(board), tmp_path / "r.html")
    board = Board.open([write_run(tmp_path / "more", 30)])
    with pytest.raises(StudyError, match="cannot write"):
        write_report(board, Programs(board), tmp_path / "absent" / "r.html")
