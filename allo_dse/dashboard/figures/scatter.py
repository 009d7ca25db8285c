"""The front: designs as points in the plane or space of two or three columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..data.board import Axis, Board, Ref
from ..data.columns import Floats, Mask
from ..data.selection import Selection
from ..data.units import label
from .style import GREEN, ORANGE, PURPLE, VERMILLION, Figure, Theme, layout, number_axis, packed
from .thin import thin

RUN_STRIDE = 100_000_000
"""A point's number is this times its run's, plus its row."""
MAX_POINTS_3D = 6_000
MAX_POINTS_SVG = 5_000
"""Up to here a plane is drawn as SVG, which starts sooner than WebGL and is quick without a graphics card."""
_REASON_SYMBOLS = ("x-thin-open", "cross-thin-open", "asterisk-open", "y-up-open", "hash-open", "diamond-tall-open")
_REASON_SYMBOLS_3D = ("x", "cross", "diamond-open", "square-open", "circle-open")
_RUN_SYMBOLS = ("circle", "square", "triangle-up", "pentagon", "hexagon", "star-square")


@dataclass(frozen=True)
class View:
    """What to show of the board, and how.

    Attributes:
        z: None for the plane.
        log: the axes ("x", "y", "z") that are logarithmic.
        hidden: runs that are not shown.
        zoom: the visible ranges of x and y as the axes have them (logarithms on logarithmic axes).
        hover: texts on hovering made here; otherwise whoever shows the figure makes them from a point's number.
    """

    x: str
    y: str
    z: str | None = None
    log: frozenset[str] = frozenset()
    dominated: bool = True
    infeasible: bool = True
    filter: str = ""
    selection: Selection = field(default_factory=Selection)
    hidden: tuple[int, ...] = ()
    zoom: tuple[tuple[float, float], tuple[float, float]] | None = None
    reference: Ref | None = None
    current: Ref | None = None
    hover: bool = False


@dataclass(frozen=True)
class Drawn:
    """A figure, and how many of the designs in view are drawn in it."""

    figure: Figure
    points: int
    of: int


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
    axes = [board.axis(name) for name in (view.x, view.y, view.z) if name is not None]
    painter = _Painter(board, view, look, axes)
    painter.paint(board.filtered(view.filter, view.hidden), board.selected(view.selection))
    if view.z is None:
        kind = "scatter" if painter.drawn <= MAX_POINTS_SVG else "scattergl"
        for trace in painter.traces:
            trace["type"] = kind
    figure = {"data": painter.traces, "layout": _layout(view, look, axes)}
    return Drawn(figure, painter.points, painter.of)


class _Painter:
    """Makes the traces."""

    def __init__(self, board: Board, view: View, look: Theme, axes: list[Axis]) -> None:
        self.board, self.view, self.look, self.axes = board, view, look, axes
        self.traces: list[dict[str, Any]] = []
        self.points = self.of = self.drawn = 0
        self.dimmed = bool(view.selection)

    def paint(self, kept: Sequence[Mask], selected: Sequence[Mask]) -> None:
        several = len(self.board.runs) > 1
        fronts = [run.front for run in self.board.runs]
        for number, run in enumerate(self.board.runs):
            keep, ok = kept[number], run.ok
            on_front = np.zeros(len(run), bool)
            on_front[fronts[number]] = True
            if self.view.dominated:
                self._cloud(number, keep & ok & ~on_front, several)
            if self.view.infeasible:
                self._infeasible(number, keep & ~ok)
        for number, mask in enumerate(selected):
            visible = mask & kept[number] & (self.board.runs[number].ok | self.view.infeasible)
            self._selected(number, visible)
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
        color = self.look.series[number % len(self.look.series)] if several else self.look.dominated
        opacity = 0.25 if self.dimmed else (0.4 if several else 0.75)
        marker = {"size": 5 if self.view.z is None else 3, "color": color, "opacity": opacity}
        self._trace(number, np.flatnonzero(mask), name, marker, thinned=True)

    def _infeasible(self, number: int, mask: Mask) -> None:
        run = self.board.runs[number]
        reason = run.column("reason")
        symbols = _REASON_SYMBOLS if self.view.z is None else _REASON_SYMBOLS_3D
        reasons = reason.categories if reason is not None and not reason.numeric else []
        for position, name in enumerate(reasons):
            rows = np.flatnonzero(mask & (reason.codes == position))  # type: ignore[union-attr]
            marker: dict[str, Any] = {
                "size": 7 if self.view.z is None else 3,
                "symbol": symbols[position % len(symbols)],
                "color": PURPLE,
                "opacity": 0.3 if self.dimmed else 0.7,
                "line": {"color": PURPLE, "width": 1},
            }
            self._trace(number, rows, f"infeasible: {name}", marker, thinned=True)

    def _selected(self, number: int, mask: Mask) -> None:
        marker = {"size": 7 if self.view.z is None else 4, "color": ORANGE, "opacity": 0.95}
        self._trace(number, np.flatnonzero(mask), "selected", marker, thinned=True)

    def _front(self, number: int, rows: NDArray[np.int64], chosen: Mask, several: bool) -> None:
        name = f"front: {self.board.names[number]}" if several else "Pareto front"
        marker = {
            "size": 9 if self.view.z is None else 5,
            "color": self.look.series[number % len(self.look.series)] if several else self.look.front,
            "symbol": _RUN_SYMBOLS[number % len(_RUN_SYMBOLS)] if self.view.z is None else "circle",
            "line": {"color": np.where(chosen, ORANGE, self.look.panel).tolist(), "width": 2 if chosen.any() else 1},
        }
        self._trace(number, rows, name, marker)

    def _mark(self, ref: Ref, name: str, color: str, symbol: str, size: int) -> None:
        if self.view.z is not None:
            size, symbol = size * 2 // 3, {"star": "diamond", "circle-open": "circle-open"}.get(symbol, symbol)
        marker = {"size": size, "color": color, "symbol": symbol, "line": {"color": self.look.panel, "width": 1}}
        if symbol.endswith("-open"):
            marker["line"] = {"color": color, "width": 2}
        self._trace(ref.run, np.array([ref.row]), name, marker)

    def _trace(
        self, number: int, rows: NDArray[np.int64], name: str, marker: dict[str, Any], *, thinned: bool = False
    ) -> None:
        values = [axis.numbers[number][rows] for axis in self.axes]
        usable = np.logical_and.reduce([np.isfinite(v) for v in values])
        rows, values = rows[usable], [v[usable] for v in values]
        total = len(rows)
        if thinned:
            kept = self._thin(values)
            rows, values = rows[kept], [v[kept] for v in values]
            self.points += len(rows)
            self.of += total
        if not len(rows):
            return
        self.drawn += len(rows)
        trace: dict[str, Any] = {
            "type": "scatter" if self.view.z is None else "scatter3d",
            "mode": "markers",
            "name": name,
            "meta": number,
            **{key: packed(v) for key, v in zip("xyz", values, strict=False)},
            "customdata": (rows + number * RUN_STRIDE).tolist(),  # not packed: clicks and hovers report it
            "marker": marker,
            "hoverinfo": "none",
        }
        if self.view.hover:
            trace["hoverinfo"] = "text"
            trace["text"] = [self._text(number, row) for row in rows.tolist()]
        self.traces.append(trace)

    def _thin(self, values: list[Floats]) -> NDArray[np.int64]:
        screen = [self._screen(key, v) for key, v in zip("xyz", values, strict=False)]
        if self.view.z is not None:
            kept = thin(screen[0], screen[1], most=MAX_POINTS_3D)
            return kept
        zoom = None if self.view.zoom is None else tuple(np.array(r) for r in self.view.zoom)
        return thin(screen[0], screen[1], view=zoom)  # type: ignore[arg-type]

    def _screen(self, key: str, values: Floats) -> Floats:
        if key not in self.view.log:
            return values
        with np.errstate(all="ignore"):
            logs = np.log10(values)
        return np.where(np.isfinite(logs), logs, np.nan)

    def _text(self, number: int, row: int) -> str:
        from .words import difference_lines

        return "<br>".join(difference_lines(self.board, Ref(number, row), self.view.reference))


def _layout(view: View, look: Theme, axes: list[Axis]) -> dict[str, Any]:
    made = {
        f"{key}axis": number_axis(look, label(axis.name), log=key in view.log, ticks=axis.ticks)
        for key, axis in zip("xyz", axes, strict=False)
    }
    revision = f"{view.x}|{view.y}|{view.z}|{sorted(view.log)}"
    if view.z is not None:
        scene = {key: {**value, "backgroundcolor": "rgba(0,0,0,0)"} for key, value in made.items()}
        for value in scene.values():
            for name in ("automargin", "minor"):
                value.pop(name, None)
            value["title"] = {"text": value["title"]["text"]}
        return layout(look, scene=scene, uirevision=revision, margin={"l": 0, "r": 0, "t": 12, "b": 0})
    return layout(
        look,
        **made,
        uirevision=revision,
        selectionrevision=str(view.selection),
        dragmode="select",
        shapes=_outline(view, look),
        hoverdistance=12,
    )


def _outline(view: View, look: Theme) -> list[dict[str, Any]]:
    """What was drawn to select, as far as it lies in these axes."""
    line = {"color": look.muted, "width": 1, "dash": "dash"}
    selection = view.selection
    if selection.lasso is not None and selection.lasso[:2] == (view.x, view.y):
        corners = "L".join(f"{x},{y}" for x, y in selection.lasso[2])
        return [{"type": "path", "path": f"M{corners}Z", "line": line}]
    ranges = dict(selection.ranges)
    if view.x in ranges and view.y in ranges:
        return [
            {"type": "rect", "x0": x0, "x1": x1, "y0": y0, "y1": y1, "line": line}
            for x0, x1 in ranges[view.x]
            for y0, y1 in ranges[view.y]
        ]
    return []
