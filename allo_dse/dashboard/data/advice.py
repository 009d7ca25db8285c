"""Explanations and next steps for a page without designs to show."""

from __future__ import annotations

from .board import Board
from .progress import lost

MOST_REASONS = 3
_HELP = "docs/troubleshooting.md says what helps against each limit"


def why_none(board: Board) -> str:
    """Why there is no design to show: nothing was evaluated, all was ruled out (by what), or a filter leaves none."""
    proposed = sum(len(run) + len(run.ruled_out) for run in board.runs)
    if not proposed:
        return "No design has been evaluated yet: this page shows them as the study runs (allo-tune STUDY.py)."
    if any(run.ok.any() for run in board.runs):
        return "No feasible design is left: clear the filter, or show the runs that are hidden."
    reasons = sum((lost(run) for run in board.runs[1:]), lost(board.runs[0])).most_common(MOST_REASONS)
    said = ", ".join(f"{name} rules out {100 * count / proposed:.0f} %" for name, count in reasons)
    return f"No feasible design among {proposed:,}: {said}. {_HELP}."
