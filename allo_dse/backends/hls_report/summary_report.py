"""`csynth.rpt` of Vitis HLS: one table of all modules and loops, indented as they are nested."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .parts import HlsLoop, HlsReportError, Instance, Module, Resources, Violation
from .printed_numbers import cycles, real, whole
from .report import HlsReport
from .text_report import nested
from .text_tables import parse_text

_INTERFACES_SINCE = "2021"
"""The first version whose summaries have a section about interfaces, which comes after the table of modules."""
_ISSUES = {"II": "II Violation", "Timing": "Timing Violation"}


@dataclass
class _Row:
    """A module of the table, while the rows below it are read."""

    level: int
    name: str
    kind: str
    cells: dict[str, str]
    loops: list[tuple[int, HlsLoop]] = field(default_factory=list)
    instances: list[Instance] = field(default_factory=list)


def read_summary_report(path: Path, text: str) -> HlsReport:
    """The report of all modules.

    Raises:
        HlsReportError: if the file is damaged, truncated or something else.
    """
    parsed = parse_text(path, text)
    table = parsed.table("Performance & Resource Estimates")
    if "Synthesis Summary Report" not in parsed.title or table is None:
        raise HlsReportError(f"{path}: not a synthesis summary, or truncated", hint="give csynth.rpt or csynth.xml")
    tool = parsed.header.get("Version", "").split(" ")[0]
    has_interfaces = not tool or tool >= _INTERFACES_SINCE
    if has_interfaces and parsed.table("HW Interfaces") is None:
        raise HlsReportError(f"{path}: truncated: has no table of section `HW Interfaces`", hint="copy it again")
    rows, violations = _rows(list(table.records()))
    if not rows:
        raise HlsReportError(f"{path}: its table has no modules", hint="copy it again")
    modules = tuple(_module(row) for row in rows)
    return HlsReport(
        files=(str(path),),
        tool=tool,
        top=modules[0].name,
        part=parsed.header.get("Target device", ""),
        family=parsed.header.get("Product family", ""),
        clock_ns=real(parsed.header.get("Target clock")),
        kind=modules[0].kind,
        latency=modules[0].latency,
        interval=modules[0].interval,
        resources=modules[0].resources,
        modules=modules,
        violations=tuple(violations),
        notes=("the summary rounds: amounts of the whole device are not in it",),
    )


def _rows(records: list[dict[str, str]]) -> tuple[list[_Row], list[Violation]]:
    """Modules with their loops and instances; a loop belongs to the nearest module above it that is less indented."""
    modules: list[_Row] = []
    around: list[_Row] = []
    violations = []
    for cells in records:
        label = cells.get("modules & loops", "")
        mark = label.strip()[:1]
        level = len(label) - len(label.lstrip())
        name = label.strip()[1:].strip()
        if mark not in ("+", "o") or not name:
            continue
        around = [row for row in around if row.level < level]
        issue = cells.get("issue type", "-")
        kind = cells.get("pipelined", "")
        if mark == "+":
            row = _Row(level, name.removesuffix("*"), kind, cells)
            if around:
                around[-1].instances.append(Instance("", row.name))
            around.append(row)
            modules.append(row)
        elif around:
            around[-1].loops.append((level, _loop(cells, name.removesuffix("*"), around[-1].name)))
        if issue not in ("-", "") and around:
            loop = name.removesuffix("*") if mark == "o" else ""
            violations.append(Violation(_ISSUES.get(issue, issue), "", around[-1].name, loop))
    return modules, violations


def _loop(cells: dict[str, str], name: str, module: str) -> HlsLoop:
    return HlsLoop(
        name=name,
        module=module,
        trip_count=cycles(cells.get("trip count")),
        latency=cycles(cells.get("latency (cycles)")),
        ii=whole(cells.get("interval")),
        depth=whole(cells.get("iteration latency")),
        kind=cells.get("pipelined", ""),
    )


def _module(row: _Row) -> Module:
    names = {"bram18": "bram", "dsp": "dsp", "ff": "ff", "lut": "lut", "uram": "uram"}
    amounts = {ours: _amount(row.cells.get(column)) for ours, column in names.items()}
    return Module(
        name=row.name,
        kind=row.kind,
        latency=cycles(row.cells.get("latency (cycles)")),
        interval=cycles(row.cells.get("interval")),
        resources=Resources(**amounts),
        loops=nested(row.loops),
        instances=tuple(row.instances),
    )


def _amount(cell: str | None) -> int | None:
    """`39 (17%)`; `-` stands for none here. None where the column is missing or what it says is no amount."""
    return 0 if cell == "-" else whole((cell or "").split(" ")[0])
