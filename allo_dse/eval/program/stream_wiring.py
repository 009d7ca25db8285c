"""The FIFOs of a folded graph with their depths, as engines and generated code have them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from msgspec import Struct

from allo_dse.mapper.fold.fold_fifos import tokens_of
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamArray


class Wiring(Struct, frozen=True):
    """Attributes:
    fifo: per stream of the program, the number of the FIFO that carries it.
    array: per FIFO, the position of its stream array in `program.streams`.
    depth: per FIFO, the tokens it holds.
    stream: per FIFO, one of the streams it carries (for names).
    """

    fifo: IntArray
    array: IntArray
    depth: IntArray
    stream: IntArray


def wiring_of(vmg: VMG, depths: Mapping[str, int]) -> Wiring:
    """The FIFOs of a graph; `depths` by array name, where they differ from the declared ones.

    Streams of a body that computes their numbers itself keep their own.

    Raises:
        SimulationError: for a stream that the program does not have, or a depth below 1.
    """
    program = vmg.program
    wanted = stream_depths(program, depths)
    computed = any(isinstance(s, StreamArray) for c in program.task_classes for s in c.body.streams)
    if computed:
        numbers = np.arange(program.stream_count)
        return Wiring(numbers, array_of_stream(program), _numbered_depths(vmg, wanted), numbers)
    fifos = vmg.uses.fifos
    depth = np.where(fifos.held > 0, fifos.held, wanted[fifos.stream])
    return Wiring(fifos.fifo, array_of_stream(program)[fifos.stream], depth, fifos.stream)


def stream_depths(program: CompiledProgram, depths: Mapping[str, int]) -> IntArray:
    """The depth of every stream: as declared, but `depths` of those arrays.

    Raises:
        SimulationError: as `wiring_of`.
    """
    return np.repeat(list(program.depths_with(depths).values()), [array.count for array in program.streams])


def array_of_stream(program: CompiledProgram) -> IntArray:
    """Per stream the position of its array in `program.streams`."""
    return np.repeat(np.arange(len(program.streams)), [array.count for array in program.streams])


def _numbered_depths(vmg: VMG, depths: IntArray) -> IntArray:
    """Depths of FIFOs whose numbers bodies compute: inside a node one holds all tokens of a task."""
    if vmg.node_count == vmg.task_count:
        return depths
    edges = vmg.graph.edges
    streams = edges.stream[vmg.node_of_task[edges.source] == vmg.node_of_task[edges.target]]
    np.maximum.at(depths, streams, tokens_of(vmg.program)[streams])
    return depths
