"""Stream ports that differ in a constant of their index only, as a task has one for every chunk: looked at together."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamPort


@dataclass(frozen=True, eq=False)
class PortFamily:
    """Ports to streams of one array that are at constant distances from each other.

    Attributes:
        port: the first of them.
        members: their positions among the ports they were made from.
        steps: how far each one's stream is from the first one's: (members,).
    """

    port: StreamPort
    members: tuple[int, ...]
    steps: IntArray

    def streams(self, program: CompiledProgram, pids: IntArray) -> IntArray:
        """The numbers of the streams that tasks use: (members, tasks)."""
        first = program.first_stream[self.port.stream.name] + self.port.index.linear(pids)
        return first[None, :] + self.steps[:, None]


def port_families(ports: Sequence[StreamPort]) -> list[PortFamily]:
    """Ports by family, in the order of their first members."""
    found: dict[Hashable, list[int]] = {}
    for position, port in enumerate(ports):
        index = port.index
        key = (port.stream.name, port.direction, port.tokens, index.matrix if index.is_affine else position)
        found.setdefault(key, []).append(position)
    result = []
    for members in found.values():
        places = np.array([ports[member].index.offset for member in members], np.int64).reshape(len(members), -1)
        steps = np.zeros(len(members), np.int64)
        for dimension, extent in enumerate(ports[members[0]].index.grid if len(members) > 1 else ()):
            steps = steps * extent + places[:, dimension] - places[0, dimension]
        result.append(PortFamily(ports[members[0]], tuple(members), steps))
    return result
