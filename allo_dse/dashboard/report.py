"""The report's page."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from itertools import combinations
from pathlib import Path
from typing import Any

import jinja2

from allo_dse import __version__
from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.files import write_whole
from allo_dse.common.quoting import script_json
from allo_dse.common.records import Frozen, JsonObject
from allo_dse.eval.recording import Part, Recorded

from .data.analysis import difference_lines, importance, known, rung_table, sample, status_text, uses
from .data.progress import measured, statuses, timeline
from .data.runs import Board, Ref
from .data.selection import label, text
from .data.table import RunTable
from .exports import reproduce_text
from .figures import progress
from .figures.design import bound_figure, measured_figure, resources_figure
from .figures.parallel import parallel_figure
from .figures.progress import hypervolume_unit
from .figures.scatter import View, front_figure
from .figures.style import DARK, LIGHT, Figure, Theme
from .figures.timeline import (
    HELP_HEAD,
    HELP_WORDS,
    help_rows,
    occupancy_figure,
    overview_figure,
    part_words,
    path_rows,
    path_title,
    path_words,
    timeline_figure,
    totals_figure,
    totals_words,
    whole_words,
)
from .programs import Programs, design_pictures

# The report's plots are drawn in the light theme, with the changes for the dark one.


Change = list[Any]
"""Keys that lead to a value in a figure, and the value."""


class Plot(Frozen):
    """A figure with its title.

    Attributes:
        dark: the changes for the dark theme.
        height: in pixels. wide: whether it takes the page's whole width. least: the width below which it scrolls.
    """

    id: str
    title: str
    figure: Figure
    dark: list[Change]
    height: int
    wide: bool = False
    least: int = 0


def plot(name: str, title: str, draw: Callable[[Theme], Figure], **size: Any) -> Plot:
    """A plot in both themes; its height is the figure's own unless it is given with the rest of its size."""
    light, dark = draw(LIGHT), draw(DARK)
    return Plot(name, title, light, changes(light, dark), **{"height": light["layout"].get("height", 340), **size})


def changes(first: Any, second: Any, path: tuple[str | int, ...] = ()) -> list[Change]:
    """Return the changes that turn the first value into the second, each as deep inside as possible."""
    if isinstance(first, dict) and isinstance(second, dict) and first.keys() == second.keys():
        return [c for key in first for c in changes(first[key], second[key], (*path, key))]
    alike = isinstance(first, list) and isinstance(second, list) and len(first) == len(second)
    if alike and any(isinstance(value, dict | list) for value in first):
        return [c for n, (a, b) in enumerate(zip(first, second, strict=True)) for c in changes(a, b, (*path, n))]
    return [] if first == second else [[list(path), second]]


def front_plots(board: Board, reference: Ref | None) -> list[Plot]:
    """Every pair of the first three objectives, and parallel coordinates."""
    names = [n for n in board.objectives if n in board.column_names]
    few = names[:3]
    pairs = [*combinations(few, 2)] or [("number", name) for name in few]

    def drawn(x: str, y: str, look: Theme) -> Figure:
        view = View(x, y, log=_log(board, x), reference=reference, hover=True)
        return front_figure(board, view, look).figure

    found = [
        plot(f"front-{i}", f"{label(y)} against {label(x)}", partial(drawn, x, y), height=420, wide=i == 0)
        for i, (x, y) in enumerate(pairs)
    ]
    least = 95 * max(8, len(board.varying("parameter", "mapping")) + len(names))
    found.append(plot("parallel", "What varies", partial(parallel_figure, board), height=380, wide=True, least=least))
    return found


def _log(board: Board, name: str) -> frozenset[str]:
    """Return the logarithmic axes: x, if its values are positive and span more than a decade."""
    values = [v for numbers in board.axis(name).numbers for v in numbers[numbers == numbers].tolist()]
    return frozenset({"x"} if values and min(values) > 0 and max(values) > 10 * min(values) else ())


def progress_plots(board: Board) -> list[Plot]:
    """Return plots of the runs' progress. Rates, failures and workers are those of the first run."""
    run = board.runs[0]
    spans, correction = timeline(run), measured(run)
    shares = [(name, importance(sample(run, name))) for name in run.objectives]

    known = plot("measured", "Predicted against measured", partial(measured_figure, correction))
    return [
        *([known] if correction.pairs else []),
        *(
            plot(f"history-{i}", f"History of {label(name)}", partial(progress.history_figure, board, name))
            for i, name in enumerate(run.objectives)
        ),
        plot("hypervolume", "Hypervolume", partial(progress.hypervolume_figure, board)),
        plot("designs-time", "Designs over time", partial(progress.designs_figure, spans)),
        plot("lost", "Ruled out by", partial(progress.lost_figure, run)),
        *(
            plot(
                f"importance-{i}",
                f"Importance of parameters for {label(name)}",
                partial(progress.importance_figure, found),
            )
            for i, (name, found) in enumerate(shares)
        ),
        plot("workers", "Workers", partial(progress.workers_figure, spans)),
    ]


def chosen_designs(board: Board) -> list[Ref]:
    """Return the knee of each run, and its best design in each objective."""
    found: list[Ref] = []
    for number, run in enumerate(board.runs):
        front = run.front
        if run.knee is not None:
            found.append(Ref(number, run.knee))
            found += [Ref(number, int(front[i])) for i in run.losses[front].argmin(axis=0).tolist()]
    return list(dict.fromkeys(found))


def design_section(board: Board, programs: Programs, ref: Ref, reference: Ref | None, number: int) -> JsonObject:
    """One design of the report; parts that need the program only if it is loaded."""
    run = board.table(ref)
    key = run.keys[ref.row]
    metrics = known(run, ref.row)
    verification = run.verified.get(key)
    lowest = run.losses[run.front].min(0).tolist()
    best = [n for n, v, low in zip(run.objectives, run.losses[ref.row].tolist(), lowest, strict=True) if v == low]
    plots = [
        plot(
            f"resources-{number}",
            "Resources against the device's limits",
            partial(resources_figure, uses(run.facts.device_name, metrics)),
            height=240,
        ),
        plot(
            f"bound-{number}",
            "How busy what was",
            partial(bound_figure, metrics.get("bound") or {}),
            height=240,
        ),
    ]
    section = {
        "key": key,
        "run": board.names[ref.run],
        "status": status_text(board, ref) + (f", best in {', '.join(map(label, best))}" if best else ""),
        "verification": None if verification is None else verification.message,
        "decisions": [
            (n, text(run.columns[n].value(ref.row))) for n in run.names("parameter", "mapping", varying=True)
        ],
        "metrics": rung_table(run, key),
        "differences": [] if reference in (None, ref) else difference_lines(board, ref, reference)[1:],
        "plots": plots,
        "reproduce": reproduce_text(board, programs, ref),
    }
    return {**section, **_of_program(programs, ref, number)} if programs.is_loaded(ref.run) else section


def _of_program(programs: Programs, ref: Ref, number: int) -> JsonObject:
    """Words, graphs, placement, timeline and primitives of a design whose program is loaded; or why there are none."""
    try:
        design = programs.candidate(ref).design
        found: JsonObject = {
            "words": programs.explain(ref),
            "pictures": design_pictures(design, programs.placement(ref), LIGHT),
            "primitives": str(design.vmg.mapping_source()),
        }
    except AlloDseError as error:
        return {"words": error.message}
    try:
        recorded = programs.recorded(ref)
    except AlloDseError as error:
        return {**found, "timeline_words": f"No timeline: {error.message}"}
    part = recorded.part(recorded.opening)
    helps: JsonObject | None = None
    with suppress(AlloDseError):  # it takes too long to compute
        helps = {"words": HELP_WORDS, "head": HELP_HEAD, "rows": help_rows(recorded)}
    return {
        **found,
        "time_plots": _time_plots(recorded, part, number),
        "timeline_words": " ".join([*([] if part.is_whole else [whole_words(recorded)]), part_words(recorded, part)]),
        "helps": helps,
        "critical": {"title": path_title(part), "words": path_words(part), "rows": path_rows(recorded, part)},
    }


def _time_plots(found: Recorded, part: Part, number: int) -> list[Plot]:
    """The whole run, a part of it in detail, where the time goes, and buffers."""
    shown = (part.timeline.start, part.timeline.end)
    whole = plot(
        f"overview-{number}",
        "The whole run",
        lambda look: overview_figure(found, look, shown),
        wide=True,
    )
    return [
        *([] if part.is_whole else [whole]),
        plot(
            f"timeline-{number}",
            "Timeline",
            partial(timeline_figure, found, part),
            wide=True,
            least=680,
        ),
        plot(
            f"totals-{number}",
            f"Where the time goes. {totals_words(found)}",
            partial(totals_figure, found.totals),
        ),
        plot(
            f"occupancy-{number}",
            "Buffers waited for most",
            partial(occupancy_figure, found, part),
        ),
    ]


TEMPLATES = Path(__file__).resolve().parent / "templates"
MAX_ROWS = 200
"""Designs of the front in the table."""


def write_report(board: Board, programs: Programs, path: Path, *, reference: Ref | None = None) -> int:
    """Write the report; returns its size in bytes.

    Raises:
        StudyError: if there is nothing to show, or the file cannot be written.
    """
    if not any(len(run) for run in board.runs):
        raise StudyError("the run has no evaluated design yet", hint="run the study first")
    html = render(board, programs, reference or board.default_reference)
    data = html.encode("utf-8", "backslashreplace")
    try:
        write_whole(path, data)
    except OSError as error:
        raise StudyError(f"cannot write {path}: {error.strerror}", hint="name another file with -o") from error
    return len(data)


def render(board: Board, programs: Programs, reference: Ref | None) -> str:
    """The report as HTML."""
    from plotly.offline import get_plotlyjs

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    found, went = front_plots(board, reference), progress_plots(board)
    designs = [
        design_section(board, programs, ref, reference, number) for number, ref in enumerate(chosen_designs(board))
    ]
    plots = [*found, *went, *(p for d in designs for p in (*d["plots"], *d.get("time_plots", ())))]
    return environment.get_template("report.html.j2").render(
        title=", ".join(board.names),
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        version=__version__,
        runs=[run_facts(name, run) for name, run in zip(board.names, board.runs, strict=True)],
        found=found,
        went=went,
        front=front_table(board),
        designs=designs,
        loaded=any(programs.is_loaded(number) for number in range(len(board.runs))),
        figures=squeezed(script_json({p.id: {"figure": p.figure, "dark": p.dark} for p in plots})),
        ink=script_json({"light": LIGHT.text, "dark": DARK.text}),
        plotly=squeezed(get_plotlyjs()),
    )


def squeezed(content: str) -> str:
    """A text, deflated and in letters without meaning to HTML: a third of plotly.js's length.

    The letters are RFC 1924's, with a comma for "<"; the page's script reads them.
    """
    return base64.b85encode(zlib.compress(content.encode(), 9)).decode().replace("<", ",").replace("&", "'")


def run_facts(name: str, run: RunTable) -> JsonObject:
    """A run in words and numbers."""
    counts = statuses(run)
    volume = round(float(run.hypervolume[-1]), 4) if len(run) else None
    return {
        "name": name,
        "study": run.facts.study,
        "command": run.facts.command_line,
        "pairs": [
            ("device", run.facts.device_name),
            ("evaluator", run.facts.evaluator),
            ("seed", run.facts.seed),
            ("designs evaluated", text(len(run))),
            ("feasible", text(counts["ok"])),
            ("ruled out by limits of the device", text(counts["violation"])),
            ("constraints violated", text(counts["infeasible"])),
            ("evaluations failed", text(counts["failed"])),
            ("on the front", text(len(run.front))),
            (f"hypervolume ({hypervolume_unit(run)})", text(volume)),
            ("wall time (s)", text(round(run.seconds, 1))),
            *run.facts.versions.items(),
        ],
    }


def front_table(board: Board) -> JsonObject:
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
        checked = "" if verification is None else str(verification)
        mark = "knee" if ref.row == run.knee else ""
        rows.append({"mark": mark, "run": board.names[ref.run], "key": key, "cells": cells, "checked": checked})
    return {
        "head": [label(n) for n in names],
        "rows": rows,
        "more": max(0, len(refs) - MAX_ROWS),
        "several": len(board.runs) > 1,
    }
