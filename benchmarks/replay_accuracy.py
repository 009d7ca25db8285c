"""Replay of recorded HLS designs against RTL co-simulation, beside the HLS tool's own report.

Every figure is also given as a ratio to the reference semantics (`replay_reference.py`) run at the same time.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from allo_dse.simulator.replay.trace import Trace
from benchmarks.replay_reference import Reference

TRACES = Path(__file__).parents[2] / "shared" / "traces"


def main() -> None:
    if not TRACES.is_dir():
        print(f"skipped: there are no traces in {TRACES}")
        return
    with (TRACES / "cosim_cycles.csv").open() as file:
        rows = list(csv.DictReader(file))
    errors, reported = [], []
    for row in rows:
        trace = Trace.load(TRACES / f"{row['design']}.npz")
        cycles, rtl = trace.replay().cycles, int(row["cosim_cycles"])
        reference = Reference(trace).cycles(trace.stream_depth)
        errors.append(abs(cycles / rtl - 1))
        reported.append(abs(int(row["csynth_worst_cycles"]) / rtl - 1))
        print(f"{row['design']:34s} RTL {rtl:8d}, replay {cycles:8d} ({cycles - rtl:+d} = {errors[-1]:.3%}; "
              f"{cycles / reference:.6f} x reference), HLS report off by {reported[-1]:.1%}")  # fmt: skip
    print(f"{len(errors)} designs: replay off by {np.mean(errors):.3%} on average, {max(errors):.3%} at most; "
          f"HLS report by {np.mean(reported):.1%}, {max(reported):.1%} at most")  # fmt: skip
    traces = [Trace.load(path) for path in sorted(TRACES.glob("*.npz"))]
    stuck = [trace.name for trace in traces if not trace.replay().finished]
    print(f"{len(traces)} traces replayed at their depths, {len(stuck)} deadlocks {' '.join(stuck)}")


if __name__ == "__main__":
    main()
