"""How close the NPU timing model is to measurements on real boards.

    python -m benchmarks.npu_accuracy [--cases | --tables]

Prints for each group of published measurements the absolute error, median and 90th percentile: of the device files as
they are, and by cross-validation (the constants that matter to the group fitted to five sixths of it, judged on the
rest); how far its worst cases are off, which is what the model cannot explain; and where tiles were compared, what
following the model's choice loses. At the end: how many measurements lie in the range that the others, without their
configuration or without their whole source, would have stated. The measurements lie in ../shared/facts; without them it
says so and stops.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import allo_dse
from allo_dse import Device, NpuSimulator
from allo_dse.backends.npu.evaluator import operations_of
from allo_dse.device.device import NpuDevice
from allo_dse.device.npu_model import type_key
from benchmarks import npu_cases
from benchmarks.npu_cases import FACTS, Case, gemm_design

Errors = NDArray[np.float64]
FILES = {
    name: Path(allo_dse.__file__).with_name("device") / "files" / f"_npu{name[-1]}.toml" for name in ("xdna1", "xdna2")
}
FOLDS = 6
FEWEST = 5
STEP = 0.05
STEPS = 8
OUTLIER = 0.05
TRUST = 0.7
MANY = 100
LENGTHS_US = (0.0, 1000.0, 5000.0)  # latencies that errors are told apart by, where many were measured
SLOW_US = 150.0
BY_SIZE = 30
ONE_SOURCE = 1.5
"""Errors on a second source of a library over those on other sizes of the first: 1.1 (mlir-air's GEMMs) to 5 (XDNA1,
mlir-aie's tiles of 16 rows)."""

_Kind = tuple[str, str, str, tuple[str, ...], str]


@dataclass(frozen=True)
class Constant:
    """A number of the device files that a fit may change: a board's, or one of a table's entries.

    Attributes:
        path: `("board", "launch_us")`, `("kernels", "air", "bf16", "efficiency")`, `("elementwise", "gelu", ...)`.
    """

    path: tuple[str, ...]

    def __str__(self) -> str:
        return ".".join(self.path)

    def scaled(self, device: NpuDevice, factor: float) -> NpuDevice:
        """The device with this number times a factor."""
        fields = {field: getattr(device, field) for field in type(device).model_fields}
        table = self.path[0]
        return type(device).model_validate({**fields, table: _scaled(fields[table], self.path[1:], factor)})


def _scaled(node: object, path: tuple[str, ...], factor: float) -> object:
    """A table or model with the number at a path times a factor; a share stays one."""
    if not path:
        assert isinstance(node, float)
        return node * factor
    head, rest = path[0], path[1:]
    if isinstance(node, dict):
        return {**node, head: _scaled(node[head], rest, factor)}
    value = _scaled(getattr(node, head), rest, factor)
    return node.model_copy(update={head: min(1.0, value) if head == "efficiency" else value})  # type: ignore


def constants(*paths: str) -> tuple[Constant, ...]:
    return tuple(Constant(tuple(path.split("."))) for path in paths)


FITTED = {
    "XDNA1 GEMM i8": constants(
        "board.launch_us", "board.host_rewrite_us", "board.page_slowdown", "kernels.allo.i8.efficiency"
    ),
    "XDNA1 GEMM bf16": constants("board.launch_us", "board.host_rewrite_us", "kernels.allo.bf16.efficiency"),
    "XDNA1 GEMM i16": constants("board.launch_us", "kernels.allo.i16.efficiency"),
    "XDNA1 GEMM i16, below 512": constants("board.launch_us", "kernels.allo.i16.efficiency"),
    "XDNA1 tile sweeps": constants(
        "board.launch_us", "board.dram_gb_s", "board.dram_burst_half_bytes",
        *(f"kernels.iron.{t}.{c}" for t in ("i8", "bf16") for c in ("accumulate_cycles_per_element", "call_cycles")),
    ),
    "XDNA1 elementwise": constants(
        "board.launch_us", "board.dram_gb_s", "elementwise.gelu.bytes_per_cycle", "elementwise.exp.bytes_per_cycle"
    ),
    "XDNA1 bottleneck": constants("kernels.convolution.i8.efficiency"),
    "XDNA2 GEMM": constants(
        "board.launch_us", "board.relaunch_us",
        *(f"kernels.{k}.bf16.{c}" for k in ("air", "air_external")
          for c in ("efficiency", "accumulate_cycles_per_element", "task_cycles")),
    ),
    "XDNA2 elementwise": constants(
        "board.launch_us", "board.dram_gb_s",
        *(f"elementwise.{kind}.bytes_per_cycle" for kind in ("add", "gelu", "exp")),
    ),
    "XDNA2 rope": constants("scalar_loop.cycles_per_iteration", "scalar_loop.task_cycles"),
    "XDNA2 gemv": constants("board.launch_us", "kernels.allo.vector.efficiency"),
    "A IRON GEMM Krackan": constants(
        *(f"kernels.iron.bf16.{c}" for c in ("efficiency", "call_cycles", "result_cycles"))
    ),
    "C IRON GEMV Krackan": constants("board.launch_us", "kernels.iron.vector.efficiency"),
    "XDNA2 attention": constants(
        "scalar_loop.cycles_per_iteration",
        "kernels.air_attention.bf16.efficiency",
        "kernels.air_attention.bf16.result_cycles",
    ),
}  # fmt: skip
"""What is fitted anew for each group, where it has more measurements than that."""


UNITS: dict[str, Callable[[Case], str]] = {
    "configuration": lambda case: f"{case.group} {case.configuration or case.label}",
    "source": lambda case: case.group,
}


def log_errors(cases: Sequence[Case], change: Callable[[NpuDevice], NpuDevice] | None = None) -> Errors:
    """Logarithm of predicted over measured time, with the cases' devices changed."""
    return np.array([np.log(case.predicted_us(change) / case.measured_us) for case in cases])


def cross_validated(cases: Sequence[Case], fitted: Sequence[Constant]) -> Errors:
    """Relative errors of cases that were left out when the constants were fitted to the others.

    Logarithms of times are taken to be linear in those of the constants around the device files' values, which a
    difference quotient per constant gives; outliers count little.
    """
    start = log_errors(cases)
    slopes = [
        (log_errors(cases, lambda device, c=constant: c.scaled(device, 1 + STEP)) - start) / np.log(1 + STEP)  # type: ignore[misc]
        for constant in fitted
    ]
    jacobian = np.stack(slopes, axis=1)
    fold = np.arange(len(cases)) % FOLDS
    if len(cases) >= BY_SIZE:  # sources list by size: what is left out lies outside
        fold = np.arange(len(cases)) * FOLDS // len(cases)
    held_out = np.zeros(len(cases))
    for out in range(FOLDS):
        change = _fit(jacobian[fold != out], start[fold != out])
        held_out[fold == out] = start[fold == out] + jacobian[fold == out] @ change
    return np.exp(held_out) - 1


def _fit(jacobian: Errors, start: Errors) -> Errors:
    """Changes of the constants' logarithms that make the errors small, by weights that fall with the error.

    A prior of `TRUST` (a factor of two either way is a standard deviation) keeps constants that the data does not
    determine where they are.
    """
    change: Errors = np.zeros(jacobian.shape[1])
    for _ in range(STEPS):
        weights = 1 / (1 + ((start + jacobian @ change) / OUTLIER) ** 2)
        normal = jacobian.T @ (weights[:, None] * jacobian) + np.eye(len(change)) * (OUTLIER / TRUST) ** 2
        change = np.linalg.solve(normal, -jacobian.T @ (weights * start))  # type: ignore[assignment]
    return change


def summary(errors: Errors) -> str:
    absolute = np.abs(errors)
    return f"{np.median(absolute):5.1%} / {np.quantile(absolute, 0.9):5.1%}"


def losses(cases: Sequence[Case], errors: Errors) -> dict[str, float]:
    """Per comparison of tiles, how much slower the predicted best is than the measured best, by work per time."""
    result = {}
    for name in dict.fromkeys(case.choice for case in cases if case.choice):
        rated = [
            (case.work / case.measured_us / (1 + error), case.work / case.measured_us)
            for case, error in zip(cases, errors, strict=True)
            if case.choice == name
        ]
        if len(rated) > 1:
            result[name] = 1 - max(rated)[1] / max(rate for _, rate in rated)
    return result


def shapes(device: Device, output_depth: int = 2) -> tuple[float, float]:
    """Median and 90th percentile of the absolute error over the i16 shapes with all sizes >= 512."""
    cases = [case for case in npu_cases.npu1_gemms(device, output_depth) if case.group == "XDNA1 GEMM i16"]
    errors = np.exp(log_errors(cases)) - 1
    absolute = np.abs(errors)
    return float(np.median(absolute)), float(np.quantile(absolute, 0.9))


@dataclass(frozen=True)
class Judged:
    """A measurement and what is predicted for it without it.

    Attributes:
        kind: architecture, board, library, operations and element: what an entry of [[accuracy]] is for.
        error: relative, by constants that were fitted to other measurements of the group; as it is where none were.
    """

    case: Case
    kind: _Kind
    error: float

    @property
    def predicted_us(self) -> float:
        return (1 + self.error) * self.case.measured_us


def judged(every: Sequence[Case]) -> list[Judged]:
    """Every measurement with its error when it had no part in a fit, in the order of the groups."""
    found = []
    for group in dict.fromkeys(case.group for case in every):
        cases, fitted = [case for case in every if case.group == group], FITTED.get(group, ())
        errors = cross_validated(cases, fitted) if len(cases) > len(fitted) > 0 else np.exp(log_errors(cases)) - 1
        found += [Judged(case, _kind(case), float(error)) for case, error in zip(cases, errors, strict=True)]
    return found


def _kind(case: Case) -> _Kind:
    made = case.designs[0]
    device, operations = NpuDevice.of(made.device), operations_of(made.program)
    library = device.kernel_library
    priced = (op in ("matmul", "gemv") or f"{library}.{op}" in device.elementwise for op in operations)
    element = type_key(made.program.tensors[0].dtype)
    return device.architecture, device.board_name, library if any(priced) else "", operations, element


@dataclass(frozen=True)
class Range:
    """An entry of [[accuracy]]."""

    kind: _Kind
    least_us: float
    percent: float
    measurements: int


def ranges(known: Sequence[Judged]) -> list[Range]:
    """The range of each kind of measurement.

    A single source says nothing of another version, which `ONE_SOURCE` allows for.
    """
    found = []
    for kind in sorted({one.kind for one in known}):
        own = [one for one in known if one.kind == kind]
        if kind[3] == ("loop",):  # a program's loops say nothing of another's
            continue
        alone = len({one.case.group for one in own}) == 1
        # Where there are many, also by the latency from which they hold.
        ends = [*(LENGTHS_US if len(own) >= MANY else LENGTHS_US[:1]), np.inf]
        for least, end in itertools.pairwise(ends):
            errors = [abs(one.error) for one in own if least <= one.predicted_us < end]
            if len(errors) >= FEWEST:
                percent = 100 * promised(errors) * (ONE_SOURCE if alone else 1.0)
                found.append(Range(kind, least, round(percent, 1), len(errors)))
    return found


def accuracy_tables(known: Sequence[Judged], architecture: str) -> str:
    """[[accuracy]] of a device file: errors of measurements that had no part in a fit, by what was measured."""
    lines = []
    for one in ranges(known):
        _, board, library, operations, element = one.kind
        if one.kind[0] != architecture:
            continue
        sources = {own.case.source for own in known if own.kind == one.kind}
        lines += [f"# {', '.join(sorted(sources))} [cal]", "[[accuracy]]", f"board = {json.dumps(board)}"]
        lines += [f"kernels = {json.dumps(library)}"] if library else []
        lines += [f"operations = {json.dumps(operations)}", f"element = {json.dumps(element)}"]
        lines += [f"least_us = {one.least_us:.1f}"] if one.least_us else []
        lines += [f"percent = {one.percent:.1f}", f"measurements = {one.measurements}", ""]
    return "\n".join(lines)


def write_tables(known: Sequence[Judged]) -> None:
    """Write [[accuracy]] at the ends of the device files."""
    for architecture, path in FILES.items():
        text = path.read_text()
        head = text[: text.rindex("\n# ", 0, text.index("[[accuracy]]")) + 1]
        path.write_text(head + accuracy_tables(known, architecture))


def promised(errors: Sequence[float]) -> float:
    """Return the error that nine of ten further measurements do not exceed, by split conformal prediction."""
    ordered = sorted(errors)
    rank = math.ceil(0.9 * (len(ordered) + 1))
    return ordered[rank - 1] if rank <= len(ordered) else 1.25 * ordered[-1]


def covered(known: Sequence[Judged], unit: Callable[[Case], str]) -> list[tuple[Judged, float]]:
    """Each measurement with the range that all others would have stated for it, without those of the same unit."""
    found = []
    for kind in dict.fromkeys(one.kind for one in known):
        own = [one for one in known if one.kind == kind]
        for name in dict.fromkeys(unit(one.case) for one in own):
            stated = ranges([one for one in own if unit(one.case) != name])
            for one in (one for one in own if unit(one.case) == name):
                fitting = [r for r in stated if r.least_us <= one.predicted_us]
                unknown = NpuDevice.of(one.case.designs[0].device).unmeasured_percent
                found.append((one, max(fitting, key=lambda r: r.least_us).percent if fitting else unknown))
    return found


def sweep(cases: Sequence[Case]) -> None:
    """What the order of the i16 runs shows: the slow ones are the later ones."""
    late = np.array([case.disturbed for case in cases])
    large = np.array([not case.group.endswith("512") for case in cases])
    errors = np.exp(log_errors(cases)) - 1
    measured = np.array([case.measured_us for case in cases])
    slow = measured - measured * (1 + errors) > SLOW_US
    for name, part in (("before the 74th", ~late), ("from the 74th on", late)):
        print(
            f"XDNA1 GEMM i16, runs {name}: {int(slow[part].sum())} of {int(part.sum())} slower than predicted by more "
            f"than {SLOW_US:.0f} us; sizes >= 512 {summary(errors[part & large])} of {int((part & large).sum())}, "
            f"smaller {summary(errors[part & ~large])} of {int((part & ~large).sum())}"
        )


def sustained(device: Device) -> dict[str, float]:
    """Relative error at 4096^3, whose time follows from the published MAC per cycle and core and 150 us per call."""
    errors = {}
    for name, tile, rate in (("i8", (64, 64, 128), 159.0), ("i16", (64, 64, 64), 48.6), ("bf16", (64, 64, 64), 63.2)):
        measured = 4096**3 / (16 * rate * 1e3) + 150
        design = gemm_design((4096,) * 3, tile, (npu_cases.TYPES[name],) * 2, (4, 4), device)
        predicted = NpuSimulator().evaluate(design).latency_us
        errors[name] = predicted / measured - 1
        print(f"XDNA1 {name} 4096^3: measured {measured:.0f} us, predicted {predicted:.0f} us, {errors[name]:+.1%}")
    return errors


def tile_pairs() -> dict[str, float]:
    """By how much the tile that the model chooses is slower than the best measured one, per published comparison."""
    cases = [*npu_cases.tile_pairs(), *npu_cases.npu1_tiles()]
    return losses(cases, np.exp(log_errors(cases)) - 1)


def report(group: str, cases: Sequence[Case], errors: Errors, held_out: Errors, verbose: bool) -> None:
    """One line on a group, and its cases or what comparisons of tiles lose."""
    fitted = FITTED.get(group, ())
    by_cross_validation = summary(held_out) if len(cases) > len(fitted) > 0 else "not fitted here"
    far = int((np.abs(errors) > 0.2).sum())
    print(
        f"{group:25} {len(cases):4} measured: {summary(errors)}; cross-validated {by_cross_validation} "
        f"({len(fitted)} constants); {far} off by more than 20%, the worst by {errors[np.abs(errors).argmax()]:+.0%}"
    )
    for name, loss in losses(cases, errors).items():
        print(f"    choosing a tile for {name}: {loss:.1%} below the best measured")
    for at in np.argsort(errors) if verbose else ():
        case = cases[at]
        print(f"    {errors[at]:+7.1%}  measured {case.measured_us:9.1f} us  {case.label}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", action="store_true", help="print every measurement")
    parser.add_argument("--tables", action="store_true", help="write [[accuracy]] of the device files instead")
    arguments = parser.parse_args()
    if not FACTS.is_dir():
        print(f"skipped: the measurements in {FACTS} are not here")
        return
    every = npu_cases.all_cases()
    known = judged(every)
    if arguments.tables:
        write_tables(known)
        return
    print("absolute error, median / 90th percentile")
    for group in dict.fromkeys(case.group for case in every):
        cases = [case for case in every if case.group == group]
        held_out = np.array([one.error for one in known if one.case.group == group])
        report(group, cases, np.exp(log_errors(cases)) - 1, held_out, arguments.cases)
    sweep([case for case in every if case.group.startswith("XDNA1 GEMM i16")])
    sustained(Device.load("npu1_4col"))
    for name, unit in UNITS.items():
        found = covered(known, unit)
        newer = [one for one in found if not one[0].case.group.startswith("XDNA")]
        print(f"in the range that the rest states (promised: 90 %), each {name} left out: {_share(found)}, "
              f"of the later sources {_share(newer)}")  # fmt: skip
        if arguments.cases:
            for one, percent in found:
                print(f"    {one.error:+7.1%} of +-{percent:.0f} %  {one.case.group}: {one.case.label}")


def _share(found: Sequence[tuple[Judged, float]]) -> str:
    inside = sum(abs(one.error) <= percent / 100 for one, percent in found)
    return f"{inside} of {len(found)} ({inside / len(found):.0%})"


if __name__ == "__main__":
    main()
