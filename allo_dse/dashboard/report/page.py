"""The report's page."""

from __future__ import annotations

import base64
import json
import zlib
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

from allo_dse import __version__
from allo_dse.common.aliases import JsonObject
from allo_dse.common.errors import StudyError
from allo_dse.common.whole_files import write_whole

from ..data.board import Board, Ref
from ..data.progress import statuses
from ..data.table.table import RunTable
from ..data.units import label, text
from ..figures.progress import hypervolume_unit
from ..figures.style import DARK, LIGHT
from ..programs import Programs
from .designs import chosen_designs, design_section
from .plots import front_plots, progress_plots

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
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
        plotly=_library(),
    )


def squeezed(content: str) -> str:
    """A text, deflated and in letters of which none means anything to HTML: a third of its length, for plotly.js.

    The letters are RFC 1924's, with a comma for "<"; the page's script reads them.
    """
    return base64.b85encode(zlib.compress(content.encode(), 9)).decode().replace("<", ",").replace("&", "'")


@cache
def _library() -> str:
    from plotly.offline import get_plotlyjs

    return squeezed(get_plotlyjs())


def script_json(values: Any) -> str:
    """JSON that can stand in a script element, whatever texts are in it."""
    encoded = json.dumps(values, separators=(",", ":"))
    return encoded.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


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
            *((f"{k}", v) for k, v in run.facts.versions.items()),
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
        checked = "" if verification is None else verification.verdict
        mark = "knee" if ref.row == run.knee else ""
        rows.append({"mark": mark, "run": board.names[ref.run], "key": key, "cells": cells, "checked": checked})
    return {
        "head": [label(n) for n in names],
        "rows": rows,
        "more": max(0, len(refs) - MAX_ROWS),
        "several": len(board.runs) > 1,
    }
