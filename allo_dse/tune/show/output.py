"""The results of a run as files, and as a few lines for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import structs
from rich.console import Console
from rich.table import Table

from allo_dse.common.quoting import file_name, markup, shell_command
from allo_dse.common.records import JsonObject

from ..results.best import BestDesign
from ..results.explain import timed_on_words
from ..results.front_code import FRONT_CODE, front_code
from ..results.result import Result, failure_words
from ..store.log import disk_full
from ..store.rundir import RunDirectory
from .run_view import format_value, front_table

# Predictions of the cost model beside reports of the HLS tool, as rows of a table.


METRIC = "predicted_reported"
"""The metric of designs that the HLS tool has measured (`backends.fpga.hls.prediction.comparison`)."""
HEADINGS = ("", "", "predicted", "reported", "difference")

Row = tuple[str, str, str, str, str]


def predicted_reported_rows(metrics: Mapping[str, Any]) -> list[Row]:
    """Return rows for each resource, and for each loop's II and depth: name, quantity, predicted, reported, difference.

    A loop that only one of them pipelines has "-". Empty for designs that the tool has not measured.
    """
    found = metrics.get(METRIC)
    if not found:
        return []
    design = {"cycles": (found["cycles"], metrics.get("latency_cycles")), **found["resources"]}
    pairs = [("design", name, pair) for name, pair in design.items()]
    for loop in found["loops"]:
        pairs += [(f"{loop['function']}/{loop['loop']}", quantity, loop[quantity]) for quantity in ("ii", "depth")]
    return [(owner, name, *_pair(*pair)) for owner, name, pair in pairs]


def _pair(predicted: float | None, reported: float | None) -> tuple[str, str, str]:
    share = ""
    if predicted == reported:
        share = "" if predicted is None else "0"
    elif predicted is not None and reported is not None:
        share = f"{100 * (predicted - reported) / reported:+.0f} %" if reported else "-"
    return format_value(predicted), format_value(reported), share


TOP_ROWS = 12
TOP_LIMITS = 3  # constraints to name if no design is feasible
MOST_CAUSES = 5
LEAST = 0.05  # least importance to mention


def write_front_code(result: Result, directory: RunDirectory) -> None:
    """Write `front_code.json`, which shows source and loops without compiling the program."""
    if result.front:
        directory.write(FRONT_CODE, front_code(result))


def write_best(result: Result, directory: RunDirectory) -> None:
    """Write `best/<objective>/`, which for programs that take long to run takes long."""
    if result.front:
        for objective in result.study.objectives:
            where = directory.path / "best" / file_name(objective.name)
            try:
                result.best(objective.name).export(where)
            except OSError as error:
                raise (disk_full(where, error) or error) from error


def summary(result: Result) -> JsonObject:
    """The outcome as plain data."""
    names = [o.name for o in result.study.objectives]
    return {
        "study": result.study.name,
        "stopped": result.stopped,
        "trials": len(result.records),
        "feasible": len(result.values),
        "failures": dict(result.failures),
        "run_dir": str(result.run_dir),
        "front": [_design(d, result) for d in result.front],
        "best": {name: _design(result.best(name), result) for name in names} if result.front else {},
        "certificate": msgspec.to_builtins(result.certificate),
        "wrong": result.wrong,
        "unverified": result.unverified,
        "baseline": None if result.baseline is None else _design(result.baseline, result),
        "ruled_out": result.ruled_out,
        "causes": [{**structs.asdict(cause), "share": cause.share} for cause in result.causes],
        "importances": result.importances,
        "prediction": result.correction.to_dict(),
        "rung_failures": [
            {"evaluator": one.evaluator, "promoted": one.promoted, "failed": one.failed, "errors": dict(one.errors)}
            for one in result.rung_failures
        ],
    }


def _design(best: BestDesign, result: Result) -> JsonObject:
    verification, note = result.verified.get(best.key), result.placed.get(best.key)
    return {
        "key": best.key,
        "values": dict(zip((o.name for o in result.study.objectives), result.values[best.key], strict=True)),
        "params": best.params,
        "fold": best.record.fold,
        "buffering": best.record.buffering,
        "evaluator": best.record.measured_by,
        "verified": None if verification is None else verification.ok,
        "verification": None if verification is None else verification.message,
        "placed": None if note is None else note.ok,
    }


def searched(result: Result, console: Console) -> Iterator[Table | str]:
    """Yield what is shown of a search that has ended, before designs are verified, placed and exported."""
    if result.unverified:
        yield front_of(result, console)
        yield f"not yet verified: {result.unverified} of {len(result.front)} designs of the front"


def print_result(result: Result, console: Console, command: Sequence[str]) -> None:
    """Print the front, the best design in words, and the locations of files."""
    if not result.front:
        wrong = [found for found in result.verified.values() if not found.ok]
        kind = "right" if wrong else "feasible"
        console.print(f"[bold red]no {kind} design[/] among {len(result.records)} evaluated")
        for name, count in list(result.unmet.items())[:TOP_LIMITS]:
            console.print(f"{count} break the constraint {markup(repr(name))}", soft_wrap=True)
        if wrong:
            last = markup(wrong[-1].message)
            console.print(f"{len(wrong)} failed verification, the last one: {last}", soft_wrap=True)
        closed = result.certificate is not None and result.certificate.complete
        more = "" if closed else ", or let it try more of them"
        agree = "correct the program, or the study's reference; `inputs=` gives numbers that both are meant for"
        does = agree if wrong else f"loosen what rules designs out{more}"
        console.print(f"[bold]hint:[/] {does}")
    else:
        console.print(front_of(result, console))
        best = result.best()
        console.print(f"best [bold]{markup(result.study.objectives[0].name)}[/]: {markup(best.explain())}")
        if result.against_baseline:
            console.print(markup(result.against_baseline))
        print_comparison(best, console)
        if advice := result.study.advice(best.design.program):
            console.print(f"[bold]hint:[/] {advice}")
    if result.unverified:
        share = f"{result.unverified} of {len(result.front)} designs of the front"
        console.print(f"[bold yellow]not verified:[/] {share}; the same command runs them, unless it says --no-verify")
    if result.correction.pairs:
        console.print(f"measured {result.correction.words}")
    if failed := failure_words(result):
        console.print(f"[bold red]{markup(failed)}[/]")
    for cause in result.causes[:MOST_CAUSES]:
        console.print(markup(str(cause)))
    if len(result.causes) > MOST_CAUSES:
        console.print(f"{len(result.causes) - MOST_CAUSES} more causes: `--json` has all")
    shares = [f"{markup(name)} {100 * share:.0f} %" for name, share in result.importances.items() if share >= LEAST]
    if shares:
        console.print(f"what decides: {', '.join(shares[:MOST_CAUSES])}")
    for one in result.rung_failures:
        console.print(f"[bold red]{markup(str(one))}[/]")
    console.print(_ending(result))
    if result.certificate is not None:
        console.print(f"[bold]{markup(str(result.certificate))}[/]")
    _print_copied(result, console, command)


def _print_copied(result: Result, console: Console, command: Sequence[str]) -> None:
    """Paths and commands, a line each, which no end of a line breaks."""
    path = markup(str(result.run_dir))
    copied = {"all designs": f"{path}/trials.csv"}
    if result.front:
        copied = {"front": f"{path}/pareto.csv", **copied, "to build": f"{path}/best/"}
    copied["look at it"] = shell_command(["allo-tune", "dashboard", str(path)])
    if command and result.stopped not in ("exhausted", "trials", "target", "patience", "gap"):
        copied["go on with"] = f"[bold]{markup(shell_command(command))}[/]"
    for name, value in copied.items():
        console.print(f"[dim]{name:<11}[/]  {value}", soft_wrap=True)


def print_comparison(best: BestDesign, console: Console) -> None:
    """Print the cost model's predictions beside the HLS tool's reports, for a measured design."""
    rows = predicted_reported_rows(best.metrics)
    if not rows:
        return
    table = Table(title=f"Model against {best.record.measured_by}, design {best.key[:8]}", title_justify="left")
    for position, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if position < 2 else "right")
    for row in rows:
        table.add_row(*map(markup, row))
    console.print(table)


def front_of(result: Result, console: Console) -> Table:
    """The front, best in the first objective first; the knee and the baseline are marked."""
    shown = result.front[:TOP_ROWS]
    if result.knee is not None and all(design.key != result.knee.key for design in shown):
        shown = [*shown[:-1], result.knee]
    free = [n for n in result.study.parameters.free if any(n in d.params for d in result.front)]
    several, unplaced = bool(result.study.rungs), any(not note.ok for note in result.placed.values())
    others = ["design", *(["measured by"] if several else []), "checked", *(["placed"] if unplaced else [])]
    marks = {"knee": result.knee, "baseline": result.baseline}
    rows = []
    for best in shown:
        mark = ", ".join(name for name, design in marks.items() if design is not None and best.key == design.key)
        verification, note = result.verified.get(best.key), result.placed.get(best.key)
        cells = [best.key[:8], *([best.record.measured_by] if several else [])]
        cells.append("" if verification is None else str(verification))
        cells += [] if not unplaced else ["" if note is None else "yes" if note.ok else "no"]
        rows.append((mark, result.values[best.key], [best.params.get(n) for n in free], cells))
    names = [objective.name for objective in result.study.objectives], free, others
    return front_table(console, timed_on_words(result.best().metrics), names, rows, len(result.front))


_REASONS = {
    "time": "The time budget is spent",
    "target": "A design reaches the target (--target)",
    "patience": "No better design within the trials of --patience",
    "gap": "The best values are as near to their proven bounds as asked (--gap)",
}


def _ending(result: Result) -> str:
    if result.stopped == "exhausted" and result.certificate is not None:
        return f"The space is closed: every design is decided after {len(result.records)} trials."
    if result.stopped == "exhausted":
        return f"The space is exhausted: all {len(result.records)} new and legal designs found were evaluated."
    if result.stopped == "trials":
        return f"{len(result.records)} trials done. More: the same command with a larger --trials."
    reason = _REASONS.get(result.stopped, f"Stopped by {result.stopped}")
    return f"{reason} after {len(result.records)} trials; everything is kept."
