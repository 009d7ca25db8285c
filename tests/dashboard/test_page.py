"""What the server sends first: the page with its scatter drawn, in the browser's theme, and what it needs early."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dash import html
from dash.dash import Dash
from werkzeug.test import create_environ

from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.factory import make_app
from allo_dse.dashboard.app.parts import card, facts, save_button, table
from allo_dse.dashboard.app.server import LOCAL, Site, host_of
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.figures.style import DARK, LIGHT, Theme
from allo_dse.dashboard.programs import Programs

from ..support.values import present
from .synthetic import write_run


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    return Board.open([write_run(tmp_path_factory.mktemp("runs") / "made", 100)])


@pytest.fixture(scope="module")
def app(board: Board) -> Dash:
    return make_app(Context(board, Programs(board, None)))


def components(tree: Any) -> Iterator[tuple[str, Any]]:
    """All components of a layout, by id."""
    if isinstance(tree, list):
        for part in tree:
            yield from components(part)
    elif isinstance(tree, dict) and "props" in tree:
        if isinstance(tree["props"].get("id"), str):
            yield tree["props"]["id"], tree["props"]
        yield from components(tree["props"].get("children"))


@pytest.mark.parametrize("look", [LIGHT, DARK])
def test_the_page_comes_with_its_scatter_in_the_theme_of_the_cookie(app: Dash, look: Theme) -> None:
    client = app.server.test_client()
    client.set_cookie("theme", look.name)
    found = dict(components(json.loads(client.get("/_dash-layout").text)))
    names = {trace["name"] for trace in found["scatter"]["figure"]["data"]}
    assert {"dominated", "Pareto front", "knee", "reference"} <= names
    assert found["scatter"]["figure"]["layout"]["font"]["color"] == look.text
    assert "knee of the Pareto front" in json.dumps(found["design-words"])
    assert "100 designs" in json.dumps(found["status"])
    assert found["theme"]["data"] == look.name


@pytest.mark.parametrize(("designs", "said"), [(0, "0 designs"), (1, "1 design ")])
def test_what_can_be_done_depends_on_whether_there_is_a_design(tmp_path: Path, designs: int, said: str) -> None:
    board = Board.open([write_run(tmp_path / "run", designs)])
    client = make_app(Context(board, Programs(board, None))).server.test_client()
    found = dict(components(json.loads(client.get("/_dash-layout").text)))
    assert [found[name]["disabled"] for name in ("open-design", "compare-now", "make-reference")] == [not designs] * 3
    assert said in json.dumps(found["status"])


def test_texts_in_rows_are_one_component_however_many_they_are() -> None:
    """Each of Dash's components asks for its part of the page at every change: of a text each, pages would take
    seconds."""
    rows = [(f"name {number}", str(number)) for number in range(100)]
    shown: Any
    for shown in (facts(rows), table(("name", "value"), rows)):
        assert list(shown._traverse()) == []
        assert "name 99" in json.dumps(shown.to_plotly_json())
    box: Any = card("Title", html.P("shown"), tools=[save_button("plot")], note="what it is")
    assert [type(part).__name__ for part in box._traverse()] == ["Save", "P"]


def test_a_script_does_not_wait_for_what_was_asked_first(board: Board) -> None:
    """As when a page was open before the server was started again, which then is asked for several things at once."""
    app = make_app(Context(board, Programs(board, None)))
    asked = threading.Event()
    app.server.before_request_funcs[None].insert(0, asked.set)
    with board.lock:
        first = threading.Thread(target=app.server.test_client().get, args=("/_dash-layout",))
        first.start()
        asked.wait()
        assert app.server.test_client().get("/_dash-component-suites/dash/dcc/async-graph.js").status_code == 200
    first.join()


def test_large_scripts_come_after_the_page_and_plotly_is_kept_by_the_browser(app: Dash) -> None:
    client = app.server.test_client()
    page = client.get("/").text
    scripts = re.findall(r'<script src="([^"]+)"', page)
    assert not [s for s in scripts if re.search("dash_(ag_grid|cytoscape|table)", s)]
    later = dict(re.findall(r'(dash_\w+): "([^"]+)"', page))
    assert b"AgGrid" in client.get(later["dash_ag_grid"]).data
    assert b"dagre" in client.get(later["dash_cytoscape"]).data
    plotly = client.get(present(re.search(r'src: "([^"]+)"', page))[1])
    assert "immutable" in plotly.headers["Cache-Control"]
    assert plotly.data.startswith(b"//# allFunctionsCalledOnLoad\n/**\n* plotly.js v")


NONSENSE = [b"{", b"[]", b"{}", b"3", b"\xff\xfe", b'{"output": "x", "inputs": []}', b'{"state": {}, "gestures": 3}']


@pytest.mark.parametrize("path", ["/_dash-update-component", "/gestures", "/rows"])
@pytest.mark.parametrize("body", NONSENSE)
def test_requests_that_make_no_sense_are_refused(app: Dash, path: str, body: bytes) -> None:
    found = app.server.test_client().post(path, data=body, content_type="application/json")
    assert found.status_code == 400


@pytest.mark.parametrize("header", ["localhost", "localhost:8050", "[::1]:8050", "127.0.0.1:1"])
def test_names_of_this_computer(header: str) -> None:
    assert host_of(header) in LOCAL


@pytest.mark.parametrize(
    "header",
    ["localhost:evil.com", "localhost:80:evil.com", "evil.com:80", "127.0.0.1.evil.com", "localhost\n", "", "::1"],
)
def test_names_of_others(header: str) -> None:
    assert host_of(header) not in LOCAL


def test_every_answer_keeps_other_sites_out(board: Board, app: Dash) -> None:
    site = Site(app, any_host=False)
    for host, status in [("localhost:1", "200 OK"), ("localhost:evil.com", "403 Forbidden")]:
        seen: dict[str, Any] = {}

        def start(said: str, headers: Any, *_: Any, seen: Any = seen) -> None:
            seen.update(status=said, headers=dict(headers))

        b"".join(site({**create_environ("/growth"), "HTTP_HOST": host}, start))
        assert seen["status"] == status
        assert "frame-ancestors 'self'" in seen["headers"]["Content-Security-Policy"]
        assert seen["headers"]["X-Frame-Options"] == "SAMEORIGIN"
