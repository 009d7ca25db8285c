"""Which FIFO every stream of a folded graph becomes.

After folding, the streams of one array that lead from one node to another become one FIFO that is used in turn,
provided that their tokens are consumed in the order in which they are produced, also where one task uses several of
them; otherwise each keeps a FIFO of its own.
A FIFO inside a node is a local buffer: it holds as many tokens as its node leaves in it at one time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray
from allo_dse.program.streams import StreamArray


@dataclass(frozen=True)
class Wiring:
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

    Streams of a body that computes their numbers itself keep their own; so does an unfolded graph's every stream.

    Raises:
        SimulationError: for a stream that the program does not have, or a depth below 1.
    """
    program = vmg.program
    declared = declared_depths(program)
    for name, depth in depths.items():
        array = next((a for a in program.streams if a.name == name), None)
        if array is None:
            known = ", ".join(a.name for a in program.streams) or "none"
            raise SimulationError(f"depths: {program.name} has no stream {name!r}", hint=f"its streams: {known}")
        if depth < 1:
            raise SimulationError(f"depths: stream {name!r} cannot hold {depth} tokens", hint="a depth is at least 1")
        first = program.first_stream[name]
        declared[first : first + array.count] = depth
    computed = any(isinstance(s, StreamArray) for c in program.task_classes for s in c.body.streams)
    if vmg.node_count == vmg.task_count:
        return one_fifo_each(program, declared)
    return numbered_wiring(vmg, declared) if computed else folded_wiring(vmg, declared)


def declared_depths(program: CompiledProgram) -> IntArray:
    """The declared depth of every stream."""
    return np.repeat([array.depth for array in program.streams], [array.count for array in program.streams])


def one_fifo_each(program: CompiledProgram, depths: IntArray) -> Wiring:
    """Every stream a FIFO of its own."""
    numbers = np.arange(program.stream_count)
    arrays = np.repeat(np.arange(len(program.streams)), [array.count for array in program.streams])
    return Wiring(numbers, arrays, depths, numbers)


def numbered_wiring(vmg: VMG, depths: IntArray) -> Wiring:
    """Every stream a FIFO of its own, whose number bodies can compute; inside a node it holds all of its tokens."""
    edges, program = vmg.graph.edges, vmg.program
    wiring = one_fifo_each(program, depths)
    inside = vmg.node_of_task[edges.source] == vmg.node_of_task[edges.target]
    streams = edges.stream[inside]
    depth = wiring.depth.copy()
    np.maximum.at(depth, streams, _tokens(program, streams))
    return replace(wiring, depth=depth)


def folded_wiring(vmg: VMG, depths: IntArray) -> Wiring:
    """The FIFOs of a folded graph, `depths` giving the depth of every stream."""
    edges, program = vmg.graph.edges, vmg.program
    if not len(edges):
        return one_fifo_each(program, depths)
    position = _positions(vmg)
    source, target = vmg.node_of_task[edges.source], vmg.node_of_task[edges.target]
    put_place, get_place, single = _places(program)
    order = np.lexsort((put_place[edges.stream], position[edges.source], edges.array, target, source))
    key = np.stack([source, target, edges.array], axis=1)[order]
    new = np.concatenate(([True], (key[1:] != key[:-1]).any(axis=1)))
    consumed, taken = position[edges.target][order], get_place[edges.stream][order]
    later = (np.diff(consumed) > 0) | ((np.diff(consumed) == 0) & (np.diff(taken) > 0))
    same_task = (np.diff(edges.source[order]) == 0) | (np.diff(edges.target[order]) == 0)
    one_by_one = single[edges.stream][order]
    mixed = same_task & ~(one_by_one[1:] & one_by_one[:-1])
    # In the order of puts; one FIFO serves them if gets come in that order, too. A pair that does not splits its set.
    out_of_turn = np.concatenate(([False], (~later | mixed) & ~new[1:]))
    bundle = np.cumsum(new) - 1
    split = np.isin(bundle, bundle[out_of_turn])
    fifo_of_edge = np.cumsum(new | split) - 1
    wiring = one_fifo_each(program, depths)
    used = edges.stream[order]
    unused = np.setdiff1d(wiring.stream, used, assume_unique=True)
    first = np.flatnonzero(np.concatenate(([True], np.diff(fifo_of_edge) > 0)))
    fifo = np.empty(program.stream_count, np.int64)
    fifo[used] = fifo_of_edge
    fifo[unused] = fifo_of_edge[-1] + 1 + np.arange(len(unused))
    stream = np.concatenate([used[first], unused])
    depth = depths[stream].copy()
    inside = key[first, 0] == key[first, 1]
    depth[: len(first)][inside] = _local_depth(
        program, position, edges.source[order], edges.target[order], used, fifo_of_edge
    )[inside]
    return Wiring(fifo, wiring.array[stream], depth, stream)


def _places(program: CompiledProgram) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
    """Per stream: its place among the ports of the task that puts to it, and among those of the one that gets from it.

    Also whether it carries exactly one token: the tokens of streams that one task uses come in the order of their ports
    only if each carries one.
    """
    places = np.zeros((2, program.stream_count), np.int64)
    single = np.ones(program.stream_count, np.bool_)
    for number, kernel in enumerate(program.kernels):
        tasks = np.arange(program.first_task[number], program.first_task[number + 1])
        pids = program.pids(number, tasks)
        classes = kernel.class_of(pids)
        for cls, task_class in enumerate(kernel.classes):
            own = pids[classes == cls]
            for place, port in enumerate(task_class.stream_ports):
                streams = program.first_stream[port.stream.name] + port.index.linear(own)
                places[int(port.direction == "get"), streams] = place
                single[streams] &= port.tokens == 1
    return places[0], places[1], single


def _positions(vmg: VMG) -> IntArray:
    """Where each task stands in its node's schedule."""
    result = np.empty(vmg.task_count, np.int64)
    for group in vmg.groups:
        tasks = group.leaves.tasks()
        result[tasks] = np.arange(tasks.shape[1])[None, :]
    return result


def _local_depth(
    program: CompiledProgram, position: IntArray, source: IntArray, target: IntArray, stream: IntArray, fifo: IntArray
) -> IntArray:
    """Per FIFO, the most tokens in it at one time if its producer and consumer run on one node."""
    tokens = _tokens(program, stream)
    # A task gets before it puts: at one place of the schedule, room is made before it is taken.
    when = np.concatenate([2 * position[source] + 1, 2 * position[target]])
    change = np.concatenate([tokens, -tokens])
    of = np.concatenate([fifo, fifo])
    order = np.lexsort((when, of))
    held = np.cumsum(change[order])
    result = np.zeros(int(fifo[-1]) + 1, np.int64)
    np.maximum.at(result, of[order], held)
    return np.maximum(result, 1)


def _tokens(program: CompiledProgram, streams: IntArray) -> IntArray:
    """Tokens that one task puts to each stream; a thousand where that depends on data."""
    per_stream = np.zeros(program.stream_count, np.int64)
    for task_class in program.task_classes:
        for port in task_class.stream_ports:
            if port.direction == "put":
                first = program.first_stream[port.stream.name]
                count = 1024 if port.tokens is None else port.tokens
                view = per_stream[first : first + port.stream.count]
                np.maximum(view, count, out=view)
    return per_stream[streams]
