"""Copies of tensors between DRAM and the chip, as processes of a design's network."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from allo_dse.mapper.graph.class_tasks import tasks_by_class
from allo_dse.mapper.limits.fpga import FpgaCosts
from allo_dse.mapper.limits.fpga_schedule import TensorUse
from allo_dse.program.index_maps import IntArray
from allo_dse.program.tensors import TensorPort, ends_of
from allo_dse.simulator.codegen.run_time.record_fields import Code
from allo_dse.simulator.network.network import NetworkBuilder
from allo_dse.simulator.network.tables import Table

Does = Literal["reads", "writes"]
_Step = tuple[IntArray, Code, IntArray | int, IntArray | int]
"""Operations of one kind: what they belong to, their code, ports and cycles."""

_NO_PIECE = 1 << 62
"""There are fewer."""


class TensorCopies:
    """The processes that copy tensors, and the streams on which they and tasks hear of one another.

    Of a tensor that is copied as a whole, a node hears that its tiles are all there, and says when it has written the
    last of its results. Of one that stays in DRAM, a node has a FIFO for one tile.

    Args:
        logged: processes that deliver tiles log when each has been moved.

    Attributes:
        arrived, done: by tensor, the stream on which each node hears that its tiles are there, and on which it says
            that its results are; -1 where it has none: (nodes,).
        fifo: by tensor and what is done with it, the streams of each node that say whether there is room, and whether
            there is a tile: (2, nodes).
        deliveries: the processes that move tiles of tensors that stay in DRAM.
    """

    def __init__(self, mapping: FpgaCosts, builder: NetworkBuilder, *, logged: bool = False) -> None:
        self._mapping = mapping
        self._builder = builder
        self._logged = logged
        self._last_read: dict[str, IntArray] = {}
        self._first_written: dict[str, IntArray] = {}
        self._find_pieces()
        self.arrived = {name: self._streams(last >= 0)[0] for name, last in self._last_read.items()}
        self.done = {name: self._streams(first < _NO_PIECE)[0] for name, first in self._first_written.items()}
        self.fifo = {key: self._streams(used, 2) for key, used in self._using_nodes().items()}
        self.deliveries: dict[tuple[str, str], int] = {}

    def _ports(self, place: str) -> Iterator[tuple[TensorPort, IntArray, IntArray]]:
        """The ports of tensors in one place, with the nodes and the process ids of the tasks that use them."""
        vmg, names = self._mapping.vmg, {use.tensor.name for use in self._mapping.tensors if use.place == place}
        for task_class, tasks, pids in tasks_by_class(vmg.program):
            for port in task_class.tensor_ports:
                if port.tensor.name in names:
                    yield port, vmg.node_of_task[tasks], pids

    def _find_pieces(self) -> None:
        """Which is the last of the pieces that nodes read, and the first of those they write, in the order in which
        they are copied."""
        count, grids = self._mapping.vmg.node_count, self._mapping.shared.pieces.grids
        for port, nodes, pids in self._ports("auto"):
            name = port.tensor.name
            first, last = ends_of(port, pids, grids[name])
            if port.reads:
                np.maximum.at(self._last_read.setdefault(name, np.full(count, -1)), nodes, last)
            if port.writes:
                np.minimum.at(self._first_written.setdefault(name, np.full(count, _NO_PIECE)), nodes, first)

    def _using_nodes(self) -> dict[tuple[str, str], NDArray[np.bool_]]:
        """Which nodes use the tensors that stay in DRAM."""
        found: dict[tuple[str, str], NDArray[np.bool_]] = {}
        for port, nodes, _ in self._ports("dram"):
            for does in ("reads", "writes"):
                if getattr(port, does):
                    key = port.tensor.name, does
                    found.setdefault(key, np.zeros(self._mapping.vmg.node_count, bool))[nodes] = True
        return found

    def _streams(self, used: NDArray[np.bool_], each: int = 1) -> IntArray:
        """New streams for these nodes, which hold one token: (each, nodes)."""
        found = np.full((each, len(used)), -1)
        found[:, used] = self._builder.streams(np.ones(each * used.sum(), np.int64)).reshape(each, -1)
        return found

    def movers(self) -> tuple[int, ...]:
        """Add the processes; tensors beyond the number of AXI ports share them in turn."""
        external = self._mapping.device.external
        uses = [use for use in self._mapping.tensors if not use.onchip]
        ports = [self._builder.resource() for _ in range(min(external.ports, len(uses)))]
        numbers = []
        for position, use in enumerate(uses):
            port = ports[external.port_of(position)]
            move = self.deliver if use.place == "dram" else self._copy
            numbers += [move(use, does, port) for does in use.directions]
        return tuple(numbers)

    def deliver(self, use: TensorUse, does: Does, port: int) -> int:
        """Tiles of a tensor that stays in DRAM, on their way turn by turn."""
        vmg, streams = self._mapping.vmg, self.fifo[use.tensor.name, does]
        tiles, nodes = vmg.uses.deliveries(use.tensor.name, does), np.flatnonzero(streams[0] >= 0)
        place = np.searchsorted(nodes, vmg.node_of_task[tiles.task])
        number, place = np.divmod(np.unique(tiles.number * len(nodes) + place), len(nodes))
        room, tile = place, place + len(nodes)
        words, of = np.unique(tiles.words, return_inverse=True)
        cycles = np.array([use.cycles(one) for one in words.tolist()], np.int64)[of]
        request: _Step = np.arange(len(of)), Code.REQUEST, 0, cycles
        if does == "reads":
            steps: list[_Step] = [(number, Code.PUT, room, 0), request, (number, Code.PUT, tile, 0)]
        else:
            steps = [(number, Code.GET, tile, 0), request, (number, Code.GET, room, 0)]
        process = self._process(does, steps, streams[:, nodes].ravel(), port, logged=self._logged)
        self.deliveries[use.tensor.name, does] = process
        return process

    def _copy(self, use: TensorUse, does: Does, port: int) -> int:
        """A whole tensor, piece by piece; nodes are told of the last of theirs, or tell of their first."""
        name, pieces = use.tensor.name, self._mapping.shared.pieces
        streams, ends = (self.arrived, self._last_read) if does == "reads" else (self.done, self._first_written)
        nodes = np.flatnonzero(streams[name] >= 0)
        moved: IntArray = getattr(pieces, does)[name]
        request: _Step = moved, Code.REQUEST, 0, use.cycles(pieces.words[name])
        code = Code.PUT if does == "reads" else Code.GET
        told: _Step = ends[name][nodes], code, np.arange(len(nodes)), 0
        steps = [request, told] if does == "reads" else [told, request]
        return self._process(does, steps, streams[name][nodes], port)

    def _process(
        self, does: Does, steps: Sequence[_Step], streams: IntArray, port: int, *, logged: bool = False
    ) -> int:
        """A process that does, of all that belongs to one tile or piece, step after step, and then of the next."""
        belongs = np.concatenate([own for own, *_ in steps])
        rows, at = np.zeros((len(belongs), 4), np.int64), 0
        for own, code, ports, cycles in steps:
            part = rows[at : at + len(own)]
            part[:, 0], part[:, 1], part[:, 2], part[:, 3] = code, ports, cycles, logged and code == Code.REQUEST
            at += len(own)
        table, latency_cycles = Table(), self._mapping.device.external.latency_cycles
        if does == "reads":
            table.wait(latency_cycles)
        table.add(rows[np.argsort(belongs, kind="stable")])
        if does == "writes":
            table.wait(latency_cycles)
        return self._builder.process(table, streams.tolist(), [port], log=len(table) if logged else 0)
