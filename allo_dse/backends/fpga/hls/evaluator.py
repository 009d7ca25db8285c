"""Designs measured by the vendor's HLS tool: its report, and the cycles at the report's intervals and depths."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from allo_dse.common.errors import AlloDseError, SimulationError
from allo_dse.common.processes import exit_words, printable, run_tool, tail, within, workspace
from allo_dse.common.records import Frozen, replace
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.eval.evaluator import Metrics, versioned
from allo_dse.eval.golden_data import golden_data
from allo_dse.mapper.program import Program
from allo_dse.space.design import Design

from ..depths.front import decided_depths
from ..depths.solver import run
from ..evaluator import throughput
from ..mapping import FpgaMapping
from ..network import fpga_network
from ..operator_table import operators_in
from ..report.report import HlsReport, HlsReportError
from ..report.report_files import read_hls_report
from .design_project import hls_project
from .prediction import comparison
from .project import HlsProject
from .retime import Retiming, retimed, retiming

# The vendor's HLS tool: finding it, and running it with its children under a time limit.


LOG = "allo_dse_hls.log"


class HlsToolError(AlloDseError):
    """The HLS tool is missing, failed, took too long, or left no report."""


class Tool(Frozen):
    """An HLS tool: its program, and the command that runs a project's script.

    Attributes:
        arguments: before the steps.
        steps_in_environment: the script reads the steps from the variable STEPS, not from its arguments.
    """

    name: str
    arguments: tuple[str, ...]
    steps_in_environment: bool = False


TOOLS = (
    Tool("vitis_hls", ("-f", "run_hls.tcl")),
    Tool("vitis-run", ("--mode", "hls", "--tcl", "run_hls.tcl"), steps_in_environment=True),
)
"""Until 2024.1 the tool is `vitis_hls`; 2024.2 and later have `vitis-run`, which comes with `v++`."""


def find_tool() -> tuple[Tool, str] | None:
    """The first tool on PATH, with its path; `vitis-run` is also found beside a `v++`."""
    beside = shutil.which("v++")
    for tool in TOOLS:
        found = shutil.which(tool.name)
        if found is None and beside is not None:
            found = shutil.which(tool.name, path=str(Path(beside).resolve().parent))
        if found is not None:
            return tool, found
    return None


def unavailable() -> str | None:
    """Return why no HLS tool can be run here, and what to do; None if one can."""
    if find_tool() is not None:
        return None
    names = " or ".join(tool.name for tool in TOOLS)
    return f"no HLS tool on PATH ({names}): source settings64.sh of Vitis, or install it"


def run_steps(directory: Path, steps: Sequence[str], *, seconds: float) -> None:
    """Run steps ("csynth", "cosim") of a project; the tool's output goes to `allo_dse_hls.log` there.

    The tool is the head of a process group of its own, which is ended as a whole: at the limit, on an error here, and
    when the tool has ended but not all that it started.

    Raises:
        HlsToolError: if there is no tool, it fails, or it takes longer.
    """
    found = find_tool()
    if found is None:
        raise HlsToolError("there is no HLS tool here", hint=unavailable() or "")
    tool, program = found
    command = [program, *tool.arguments, *(() if tool.steps_in_environment else steps)]
    environment = {**os.environ, "STEPS": " ".join(steps)} if tool.steps_in_environment else dict(os.environ)
    start = time.monotonic()
    code = run_tool(command, directory, directory / LOG, environment, within(seconds))
    if isinstance(code, str):
        raise HlsToolError(
            f"{tool.name} {code} at {' and '.join(steps)}; it was ended with all its processes",
            hint=f"raise the evaluator's seconds, or see {directory / LOG}",
        )
    if code:
        took = f"after {time.monotonic() - start:.0f} s"
        lines = [line for line in tail(directory / LOG).splitlines() if line.strip()]
        errors = [line for line in lines if line.startswith(("ERROR", "FATAL"))]
        said = " / ".join(map(printable, (errors or lines)[-3:])) or "no message"
        raise HlsToolError(f"{tool.name} {exit_words(code)} {took}: {said}", hint=f"see {directory / LOG}")


_DONE = "allo_dse_done"
_MARGIN_S = 120.0


class HlsTool:
    """Writes a design's HLS project, runs synthesis, reads the report and times the design with it.

    Args:
        cosim: run RTL co-simulation too; its cycles are then the design's.
        seconds: time limit of the tool per design; at the limit the tool is ended with all that it started.
        directory: where projects are kept, in a directory per design, and found again; temporary ones by default.
        depths: "solve" for the smallest stream depths that cost no time, where the design does not say, as the
            simulator of FPGA designs does; "declared" for those of the program.
    """

    name = "hls"
    version = "1"
    resource = "vitis"
    isolate = True

    def __init__(
        self,
        *,
        cosim: bool = False,
        seconds: float = 3600,
        directory: str | Path | None = None,
        depths: Literal["solve", "declared"] = "solve",
    ) -> None:
        self.cosim, self.seconds, self.depths = cosim, seconds, depths
        self.version = versioned(self.version, cosim=cosim, declared=depths == "declared")
        self.directory = None if directory is None else Path(directory)

    @property
    def deadline_s(self) -> float:
        """Time limit of one design: the tool's limit, and a margin to write, read and simulate."""
        return self.seconds + _MARGIN_S

    def unavailable(self) -> str | None:
        """Return why designs cannot be measured here, and what to do; None if they can."""
        return unavailable()

    def evaluate(self, design: Design) -> Metrics:
        """Metrics of one design.

        `latency_cycles` are the simulator's at the report's intervals and depths, or those of co-simulation;
        `cycles_from` says which. `report_latency_cycles` is what the report itself claims.

        Raises:
            HlsToolError: if the tool is missing, fails, takes too long, or leaves no usable report.
            SimulationError: if the design deadlocks.
        """
        depths = decided_depths(FpgaMapping.of(design), self.depths)
        mapping = replace(FpgaMapping.of(design), depths=depths)
        project = hls_project(design, depths)
        with workspace(self.directory, f"{design.key}{'-cosim' if self.cosim else ''}") as path:
            report = self._report(design.program, project, path)
        return _metrics(design, mapping, project, report)

    def _report(self, program: Program, project: HlsProject, path: Path) -> HlsReport:
        """The report of a project, made now or in an earlier run."""
        digest = hashlib.sha256(json.dumps(dict(project.files), sort_keys=True).encode()).hexdigest()
        done = path / _DONE
        if not done.exists() or done.read_text() != digest:
            done.unlink(missing_ok=True)
            shutil.rmtree(path / "hls", ignore_errors=True)
            replace(project, data=golden_data(program) if self.cosim else {}).write(path)
            run_steps(path, ["csynth", "cosim"] if self.cosim else ["csynth"], seconds=self.seconds)
        try:
            report = read_hls_report(path / "hls" if (path / "hls").is_dir() else path)
        except HlsReportError as error:
            raise HlsToolError(f"the HLS tool left no usable report: {error.message}", hint=error.hint) from error
        if not report.modules:
            raise HlsToolError("the HLS tool left no synthesis report", hint=f"see {path}")
        if self.cosim and (report.cosim is None or not report.cosim.passed):
            outcome = "was not run" if report.cosim is None else "failed"
            raise HlsToolError(f"RTL co-simulation of {report.top} {outcome}", hint="see the tool's log")
        done.write_text(digest)
        return report


def _metrics(design: Design, mapping: FpgaMapping, project: HlsProject, report: HlsReport) -> Metrics:
    found, device = retiming(design.program, project, report), mapping.device
    cycles, source = _cycles(mapping, found, report)
    clock_ns = report.clock_ns if report.clock_ns is not None else 1.0 / device.clock_ghz
    return Metrics(
        latency_cycles=cycles,
        latency_us=cycles * clock_ns * 1e-3,
        **throughput(mapping, cycles * clock_ns * 1e-3),
        cycles_from=source,
        report_latency_cycles=report.latency.max,
        interval_cycles=report.interval.max,
        clock_ns=clock_ns,
        estimated_clock_ns=report.estimated_ns,
        pe_count=design.vmg.node_count,
        **_resources(report, device),
        loops_matched=found.matched,
        loops_unmatched=list(found.unmatched),
        report_times=found.to_dict(),
        predicted_reported=comparison(mapping, project, report, found.timings),
        operators=[reading.to_dict() for reading in operators_in(report, design.key)],
        ii_violations=[str(violation) for violation in report.ii_violations],
        stream_depths=dict(mapping.depths or {}),
        hls_tool=report.tool,
        evaluator=f"{HlsTool.name} {HlsTool.version}",
    )


def _resources(report: HlsReport, device: FpgaDevice) -> dict[str, int | float | str]:
    """Return the reported resources, their shares of the device, and the binding one if all are reported."""
    stated = {name: getattr(report.resources, name) for name in RESOURCES}
    used = {name: value or 0 for name, value in stated.items() if value is not None or not device.limit(name)}
    shares = {name: value / device.limit(name) for name, value in used.items() if device.limit(name)}
    found = {**used, **{f"{name}_utilization": round(share, 4) for name, share in shares.items()}}
    if used.keys() < stated.keys() or not shares:
        return found
    binding = max(shares, key=lambda name: shares[name])
    return {"utilization": round(shares[binding], 4), **found, "binding": binding}


def _cycles(mapping: FpgaMapping, found: Retiming, report: HlsReport) -> tuple[int, str]:
    """Return the design's cycles and their source."""
    cosim = report.cosim
    if cosim is not None and cosim.passed and cosim.latency.max is not None:
        return cosim.latency.max, "co-simulation"
    mapping, depths = retimed(mapping, found), mapping.depths or {}
    try:
        fpga_network(mapping, depths)
    except SimulationError as error:  # control that depends on data has no static times
        if report.latency.max is None:
            raise
        return report.latency.max, f"report alone: {error.message}"
    _, result = run(mapping, depths)
    return int(result.cycles), "simulator, at the report's intervals and depths"


HlsEvaluator = HlsTool
"""The name that `HlsTool` had."""
