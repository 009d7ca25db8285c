"""The run-time image of a network: one array of 64-bit words that compiled code works on (`run_time.record_fields`)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partialmethod

import numpy as np

from ..run_time.records import WORD, Entry, Header, Node, Process, Resource, Slot, Stream, entry_words
from .network import IntArray, Network, Processes, Tasks

ALIGNMENT = 64 // WORD
LONG_AGO = -(2**40)
"""Time stamp of the tokens a stream starts with."""
NO_ANCHOR = 1


class Arena:
    """Memory of one run; attributes are views, one row per record.

    Attributes:
        base: address of the header.
        header, streams, nodes, slots, resources, processes: the records. Slots are in order of execution, node after
            node; processes are those of table processes.
        rings: the entries of all streams. ring_first: where each stream's begin; ring_words: words per entry.
        heap: nodes that wait for resources.
        log: clocks that table processes noted; `log_first` says where each process group's entries begin.
    """

    def __init__(self, network: Network, bodies: IntArray) -> None:
        """Make the image of a network; `bodies` numbers each task's body, 0 for table processes."""
        queue = 1 << max(0, network.node_count - 1).bit_length()
        processes = [g for g in network.groups if isinstance(g, Processes)]
        sizes = {
            "header": int(Header.SIZE),
            "streams": network.stream_count * Stream.SIZE,
            "nodes": network.node_count * Node.SIZE,
            "slots": network.task_count * Slot.SIZE,
            "resources": network.resources * Resource.SIZE,
            "processes": sum(map(len, processes)) * Process.SIZE,
            "queue": queue,
            "heap": network.node_count,
            "stream_ports": len(network.stream_ports),
            "resource_ports": len(network.resource_ports),
            "log": sum(int(g.log_limit.sum()) for g in processes),
        }
        self._begin: dict[str, IntArray] = {}
        self._allocate(sizes)
        self._fill_slots(network, bodies)
        self._start(network)

    def copied(self) -> dict[str, IntArray]:
        """Return the contents of each part of this memory, by name."""
        return {name: part.copy() for name, part in vars(self).items() if isinstance(part, np.ndarray)}

    def again(self, network: Network) -> Arena:
        """Begin another run of the same network, in the same memory."""
        self._begin = self._begin or self.restart(network).copied()
        for name, part in self._begin.items():
            vars(self)[name][:] = part
        return self

    def restart(self, network: Network) -> Arena:
        """Begin a run of the same network at other depths and with other initial tokens, in the same memory."""
        for part in (self.header, self.streams, self.nodes, self.resources):
            part[:] = 0
        self.slots[:, Slot.START :] = 0
        self.processes[:, Process.COUNTERS :] = 0
        if self.log_first:
            self.processes[:, Process.LOG] = self._at["log"] + WORD * np.concatenate(self.log_first)
        self._start(network)
        return self

    def _start(self, network: Network) -> None:
        powers = np.frexp(network.depth - 1)[1].astype(np.int64)  # the smallest power of two that holds the tokens
        rings, words = np.left_shift(1, powers), entry_words(network.token_bytes)
        self.rings = _aligned(int((rings * words).sum()))
        self._fill_streams(network, rings, words)
        self._fill_nodes(network)

    def _allocate(self, sizes: Mapping[str, int]) -> None:
        starts, total = {}, 0
        for name, size in sizes.items():
            starts[name] = total
            total += -(-size // ALIGNMENT) * ALIGNMENT
        memory = _aligned(total)
        self.base = memory.ctypes.data
        self._at = {name: self.base + WORD * start for name, start in starts.items()}
        part = {name: memory[starts[name] : starts[name] + size] for name, size in sizes.items()}
        self.header, self.log = part["header"], part["log"]
        self.streams = part["streams"].reshape(-1, Stream.SIZE)
        self.nodes = part["nodes"].reshape(-1, Node.SIZE)
        self.slots = part["slots"].reshape(-1, Slot.SIZE)
        self.resources = part["resources"].reshape(-1, Resource.SIZE)
        self.processes = part["processes"].reshape(-1, Process.SIZE)
        self.heap = part["heap"]
        self._queue = part["queue"]
        self._stream_ports, self._resource_ports = part["stream_ports"], part["resource_ports"]

    def _fill_streams(self, network: Network, rings: IntArray, words: IntArray) -> None:
        s = self.streams
        s[:, Stream.TAIL] = network.initial
        s[:, Stream.DEPTH] = network.depth
        s[:, Stream.MASK] = rings - 1
        starts = _starts(rings * words)
        self.ring_first, self.ring_words = starts, words
        s[:, Stream.RING] = self.rings.ctypes.data + WORD * starts
        s[:, Stream.OCCUPANCY] = network.initial
        s[:, Stream.FORMAT] = network.latency | words << 32
        if len(words) and (words == words[0]).all():
            entries = self.rings.reshape(-1, words[0])
            entries[:, Entry.PUT] = LONG_AGO
            entries[:, Entry.TAKEN] = -1
            return
        entry = np.repeat(starts - words * _starts(rings), rings) + np.repeat(words, rings) * np.arange(rings.sum())
        self.rings[entry + Entry.PUT] = LONG_AGO
        self.rings[entry + Entry.TAKEN] = -1

    def _fill_nodes(self, network: Network) -> None:
        slot_bytes = WORD * Slot.SIZE
        self.nodes[:, Node.SLOT] = self._at["slots"] + slot_bytes * network.first[:-1]
        self.nodes[:, Node.SLOT_END] = self._at["slots"] + slot_bytes * network.first[1:]
        count = network.node_count
        self._queue[:] = self._at["nodes"]
        self._queue[:count] = self._at["nodes"] + WORD * Node.SIZE * np.arange(count)
        header = self.header
        header[Header.READY_TAIL] = count
        header[Header.READY_MASK] = len(self._queue) - 1
        header[Header.READY] = self._at["queue"]
        header[Header.PENDING] = self._at["heap"]
        header[Header.STREAMS] = self._at["streams"]
        header[Header.ANCHOR] = NO_ANCHOR
        header[Header.COSTS] = network.costs.ctypes.data

    def _fill_slots(self, network: Network, bodies: IntArray) -> None:
        arguments = []
        process = log = 0
        self.log_first: list[IntArray] = []
        for group in network.groups:
            if isinstance(group, Tasks):
                arguments.append(group.addresses)
                continue
            count = len(group.first_row)
            arguments.append(self._at["processes"] + WORD * Process.SIZE * np.arange(process, process + count))
            starts = log + _starts(group.log_limit)
            self.log_first.append(starts)
            self._fill_processes(network, group, process, starts)
            process += count
            log += int(group.log_limit.sum())
        self.slots[:, Slot.BODY] = bodies[network.order]
        if arguments:
            self.slots[:, Slot.ARGUMENTS] = np.concatenate(arguments)[network.order]

    def _fill_processes(self, network: Network, group: Processes, first: int, log_starts: IntArray) -> None:
        self._stream_ports[:] = self._at["streams"] + WORD * Stream.SIZE * network.stream_ports
        self._resource_ports[:] = self._at["resources"] + WORD * Resource.SIZE * network.resource_ports
        p = self.processes[first : first + len(group.first_row)]
        p[:, Process.OPS] = network.rows.ctypes.data + 4 * WORD * group.first_row
        p[:, Process.STREAMS] = self._at["stream_ports"] + WORD * group.first_stream
        p[:, Process.RESOURCES] = self._at["resource_ports"] + WORD * group.first_resource
        p[:, Process.LOG] = self._at["log"] + WORD * log_starts
        p[:, Process.LOG_END] = p[:, Process.LOG] + WORD * group.log_limit

    def log_counts(self) -> IntArray:
        """Number of clocks that each table process has noted, in order of the processes."""
        if not self.log_first:
            return np.zeros(0, np.int64)
        return (self.processes[:, Process.LOG] - self._at["log"]) // WORD - np.concatenate(self.log_first)

    def node_address(self, node: int) -> int:
        return int(self._at["nodes"] + WORD * Node.SIZE * node)

    def _number(self, part: str, size: int, address: IntArray) -> IntArray:
        """Positions of the records of a part, from their addresses."""
        return (address - self._at[part]) // (WORD * size)

    stream_number = partialmethod(_number, "streams", Stream.SIZE)
    resource_number = partialmethod(_number, "resources", Resource.SIZE)
    node_number = partialmethod(_number, "nodes", Node.SIZE)
    process_number = partialmethod(_number, "processes", Process.SIZE)
    slot_number = partialmethod(_number, "slots", Slot.SIZE)

    def runnable_clocks(self) -> IntArray:
        """Clocks of the nodes that can go on: those in the queue, and those that have asked for a resource."""
        header = self.header
        places = np.arange(header[Header.READY_HEAD], header[Header.READY_TAIL]) & header[Header.READY_MASK]
        pending = self.heap[: int(header[Header.PENDING_COUNT])]
        found: IntArray = self.nodes[self.node_number(np.concatenate([self._queue[places], pending])), Node.CLOCK]
        return found

    def current_slot(self) -> IntArray:
        """Per node the position, in order of execution, of the slot it is at."""
        return self.slot_number(self.nodes[:, Node.SLOT])


def _aligned(words: int) -> IntArray:
    """Zeros that begin with a line of the processor's cache."""
    memory = np.zeros(words + ALIGNMENT, np.int64)
    shift = -(memory.ctypes.data // WORD) % ALIGNMENT
    return memory[shift : shift + words]


def _starts(sizes: IntArray) -> IntArray:
    return np.cumsum(sizes) - sizes
