"""What the server sends first: the page with its scatter drawn, in the browser's theme, and what it needs early."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from dash.dash import Dash

from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.factory import make_app
from allo_dse.dashboard.data.board import Board
from allo_dse.dashboard.figures.style import DARK, LIGHT, Theme
from allo_dse.dashboard.programs import Programs
from tests.support.values import present

from .synthetic import write_run


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Dash:
    board = Board.open([write_run(tmp_path_factory.mktemp("runs") / "made", 100)])
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


def test_the_tables_script_comes_after_the_page_and_plotly_is_kept_by_the_browser(app: Dash) -> None:
    client = app.server.test_client()
    page = client.get("/").text
    scripts = re.findall(r'<script src="([^"]+)"', page)
    assert not [s for s in scripts if "dash_ag_grid" in s or "dash_table" in s]
    grid = present(re.search(r'alloGrid = "([^"]+)"', page))[1]
    assert b"AgGrid" in client.get(grid).data
    plotly = client.get(present(re.search(r'src: "([^"]+)"', page))[1])
    assert "immutable" in plotly.headers["Cache-Control"]
    assert plotly.data.startswith(b"//# allFunctionsCalledOnLoad\n/**\n* plotly.js v")
