"""`<module>_csynth.rpt`: the text report of one module, with the target intervals that XML lacks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from typing import Any

from .report import (
    NO_AMOUNTS,
    Cycles,
    HlsFifo,
    HlsLoop,
    HlsOperator,
    HlsReport,
    HlsReportError,
    Instance,
    Module,
    Resources,
    Violation,
)
from .text_tables import TextReport, cycles, parse_text, real, whole

# Floating-point units of a design, as reports name them: `fadd_32ns_32ns_32_7_full_dsp_1_U4` has seven stages.


_UNIT = re.compile(r"(?:^|_)([a-z]+)(?:_\d+n?s?)*_\d+_(\d+)_(full|max|med|no)_dsp(?:_|$)")
_IMPLEMENTATIONS = {"full": "fulldsp", "max": "maxdsp", "med": "meddsp", "no": "fabric"}


def merged_operators(known: Iterable[HlsOperator], others: Iterable[HlsOperator]) -> tuple[HlsOperator, ...]:
    """Return the units of either report: XML lacks flip-flops and LUTs, and text lacks some units."""
    found = {(one.module, one.name): one for one in known}
    for other in others:
        key = other.module, other.name
        mine = found.get(key, other)
        found[key] = replace(mine, resources=mine.resources.filled(other.resources))
    return tuple(found.values())


def bound_operators(nodes: Iterable[tuple[str, dict[str, str]]]) -> Iterator[HlsOperator]:
    """The units that an XML report binds operations of modules to, each once."""
    seen = set()
    for module, node in nodes:
        name, latency, dsp = (node.get(key, "") for key in ("RTLNAME", "LATENCY", "DSP"))
        if node.get("BINDTYPE") != "op" or (module, name) in seen or not latency.isdecimal():
            continue
        seen.add((module, name))
        resources = Resources(dsp=int(dsp)) if dsp.isdecimal() else NO_AMOUNTS
        yield HlsOperator(name, module, node.get("OPTYPE", ""), node.get("IMPL", ""), int(latency), resources)


_SECTIONS = ("Performance Estimates", "Utilization Estimates", "Interface")


def read_text_report(path: Path, text: str) -> HlsReport:
    """The report of one module.

    Raises:
        HlsReportError: if the file is damaged, truncated or something else.
    """
    parsed = parse_text(path, text)
    if "HLS Report for" not in parsed.title:
        raise HlsReportError(f"{path}: not the report of an HLS module", hint="give a *_csynth.rpt or csynth.xml")
    for section in _SECTIONS:
        if parsed.table(section) is None:
            raise HlsReportError(f"{path}: truncated: has no table of section `{section}`", hint="copy it again")
    name = parsed.title.split("'")[1] if parsed.title.count("'") == 2 else parsed.title.split()[-1]
    overall = next(_records(parsed, "Performance Estimates", "Latency", "Summary"), {})
    clock = next(_records(parsed, "Performance Estimates", "Timing", "Summary"), {})
    module = Module(
        name=name,
        kind=overall.get("pipeline type", ""),
        latency=_between(overall, "latency (cycles)", "latency"),
        interval=_between(overall, "interval"),
        estimated_ns=real(clock.get("estimated")),
        resources=_total(parsed, "total"),
        loops=_loops(parsed, name),
        instances=tuple(
            Instance(row["instance"].strip(), row["module"])
            for row in _records(parsed, "Performance Estimates", "Latency", "Detail", "Instance")
            if row.get("instance") and row.get("module")
        ),
    )
    operators = []
    for row in _records(parsed, "Utilization Estimates", "Detail", "Instance"):
        if found := _UNIT.search(row.get("module", "")):  # a floating-point unit
            operation, stages, dsps = found.groups()
            unit, kind = row.get("instance", "").strip(), _IMPLEMENTATIONS[dsps]
            operators.append(HlsOperator(unit, name, operation, kind, int(stages) - 1, amounts_of(row)))
    return _report(
        path,
        parsed,
        (module,),
        clock_ns=real(clock.get("target")),
        uncertainty_ns=real(clock.get("uncertainty")),
        estimated_ns=module.estimated_ns,
        available=_total(parsed, "available"),
        fifos=tuple(
            HlsFifo(
                name=row["name"].strip(),
                module=name,
                depth=whole(row.get("depth")),
                width=whole(row.get("bits")),
                resources=amounts_of(row),
            )
            for row in _records(parsed, "Utilization Estimates", "Detail", "FIFO")
            if row.get("name", "").strip() not in ("", "Total")
        ),
        operators=tuple(operators),
    )


def _report(path: Path, parsed: TextReport, modules: tuple[Module, ...], **more: Any) -> HlsReport:
    """The report of some modules, of which the first is the top."""
    top = modules[0]
    return HlsReport(
        files=(str(path),),
        tool=parsed.header.get("Version", "").split(" ")[0],
        top=top.name,
        part=parsed.header.get("Target device", ""),
        family=parsed.header.get("Product family", ""),
        kind=top.kind,
        latency=top.latency,
        interval=top.interval,
        resources=top.resources,
        modules=modules,
        **more,
    )


def _records(parsed: TextReport, *headings: str) -> Iterator[dict[str, str]]:
    table = parsed.table(*headings)
    return iter(()) if table is None else table.records()


def _between(row: dict[str, str], *names: str) -> Cycles:
    """A range whose columns are called `NAME min` and `NAME max`; reports before 2020 say `latency` only."""
    for name in names:
        if f"{name} min" in row:
            return Cycles(min=whole(row[f"{name} min"]), max=whole(row.get(f"{name} max")))
    return Cycles()


def _total(parsed: TextReport, name: str) -> Resources:
    rows = _records(parsed, "Utilization Estimates", "Summary")
    return next((amounts_of(row) for row in rows if row.get("name", "").strip().lower() == name), NO_AMOUNTS)


def amounts_of(row: Mapping[str, str]) -> Resources:
    """Return the resources in cells by the tool's names of them, in lower case."""
    dsp = whole(row.get("dsp") or row.get("dsp48e"))
    return Resources(whole(row.get("bram_18k")), dsp, *(whole(row.get(name)) for name in ("ff", "lut", "uram")))


def _loops(parsed: TextReport, module: str) -> tuple[HlsLoop, ...]:
    """Loops as a tree: the names of inner ones begin with one `+` more than those around them."""
    rows = []
    for row in _records(parsed, "Performance Estimates", "Latency", "Detail", "Loop"):
        mark = row.get("loop name", "").strip()
        name = mark.lstrip("-+ ")
        if not name:
            continue
        level = len(mark) - len(mark.lstrip("+"))
        latency = _between(row, "latency (cycles)", "latency")
        rows.append((level, _loop(row, name, module, latency, "initiation interval achieved")))
    return nested(rows)


def _loop(row: Mapping[str, str], name: str, module: str, latency: Cycles, interval: str) -> HlsLoop:
    return HlsLoop(
        name=name,
        module=module,
        trip_count=cycles(row.get("trip count")),
        latency=latency,
        ii=whole(row.get(interval)),
        ii_target=whole(row.get("initiation interval target")),
        depth=whole(row.get("iteration latency")),
        kind=row.get("pipelined", ""),
    )


def nested(rows: Sequence[tuple[int, HlsLoop]]) -> tuple[HlsLoop, ...]:
    """Loops given in order with their levels, put into one another."""
    outer: list[HlsLoop] = []
    at = 0
    while at < len(rows):
        level, loop = rows[at]
        inside = list(takewhile(lambda row, level=level: row[0] > level, rows[at + 1 :]))  # type: ignore[misc]
        outer.append(replace(loop, loops=nested(inside)))
        at += 1 + len(inside)
    return tuple(outer)


# `csynth.rpt` of Vitis HLS: one table of all modules and loops, indented as they are nested.


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
    tool = parsed.header.get("Version", "")
    has_interfaces = not tool or tool >= _INTERFACES_SINCE
    if has_interfaces and parsed.table("HW Interfaces") is None:
        raise HlsReportError(f"{path}: truncated: has no table of section `HW Interfaces`", hint="copy it again")
    rows, violations = _rows(list(table.records()))
    if not rows:
        raise HlsReportError(f"{path}: its table has no modules", hint="copy it again")
    return _report(
        path,
        parsed,
        tuple(
            Module(
                name=row.name,
                kind=row.kind,
                latency=cycles(row.cells.get("latency (cycles)")),
                interval=cycles(row.cells.get("interval")),
                resources=Resources(  # `39 (17%)`; `-` is none
                    *(
                        0 if cell == "-" else whole((cell or "").split(" ")[0])
                        for cell in map(row.cells.get, ("bram", "dsp", "ff", "lut", "uram"))
                    )
                ),
                loops=nested(row.loops),
                instances=tuple(row.instances),
            )
            for row in rows
        ),
        clock_ns=real(parsed.header.get("Target clock")),
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
        if mark == "+":
            row = _Row(level, name.removesuffix("*"), cells.get("pipelined", ""), cells)
            if around:
                around[-1].instances.append(Instance("", row.name))
            around.append(row)
            modules.append(row)
        elif around:
            latency = cycles(cells.get("latency (cycles)"))
            around[-1].loops.append((level, _loop(cells, name.removesuffix("*"), around[-1].name, latency, "interval")))
        if issue not in ("-", "") and around:
            where = name.removesuffix("*") if mark == "o" else ""
            violations.append(Violation(_ISSUES.get(issue, issue), "", around[-1].name, where))
    return modules, violations
