"""Which reporter shows a run."""

from __future__ import annotations

import sys
from typing import Any

from allo_dse.common.errors import StudyError

from .notebook import NotebookReporter, in_notebook
from .reporters import JsonReporter, PlainReporter, QuietReporter, Reporter


def make_reporter(progress: Any) -> Reporter:
    """The reporter of a name; "auto" is a bar in a notebook, live on a terminal, plain elsewhere."""
    if hasattr(progress, "verifying"):
        reporter: Reporter = progress
        return reporter
    if progress == "auto":
        progress = "notebook" if in_notebook() else "live" if sys.stderr.isatty() else "plain"
    if progress == "live":
        from .live import LiveReporter

        return LiveReporter()
    known: dict[str, type[QuietReporter]] = {
        "notebook": NotebookReporter,
        "plain": PlainReporter,
        "json": JsonReporter,
        "quiet": QuietReporter,
    }
    if progress not in known:
        raise StudyError(f"unknown progress {progress!r}", hint="one of auto, live, notebook, plain, json, quiet")
    return known[progress]()
