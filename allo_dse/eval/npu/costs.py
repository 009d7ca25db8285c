"""Core cycles of a task on an NPU, from the operations of its class and the device's cost tables.

The matrix kernel computes C += A @ B: it adds to an accumulator that is already in place. An addition to the product,
and moving the sum on to the next task of a chain or into the output slot, are part of the kernel and cost nothing more.
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from allo_dse.common.errors import SimulationError
from allo_dse.device.device import NpuDevice
from allo_dse.lang.externals import external
from allo_dse.program.tasks import ExternalCall, TaskClass, TileOp

_MOVES = ("copy", "get", "put")
_ACCUMULATING = ("add", *_MOVES)


def class_cycles(task_class: TaskClass, device: NpuDevice, free: Collection[int] = ()) -> float:
    """Cycles one task of the class computes, data movement not included.

    Args:
        free: positions in its `work` of operations that cost nothing: changes of layout that DMA channels carry out.

    Raises:
        SimulationError: if it calls a vendor kernel whose cycles are not known.
    """
    total, accumulator, kernel = 0.0, None, None
    calls = iter(task_class.externals)
    for site, op in enumerate(task_class.work):
        if site in free:
            continue
        if op.kind == "external":
            total += _count(op) * _external_cycles(next(calls))
            continue
        if op.kind == "matmul":
            accumulator = (op.shape[0], op.shape[2])
            kernel = device.matmul_kernel(op.dtypes, op.shape)
            total += _count(op) * kernel.cycles(*op.shape)
        elif not (op.kind in _ACCUMULATING and op.shape == accumulator):
            total += _count(op) * _elementwise_cycles(op, device)
    if any(op.kind == "loop" for op in task_class.work):
        total += device.scalar_loop.task_cycles
    if kernel is not None:
        results = [port.tile_bytes for port in task_class.tensor_ports if port.writes]
        total += kernel.task_cycles + kernel.drain_cycles_per_byte * sum(results)
        total += kernel.result_cycles if results else 0.0
    return total


def _external_cycles(call: ExternalCall) -> int:
    known = external(call.top)
    cycles = None if known is None else known.cycles_for(tuple(shape for _, shape in call.operands))
    if cycles is None:
        raise SimulationError(
            f"it is not known how many cycles the vendor kernel {call.top!r} takes",
            hint=f"allo_dse.lang.define_external({call.top!r}, meaning, cycles=...)",
        )
    return cycles


def _elementwise_cycles(op: TileOp, device: NpuDevice) -> float:
    if op.kind == "loop":
        return device.scalar_loop.cycles_per_iteration
    return device.elementwise_cost(op.kind).cycles(prod(op.shape) * op.dtypes[-1].bits // 8)


def _count(op: TileOp) -> int:
    """How often the operation runs; once where that depends on data, which makes the time a lower bound."""
    return 1 if op.count is None else op.count
