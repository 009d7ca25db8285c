"""Which FIFO every stream of a folded graph becomes.

After folding, the streams of one array that lead from one node to another become one FIFO that is used in turn,
provided that their tokens are consumed in the order in which they are produced, also where one task uses several of
them; otherwise each keeps a FIFO of its own.
A FIFO inside a node is a local buffer: it holds as many tokens as its node leaves in it at one time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.index_maps import IntArray

from ..graph.class_tasks import tasks_by_class
from ..graph.program_graph import ProgramGraph

_UNKNOWN_TOKENS = 1024  # what a task is taken to put to a stream where that depends on data


class FoldFifos(Struct, frozen=True):
    """Attributes:
    fifo: per stream of the program, the number of the FIFO that carries it.
    stream: per FIFO, one of the streams it carries.
    held: per FIFO, the tokens that it must hold because it is a buffer within a node; 0 between nodes.
    used: per FIFO, whether tasks exchange anything through it.
    """

    fifo: IntArray
    stream: IntArray
    held: IntArray
    used: NDArray[np.bool_]


def fold_fifos(graph: ProgramGraph, position: IntArray, node_of_task: IntArray) -> FoldFifos:
    """The FIFOs of a graph; every stream has its own where each task has a node.

    Args:
        position: of each task in its node's schedule.
    """
    program, edges = graph.program, graph.edges
    if not position.any() or not len(edges):
        return _one_each(program, edges.stream)
    source, target = node_of_task[edges.source], node_of_task[edges.target]
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
    of_edge = np.cumsum(new | split) - 1
    inside = key[:, 0] == key[:, 1]
    turns = _Turns(_put_turns(graph, position)[order][inside], 2 * consumed[inside])
    return _joined(program, edges.stream[order], of_edge, inside, turns)


class _Turns(NamedTuple):
    """Per edge within a node, when in the node's schedule it is put to and got from, in half tasks."""

    put: IntArray
    got: IntArray


def _one_each(program: CompiledProgram, streams: IntArray) -> FoldFifos:
    """Every stream a FIFO of its own; `streams` are used."""
    numbers = np.arange(program.stream_count)
    used = np.zeros(program.stream_count, np.bool_)
    used[streams] = True
    return FoldFifos(numbers, numbers, np.zeros_like(numbers), used)


def _joined(
    program: CompiledProgram, streams: IntArray, of_edge: IntArray, inside: NDArray[np.bool_], turns: _Turns
) -> FoldFifos:
    """FIFOs numbered by the edges they carry; streams without an edge, which nothing uses, have the last ones."""
    used = int(of_edge[-1]) + 1
    unused = np.setdiff1d(np.arange(program.stream_count), streams, assume_unique=True)
    fifo = np.empty(program.stream_count, np.int64)
    fifo[streams] = of_edge
    fifo[unused] = used + np.arange(len(unused))
    first = np.flatnonzero(np.concatenate(([True], np.diff(of_edge) > 0)))
    held = np.zeros(used + len(unused), np.int64)
    numbers = of_edge[inside]
    np.maximum.at(held, numbers, 1)
    when = np.concatenate([turns.put, turns.got])
    tokens = tokens_of(program)[streams[inside]]
    change, of = np.concatenate([tokens, -tokens]), np.concatenate([numbers, numbers])
    in_time = np.lexsort((when, of))
    np.maximum.at(held, of[in_time], np.cumsum(change[in_time]))
    return FoldFifos(fifo, np.concatenate([streams[first], unused]), held, np.arange(len(held)) < used)


def _places(program: CompiledProgram) -> tuple[IntArray, IntArray, NDArray[np.bool_]]:
    """Per stream: its place among the ports of the task that puts to it, and among those of the one that gets from it.

    Also whether it carries exactly one token: the tokens of streams that one task uses come in the order of their ports
    only if each carries one.
    """
    places = np.zeros((2, program.stream_count), np.int64)
    single = np.ones(program.stream_count, np.bool_)
    for task_class, _, pids in tasks_by_class(program):
        for place, port in enumerate(task_class.stream_ports):
            streams = program.first_stream[port.stream.name] + port.index.linear(pids)
            places[int(port.direction == "get"), streams] = place
            single[streams] &= port.tokens == 1
    return places[0], places[1], single


def _put_turns(graph: ProgramGraph, position: IntArray) -> IntArray:
    """Per edge, when it is put to: after the task's gets, which make room, unless the task puts first."""
    edges = graph.edges
    return 2 * position[edges.source] + 1 - 2 * graph.early_puts[edges.stream]


def tokens_of(program: CompiledProgram) -> IntArray:
    """Tokens that one task puts to each stream; a thousand where that depends on data."""
    per_stream = np.zeros(program.stream_count, np.int64)
    for task_class in program.task_classes:
        for port in task_class.stream_ports:
            if port.direction == "put":
                first = program.first_stream[port.stream.name]
                count = _UNKNOWN_TOKENS if port.tokens is None else port.tokens
                view = per_stream[first : first + port.stream.count]
                np.maximum(view, count, out=view)
    return per_stream
