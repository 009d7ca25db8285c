"""Which reporter shows a run."""

from __future__ import annotations

import sys
from typing import Any

from allo_dse.common.errors import StudyError

from .reporters import JsonReporter, PlainReporter, QuietReporter, Reporter


def make_reporter(progress: Any) -> Reporter:
    """The reporter of a name; "auto" is live on a terminal and plain elsewhere."""
    if hasattr(progress, "verifying"):
        reporter: Reporter = progress
        return reporter
    if progress == "auto":
        progress = "live" if sys.stderr.isatty() else "plain"
    if progress == "live":
        from .live import LiveReporter

        return LiveReporter()
    known: dict[str, type[QuietReporter]] = {"plain": PlainReporter, "json": JsonReporter, "quiet": QuietReporter}
    if progress not in known:
        raise StudyError(f"unknown progress {progress!r}", hint="one of auto, live, plain, json, quiet")
    return known[progress]()
