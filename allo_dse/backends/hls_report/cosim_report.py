"""`<top>_cosim.rpt`: what RTL co-simulation measured."""

from __future__ import annotations

from pathlib import Path

from .numbers import whole
from .parts import Cosim, Cycles, HlsReportError
from .report import HlsReport
from .text_tables import parse_text

_OUTCOME = {"pass": True, "fail": False}


def read_cosim_report(path: Path, text: str) -> HlsReport:
    """A report that has nothing but co-simulations.

    Raises:
        HlsReportError: if the file is damaged, truncated or something else.
    """
    for table in parse_text(path, text).tables:
        if {"rtl", "status"} <= set(table.columns):
            cosims = tuple(_cosim(path, row) for row in table.records())
            top = path.stem.removesuffix("_cosim") if path.stem.endswith("_cosim") else ""
            return HlsReport(files=(str(path),), top=top, cosims=cosims)
    raise HlsReportError(f"{path}: not a co-simulation report, or truncated", hint="give sim/report/*_cosim.rpt")


def _cosim(path: Path, row: dict[str, str]) -> Cosim:
    status = row["status"].lower()
    if status not in ("na", *_OUTCOME):
        raise HlsReportError(f"{path}: status {row['status']!r} is none of Pass, Fail, NA", hint="copy it again")
    total = next((value for name, value in row.items() if name.startswith("total execution")), "")
    return Cosim(
        language=row["rtl"].strip(),
        passed=_OUTCOME.get(status),
        latency=_cycles(row, "latency"),
        interval=_cycles(row, "interval"),
        total_cycles=whole(total),
    )


def _cycles(row: dict[str, str], name: str) -> Cycles:
    cells = {column.rsplit(" ", 1)[-1]: value for column, value in row.items() if column.startswith(name)}
    return Cycles(min=whole(cells.get("min")), avg=whole(cells.get("avg")), max=whole(cells.get("max")))
