"""Reporters of progress: plain lines, JSON for machines, or nothing."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from typing import Any, Self, TextIO

from rich.console import Console

from allo_dse.common.quoting import printable

from ..results.result import Result
from .output import print_result, searched, summary
from .run_view import RunView, progress_line

PLAIN_SECONDS = 5.0
JSON_SECONDS = 1.0


class Reporter:
    """Shows a run to someone; this one shows nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def start(self, view: RunView) -> None:
        pass

    def update(self, view: RunView, last: bool = False) -> None:
        """Called after every batch; shows something only as often as is useful."""

    def note(self, text: str, *, alarm: bool = False) -> None:
        """Show a sentence; an alarm must not be missed, also in quiet runs."""

    def searched(self, result: Result) -> None:
        """Called when the search ends, before designs of the front are verified, placed and exported."""

    def verifying(self, done: int, of: int) -> None:
        pass

    def verified(self, result: Result) -> None:
        """Called after each verification."""

    def finish(self, result: Result, command: Sequence[str]) -> None:
        """Called when all but `best/` is written."""


class QuietReporter(Reporter):
    """Shows only messages that must not be missed."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = 0.0

    def _due(self, seconds: float, last: bool) -> bool:
        now = time.monotonic()
        if not last and now - self._shown < seconds:
            return False
        self._shown = now
        return True

    def _say(self, text: str) -> None:
        """Print a line; escape control characters in names of studies, objectives and files."""
        print(printable(text), file=self._stream, flush=True)

    def note(self, text: str, *, alarm: bool = False) -> None:
        if alarm:
            self._say(text)

    def finish(self, result: Result, command: Sequence[str]) -> None:
        if command:
            print_result(result, Console(highlight=False), command)


class PlainReporter(QuietReporter):
    """A line with the first design, and every few seconds."""

    _begun = False

    def start(self, view: RunView) -> None:
        device = getattr(view.study.device, "name", view.study.device)
        self._say(f"{view.study.name}: {view.proposer.name} search on {device}, log in {view.run_dir}")
        self._shown = time.monotonic()

    def update(self, view: RunView, last: bool = False) -> None:
        first, self._begun = view.tally.done > 0 and not self._begun, view.tally.done > 0
        if self._due(PLAIN_SECONDS, last or first):
            self._say(progress_line(view))

    def note(self, text: str, *, alarm: bool = False) -> None:
        self._say(text)

    def searched(self, result: Result) -> None:
        console = Console(file=self._stream, highlight=False)
        for part in searched(result, console):
            console.print(part)

    def verifying(self, done: int, of: int) -> None:
        if done == 0:
            self._say(f"verifying {of} designs of the front")
            self._shown = time.monotonic()
        elif self._due(PLAIN_SECONDS, last=False):
            self._say(f"verified {done} of {of}")


class JsonReporter(QuietReporter):
    """One JSON object per line on standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream or sys.stdout)

    def _emit(self, event: str, **values: Any) -> None:
        print(json.dumps({"event": event, **values}, default=str), file=self._stream, flush=True)

    def start(self, view: RunView) -> None:
        self._emit("start", study=view.study.name, sampler=view.proposer.name, run_dir=str(view.run_dir))
        self._shown = time.monotonic()

    def update(self, view: RunView, last: bool = False) -> None:
        if self._due(JSON_SECONDS, last):
            self._emit("progress", **view.to_dict())

    def note(self, text: str, *, alarm: bool = False) -> None:
        self._emit("note", text=text)

    def searched(self, result: Result) -> None:
        self._emit("front", front=summary(result)["front"])

    def verifying(self, done: int, of: int) -> None:
        self._emit("verify", done=done, of=of)

    def finish(self, result: Result, command: Sequence[str]) -> None:
        self._emit("result", **summary(result))
