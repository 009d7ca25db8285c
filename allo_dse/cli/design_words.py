"""Designs in words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from allo_dse.tune.results.explain import latency_range_words

from .output import print_facts
from .run_facts import design_facts

if TYPE_CHECKING:
    from allo_dse.dashboard.data.table.table import RunTable


def print_design(table: RunTable, row: int, to: Console) -> None:
    """A design for a person."""
    facts = design_facts(table, row)
    print_facts(
        {
            "design": f"{facts['key']}  (number {facts['number']}, {facts['status']}"
            + (", on the front" if facts["on_front"] else "") + ")",
            "objectives": _pairs(facts["values"]),
            "parameters": _pairs(facts.get("params")),
            "mapping": _pairs({n: table.columns[n].value(row) for n in table.names("mapping")}),
            "verified": {True: "yes", False: f"WRONG: {facts['verification']}", None: ""}[facts["verified"]],
            "error": facts.get("error"),
            "printed": facts.get("log") and str(table.path / facts["log"]),
            "violated": _pairs({n: v for n, v in (facts.get("constraints") or {}).items() if v}),
            **{f"by {name or 'evaluator'}": _pairs(metrics) for name, metrics in facts["rungs"].items()},
            "latency is": latency_range_words(_metrics(table, row)).removeprefix("latency "),
            "took": f"{facts.get('seconds', 0):.4g} s" + (" (cached)" if facts.get("cached") else ""),
        },
        to,
    )  # fmt: skip


def _metrics(table: RunTable, row: int) -> Mapping[str, Any]:
    from allo_dse.dashboard.data.query.analysis import measured

    return measured(table, row)


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
