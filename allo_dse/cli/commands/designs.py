"""Commands on single designs: `show`, `replay`, `compare`."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import markup
from allo_dse.common.records import JsonObject
from allo_dse.tune.search.pareto_front import REFERENCE_AFTER

from ..output import (
    EXIT_DIFFERENT,
    AsJson,
    IdAndRun,
    RunOption,
    StudyOption,
    console,
    designs_and_run,
    find_design,
    json_only,
    means_run,
    open_run,
    print_json,
)
from ..run_facts import design_facts, print_design, run_status, short

if TYPE_CHECKING:
    from allo_dse.dashboard.data.table import RunTable
    from allo_dse.tune.earlier_runs import RunReplay


def show(
    words: IdAndRun,
    run: RunOption = None,
    as_json: AsJson = False,
) -> None:
    """Everything that is known of one design: parameters, fold, metrics by evaluator, what went wrong.

    ID is its number, its key, or the beginning of its key.

    Examples:

      allo-tune show 41
      allo-tune show 9f3c2a runs/gemm
      allo-tune show 9f3c2a --json | jq .metrics
    """
    (design,), run = designs_and_run(words, run, 1)
    table = open_run(run)
    row = find_design(table, design)
    if as_json:
        print_json(design_facts(table, row))
    else:
        print_design(table, row, console())


def replay(
    words: Annotated[list[str] | None, typer.Argument(metavar="[ID] [RUN]", show_default=False)] = None,
    run: RunOption = None,
    study: StudyOption = None,
    verify: Annotated[bool, typer.Option("--verify", help="Also run it and compare its numbers.")] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate one design of a run again, or all that its log holds, and compare with what was recorded.

    This executes the study file the run was made with. Exit code 1 says that something differs. Without an ID, the
    designs of the log are proposed again, which must give the same ones in the same order (runs with one worker; the
    first difference is shown), and every record is checked and evaluated again, in order, at its rung; rungs whose
    evaluator cannot run here are left out. Ctrl-C shows what was found so far.

    Examples:

      allo-tune replay 41
      allo-tune replay 9f3c2a --verify                   also compare its numbers
      allo-tune replay 41 --study studies/gemm_npu.py    if the file has moved
      allo-tune replay runs/gemm --json | jq .different  everything
    """
    from allo_dse.tune.earlier_runs import replay_design

    given, run = designs_and_run(words or [], run)
    if not given:
        if verify:
            raise StudyError("--verify needs the ID of a design", hint="runs verify their fronts themselves")
        raise typer.Exit(replay_all(run, study, as_json=as_json))
    if len(given) > 1:
        raise StudyError(f"one design is replayed at a time, not {', '.join(given)}")
    table = open_run(run)
    row = find_design(table, given[0])
    with json_only(as_json):
        found = replay_design(table.path, table.keys[row], study_file=study, verify=verify)
    if as_json:
        print_json(found.to_dict())
    else:
        _print_comparison({name: (a, b) for name, a, b in found.rows}, ("recorded", "now"), show_all=True)
        console().print("[bold green]the same[/]" if found.same else f"[bold red]different[/]: {markup(found.text)}")
        if found.verification is not None:
            console().print(markup(found.verification.explain()))
    if not found.same or (found.verification is not None and not found.verification.ok):
        raise typer.Exit(EXIT_DIFFERENT)


def compare(
    words: Annotated[list[str], typer.Argument(metavar="A B [RUN]", show_default=False)],
    run: RunOption = None,
    everything: Annotated[bool, typer.Option("--all", help="Also what is equal.")] = False,
    as_json: AsJson = False,
) -> None:
    """Two designs of a run side by side, or two runs: hypervolumes are up to the reference point of the first. What is
    equal is left out, unless --all is given.

    Examples:

      allo-tune compare 41 57
      allo-tune compare 9f3c2a 41 runs/gemm --all
      allo-tune compare runs/gemm runs/gemm_bf16      their best designs, rates
    """
    (a, b), run = designs_and_run(words, run, 2)
    are_runs = any(map(means_run, (a, b)))
    if are_runs and run is not None:
        raise StudyError("two runs are compared, or two designs of one run")
    if are_runs:
        tables = [open_run(Path(path)) for path in (a, b)]
        first, second = (_run_facts(table, as_json=as_json) for table in tables)
        second["hypervolume"] = tables[1].hypervolume_beside(tables[0])  # of two boxes, not comparable
    else:
        table = open_run(run)
        first, second = (_flat_design(table, find_design(table, wanted)) for wanted in (a, b))
    pairs = {name: (first.get(name), second.get(name)) for name in dict.fromkeys([*first, *second])}
    if as_json:
        print_json({n: {"a": x, "b": y, "equal": None if x is y is None else x == y} for n, (x, y) in pairs.items()})
    else:
        if everything or any(x != y for x, y in pairs.values()):
            _print_comparison(pairs, (a, b), show_all=everything)
        else:
            console().print("nothing differs; --all shows what is equal")
        if are_runs and None in pairs["hypervolume"]:
            known = f"for the same objectives, and once A has {REFERENCE_AFTER} feasible designs"
            console().print(f"hypervolume: can be compared {known}")


def _flat_design(table: RunTable, row: int) -> JsonObject:
    names = table.names("objective", "parameter", "mapping", "metric")
    flat = {name: table.columns[name].value(row) for name in names}
    return {"key": table.keys[row], **flat, "status": table.record(row).get("status")}


def _run_facts(table: RunTable, *, as_json: bool) -> JsonObject:
    from allo_dse.tune.store.rundir import running

    facts = run_status(table, running(table.path))
    best = {f"best {name}": value for name, value in facts.pop("best").items()}
    dropped = ("reasons", "rungs", "wrong", "resume", "pid", "running", "last_result_seconds_ago")
    if not as_json and table.facts.certificate is not None:
        facts["certificate"] = str(table.facts.certificate)
    return {**{k: v for k, v in facts.items() if k not in dropped}, **best}


def _print_comparison(pairs: dict[str, tuple[Any, Any]], names: tuple[str, str], *, show_all: bool) -> None:
    table = Table(show_edge=False)
    table.add_column("", overflow="fold")
    for name in (*names, "change"):
        table.add_column(markup(name), justify="right", overflow="fold")
    for name, (x, y) in pairs.items():
        if show_all or x != y:
            table.add_row(markup(name), markup(_cell(x)), markup(_cell(y)), _change(x, y))
    console().print(table)


def _cell(value: Any) -> str:
    return "-" if value is None else short(value)


def _change(x: Any, y: Any) -> str:
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in (x, y))
    return f"{100 * (y - x) / abs(x):+.1f} %" if numbers and x and x != y else ""


# `allo-tune replay RUN`: all designs of a log again.


EXIT_STOPPED = 130
PROGRESS_SECONDS = 2.0
SHOWN = 20


def replay_all(run: Path | None, study: Path | None, *, as_json: bool) -> int:
    """Replay a run's log and print the differences; return the exit code."""
    from allo_dse.tune.earlier_runs import replay_run
    from allo_dse.tune.search.budget import StopSignals
    from allo_dse.tune.store.rundir import find_run

    with json_only(as_json), StopSignals() as stop:
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
    to = console()
    for replay in found.different[:SHOWN]:
        to.print(f"{replay.key}: {markup(replay.text)}")
    if len(found.different) > SHOWN:
        to.print(f"and {len(found.different) - SHOWN:,} more: see --json")
    for reason, count in found.skipped.items():
        to.print(f"{count:,} left out: {markup(reason)}")
    if found.stopped:
        to.print(f"stopped by {found.stopped} after {found.done:,} of {found.records:,}")
    again = found.proposals
    for reason, count in again.skipped.items():
        to.print(f"{count:,} not proposed again: {markup(reason)}")
    if again.difference:
        to.print(f"[bold red]proposed differently[/] after {again.proposed:,}: {markup(again.difference)}")
    elif again.proposed:
        to.print(
            f"{again.proposed:,} proposed again in the same order, and {again.violations:,} that break a device limit"
        )
    words = "[bold green]the same[/]" if not found.different else f"[bold red]{len(found.different):,} different[/]"
    to.print(f"{markup(str(found.path))}: {found.same + len(found.different):,} replayed, {words}")
