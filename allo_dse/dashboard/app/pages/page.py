"""The page: header, navigation, and the four pages, which stay loaded so that they keep their state.

What the first view needs is part of it: every question the browser asks first delays the picture."""

from __future__ import annotations

from typing import Any

import dash_ag_grid
from dash import dcc, html
from dash.development.base_component import Component

from allo_dse.common.errors import StudyError
from allo_dse.tune.store.certificate import Certificate
from allo_dse.tune.store.run_info import read_info

from ...data.runs import Board
from ...data.table import RunTable
from ...figures.style import Figure, Theme
from ..context import Context, State
from ..design_table import column_definitions
from ..front_plots import axis_choices, parallel_style
from ..interactions import first_answer
from ..networks import kept_networks
from ..parts import card, checks, facts, field, graph, labelled, plot_card, save_button, select, status_line
from .compare import design_options

_SHORTCUTS = (
    ("1 2 3 4", "Front, Progress, Design, Compare"),
    ("/", "write a filter"),
    ("Esc", "clear the selection"),
    ("j k", "next, previous design of the front"),
    ("Enter", "open the design"),
    ("r", "make the design the reference"),
    ("c", "compare the design with the reference"),
    ("t", "dark or light"),
    ("?", "this list"),
)


_FRONT_NOTE = "No design is better than one on the Pareto front in all objectives; its knee is the best compromise."
_VOLUME_NOTE = "the share of the box up to the reference point that the front dominates: larger is better"
_HISTORY_NOTE = "feasible designs, the best so far, and dotted a bound that no design can beat, where known"
_IMPORTANCE_NOTE = "how differently a parameter's values are spread among the best designs (PED-ANOVA)"


def page(context: Context, look: Theme, query: str = "") -> Component:
    """Everything, with the board's runs as they are now; `query` is that of the page's address."""
    board = context.board
    shown = first_answer(context, look.name, query)
    state = shown["state"]
    stored = {
        "theme": look.name,
        "version": board.version,
        "shown": {name: shown[name] for name in ("state", "drawn", "words", "address")},
        "design": state["design"],
        "reference": state["reference"],
        "program-version": 0,
        "notes-version": 0,
        "compare-of": [state["design"], state["reference"]],
    }
    return html.Div(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            *(dcc.Store(id=name, data=data) for name, data in stored.items()),
            *map(dcc.Store, ("alive", "parallel-wanted", "design-known", "part-shown")),
            dcc.Download(id="download"),
            html.A("Skip to the designs", href="#pages", className="skip"),
            _header(context, state),
            html.Nav(id="sections", className="sections", **labelled("Sections of this page")),
            html.Main(
                [
                    html.Div(
                        _front(context, state, shown["figure"], shown["words"]), id="page-front", className="page"
                    ),
                    html.Div(id="page-progress", className="page"),
                    html.Div(html.Div(id="design-page"), id="page-design", className="page"),
                    html.Div(_compare(board, state["pair"]), id="page-compare", className="page"),
                ],
                id="pages",
            ),
            html.Dialog(
                [html.H2("Keyboard"), facts(_SHORTCUTS), html.Button("Close", id="help-close")],
                id="help",
                **labelled("Keyboard shortcuts"),
            ),
        ],
        id="root",
    )


def _header(context: Context, state: State) -> Component:
    board = context.board
    links = [
        dcc.Link(text, href=f"/{name}", id=f"tab-{name}", className="tab", title=f"{text} ({key})")
        for key, (name, text) in enumerate(
            (("front", "Front"), ("progress", "Progress"), ("design", "Design"), ("compare", "Compare")), start=1
        )
    ]
    several = len(board.runs) > 1
    runs = dcc.Checklist(
        id="runs",
        options=[{"label": name, "value": number} for number, name in enumerate(board.names)],
        value=state["runs"],
        inline=True,
        className="checks runs",
        style={} if several else {"display": "none"},
    )
    title = "" if several else board.names[0]
    return html.Header(
        [
            html.Div([html.Span("allo-dse", className="brand"), html.H1(title), runs], className="title"),
            html.Nav(links, className="tabs", **labelled("Pages")),
            html.Div(status_line(context), id="status", className="status", role="status"),
            html.Div(
                [
                    *([html.A("Networks", href="/networks", className="button")] if kept_networks(board) else []),
                    html.Button("Theme", id="theme-button", title="Dark or light (t)"),
                    html.Button("?", id="help-button", title="Keyboard shortcuts (?)", **labelled("Shortcuts")),
                ],
                className="actions",
            ),
        ],
        className="top",
    )


def _front(context: Context, state: State, figure: Figure, words: dict[str, Any]) -> list[Component]:
    board = context.board
    options, _ = axis_choices(board)
    controls = html.Div(
        [
            field("x", select("x", value=state["x"], options=options)),
            field("y", select("y", value=state["y"], options=options)),
            field(
                "colour",
                select("color", value=state["color"], clearable=True, placeholder="front or not", options=options),
            ),
            html.Fieldset(
                [
                    html.Legend("Axes"),
                    checks("log", {"x": "log x", "y": "log y"}, state["log"]),
                ]
            ),
            html.Fieldset(
                [
                    html.Legend("Show"),
                    checks("show", {"dominated": "dominated", "infeasible": "infeasible"}, state["show"]),
                ]
            ),
        ],
        className="controls",
    )
    scatter = [
        controls,
        graph("scatter", height="tall", label="Designs by two metrics", figure=figure),
        dcc.Tooltip(id="tooltip", direction="right", className="tooltip"),
        html.P(words["scatter-note.children"], id="scatter-note", className="hint"),
        html.Div(proofs(board), id="proofs"),
    ]
    return [
        _filter_bar(state, words),
        html.Div(
            [
                card("Designs", *scatter, tools=[save_button("scatter")], id="scatter-card", note=_FRONT_NOTE),
                _design_card(words),
            ],
            className="split",
        ),
        plot_card(
            "What varies",
            "parallel",
            note="Drag along an axis to select; click the axis to undo.",
            height="medium broad",
            wide=True,
            style=parallel_style(board),
        ),
        _table_card(board, words),
    ]


def proofs(board: Board) -> list[Component]:
    """A line per run whose search decides its space: what is proven about the front."""
    found: list[Component] = []
    for name, run in zip(board.names, board.runs, strict=True):
        certificate = certificate_of(run)
        if certificate is not None:
            several = f"{name}: " if len(board.runs) > 1 else ""
            kind, word = ("good", "proven") if certificate.complete else ("plain", "not proven")
            badge = html.Span(word, className=f"badge {kind}")
            found.append(html.P([badge, f" {several}{certificate}"], className="hint proof"))
    return found


def certificate_of(run: RunTable) -> Certificate | None:
    """Read the current certificate: the run rewrites its file as it goes."""
    try:
        return read_info(run.path).certificate
    except StudyError:  # the run is being deleted
        return None


def _design_card(words: dict[str, Any]) -> Component:
    """Card with a summary of the chosen design, and buttons for it."""

    def button(name: str, text: str, hint: str, kind: str = "") -> Component:
        disabled = words.get(f"{name}.disabled", False)
        return html.Button(text, id=name, className=f"small {kind}", title=hint, disabled=disabled)

    steps = [
        button("previous-design", "◂", "Previous design of the front (k)"),
        button("next-design", "▸", "Next design of the front (j)"),
    ]
    actions = [
        button("open-design", "Open", "Enter", "primary"),
        button("compare-now", "Compare with reference", "c"),
        button("make-reference", "Make reference", "r"),
    ]
    return html.Aside(
        [
            html.Div([html.H2("Design"), html.Div(steps, className="tools")], className="card-head"),
            html.Div(words["design-words.children"], id="design-words"),
            html.Div(actions, className="buttons"),
            html.Div(id="starred"),
        ],
        className="card side",
        **labelled("Chosen design"),
    )


def _filter_bar(state: State, words: dict[str, Any]) -> Component:
    return html.Div(
        [
            html.Label("Filter", htmlFor="filter"),
            dcc.Input(
                id="filter",
                type="text",
                value=state["filter"],
                debounce=0.2,
                placeholder="latency_us < 900 and bram18 < 80   ( / )",
                spellCheck=False,
                autoComplete="off",
                className="filter",
            ),
            html.Span(words["filter-error.children"], id="filter-error", className="error", role="alert"),
            html.Span(words["selection-text.children"], id="selection-text", className="chosen"),
            html.Button("Clear selection", id="clear", className="small", title="Esc", style=words["clear.style"]),
        ],
        className="filterbar",
    )


def _table_card(board: Board, words: dict[str, Any]) -> Component:
    grid = dash_ag_grid.AgGrid(
        id="table",
        rowModelType="infinite",
        columnDefs=column_definitions(board, hide_equal=True),
        defaultColDef={"sortable": True, "resizable": True, "minWidth": 90},
        getRowId="params.data._id",
        dashGridOptions={
            "theme": {"function": "themeQuartz"},
            "cacheBlockSize": 50,
            "rowBuffer": 2,
            "maxBlocksInCache": 10,
            "infiniteInitialRowCount": 30,
            "rowSelection": {"mode": "multiRow", "checkboxes": True, "headerCheckbox": False},
            "selectionColumnDef": {"pinned": "left", "width": 44},
            "suppressFieldDotNotation": True,
            "rowHeight": 30,
            "headerHeight": 34,
            "enableCellTextSelection": True,
            "animateRows": False,
        },
        rowClassRules={
            "row-front": "params.data && params.data._mark === 'front'",
            "row-knee": "params.data && params.data._mark === 'knee'",
        },
        style={"height": "420px", "width": "100%"},
    )
    tools = [
        checks("hide-equal", {"equal": "hide equal columns"}, ["equal"]),
        html.Button("Table as CSV", id="export-table", className="small"),
        html.Button("Front as CSV", id="export-front", className="small"),
        html.Button(
            "Compare two picked", id="compare-picked", className="small", disabled=words["compare-picked.disabled"]
        ),
    ]
    return card("Table", grid, html.P(id="table-note", className="hint"), tools=tools, wide=True, id="table-card")


def progress_page(board: Board) -> list[Component]:
    run = field(
        "run",
        dcc.Dropdown(
            id="progress-run",
            options=[{"label": n, "value": i} for i, n in enumerate(board.names)],
            value=0,
            clearable=False,
        ),
    )
    objective = field("objective", select("progress-objective"))
    across = {"designs": "evaluated designs", "time": "wall time"}
    against = field("against", dcc.Dropdown(id="against", options=across, value="designs", clearable=False))
    control = [html.Span(id="control-buttons"), html.Span(id="control-text", className="hint", role="status")]
    bar = html.Div([run, objective, against, *control], className="filterbar")
    return [
        html.Div(id="numbers", className="numbers"),
        bar,
        html.Div(
            [
                html.Div(plot_card("Predicted against measured", "measured"), id="measured-card"),
                html.Div(plot_card("The front, two objectives at a time", "pairs", note=_FRONT_NOTE), id="pairs-card"),
                plot_card("History", "history", note=_HISTORY_NOTE),
                plot_card("Hypervolume", "hypervolume", note=_VOLUME_NOTE),
                plot_card("Designs over time", "designs-time", note="feasible, and ruled out by kind"),
                plot_card("Ruled out by", "lost", note="a design may break several limits"),
                plot_card("Importance of parameters", "importance", note=_IMPORTANCE_NOTE),
                plot_card("Workers", "workers"),
            ],
            className="tiles",
        ),
    ]


def _compare(board: Board, pair: list[str] | None) -> list[Component]:
    first, second = pair or (None, None)
    options = design_options(board, pair) if pair else []
    return [
        html.Div(
            [
                field("first", select("compare-a", value=first, options=options)),
                field("second", select("compare-b", value=second, options=options)),
                html.Button("Swap", id="compare-swap", className="small"),
            ],
            className="filterbar compare",
        ),
        html.Div(id="compare-page"),
        plot_card(
            "Change of each metric",
            "compare-plot",
            note="second relative to first; objectives in green are better, hatched red ones worse",
            wide=True,
            height="auto",
        ),
    ]
