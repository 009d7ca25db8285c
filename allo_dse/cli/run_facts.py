"""Facts about a run and its designs that commands print, as plain data."""

from __future__ import annotations

import math
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from rich.console import Console

from allo_dse.common.records import JsonObject
from allo_dse.tune.results.explain import latency_range_words
from allo_dse.tune.store.rundir import LOG

from .output import print_facts

if TYPE_CHECKING:
    from allo_dse.dashboard.data.table import RunTable

RECENT = 100  # latest designs for the present pace


def run_status(table: RunTable, pid: int | None) -> JsonObject:
    """The state of a run as plain data; `pid` is the process that runs it, if one does."""
    from allo_dse.dashboard.data.progress import lost, statuses

    counts = statuses(table)
    proposed = len(table) + len(table.ruled_out)
    at = table.numbers("at")
    log = table.path / LOG
    last = max(0.0, time.time() - log.stat().st_mtime) if log.exists() else None
    volume = float(table.hypervolume[-1]) if len(table.hypervolume) else math.nan
    return {
        "study": table.facts.study,
        "run_dir": str(table.path),
        "device": table.facts.device,
        "evaluator": table.facts.evaluator,
        "running": pid is not None,
        "pid": pid or None,
        "trials": len(table),
        "feasible": counts["ok"],
        "infeasible": counts["infeasible"],
        "failed": counts["failed"],
        "ruled_out": len(table.ruled_out),
        "feasible_share": counts["ok"] / proposed if proposed else None,
        "reasons": dict(lost(table).most_common()),
        "rungs": dict(_given(table)),
        "seconds": table.seconds,
        "designs_per_second": _pace(at),
        "last_result_seconds_ago": last,
        "best": {
            o: None if (row := best_row(table, o)) is None else objective(table, row, o) for o in table.objectives
        },
        "front_size": len(table.front),
        "hypervolume": None if math.isnan(volume) else volume,
        "certificate": msgspec.to_builtins(table.facts.certificate),
        "verified": sum(v.ok for v in table.verified.values()),
        "wrong": [key for key, v in table.verified.items() if not v.ok],
        "resume": table.facts.command_line,
    }


def design_facts(table: RunTable, row: int) -> JsonObject:
    """Return a design as plain data: its record, its objective values, and each evaluator's results."""
    record = {k: v for k, v in table.record(row).items() if k != "type"}
    key = table.keys[row]
    verification = table.verified.get(key)
    return {
        **record,
        "values": {name: table.columns[name].value(row) for name in table.objectives if name in table.columns},
        "rungs": {rung.evaluator: dict(rung.metrics or {}) for rung in table.rungs(key)},
        "on_front": row in set(table.front.tolist()),
        "verified": None if verification is None else verification.ok,
        "verification": None if verification is None else verification.message,
    }


def best_row(table: RunTable, name: str) -> int | None:
    """The row of the best design in an objective; ties are broken by the other objectives, as `Result.best` does."""
    front = table.front
    if not len(front):
        return None
    losses = table.losses[front]
    position = table.objectives.index(name)
    order = [position, *(i for i in range(losses.shape[1]) if i != position)]
    return int(front[min(range(len(front)), key=lambda i: tuple(losses[i][order]))])


def objective(table: RunTable, row: int, name: str) -> float | None:
    """The value of an objective, in its own units."""
    value = table.numbers(name)[row]
    return None if value != value else float(value)


def _given(table: RunTable) -> Counter[str]:
    """Count the designs given to each evaluator."""
    column = table.column("evaluator")
    alone = np.array([row for key, row in table.row_of.items() if key not in table.promoted], np.int64)
    names = [""] * len(alone) if column is None else column.values(alone)
    given = Counter(str(name or "") for name in names)
    given.update(rung.evaluator for rungs in table.promoted.values() for rung in rungs)
    return given


def _pace(at: Any) -> float | None:
    """Designs per second over the last ones."""
    recent = at[-RECENT:]
    span = float(recent[-1] - recent[0]) if len(recent) > 1 else 0.0
    return (len(recent) - 1) / span if span > 0 else None


def print_design(table: RunTable, row: int, to: Console) -> None:
    """A design for a person."""
    from allo_dse.dashboard.data.analysis import measured

    facts, verification = design_facts(table, row), table.verified.get(table.keys[row])
    print_facts(
        {
            "design": f"{facts['key']}  (number {facts['number']}, {facts['status']}"
            + (", on the front" if facts["on_front"] else "") + ")",
            "objectives": _pairs(facts["values"]),
            "parameters": _pairs(facts.get("params")),
            "mapping": _pairs({n: table.columns[n].value(row) for n in table.names("mapping")}),
            "verified": "" if verification is None else f"{verification.verdict}: {verification.message}",
            "error": facts.get("error"),
            "printed": facts.get("log") and str(table.path / facts["log"]),
            "violated": _pairs({n: v for n, v in (facts.get("constraints") or {}).items() if v}),
            **{f"by {name or 'evaluator'}": _pairs(metrics) for name, metrics in facts["rungs"].items()},
            "latency is": latency_range_words(measured(table, row)).removeprefix("latency "),
            "took": f"{facts.get('seconds', 0):.4g} s" + (" (cached)" if facts.get("cached") else ""),
        },
        to,
    )  # fmt: skip


def _pairs(values: Any) -> tuple[str, ...]:
    return tuple(f"{name} {short(value)}" for name, value in (values or {}).items() if value is not None)


def short(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{int(value):,}" if value.is_integer() and abs(value) < 1e15 else f"{value:,.6g}"
    if isinstance(value, dict):
        return "(" + ", ".join(f"{k} {short(v)}" for k, v in value.items()) + ")"
    return str(value)
