"""Pages for everybody: texts that can be read, names for what can be pressed, and nothing fetched from elsewhere."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allo_dse.tune.store.log import RunLog

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
    for key, name in enumerate(PAGES, start=1):
        page.keyboard.press(str(key))
        drawn(page, name)
        page.wait_for_function(f"() => document.querySelector('#page-{name}')?.offsetHeight > 400")
        # Plots that were drawn while their page was hidden learn its width a moment after it is shown.
        page.wait_for_function("width => document.documentElement.scrollWidth <= width", arg=NARROW)
        page.wait_for_function(f"() => !({BROKEN})().length")
        found[name] = page.evaluate(READABLE)
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
