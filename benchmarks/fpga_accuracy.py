"""The FPGA cost model against public HLS reports.

    PYTHONPATH=. python benchmarks/fpga_accuracy.py

Five Allo designs, written in this project's language: every loop that the reports list, and the top function's
cycles and resources. Then single loops of other reports, and a summary. The model was made with these reports at hand,
so this says that it agrees with them, not how good it is on others.
"""

from __future__ import annotations

import numpy as np

import allo_dse as dse
from allo_dse.backends.fpga.task import task_cost
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.evaluator import Metrics
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.mapper.limits.fpga import FpgaCosts
from benchmarks.fpga_programs import DESIGNS, LOOPS, Reported

QUANTITIES = ("cycles", "dsp", "bram18", "ff", "lut")


def design_of(reported: Reported) -> dse.Design:
    """The design of a report."""
    program = dse.load_program(reported.program())
    return dse.Design(program, unfolded(program), dse.Buffering(), dse.Device.load("vu11p"), reported.schedule)


def measure(reported: Reported) -> tuple[Metrics, set[tuple[int, int, int, int]]]:
    """What the evaluator predicts for a design, and (trips, II, depth, cycles) of its loops."""
    design = design_of(reported)
    mapping = FpgaCosts(design.vmg, FpgaDevice.of(design.device), design.schedule)
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
    lines = [f"{q}: {np.mean(size):.1%} mean, {max(size):.1%} worst" for q, size in sizes.items()]
    pairs = [(loop[:2], {found[:2] for found in loops}) for reported, _, loops in measured for loop in reported.loops]
    others = [(expected[:2], {predicted[:2]}) for _, expected, predicted in report_loops()]
    exact = sum(loop in found for loop, found in (*pairs, *others))  # type: ignore[operator]
    return "\n".join([*lines, f"loops with the reported trips and interval: {exact} of {len(pairs) + len(others)}"])


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
