"""When the second of two kernels ends that stream to each other: both simulated together, against what is composed."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest

from allo_dse.common.records import replace
from allo_dse.dnn.streams import TOKEN_CYCLES, lag_cycles
from allo_dse.eval.fpga.network import _Bound, _Builder, fpga_network
from allo_dse.eval.fpga.passages import passages
from allo_dse.eval.program.stream_wiring import wiring_of
from allo_dse.mapper.limits.fpga import FpgaCosts
from allo_dse.mapper.limits.fpga_schedule import TensorUse
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.network.network import NetworkBuilder
from allo_dse.simulator.network.tables import Table
from allo_dse.space.design import Design

from .test_kernel_streams import FIRST, SECOND, of, sent
from .test_tensors_in_dram import U280

SOURCES = [(1, 1, 1), (1, 1, 3), (2, 1, 1), (2, 2, 1), (4, 1, 3)]
TARGETS = [(1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 4, 1), (1, 1, 4)]


class Streaming(_Builder):
    """A kernel whose result goes to a stream of tiles, or that takes as many of these as a tile of `A` needs.

    Attributes:
        needed: before each tile that is loaded, how many must have come; of a kernel that sends nothing.
    """

    def __init__(self, mapping: FpgaCosts, builder: NetworkBuilder, tiles: int, needed: tuple[int, ...]) -> None:
        wiring = wiring_of(mapping.vmg, {})
        numbers = builder.streams(wiring.depth)
        super().__init__(mapping, builder, replace(wiring, fifo=numbers[wiring.fifo]), False)
        self.tiles, self.needed = tiles, needed
        task, groups = self.tasks(), mapping.vmg.groups
        for mover in self.movers():
            builder.node([mover])
        for tasks in (group.leaves.tasks() for group in groups):
            builder.nodes(task[tasks].ravel(), np.full(len(tasks), tasks.shape[1], np.int64))

    def _deliver(self, use: TensorUse, does: Literal["reads", "writes"], port: int) -> int:
        if use.tensor.name != ("A" if self.needed else "C"):
            return super()._deliver(use, does, port)
        table, bound, came = Table(), _Bound(), 0
        for number, one in enumerate(self._mapping.vmg.uses.deliveries(use.tensor.name, does)):
            fifos = [self._fifo(use.tensor.name, does, int(self._node_of_task[task])) for task in one.tasks]
            for room, tile in fifos:
                (table.put if self.needed else table.get)(bound.port(room if self.needed else tile))
            for _ in range(came, self.needed[number] if self.needed else came):
                table.get(bound.port(self.tiles))
                table.wait(TOKEN_CYCLES)
                came += 1
            table.request(0, use.cycles(one.words))
            if not self.needed:
                table.put(bound.port(self.tiles))
            for room, tile in fifos:
                (table.put if self.needed else table.get)(bound.port(tile if self.needed else room))
        return self._builder.process(table, list(bound.numbers), [port])


def alone(design: Design) -> int:
    return int(table_engine().run(fpga_network(design.mapping.fpga, {}).network).cycles)


@pytest.mark.parametrize(("one", "other"), list(itertools.product(SOURCES, TARGETS)))
def test_kernels_that_stream_end_no_later_than_composed(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    source, target = of(FIRST, one), of(SECOND, other)
    arrival, written, read = sent(source), passages(source, {})["C"], passages(target, {})["A"]
    places = np.arange(read.tensor.bytes // 4).reshape(read.tensor.shape)
    first = places[tuple(slice(None, None, extent) for extent in read.tile_shape)].ravel()
    moves = [(read.tile_shape, int(first[tile.tile])) for tile in target.vmg.uses.deliveries("A", "reads")]
    asked = np.array(arrival.asked(moves, read.tensor.strides))
    needed = tuple(int((asked <= number).sum()) for number in range(len(moves)))
    builder = NetworkBuilder()
    tiles = builder.stream(written.moved, latency=U280.external.latency_cycles)
    Streaming(source.mapping.fpga, builder, tiles, ())
    Streaming(target.mapping.fpga, builder, tiles, needed)
    result = table_engine().run(builder.build())
    assert max(result.left.values(), default=0) == 0
    lag = lag_cycles(U280, written, read)
    composed = max(alone(source), lag + alone(target))
    assert result.finished
    assert 0.9 * composed < result.cycles <= composed
    assert lag <= alone(source) + TOKEN_CYCLES * written.moved
