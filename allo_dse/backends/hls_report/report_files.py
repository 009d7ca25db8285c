"""Reports from a path: one file, or all files of a project put together."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .operators import merged_operators
from .parts import Cosim, Cycles, HlsFifo, HlsLoop, HlsReportError, Module, first_known
from .printed_numbers import whole
from .report import HlsReport
from .summary_report import read_summary_report
from .text_report import read_text_report
from .text_tables import parse_text
from .xml_report import read_xml_report

_OUTCOME = {"pass": True, "fail": False}

_TITLE = re.compile(r"^\s*== (?:\w+ HLS|Synthesis Summary) Report (?:for|of)", re.MULTILINE)


def read_hls_report(path: str | Path) -> HlsReport:
    """Read what an HLS tool (Vivado HLS 2018.3 to Vitis HLS 2025) reported about a design.

    Args:
        path: a `csynth.xml`, `csynth.rpt`, `*_csynth.rpt` or `*_cosim.rpt`, or a directory (a project, a solution or a
            report directory), whose reports are put together.

    Raises:
        HlsReportError: if there is no report, or a file is damaged, truncated or something else.
    """
    path = Path(path)
    if path.is_dir():
        return _read_project(path)
    try:
        data = path.read_bytes()
    except OSError as error:
        raise HlsReportError(f"{path}: {error.strerror}", hint="give csynth.xml or the project's directory") from None
    return _read_file(path, data)


def _read_file(path: Path, data: bytes) -> HlsReport:
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<"):
        return read_xml_report(path, data)
    text = data.decode("utf-8", errors="replace")
    title = _TITLE.search(text)
    if title is None:
        return read_cosim_report(path, text)
    return read_summary_report(path, text) if "Summary" in title.group() else read_text_report(path, text)


def _read_project(path: Path) -> HlsReport:
    """The synthesis of the one solution below a directory, with details of text reports and its co-simulation."""
    syntheses = _files(path, "csynth.xml") or _files(path, "csynth.rpt")
    if len(syntheses) > 1:
        raise HlsReportError(
            f"{path} has {len(syntheses)} designs: {', '.join(str(f.relative_to(path)) for f in syntheses)}",
            hint="give the directory of one solution",
        )
    modules = [_read(file) for file in _files(path, "*_csynth.rpt") or _files(path, "*_csynth.xml")]
    cosims = [_read(file) for file in _files(path, "*_cosim.rpt")]
    if syntheses:
        report = _with_details(_read(syntheses[0]), modules)
    elif modules:
        report = _with_details(_top_of(path, modules), modules)
    elif cosims:
        report = cosims[0]
    else:
        raise HlsReportError(f"{path}: has no HLS reports", hint="run csynth first; they are in SOLUTION/syn/report")
    fitting = [c for c in cosims if c.top == report.top] or cosims
    return replace(
        report,
        cosims=tuple(cosim for found in fitting for cosim in found.cosims),
        files=tuple(dict.fromkeys(name for part in (report, *modules, *fitting) for name in part.files)),
    )


def _read(path: Path) -> HlsReport:
    return _read_file(path, path.read_bytes())


def _files(path: Path, pattern: str) -> list[Path]:
    """Files below a directory, without the tool's own working copies."""
    return sorted(
        f
        for f in path.rglob(pattern)
        if f.is_file() and not any(part.startswith(".") for part in f.relative_to(path).parts)
    )


def _top_of(path: Path, reports: list[HlsReport]) -> HlsReport:
    """The report of the module that no other one has an instance of."""
    inside = {instance.module for report in reports for module in report.modules for instance in module.instances}
    tops = [report for report in reports if report.top not in inside]
    if len(tops) != 1:
        names = ", ".join(report.top for report in tops) or "none"
        raise HlsReportError(f"{path}: cannot tell the top function ({names})", hint="give one solution's csynth.xml")
    return tops[0]


def _with_details(report: HlsReport, details: Sequence[HlsReport]) -> HlsReport:
    """A report with what other reports of its modules know beyond it."""
    modules = {module.name: module for module in report.modules}
    fifos = {(fifo.module, fifo.name): fifo for detail in details for fifo in detail.fifos}
    for detail in details:
        for module in detail.modules:
            known = modules.get(module.name)
            modules[module.name] = module if known is None else _merged_module(known, module)
    own = next((detail for detail in details if detail.top == report.top), report)
    return replace(
        report,
        clock_ns=report.clock_ns or own.clock_ns,
        uncertainty_ns=report.uncertainty_ns or own.uncertainty_ns,
        estimated_ns=report.estimated_ns or own.estimated_ns,
        modules=tuple(modules.values()),
        fifos=tuple(_merged_fifo(fifo, fifos) for fifo in report.fifos) or tuple(fifos.values()),
        operators=merged_operators(report.operators, (one for detail in details for one in detail.operators)),
        available=report.available if report.available.lut is not None else own.available,
    )


def _merged_module(known: Module, other: Module) -> Module:
    return replace(
        known,
        estimated_ns=known.estimated_ns or other.estimated_ns,
        loops=_merged_loops(known.loops, other.loops) if known.loops else other.loops,
        instances=other.instances or known.instances,
    )


def _merged_loops(known: tuple[HlsLoop, ...], others: tuple[HlsLoop, ...]) -> tuple[HlsLoop, ...]:
    """Loops in the same order in both reports; where the reports differ the first one holds."""
    if [loop.name for loop in known] != [loop.name for loop in others]:
        return known
    return tuple(
        replace(
            loop,
            ii=first_known(loop.ii, other.ii),
            ii_target=other.ii_target,
            depth=first_known(loop.depth, other.depth),
            loops=_merged_loops(loop.loops, other.loops),
        )
        for loop, other in zip(known, others, strict=True)
    )


def _merged_fifo(known: HlsFifo, others: Mapping[tuple[str, str], HlsFifo]) -> HlsFifo:
    """Complete a FIFO from XML with the width, depth and registers that only text reports have."""
    names = (known.name, known.name.removesuffix("_U"))
    other = next((others[known.module, name] for name in names if (known.module, name) in others), known)
    return replace(
        known,
        width=first_known(known.width, other.width),
        depth=first_known(known.depth, other.depth),
        resources=known.resources.filled(other.resources),
    )


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
    raise HlsReportError(
        f"{path}: no report of an HLS tool, or truncated", hint="give csynth.xml, *_csynth.rpt or *_cosim.rpt"
    )


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
