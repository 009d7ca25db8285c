"""The FPGA cost model against public HLS reports.

    python -m benchmarks.fpga_accuracy

Five Allo designs, written in this project's language: every loop that the reports list, and the top function's cycles
and resources. Then single loops of other reports, a summary against targets, and the constants of flip-flops and LUTs
that were found by comparison, each fitted anew to all designs but one, which it then predicts. The model was
made with these reports at hand, so the first says that it agrees with them, only the last how good it is on others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce

import numpy as np

import allo_dse as dse
from allo_dse.backends.fpga.cost.task_cost import task_cost
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.evaluator import Metrics
from allo_dse.mapper.fold.fold import unfolded
from benchmarks.fpga_programs import DESIGNS, LOOPS, Reported

QUANTITIES = ("cycles", "dsp", "bram18", "ff", "lut")
TARGETS = {"cycles": (0.03, 0.08), "dsp": (0.02, None), "ff": (0.12, None), "lut": (0.12, None)}
"""Mean and worst error that the model is to have on designs that it was not made with."""
LOOPS_EXACT = 31 / 32
CONSTANTS = {
    "ff": ("external.adapter.ff", "external.control.ff"),
    "lut": ("external.adapter.lut", "external.control.lut"),
}
"""Numbers of the device files that were found by comparison with reports ([cal]), by what they are of."""


def design_of(reported: Reported) -> dse.Design:
    """The design of a report."""
    program = dse.load_program(reported.program())
    copied = [Directive("place", "top", t.name, {"memory": "copied"}) for t in program.tensors]  # as Allo's C++ does
    said = {d.name for d in reported.schedule if d.kind == "place"}
    schedule = (*(d for d in copied if d.name not in said), *reported.schedule)
    return dse.Design(program, unfolded(program), dse.Buffering(), dse.Device.load("vu11p"), schedule)


def measure(reported: Reported) -> tuple[Metrics, set[tuple[int, int, int, int]]]:
    """What the evaluator predicts for a design, and (trips, II, depth, cycles) of its loops."""
    design = design_of(reported)
    mapping = FpgaMapping(design.vmg, FpgaDevice.of(design.device), design.schedule)
    classes = [c for kernel in design.program.kernels for c in kernel.classes]
    loops = {(p.trips, p.ii, p.depth, p.cycles) for c in classes for p in mapping.cost(c).loops}
    return dse.FpgaSimulator(depths="declared").evaluate(design), loops


def errors(reported: Reported, metrics: Metrics) -> dict[str, float]:
    """Relative error per quantity."""
    predicted = {**metrics, "cycles": metrics.latency_cycles}
    return {q: predicted[q] / getattr(reported, q) - 1 for q in QUANTITIES}


def summary() -> str:
    """How far predictions are off: mean and worst, and how many loops have the reported trips and intervals."""
    measured = [(reported, *measure(reported)) for reported in DESIGNS]
    off = [errors(reported, metrics) for reported, metrics, _ in measured]
    sizes = {q: [abs(e[q]) for e in off] for q in QUANTITIES}
    lines = [f"{q}: {np.mean(size):.1%} mean, {max(size):.1%} worst{against(q, size)}" for q, size in sizes.items()]
    pairs = [(loop[:2], {found[:2] for found in loops}) for reported, _, loops in measured for loop in reported.loops]
    others = [(expected[:2], {predicted[:2]}) for _, expected, predicted in report_loops()]
    exact = sum(loop in found for loop, found in (*pairs, *others))  # type: ignore[operator]
    loops = len(pairs) + len(others)
    target = f"{'met' if exact >= LOOPS_EXACT * loops else 'MISSED'} (target 31 of 32)"
    return "\n".join([*lines, f"loops with the reported trips and interval: {exact} of {loops}, {target}"])


def against(quantity: str, size: Sequence[float]) -> str:
    """Whether errors meet the target of their quantity; empty where there is none."""
    if quantity not in TARGETS:
        return ""
    mean, worst = TARGETS[quantity]
    met = np.mean(size) <= mean and (worst is None or max(size) <= worst)
    words = f"{mean:.0%} mean" + (f", {worst:.0%} worst" if worst is not None else "")
    return f", {'met' if met else 'MISSED'} (target {words})"


def changed(device: FpgaDevice, name: str, by: float) -> FpgaDevice:
    """The device with one of its numbers larger."""
    table, *rest, last = name.split(".")
    outer = getattr(device, table)
    inner = getattr(outer, rest[0]) if rest else outer
    moved = inner.model_copy(update={last: getattr(inner, last) + by})
    return device.model_copy(update={table: outer.model_copy(update={rest[0]: moved}) if rest else moved})


def value(device: FpgaDevice, name: str) -> float:
    """One of the device's numbers."""
    return float(reduce(getattr, name.split("."), device))  # type: ignore[arg-type]


def held_out() -> Iterator[str]:
    """Per resource its constants fitted to all designs but one, and the error on that one."""
    designs = [design_of(reported) for reported in DESIGNS]
    device = FpgaDevice.load("vu11p")
    depths = [{stream.name: stream.depth for stream in design.program.streams} for design in designs]
    for quantity, names in CONSTANTS.items():
        uses = []
        for design, depth in zip(designs, depths, strict=True):
            totals = [
                getattr(FpgaMapping(design.vmg, one, design.schedule, depth).total, quantity)
                for one in (device, *(changed(device, name, 1) for name in names))
            ]
            uses.append([totals[0], *(total - totals[0] for total in totals[1:])])
        table = np.array(uses, float)
        reported = np.array([getattr(one, quantity) for one in DESIGNS], float)
        now = np.array([value(device, name) for name in names])
        rest = table[:, 0] - table[:, 1:] @ now
        fits, off = [], []
        for out in range(len(designs)):
            others = np.arange(len(designs)) != out
            scaled = table[others, 1:] / reported[others, None]
            # Constants that these designs do not tell from each other stay as near to the file as the others allow.
            fits.append(now + np.linalg.pinv(scaled, rcond=0.01) @ (1 - rest[others] / reported[others] - scaled @ now))
            off.append(abs((rest[out] + table[out, 1:] @ fits[-1]) / reported[out] - 1))
        yield f"{quantity}: {np.mean(off):.1%} mean, {max(off):.1%} worst{against(quantity, off)}"
        for name, one, found in zip(names, now, np.transpose(fits), strict=True):
            ranges = f"{found.min():,.0f} to {found.max():,.0f}"
            yield f"    {name:24}{one:8,.0f} in the file, {ranges} without one of {len(designs)} reports"


def main() -> None:
    print(f"{'design':24}{'':10}" + "".join(f"{q:>12}" for q in QUANTITIES))
    for reported in DESIGNS:
        metrics, loops = measure(reported)
        predicted = {**metrics, "cycles": metrics.latency_cycles}
        print(f"{reported.name:24}{'reported':10}" + "".join(f"{getattr(reported, q):12,}" for q in QUANTITIES))
        print(f"{'':24}{'predicted':10}" + "".join(f"{predicted[q]:12,}" for q in QUANTITIES))
        print(f"{'':24}{'error':10}" + "".join(f"{e:12.1%}" for e in errors(reported, metrics).values()))
        missing = [loop for loop in reported.loops if loop not in loops]
        print(f"{'':24}loops: {len(reported.loops) - len(missing)} of {len(reported.loops)} exact {missing or ''}")
        if reported.rtl:
            print(f"{'':24}against RTL: {metrics.latency_cycles / reported.rtl - 1:+.2%} of {reported.rtl:,} cycles")
    print("\nloops of other reports (xcu280, 3.33 ns): trips, II, depth")
    for name, expected, found in report_loops():
        print(f"{name:26}reported {expected}, predicted {found}")
    print("\n" + summary())
    print("\nconstants found by comparison, fitted without the design that they predict:")
    for line in held_out():
        print(line)


def report_loops() -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    """Loops of other reports: name, reported and predicted (trips, II, depth)."""
    device = FpgaDevice.load("u280")
    found: list[tuple[str, tuple[int, ...], tuple[int, ...]]] = []
    for reported in LOOPS:
        program = dse.load_program(reported.program())
        cost = task_cost(program, program.kernels[0].classes[0], device, reported.schedule)
        by_name = {loop.names[-1]: loop for loop in cost.loops}
        for name, *expected, _ in reported.loops:
            loop = by_name[name]
            found.append((f"{reported.name} {name}", tuple(expected), (loop.trips, loop.ii, loop.depth)))
    return found


if __name__ == "__main__":
    main()
