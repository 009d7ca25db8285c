"""Designs that run at once on columns of their own, simulated together: they share the DRAM and wait for each other."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from allo_dse.common.errors import SimulationError
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.model.movement import Transport
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.network.tables import Table
from allo_dse.space.design import Design

from .network import Parts, add_design
from .work import TICKS_PER_CYCLE, host_us


class Part(Struct, frozen=True):
    """A design in a launch.

    Attributes:
        first_column: of those that it has.
        after: positions of the parts before it whose ends it waits for. wait_us: time from then until it is called.
        transport: how its tiles move, where that is not its mapping's own plan.
    """

    design: Design
    first_column: int
    after: tuple[int, ...]
    wait_us: float
    transport: Transport | None = None


def ends_together(parts: Sequence[Part], device: NpuDevice) -> list[float]:
    """When each part ends, in microseconds after the first could begin.

    Each design's call takes the host as long as it does alone. The host's rewrites of descriptors are part of that:
    what they interrupt alone, they do not interrupt here.

    Raises:
        SimulationError: if the designs wait for each other for ever.
    """
    built, per_us = Parts(device), TICKS_PER_CYCLE * device.board.clock_ghz * 1e3
    links = {(before, at): built.fifo(1).full for at, part in enumerate(parts) for before in part.after}
    callers = []
    for at, part in enumerate(parts):
        gates: list[tuple[int, int]] = []
        mapping = part.design.mapping
        built.gates, built.first_column, built.periods = gates, part.first_column, mapping.view.periods[0].periods
        transport = part.transport or mapping.transport
        add_design(built, mapping.view.periods, mapping.view.channels, transport)
        built.gates = None
        wait_us = part.wait_us + host_us(part.design.program, device, transport.host_rewrites)
        before = [links[one, at] for one in part.after]
        following = [stream for (one, _), stream in links.items() if one == at]
        taken, given = [*before, *(end for _, end in gates)], [*(begin for begin, _ in gates), *following]
        table = _caller(len(before), len(gates), len(following), round(wait_us * per_us))
        callers.append(built.process(table, [*taken, *given]))
    result = table_engine().run(built.build(), extrapolate=True)
    if not result.finished:
        raise SimulationError("designs of one launch wait for each other for ever")
    return [float(result.node_end[caller]) / per_us for caller in callers]


def _caller(before: int, processes: int, following: int, ticks: int) -> Table:
    """The host's part: waits for what precedes, lets all processes begin, and tells what follows when they have ended.

    Ports are those that tokens are taken from, then those into which they are put, each in that order.
    """
    table, given = Table(), before + processes
    for port in range(before):
        table.get(port)
    table.wait(ticks)
    for port in range(given, given + processes):
        table.put(port)
    for port in range(before, given):
        table.get(port)
    for port in range(given + processes, given + processes + following):
        table.put(port)
    return table
