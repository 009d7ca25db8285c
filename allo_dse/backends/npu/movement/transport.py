"""Limits of memory tiles and shim tiles: DMA channels, bytes, buffer descriptors, locks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from allo_dse.common.records import replace
from allo_dse.device.device import NpuDevice
from allo_dse.device.npu_model import Tile
from allo_dse.mapper.violation import Buffering, Violation

from .access import access_pattern
from .assignment import ColumnLimits, Share, assign_columns
from .flows import FlowFamily, plan_flows
from .layout_plan import layouts_on
from .movement import Flow, Transfer, Transport
from .view import MappingView


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
    if found:
        return found
    # The totals fit, but not column by column: how many columns would do?
    counts = range(columns + 1, columns + sum(ins) + sum(outs) + 1)
    enough = (n for n in counts if assign_columns(ins, outs, replace(limits, columns=n)) is not None)
    detail += (
        f"; per column {limits.shim_out} shim channels in, {limits.shim_in} out, "
        f"{limits.memory_in} memory-tile channels in, {limits.memory_out} out, {limits.joins} streams from cores"
    )
    return (Violation("column_assignment", "the array", next(enough, counts[-1]), columns, detail),)


def _tiles(kind: str, count: int) -> str:
    return f"{count} {kind}{'s' if count != 1 else ''}"


def _summary(family: FlowFamily) -> str:
    tensor, count = family.port.tensor.name, len(family.flows)
    what = "input" if family.direction == "in" else "output"
    return f"{count} {what} flow{'s' if count != 1 else ''} of {tensor}"


def tile_violations(transport: Transport, device: NpuDevice) -> Iterable[Violation]:
    """Yield limits of memory and shim tiles that an assigned plan exceeds, column by column."""
    memory, shim_descriptors = device.memory_tile, device.shim.buffer_descriptors
    for column in range(device.array.columns):
        transfers = [t for t in transport.transfers if t.column == column]
        where = f"memory tile {column}"
        staged = sum(t.staged_bytes for t in transfers)
        if staged > memory.memory_bytes:
            detail = ", ".join(f"{t.tensor} {t.staged_bytes:,}" for t in transfers)
            yield Violation("memory_tile_memory", where, staged, memory.memory_bytes, detail)
        yield from _descriptor_violations(where, transfers, memory)
        locks = sum(t.locks for t in transfers)
        if locks > memory.locks:
            yield Violation("memory_tile_locks", where, locks, memory.locks)
        if len(transfers) > shim_descriptors:
            yield Violation("shim_descriptors", f"shim tile {column}", len(transfers), shim_descriptors)


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
    # Exact: channels differ only in their banks, so the load and the free channels of each bank are a complete state.
    # Equal states are visited once.
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


# The transport plan assigns tiles to channels within the device's limits:
#
#     plan_transport(MappingView(vmg), device, Buffering())  # Transport: flows, transfers, violations


def plan_transport(view: MappingView, device: NpuDevice, buffering: Buffering) -> Transport:
    """Plan how tiles move between DRAM and the nodes of a folded graph.

    Every tensor port's tiles pass through a memory tile. Nodes that take the same tiles in the same order share a flow;
    flows of a tensor share shim channels when there are more flows than channels (inputs), or always (outputs of one
    column). When no assignment keeps the limits, `violations` says why and transfers have no column.

    Meant for mappings that fit the device's tiles; the work grows with nodes and ports, not with tasks, in a mesh fold.
    """
    families = plan_flows(view.vmg.program, view.groups, view.declared_links.between, buffering)
    inputs = [family for family in families if family.direction == "in"]
    outputs = [family for family in families if family.direction == "out"]
    limits = column_limits(device)
    shares = assign_columns(tuple(len(f.flows) for f in inputs), tuple(len(f.flows) for f in outputs), limits)
    violations: tuple[Violation, ...] = ()
    if shares is None:
        violations = channel_shortages(inputs, outputs, limits)
        parts: list[Part] = [(family, (flow,), -1) for family in families for flow in family.flows]
    else:
        parts = _shared_out(shares, inputs, outputs)
    transfers = tuple(_transfer(index, *part, device, buffering) for index, part in enumerate(parts))
    flows = tuple(flow for family in families for flow in family.flows)
    return Transport(flows, transfers, violations, layouts_on(view.vmg.graph, device))


def column_limits(device: NpuDevice) -> ColumnLimits:
    """DMA channels that each column has for transfers."""
    shim, memory = device.shim, device.memory_tile
    wires = device.interconnect
    joins = min(wires.core.south[0], wires.memory_tile.north[1])
    return ColumnLimits(device.array.columns, shim.dma_in, shim.dma_out, memory.dma_in, memory.dma_out, joins)


Part = tuple[FlowFamily, tuple[Flow, ...], int]


def _shared_out(shares: tuple[Share, ...], inputs: list[FlowFamily], outputs: list[FlowFamily]) -> list[Part]:
    """Family, flows and column of each share; a family's flows go to its shares in the order of tiles."""
    taken: dict[int, int] = {}
    result = []
    for share in shares:
        family = (inputs if share.direction == "in" else outputs)[share.family]
        start = taken.get(id(family), 0)
        taken[id(family)] = start + share.flows
        result.append((family, family.flows[start : start + share.flows], share.column))
    return result


def _transfer(
    index: int,
    family: FlowFamily,
    flows: tuple[Flow, ...],
    column: int,
    device: NpuDevice,
    buffering: Buffering,
) -> Transfer:
    first = flows[0]
    starts = tuple(flow.first_byte - first.first_byte for flow in flows)
    return Transfer(
        index=index,
        tensor=first.tensor,
        direction=first.direction,
        flows=tuple(flow.index for flow in flows),
        column=column,
        tile_bytes=first.tile_bytes,
        run_bytes=first.run_bytes,
        moves=first.moves,
        depth=buffering.memory_tile_depth,
        pattern=access_pattern(family.port, family.pattern.nest, family.pattern.moves, starts, device.shim.descriptor),
    )
