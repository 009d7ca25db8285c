"""Progress as a bar in a notebook."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from allo_dse.common.quoting import printable

from ..results.study_result import Result
from ..search.screening import Screen
from .numbers import format_value
from .reporters import QuietReporter
from .run_view import View

SECONDS = 0.25


def in_notebook() -> bool:
    """Whether this process runs the cells of one."""
    return "ipykernel" in sys.modules


class NotebookReporter(QuietReporter):
    """tqdm's bars: of the designs, then of their verification. They are widgets where ipywidgets is installed."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None

    def __exit__(self, *error: object) -> None:
        self._close()

    def start(self, view: View) -> None:
        self._open(view.study.name, view.budget.trials)

    def update(self, view: View, last: bool = False) -> None:
        if not self._due(SECONDS, last):
            return
        best = {o.name: view.tally.best_value(o) for o in view.tally.objectives}
        words = [f"{name} {format_value(value)}" for name, value in best.items() if value is not None]
        self._bar.n = view.tally.done
        self._bar.set_postfix_str(printable(", ".join([*words, f"front {len(view.tally.front.keys)}"])))

    def note(self, text: str) -> None:
        print(printable(text))

    def verifying(self, done: int, of: int) -> None:
        if done == 0:
            self._open("verifying the front", of)
        self._bar.n = done
        self._bar.refresh()

    def finish(self, result: Result, screen: Screen, command: Sequence[str]) -> None:
        self._close()

    def _open(self, title: str, total: int | None) -> None:
        self._close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that ipywidgets is not installed: the bar is a text then
            from tqdm.auto import tqdm
        self._bar = tqdm(total=total, desc=printable(title), unit=" designs")

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
