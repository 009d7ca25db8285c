"""Tasks that put to and get from each stream, read off a network's tables and task arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import SimulationError

from ..codegen.signature import Signature
from ..run_time.records import Code, Op
from .network import IntArray, Network, Processes, Tasks

UNKNOWN = -1


class Ends(Struct, frozen=True):
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
    for first, group in network.numbered_groups:
        uses = _task_uses(group, signatures[group.body]) if isinstance(group, Tasks) else _process_uses(network, group)
        for is_put, tasks, streams in uses:
            _note(network, producer if is_put else consumer, first + tasks, streams, "put to" if is_put else "get from")
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
    for column, parameter in zip(signature.columns, signature.parameters, strict=True):
        if parameter.is_stream:
            for is_put in [False] * parameter.gets + [True] * parameter.puts:
                yield is_put, tasks, group.words[:, column]


def _process_uses(network: Network, group: Processes) -> Iterator[tuple[bool, IntArray, IntArray]]:
    """The stream operations of table processes, each once per table and process."""
    rows = network.rows.reshape(-1, Op.SIZE)
    code, port = rows[:, Op.CODE], rows[:, Op.OPERAND]
    table = np.cumsum(code == Code.HALT) - (code == Code.HALT)
    for which in (Code.GET, Code.PUT):
        found = np.flatnonzero(code == which)
        if not len(found):
            continue
        ports = int(port[found].max()) + 1
        # Processes share tables: examine operations once per table and port, then distribute them to processes.
        used = np.unique(table[found] * ports + port[found])
        first = np.searchsorted(used, np.arange(table[-1] + 2) * ports)
        of_task = table[group.first_row]
        begin, count = first[of_task], first[of_task + 1] - first[of_task]
        tasks = np.repeat(np.arange(len(of_task)), count)
        place = np.arange(len(tasks)) - np.repeat(np.cumsum(count) - count, count) + begin[tasks]
        yield which == Code.PUT, tasks, network.stream_ports[group.first_stream[tasks] + used[place] % ports]
