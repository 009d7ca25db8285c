"""Numbers of an NPU's device file that a fit may change, and which of them the time of a design can depend on."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from allo_dse.compiler.program.compiled import TileOp
from allo_dse.device.device import Device, NpuDevice
from allo_dse.device.npu_model import Accuracy, type_key
from allo_dse.device.writing import device_text
from allo_dse.eval.calibrate.calibration import Calibration
from allo_dse.eval.calibrate.robust_fit import FEWEST_TO_JUDGE, LEAST_PERCENT
from allo_dse.eval.parameters import Parameter, Scale
from allo_dse.space.design import Design

from .evaluator import operations_of

_BOARD = {
    "launch_us": Scale(10.0),
    "launch_column_us": Scale(1.0),
    "host_sync_gb_s": Scale(),
    "dram_gb_s": Scale(),
    "dram_burst_half_bytes": Scale(16.0),
    "page_slowdown": Scale(low=1.0),
    "host_rewrite_us": Scale(1.0),
}
_KERNEL = {
    "efficiency": Scale(high=1.0),
    "accumulate_cycles_per_element": Scale(0.05),
    "call_cycles": Scale(100.0),
    "task_cycles": Scale(100.0),
    "result_cycles": Scale(100.0),
}
_VECTOR = {**_KERNEL, "operand_channels": Scale(low=1.0, high=2.0, whole=True)}
_ELEMENTWISE = {"bytes_per_cycle": Scale(), "call_cycles": Scale(30.0)}
_SCALAR_LOOP = {"cycles_per_iteration": Scale(), "task_cycles": Scale(30.0)}


def parameters_of(designs: Iterable[Design], device: NpuDevice) -> list[Parameter]:
    """Return the parameters that the times of designs can depend on: the board's terms and those of their kernels."""
    found: dict[tuple[str, ...], dict[str, Scale]] = {("board",): _BOARD}
    for program in {id(design.program): design.program for design in designs}.values():
        for op in (op for cls in program.task_classes for op in cls.work):
            for path, terms in _costs(op, device).items():
                found.setdefault(path, terms)
    return [Parameter((*path, name), scale) for path, terms in found.items() for name, scale in terms.items()]


def _costs(op: TileOp, device: NpuDevice) -> dict[tuple[str, ...], dict[str, Scale]]:
    """The entries of the device's tables that an operation's cycles come from."""
    if op.kind == "loop":
        return {("scalar_loop",): _SCALAR_LOOP}
    if op.kind == "matmul":
        kernel = device.matmul_kernel(op.dtypes, op.shape)
        return {
            ("kernels", library, name): _VECTOR if name == "vector" else _KERNEL
            for library, entries in device.kernels.items()
            for name, cost in entries.items()
            if cost is kernel
        }
    own = device.elementwise_cost(op.kind)
    return {("elementwise", kind): _ELEMENTWISE for kind, cost in device.elementwise.items() if cost is own}


def accuracy_of(found: Calibration) -> tuple[Accuracy, ...]:
    """Return the accuracy of predictions on held-out designs, per kind of program with enough measurements.

    The calibrated board is the default one of the file that is written.
    """
    errors: dict[tuple[tuple[str, ...], str], list[float]] = {}
    for one in found.judged:
        program = one.measurement.design.program
        kind = (operations_of(program), type_key(program.tensors[0].dtype))
        predicted_us = one.held_out_us if found.learned else one.before_us
        errors.setdefault(kind, []).append(abs(predicted_us / one.measurement.latency_us - 1))
    return tuple(
        Accuracy(
            board="default",
            kernels=NpuDevice.of(found.device).kernel_library,
            operations=operations,
            element=element,
            percent=max(LEAST_PERCENT, round(100 * float(np.quantile(own, 0.9)), 1)),
            measurements=len(own),
        )
        for (operations, element), own in errors.items()
        if len(own) >= FEWEST_TO_JUDGE
    )


class NpuTunable:
    """The numbers of an NPU's board and kernels, as `Tunable`."""

    def parameters(self, designs: Iterable[Design], device: Device) -> list[Parameter]:
        """Return the board's terms and those of the designs' kernels."""
        return parameters_of(designs, NpuDevice.of(device))

    def settings(self, device: Device) -> object:
        """Return the numbers of the board and of all kernels."""
        npu = NpuDevice.of(device)
        return npu.board, npu.kernels

    def named(self, device: Device) -> dict[str, str]:
        """Return the names of the device and of its board."""
        return {"device": device.name, "board": NpuDevice.of(device).board_name}

    def alike(self, device: Device, measured: Device) -> NpuDevice:
        """Return the device with the board and the kernel library that another one was measured with."""
        own, other = NpuDevice.of(device), NpuDevice.of(measured)
        board = other.board_name if other.board_name in own.boards else own.board_name
        library = other.kernel_library if other.kernel_library in own.kernels else own.kernel_library
        return own.with_options(board=board, kernel_library=library)

    def text(self, found: Calibration, base: Device, extends: str) -> str:
        """Return the calibrated device as a file."""
        comments = {p.name: f"[calibrated] {p.before:.4g} before" for p in found.parameters if p.deviation is not None}
        fitted = NpuDevice.of(found.device).model_copy(update={"accuracy": accuracy_of(found)})
        return device_text(fitted, NpuDevice.of(base), extends, comments)
