"""From a gesture to a picture: what the server answers, and that the browser asks once."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from allo_dse.dashboard.app.context import Context
from allo_dse.dashboard.app.factory import make_app
from allo_dse.dashboard.app.interactions import first_answer
from allo_dse.dashboard.data.runs import Board, Ref
from allo_dse.dashboard.programs import Programs

from .conftest import TIMEOUT_MS, drag_over_scatter, served, wait_text
from .synthetic import append, write_run

DESIGNS = 200
SCATTER = "document.querySelector('#scatter .js-plotly-plot')"
BOX = f"{SCATTER}.emit('plotly_selected', {{points: [], range: {{x: [1000, 8000], y: [10, 100]}}}})"
BOXED: dict[str, Any] = {"do": "box", "x": "latency_us", "y": "bram18", "range": {"x": [8000, 1000], "y": [10, 100]}}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "made", DESIGNS)


class Server:
    """The server without a browser, asked as the browser asks it."""

    def __init__(self, *paths: Path, query: str = "") -> None:
        self.board = Board.open(list(paths))
        context = Context(self.board, Programs(self.board, None))
        self.client = make_app(context).server.test_client()
        self.last = first_answer(context, "light", query)

    def ask(self, *gestures: dict[str, Any]) -> Any:
        question = {"state": self.last["state"], "drawn": self.last["drawn"], "gestures": gestures}
        self.last = self.client.post("/gestures", data=json.dumps(question), content_type="application/json").get_json()
        return self.last


@pytest.fixture
def server(run: Path) -> Server:
    return Server(run)


def test_an_answer_has_only_what_changes(server: Server) -> None:
    boxed = server.ask(BOXED)
    assert {"figure", "rows"} <= set(boxed)
    assert boxed["rows"]["count"] == int(boxed["words"]["selection-text.children"].split(" ")[0])
    assert not {"figure", "rows"} & set(server.ask(BOXED))
    walked = server.ask({"do": "walk", "step": 1})
    assert "figure" in walked
    assert "rows" not in walked
    assert "rows" in server.ask({"do": "clear"})


def test_picked_designs_are_selected_but_do_not_narrow_the_table(server: Server) -> None:
    ref = server.board.text(next(server.board.front()))
    picked = server.ask({"do": "pick", "designs": [ref]})
    assert picked["state"]["selection"]["keys"] == [ref]
    assert "1 picked design" in picked["words"]["selection-text.children"]
    assert "rows" not in picked


def test_gestures_that_were_made_meanwhile_are_followed_in_order(server: Server) -> None:
    front = [server.board.text(ref) for ref in server.board.front()]
    server.ask({"do": "open", "design": front[0]})
    state = server.ask(*[{"do": "walk", "step": 1}] * 3, {"do": "refer"}, {"do": "walk", "step": -1})["state"]
    assert (state["reference"], state["design"]) == (front[3], front[2])


def test_a_wrong_filter_is_explained_and_nothing_else_changes(server: Server) -> None:
    before = server.ask({"do": "set", "values": {"filter": "bram18 < 60"}})
    wrong = server.ask({"do": "set", "values": {"filter": "bram < 60"}})
    assert "did you mean bram18?" in wrong["words"]["filter-error.children"]
    assert wrong["state"] == {**before["state"], "error": wrong["words"]["filter-error.children"]}
    assert not {"figure", "rows"} & set(wrong)
    walked = server.ask({"do": "walk", "step": 1})["words"]
    assert walked["filter-error.children"] == wrong["words"]["filter-error.children"]  # the text still stands there
    assert server.ask({"do": "set", "values": {"filter": ""}})["words"]["filter-error.children"] == ""


def test_designs_that_do_not_exist_change_nothing(server: Server) -> None:
    before = server.last["state"]
    for gesture in ({"do": "point", "point": -1}, {"do": "point", "point": 10**12}):
        assert server.ask(gesture)["state"] == before


def test_an_address_with_a_design_of_another_run_says_so(server: Server) -> None:
    answer = server.ask({"do": "open", "design": "0:none"})
    assert "There is no design 0:none" in str(answer["words"]["design-words.children"])
    assert answer["words"]["open-design.disabled"]
    front = server.board.text(next(server.board.front()))
    walked = server.ask({"do": "walk", "step": 1})
    assert walked["state"]["design"] == front
    assert "There is no design" not in str(walked["words"]["design-words.children"])


def test_an_address_brings_back_what_was_shown(run: Path, server: Server) -> None:
    assert server.last["address"] == ""
    axes = {"x": "dsp", "color": "tile", "log": [], "show": ["infeasible"], "filter": "dsp < 80 and `bound.DRAM` > 0.1"}
    zoom = {"x": "dsp", "y": "bram18", "log": [], "spans": [[8.5, 90], None]}
    table = {"sort": [{"colId": "dsp", "sort": "desc"}, {"colId": "_mark", "sort": "asc"}]}
    pair = [server.board.text(Ref(0, row)) for row in (3, 1)]
    shown = server.ask(
        {"do": "set", "values": {**axes, **table, "zoom": zoom}},
        BOXED,
        {"do": "walk", "step": 2},
        {"do": "refer"},
        {"do": "compare", "pair": pair},
    )
    again = Server(run, query=shown["address"][1:]).last
    assert again["state"] == shown["state"]
    assert again["state"]["pair"] == pair
    assert again["figure"]["layout"]["xaxis"]["range"] == zoom["spans"][0]
    assert again["words"]["selection-text.children"] == shown["words"]["selection-text.children"]


def test_a_pair_is_in_the_address_until_another_design_is_opened(server: Server) -> None:
    front = [server.board.text(ref) for ref in server.board.front()]
    server.ask({"do": "open", "design": front[1]}, {"do": "refer"}, {"do": "open", "design": front[2]})
    assert server.ask({"do": "compare", "pair": [front[2], front[1]]})["state"]["pair"] == [front[2], front[1]]
    assert server.ask({"do": "compare", "pair": [front[1], front[2]]})["state"]["pair"] is None
    server.ask({"do": "compare", "pair": [front[2], front[1]]})
    assert server.ask({"do": "walk", "step": 1})["state"]["pair"] is None


def test_rows_of_a_sorted_table_come_with_its_address(server: Server) -> None:
    state = {**server.last["state"], "sort": [{"colId": "dsp", "sort": "desc"}]}
    asked = json.dumps({"state": state, "start": 0, "end": 2})
    found = server.client.post("/rows", data=asked, content_type="application/json").get_json()
    assert [row["dsp"] for row in found["rows"]] == ["128", "128"]
    assert "sort=" in found["address"]


def test_a_picked_design_is_not_that_of_the_same_key_in_another_run(run: Path, tmp_path: Path) -> None:
    server = Server(run, write_run(tmp_path / "same", DESIGNS))
    assert server.board.runs[0].keys == server.board.runs[1].keys
    words = server.ask({"do": "pick", "designs": [f"1:{server.board.runs[1].keys[0]}"]})["words"]
    assert words["selection-text.children"] == "1 selected: 1 picked design"
    assert words["compare-picked.disabled"]


def test_a_selection_that_is_too_long_for_an_address_is_left_out(run: Path, server: Server) -> None:
    server.ask({"do": "pick", "designs": [f"0:{key}" for key in server.board.runs[0].keys]})
    address = server.ask({"do": "set", "values": {"filter": "dsp < 80"}})["address"]
    assert address == "?filter=dsp%20%3C%2080"


@pytest.mark.parametrize(
    "query",
    [
        "x=nothing&color=%00&y=",
        "selection={}&runs=x&log=1&show=[1]&unknown=1",
        'pair=["0:none","0:none"]&sort=[{"colId":"dsp","sort":"up"}]&zoom={"x":"dsp","y":"dsp","log":[],"spans":[]}',
        'sort=[{"colId":"nothing","sort":"asc"}]',
        'selection={"ranges":{"nothing":[[0,1]]},"keys":[]}',
        'selection={"ranges":{"tile":[[1,"2"]]},"keys":[]}',
    ],
)
def test_what_makes_no_sense_in_an_address_changes_nothing(run: Path, server: Server, query: str) -> None:
    assert Server(run, query=query).last["state"] == server.last["state"]


def test_a_filter_in_an_address_that_cannot_be_understood_is_explained(run: Path) -> None:
    answer = Server(run, query="filter=bram<60&x=dsp").last
    assert "did you mean bram18?" in answer["words"]["filter-error.children"]
    assert (answer["state"]["filter"], answer["state"]["x"]) == ("", "dsp")


def test_a_run_that_has_grown_is_drawn_anew(tmp_path: Path) -> None:
    path = write_run(tmp_path / "live", 40)
    server = Server(path)
    append(path, range(40, 60))
    server.board.refresh()
    grown = server.ask({"do": "set", "values": {}})
    assert grown["words"]["table-note.children"] == "60 of 60 designs"
    assert "figure" in grown


@pytest.fixture(scope="module")
def dashboard(run: Path) -> Iterator[tuple[str, Context]]:
    with served(run) as (url, context):
        yield url, context


@pytest.fixture
def front(dashboard: Any, visit: Any) -> Any:
    page = visit(dashboard[0]).open()
    page.wait_for_selector(".ag-center-cols-container .ag-row")
    page.wait_for_function("() => dash_ag_grid.getApi('table').getDisplayedRowAtIndex(0)?.data")
    page.wait_for_function(f"() => {SCATTER}?.data?.length")
    page.wait_for_load_state("networkidle")  # nothing more is asked for at the beginning
    return page


GESTURES = {
    "a box": (BOX, "#table-note"),
    "the same box again": (BOX, None),
    "cleared": ("document.querySelector('#clear').click()", "#table-note"),
    "next design": ("document.querySelector('#next-design').click()", "#design-words"),
    "filter": ("dash_clientside.set_props('filter', {value: 'bram18 < 60'})", "#table-note"),
    "infeasible": ("document.querySelector('#show label:nth-of-type(2) input').click()", None),
}
"""What is done, and which words change."""


GROWTH_COUNTED = """() => {
    const fetch = window.fetch, began = performance.now();
    let asked = 0;
    window.askedSeldom = () => asked <= 2 + (performance.now() - began) / 1000;
    window.fetch = (address, options) => { asked += address === '/growth'; return fetch(address, options); }; }"""
"""Has the page count how often it asks whether runs have grown, which is once a second by its own clock."""


def test_each_gesture_is_one_question(front: Any) -> None:
    front.evaluate(GROWTH_COUNTED)
    asked = []
    front.on("request", lambda request: asked.append(urlsplit(request.url).path[1:]))
    for name, (act, words) in GESTURES.items():
        before = words and front.inner_text(words)
        asked.clear()
        front.evaluate(act)
        wait_for(front, lambda: "gestures" in asked)
        if words:
            front.wait_for_function(
                "([words, before]) => document.querySelector(words).innerText !== before", arg=[words, before]
            )
        front.wait_for_timeout(300)
        assert [a for a in asked if a != "growth"] == ["gestures"], name
    assert front.evaluate("() => window.askedSeldom()")


def wait_for(page: Any, what: Callable[..., Any]) -> None:
    """Let the browser go on until something is so."""
    end = time.monotonic() + 1e-3 * TIMEOUT_MS
    while not what():
        assert time.monotonic() < end
        page.wait_for_timeout(20)


def test_a_fast_series_of_gestures_is_asked_together_and_only_its_end_is_drawn(front: Any, dashboard: Any) -> None:
    board = dashboard[1].board
    refs = [board.text(ref) for ref in board.front()]
    held, asked = [], []

    def hold(route: Any) -> None:
        asked.append(len(route.request.post_data_json["gestures"]))
        held.append(route)

    front.route("**/gestures", hold)
    front.evaluate(
        """() => { window.drawings = 0; const react = Plotly.react;
            Plotly.react = function () { window.drawings += 1; return react.apply(this, arguments); }; }"""
    )
    front.evaluate(  # as a link does
        "search => { history.pushState({}, '', search); dispatchEvent(new CustomEvent('_dashprivate_pushstate')); }",
        f"?design={refs[0]}",
    )
    for _ in range(4):
        front.keyboard.press("j")
    wait_for(front, lambda: held)
    front.wait_for_timeout(200)
    assert asked == [1]
    held.pop().continue_()
    wait_for(front, lambda: held)
    held.pop().continue_()
    front.wait_for_function(
        "key => document.querySelector('#design-words').innerText.startsWith(key)", arg=refs[4].split(":")[1][:8]
    )
    front.wait_for_timeout(200)
    assert len(asked) == 2
    front.wait_for_function("() => window.drawings === 1")
    front.unroute("**/gestures")


HELD = """address => {
    const fetch = window.fetch;
    window.held = [];
    window.release = () => { window.held.forEach((done) => done()); window.fetch = fetch; };
    window.fetch = async function (asked, options) {
        const answer = await fetch(asked, options);
        if (asked.startsWith(address)) await new Promise((done) => window.held.push(done));
        return answer;
    }; }"""
"""Answers wait until they are released."""


def test_a_box_that_is_cleared_before_the_server_answers_leaves_nothing_in_the_plot(front: Any) -> None:
    front.evaluate(HELD, "/gestures")
    drag_over_scatter(front, 0.1, 0.1, 0.6, 0.6)
    front.wait_for_function("() => window.held.length")
    front.keyboard.press("Escape")
    front.wait_for_timeout(100)
    front.evaluate("() => window.release()")
    front.wait_for_function(
        f"() => !{SCATTER}.layout.selections?.length && !{SCATTER}.data.some(trace => trace.selectedpoints)"
    )


def test_what_is_drawn_by_hand_is_not_ended_by_an_answer_and_keeps_its_axes_and_tool(front: Any) -> None:
    front.evaluate(HELD, "/gestures")
    front.evaluate("() => dash_clientside.set_props('x', {value: 'dsp'})")
    front.wait_for_function("() => window.held.length")
    front.locator("#scatter").hover()
    front.click("#scatter .modebar-btn[data-title='Zoom']")
    front.click("#scatter .modebar-btn[data-title='Box Select']")
    area = front.locator("#scatter .nsewdrag").first.bounding_box()
    for step, (x, y) in enumerate(((0.1, 0.1), (0.6, 0.1), (0.6, 0.6), (0.1, 0.6))):
        front.mouse.move(area["x"] + x * area["width"], area["y"] + y * area["height"])
        if step == 0:
            front.mouse.down()
        if step == 2:
            front.evaluate("() => window.release()")
            front.wait_for_timeout(200)
    front.mouse.up()
    wait_text(front, "#selection-text", "latency_us")
    wait_text(front, "#selection-text", "bram18")
    front.wait_for_function(f"() => {SCATTER}.layout.xaxis.title.text.startsWith('dsp')")
    assert front.evaluate(f"() => {SCATTER}.layout.dragmode") == "select"


def test_a_table_that_is_scrolled_while_answers_are_overtaken_has_rows_of_what_is_drawn(front: Any) -> None:
    front.evaluate(HELD, "/gestures")
    front.evaluate("() => dash_clientside.set_props('filter', {value: 'dsp < 0'})")
    front.wait_for_function("() => window.held.length")
    front.evaluate("() => dash_clientside.set_props('filter', {value: ''})")
    front.wait_for_timeout(100)
    front.evaluate("() => window.held.shift()()")
    front.wait_for_function("() => window.held.length")
    front.evaluate("() => dash_ag_grid.getApi('table').ensureIndexVisible(120)")
    front.wait_for_function("() => dash_ag_grid.getApi('table').getDisplayedRowAtIndex(120)?.data")
    front.evaluate("() => window.release()")


def test_presses_in_a_row_are_followed_in_order(front: Any, dashboard: Any) -> None:
    board = dashboard[1].board
    refs = [board.text(ref) for ref in board.front()]
    at = refs.index(board.text(board.knee))
    presses = "next-design", "make-reference", "next-design"
    front.evaluate("names => names.forEach(name => document.getElementById(name).click())", presses)
    front.wait_for_function(
        "([a, b]) => location.search.includes(`design=${a}`) && location.search.includes(`reference=${b}`)",
        arg=[refs[(at + 2) % len(refs)], refs[(at + 1) % len(refs)]],
    )


CELL_120 = "document.querySelector(\".ag-row[row-index='120'] [col-id='dsp']\")"
ROW_120_ASKED_FOR = f"""() => {{ const table = dash_ag_grid.getApi('table');
    if (table.getDisplayedRowCount() > 120) table.ensureIndexVisible(120);
    return window.held.length && {CELL_120}; }}"""
"""Scrolls again where rows that came late have put the table back to its first ones."""


def test_a_row_that_has_not_come_yet_is_clicked_in_vain(front: Any) -> None:
    asked = []
    front.on("request", lambda request: asked.append(urlsplit(request.url).path))
    front.evaluate(HELD, "/rows")
    front.wait_for_function(ROW_120_ASKED_FOR)
    front.evaluate(f"() => {CELL_120}.click()")
    front.wait_for_timeout(200)
    front.evaluate("() => window.release()")
    assert "/gestures" not in asked


def test_a_page_that_is_chosen_last_is_shown_and_the_address_says_all(front: Any) -> None:
    front.evaluate("() => dash_clientside.set_props('filter', {value: 'dsp > 20'})")
    front.wait_for_function("() => location.search.includes('filter')")
    front.evaluate(HELD, "/_dash-update-component")
    for key in "c1":
        front.keyboard.press(key)
    front.wait_for_url("**/front*")
    front.evaluate("() => window.release()")
    front.wait_for_timeout(500)
    assert urlsplit(front.url).path == "/front"
    for _ in range(2):
        front.wait_for_function("() => location.search.includes('filter')")
        front.click("#tab-front")  # which leads to an address without it


def test_gestures_do_not_wait_for_designs_to_compare(front: Any) -> None:
    front.keyboard.press("4")
    wait_text(front, "#compare-page", "What differs")
    front.evaluate(HELD, "/_dash-update-component")
    front.keyboard.press("j")
    front.wait_for_function("() => window.held.length")
    front.keyboard.press("r")
    front.wait_for_function("() => location.search.includes('reference')")
    front.evaluate("() => window.release()")


def test_designs_that_are_swapped_stay_so_when_another_page_is_shown_at_once(front: Any) -> None:
    front.keyboard.press("4")
    wait_text(front, "#compare-page", "What differs")
    pair = [front.inner_text(f"#compare-{side}") for side in "ab"]
    front.evaluate(HELD, "/_dash-update-component")
    front.click("#compare-swap")
    front.wait_for_function("() => window.held.length")
    front.keyboard.press("1")
    front.wait_for_url("**/front*")
    front.wait_for_timeout(100)
    front.evaluate("() => window.release()")
    front.keyboard.press("4")
    front.wait_for_function("() => location.search.includes('pair')")
    assert [front.inner_text(f"#compare-{side}") for side in "ba"] == pair
