"""A stand-in for the HLS tool: an executable that replays a report, and behaves as badly as asked.

It takes the place of `vitis_hls` on PATH, is started in a project's directory and writes `hls/solution1/syn/report`.
"""

from __future__ import annotations

import stat
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

Loops = Mapping[str, Sequence[tuple[str, int, int, int]]]
"""Per module its pipelined loops: name, trips, II, depth."""

_SCRIPT = """\
#!{python}
import os, pathlib, shutil, subprocess, sys, time
mode, reports = {mode!r}, pathlib.Path({reports!r})
steps = [a for a in sys.argv if a in ("csynth", "cosim")] or os.environ.get("STEPS", "").split()
assert pathlib.Path("run_hls.tcl").exists() and pathlib.Path("kernel.cpp").exists()
print("INFO: [HLS 200-10] stand-in:", *steps, flush=True)
with open(reports / "calls", "a") as calls:
    print(os.getcwd(), *steps, file=calls)
if mode == "hang":
    stubborn = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(600)"
    child = subprocess.Popen([sys.executable, "-c", stubborn])
    (reports / "child").write_text(str(child.pid))
    time.sleep(600)
if mode == "leave":
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    (reports / "child").write_text(str(child.pid))
if mode == "crash":
    print("ERROR: [HLS 207-3771] use of undeclared identifier 'x'")
    sys.exit(1)
if mode == "abort":
    os.abort()
if mode == "slow":
    time.sleep(0.5)
if mode == "flood":
    for _ in range(2000):
        sys.stdout.buffer.write(os.urandom(1000))
out = pathlib.Path("hls/solution1/syn/report")
out.mkdir(parents=True)
text = (reports / "csynth.xml").read_bytes()
if mode == "truncated":
    text = text[: len(text) // 2]
if mode == "garbage":
    text = os.urandom(5000)
if mode != "nothing":
    (out / "csynth.xml").write_bytes(text)
if "cosim" in steps:
    sim = pathlib.Path("hls/solution1/sim/report")
    sim.mkdir(parents=True)
    shutil.copy(reports / "top_cosim.rpt", sim / "top_cosim.rpt")
"""


def install(directory: Path, mode: str = "ok", *, name: str = "vitis_hls") -> Path:
    """Put the stand-in into a directory, which is to be on PATH and to have the report; returns the file."""
    path = directory / name
    path.write_text(_SCRIPT.format(python=sys.executable, mode=mode, reports=str(directory)))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def calls(directory: Path) -> int:
    """How often the stand-in was started."""
    file = directory / "calls"
    return len(file.read_text().splitlines()) if file.exists() else 0


def ends(pid: int) -> bool:
    """Whether a process ends, or waits only to be reaped, in the minutes that a busy machine may take to kill it."""
    stat_file = Path(f"/proc/{pid}/stat")
    for _ in range(3000):
        try:
            if stat_file.read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (FileNotFoundError, ProcessLookupError):
            return True
        time.sleep(0.1)
    return False


def report_xml(
    top: str,
    loops: Loops,
    *,
    latency: int,
    dsp: int = 3,
    copies: Mapping[str, int] | None = None,
    units: Sequence[tuple[str, str, int, int]] = (),
) -> str:
    """A synthesis report as the tool writes it, with what tests need.

    Args:
        copies: cycles of processes that load or store tensors, by name.
        units: operators: operation, implementation, latency and DSPs.
    """
    modules = "".join(_module(name, found) for name, found in loops.items())
    modules += "".join(
        f"<Module><Name>{name}</Name><PerformanceEstimates><SummaryOfOverallLatency><Worst-caseLatency>{cycles}"
        "</Worst-caseLatency></SummaryOfOverallLatency></PerformanceEstimates></Module>"
        for name, cycles in (copies or {}).items()
    )
    bound = "".join(
        f'<BindNode BINDTYPE="op" OPTYPE="{operation}" IMPL="{impl}" LATENCY="{cycles}" DSP="{dsps}" RTLNAME="U{n}"/>'
        for n, (operation, impl, cycles, dsps) in enumerate(units)
    )
    return f"""<?xml version="1.0"?>
<profile>
  <ReportVersion><Version>2023.2</Version></ReportVersion>
  <UserAssignments>
    <ProductFamily>virtexuplusHBM</ProductFamily><Part>xcu280-fsvh2892-2L-e</Part>
    <TopModelName>{top}</TopModelName><TargetClockPeriod>3.33</TargetClockPeriod>
  </UserAssignments>
  <PerformanceEstimates>
    <PipelineType>dataflow</PipelineType>
    <SummaryOfTimingAnalysis><EstimatedClockPeriod>2.43</EstimatedClockPeriod></SummaryOfTimingAnalysis>
    <SummaryOfOverallLatency>
      <Best-caseLatency>{latency}</Best-caseLatency><Average-caseLatency>{latency}</Average-caseLatency>
      <Worst-caseLatency>{latency}</Worst-caseLatency>
      <Interval-min>{latency}</Interval-min><Interval-max>{latency}</Interval-max>
    </SummaryOfOverallLatency>
  </PerformanceEstimates>
  <AreaEstimates>
    <Resources><BRAM_18K>4</BRAM_18K><DSP>{dsp}</DSP><FF>900</FF><LUT>1200</LUT><URAM>0</URAM></Resources>
    <AvailableResources>
      <BRAM_18K>4032</BRAM_18K><DSP>9024</DSP><FF>2607360</FF><LUT>1303680</LUT><URAM>960</URAM>
    </AvailableResources>
  </AreaEstimates>
  <ModuleInformation>{modules}<Module><Name>{top}</Name><BindNodes>{bound}</BindNodes></Module></ModuleInformation>
</profile>
"""


def _module(name: str, loops: Sequence[tuple[str, int, int, int]]) -> str:
    rows = "".join(
        f"<{loop}><Name>{loop}</Name><TripCount>{trips}</TripCount><Latency>{(trips - 1) * ii + depth}</Latency>"
        f"<PipelineII>{ii}</PipelineII><PipelineDepth>{depth}</PipelineDepth><PipelineType>yes</PipelineType></{loop}>"
        for loop, trips, ii, depth in loops
    )
    return (
        f"<Module><Name>{name}</Name><PerformanceEstimates><SummaryOfLoopLatency>{rows}</SummaryOfLoopLatency>"
        "</PerformanceEstimates></Module>"
    )
