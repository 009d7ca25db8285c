"""The transport plan: which tiles move over which channels, decided from the folded graph and the device's limits.

plan_transport(MappingView(vmg), device, Buffering())       # Transport: flows, transfers, violations
"""

from __future__ import annotations

from allo_dse.device.device import NpuDevice

from ..layouts.access import access_pattern
from ..layouts.layout_plan import layouts_on
from ..model.buffering import Buffering
from ..model.movement import Flow, Transfer, Transport
from ..model.violation import Violation
from ..streams.shared_flows import FlowFamily, plan_flows
from ..streams.view import MappingView
from .assign import ColumnLimits, Share, assign_columns
from .tile_limits import channel_shortages


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
