"""Reports from a path: one file, or all files of a project put together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from xml.etree.ElementTree import Element, ParseError

from defusedxml import DefusedXmlException
from defusedxml.ElementTree import iterparse

from .report import (
    Cosim,
    Cycles,
    HlsFifo,
    HlsLoop,
    HlsReport,
    HlsReportError,
    Implementation,
    Instance,
    Module,
    Resources,
    Violation,
    completed,
)
from .text_report import amounts_of, bound_operators, merged_operators, read_summary_report, read_text_report
from .text_tables import cycles, parse_text, real, whole

# `csynth.xml` of Vivado HLS 2018.3 to Vitis HLS 2025.
#
# Until 2019 the file has the top function only; later ones list all modules, and FIFOs since 2020. Loops are elements
# named after themselves, so the same name may occur many times.
#
# A report needs neither a document type nor entities: defusedxml rejects both. It does not limit nesting, on which
# loops are read by recursion.


DEEPEST = 200


def read_tree(path: Path, data: bytes) -> Element:
    """Return the root element of an XML document.

    Raises:
        HlsReportError: if it is damaged, truncated, too deeply nested, or has a document type.
    """
    level = 0
    events = iterparse(BytesIO(data), ("start", "end"), forbid_dtd=True)
    try:
        for event, _ in events:
            level += 1 if event == "start" else -1
            if level > DEEPEST:
                raise HlsReportError(f"{path}: elements nested more than {DEEPEST} deep", hint="not an HLS report")
    except DefusedXmlException:
        raise HlsReportError(f"{path}: has a document type or entities", hint="an HLS report has neither") from None
    except (ParseError, LookupError, ValueError) as error:  # the latter two: an encoding that does not exist
        raise HlsReportError(
            f"{path}: damaged or truncated: {error}", hint="run csynth again, or copy the report once more"
        ) from None
    root: Element = events.root
    return root


def text(element: Element | None, path: str) -> str:
    """Stripped text of a descendant; empty when there is none."""
    found = element.find(path) if element is not None else None
    return (found.text or "").strip() if found is not None else ""


_OVERALL = "SummaryOfOverallLatency"
_LOOP_FIELDS = frozenset({"TripCount", "Latency", "PipelineDepth", "PipelineII", "IterationLatency"})
_NO_VIOLATION = ("", "-")


def read_xml_report(path: Path, data: bytes) -> HlsReport:
    """The report of a `csynth.xml`.

    Raises:
        HlsReportError: if the file is damaged, truncated or something else.
    """
    root = read_tree(path, data)
    if root.find("AreaReport") is not None:
        return HlsReport(files=(str(path),), implementations=(read_implementation(path, root),))
    user = root.find("UserAssignments")
    if root.tag != "profile" or user is None:
        raise HlsReportError(f"{path}: not an HLS synthesis report (its root is <{root.tag}>)", hint="give csynth.xml")
    top = text(user, "TopModelName")
    instances = _instances(root)
    modules, violations = [], []
    for element in root.iterfind("ModuleInformation/Module"):
        name = text(element, "Name")
        found = _violations(element.find("PerformanceEstimates/SummaryOfViolations"), name)
        violations += [v for v in found if v.kind not in _NO_VIOLATION]
        sources = {v.loop: v.source for v in found if v.loop}
        modules.append(_module(element, name, sources, instances.get(name, ())))
    if not modules:  # before 2020: the top function is all there is
        modules.append(_module(root, top, {}, instances.get(top, ())))
    fifos, tool_fifos = _fifos(root)
    performance = root.find("PerformanceEstimates")
    notes = () if root.find("ModuleInformation") is not None else ("the report has no modules but the top function",)
    return HlsReport(
        files=(str(path),),
        tool=text(root, "ReportVersion/Version"),
        top=top,
        part=text(user, "Part"),
        family=text(user, "ProductFamily"),
        clock_ns=real(text(user, "TargetClockPeriod")),
        uncertainty_ns=real(text(user, "ClockUncertainty")),
        estimated_ns=real(text(performance, "SummaryOfTimingAnalysis/EstimatedClockPeriod")),
        kind=text(performance, "PipelineType"),
        latency=_latency(performance),
        interval=_range(performance, f"{_OVERALL}/Interval-"),
        resources=_resources(root.find("AreaEstimates/Resources")),
        available=_resources(root.find("AreaEstimates/AvailableResources")),
        modules=tuple(modules),
        fifos=fifos,
        operators=tuple(bound_operators(_nodes(root))),
        tool_fifos=tool_fifos,
        violations=tuple(violations),
        notes=notes,
    )


def _module(element: Element, name: str, sources: dict[str, str], instances: tuple[Instance, ...]) -> Module:
    performance = element.find("PerformanceEstimates")
    loops = performance.find("SummaryOfLoopLatency") if performance is not None else None
    interval = cycles(text(performance, f"{_OVERALL}/PipelineInitiationInterval"))
    return Module(
        name=name,
        kind=text(performance, f"{_OVERALL}/PipelineType") or text(performance, "PipelineType"),
        latency=_latency(performance),
        interval=interval if interval.known else _range(performance, f"{_OVERALL}/Interval-"),
        estimated_ns=real(text(performance, "SummaryOfTimingAnalysis/EstimatedClockPeriod")),
        resources=_resources(element.find("AreaEstimates/Resources")),
        loops=_loops(loops, name, sources),
        instances=instances,
    )


def _loops(parent: Element | None, module: str, sources: dict[str, str]) -> tuple[HlsLoop, ...]:
    """Loops directly below an element: those of its children that have a loop's fields."""
    loops = []
    for element in parent if parent is not None else ():
        if element.tag in _LOOP_FIELDS or not any(child.tag in _LOOP_FIELDS for child in element):
            continue
        name, bounds = text(element, "Name") or element.tag, _range(element, "TripCount/range/")
        ii, depth = whole(text(element, "PipelineII")), whole(text(element, "PipelineDepth"))
        loops.append(
            HlsLoop(
                name=name,
                module=module,
                trip_count=cycles(text(element, "TripCount")) if bounds == Cycles() else bounds,
                latency=cycles(text(element, "Latency")),
                ii=ii,
                depth=depth if depth is not None else whole(text(element, "IterationLatency")),
                # reports before 2020 do not say which loops are pipelined, but only those have an interval
                kind=text(element, "PipelineType") or ("no" if ii is None else "yes"),
                source=sources.get(name, ""),
                loops=_loops(element, module, sources),
            )
        )
    return tuple(loops)


def _range(element: Element | None, path: str) -> Cycles:
    """Return the numbers of the two elements whose paths end with `min` and `max`."""
    return Cycles(min=whole(text(element, f"{path}min")), max=whole(text(element, f"{path}max")))


def _latency(performance: Element | None) -> Cycles:
    cases = ("Best", "Average", "Worst")
    return Cycles(*(whole(text(performance, f"{_OVERALL}/{case}-caseLatency")) for case in cases))


def _resources(element: Element | None) -> Resources:
    return amounts_of({child.tag.lower(): text(child, ".") for child in element} if element is not None else {})


def _violations(element: Element | None, module: str) -> list[Violation]:
    """Return the report's notes on violations of a module and its loops, kept or not."""
    every = [] if element is None else [element, *element.iterfind("SummaryOfLoopViolations/*")]
    return [
        Violation(
            kind=text(one, "IssueType"),
            reason=text(one, "ViolationType").removeprefix("-"),
            module=module,
            loop="" if one is element else text(one, "Name") or one.tag,
            distance=whole(text(one, "IterationDistance")),
            source=text(one, "SourceLocation"),
        )
        for one in every
    ]


def _instances(root: Element) -> dict[str, tuple[Instance, ...]]:
    """Instances in each module, by the module's name."""
    found: dict[str, tuple[Instance, ...]] = {}
    for parent in root.iterfind("RTLDesignHierarchy/TopModule"):
        pending = [parent]
        while pending:
            element = pending.pop()
            below = element.findall("InstancesList/Instance")
            pending += below
            if below:
                inside = tuple(Instance(text(b, "InstName"), text(b, "ModuleName")) for b in below)
                found.setdefault(text(element, "ModuleName"), inside)
    return found


def _fifos(root: Element) -> tuple[tuple[HlsFifo, ...], tuple[HlsFifo, ...]]:
    """The design's FIFOs, with what the storage table says about them, and those that only that table has."""
    parents = {instance.name: instance.module for inside in _instances(root).values() for instance in inside}
    top = text(root, "UserAssignments/TopModelName")
    storage = {
        (name, node.get("RTLNAME", "")): node
        for name, node in _nodes(root)
        if node.get("BINDTYPE") == "storage" and node.get("OPTYPE") == "fifo"
    }
    fifos, designed = [], set()
    for element in root.iterfind("FIFOInformation/FIFOInst"):
        name, parent = text(element, "Name"), text(element, "ParentInst")
        module = parents.get(parent.rsplit("/", 1)[-1], parent) if parent else top
        designed.add((module, name))
        fifos.append(_fifo(name, module, whole(text(element, "StaticDepth")), storage.get((module, name))))
    own = [(*place, None, node) for place, node in storage.items() if place not in designed]
    return tuple(fifos), tuple(_fifo(name, module, depth, node) for module, name, depth, node in own)


def _fifo(name: str, module: str, depth: int | None, node: dict[str, str] | None) -> HlsFifo:
    node = node or {}
    size = node.get("STORAGESIZE", "").split()
    return HlsFifo(
        name=name,
        module=module,
        depth=depth if depth is not None else whole(size[1] if len(size) > 1 else ""),
        width=whole(size[0] if size else ""),
        implementation=node.get("IMPL", ""),
        resources=Resources(bram18=whole(node.get("BRAM")), uram=whole(node.get("URAM"))),
        source=node.get("SOURCE", "").removeprefix(":0"),
    )


def _nodes(root: Element) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield what modules bind, by the module's name."""
    for module in root.iterfind("ModuleInformation/Module"):
        yield from ((text(module, "Name"), dict(node.attrib)) for node in module.iterfind("BindNodes/BindNode"))


_OUTCOME = {"pass": True, "fail": False}

_TITLE = re.compile(r"^\s*== (?:\w+ HLS|Synthesis Summary) Report (?:for|of)", re.MULTILINE)


def read_hls_report(path: str | Path) -> HlsReport:
    """Read what an HLS tool (Vivado HLS 2018.3 to Vitis HLS 2025) reported about a design.

    Args:
        path: a `csynth.xml`, `csynth.rpt`, `*_csynth.rpt`, `*_cosim.rpt`, `*_export.xml`, `export_*.xml` or
            `*_utilization_*.rpt`, or a directory (a project, a solution or a report directory), whose reports are put
            together.

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
    if UTILIZATION.search(text):
        return HlsReport(files=(str(path),), implementations=(read_utilization(path, text),))
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
    exports = [_read(f) for p in ("*_export.xml", "export_*.xml", "*_utilization_*.rpt") for f in _files(path, p)]
    if syntheses:
        report = _with_details(_read(syntheses[0]), modules)
    elif modules:
        report = _with_details(_top_of(path, modules), modules)
    elif cosims or exports:
        report = (*cosims, *exports)[0]
    else:
        raise HlsReportError(f"{path}: has no HLS reports", hint="run csynth first; they are in SOLUTION/syn/report")
    fitting = [c for c in cosims if c.top == report.top] or cosims
    return replace(
        report,
        cosims=tuple(cosim for found in fitting for cosim in found.cosims),
        implementations=tuple(dict.fromkeys(one for found in exports for one in found.implementations)),
        files=tuple(dict.fromkeys(name for part in (report, *modules, *fitting, *exports) for name in part.files)),
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
    """Return a report, completed from other reports of its modules."""
    modules = {module.name: module for module in report.modules}
    fifos = {(fifo.module, fifo.name): fifo for detail in details for fifo in detail.fifos}
    for detail in details:
        for module in detail.modules:
            known = modules.get(module.name)
            modules[module.name] = (
                module
                if known is None
                else replace(
                    completed(known, module, "estimated_ns"),
                    loops=_merged_loops(known.loops, module.loops) if known.loops else module.loops,
                    instances=module.instances or known.instances,
                )
            )
    own = next((detail for detail in details if detail.top == report.top), report)
    return replace(
        completed(report, own, "clock_ns", "uncertainty_ns", "estimated_ns"),
        modules=tuple(modules.values()),
        fifos=tuple(_merged_fifo(fifo, fifos) for fifo in report.fifos) or tuple(fifos.values()),
        operators=merged_operators(report.operators, (one for detail in details for one in detail.operators)),
        available=report.available if report.available.lut is not None else own.available,
    )


def _merged_loops(known: tuple[HlsLoop, ...], others: tuple[HlsLoop, ...]) -> tuple[HlsLoop, ...]:
    """Merge loops of two reports in the same order; the first report takes precedence."""
    if [loop.name for loop in known] != [loop.name for loop in others]:
        return known
    return tuple(
        replace(
            completed(loop, other, "ii", "depth"),
            ii_target=other.ii_target,
            loops=_merged_loops(loop.loops, other.loops),
        )
        for loop, other in zip(known, others, strict=True)
    )


def _merged_fifo(known: HlsFifo, others: Mapping[tuple[str, str], HlsFifo]) -> HlsFifo:
    """Complete a FIFO from XML with the width, depth and registers that only text reports have."""
    names = (known.name, known.name.removesuffix("_U"))
    other = next((others[known.module, name] for name in names if (known.module, name) in others), known)
    return replace(completed(known, other, "width", "depth"), resources=known.resources.filled(other.resources))


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
    return Cycles(*(whole(cells.get(case)) for case in ("min", "avg", "max")))


# Reports of place and route: `*_export.xml`, `export_impl.xml`, `*_utilization_*.rpt`.

_XML = {"bram18": "BRAM", "dsp": "DSP", "ff": "FF", "lut": "LUT", "uram": "URAM"}
_ROWS = {
    "bram18": r"Block RAM Tile",
    "dsp": r"DSPs|DSP Slices",
    "ff": r"(?:CLB|Slice) Registers|Registers",
    "lut": r"(?:CLB|Slice) LUTs\*?|LUTs",
    "uram": r"URAM",
}
_TILE = 2  # blocks of 18 Kbit in a tile
UTILIZATION = re.compile(r"^\s*\|?\s*Utilization Design Information|\|\s*Site Type\s*\|\s*Used\s*\|", re.MULTILINE)
"""Found in text reports of used resources."""


def read_implementation(path: Path, root: Element) -> Implementation:
    """Return the content of an XML report, by its root element.

    Raises:
        HlsReportError: if resources or timing are missing.
    """
    area, timing = root.find("AreaReport"), root.find("TimingReport")
    if area is None or timing is None:
        raise HlsReportError(f"{path}: no report of place and route", hint="run export_design -flow impl once more")
    achieved, target = (real(text(timing, f"{whose}ClockPeriod")) for whose in ("Achieved", "Target"))
    met = {"TRUE": True, "FALSE": False}.get(text(timing, "TIMING_MET").upper())
    if met is None and achieved is not None and target is not None:
        met = achieved <= target
    kind = text(root, "RunData/RUN_TYPE") or ("synth" if "synth" in path.stem else "impl")
    return Implementation(
        kind, _amounts(area, "Resources"), _amounts(area, "AvailableResources"), target, achieved, met
    )


def _amounts(area: Element, table: str) -> Resources:
    return Resources(**{name: whole(text(area, f"{table}/{tag}")) for name, tag in _XML.items()})


def read_utilization(path: Path, text: str) -> Implementation:
    """Return the content of a text report of used resources.

    Raises:
        HlsReportError: if it has none.
    """
    used: dict[str, int | None] = {}
    available: dict[str, int | None] = {}
    for name, label in _ROWS.items():
        row = re.search(rf"^\|\s*(?:{label})\s*\|(.*)\|\s*$", text, re.MULTILINE)
        cells = [cell.strip() for cell in row.group(1).split("|")] if row else []
        if len(cells) > 2:  # used, ..., available, share
            factor = _TILE if name == "bram18" else 1
            amounts = (real(cells[0]), real(cells[-2]))
            used[name], available[name] = (None if n is None else round(n * factor) for n in amounts)
    if not used:
        raise HlsReportError(f"{path}: no used resources, or truncated", hint="copy the report once more")
    kind = "impl" if re.search(r"placed|routed", path.stem) else "synth"
    return Implementation(kind, Resources(**used), Resources(**available))
