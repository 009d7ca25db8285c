"""Replay at the intervals and depths of HLS reports against RTL co-simulation.

Traces carry what the HLS tool reported of their loops; where the report itself is there, it is read and put in place
of what the trace says, which is made useless before. `replay_accuracy.py` compares with the reference semantics.
"""

from __future__ import annotations

import csv
from pathlib import Path

import allo_dse as dse
from allo_dse.backends.fpga.hls.retime import timed_by_report, with_times
from allo_dse.simulator.replay.trace import Trace

SHARED = Path(__file__).parents[2] / "shared"


def report_of(design: str) -> Path:
    """Where the report of a design of `traces/` would be."""
    option, name = design.split("_")[-2:]
    return SHARED / "csynth" / f"streamhls_{name}_{option}_csynth.xml"


def without_times(trace: Trace) -> Trace:
    """The trace with intervals and depths of 1 everywhere."""
    return with_times(trace, [(1, 1)] * len(trace.data.loops))


def main() -> None:
    if not (SHARED / "traces").is_dir():
        print(f"skipped: there are no traces in {SHARED}")
        return
    with (SHARED / "traces" / "cosim_cycles.csv").open() as file:
        rows = list(csv.DictReader(file))
    worst = worst_report = 0.0
    for row in rows:
        name, rtl, claimed = row["design"], int(row["cosim_cycles"]), int(row["csynth_worst_cycles"])
        trace, source = Trace.load(SHARED / "traces" / f"{name}.npz"), "trace"
        if name.startswith("2560_DSPs") and report_of(name).exists():
            trace, source = timed_by_report(without_times(trace), dse.read_hls_report(report_of(name))), "csynth.xml"
        cycles = trace.replay().cycles
        error, off = abs(cycles / rtl - 1), abs(claimed / rtl - 1)
        worst, worst_report = max(worst, error), max(worst_report, off)
        print(f"{name:34s} RTL {rtl:8d}, replay {cycles:8d} ({error:.3%}), report {claimed:8d} ({off:.1%}), "
              f"times from {source}")  # fmt: skip
    print(f"{len(rows)} designs: replay off by {worst:.3%} at most, the reports by {worst_report:.1%}")


if __name__ == "__main__":
    main()
