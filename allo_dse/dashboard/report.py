"""The report: one HTML file with the same pictures, for people without the run, the program or a network."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jinja2

from .. import __version__
from ..errors import AlloDseError, StudyError
from .data.analysis import importance, measured, sample
from .data.board import Board, Ref
from .data.limits import uses
from .data.progress import statuses, timeline
from .data.table import RunTable
from .data.units import label, text
from .exports import reproduce_text
from .figures import progress
from .figures.design import bound_figure, resources_figure
from .figures.parallel import parallel_figure
from .figures.scatter import View, front_figure
from .figures.style import LIGHT, Figure
from .figures.timeline import timeline_figure
from .figures.words import status_text
from .pictures import design_pictures
from .programs import Programs

TEMPLATES = Path(__file__).resolve().parent / "templates"
MAX_ROWS = 200
"""Designs of the front in the table."""


@dataclass(frozen=True)
class Plot:
    """A figure with its title; `height` in pixels."""

    id: str
    title: str
    figure: Figure
    height: int = 340
    wide: bool = False


def write_report(board: Board, programs: Programs, path: Path, *, reference: Ref | None = None) -> int:
    """Write the report; returns its size in bytes.

    Raises:
        StudyError: if there is nothing to show, or the file cannot be written.
    """
    if not any(len(run) for run in board.runs):
        raise StudyError("the run has no evaluated design yet", hint="run the study first")
    html = render(board, programs, reference or board.default_reference)
    data = html.encode()
    try:
        path.write_bytes(data)
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}", hint="name another file with -o") from error
    return len(data)


def render(board: Board, programs: Programs, reference: Ref | None) -> str:
    """The report as HTML."""
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    plots = [*front_plots(board, reference), *progress_plots(board)]
    designs = [design_section(board, programs, ref, number) for number, ref in enumerate(chosen_designs(board))]
    figures = {plot.id: plot.figure for plot in [*plots, *(p for d in designs for p in d["plots"])]}
    return environment.get_template("report.html.j2").render(
        title=", ".join(board.names),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        runs=[run_facts(name, run) for name, run in zip(board.names, board.runs, strict=True)],
        plots=plots,
        front=front_table(board),
        designs=designs,
        figures=script_json(figures),
        plotly=get_plotlyjs().replace("</script", "<\\/script"),
    )


def script_json(values: Any) -> str:
    """JSON that can stand in a script element, whatever texts are in it."""
    encoded = json.dumps(values, separators=(",", ":"))
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def front_plots(board: Board, reference: Ref | None) -> list[Plot]:
    """Every pair of the first three objectives, space, and parallel coordinates."""
    names = [n for n in board.objectives if n in board.column_names]
    pairs = [(names[a], names[b]) for a in range(min(3, len(names))) for b in range(a + 1, min(3, len(names)))]
    if not pairs:
        pairs = [("number", names[0])] if names else []
    found = []
    for number, (x, y) in enumerate(pairs):
        view = View(x, y, log=frozenset({"x"} if _spread(board, x) else ()), reference=reference, hover=True)
        figure = front_figure(board, view, LIGHT).figure
        found.append(Plot(f"front-{number}", f"{label(x)} against {label(y)}", figure, 420, wide=number == 0))
    if len(names) >= 3:
        view = View(names[0], names[1], names[2], log=frozenset("x"), reference=reference, hover=True)
        found.append(Plot("front-3d", "Three objectives", front_figure(board, view, LIGHT).figure, 420))
    found.append(Plot("parallel", "What varies", parallel_figure(board, LIGHT), 380, wide=True))
    return found


def _spread(board: Board, name: str) -> bool:
    """Whether a column's positive values span more than a decade."""
    values = [v for numbers in board.axis(name).numbers for v in numbers[numbers == numbers].tolist()]
    return bool(values) and min(values) > 0 and max(values) > 10 * min(values)


def progress_plots(board: Board) -> list[Plot]:
    """How the runs went; rates and failures of the first."""
    run = board.runs[0]
    spans = timeline(run)
    first = run.objectives[0]
    return [
        Plot("hv-designs", "Hypervolume against designs", progress.hypervolume_figure(board, LIGHT)),
        Plot("hv-time", "Hypervolume against time", progress.hypervolume_figure(board, LIGHT, against="time")),
        Plot("rate", "Designs per second", progress.rate_figure(spans, LIGHT)),
        Plot("failures", "Ruled out over time, by kind", progress.failures_figure(spans, LIGHT)),
        Plot("lost", "Ruled out by", progress.lost_figure(run, LIGHT)),
        Plot(
            "importance",
            f"Importance of parameters for {label(first)}",
            progress.importance_figure(importance(sample(run, first)), LIGHT),
        ),
    ]


def run_facts(name: str, run: RunTable) -> dict[str, Any]:
    """A run in words and numbers."""
    counts = statuses(run)
    at = run.numbers("at")
    return {
        "name": name,
        "study": run.facts.study,
        "command": run.facts.command_line,
        "pairs": [
            ("device", run.facts.device),
            ("evaluator", run.facts.evaluator),
            ("seed", run.facts.seed),
            ("designs evaluated", text(len(run))),
            ("feasible", text(counts["ok"])),
            ("ruled out by limits of the device", text(counts["violation"])),
            ("constraints violated", text(counts["infeasible"])),
            ("evaluations failed", text(counts["failed"])),
            ("on the front", text(len(run.front))),
            ("hypervolume", text(round(float(run.hypervolume[-1]), 4) if len(run) else None)),
            ("wall time (s)", text(round(float(at.max()), 1) if len(at) else None)),
            *((f"{k}", v) for k, v in run.facts.versions.items()),
        ],
    }


def front_table(board: Board) -> dict[str, Any]:
    """The fronts as a table of texts."""
    refs = list(board.front())
    varying = [n for n in board.varying("parameter", "mapping") if n not in board.objectives]
    names = [*board.objectives, *varying]
    rows = []
    for ref in refs[:MAX_ROWS]:
        run = board.table(ref)
        key = run.keys[ref.row]
        verification = run.verified.get(key)
        cells = [text(run.columns[n].value(ref.row)) if n in run.columns else "–" for n in names]
        checked = "" if verification is None else ("yes" if verification.ok else "wrong")
        mark = "knee" if ref.row == run.knee else ""
        rows.append({"mark": mark, "run": board.names[ref.run], "key": key, "cells": cells, "checked": checked})
    return {
        "head": [label(n) for n in names],
        "rows": rows,
        "more": max(0, len(refs) - MAX_ROWS),
        "several": len(board.runs) > 1,
    }


def chosen_designs(board: Board) -> list[Ref]:
    """Of each run the knee, and the best in each objective."""
    found: list[Ref] = []
    for number, run in enumerate(board.runs):
        front = run.front
        if run.knee is not None:
            found.append(Ref(number, run.knee))
            found += [Ref(number, int(front[i])) for i in run.losses[front].argmin(axis=0).tolist()]
    return list(dict.fromkeys(found))


def design_section(board: Board, programs: Programs, ref: Ref, number: int) -> dict[str, Any]:
    """One design of the report."""
    run = board.table(ref)
    metrics = measured(run, ref.row)
    key = run.keys[ref.row]
    verification = run.verified.get(key)
    best = [
        n
        for n, v in zip(run.objectives, run.losses[ref.row], strict=True)
        if v == run.losses[run.front].min(0)[run.objectives.index(n)]
    ]
    plots = [
        Plot(f"resources-{number}", "Resources", resources_figure(uses(run.facts.device, metrics), LIGHT), 220),
        Plot(f"bound-{number}", "Busy", bound_figure(metrics.get("bound") or {}, LIGHT), 220),
    ]
    return {
        "key": key,
        "run": board.names[ref.run],
        "status": status_text(board, ref) + (f", best in {', '.join(map(label, best))}" if best else ""),
        "verification": None if verification is None else verification.message,
        "decisions": [
            (n, text(run.columns[n].value(ref.row))) for n in run.names("parameter", "mapping", varying=True)
        ],
        "metrics": [(label(n), text(v)) for n, v in metrics.items() if not isinstance(v, dict | list)],
        "plots": [*plots, *_timeline(programs, ref, number)],
        "pictures": _pictures(programs, ref),
        "words": _words(programs, ref),
        "primitives": _primitives(programs, ref),
        "reproduce": reproduce_text(board, programs, ref),
    }


def _words(programs: Programs, ref: Ref) -> str | None:
    if not programs.is_loaded(ref.run):
        return None
    try:
        return programs.explain(ref)
    except AlloDseError as error:
        return error.message


def _pictures(programs: Programs, ref: Ref) -> list[tuple[str, str]]:
    """Graphs and placement of a design whose program is loaded."""
    if not programs.is_loaded(ref.run):
        return []
    try:
        return design_pictures(programs.candidate(ref).design, LIGHT)
    except AlloDseError:
        return []


def _timeline(programs: Programs, ref: Ref, number: int) -> list[Plot]:
    """What happens in a design whose program is loaded."""
    if not programs.is_loaded(ref.run):
        return []
    try:
        found = programs.recorded(ref)
    except AlloDseError:
        return []
    figure = timeline_figure(found.timeline, found.explanation, LIGHT, ticks_per_cycle=found.ticks_per_cycle)
    return [Plot(f"timeline-{number}", f"Timeline. {found.words}", figure, figure["layout"]["height"], wide=True)]


def _primitives(programs: Programs, ref: Ref) -> str | None:
    if not programs.is_loaded(ref.run):
        return None
    try:
        return str(programs.candidate(ref).design.vmg.mapping_source())
    except AlloDseError:
        return None
