"""The front: designs as points in the plane of two columns."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

import numpy as np
from msgspec import field

from allo_dse.common.quoting import html_text
from allo_dse.common.records import Frozen
from allo_dse.tune.results.explain import range_percent
from allo_dse.tune.store.run_info import shortened

from ..data.analysis import difference_lines, known, title_text
from ..data.columns import Mask
from ..data.progress import why_none
from ..data.runs import Board, ColumnAxis, Ref
from ..data.selection import Selection, label
from ..data.table import Rows, RunTable
from .style import (
    CURVES,
    GREEN,
    LINE,
    NO_VALUE,
    ORANGE,
    POINTS,
    PURPLE,
    VERMILLION,
    Figure,
    Spec,
    Theme,
    color_axis,
    layout,
    mixed,
    note,
    number_axis,
    packed,
)
from .thinning import Span, Window, on_screen, spots, thin, visible, window

# Infeasible designs are grouped into no more kinds than there are symbols.


_SYMBOLS = ("x-thin-open", "cross-thin-open", "asterisk-open", "y-up-open", "hash-open", "diamond-tall-open")


class Kind(Frozen):
    """Designs that are not feasible for the same reason, or for one of the rare ones."""

    name: str
    rows: Mask
    marker: Spec


def kinds_of(run: RunTable, *, dimmed: bool) -> list[Kind]:
    """The most frequent reasons of a run, and the others as one."""
    reason = run.column("reason")
    if reason is None or reason.numeric:
        return []
    counts = np.bincount(reason.codes[reason.codes >= 0], minlength=len(reason.categories))
    ranked = [code for code in np.argsort(-counts, kind="stable").tolist() if counts[code]]
    few = ranked if len(ranked) <= len(_SYMBOLS) else ranked[: len(_SYMBOLS) - 1]
    groups = [(reason.categories[code], [code]) for code in few]
    if rest := ranked[len(few) :]:
        groups.append((f"{len(rest)} other reasons", rest))
    look: Spec = {"size": 7, "color": PURPLE, "opacity": 0.3 if dimmed else 0.7}
    look["line"] = {"color": PURPLE, "width": 1}
    found = []
    for symbol, (name, codes) in zip(_SYMBOLS, groups, strict=False):
        rows = np.isin(reason.codes, codes)
        failed = run.columns["status"].value(int(rows.argmax())) == "failed"
        found.append(Kind(f"{'failed' if failed else 'infeasible'}: {name}", rows, {**look, "symbol": symbol}))
    return found


RUN_STRIDE = 100_000_000
"""A point's number is this times its run's, plus its row."""
PROPORTIONAL = ("latency_us", "latency_cycles")
"""Metrics to which the range of a predicted latency applies."""
MOST_RANGES = 60
"""Designs of a front that are drawn with error bars: more would hide each other, and each is read from the log."""
MAX_POINTS = 400
"""Larger clouds are drawn as spots: a point costs a browser about 0.1 ms whenever something changes."""
MARGIN = 0.03
"""Around all designs, as a share of their extent."""
ROOM = {"l": 76, "r": 16, "t": 52, "b": 62}
"""Pixels around the plot: what a legend in one row and numbers of five digits need. Where Plotly has to make room
itself, it draws twice."""
SELECTED = "selected"
EDGE = "edge of the front"
COLORED = "by a column"
"""In the place of a colour: of what is coloured by the view's column."""
_RUN_SYMBOLS = ("circle", "square", "triangle-up", "pentagon", "hexagon", "star-square")


class View(Frozen):
    """Content and options of the scatter plot.

    Attributes:
        log: the axes ("x", "y") that are logarithmic.
        hidden: runs that are not shown.
        zoom: the visible ranges of x and y as the axes have them (logarithms on logarithmic axes), infinite for all.
        hover: texts on hovering made here; otherwise whoever shows the figure makes them from a point's number.
        color: the column that colours designs; None tells the front from the others.
    """

    x: str
    y: str
    log: frozenset[str] = frozenset()
    dominated: bool = True
    infeasible: bool = True
    filter: str = ""
    selection: Selection = field(default_factory=Selection)
    hidden: tuple[int, ...] = ()
    zoom: Window | None = None
    reference: Ref | None = None
    current: Ref | None = None
    hover: bool = False
    color: str | None = None


class Drawn(Frozen):
    """A figure.

    Attributes:
        designs, marks: the number of designs in view, and of the points and spots that represent them.
    """

    figure: Figure
    designs: int
    marks: int


def point_number(ref: Ref) -> int:
    return ref.run * RUN_STRIDE + ref.row


def point_ref(number: int) -> Ref:
    """The inverse of `point_number`."""
    return Ref(*divmod(int(number), RUN_STRIDE))


def front_figure(board: Board, view: View, look: Theme) -> Drawn:
    """The scatter of the board's designs.

    Raises:
        FilterError: if the filter cannot be understood.
    """
    if not any(len(run) for run in board.runs):
        return Drawn(note(look, why_none(board)), 0, 0)
    axes = [board.axis(name) for name in (view.x, view.y)]
    painter = _Painter(board, view, look, axes)
    painter.paint(board.filtered(view.filter, view.hidden), board.selected(view.selection))
    if not painter.designs and view.zoom is None:
        return Drawn(note(look, why_none(board)), 0, 0)
    made = _layout(view, look, axes, painter.extent)
    if painter.colors is not None:
        made["coloraxis"] = color_axis(painter.colors, look)
    figure = {"data": painter.traces, "layout": made}
    return Drawn(figure, painter.designs, painter.marks)


class _Painter:
    """Makes the traces."""

    def __init__(self, board: Board, view: View, look: Theme, axes: list[ColumnAxis]) -> None:
        self.board, self.view, self.look, self.axes = board, view, look, axes
        self.traces: list[Spec] = []
        self.designs = self.marks = 0
        self.dimmed = bool(view.selection)
        self.colors = None if view.color is None else board.axis(view.color)
        self.log = {key for key, axis in zip("xy", axes, strict=True) if key in view.log and axis.ticks is None}
        self.screen = [
            tuple(on_screen(numbers, key in self.log) for numbers in axis.numbers)
            for key, axis in zip("xy", axes, strict=True)
        ]
        self.whole: Window = (0.0, 1.0), (0.0, 1.0)
        self.window = self.whole
        """The plane that has designs, and the part of it that is visible: what spots are cut from."""
        self.extent: dict[str, Span] = {}
        """Of axes with an underlay: what both show unless it is zoomed."""

    def paint(self, kept: Sequence[Mask], selected: Sequence[Mask]) -> None:
        several = len(self.board.runs) > 1
        fronts = [run.front for run in self.board.runs]
        self.whole = self._whole(kept)
        x, y = (
            zoom if np.isfinite(zoom).all() else whole
            for whole, zoom in zip(self.whole, self.view.zoom or self.whole, strict=True)
        )
        self.window = x, y
        for number, run in enumerate(self.board.runs):
            keep, ok = kept[number], run.ok
            on_front = np.zeros(len(run), bool)
            on_front[fronts[number]] = True
            if self.view.dominated:
                self._cloud(number, keep & ok & ~on_front, several)
            if self.view.infeasible:
                kinds = kinds_of(run, dimmed=self.dimmed)
                for kind in kinds:
                    rows = np.flatnonzero(keep & ~ok & kind.rows)
                    self._points(number, rows, kind.name, kind.marker, MAX_POINTS // len(kinds))
        for number, mask in enumerate(selected):
            visible = mask & kept[number] & (self.board.runs[number].ok | self.view.infeasible)
            self._crowd(number, visible, SELECTED, (ORANGE, mixed(ORANGE, self.look.text, 0.4)), 0.95, size=7)
        for number, rows in enumerate(fronts):
            shown = rows[kept[number][rows]]
            self._front(number, shown, selected[number][shown], several)
            knee = self.board.runs[number].knee
            if knee is not None and kept[number][knee]:
                self._mark(Ref(number, knee), "knee", VERMILLION, "star", 15)
        if self.view.reference is not None and self.view.reference.run not in self.view.hidden:
            self._mark(self.view.reference, "reference", GREEN, "diamond", 12)
        if self.view.current is not None and self.view.current.run not in self.view.hidden:
            self._mark(self.view.current, "open design", self.look.text, "circle-open", 18)

    def _cloud(self, number: int, mask: Mask, several: bool) -> None:
        name = f"dominated: {self.board.names[number]}" if several else "dominated"
        few, many = self.look.dominated, self.look.muted
        if several:
            many = self.look.series[number % len(self.look.series)]
            few = mixed(many, self.look.panel, 0.4)
        opacity = 0.25 if self.dimmed else (0.5 if several else 0.75)
        self._crowd(number, mask, name, (few, many), opacity, size=5)

    def _front(self, number: int, rows: Rows, chosen: Mask, several: bool) -> None:
        """The designs of a front as points; where there are too many to tell apart, one per spot."""
        name = f"front: {self.board.names[number]}" if several else "Pareto front"
        marker: Spec = {
            "size": 9,
            "color": self.look.series[number % len(self.look.series)] if several else self.look.front,
            "symbol": _RUN_SYMBOLS[number % len(_RUN_SYMBOLS)],
        }
        if self.colors is not None:
            marker["color"] = COLORED
        kept = self._kept(number, self._valued(number, rows, name, marker), name, MAX_POINTS)
        picked = np.isin(kept, rows[chosen])
        marker["line"] = {
            "color": np.where(picked, ORANGE, self.look.panel if self.colors is None else self.look.text).tolist(),
            "width": 2 if picked.any() else 1,
        }
        self._trace(number, kept, name, marker, bars=self._ranges(number, kept))
        if kept.size:
            self._line(number, kept, name, marker)

    def _line(self, number: int, rows: Rows, name: str, marker: Spec) -> None:
        """The edge of what the front dominates, if both axes are objectives: it ends at the best of each."""
        signs = {o.name: o.sign for o in self.board.runs[number].facts.objectives}
        if not {self.view.x, self.view.y} <= signs.keys() or self.view.x == self.view.y:
            return
        x, y = (axis.numbers[number][rows] for axis in self.axes)
        order = np.lexsort([signs[self.view.y] * y, signs[self.view.x] * x])
        losses = signs[self.view.y] * y[order]
        least = np.minimum.accumulate(losses)
        kept = order[losses == least]
        color = self.look.muted if marker["color"] == COLORED else marker["color"]
        self.traces.append(
            {
                **CURVES,
                "meta": number,
                "uid": _uid(number, f"{name} line"),
                "legendgroup": EDGE,
                "name": EDGE,
                "zorder": -1,
                "showlegend": all(trace["name"] != EDGE for trace in self.traces),
                "hoverinfo": "skip",
                "x": packed(x[kept]),
                "y": packed(y[kept]),
                "customdata": (rows[kept] + number * RUN_STRIDE).tolist(),
                "marker": {"color": color},
                "line": {"shape": "hv", "width": 1.5, "color": color},
                "opacity": 0.3 if self.dimmed else 0.7,
            }
        )

    def _ranges(self, number: int, rows: Rows) -> Spec:
        """Error bars: the range in which nine of ten predicted latencies of this kind lie. None for crowded fronts."""
        axes = [key for key, name in zip("xy", (self.view.x, self.view.y), strict=True) if name in PROPORTIONAL]
        if not axes or len(rows) > MOST_RANGES:
            return {}
        run = self.board.runs[number]
        shares = [range_percent(known(run, row)) / 100 for row in rows.tolist()]
        if not any(shares):
            return {}
        look: Spec = {"type": "data", "color": self.look.muted, "thickness": 1, "width": 4}
        values = {key: self.axes["xy".index(key)].numbers[number][rows] for key in axes}
        return {f"error_{key}": {**look, "array": (values[key] * shares).tolist()} for key in axes}

    def _mark(self, ref: Ref, name: str, color: str, symbol: str, size: int) -> None:
        marker = {"size": size, "color": color, "symbol": symbol, "line": {"color": self.look.panel, "width": 1}}
        if symbol.endswith("-open"):
            marker["line"] = {"color": color, "width": 2}
        self._trace(ref.run, np.array([ref.row]), name, marker)

    def _whole(self, kept: Sequence[Mask]) -> Window:
        shown = [mask & (run.ok | self.view.infeasible) for mask, run in zip(kept, self.board.runs, strict=True)]
        x, y = (np.concatenate([v[m] for v, m in zip(axis, shown, strict=True)]) for axis in self.screen)
        return window(x, y)

    def _crowd(self, number: int, mask: Mask, name: str, colors: tuple[str, str], opacity: float, size: int) -> None:
        """Many designs: points while they are few, else spots that are darker where there are more."""
        rows = np.flatnonzero(mask)
        marker: Spec = {"size": size, "color": colors[0], "opacity": opacity}
        if self.colors is not None and name != SELECTED:
            marker |= {"color": COLORED, "line": {"color": self.look.muted, "width": 0.6}}
            rows = self._valued(number, rows, name, marker)
        x, y = (axis[number][rows] for axis in self.screen)
        seen = visible(x, y, self.view.zoom)
        if len(seen) <= MAX_POINTS:
            self._points(number, rows, name, marker, MAX_POINTS)
            return
        found = spots(x[seen], y[seen], self.window).cropped()
        there = found.counts > 0
        designs = np.where(there, rows[seen][found.first], 0)
        self._count(name, len(seen), int(there.sum()))
        most = max(2, int(found.counts.max()))
        trace: dict[str, object] = {
            "type": "heatmap",
            "name": shortened(name, LINE),
            "meta": number,
            "uid": _uid(number, name),
            "legendgroup": name,
            "x": packed(found.x),
            "y": packed(found.y),
            **self._underlay(),
            "z": packed(np.where(there, found.counts, np.nan).astype(np.float32)),
            "customdata": packed(designs + number * RUN_STRIDE),
            "zmin": 1,
            "zmax": most,
            "colorscale": [[(most**f - 1) / (most - 1), mixed(*colors, f)] for f in (0, 0.25, 0.5, 0.75, 1)],
            "showscale": False,
            "showlegend": True,
            "opacity": opacity,
            "hoverongaps": False,
            "hoverinfo": "none",
        }
        if self.colors is not None and name != SELECTED:  # a spot has the colour of one of its designs
            values = np.where(there, self.colors.numbers[number][designs], np.nan)
            trace |= {"z": packed(values.astype(np.float32)), "coloraxis": "coloraxis", "opacity": 0.9}
            for own in ("zmin", "zmax", "colorscale", "showscale"):
                del trace[own]
        if self.view.hover:
            trace["hoverinfo"] = "text"
            trace["text"] = [
                [f"{self._text(number, row)}<br>{count:,} designs here" if count else "" for row, count in line]
                for line in np.stack([designs, found.counts], axis=-1).tolist()
            ]
        self.traces.append(trace)

    def _underlay(self) -> dict[str, str]:
        """Choose the axes that spots are drawn on.

        On logarithmic axes Plotly would paint every spot by itself. On a linear axis underneath, which shows the
        logarithms, they are one small picture that is stretched.
        """
        marked = [ref for ref in (self.view.reference, self.view.current) if ref is not None]
        for key, numbers, span in zip("xy", self.screen, self.whole, strict=False):
            if key in self.log:
                values = [*span, *(numbers[ref.run][ref.row] for ref in marked)]
                low, high = float(np.nanmin(values)), float(np.nanmax(values))
                self.extent[key] = (low - MARGIN * (high - low), high + MARGIN * (high - low))
        return {f"{key}axis": f"{key}2" for key in self.extent}

    def _valued(self, number: int, rows: Rows, name: str, marker: Spec) -> Rows:
        """The designs that have a value of the colour; the others are drawn, hollow: no colour of a scale says none."""
        if self.colors is None:
            return rows
        known = np.isfinite(self.colors.numbers[number][rows])
        hollow = {**marker, "color": self.look.muted, "symbol": f"{marker.get('symbol', 'circle')}-open"}
        self._trace(number, self._kept(number, rows[~known], name, MAX_POINTS), NO_VALUE, hollow, of=name)
        return rows[known]

    def _count(self, name: str, designs: int, marks: int) -> None:
        if name != SELECTED:  # drawn again, on top
            self.designs += designs
            self.marks += marks

    def _points(self, number: int, rows: Rows, name: str, marker: dict[str, object], most: int) -> None:
        """A limited number of points, one per spot."""
        self._trace(number, self._kept(number, rows, name, most), name, marker)

    def _kept(self, number: int, rows: Rows, name: str, most: int) -> Rows:
        """The designs among those in view that are drawn for all of them, in the same order."""
        x, y = (axis[number][rows] for axis in self.screen)
        seen = visible(x, y, self.view.zoom)
        kept = rows[seen][thin(x[seen], y[seen], max(most, 8))]
        self._count(name, len(seen), len(kept))
        return kept

    def _trace(self, number: int, rows: Rows, name: str, marker: Spec, of: str = "", bars: Spec | None = None) -> None:
        """Points; `of` tells those of the same name apart, and `bars` are error bars."""
        finite = np.logical_and.reduce([np.isfinite(axis[number][rows]) for axis in self.screen])
        bars = {} if bars is None or not finite.all() else bars
        rows = rows[finite]
        if not len(rows):
            return
        first = all(trace["legendgroup"] != name for trace in self.traces)
        if marker["color"] == COLORED and self.colors is not None:
            if first:  # in a legend, points of many colours would be black: an entry without points
                alone = {"x": [None], "y": [None], "uid": _uid(-1, name), "showlegend": True}
                self.traces.append({**self._markers(name, {**marker, "color": self.look.muted}), **alone})
            marker = {**marker, "color": packed(self.colors.numbers[number][rows]), "coloraxis": "coloraxis"}
            first = False
        trace: dict[str, object] = {
            **self._markers(name, marker),
            **bars,
            "meta": number,
            "uid": _uid(number, name + of),
            "showlegend": first,
            **{key: packed(axis.numbers[number][rows]) for key, axis in zip("xy", self.axes, strict=True)},
            "customdata": (rows + number * RUN_STRIDE).tolist(),  # not packed: clicks and hovers report it
            **({"zorder": 1} if self.extent else {}),  # traces on other axes would be above
        }
        if self.view.hover:
            trace["hoverinfo"] = "text"
            trace["text"] = [self._text(number, row) for row in rows.tolist()]
        self.traces.append(trace)

    def _markers(self, name: str, marker: Spec) -> Spec:
        """Return the settings common to all traces of points."""
        said = {"name": shortened(name, LINE), "legendgroup": name, "hoverinfo": "none"}
        return {**POINTS, "marker": marker, **said}

    def _text(self, number: int, row: int) -> str:
        ref = Ref(number, row)
        lines, title = difference_lines(self.board, ref, self.view.reference), html_text(title_text(self.board, ref))
        return "<br>".join(map(html_text, lines)).replace(title, f"<b>{title}</b>", 1)


def _uid(number: int, name: str) -> str:
    """Tells a trace from others, so that one that was hidden by a click on its name stays hidden. Plotly makes it part
    of a CSS selector, which not every name can be."""
    return f"{zlib.crc32(f'{number} {name}'.encode()):08x}"


def _layout(view: View, look: Theme, axes: list[ColumnAxis], extent: dict[str, Span]) -> Spec:
    made = {
        f"{key}axis": number_axis(look, label(axis.name), log=key in view.log, ticks=axis.ticks)
        for key, axis in zip("xy", axes, strict=True)
    }
    for axis, span in zip(("xaxis", "yaxis"), view.zoom or (), strict=False):
        if np.isfinite(span).all():
            made[axis] |= {"range": list(span), "autorange": False}
    for key, span in extent.items():
        above = made[f"{key}axis"]
        zoomed: Spec = {name: above[name] for name in ("range", "autorange") if name in above}
        made[f"{key}axis2"] = {"overlaying": key, "visible": False, "autorangeoptions": _exactly(*span), **zoomed}
        above["autorangeoptions"] = _exactly(10 ** span[0], 10 ** span[1])
    drawn = layout(
        look,
        **made,
        uirevision=f"{view.x}|{view.y}|{sorted(view.log)}",
        dragmode="select",
        shapes=_outline(view, look),
        hoverdistance=12,
        margin=ROOM,
    )
    # Plotly keeps the space of the legend's rows from before a colour bar was added. From the container's top down,
    # they do not reach the plot.
    drawn["legend"] |= {"yref": "container", "y": 1, "yanchor": "top"}
    drawn["modebar"]["remove"] = ["resetScale2d", "lasso2d"]  # it would take an address's zoom for the full range
    return drawn


def _exactly(low: float, high: float) -> Spec:
    """Makes Plotly choose a range by itself that is this one."""
    return {"include": [low, high], "clipmin": low, "clipmax": high}


def _outline(view: View, look: Theme) -> list[Spec]:
    """Return the outline of the drawn selection, as far as it lies in these axes."""
    line = {"color": look.muted, "width": 1, "dash": "dash"}
    ranges = dict(view.selection.ranges)
    return [
        {"type": "rect", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line}
        for x0, x1 in ranges.get(view.x, ())
        for y0, y1 in ranges.get(view.y, ())
    ]
