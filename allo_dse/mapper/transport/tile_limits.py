"""Limits of memory tiles and shim tiles: DMA channels, bytes, buffer descriptors, locks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from allo_dse.common.records import replace
from allo_dse.device.device import NpuDevice
from allo_dse.device.model import Tile

from ..model.movement import Transfer, Transport
from ..model.violation import Violation
from ..streams.shared_flows import FlowFamily
from .assign import ColumnLimits, assign_columns


def channel_shortages(
    inputs: Sequence[FlowFamily], outputs: Sequence[FlowFamily], limits: ColumnLimits
) -> tuple[Violation, ...]:
    """Why flows cannot be assigned to the columns: the totals that exceed the device, or else the combination."""
    columns = limits.columns
    ins, outs = tuple(len(f.flows) for f in inputs), tuple(len(f.flows) for f in outputs)
    detail = ", ".join(_summary(f) for f in (*inputs, *outputs))
    memory_tiles = _tiles("memory tile", columns)
    where = {"shim": _tiles("shim tile", columns), "switch": f"{memory_tiles} from the north", "memory": memory_tiles}
    found = tuple(
        Violation(name, where[name.split("_")[0]], needed, limit, detail)
        for name, needed, limit in limits.demands(limits.totals(ins, outs))
        if needed > limit
    )
    return found or (_uneven(ins, outs, detail, limits),)


def _uneven(ins: tuple[int, ...], outs: tuple[int, ...], detail: str, limits: ColumnLimits) -> Violation:
    """The totals fit, but not column by column: how many columns would do."""
    counts = range(limits.columns + 1, limits.columns + sum(ins) + sum(outs) + 1)
    enough = (n for n in counts if assign_columns(ins, outs, replace(limits, columns=n)) is not None)
    return Violation(
        "column_assignment",
        "the array",
        next(enough, counts[-1]),
        limits.columns,
        f"{detail}; per column {limits.shim_out} shim channels in, {limits.shim_in} out, "
        f"{limits.memory_in} memory-tile channels in, {limits.memory_out} out, {limits.joins} streams from cores",
    )


def _tiles(kind: str, count: int) -> str:
    return f"{count} {kind}{'s' if count != 1 else ''}"


def _summary(family: FlowFamily) -> str:
    tensor, count = family.port.tensor.name, len(family.flows)
    what = "input" if family.direction == "in" else "output"
    return f"{count} {what} flow{'s' if count != 1 else ''} of {tensor}"


def tile_violations(transport: Transport, device: NpuDevice) -> list[Violation]:
    """Limits of memory and shim tiles that an assigned plan exceeds, column by column."""
    found: list[Violation] = []
    for column in range(device.array.columns):
        transfers = [t for t in transport.transfers if t.column == column]
        if transfers:
            found += _column_violations(column, transfers, device)
    return found


def _column_violations(column: int, transfers: Sequence[Transfer], device: NpuDevice) -> Iterable[Violation]:
    where = f"memory tile {column}"
    staged = sum(t.staged_bytes for t in transfers)
    if staged > device.memory_tile.memory_bytes:
        detail = ", ".join(f"{t.tensor} {t.staged_bytes:,}" for t in transfers)
        yield Violation("memory_tile_memory", where, staged, device.memory_tile.memory_bytes, detail)
    yield from _descriptor_violations(where, transfers, device.memory_tile)
    locks = sum(t.locks for t in transfers)
    if locks > device.memory_tile.locks:
        yield Violation("memory_tile_locks", where, locks, device.memory_tile.locks)
    if len(transfers) > device.shim.buffer_descriptors:
        yield Violation("shim_descriptors", f"shim tile {column}", len(transfers), device.shim.buffer_descriptors)


def _descriptor_violations(where: str, transfers: Sequence[Transfer], tile: Tile) -> Iterable[Violation]:
    """Descriptors of a memory tile: a FIFO end needs one per slot, the end that flows share one per slot and flow."""
    writes = [need for transfer in transfers for need in transfer.ends("in")]
    reads = [need for transfer in transfers for need in transfer.ends("out")]
    banks = tile.descriptor_banks
    limit = tile.buffer_descriptors // banks
    if sum(writes) + sum(reads) <= limit:
        return
    needed = _fullest_bank([(writes, tile.dma_in), (reads, tile.dma_out)], banks)
    if needed > limit:
        bank = "" if banks == 1 else f"in one of {banks} banks, which channels use by turns; in all: "
        detail = bank + ", ".join(f"{t.tensor} {2 * t.depth * len(t.flows)}" for t in transfers)
        yield Violation("memory_tile_descriptors", where, needed, limit, detail)


def _fullest_bank(ends: Sequence[tuple[list[int], int]], banks: int) -> int:
    """Descriptors in the fullest bank when channels are numbered as well as possible.

    Args:
        ends: per direction the descriptors that each channel needs, and how many channels there are; channel c uses the
            descriptors of bank c modulo `banks`.
    """
    # Exact: channels differ in their banks only, so it is enough to know the load of each bank and the channels that it
    # has left; equal states are looked at once.
    loads = {(0,) * banks}
    for needs, channels in ends:
        free = tuple(len(range(bank, channels, banks)) for bank in range(banks))
        states = {(load, free) for load in loads}
        for need in needs:
            states = {
                (_plus(load, bank, need), _plus(left, bank, -1))
                for load, left in states
                for bank in range(banks)
                if left[bank]
            }
        loads = {load for load, _ in states}
    return min(max(load) for load in loads)


def _plus(values: tuple[int, ...], place: int, amount: int) -> tuple[int, ...]:
    return (*values[:place], values[place] + amount, *values[place + 1 :])
