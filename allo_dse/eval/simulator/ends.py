"""Which task puts to each stream and which gets from it, read off a network's tables and task arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from ...errors import SimulationError
from ...ir.layout import Code, Op
from ...ir.signature import Signature
from .network import IntArray, Network, Processes, Tasks

UNKNOWN = -1


@dataclass(frozen=True)
class Ends:
    """Per stream the task at each end, or `UNKNOWN`."""

    producer: IntArray
    consumer: IntArray


def stream_ends(network: Network, signatures: Mapping[str, Signature]) -> Ends:
    """The tasks at the ends of all streams.

    A body that computes a stream's number leaves it unknown unless the network says who it is (`NetworkBuilder.ends`).

    Raises:
        SimulationError: if tasks of two nodes put to one stream, or get from one.
    """
    producer, consumer = network.producer.copy(), network.consumer.copy()
    first = 0
    for group in network.groups:
        uses = _task_uses(group, signatures[group.body]) if isinstance(group, Tasks) else _process_uses(network, group)
        for is_put, tasks, streams in uses:
            _note(network, producer if is_put else consumer, first + tasks, streams, "put to" if is_put else "get from")
        first += len(group.words) if isinstance(group, Tasks) else len(group.first_row)
    return Ends(producer, consumer)


def _note(network: Network, ends: IntArray, tasks: IntArray, streams: IntArray, does: str) -> None:
    known = ends[streams]
    node = network.task_node
    clash = (known != UNKNOWN) & (node[known] != node[tasks])
    ends[streams] = tasks
    clash |= node[ends[streams]] != node[tasks]
    if clash.any():
        raise SimulationError(
            f"several nodes {does} stream {int(streams[clash][0])}",
            hint="a stream connects one task that puts with one that gets",
        )


def _task_uses(group: Tasks, signature: Signature) -> Iterator[tuple[bool, IntArray, IntArray]]:
    tasks = np.arange(len(group.words))
    for column, parameter in zip(signature.columns(), signature.parameters, strict=True):
        if parameter.is_stream:
            for is_put in [False] * parameter.gets + [True] * parameter.puts:
                yield is_put, tasks, group.words[:, column]


def _process_uses(network: Network, group: Processes) -> Iterator[tuple[bool, IntArray, IntArray]]:
    """Per table its stream operations, for all processes that run it."""
    rows = network.rows.reshape(-1, Op.SIZE)
    halts = np.flatnonzero(rows[:, Op.CODE] == Code.HALT)
    for start in np.unique(group.first_row):
        tasks = np.flatnonzero(group.first_row == start)
        end = halts[np.searchsorted(halts, start)]
        for code, port in {(row[Op.CODE], row[Op.OPERAND]) for row in rows[start:end].tolist()}:
            if code in (Code.GET, Code.PUT):
                yield code == Code.PUT, tasks, network.stream_ports[group.first_stream[tasks] + port]
