"""Commands on a whole run: `status`, `best`, `pareto`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.common.quoting import csv_lines, markup
from allo_dse.common.records import JsonObject

from ..output import (
    EXIT_NO_RESULT,
    NO_DESIGN,
    AsJson,
    RunArgument,
    RunOption,
    console,
    one_run,
    open_run,
    print_facts,
    print_json,
)
from ..run_facts import best_row, design_facts, objective, print_design, run_status

if TYPE_CHECKING:
    from allo_dse.dashboard.data.table import RunTable


def status(
    run: RunArgument = None,
    named_run: RunOption = None,
    as_json: AsJson = False,
) -> None:
    """Progress of a run, its pace, and what rules designs out. Works while the run goes on.

    Examples:

      allo-tune status                    the newest run in runs/
      allo-tune status runs/gemm --json   for a script: .running, .trials, .best
      watch -n 2 allo-tune status         again every two seconds
    """
    from allo_dse.tune.store.rundir import running

    table = open_run(one_run(run, named_run))
    facts = run_status(table, running(table.path))
    if as_json:
        print_json(facts)
        return
    print_facts({**_status_words(facts), "space": table.facts.certificate}, console())


def _status_words(facts: JsonObject) -> dict[str, object]:
    from allo_dse.tune.show.run_view import format_duration, format_value

    age = facts["last_result_seconds_ago"]
    since = "" if age is None else f", last result {format_duration(age)} ago"
    state = f"running (process {facts['pid'] or 'unknown'}){since}" if facts["running"] else f"not running{since}"
    share = facts["feasible_share"]
    counts = [f"{facts[name]:,} {name}" for name in ("feasible", "infeasible", "failed") if facts[name]]
    pace = facts["designs_per_second"]
    words: dict[str, object] = {
        "study": f"{facts['study']} on {facts['device'].partition(' ')[0]}",
        "run": facts["run_dir"],
        "state": state,
        "designs": f"{facts['trials']:,} evaluated: {', '.join(counts)}" if counts else "none yet",
        "feasible": "" if share is None else f"{100 * share:.1f} % of those proposed",
        "ruled out by": tuple(f"{name} {count:,}" for name, count in list(facts["reasons"].items())[:6]),
        "pace": f"{format_duration(facts['seconds'])} of searching" + ("" if pace is None else f", {pace:,.1f}/s"),
        "rungs": "   ".join(f"{n} {c:,}" for n, c in facts["rungs"].items()) if len(facts["rungs"]) > 1 else "",
        "best so far": tuple(f"{n} {format_value(v)}" for n, v in facts["best"].items() if v is not None),
        "front": f"{facts['front_size']} designs, {facts['verified']} verified",
        "wrong": ", ".join(facts["wrong"]),
    }
    if not facts["running"]:
        words["go on with"] = facts["resume"]
    return words


def best(
    run: RunArgument = None,
    named_run: RunOption = None,
    objective_name: Annotated[
        str | None, typer.Option("--objective", "-o", help="Only this one.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """The best design of each objective, or of one.

    Examples:

      allo-tune best
      allo-tune best runs/gemm --objective latency_us
      allo-tune best --json | jq -r .latency_us.key
    """
    from allo_dse.dashboard.data.analysis import LATENCY, fastest_words

    table = open_run(one_run(run, named_run))
    names = table.objectives
    if objective_name is not None:
        if objective_name not in names:
            near = did_you_mean(objective_name, names)
            raise StudyError(f"no objective {objective_name!r}", hint=f"{near}one of {', '.join(names)}")
        names = [objective_name]
    rows = {name: best_row(table, name) for name in names}
    if as_json:
        print_json({name: None if row is None else design_facts(table, row) for name, row in rows.items()})
    else:
        for name, row in rows.items():
            if row is not None:
                console().print(f"[bold]best {markup(name)}[/]")
                print_design(table, row, console())
                if name == LATENCY and (said := fastest_words(table, row)):
                    console().print(markup(said), soft_wrap=False)
    if all(row is None for row in rows.values()):
        if not as_json:
            console().print(NO_DESIGN)
        raise typer.Exit(EXIT_NO_RESULT)


def pareto(
    run: RunArgument = None,
    named_run: RunOption = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated, with every column.")] = False,
    as_json: AsJson = False,
) -> None:
    """The front: every design that none is better than in all objectives. Best in the first objective first.

    Examples:

      allo-tune pareto
      allo-tune pareto runs/gemm --csv > front.csv
      allo-tune pareto --json | jq '.front[].key'
    """
    table = open_run(one_run(run, named_run))
    rows = [int(row) for row in table.front]
    if as_json:
        print_json({"objectives": table.objectives, "front": [design_facts(table, row) for row in rows]})
    elif as_csv:
        names = list(table.columns)
        print(*csv_lines(names, ([table.columns[name].value(row) for name in names] for row in rows)), sep="", end="")
    elif rows:
        _print_front(table, rows)
    else:
        console().print(NO_DESIGN)
    if not rows:
        raise typer.Exit(EXIT_NO_RESULT)


def _print_front(table: RunTable, rows: list[int]) -> None:
    from allo_dse.tune.show.run_view import front_table

    parameters = table.names("parameter", varying=True)
    shown = []
    for row in rows:
        checked = table.verified.get(table.keys[row])
        values = (table.columns[name].value(row) for name in parameters)
        params = [f"{value:g}" if isinstance(value, float) else value for value in values]
        cells = [table.keys[row][:8], "" if checked is None else str(checked)]
        numbers = [objective(table, row, name) for name in table.objectives]
        shown.append(("knee" if row == table.knee else "", numbers, params, cells))
    names = table.objectives, parameters, ["design", "checked"]
    console().print(front_table(console(), "", names, shown, len(rows)))
