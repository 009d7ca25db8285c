"""When a design has written, or first needs, each part of a tensor whose tiles come and go."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import SimulationError
from allo_dse.program.index_maps import IntArray
from allo_dse.program.tensors import Tensor
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.space.design import Design

from .network import fpga_network


class Passage(Struct, frozen=True):
    """How a tensor that stays in DRAM comes or goes.

    Attributes:
        cycles: by tile, in the shape of the grid of tiles: when the whole tile has been written, or when it is first
            asked for. tile_shape: of each.
        moved: tiles, as often as they come or go. lanes: elements that go in a cycle.
    """

    tensor: Tensor
    cycles: IntArray
    tile_shape: tuple[int, ...]
    moved: int
    lanes: int

    @property
    def by_element(self) -> IntArray:
        """`cycles` of the tile of each element, row-major: (elements,)."""
        spread = self.cycles
        for axis, extent in enumerate(self.tile_shape if self.cycles.ndim else ()):
            spread = spread.repeat(extent, axis)
        return np.broadcast_to(spread, self.tensor.shape).ravel()


def passages(design: Design, depths: Mapping[str, int]) -> dict[str, Passage]:
    """Those of the tensors that nodes with several tasks have in DRAM, by name. They are moved in tiles of one shape,
    and what is written goes once, and is not read.

    Args:
        depths: of the design's streams.

    Raises:
        SimulationError: if it deadlocks at these.
    """
    mapping, found = design.mapping.fpga.at(depths), {}
    if design.vmg.node_count == design.vmg.task_count or len(mapping.runs) > 1:
        return {}
    network = fpga_network(mapping, depths, logged=True)
    result = table_engine().run(network.network)
    if not result.finished:
        raise SimulationError("the design deadlocks at its stream depths")
    classes = list(design.program.task_classes)
    for name, use in mapping.streamed.items():
        ports = [port for own in classes for port in own.tensor_ports if port.tensor.name == name]
        if len(use.directions) > 1 or len({(port.tile.grid, port.tile_shape) for port in ports}) > 1:
            continue
        (does,) = use.directions
        tiles = design.vmg.uses.deliveries(name, does).tile
        ends = result.process_log(network.deliveries[name, does])
        grid, shape = ports[0].tile.grid, ports[0].tile_shape
        cycles = np.full(math.prod(grid), -1)
        # Of a tile that comes several times, the first counts; a request ends when the tile has been moved.
        cycles[tiles[::-1]] = ends[::-1] - use.cycles(math.prod(shape)) * use.reads
        if (cycles >= 0).all() and (use.reads or len(tiles) == len(cycles)):
            found[name] = Passage(use.tensor, cycles.reshape(grid), shape, len(tiles), use.lanes)
    return found
