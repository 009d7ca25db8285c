"""What a run shows while it works: a live view on a terminal, plain lines elsewhere, or JSON for machines."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from ..errors import StudyError
from .budget import Budget
from .screen import Screen
from .tally import Tally

if TYPE_CHECKING:
    from .result import Result
    from .study import Study

LIVE_SECONDS = 0.25
PLAIN_SECONDS = 5.0
JSON_SECONDS = 1.0


@dataclass(frozen=True)
class View:
    """A window on a running study; everything in it is kept up to date by others.

    Attributes:
        before: trials of earlier runs.
    """

    study: Study
    tally: Tally
    screen: Screen
    budget: Budget
    run_dir: Path
    sampler: str
    before: int

    @property
    def per_second(self) -> float:
        """Evaluated designs per second of this run."""
        return (self.tally.done - self.before) / max(self.budget.elapsed, 1e-9)

    @property
    def feasible_share(self) -> float | None:
        """Share of all distinct proposed designs that satisfied every limit and constraint."""
        proposed = self.tally.done + self.screen.invalid
        return self.tally.statuses["ok"] / proposed if proposed else None

    @property
    def killers(self) -> list[tuple[str, int]]:
        """What ruled designs out, and how many; the largest first."""
        failed = {"evaluator failed": self.tally.statuses["failed"]} if self.tally.statuses["failed"] else {}
        return (self.screen.killed + self.tally.infeasible + type(self.screen.killed)(failed)).most_common()

    @property
    def remaining_seconds(self) -> float | None:
        return self.budget.remaining_seconds(self.tally.done - self.before, self.tally.done)

    def to_dict(self) -> dict[str, Any]:
        """For machines."""
        tally, front = self.tally, self.tally.front
        return {
            "study": self.study.name,
            "trials": tally.done,
            "target": self.budget.trials,
            "designs_per_second": round(self.per_second, 2),
            "feasible_share": self.feasible_share,
            "ruled_out": dict(self.killers),
            "repeats": self.screen.repeats,
            "best": {o.name: tally.best_value(o) for o in tally.objectives},
            "front_size": len(front.keys),
            "hypervolume": front.hypervolume,
            "hypervolume_reference": self.reference,
            "elapsed_seconds": round(self.budget.elapsed, 3),
            "remaining_seconds": self.remaining_seconds,
        }

    @property
    def reference(self) -> dict[str, float] | None:
        """The hypervolume's reference point in the objectives' own units."""
        point = self.tally.front.reference
        if point is None:
            return None
        return {o.name: o.sign * v for o, v in zip(self.tally.objectives, point, strict=True)}


class Reporter(Protocol):
    """Shows a run to someone."""

    def __enter__(self) -> Reporter: ...
    def __exit__(self, *error: object) -> None: ...
    def start(self, view: View) -> None: ...
    def update(self, view: View, last: bool = False) -> None:
        """Called after every batch; shows something only as often as is useful."""
        ...

    def note(self, text: str) -> None: ...
    def verifying(self, done: int, of: int) -> None: ...
    def finish(self, result: Result, screen: Screen, command: Sequence[str]) -> None: ...


class QuietReporter:
    """Shows nothing but what must not be missed."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._shown = 0.0

    def __enter__(self) -> QuietReporter:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def _due(self, seconds: float, last: bool) -> bool:
        now = time.monotonic()
        if not last and now - self._shown < seconds:
            return False
        self._shown = now
        return True

    def start(self, view: View) -> None:
        pass

    def update(self, view: View, last: bool = False) -> None:
        pass

    def note(self, text: str) -> None:
        if text.startswith("WRONG"):
            print(text, file=self._stream, flush=True)

    def verifying(self, done: int, of: int) -> None:
        pass

    def finish(self, result: Result, screen: Screen, command: Sequence[str]) -> None:
        pass


class PlainReporter(QuietReporter):
    """A line every few seconds."""

    def start(self, view: View) -> None:
        print(f"{view.study.name}: {view.sampler} search on {_device(view.study)}, log in {view.run_dir}",
              file=self._stream, flush=True)  # fmt: skip
        self._shown = time.monotonic()

    def update(self, view: View, last: bool = False) -> None:
        if self._due(PLAIN_SECONDS, last):
            print(progress_line(view), file=self._stream, flush=True)

    def note(self, text: str) -> None:
        print(text, file=self._stream, flush=True)

    def verifying(self, done: int, of: int) -> None:
        if done == 0:
            print(f"verifying {of} design(s) of the front", file=self._stream, flush=True)


class JsonReporter(QuietReporter):
    """One JSON object per line on standard output."""

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream or sys.stdout)

    def _emit(self, event: str, **values: Any) -> None:
        print(json.dumps({"event": event, **values}, default=str), file=self._stream, flush=True)

    def start(self, view: View) -> None:
        self._emit("start", study=view.study.name, sampler=view.sampler, run_dir=str(view.run_dir))
        self._shown = time.monotonic()

    def update(self, view: View, last: bool = False) -> None:
        if self._due(JSON_SECONDS, last):
            self._emit("progress", **view.to_dict())

    def note(self, text: str) -> None:
        self._emit("note", text=text)

    def verifying(self, done: int, of: int) -> None:
        self._emit("verify", done=done, of=of)

    def finish(self, result: Result, screen: Screen, command: Sequence[str]) -> None:
        from .output import summary

        self._emit("result", **summary(result))


def make_reporter(progress: Any) -> Reporter:
    """The reporter of a name; "auto" is live on a terminal and plain elsewhere."""
    if not isinstance(progress, str):
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


def progress_line(view: View) -> str:
    """Everything worth knowing, in one line."""
    tally = view.tally
    target = f"/{view.budget.trials}" if view.budget.trials is not None else ""
    parts = [f"{tally.done}{target} designs", f"{view.per_second:.0f}/s"]
    if view.feasible_share is not None:
        parts.append(f"{100 * view.feasible_share:.0f} % feasible")
    parts += [f"{name} {format_value(v)}" for name, v in view.to_dict()["best"].items() if v is not None]
    parts.append(f"front {len(tally.front.keys)}")
    if tally.front.hypervolume is not None:
        parts.append(f"hypervolume {tally.front.hypervolume:.4f}")
    if view.remaining_seconds is not None:
        parts.append(f"{format_duration(view.remaining_seconds)} left")
    return ", ".join(parts)


def format_value(value: float | None) -> str:
    """Four significant digits, without an exponent where that can be read."""
    if value is None:
        return "-"
    if value == int(value) and abs(value) < 1e9:
        return f"{int(value):,}"
    return f"{value:,.4g}" if abs(value) < 1e4 else f"{value:,.0f}"


def format_duration(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"


def _device(study: Study) -> str:
    return str(getattr(study.device, "name", study.device))
