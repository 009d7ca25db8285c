"""`<module>_csynth.rpt`: the text report of one module, with the target intervals that XML lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from .operators import named_operator
from .parts import Cycles, HlsFifo, HlsLoop, HlsOperator, HlsReportError, Instance, Module, Resources
from .printed_numbers import cycles, real, whole
from .report import HlsReport
from .text_tables import TextReport, parse_text

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
    latency, interval, kind = _overall(parsed)
    clock = next(_records(parsed, "Performance Estimates", "Timing", "Summary"), {})
    resources = _total(parsed, "total")
    module = Module(
        name=name,
        kind=kind,
        latency=latency,
        interval=interval,
        estimated_ns=real(clock.get("estimated")),
        resources=resources,
        loops=_loops(parsed, name),
        instances=_instances(parsed),
    )
    return HlsReport(
        files=(str(path),),
        tool=parsed.header.get("Version", "").split(" ")[0],
        top=name,
        part=parsed.header.get("Target device", ""),
        family=parsed.header.get("Product family", ""),
        clock_ns=real(clock.get("target")),
        uncertainty_ns=real(clock.get("uncertainty")),
        estimated_ns=module.estimated_ns,
        kind=kind,
        latency=latency,
        interval=interval,
        resources=resources,
        available=_total(parsed, "available"),
        modules=(module,),
        fifos=_fifos(parsed, name),
        operators=tuple(_operators(parsed, name)),
    )


def _records(parsed: TextReport, *headings: str) -> Iterator[dict[str, str]]:
    table = parsed.table(*headings)
    return iter(()) if table is None else table.records()


def _overall(parsed: TextReport) -> tuple[Cycles, Cycles, str]:
    row = next(_records(parsed, "Performance Estimates", "Latency", "Summary"), {})
    return _between(row, "latency (cycles)", "latency"), _between(row, "interval"), row.get("pipeline type", "")


def _between(row: dict[str, str], *names: str) -> Cycles:
    """A range whose columns are called `NAME min` and `NAME max`; reports before 2020 say `latency` only."""
    for name in names:
        if f"{name} min" in row:
            return Cycles(min=whole(row[f"{name} min"]), max=whole(row.get(f"{name} max")))
    return Cycles()


def _total(parsed: TextReport, name: str) -> Resources:
    for row in _records(parsed, "Utilization Estimates", "Summary"):
        if row.get("name", "").strip().lower() == name:
            return _resources(row)
    return Resources()


def _resources(row: dict[str, str]) -> Resources:
    return Resources(
        bram18=whole(row.get("bram_18k")),
        dsp=whole(row.get("dsp", row.get("dsp48e"))),
        ff=whole(row.get("ff")),
        lut=whole(row.get("lut")),
        uram=whole(row.get("uram")),
    )


def _instances(parsed: TextReport) -> tuple[Instance, ...]:
    return tuple(
        Instance(row["instance"].strip(), row["module"])
        for row in _records(parsed, "Performance Estimates", "Latency", "Detail", "Instance")
        if row.get("instance") and row.get("module")
    )


def _loops(parsed: TextReport, module: str) -> tuple[HlsLoop, ...]:
    """Loops as a tree: the names of inner ones begin with one `+` more than those around them."""
    rows = []
    for row in _records(parsed, "Performance Estimates", "Latency", "Detail", "Loop"):
        mark = row.get("loop name", "").strip()
        name = mark.lstrip("-+ ")
        if not name:
            continue
        level = len(mark) - len(mark.lstrip("+")) if mark.startswith("+") else 0
        rows.append((level, _loop(row, name, module)))
    return nested(rows)


def _loop(row: dict[str, str], name: str, module: str) -> HlsLoop:
    trip = cycles(row.get("trip count"))
    return HlsLoop(
        name=name,
        module=module,
        trip_count=trip,
        latency=_between(row, "latency (cycles)", "latency"),
        ii=whole(row.get("initiation interval achieved")),
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
        end = at + 1
        while end < len(rows) and rows[end][0] > level:
            end += 1
        outer.append(_with_loops(loop, nested(rows[at + 1 : end])))
        at = end
    return tuple(outer)


def _with_loops(loop: HlsLoop, loops: tuple[HlsLoop, ...]) -> HlsLoop:
    return replace(loop, loops=loops) if loops else loop


def _fifos(parsed: TextReport, module: str) -> tuple[HlsFifo, ...]:
    return tuple(
        HlsFifo(
            name=row["name"].strip(),
            module=module,
            depth=whole(row.get("depth")),
            width=whole(row.get("bits")),
            resources=_resources(row),
        )
        for row in _records(parsed, "Utilization Estimates", "Detail", "FIFO")
        if row.get("name", "").strip() and row["name"].strip() != "Total"
    )


def _operators(parsed: TextReport, module: str) -> Iterator[HlsOperator]:
    for row in _records(parsed, "Utilization Estimates", "Detail", "Instance"):
        name, rtl_module = row.get("instance", "").strip(), row.get("module", "")
        found = named_operator(name, rtl_module, module, _resources(row))
        if found is not None:
            yield found
