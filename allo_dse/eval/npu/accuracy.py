"""How good the prediction of a design's latency is: from comparisons with measurements, kept in the device file."""

from __future__ import annotations

from allo_dse.device.device import NpuDevice
from allo_dse.device.kernel_tables import type_key
from allo_dse.device.model import Accuracy
from allo_dse.mapper.program import Program
from allo_dse.space.design import Design

_MOVES = frozenset({"copy", "fill", "get", "put"})
_MATMUL, _GEMV = "matmul", "gemv"


def operations_of(program: Program) -> tuple[str, ...]:
    """What a program computes, in order of names; moving tiles, and adding to a product, count only where all do it."""
    ops = [op for cls in program.task_classes for op in cls.work]
    kinds = {_GEMV if op.kind == _MATMUL and op.shape[2] == 1 else op.kind for op in ops}
    accumulating = {"add"} if kinds & {_MATMUL, _GEMV} else set()
    return tuple(sorted((kinds - _MOVES - accumulating) or kinds))


def accuracy_of(design: Design, latency_us: float) -> Accuracy | None:
    """How good the prediction of a design's latency is; None where nothing was compared with measurements."""
    tensors = design.program.tensors
    element = type_key(tensors[0].dtype) if tensors else ""
    return NpuDevice.of(design.device).accuracy_of(operations_of(design.program), element, latency_us)
