"""The FPGA cost model against circuits that vendors' tools generated, simulated at register-transfer level.

    python -m benchmarks.fpga_truth [part of a name ...]

Programs are in `fpga_truth_programs.py`; cycles and resources of their circuits are read from a folder beside the
checkout, and skipped where that is absent. Cycles are those of RTL simulation, resources those of synthesis reports.
Errors by kind of design, and of each family of designs with the constants of control logic fitted to all other ones.
"""

from __future__ import annotations

import csv
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import allo_dse as dse
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import AXI_LEAST_BITS
from allo_dse.mapper.fold.fold import unfolded
from benchmarks.fpga_accuracy import changed
from benchmarks.fpga_truth_programs import DESIGNS, Design

TRUTH = Path(__file__).resolve().parents[2] / "shared" / "facts" / "fpga_rtl" / "rtl_truth.csv"
COLUMNS = {"cycles": "rtl_cycles", "dsp": "DSP", "bram18": "BRAM18", "ff": "FF", "lut": "LUT"}
TARGETS = {"cycles": 0.06, "dsp": 0.0, "bram18": 0.15, "ff": 0.20, "lut": 0.20}
"""Median errors that designs of other people are to have; DSPs are to be exact in 80 %."""
FITTED = {"hls.adder_lut": (0, 3, 7, 10), "hls.mux_lut_per_input": (1.5, 3.0, 4.5, 6.0)}
"""Constants of control logic, with the values among which the cross-validation chooses."""

Amounts = Mapping[str, int]


def truths() -> dict[str, Amounts]:
    """Return measured amounts of all designs whose cycles do not depend on data, by the name they have there."""
    if not TRUTH.exists():
        return {}
    with TRUTH.open(encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["grade"][:1] in "AB"]
    return {row["id"]: {name: int(row[column]) for name, column in COLUMNS.items()} for row in rows}


def device_of(design: Design) -> FpgaDevice:
    """Return the device that a design is predicted for."""
    loaded = dse.Device.load(design.device).with_options(clock_mhz=design.mhz, **design.options)
    return FpgaDevice.of(loaded)


def predict(design: Design, device: FpgaDevice) -> Amounts:
    """Return what the evaluator says of a design."""
    program = dse.load_program(design.program())
    mapped = dse.Design(program, unfolded(program), dse.Buffering(), device, design.directives)
    metrics = dse.FpgaSimulator(depths="declared").evaluate(mapped)
    external, found = device.external, {"cycles": metrics.latency_cycles}
    ports = external.adapter.of(AXI_LEAST_BITS, reads=True) * design.adapters
    ports += external.control.resources * (design.adapters > 0)
    return found | {name: int(metrics[name]) + getattr(ports, name) for name in COLUMNS if name != "cycles"}


def errors(predicted: Amounts, true: Amounts) -> dict[str, float]:
    """Return relative errors; of what a circuit has none of, an error of 1 if any is predicted."""
    return {q: predicted[q] / n - 1 if (n := true[q]) else float(predicted[q] > 0) for q in COLUMNS}


def table(groups: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterable[str]:
    """Yield, per group of errors, medians and 90th percentiles, and how often DSPs are exact."""
    yield f"{'':24}{'designs':>8}" + "".join(f"{q:>17}" for q in COLUMNS) + f"{'dsp exact':>11}"
    for name, group in groups.items():
        cells = []
        for q in COLUMNS:
            sizes = sorted(abs(one[q]) for one in group)
            cells.append(f"{statistics.median(sizes):8.1%} {sizes[int(0.9 * (len(sizes) - 1) + 0.5)]:8.1%}")
        exact = sum(one["dsp"] == 0 for one in group)
        yield f"{name:24}{len(group):8}" + "".join(cells) + f"{exact:8} of {len(group)}"


def held_out(found: Sequence[tuple[Design, Amounts]]) -> list[dict[str, float]]:
    """Return errors of each design with constants fitted to the LUTs of other families."""
    ways: dict[tuple[float, ...], list[dict[str, float]]] = {}
    adders, muxes = FITTED.values()
    for values in [(a, m) for a in adders for m in muxes]:
        ways[values] = [errors(predict(design, _with(device_of(design), values)), true) for design, true in found]
    families = [design.family for design, _ in found]
    result = []
    for number, family in enumerate(families):
        others = [n for n, one in enumerate(families) if one != family]
        best = min(ways, key=lambda values: statistics.median(abs(ways[values][n]["lut"]) for n in others))
        result.append(ways[best][number])
    return result


def _with(device: FpgaDevice, values: tuple[float, ...]) -> FpgaDevice:
    if device.tool < "2020":  # the old tool has its own
        return device
    for name, value in zip(FITTED, values, strict=True):
        table_name, field = name.split(".")
        device = changed(device, name, value - getattr(getattr(device, table_name), field))
    return device


def main(wanted: Sequence[str], write: Callable[[str], None] = print) -> None:
    """Print predictions, errors by kind, and errors of families that constants were not fitted to."""
    measured = truths()
    if not measured:
        write(f"no measured circuits in {TRUTH}: nothing to compare with")
        return
    found, groups = [], dict[str, list[dict[str, float]]]()
    for design in DESIGNS:
        name = next((name for name in measured if name.startswith(design.truth)), None)
        if name is None or (wanted and not any(word in name for word in wanted)):
            continue
        predicted = predict(design, device_of(design))
        found.append((design, measured[name]))
        off = errors(predicted, measured[name])
        groups.setdefault(design.kind, []).append(off)
        shown = "".join(f"{q:>8} {predicted[q]:>8,} {off[q]:+7.1%}" for q in COLUMNS)
        write(f"{name[:34]:36}{shown}")
    if not found:
        write(f"no design has {' or '.join(wanted)} in its name: {', '.join(design.truth for design in DESIGNS)}")
        return
    every = [off for group in groups.values() for off in group]
    write("\nmedian and 90th percentile of errors, by kind of design")
    for line in table({**groups, "all": every}):
        write(line)
    write(f"{'targets':32}" + "".join(f"{TARGETS[q]:8.0%}         " for q in COLUMNS))
    if not wanted:
        write("\nwith constants of control logic fitted to the LUTs of all other families")
        for line in list(table({"held out by family": held_out(found)}))[1:]:
            write(line)


if __name__ == "__main__":
    main(sys.argv[1:])
