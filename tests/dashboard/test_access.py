"""Pages for everybody: texts that can be read, names for what can be pressed, and nothing fetched from elsewhere."""

import os
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from allo_dse.tune.store.log import RunLog

from ..support.listening import listening
from .conftest import served
from .synthetic import design, write_run

READABLE = (Path(__file__).parent / "readable.js").read_text()
NOTHING: dict[str, list[str]] = {"faint": [], "nameless": [], "pictures": []}
BROKEN = """() => {
    const lines = (element) => {
        const range = document.createRange();
        range.selectNodeContents(element);
        return range.getClientRects().length;
    };
    return [...document.querySelectorAll(".facts dd, .table-box, #design-words")]
        .filter(e => e.matches("dd") ? e.textContent.length < 8 && lines(e) > 1 : e.scrollWidth > e.clientWidth)
        .map(e => e.textContent);
}"""
"""Short values that are broken into lines, and what has a part that is out of sight."""
OWN_COLOURS = """() => ['.ag-root-wrapper', '#table-card']
    .map(name => getComputedStyle(document.querySelector(name))).map(style => [style.backgroundColor, style.color])"""
"""Of the table, and of the card that it is in."""
NARROW = 420
PAGES = {"front": "scatter", "progress": "workers", "design": "bound", "compare": "compare-plot"}
"""Pages, and the plot on each that is drawn last."""


NAME = "grouped_query_attention_with_rotary_embedding_of_long_sequences"


@pytest.fixture(scope="module")
def dashboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Of a run in which names are as long as some people's."""
    path = write_run(tmp_path_factory.mktemp("runs") / "made", 0)
    log = RunLog(path / "log.jsonl")
    log.append(
        {**made.to_dict(), "params": {NAME: made.params["tile"]}, "fold": {"kernels": [{**kernel, "kernel": NAME}]}}
        for made in map(design, range(120))
        for kernel in made.fold["kernels"]
    )
    log.close()
    with served(path) as (url, _):
        yield url


def drawn(page: Any, name: str) -> None:
    page.wait_for_function(f"() => document.querySelector('#{PAGES[name]} .js-plotly-plot')?.data?.length")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_narrow_window_and_can_be_read_and_nothing_is_fetched_from_elsewhere(
    dashboard: Any, visit: Any, scheme: str
) -> None:
    tab = visit(dashboard, color_scheme=scheme, width=NARROW)
    found, refused = {}, []

    def refuse(route: Any) -> None:
        refused.append(route.request.url)
        route.abort()

    tab.page.route(lambda url: not url.startswith((dashboard, "data:", "blob:")), refuse)
    page = tab.open()
    drawn(page, "front")
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    page.wait_for_selector("#table .ag-row")
    table, card = page.evaluate(OWN_COLOURS)
    assert table == card
    page.evaluate("document.querySelector('#table .ag-header-cell-filter-button').click()")
    page.wait_for_selector(".ag-filter input[placeholder]:focus")
    page.evaluate("document.activeElement.blur()")  # which would take the keys
    for key, name in enumerate(PAGES, start=1):
        page.keyboard.press(str(key))
        drawn(page, name)
        page.wait_for_function(f"() => document.querySelector('#page-{name}')?.offsetHeight > 400")
        assert page.evaluate("document.documentElement.scrollWidth") <= NARROW
        found[name] = page.evaluate(READABLE)
        assert page.evaluate(BROKEN) == []
    assert found == dict.fromkeys(PAGES, NOTHING)
    assert refused == []


def test_the_first_tab_skips_to_the_designs_and_focus_can_be_seen(dashboard: Any, visit: Any) -> None:
    page = visit(dashboard).open()
    drawn(page, "front")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    box = page.locator(".skip").bounding_box()
    assert box["x"] >= 0
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.querySelector('#pages').contains(document.activeElement)")
    page.keyboard.press("Tab")
    assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


SECRET = "what is outside of the folder of runs"
UPWARDS = ("..", "%2e%2e", "%252e%252e", ".%2e", "..%00", "..;", "..%c0%af")
SLASHES = ("/", "%2f", "%252f", "\\", "%5c", "//")


def test_no_address_leads_out_of_what_is_served(tmp_path: Path) -> None:
    """By any spelling, or absolute, under every address that has a part of its own."""
    (tmp_path / "secret.html").write_text(SECRET)
    asked = [
        slash.join([*[upward] * depth, "secret.html"]) for upward in UPWARDS for slash in SLASHES for depth in (1, 3, 9)
    ]
    asked += [
        str(tmp_path / "secret.html"),
        quote(str(tmp_path / "secret.html"), safe=""),
        f"file://{tmp_path}/secret.html",
    ]
    with served(write_run(tmp_path / "made", 5)) as (url, _):
        at = urlsplit(url)
        connection = HTTPConnection(str(at.hostname), at.port)

        def answer(address: str) -> tuple[int, str]:
            connection.request("GET", address)  # as it stands: urllib and browsers would shorten it
            response = connection.getresponse()
            return response.status, response.read().decode(errors="replace")

        for before in ("/", "/assets/", "/_dash-component-suites/dash/", "/_dash-component-suites/"):
            for path in asked:
                status, text = answer(before + path)
                assert SECRET not in text, before + path
                assert status < 500, before + path
        assert answer("/assets/style.css")[0] == 200
        connection.close()


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
def test_a_dashboard_listens_on_this_computer_only(tmp_path: Path) -> None:
    before = listening({os.getpid()})
    with served(write_run(tmp_path / "made", 5)):
        assert listening({os.getpid()}) - before <= {"127.0.0.1"}
        assert "127.0.0.1" in listening({os.getpid()})
