"""A composition as one HTML file: its graph by launches, its timeline, its time by cause, and the front."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle, groupby
from pathlib import Path

import jinja2

from allo_dse.drawing.svg import COLORS, GREY, Canvas, fit, points_svg, text_width

from ..compose import WAITING, Composition
from ..launches import Run, in_order
from ..network import Arrange, Network

_BOX, _HIGH, _GAP, _LEFT = 210.0, 40.0, 26.0, 16.0
_LANE, _LANES = 9.0, 8  # width and number of lanes for edges beside the boxes
_WIDE, _ROW = 900.0, 26.0
_MORE_COLORS = ("#2f4b7c", "#8c2d19", "#4a7023", "#7b1fa2", "#00696b", "#5d4037")  # dark enough for white letters


def page_html(composition: Composition, front: Sequence[Composition] = ()) -> str:
    """The page of a composition.

    Args:
        front: compositions on less of the device, to compare with.
    """
    share = "LUTs" if composition.resources else "columns"
    points = [(one.resources.get("lut", one.columns), one.latency_us) for one in front]
    tips = [f"{one.latency_us:,.0f} us on {one.where}, {len(one.launches)} launches" for one in front]
    return str(
        jinja2.Template(
            Path(__file__).with_name("network.html.j2").read_text(), autoescape=True, trim_blocks=True
        ).render(
            composition=composition,
            front=front,
            busiest=_busiest,
            graph=graph_svg(composition),
            timeline=timeline_svg(composition),
            times=time_svg(composition.time_us),
            trade=points_svg(points, share, "latency (us)", tips) if len(front) > 1 else "",
        )
    )


def _busiest(run: Run) -> str:
    name = max(run.point.bound, key=lambda name: run.point.bound[name], default="")
    return f"{name} {run.point.bound[name]:.0%}" if name else ""


def sources_of(network: Network) -> dict[str, list[tuple[str, bool]]]:
    """Return the tensors that each rearranged tensor is made of; the flag is True if elements are moved in between."""
    found: dict[str, list[tuple[str, bool]]] = {}
    for step in network.steps:
        if isinstance(step.work, Arrange):
            before = [one for name in step.inputs for one in found.get(name, [(name, False)])]
            found[step.output] = [(name, was or not step.work.free) for name, was in before]
    return found


def graph_svg(composition: Composition) -> str:
    """Draw operators and steps of the host as boxes in their order, operators of a launch in a frame.

    Streams have a color, and edges are dashed where elements are moved.
    """
    network, kinds, canvas = composition.network, _colors(composition), Canvas("operators by launches")
    sources, places, y = sources_of(network), dict[str, float](), 10.0
    runs = {run.step.output: (launch, run) for launch in composition.launches for run in launch.runs}
    boxes = [step for step, _ in in_order(network, composition.launches) if not isinstance(step.work, Arrange)]
    for launch, group in groupby(boxes, lambda step: runs[step.output][0] if step.output in runs else None):
        own = list(group)
        if launch is not None:
            canvas.box(_LEFT, y, 2 * _GAP + _BOX, 26 + len(own) * (_HIGH + _GAP), opacity=0.06)
            span = f"launch {launch.number}: {launch.start_us:,.0f} to {launch.end_us:,.0f} us"
            canvas.text(_LEFT + 8, y + 16, span, bold=True)
            y += 26
        for step in own:
            if step.output in runs:
                run = runs[step.output][1]
                us, tip, color = run.end_us - run.start_us, f", {_busiest(run)}", kinds[step.work.kind]
            else:
                us, tip, color = composition.host_us[step.name], f" on the host: {getattr(step.work, 'why', '')}", GREY
            places[step.output], left = y, _LEFT + _GAP
            canvas.box(left, y, _BOX, _HIGH, tip=f"{step.name}: {us:,.1f} us{tip}")
            canvas.fill(left, y, 5, _HIGH, color)
            canvas.text(left + 12, y + 17, fit(step.title, _BOX - 40), bold=True)
            kind = step.work.kind if step.output in runs else f"host: {step.work.kind}"
            took = f"{us:,.0f} us"
            canvas.text(left + 12, y + 32, fit(kind, _BOX - 28 - text_width(took, 10), 10), size=10)
            canvas.text(left + _BOX - 8, y + 32, took, size=10, anchor="end")
            y += _HIGH + _GAP
        y += _GAP
    streamed = {name for launch in composition.launches for name in launch.streams}
    for step in boxes:
        for one in step.inputs:
            for name, moved in sources.get(one, [(one, False)]):
                if name in places:
                    color, tip = (COLORS[0], f"{name}: a stream") if name in streamed else (GREY, name)
                    _edge(canvas, places, (name, step.output), color, "4 3" if moved else "", tip)
    outside = f"inputs: {', '.join(network.inputs)}; outputs: {', '.join(network.outputs)}"
    canvas.text(_LEFT, y + 6, fit(outside, 700), faint=True)
    return str(canvas)


def _edge(canvas: Canvas, places: Mapping[str, float], ends: tuple[str, str], color: str, dash: str, tip: str) -> None:
    """Draw an arrow from box to box; beside the boxes in between, if there are any."""
    order, x = list(places), _LEFT + _GAP
    first, last = map(order.index, ends)
    top, bottom = places[ends[0]] + _HIGH, places[ends[1]]
    points = [(x + 0.9 * _BOX, top), (x + 0.9 * _BOX, bottom)]
    if last > first + 1:
        beside, start, end = x + _BOX + _GAP + _LANE * (1 + first % _LANES), x + 0.9 * _BOX, x + 0.8 * _BOX
        points = [(start, top), (start, top + 9), (beside, top + 9), (beside, bottom - 9), (end, bottom - 9)]
        points.append((end, bottom))
        canvas.width = max(canvas.width, beside)
    canvas.line(points, color, dash=dash, tip=tip, arrow=True)


def _colors(composition: Composition) -> dict[str, str]:
    kinds = dict.fromkeys(run.step.work.kind for run in composition.runs)
    return dict(zip(kinds, cycle((*COLORS, *_MORE_COLORS))))


def timeline_svg(composition: Composition) -> str:
    """Draw a row for each column of the array, or piece of hardware, with the operators that run on it."""
    canvas, kinds = Canvas("columns over time"), _colors(composition)
    rows = max((run.first_column + run.point.columns for run in composition.runs), default=0)
    left, top, scale = 90.0, 28.0, _WIDE / max(composition.latency_us, 1e-9)
    what = "hardware" if composition.resources else "column"
    for row in range(rows):
        canvas.text(left - 8, top + row * _ROW + 17, f"{what} {row}", anchor="end", size=10)
    for launch in composition.launches:
        start, wide = left + launch.start_us * scale, (launch.end_us - launch.start_us) * scale
        canvas.box(start, top, max(1.0, wide), rows * _ROW, radius=0, opacity=0.06, tip=f"launch {launch.number}")
        if wide > 60:
            canvas.text(start + 2, top - 6, f"launch {launch.number}", size=10, faint=True)
    configured = composition.launches[composition.runtime == "launches" :]  # the first of launches is there
    between = composition.time_us.get(WAITING, 0.0) / max(1, len(configured))
    for launch in configured if between else ():
        start, wide = left + (launch.start_us - between) * scale, between * scale
        canvas.box(start, top, wide, rows * _ROW, radius=0, opacity=0.3, tip=f"{WAITING}: {between:,.0f} us")
    for run in composition.runs:
        x, wide = left + run.start_us * scale, max(1.0, (run.end_us - run.start_us) * scale)
        y, high = top + run.first_column * _ROW + 2, run.point.columns * _ROW - 4
        tip = f"{run.step.name}: {run.start_us:,.1f} to {run.end_us:,.1f} us, {_busiest(run)}"
        canvas.fill(x, y, wide, high, kinds[run.step.work.kind], tip)
        if wide > min(60, text_width(run.step.title, 10) + 6):
            canvas.text(x + 4, y + high / 2 + 4, fit(run.step.title, wide - 6, 10), size=10, color="#fff")
    bottom = top + rows * _ROW
    canvas.text(left, bottom + 16, "0", size=10)
    canvas.text(left + _WIDE, bottom + 16, f"{composition.latency_us:,.0f} us", size=10, anchor="end")
    shown = {**kinds, **({WAITING: GREY} if between else {})}
    canvas.legend(left, bottom + 36, [(kind, color, "") for kind, color in shown.items()])
    return str(canvas)


def time_svg(time_us: Mapping[str, float]) -> str:
    """A bar for each thing that takes time, the longest first."""
    canvas, total = Canvas("where time goes"), sum(time_us.values()) or 1.0
    for at, (name, us) in enumerate(sorted(time_us.items(), key=lambda one: -one[1])):
        y = 8 + at * _ROW
        canvas.text(130, y + 15, name, anchor="end")
        canvas.fill(138, y + 3, max(1.0, 420 * us / total), _ROW - 8, COLORS[0], f"{us:,.1f} us")
        canvas.text(146 + 420 * us / total, y + 15, f"{us:,.0f} us, {us / total:.0%}")
    return str(canvas)
