"""Choice of the reporter that shows a run."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import markup, printable

from ..results.result import Result
from ..store.certificate import Certificate, Gap, percent
from .output import searched
from .reporters import JsonReporter, PlainReporter, QuietReporter, Reporter
from .run_view import RunView, format_duration, format_value

SECONDS = 0.25


class NotebookReporter(QuietReporter):
    """tqdm bars for the designs and then for their verification; widgets if ipywidgets is installed."""

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None

    def __exit__(self, *error: object) -> None:
        self._close()

    def start(self, view: RunView) -> None:
        self._open(view.study.name, view.budget.trials)

    def update(self, view: RunView, last: bool = False) -> None:
        if not self._due(SECONDS, last):
            return
        best = {o.name: view.tally.best_value(o) for o in view.tally.objectives}
        words = [f"{name} {format_value(value)}" for name, value in best.items() if value is not None]
        self._bar.n = view.tally.done
        self._bar.set_postfix_str(printable(", ".join([*words, f"front {len(view.tally.front.keys)}"])))

    def note(self, text: str, *, alarm: bool = False) -> None:
        print(printable(text))

    def verifying(self, done: int, of: int) -> None:
        if done == 0:
            self._open("verifying the front", of)
        self._bar.n = done
        self._bar.refresh()

    def finish(self, result: Result, command: Sequence[str]) -> None:
        self._close()
        super().finish(result, command)

    def _open(self, title: str, total: int | None) -> None:
        self._close()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # without ipywidgets, tqdm warns and draws the bar as text
            from tqdm.auto import tqdm
        self._bar = tqdm(total=total, desc=printable(title), unit=" designs")

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()


def make_reporter(progress: Any) -> Reporter:
    """The reporter of a name; "auto" is a bar in a notebook, live on a terminal, plain elsewhere."""
    if hasattr(progress, "verifying"):
        reporter: Reporter = progress
        return reporter
    if progress == "auto":
        progress = "notebook" if "ipykernel" in sys.modules else "live" if sys.stderr.isatty() else "plain"
    if progress == "live":
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


MAX_KILLERS = 5


class LiveReporter(QuietReporter):
    """Redraws a few lines several times a second, on standard error."""

    def __init__(self, console: Console | None = None) -> None:
        super().__init__()
        self._console = console or Console(stderr=True, highlight=False)
        self._front: list[RenderableType] = []
        self._keys: list[str] = []  # of the designs on it
        self._verifying = Live(console=self._console, transient=True)  # the final table takes its place
        self._live = Live(console=self._console, auto_refresh=False, transient=False)

    def __exit__(self, *error: object) -> None:
        self._stop()

    def start(self, view: RunView) -> None:
        self._console.print(
            f"[bold]{markup(view.study.name)}[/]: {view.proposer.name} search, log in {markup(str(view.run_dir))}"
        )
        self._live.start()

    def update(self, view: RunView, last: bool = False) -> None:
        if self._due(SECONDS, last):
            if (keys := list(view.tally.front.keys)) != self._keys:
                self._keys, self._front = keys, list(searched(view.result(""), self._console))
            # The front goes on below, while it is verified.
            self._live.update(Group(render(view), *(() if last else self._front)), refresh=True)
        if last:
            self._live.stop()

    def note(self, text: str, *, alarm: bool = False) -> None:
        style = "bold red" if alarm else "yellow"
        self._console.print(Text(text, style=style))

    def searched(self, result: Result) -> None:
        self._front = list(searched(result, self._console))

    verified = searched

    def verifying(self, done: int, of: int) -> None:
        text = f"verifying design {done + 1} of {of} of the front; Ctrl-C leaves it, the same command goes on"
        self._verifying.start()
        self._verifying.update(Group(*self._front, Spinner("dots", text)), refresh=True)

    def finish(self, result: Result, command: Sequence[str]) -> None:
        self._stop()
        super().finish(result, command)

    def _stop(self) -> None:
        self._live.stop()
        self._verifying.stop()


def render(view: RunView) -> Table:
    """The live view as Rich draws it."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="dim", no_wrap=True)
    facts.add_column()
    certificate = view.certificate
    done, total = _fraction(view, certificate)
    if total:
        facts.add_row("", ProgressBar(total=total, completed=done, width=60))
    facts.add_row("designs", _pace(view, certificate))
    share = view.feasible_share
    facts.add_row(
        "feasible", "-" if share is None else f"{100 * share:.1f} % of {view.tally.done + view.screen.invalid:,}"
    )
    facts.add_row("ruled out by", _killers(view))
    best = [f"{markup(o.name)} [bold]{format_value(view.tally.best_value(o))}[/]" for o in view.tally.objectives]
    facts.add_row("best so far", "   ".join(best))
    if certificate is not None and certificate.listed:
        facts.add_row("cannot be better", "   ".join(map(_bound, certificate.gaps)))
    facts.add_row("front", _front(view))
    if measured := view.tally.correction.words:
        facts.add_row("measured", measured)
    if view.tally.last_error:
        facts.add_row("last failure", Text(printable(view.tally.last_error[:200]), style="red"))
    return facts


def _pace(view: RunView, certificate: Certificate | None) -> str:
    done = f"[bold]{view.tally.done:,}[/]"
    if certificate is None:
        target = f" of {view.budget.trials:,}" if view.budget.trials is not None else ""
        parts = [f"{done}{target}", f"{view.per_second:,.0f}/s"]
    elif not certificate.listed:
        parts = [f"[bold]{certificate.designs:,}[/] of the space listed so far"]
    else:
        decided = f"{certificate.designs - certificate.open:,} of {certificate.designs:,} decided"
        parts = [f"[bold]{decided}[/], {certificate.open:,} open", f"{done} evaluated"]
    return "   ".join([*parts, format_duration(view.budget.elapsed), view.remaining_words(certificate)])


def _bound(gap: Gap) -> str:
    """Describe the bound of an objective, and its distance from the best value found."""
    if gap.bound is None:
        return f"{markup(gap.objective)} -"
    far = "nothing found yet" if gap.share is None else f"{percent(gap.share)} from it" if gap.share else "reached"
    return f"{markup(gap.objective)} {format_value(gap.bound)} [dim]({far})[/]"


def _killers(view: RunView) -> str:
    killers = view.killers
    shown = [f"{markup(name)} {count:,}" for name, count in killers[:MAX_KILLERS]]
    if len(killers) > MAX_KILLERS:
        shown.append(f"{len(killers) - MAX_KILLERS} more")
    return "   ".join(shown) or "-"


def _front(view: RunView) -> str:
    front = view.tally.front
    text = f"{len(front.keys)} designs"
    if front.hypervolume is None or view.reference is None:
        return text
    point = ", ".join(f"{markup(name)} {format_value(value)}" for name, value in view.reference.items())
    return f"{text}   hypervolume [bold]{front.hypervolume:.4f}[/] [dim](reference point: {point})[/]"


def _fraction(view: RunView, certificate: Certificate | None) -> tuple[float, float]:
    if certificate is not None and certificate.listed:
        return certificate.designs - certificate.open, certificate.designs
    if view.budget.seconds is not None:
        return min(view.budget.elapsed, view.budget.seconds), view.budget.seconds
    return view.tally.done, view.budget.trials or 0
