"""A folded graph on the array: its scratchpads and links, and the limits that it exceeds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import TaskClass
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.device.device import Device
from allo_dse.eval.token_exchange import exchange_depths, stream_deadlock
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.violation import Violation
from allo_dse.space.design import Design

from .device import CgraDevice


@dataclass(frozen=True, eq=False)
class CgraMapping:
    """A folded graph on the array; immutable, and everything is computed when first asked for."""

    vmg: VMG
    device: CgraDevice

    @staticmethod
    def of(design: Design) -> CgraMapping:
        """Return the mapping of a design."""
        assert isinstance(design.mapping, CgraMapping)
        return design.mapping

    def on(self, device: Device) -> CgraMapping:
        """Return the mapping on another array."""
        return replace(self, device=CgraDevice.of(device))

    @property
    def facts(self) -> dict[str, int]:
        """Metrics that need no evaluator."""
        return {"local_memory_bytes": int(self.scratchpad_bytes.max())}

    @property
    def early_violations(self) -> tuple[Violation, ...]:
        """More nodes than elements, which is known at once."""
        nodes, limit = self.vmg.node_count, self.device.max_nodes
        return (Violation("elements", self.device.name, nodes, limit),) if nodes > limit else ()

    @cached_property
    def violations(self) -> tuple[Violation, ...]:
        """All limits that the mapping exceeds."""
        found = self.early_violations or tuple(self._of_elements())
        # Designs that are rejected anyway need no search for deadlocks.
        return found or tuple(stream_deadlock(exchange_depths(self.vmg)))

    def _of_elements(self) -> Iterator[Violation]:
        peers = int(self.peers.max())
        if peers > self.device.links:
            yield Violation("links", "an element", peers, self.device.links)
        needed = int(self.scratchpad_bytes.max())
        if needed > self.device.scratchpad_bytes:
            yield Violation("scratchpad", "an element", needed, self.device.scratchpad_bytes)

    @cached_property
    def peers(self) -> IntArray:
        """The number of other nodes that each node exchanges tokens with."""
        edges, node = self.vmg.graph.edges, self.vmg.node_of_task
        pairs = np.sort(np.stack([node[edges.source], node[edges.target]], axis=1), axis=1)
        between = np.unique(pairs[pairs[:, 0] != pairs[:, 1]], axis=0)
        return np.bincount(between.ravel(), minlength=self.vmg.node_count)

    @cached_property
    def scratchpad_bytes(self) -> IntArray:
        """Bytes that each node holds: a tile of every tensor that its tasks use, and the FIFOs that it reads."""
        tiles: dict[tuple[int, str], int] = {}
        for task, task_class in enumerate(self.vmg.graph.once(classes_by_task)):
            for port in task_class.used_ports:
                key = int(self.vmg.node_of_task[task]), port.tensor.name
                tiles[key] = max(tiles.get(key, 0), port.tile_bytes)
        held = np.zeros(self.vmg.node_count, np.int64)
        for (node, _), size in tiles.items():
            held[node] += size
        program, edges, fifos = self.vmg.program, self.vmg.graph.edges, self.vmg.uses.fifos
        token_bytes = np.array([stream.token_bytes for stream in program.streams], np.int64)
        _, first = np.unique(fifos.fifo[edges.stream], return_index=True)
        streams = edges.stream[first]
        sizes = self.depths[fifos.fifo[streams]] * token_bytes[program.arrays_of(streams)]
        np.add.at(held, self.vmg.node_of_task[edges.target[first]], sizes)
        return held

    @cached_property
    def depths(self) -> IntArray:
        """Tokens that each FIFO holds: between nodes as declared, inside a node as many as wait there."""
        fifos, program = self.vmg.uses.fifos, self.vmg.program
        declared = np.array([stream.depth for stream in program.streams], np.int64)
        deeper = exchange_depths(self.vmg)
        for number, stream in enumerate(program.streams):
            declared[number] = deeper.depth.get(stream.name, stream.depth) if deeper is not None else stream.depth
        return np.where(fifos.held > 0, fifos.held, declared[program.arrays_of(fifos.stream)])


def classes_by_task(graph: ProgramGraph) -> list[TaskClass]:
    """Return the class of every task; kept with the program's graph, since all folds share it."""
    found: dict[int, TaskClass] = {}
    for own in graph.class_tasks:
        found.update(dict.fromkeys(own.tasks.tolist(), own.task_class))
    return [found[task] for task in range(graph.program.task_count)]
