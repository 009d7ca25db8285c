"""The report's sections about single designs."""

from __future__ import annotations

from html import unescape

from allo_dse.common.aliases import JsonObject
from allo_dse.common.errors import AlloDseError

from ..data.board import Board, Ref
from ..data.design_words import difference_lines, rung_table, status_text
from ..data.limits import uses
from ..data.query.analysis import known
from ..data.units import label, text
from ..exports import reproduce_text
from ..figures.design import bound_figure, resources_figure
from ..figures.occupancy import occupancy_figure
from ..figures.recorded_run import (
    HELP_HEAD,
    HELP_WORDS,
    help_rows,
    part_words,
    path_rows,
    path_title,
    path_words,
    totals_words,
    whole_words,
)
from ..figures.style import LIGHT
from ..figures.timeline import overview_figure, timeline_figure, totals_figure
from ..pictures import design_pictures
from ..programs import Programs
from ..recordings import Part, Recorded
from .plots import Plot, plot


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
    """One design of the report; what needs the program only where it is loaded."""
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
            lambda look: resources_figure(uses(run.facts.device_name, metrics), look),
            height=240,
        ),
        plot(
            f"bound-{number}",
            "How busy what was",
            lambda look: bound_figure(metrics.get("bound") or {}, look),
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
        "differences": [] if reference in (None, ref) else _plain(difference_lines(board, ref, reference)[1:]),
        "plots": plots,
        "reproduce": reproduce_text(board, programs, ref),
    }
    return {**section, **_of_program(programs, ref, number)} if programs.is_loaded(ref.run) else section


def _plain(lines: list[str]) -> list[str]:
    return [unescape(line) for line in lines]


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
    return {
        **found,
        "time_plots": _time_plots(recorded, part, number),
        "timeline_words": " ".join([*([] if part.is_whole else [whole_words(recorded)]), part_words(recorded, part)]),
        "helps": _helps(recorded),
        "critical": {"title": path_title(part), "words": path_words(part), "rows": path_rows(recorded, part)},
    }


def _helps(found: Recorded) -> dict[str, object] | None:
    """Return the table of kinds of elements worth making faster, or None if that takes too long to compute."""
    try:
        return {"words": HELP_WORDS, "head": HELP_HEAD, "rows": help_rows(found)}
    except AlloDseError:
        return None


def _time_plots(found: Recorded, part: Part, number: int) -> list[Plot]:
    """The whole run, a part of it in detail, where the time goes, and buffers."""
    line, why, per = part.timeline, part.explanation, found.ticks_per_cycle
    shown = (line.start, line.end)
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
            lambda look: timeline_figure(line, why, look, ticks_per_cycle=per),
            wide=True,
            least=680,
        ),
        plot(
            f"totals-{number}",
            f"Where the time goes. {totals_words(found)}",
            lambda look: totals_figure(found.totals, look),
        ),
        plot(
            f"occupancy-{number}",
            "Buffers waited for most",
            lambda look: occupancy_figure(line, why, look, ticks_per_cycle=per),
        ),
    ]
