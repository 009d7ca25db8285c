"""What an NPU design has to do, whatever the order: its blocks, its multiplications, and the host's part of a call."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from msgspec import Struct

from allo_dse.device.device import NpuDevice
from allo_dse.device.model import Board
from allo_dse.mapper.graph.node_schedules import GroupSchedule
from allo_dse.mapper.model.movement import Transport
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.tasks import TaskClass

TICKS_PER_CYCLE = 16
"""So that rounding a short transfer does not matter."""


class TileTicks(Struct, frozen=True):
    """What one tile of a flow takes, in ticks.

    Attributes:
        dram: of DRAM in its direction.
        column: of its column's way there.
        channel: of one DMA channel, of a memory tile or a shim.
        shim: of its shim channel, which holds DRAM and then the column's way, and is itself busy for the tile's bytes.
    """

    dram: int
    column: int
    channel: int
    shim: int

    @staticmethod
    def of(device: NpuDevice, tile_bytes: int, run_bytes: int, *, paged: bool) -> TileTicks:
        """Of a tile with contiguous runs of so many bytes; `paged` where it walks down pages (`network.is_paged`)."""
        board, per_us = device.board, TICKS_PER_CYCLE * device.board.clock_ghz * 1e3
        dram = round(board.dram_us(tile_bytes, run_bytes, paged) * per_us)
        column = round(board.column_us(tile_bytes, run_bytes) * per_us)
        channel = round(tile_bytes / device.interconnect.stream_bytes_per_cycle * TICKS_PER_CYCLE)
        return TileTicks(dram, column, channel, max(dram + column, channel))


def blocks_of(periods: int, transport: Transport, board: Board) -> list[tuple[int, int]]:
    """(periods, how many such blocks): the periods, shared out evenly between the host's interventions.

    A host that needs no time for them writes descriptors ahead, while others are in use.
    """
    interventions = max((t.pattern.descriptors for t in transport.transfers), default=1) if board.host_rewrite_us else 1
    count = min(periods, interventions)
    short, longer = divmod(periods, count)
    return [(p, n) for p, n in ((short, count - longer), (short + 1, longer)) if n]


def host_us(program: CompiledProgram, device: NpuDevice, rewrites: int) -> float:
    """The host's part of a call.

    Args:
        rewrites: how many descriptors it writes while the array runs.
    """
    return device.board.host_us(sum(tensor.bytes for tensor in program.tensors), rewrites)


def macs_of(schedules: Sequence[GroupSchedule]) -> int:
    """Multiply-accumulates of the whole program."""
    total = 0
    for group in schedules:
        macs = group.priced(macs_of_class)
        total += int(macs.sum()) * group.periods * (group.group.count // len(macs))
    return total


def macs_of_class(cls: TaskClass) -> int:
    """Multiply-accumulates of one task."""
    return sum(prod(op.shape) * (op.count or 1) for op in cls.work if op.kind == "matmul")


def peak_of(classes: Sequence[TaskClass], device: NpuDevice) -> float:
    """Multiply-accumulates per cycle of one core at most, for the element types that classes multiply."""
    peaks = [
        device.kernel_cost(*op.dtypes).peak_mac_per_cycle for cls in classes for op in cls.work if op.kind == "matmul"
    ]
    return max(peaks, default=0.0)
