"""The dashboard in a real browser: select, filter, compare, export, live growth, themes, keys, narrow windows."""

import csv
import io
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.pages.compare import EMPTY_PX
from allo_dse.dashboard.data.runs import Ref
from allo_dse.dashboard.figures.scatter import MAX_POINTS
from allo_dse.dashboard.figures.style import LINE
from allo_dse.tune.store.run_info import shortened

from .conftest import drag_over_scatter, served, wait_text
from .synthetic import append, verify, write_run

DESIGNS = 300
# Clicks are heard from then on: what is drawn first is a picture for some frames.
DRAWN = "() => window.scatterDrawn?.then(() => document.querySelector('#scatter .js-plotly-plot').data.length)"
TRACES = """() => Object.fromEntries(document.querySelector('#scatter .js-plotly-plot').data.map(
    t => [t.name, t.customdata.length]))"""
ZOOMED = """() => { const layout = document.querySelector('#scatter .js-plotly-plot')._fullLayout;
    return [layout.xaxis.range, layout.dragmode]; }"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = write_run(tmp_path_factory.mktemp("runs") / "made", DESIGNS)
    return path


@pytest.fixture(scope="module")
def dashboard(run: Path) -> Iterator[tuple[str, Context]]:
    with served(run) as (url, context):
        yield url, context


@pytest.fixture
def front(dashboard: Any, visit: Any) -> Any:
    """The front page, drawn."""
    page = visit(dashboard[0]).open()
    page.wait_for_function(DRAWN)
    page.wait_for_selector(".ag-center-cols-container .ag-row")
    page.wait_for_function("() => dash_ag_grid.getApi('table').getDisplayedRowAtIndex(0)?.data")
    return page


def show_parallel(page: Any) -> None:
    """Scroll to the parallel coordinates, which are drawn only then."""
    page.locator("#parallel").scroll_into_view_if_needed()
    page.wait_for_function("() => document.querySelector('#parallel .js-plotly-plot')?.data?.[0]?.dimensions")


def show(page: Any, button: str, block: str) -> None:
    """Scroll to a button so far that the parallel coordinates stay outside of the window: to draw them takes longer
    than the tests that do without."""
    page.locator(button).evaluate("(button, block) => button.scrollIntoView({ block })", block)


def test_the_front_page_shows_front_knee_and_reference_and_on_hovering_what_differs_from_it(
    front: Any, dashboard: Any
) -> None:
    table = dashboard[1].board.runs[0]
    traces = front.evaluate(TRACES)
    assert traces["Pareto front"] == len(table.front)
    assert {"dominated", "knee", "reference", "open design"} <= set(traces)
    wait_text(front, "#status", f"{DESIGNS:,} designs")
    buttons = front.evaluate("() => [...document.querySelectorAll('.modebar-btn')].map(b => b.dataset.title)")
    assert "Box Select" in buttons
    assert front.locator("#scatter .modebar-btn[data-title='Reset axes']").count() == 0
    assert not [b for b in buttons if "share" in b.lower() or "cloud" in b.lower()]
    x, y = front.evaluate(
        """() => { const plot = document.querySelector('#scatter .js-plotly-plot'), box = plot.getBoundingClientRect();
            const trace = plot._fullData.find(t => t.name === 'Pareto front'), layout = plot._fullLayout;
            return [layout.xaxis.d2p(trace.x[2]) + layout.xaxis._offset + box.x,
                    layout.yaxis.d2p(trace.y[2]) + layout.yaxis._offset + box.y]; }"""
    )
    front.mouse.move(x - 40, y - 40)
    front.mouse.move(x, y)
    wait_text(front, ".tooltip-text", "latency")
    words = front.inner_text(".tooltip-text")
    assert dashboard[1].board.runs[0].keys[dashboard[1].board.runs[0].front[2]][:8] in words
    assert "on the Pareto front" in words
    assert "→" in words
    assert "size" not in words


def test_a_box_in_the_scatter_and_a_brush_on_parallel_coordinates_select_in_the_other_views(
    front: Any, dashboard: Any
) -> None:
    drag_over_scatter(front, 0.02, 0.4, 0.5, 0.98)
    wait_text(front, "#selection-text", "selected")
    count = int(front.inner_text("#selection-text").split(" ")[0])
    assert 0 < count < DESIGNS
    wait_text(front, "#table-note", f"{count:,} of {DESIGNS} designs")
    show_parallel(front)
    front.wait_for_function(
        """() => document.querySelector('#parallel .js-plotly-plot').data[0].dimensions
            ?.filter(d => d.constraintrange).map(d => d.name).join() === 'latency_us,bram18'"""
    )
    front.wait_for_function(
        "() => document.querySelector('#scatter .js-plotly-plot').data.some(t => t.name === 'selected')"
    )
    front.click("#clear")
    wait_text(front, "#table-note", f"{DESIGNS} of {DESIGNS} designs")
    show_parallel(front)
    ranges = "document.querySelector('#parallel .js-plotly-plot').data[0].dimensions.map(d => d.constraintrange)"
    front.wait_for_function(f"() => !{ranges}.some(Boolean)")
    brushed = "() => document.querySelector('#parallel .js-plotly-plot').data[0].dimensions[0].constraintrange"
    for _ in range(2):  # the same one again, after it has been cleared
        front.evaluate(
            """() => { const plot = document.querySelector('#parallel .js-plotly-plot'), range = [[31, 65]];
                plot.data[0].dimensions[0].constraintrange = range[0];
                plot.emit('plotly_restyle', [{'dimensions[0].constraintrange': range}, [0]]); }"""
        )
        wait_text(front, "#selection-text", "selected: tile 31 to 65")
        front.wait_for_function(
            "() => document.querySelector('#scatter .js-plotly-plot').data.some(t => t.name === 'selected')"
        )
        front.wait_for_function(f"() => String(({brushed})()) === '31,65'")
        front.click("#clear")
        show_parallel(front)  # the button may be above them
        front.wait_for_function(f"() => !({brushed})()")


def test_rows_that_are_ticked_are_selected_and_compared(front: Any) -> None:
    boxes = front.locator(".ag-pinned-left-cols-container .ag-selection-checkbox input, .ag-row .ag-checkbox-input")
    boxes.nth(0).click()
    boxes.nth(3).click()
    wait_text(front, "#selection-text", "2 picked designs")
    show(front, "#export-table", "start")
    front.click(".ag-header-cell[col-id='latency_us'] .ag-header-cell-text")
    front.wait_for_function("() => ['selection', 'sort'].every(n => location.search.includes(n))")
    front.reload()
    front.wait_for_selector(".ag-row .ag-checkbox-input:checked", state="attached")
    front.wait_for_function("() => dash_ag_grid.getApi('table').getSelectedNodes().length === 2")  # one is further down
    front.wait_for_selector(".ag-header-cell[col-id='latency_us'][aria-sort='ascending']")
    assert "2 picked designs" in front.inner_text("#selection-text")
    front.click("#compare-picked")
    front.wait_for_url("**/compare*")
    wait_text(front, "#compare-page", "What differs")
    first, second = (front.inner_text(f"#compare-{side}") for side in "ab")
    assert first[:8] != second[:8]
    front.wait_for_function("() => location.search.includes('pair')")
    front.reload()
    wait_text(front, "#compare-page", "What differs")
    assert [front.inner_text(f"#compare-{side}") for side in "ab"] == [first, second]


def test_filters_narrow_all_views_and_infeasible_designs_are_shown_by_reason_also_in_space(
    front: Any, dashboard: Any
) -> None:
    board = dashboard[1].board
    source = "bram18 < 40 and latency_us < 9000"
    expected = int(board.filtered(source)[0].sum())
    front.press("body", "/")
    front.wait_for_selector("#filter:focus")
    front.keyboard.insert_text(source)
    wait_text(front, "#table-note", f"{expected} of {DESIGNS} designs")
    on_front = int(board.filtered(source)[0][board.runs[0].front].sum())
    front.wait_for_function(
        "n => document.querySelector('#scatter .js-plotly-plot').data"
        ".find(t => t.name === 'Pareto front')?.customdata.length === n",
        arg=on_front,
    )
    front.fill("#filter", "bram < 40")
    wait_text(front, "#filter-error", "did you mean bram18?")
    assert f"{expected} of" in front.inner_text("#table-note")
    front.fill("#filter", "bram18 < 0")
    wait_text(front, "#table-note", f"0 of {DESIGNS} designs")
    front.locator("#parallel").scroll_into_view_if_needed()
    wait_text(front, "#parallel", "No feasible design is left")
    show(front, "#show", "end")
    front.fill("#filter", "")
    front.click("#show label:nth-of-type(2)")
    front.wait_for_function(
        """() => document.querySelector('#scatter .js-plotly-plot').data.some(
            t => t.name === 'infeasible: bram18 <= 300')"""
    )


def test_the_address_says_what_is_shown_so_that_a_reload_shows_it_again(front: Any, dashboard: Any) -> None:
    kept = int(dashboard[1].board.filtered("bram18 < 200")[0].sum())
    front.evaluate("document.querySelector('#filter').focus()")
    front.keyboard.insert_text("bram18 < 200")
    wait_text(front, "#table-note", f"{kept} of {DESIGNS} designs")
    front.evaluate("document.activeElement.blur()")
    front.evaluate(
        "document.querySelector('#scatter .js-plotly-plot')"
        ".emit('plotly_selected', { points: [], range: { x: [1000, 20000], y: [10, 100] } })"
    )
    wait_text(front, "#selection-text", "selected")
    front.keyboard.press("j")
    front.keyboard.press("r")
    front.wait_for_function("() => ['filter', 'selection', 'reference'].every(n => location.search.includes(n))")
    words = ("#selection-text", "#design-words", "#table-note")
    before = [front.inner_text(name) for name in words]
    front.reload()
    front.wait_for_function(DRAWN)
    wait_text(front, "#table-note", before[2])
    assert [front.inner_text(name) for name in words] == before
    assert front.input_value("#filter") == "bram18 < 200"
    front.keyboard.press("Escape")
    front.wait_for_function("() => !location.search.includes('selection')")
    front.keyboard.press("c")
    front.wait_for_function("() => location.pathname === '/compare' && location.search.includes('filter')")


def test_spots_of_a_crowd_are_hovered_clicked_and_parted_by_zooming(tmp_path: Path, visit: Any, serve: Any) -> None:
    url, _ = serve(write_run(tmp_path / "crowd", 3 * MAX_POINTS))
    page = visit(url).open()
    page.wait_for_function(DRAWN)
    x, y, count = page.evaluate(
        """() => { const plot = document.querySelector('#scatter .js-plotly-plot'), box = plot.getBoundingClientRect();
            const spots = plot._fullData.find(t => t.type === 'heatmap'), layout = plot._fullLayout;
            const all = spots.z.flatMap((row, i) => [...row].map((n, j) => [n || 0, i, j]));
            const [n, i, j] = all.reduce((a, b) => (b[0] > a[0] ? b : a));
            return [layout.xaxis2.d2p((spots.x[j] + spots.x[j + 1]) / 2) + layout.xaxis2._offset + box.x,
                    layout.yaxis.d2p((spots.y[i] + spots.y[i + 1]) / 2) + layout.yaxis._offset + box.y, n]; }"""
    )
    page.mouse.move(x - 40, y - 40)
    page.mouse.move(x, y)
    wait_text(page, ".tooltip-text", f"{count - 1} more in this spot")
    key = page.inner_text(".tooltip-text").split(" ")[0]
    page.mouse.click(x, y)
    wait_text(page, "#design-words", key)
    wait_text(page, "#scatter-note", "designs at")
    page.click("#scatter .modebar-btn[data-title='Zoom']")
    drag_over_scatter(page, 0.2, 0.3, 0.5, 0.6)
    page.wait_for_function(
        "() => document.querySelector('#scatter .js-plotly-plot').data.every(t => t.type === 'scatter')"
    )
    for _ in range(2):  # as zoomed as before, with the same tool, when something else is drawn
        span, tool = page.evaluate(ZOOMED)
        assert span[1] - span[0] < 0.7
        assert tool == "zoom"
        drawn = page.evaluate_handle("() => document.querySelector('#scatter .js-plotly-plot').data")
        page.keyboard.press("j")
        page.wait_for_function(
            "before => document.querySelector('#scatter .js-plotly-plot').data !== before", arg=drawn
        )
    page.click("#scatter .modebar-btn[data-title='Autoscale']")
    page.wait_for_function(
        "() => document.querySelector('#scatter .js-plotly-plot').data.some(t => t.type === 'heatmap')"
    )


ROWS_WITH_WORDS = """() => {
    const set = window.dash_clientside.set_props, fetch = window.fetch;
    let held = null;
    window.rowsHeld = () => Boolean(held);
    window.fetch = async function (address, options) {
        const answer = await fetch(address, options);
        if (address !== '/rows') return answer;
        const found = await answer.json();
        return new Promise((done) => (held = () => done({ ok: true, json: () => found })));
    };
    window.dash_clientside.set_props = function (id, properties) {
        set(id, properties);
        if (id === 'shown' && held) held();
        if (id === 'shown') held = null;
    }; }"""
"""Has rows of the table come just when the words of a gesture are on their way to their places."""


def test_no_words_are_lost_when_rows_come_with_a_gesture_or_after_newer_ones(front: Any, dashboard: Any) -> None:
    show(front, "#export-table", "start")
    front.evaluate(ROWS_WITH_WORDS)
    for _ in range(6):
        before = front.inner_text("#design-words")
        front.click(".ag-header-cell[col-id='bram18'] .ag-header-cell-text")
        front.wait_for_function("() => window.rowsHeld()")
        front.keyboard.press("j")
        front.wait_for_function("before => document.querySelector('#design-words').innerText !== before", arg=before)
    expected = int(dashboard[1].board.filtered("bram18 < 40")[0].sum())
    front.click(".ag-header-cell[col-id='bram18'] .ag-header-cell-text")
    front.wait_for_function("() => window.rowsHeld()")
    front.fill("#filter", "bram18 < 40")
    front.wait_for_function("() => !window.rowsHeld()")
    wait_text(front, "#table-note", f"{expected} of {DESIGNS} designs")
    front.wait_for_timeout(100)
    assert front.inner_text("#table-note").startswith(f"{expected} of {DESIGNS} designs")


GESTURES_HELD = """() => {
    const fetch = window.fetch, released = new Promise((done) => (window.release = done));
    window.fetch = async function (address, options) {
        const answer = await fetch(address, options);
        if (address === '/gestures') await (window.held = released);
        return answer;
    }; }"""
FIRST_SORTED = """count => { const table = dash_ag_grid.getApi('table');
    const first = [0, 1, 2, 3, 4].map(i => Number(table.getDisplayedRowAtIndex(i)?.data?.bram18));
    return table.getDisplayedRowCount() === count && first.every((v, i) => v >= (first[i - 1] ?? 0)); }"""


def test_the_table_has_its_rows_sorted_when_an_answer_is_late_and_when_dash_is_made_its_source_again(
    front: Any, dashboard: Any
) -> None:
    expected = int(dashboard[1].board.filtered("bram18 < 200")[0].sum())
    front.evaluate(GESTURES_HELD)
    front.fill("#filter", "bram18 < 200")
    front.wait_for_function("() => Boolean(window.held)")
    show(front, "#export-table", "start")
    front.click(".ag-header-cell[col-id='bram18'] .ag-header-cell-text")
    front.wait_for_function(FIRST_SORTED, arg=DESIGNS)
    front.evaluate("() => window.release()")
    wait_text(front, "#table-note", f"{expected} of {DESIGNS} designs")
    front.wait_for_function(FIRST_SORTED, arg=expected)
    first = "() => document.querySelector(\".ag-row[row-index='0'] [col-id='latency_us']\")?.textContent"
    for _ in range(3):
        front.wait_for_function(first)
        front.evaluate(
            """() => dash_ag_grid.getApi('table').setGridOption('datasource', {
                getRows: (request) => dash_clientside.set_props('table', { getRowsRequest: request })
            })"""
        )
    front.wait_for_function(first)


def test_the_table_sorts_all_designs_is_saved_as_filtered_and_hides_equal_columns_until_asked_for(
    front: Any, dashboard: Any
) -> None:
    board = dashboard[1].board
    shown = """() => dash_ag_grid.getApi('table').getColumns().map(c => c.getColId())"""
    assert "tile" in front.evaluate(shown)
    assert "size" not in front.evaluate(shown)
    cut = """() => [...document.querySelectorAll('.ag-header-cell-text')].filter(e => e.scrollWidth > e.clientWidth)
        .map(e => e.textContent)"""
    assert front.evaluate(cut) == []
    show(front, "#export-table", "start")
    front.click(".ag-header-cell[col-id='bram18'] .ag-header-cell-text")
    lowest = min(v for v in board.runs[0].numbers("bram18").tolist() if v == v)
    front.wait_for_function(
        "v => document.querySelector(\".ag-row[row-index='0'] [col-id='bram18']\")?.textContent === String(v)",
        arg=int(lowest),
    )
    assert front.evaluate(cut) == []
    with front.expect_download() as download:
        front.click("#export-table")
    saved = [r["bram18"] for r in csv.DictReader(io.StringIO(download.value.path().read_text())) if r["bram18"]]
    assert saved == sorted(saved, key=float)
    front.click("#hide-equal label")
    front.wait_for_function("() => dash_ag_grid.getApi('table').getColumns().some(c => c.getColId() === 'size')")
    with front.expect_download() as download:
        front.click("#export-front")
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert [r["key"] for r in rows] == [board.runs[0].keys[row] for row in board.runs[0].front]
    front.fill("#filter", "tile == 64")
    wait_text(front, "#table-note", f"{int(board.filtered('tile == 64')[0].sum())} of")
    show(front, "#export-table", "start")
    with front.expect_download() as download:
        front.click("#export-table")
    rows = list(csv.DictReader(io.StringIO(download.value.path().read_text())))
    assert {r["tile"] for r in rows} == {"64"}


def test_a_design_is_opened_and_taken_away(front: Any, dashboard: Any) -> None:
    board = dashboard[1].board
    designs = list(board.front())
    row = designs[(designs.index(board.knee) + 2) % len(designs)].row
    key = board.runs[0].keys[row]
    front.keyboard.press("j")
    front.keyboard.press("j")
    wait_text(front, "#design-words", key[:8])
    front.click("#open-design")
    front.wait_for_url("**/design*")
    front.wait_for_selector(f"#design-page h2 code:text-is('{key}')")
    with front.expect_download() as download:
        front.click("#design-page button:text-is('JSON')")
    assert json.loads(download.value.path().read_text())["records"][0] == board.runs[0].record(row)
    front.click("#design-page button:has-text('mapping_primitives')")
    wait_text(front, "#export-error", "made_up.py")
    wait_text(front, "#reproduce", "allo-tune studies/made_up.py")
    wait_text(front, "#reproduce", key)


def test_every_plot_is_saved_as_a_picture(front: Any) -> None:
    def saved(page: str, plots: int) -> None:
        """Each plot of a page has a button, and each button saves one. While Dash sends a plot anew it hides it."""
        front.wait_for_function(
            """([page, plots]) => {
                const all = [...document.querySelectorAll(`#page-${page} .js-plotly-plot`)];
                const seen = all.filter(p => p.checkVisibility({visibilityProperty: true}));
                return all.every(p => p._fullLayout) && seen.length === plots;
            }""",
            arg=[page, plots],
        )
        buttons = front.locator(f"#page-{page} button:text-is('SVG'):visible")
        assert buttons.count() == plots
        for number in range(plots):
            with front.expect_download() as download:
                buttons.nth(number).click()
            assert download.value.path().read_bytes().startswith(b"<svg")

    with front.expect_download() as download:
        front.click("#scatter-card button:text-is('PNG')")
    assert download.value.path().read_bytes().startswith(b"\x89PNG")
    show_parallel(front)
    stroke = "() => getComputedStyle(document.querySelector('.parcoords .domain')).stroke"
    front.wait_for_selector(".parcoords .domain", state="attached")
    assert front.evaluate(stroke) != "rgb(0, 0, 0)"  # which is the panel's colour in the dark
    saved("front", 2)
    front.keyboard.press("2")
    front.wait_for_function("() => document.querySelector('#workers .js-plotly-plot')?.data?.length")
    saved("progress", 6)
    front.keyboard.press("3")
    front.wait_for_function("() => document.querySelector('#bound .js-plotly-plot')?.data?.length")
    saved("design", 2)
    front.keyboard.press("4")
    front.wait_for_function("() => document.querySelector('#compare-plot .js-plotly-plot')?.data?.length")
    saved("compare", 1)
    height = "() => parseInt(document.querySelector('#compare-plot').style.height)"
    assert front.evaluate(height) > EMPTY_PX


def test_the_reference_can_be_chosen(front: Any) -> None:
    before = front.inner_text("#design-words")
    front.keyboard.press("j")
    front.wait_for_function("t => document.querySelector('#design-words').innerText !== t", arg=before)
    key = front.inner_text("#design-words").split(" ")[0]
    front.keyboard.press("r")
    wait_text(front, "#design-words", f"Reference: {key}")
    front.keyboard.press("j")
    front.wait_for_function("key => !document.querySelector('#design-words').innerText.startsWith(key)", arg=key)
    front.keyboard.press("c")
    front.wait_for_url("**/compare*")
    wait_text(front, "#compare-page", key)
    swapped = front.inner_text("#compare-b")
    front.click("#compare-swap")
    front.wait_for_function("text => document.querySelector('#compare-a').innerText === text", arg=swapped)
    for page in ("1", "4"):  # what was chosen stays, until another design is opened
        front.keyboard.press(page)
    front.wait_for_url("**/compare*")
    front.wait_for_function("text => document.querySelector('#compare-a')?.innerText === text", arg=swapped)
    front.keyboard.press("1")
    front.keyboard.press("j")
    front.keyboard.press("4")
    front.wait_for_function("text => document.querySelector('#compare-a').innerText !== text", arg=swapped)


def test_new_designs_and_verdicts_appear_without_being_asked_for(tmp_path: Path, visit: Any, serve: Any) -> None:
    path = write_run(tmp_path / "live", 60)
    page = visit(serve(path)[0]).open()
    wait_text(page, "#status", "60 designs")
    page.wait_for_function(DRAWN)
    page.keyboard.press("2")
    wait_text(page, "#numbers .number:first-child b", "60")
    append(path, range(60, 90))
    wait_text(page, "#status", "90 designs")
    wait_text(page, "#numbers .number:first-child b", "90")
    page.keyboard.press("1")
    wait_text(page, "#table-note", "90 of 90")
    page.keyboard.press("3")
    wait_text(page, "#design-page", "not verified")
    verify(path, page.inner_text("#design-page h2 code"), ok=True)
    page.wait_for_selector("#design-page .badge:text-is('verified')")


def test_a_page_that_was_opened_before_the_first_design_fills_by_itself(tmp_path: Path, visit: Any, serve: Any) -> None:
    path = write_run(tmp_path / "begun", 0)
    page = visit(serve(path)[0]).open()
    wait_text(page, "#scatter", "No design has been evaluated yet")
    page.locator("#parallel").scroll_into_view_if_needed()
    wait_text(page, "#parallel", "No design has been evaluated yet")
    append(path, range(40))
    wait_text(page, "#table-note", "40 of 40")
    page.wait_for_function(
        "() => document.querySelector('#scatter .js-plotly-plot').layout.xaxis?.title?.text === 'latency (µs)'"
    )


def test_progress_is_drawn(dashboard: Any, visit: Any) -> None:
    page = visit(dashboard[0]).open("progress")
    wait_text(page, "#numbers", "designs evaluated")
    for name in ("history", "hypervolume", "designs-time", "lost", "importance", "workers"):
        page.wait_for_function(f"() => document.querySelector('#{name} .js-plotly-plot')?.data?.length")
    assert not page.locator("#measured-card").is_visible()  # nothing was measured
    layouts = "['history', 'hypervolume'].map(n => document.querySelector(`#${n} .js-plotly-plot`).layout)"
    titles = f"() => {layouts}.map(layout => layout.xaxis.title.text)"
    assert page.evaluate(titles) == ["evaluated designs"] * 2
    page.click("#against")
    page.get_by_text("wall time", exact=True).click()
    page.wait_for_function(f"() => ({titles})().every(title => title === 'wall time (s)')")
    page.wait_for_function(
        "() => document.querySelector('#importance .js-plotly-plot').data[0].y.at(-1) === 'k.axis0.nodes'"
    )
    failed = page.locator("#failed-messages tbody tr")
    failed.first.wait_for()
    assert failed.first.locator("td").all_inner_texts()[:2] == ["RuntimeError: the tool gave up", "10"]
    key = failed.first.locator("a").inner_text()
    failed.first.locator("a").click()
    page.wait_for_selector(f"#design-page h2 code:has-text('{key}')")
    wait_text(page, "#design-page", "Failed: made-up 1")


def test_a_link_is_followed_also_where_dash_does_not_tell_of_it(dashboard: Any, visit: Any) -> None:
    """As it happens when the page writes its own address over that of the link first."""
    page = visit(dashboard[0]).open("progress")
    page.wait_for_selector("#table .ag-row", state="attached")
    page.evaluate("() => { window.dash_clientside.gestures.done = () => undefined; }")
    link = page.locator("#failed-messages a").first
    key = link.inner_text()
    link.click()
    page.wait_for_selector(f"#design-page h2 code:has-text('{key}')")


def test_the_theme_is_switched_by_key_and_kept(dashboard: Any, visit: Any) -> None:
    page = visit(dashboard[0], color_scheme="light").open()
    page.wait_for_function(DRAWN)
    page.keyboard.press("t")
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")
    page.wait_for_function("() => document.querySelector('#scatter .js-plotly-plot').layout.font.color === '#e8ebf0'")
    page.reload()
    page.wait_for_function("() => document.documentElement.dataset.theme === 'dark'")


def test_pages_are_reached_by_keys_and_by_tab(front: Any) -> None:
    for key, path in (("2", "progress"), ("3", "design"), ("4", "compare"), ("1", "front")):
        front.keyboard.press(key)
        front.wait_for_url(f"**/{path}")
    front.keyboard.press("?")
    front.wait_for_selector("#help[open]")
    front.keyboard.press("Escape")
    front.evaluate("document.activeElement.blur()")
    reached = []
    for _ in range(12):
        front.keyboard.press("Tab")
        reached.append(front.evaluate("document.activeElement.id"))
    assert [r for r in reached if r.startswith("tab-")] == ["tab-front", "tab-progress", "tab-design", "tab-compare"]
    assert "filter" in reached
    front.locator(".skip").press("Enter")
    front.keyboard.press("r")  # is followed after what the link would do
    front.wait_for_function("() => location.search.includes('reference')")
    assert "There is no design" not in front.inner_text("#design-words")


def test_two_runs_are_shown_together(tmp_path: Path, visit: Any, serve: Any) -> None:
    two = f"two_{'of_a_long_name_' * 5}"
    url, context = serve(write_run(tmp_path / "one", 80), write_run(tmp_path / two, 40))
    page = visit(url, width=900).open()
    page.wait_for_function(DRAWN)
    assert {"front: one", shortened(f"front: {two}", LINE)} <= set(page.evaluate(TRACES))
    page.click("#runs label:nth-of-type(2)")
    page.wait_for_function(
        "() => !document.querySelector('#scatter .js-plotly-plot').data.some(t => t.name.startsWith('front: two'))"
    )
    wait_text(page, "#table-note", "80 of 120")
    pair = [context.board.text(Ref(run, run)) for run in range(2)]
    page.goto(f"{url}/compare?pair={quote(json.dumps(pair))}")
    wait_text(page, "#compare-page", two)
    cut = "() => [...document.querySelectorAll('.table-box')].filter(e => e.scrollWidth > e.clientWidth).length"
    assert page.evaluate(cut) == 0
    assert page.inner_text("#compare-b").startswith(pair[1].partition(":")[2][:8])


def test_names_in_a_run_are_text_not_markup(tmp_path: Path, visit: Any, serve: Any) -> None:
    path = write_run(tmp_path / "<b>run", 40, name="<img src=x onerror=alert(1)>")
    page = visit(serve(path)[0]).open()
    page.wait_for_function(DRAWN)
    page.keyboard.press("3")
    page.wait_for_selector("#reproduce")
    assert page.locator("img[src=x]").count() == 0
    wait_text(page, "h1", "<b>run")


def test_the_server_refuses_other_names(dashboard: Any) -> None:
    request = urllib.request.Request(dashboard[0], headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(request)
    assert caught.value.code == 403
