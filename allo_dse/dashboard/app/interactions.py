"""The server's part between a gesture and a picture.

    browser, assets/gestures.js                               server, here
    a box is drawn, a row ticked, j pressed, an axis chosen,
    new designs are in the log
      -> the gesture, {"do": "box", ...}     -- /gestures -->  `followed`: the state after it
      scatter  <- plotly.js <- figure        <-- one answer -- `answer`: figure, rows and words of that state
      table    <- AG Grid   <- first rows
      words                 <- words
    the table is scrolled or sorted          -- /rows ----->  `design_table.table_rows`, and the address

So each gesture costs one request, and the browser draws as soon as it has the answer. The front page depends only on
the state. The browser keeps it and sends it along; the server keeps nothing. The browser makes one request at a time:
gestures made meanwhile are sent together afterwards, in order, and an outdated answer is not drawn. With the state it
sends the marks of the figure and the rows that it has drawn, and gets only the differences.

The page's address follows the state (see `address_of`). The server reads it when a page begins; later it takes only the
design of a link from it.

Everything else is usual Dash. The store `shown` has the drawn state, and when the page begins its words too. The other
pages learn of another open design or reference by the stores of these names, which follow when such a page is shown.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypedDict, TypeVar
from urllib.parse import parse_qsl, quote, urlencode

import flask
import msgspec
from dash import ClientsideFunction, Dash, Input
from dash.development.base_component import Component

from allo_dse.common.records import JsonObject

from ..data.filters import FilterError
from ..data.grid import MARK, RUN
from ..data.runs import Board, Ref
from ..data.selection import Selection
from ..figures.scatter import front_figure
from ..figures.style import theme
from .context import Context, State
from .design_table import FIRST_ROWS, query_of, table_rows
from .design_texts import design_words, pointed
from .front_plots import FIRST_LOG, axis_choices, axis_names, drawn_note, view_of
from .parts import GRAPH_CONFIG

# A page's address holds its state, so that a reload or a shared link shows the same.


_TWO = msgspec.Meta(min_length=2, max_length=2)
_Pair = Annotated[list[float], _TWO]


class _Selection(TypedDict):
    """`Selection.to_dict`, as it comes from elsewhere."""

    ranges: dict[str, list[_Pair]]
    keys: list[str]


class _Zoom(TypedDict):
    x: str
    y: str
    log: list[str]
    spans: Annotated[list[_Pair | None], _TWO]


class _Sort(TypedDict):
    colId: str
    sort: Literal["asc", "desc"]


_KINDS: dict[str, Any] = {
    **dict.fromkeys(("design", "reference", "filter", "x", "y", "color"), str),
    **dict.fromkeys(("log", "show"), list[str]),
    "runs": list[int],
    "selection": _Selection,
    "pair": Annotated[list[str], _TWO],
    "sort": list[_Sort],
    "zoom": _Zoom,
}
"""Parts of the state that an address has, in this order. Texts stand there as they are, the rest as JSON."""

LONGEST = 2000
"""Characters of a query; what would make it longer is left out. Of an address with more than 4,096 browsers tell the
server nothing."""


def address_of(state: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """The query of a page in a state; "" for its `first` state."""
    query, parts = "", dict[str, str]()
    for name, kind in _KINDS.items():
        value = state[name]
        if value is None or value == first[name]:
            continue
        longer = {**parts, name: value if kind is str else json.dumps(value, separators=(",", ":"))}
        made = "?" + urlencode(longer, quote_via=quote, safe=":,")
        if len(made) <= LONGEST:
            query, parts = made, longer
    return query


def values_of(query: str) -> JsonObject:
    """The inverse of `address_of`: the state in a query, without invalid values."""
    found: JsonObject = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        kind = _KINDS.get(name)
        try:
            if kind is not None:
                found[name] = text if kind is str else msgspec.json.decode(text, type=kind)
        except msgspec.MsgspecError:
            continue
    return found


Gesture = JsonObject
T = TypeVar("T")


class Gestures(TypedDict):
    """A page's message after user input: its state, the gestures, and the content it already shows."""

    state: State
    gestures: list[Gesture]
    drawn: JsonObject


class RowsRequest(TypedDict):
    """The table's request for rows from `start` to before `end`."""

    state: State
    start: int
    end: int


_DONE_IN_DASH = (
    *[(name, "value") for name in ("x", "y", "z", "color", "log", "show", "runs", "filter")],
    *[(name, "data") for name in ("theme", "version")],
    ("table", "selectedRows"),
    ("table", "cellClicked"),
    ("url", "search"),
)
"""Properties whose change is a gesture, as gestures.js defines it; those of buttons and plots come from the browser."""


def register(app: Dash, context: Context) -> None:
    def run(name: str, *arguments: object, **options: object) -> None:
        app.clientside_callback(ClientsideFunction("gestures", name), *arguments, **options)

    # One callback per property: a call waits for all answers that may change one of its properties, such as the designs
    # to compare.
    for where in _DONE_IN_DASH:
        run("done", Input(*where), prevent_initial_call=True)
    run("compared", Input("compare-a", "value"), Input("compare-b", "value"), prevent_initial_call=True)
    run("begun", Input("shown", "data"))
    run("table", Input("table", "getRowsRequest"), prevent_initial_call=True)

    @app.server.post("/gestures")
    def gestures() -> flask.Response:
        asked = _asked(Gestures)
        state = asked["state"]
        with context.board.lock:
            for gesture in asked["gestures"]:
                state = followed(context, state, gesture)
            if wrong := filter_error(context.board, state["filter"]):  # a restarted run may lack a column of the filter
                state = {**state, "filter": "", "error": wrong}
            made = answer(context, state, asked["drawn"])
        return flask.Response(json.dumps(made, default=Component.to_plotly_json), mimetype="application/json")

    @app.server.post("/rows")
    def rows() -> flask.Response:
        asked = _asked(RowsRequest)
        with context.board.lock:
            state = asked["state"]
            found = table_rows(context, state, asked["start"], asked["end"])
            found["address"] = address_of(state, first_state(context, state["theme"]))
        return flask.Response(json.dumps(found), mimetype="application/json")


def _asked(kind: type[T]) -> T:
    """Parse a request; abort with status 400 if it is malformed."""
    try:
        return msgspec.json.decode(flask.request.get_data(), type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        flask.abort(400, f"not a request of this page: {error}")


def first_answer(context: Context, look: str, query: str = "") -> JsonObject:
    """Return the initial data of a page whose address has a query; the table asks for its rows by itself."""
    board, state = context.board, first_state(context, look)
    asked = {name: value for name, value in values_of(query).items() if shown_here(board, name, value)}
    if wrong := filter_error(board, asked.get("filter", "")):
        asked |= {"filter": "", "error": wrong}
    state.update(asked)  # type: ignore[typeddict-item]  # values_of has checked their types
    return answer(context, state, {"rows": mark(query_of(context, state), board.version)})


def shown_here(board: Board, name: str, value: Any) -> bool:
    """Return whether these runs have the columns that a part of an address needs; it may come from other runs."""
    if name == "selection":
        return set(board.column_names).issuperset(Selection.from_dict(value).columns)
    if name == "sort":
        return {by["colId"] for by in value} <= {*board.column_names, MARK, RUN}
    if name == "pair":
        return None not in map(board.reference, value)
    return name not in ("x", "y", "color") or value in axis_names(board)


def first_state(context: Context, look: str) -> State:
    """Return the default state of a page."""
    board = context.board
    _, (x, y) = axis_choices(board)
    return State(
        x=x,
        y=y,
        color=None,
        log=sorted(FIRST_LOG),
        show=["dominated"],
        runs=list(range(len(board.runs))),
        filter="",
        error="",
        selection=None,
        design=None if board.knee is None else board.text(board.knee),
        reference=None,
        pair=None,
        zoom=None,
        sort=[],
        theme=look,
        version=board.version,
    )


def followed(context: Context, state: State, gesture: Gesture) -> State:
    """The state after a gesture; an invalid filter only sets the error."""
    board, after = context.board, state.copy()
    match gesture["do"]:
        case "set":
            after.update(gesture["values"])
            if "filter" in gesture["values"]:
                after["error"] = filter_error(board, after["filter"])
                if after["error"]:
                    after["filter"] = state["filter"]
        case "box":
            spans = ((gesture[axis], gesture["range"][axis]) for axis in "xy")
            after["selection"] = kept(Selection(tuple({n: ((min(s), max(s)),) for n, s in spans}.items())))
        case "brush":
            after["selection"] = kept(brushed(Selection.from_dict(state["selection"]), gesture["axes"]))
        case "pick":
            after["selection"] = kept(Selection(keys=frozenset(gesture["designs"])))
        case "clear":
            after["selection"] = None
        case "open":
            after["design"] = gesture["design"]  # a link may have it from another run
        case "point":
            after["design"] = written(board, pointed(board, gesture["point"])) or state["design"]
        case "walk":
            after["design"] = written(board, neighbour(board, board.reference(state["design"]), gesture["step"]))
        case "refer":
            after["reference"] = state["design"]
        case "compare":
            usual = [written(board, context.reference_of(state["reference"])), state["design"]]
            after["pair"] = None if gesture["pair"] == usual else gesture["pair"]
    if (after["design"], after["reference"]) != (state["design"], state["reference"]):
        after["pair"] = None  # as the page of comparisons does
    return after


def answer(context: Context, state: State, drawn: dict[str, str] | None = None) -> JsonObject:
    """Return only what a browser has to redraw: `drawn` has the marks of its last answer."""
    board, known = context.board, drawn or {}
    state = {**state, "version": board.version}
    view = view_of(context, state)
    marks = {"figure": mark(view, state["theme"], board.version), "rows": mark(query_of(context, state), board.version)}
    address = address_of(state, first_state(context, state["theme"]))
    made: JsonObject = {"state": state, "drawn": marks, "words": words(context, state), "address": address}
    if known.get("figure") != marks["figure"]:
        picture = front_figure(board, view, theme(state["theme"]))
        made["figure"] = {**picture.figure, "config": GRAPH_CONFIG}
        made["words"]["scatter-note.children"] = drawn_note(picture, view)
    if known.get("rows") != marks["rows"]:
        made["rows"] = table_rows(context, state, *FIRST_ROWS)
        made["words"]["table-note.children"] = made["rows"]["note"]
    return made


def words(context: Context, state: State) -> JsonObject:
    """Return the texts for a state, except for those of the figure and the rows."""
    board, chosen = context.board, Selection.from_dict(state["selection"])
    ref = board.reference(state["design"])
    unknown = state["design"] if ref is None else None
    said = ""
    if chosen:
        query = query_of(context, state)
        kept_rows = board.filtered(query.source, query.hidden)
        count = sum(int((a & b).sum()) for a, b in zip(board.selected(chosen), kept_rows, strict=True))
        said = f"{count:,} selected: {chosen}"
    return {
        "filter-error.children": state["error"],
        "selection-text.children": said,
        "clear.style": {} if chosen else {"display": "none"},
        "design-words.children": design_words(context, ref, context.reference_of(state["reference"]), unknown),
        **{f"{name}.disabled": ref is None for name in ("open-design", "compare-now", "make-reference")},
        "compare-picked.disabled": len(chosen.keys) < 2,
    }


def mark(*things: Any) -> str:
    """Equal for equal things, and short."""
    return hashlib.blake2b(repr(things).encode(), digest_size=8).hexdigest()


def filter_error(board: Board, source: str) -> str:
    """Return the error that a filter would raise when drawn; "" if it is valid."""
    try:
        board.filtered(source)
    except FilterError as error:
        return error.with_hint
    return ""


def kept(selection: Selection) -> JsonObject | None:
    return selection.to_dict() if selection else None


def written(board: Board, ref: Ref | None) -> str | None:
    return None if ref is None else board.text(ref)


def brushed(before: Selection, axes: JsonObject) -> Selection:
    """The selection after brushes on axes of the parallel coordinates changed."""
    ranges = dict(before.ranges)
    for name, intervals in axes.items():
        if intervals:
            ranges[name] = tuple((float(low), float(high)) for low, high in intervals)
        else:
            ranges.pop(name, None)
    return Selection(tuple(ranges.items()))


def neighbour(board: Board, ref: Ref | None, step: int) -> Ref | None:
    """The next design of the front, in the order of the first objective."""
    front = list(board.front())
    if not front:
        return None
    return front[(front.index(ref) + step) % len(front)] if ref in front else front[0 if step > 0 else -1]
