"""When the second of two kernels ends that stream to each other: both simulated together, against what is composed."""

from __future__ import annotations

import itertools
from typing import Literal

import numpy as np
import pytest

from allo_dse.backends.fpga.bound_times import passages
from allo_dse.backends.fpga.launches import TOKEN_CYCLES, lag_cycles
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.backends.fpga.network import TensorCopies, add_tasks, fpga_network
from allo_dse.backends.fpga.shared_costs import TensorUse
from allo_dse.eval.execute.run import wiring_of
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.network.network import NetworkBuilder
from allo_dse.simulator.network.tables import Table
from allo_dse.space.design import Design

from .test_kernel_streams import FIRST, SECOND, of, sent
from .test_tensors_in_dram import U280

SOURCES = [(1, 1, 1), (1, 1, 3), (2, 1, 1), (2, 2, 1), (4, 1, 3)]
TARGETS = [(1, 1, 1), (2, 1, 1), (1, 2, 2), (2, 4, 1), (1, 1, 4)]


class Streaming(TensorCopies):
    """A kernel whose result goes to a stream of tiles, or that takes as many of these as a tile of `A` needs.

    Attributes:
        needed: before each tile that is loaded, how many must have come; of a kernel that sends nothing.
    """

    def __init__(self, mapping: FpgaMapping, builder: NetworkBuilder, tiles: int, needed: tuple[int, ...]) -> None:
        super().__init__(mapping, builder)
        self.builder, self.nodes = builder, mapping.vmg.node_of_task
        self.uses = mapping.vmg.uses
        self.tiles, self.needed = tiles, needed
        wiring = wiring_of(mapping.vmg, {})
        task = add_tasks(mapping, builder, builder.streams(wiring.depth)[wiring.fifo], self)
        for mover in self.movers():
            builder.node([mover])
        for tasks in (group.leaves.tasks() for group in mapping.vmg.groups):
            builder.nodes(task[tasks].ravel(), np.full(len(tasks), tasks.shape[1], np.int64))

    def deliver(self, use: TensorUse, does: Literal["reads", "writes"], port: int) -> int:
        if use.tensor.name != ("A" if self.needed else "C"):
            return super().deliver(use, does, port)
        table, came, streams = Table(), 0, self.fifo[use.tensor.name, does]
        count, moved = streams.shape[1], self.uses.deliveries(use.tensor.name, does)
        bound = [*np.where(streams < 0, self.tiles, streams).ravel().tolist(), self.tiles]
        for number, words in enumerate(moved.words.tolist()):
            nodes = self.nodes[moved.task[moved.number == number]].tolist()
            for node in nodes:
                (table.put if self.needed else table.get)(node if self.needed else node + count)
            for _ in range(came, self.needed[number] if self.needed else came):
                table.get(2 * count)
                table.wait(TOKEN_CYCLES)
                came += 1
            table.request(0, use.cycles(words))
            if not self.needed:
                table.put(2 * count)
            for node in nodes:
                (table.put if self.needed else table.get)(node + count if self.needed else node)
        return self.builder.process(table, bound, [port])


def alone(design: Design) -> int:
    return int(table_engine().run(fpga_network(FpgaMapping.of(design), {}).network).cycles)


@pytest.mark.parametrize(("one", "other"), list(itertools.product(SOURCES, TARGETS)))
def test_kernels_that_stream_end_no_later_than_composed(one: tuple[int, int, int], other: tuple[int, int, int]) -> None:
    source, target = of(FIRST, one), of(SECOND, other)
    arrival, written, read = sent(source), passages(source, {})["C"], passages(target, {})["A"]
    places = np.arange(read.tensor.bytes // 4).reshape(read.tensor.shape)
    first = places[tuple(slice(None, None, extent) for extent in read.tile_shape)].ravel()
    moves = [(read.tile_shape, int(first[tile])) for tile in target.vmg.uses.deliveries("A", "reads").tile]
    asked = np.array(arrival.asked(moves, read.tensor.strides))
    needed = tuple(int((asked <= number).sum()) for number in range(len(moves)))
    builder = NetworkBuilder()
    tiles = builder.stream(written.moved, latency=U280.external.latency_cycles)
    Streaming(FpgaMapping.of(source), builder, tiles, ())
    Streaming(FpgaMapping.of(target), builder, tiles, needed)
    result = table_engine().run(builder.build())
    assert max(result.left.values(), default=0) == 0
    lag = lag_cycles(U280, written, read)
    composed = max(alone(source), lag + alone(target))
    assert result.finished
    assert 0.9 * composed < result.cycles <= composed
    assert lag <= alone(source) + TOKEN_CYCLES * written.moved
