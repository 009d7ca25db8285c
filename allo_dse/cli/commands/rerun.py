"""`allo-tune replay RUN`: everything a log holds, again."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from ..output import EXIT_DIFFERENT, console, json_only, print_json

if TYPE_CHECKING:
    from rich.console import Console

    from allo_dse.tune.rerun import RunReplay
    from allo_dse.tune.run.reproposal import Reproposal

EXIT_STOPPED = 130
PROGRESS_SECONDS = 2.0
SHOWN = 20


def replay_all(run: Path | None, study: Path | None, *, as_json: bool) -> int:
    """Replay a run's log and print what differs; returns the exit code."""
    from allo_dse.tune.rerun import replay_run
    from allo_dse.tune.search.budget import StopSignals
    from allo_dse.tune.store.rundir import find_run

    with json_only() if as_json else nullcontext(), StopSignals() as stop:
        found = replay_run(
            find_run(run), study_file=study, stop_requested=lambda: stop.requested, watch=_Progress().show
        )
    if as_json:
        print_json(found.to_dict())
    else:
        _print(found)
    return EXIT_STOPPED if found.stopped else EXIT_DIFFERENT if found.different or found.proposals.difference else 0


class _Progress:
    """A line on standard error every few seconds."""

    def __init__(self) -> None:
        self._shown = time.monotonic()

    def show(self, found: RunReplay) -> None:
        if time.monotonic() - self._shown >= PROGRESS_SECONDS:
            self._shown = time.monotonic()
            print(f"{found.done:,} of {found.records:,} replayed, {len(found.different):,} different",
                  file=sys.stderr, flush=True)  # fmt: skip


def _print(found: RunReplay) -> None:
    from allo_dse.tune.store.file_names import displayed

    to = console()
    for replay in found.different[:SHOWN]:
        to.print(f"{replay.key}: {displayed(replay.text)}")
    if len(found.different) > SHOWN:
        to.print(f"and {len(found.different) - SHOWN:,} more: see --json")
    for reason, count in found.skipped.items():
        to.print(f"{count:,} left out: {displayed(reason)}")
    if found.stopped:
        to.print(f"stopped by {found.stopped} after {found.done:,} of {found.records:,}")
    _print_proposals(found.proposals, to)
    words = "[bold green]the same[/]" if not found.different else f"[bold red]{len(found.different):,} different[/]"
    to.print(f"{displayed(str(found.path))}: {found.same + len(found.different):,} replayed, {words}")


def _print_proposals(found: Reproposal, to: Console) -> None:
    from allo_dse.tune.store.file_names import displayed

    for reason, count in found.skipped.items():
        to.print(f"{count:,} not proposed again: {displayed(reason)}")
    if found.difference:
        to.print(f"[bold red]proposed differently[/] after {found.proposed:,}: {displayed(found.difference)}")
    elif found.proposed:
        to.print(
            f"{found.proposed:,} proposed again in the same order, and {found.violations:,} that break a device limit"
        )
