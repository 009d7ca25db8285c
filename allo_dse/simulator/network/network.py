"""Networks as plain data: streams, tasks, the nodes that run them, and shared resources.

A network is built with `NetworkBuilder` from arrays (tens of thousands of tasks at a time) or one process at a time.
It is immutable, and an engine can run it any number of times.

Numbers: streams, resources, tasks and nodes are numbered in the order in which they are added.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import Array, Frozen, replace

from ..codegen.signature import Signature
from ..run_time.records import Code, Op
from .tables import Table

# An array channel has several banks: a task fills one while another task reads the previous one (ping-pong buffers).
#
# The writer acquires a bank when it starts and hands it over when it ends. The reader acquires it when it starts, at
# least a cycle later, and frees it when it ends. Two streams implement this. A writer puts to `banks` at its start, and
# waits while all banks are in use; its reader takes that token out at its end. A writer puts to `filled` at its end;
# its reader waits for that token at its start.
#
#     writer:  put banks;  fill ...;  put filled
#     reader:  get filled; read ...;  get banks
#
# The depth of `banks` is the number of banks. `filled` is as deep, so that it never blocks the writer (T14).


BANK_LATENCY = 1
"""Cycles from done to start, for any number of banks."""


class ArrayStreams(NamedTuple):
    """The numbers of the two streams of an array channel."""

    banks: int
    filled: int


def filled(array: str) -> str:
    """Return the name of an array's stream of filled banks."""
    return f"{array} (filled)"


IntArray = NDArray[np.int64]

SHIFT_REGISTER_DEPTH = 2
"""FIFOs up to this depth are shift registers: a token can be read one cycle after it was put, else two."""

BY_DEPTH = -1
"""In place of a fixed read latency: it follows from the stream's depth, and changes with it."""


def read_latency(fixed: ArrayLike, depth: ArrayLike) -> IntArray:
    """Cycles from put to get (T4): `fixed`; where it is `BY_DEPTH`, 1 up to depth 2 (shift register), then 2 (RAM)."""
    return np.where(np.asarray(fixed) < 0, np.where(np.asarray(depth) <= SHIFT_REGISTER_DEPTH, 1, 2), fixed)


class Tasks(Frozen, dict=True):
    """Consecutive tasks of one compiled body; `words` has one row per task (see `Signature.words`)."""

    body: str
    words: IntArray

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def addresses(self) -> IntArray:
        """Per task the address of its words."""
        return self.words.ctypes.data + self.words.strides[0] * np.arange(len(self))


class Processes(Frozen):
    """Consecutive table processes: per process the first row of its table, and where its bindings and log begin."""

    first_row: IntArray
    first_stream: IntArray
    first_resource: IntArray
    log_limit: IntArray

    def __len__(self) -> int:
        return len(self.first_row)


@dataclass(frozen=True, eq=False)
class Network:
    """A network of tasks over bounded FIFOs, ready to run.

    Attributes:
        depth, fixed_latency, token_bytes, initial: per stream; tokens it holds at most, cycles from put to get where
            they do not follow from the depth (else `BY_DEPTH`), size of a token, number of tokens it starts with.
        groups: the tasks, in order of their numbers.
        order: the tasks that nodes run, node after node. first: where each node's part of it begins, and its end.
        rows: operation tables. stream_ports, resource_ports: the bindings that `Processes` refer to.
        costs: cycles per cost site.
        resources: number of shared resources.
        arrays: channels that are whole arrays (see `ArrayStreams`).
        tensors: arrays that task arguments point into; held here so that they outlive the run.
    """

    depth: IntArray
    fixed_latency: IntArray
    token_bytes: IntArray
    initial: IntArray
    groups: tuple[Tasks | Processes, ...]
    order: IntArray
    first: IntArray
    rows: IntArray
    stream_ports: IntArray
    resource_ports: IntArray
    costs: IntArray
    resources: int
    tensors: tuple[Array, ...] = field(default=(), repr=False)
    arrays: tuple[ArrayStreams, ...] = ()

    @cached_property
    def latency(self) -> IntArray:
        """Per stream the cycles from put to get."""
        return read_latency(self.fixed_latency, self.depth)

    def with_depths(self, depth: IntArray) -> Network:
        """The same network with other FIFO depths; read latencies that follow from the depth change with it."""
        depth = depth.copy()
        for array_ in self.arrays:
            depth[array_.filled] = depth[array_.banks]
        network = replace(self, depth=depth)
        _check_streams(network)
        return network

    def at(self, depth: IntArray, initial: IntArray | None = None) -> Network:
        """The same network with other depths, and initial tokens, that are known to be right; quick."""
        return self.like(depth=depth, initial=self.initial if initial is None else initial)

    def like(self, **changes: Any) -> Network:
        """The same network with other values of fields that change nothing of `once`."""
        network = replace(self, **changes)
        network.__dict__["once"] = self.once
        return network

    @cached_property
    def once(self) -> dict[str, Any]:
        """Values that follow from tasks and streams alone, whatever depths and arrays are."""
        return {}

    @property
    def stream_count(self) -> int:
        return len(self.depth)

    @property
    def node_count(self) -> int:
        return len(self.first) - 1

    @property
    def task_count(self) -> int:
        return len(self.order)

    @property
    def task_node(self) -> IntArray:
        """The node that runs each task."""
        if "task_node" not in self.once:
            result = self.once["task_node"] = np.empty(self.task_count, np.int64)
            result[self.order] = np.repeat(np.arange(self.node_count), np.diff(self.first))
        found: IntArray = self.once["task_node"]
        return found

    @property
    def numbered_groups(self) -> Iterator[tuple[int, Tasks | Processes]]:
        """The groups, each with the number of its first task."""
        first = 0
        for group in self.groups:
            yield first, group
            first += len(group)

    def body_numbers(self, bodies: Collection[str]) -> IntArray:
        """Per task the number of its body, counted from 1; 0 for table processes."""
        key = f"bodies {' '.join(bodies)}"
        if key not in self.once:
            number = {body: i for i, body in enumerate(bodies, 1)}
            numbers = [number[g.body] if isinstance(g, Tasks) else 0 for g in self.groups]
            self.once[key] = np.repeat(np.array(numbers, np.int64), [*map(len, self.groups)])
        return self.once[key]  # type: ignore[no-any-return]

    @property
    def first_row(self) -> IntArray:
        """Per task the first row of its operation table; -1 for tasks of compiled bodies."""
        return _join([np.full(len(g), -1) if isinstance(g, Tasks) else g.first_row for g in self.groups])


class NetworkBuilder:
    """Collects the parts of a network; `build` checks and concatenates them."""

    def __init__(self) -> None:
        self._stream_columns: list[IntArray] = []
        self._open_streams = array("q")
        self._streams = 0
        self._groups: list[Tasks | Processes] = []
        self._open = array("q")
        self._tasks = 0
        self._rows = array("q")
        self._tables: dict[int, tuple[Table, int]] = {}
        self._stream_ports = array("q")
        self._resource_ports = array("q")
        self._resources = 0
        self._costs: list[IntArray] = []
        self._cost_sites = 0
        self._nodes: list[tuple[IntArray, IntArray]] = []
        self._tensors: list[Array] = []
        self._arrays: list[ArrayStreams] = []

    def streams(
        self, depth: ArrayLike, *, token_bytes: ArrayLike = 0, latency: ArrayLike | None = None, initial: ArrayLike = 0
    ) -> IntArray:
        """Add streams, one per entry of `depth` (>= 1); the other arguments broadcast against it.

        Args:
            token_bytes: 0 for streams that only carry time.
            latency: cycles from put to get; by default 1 for depths up to 2 (shift register), 2 above (RAM).
            initial: tokens present at time 0, at most `depth`; they carry zero bytes.

        Returns:
            The streams' numbers.
        """
        self._close_streams()
        columns = np.empty((4, np.size(depth)), np.int64)
        columns[0] = depth
        columns[1] = BY_DEPTH if latency is None else latency
        columns[2] = token_bytes
        columns[3] = initial
        self._stream_columns.append(columns)
        self._streams += columns.shape[1]
        return np.arange(self._streams - columns.shape[1], self._streams)

    def stream(self, depth: int, *, token_bytes: int = 0, latency: int | None = None, initial: int = 0) -> int:
        """Add one stream; returns its number."""
        self._open_streams.extend((depth, BY_DEPTH if latency is None else latency, token_bytes, initial))
        self._streams += 1
        return self._streams - 1

    def array(self, banks: int = 2, *, array_bytes: int = 0) -> ArrayStreams:
        """Add a channel that is a whole array of `banks` banks (2: a ping-pong buffer); see `ArrayStreams`.

        Args:
            array_bytes: what a token of the stream `filled` carries, for bodies that hand the array over in it.
        """
        free = self.stream(banks, latency=BANK_LATENCY)
        made = ArrayStreams(free, self.stream(banks, latency=BANK_LATENCY, token_bytes=array_bytes))
        self._arrays.append(made)
        return made

    def resource(self) -> int:
        """Add a shared resource, which serves one request at a time, first come, first served; returns its number."""
        self._resources += 1
        return self._resources - 1

    def costs(self, cycles: ArrayLike) -> int:
        """Add cost sites; returns the number of the first."""
        array_ = np.atleast_1d(np.asarray(cycles, np.int64))
        self._costs.append(array_)
        self._cost_sites += len(array_)
        return self._cost_sites - len(array_)

    def process(self, table: Table, streams: Sequence[int] = (), resources: Sequence[int] = (), *, log: int = 0) -> int:
        """Add a table process.

        Args:
            streams, resources: bound to the table's ports.
            log: how many clocks of marked operations to keep (the first ones).

        Returns:
            The task's number.
        """
        first = self._first_row(table, len(streams), len(resources))
        self._open.extend((first, len(self._stream_ports), len(self._resource_ports), log))
        self._stream_ports.extend(streams)
        self._resource_ports.extend(resources)
        self._tasks += 1
        return self._tasks - 1

    def processes(self, tables: Sequence[Table], which: IntArray, streams: IntArray) -> IntArray:
        """Add table processes that use no resources, one per row of `streams`.

        Args:
            tables: their operations. which: per process, the position of its table among them.
            streams: what the ports of each stand for, in order; -1 where a process has none: (processes, ports).

        Returns:
            The tasks' numbers.
        """
        bound = streams >= 0
        counts = bound.sum(axis=1)
        fewest = np.full(len(tables), streams.shape[1])
        np.minimum.at(fewest, which, counts)
        first = np.array([self._first_row(*one, 0) for one in zip(tables, fewest.tolist(), strict=True)], np.int64)
        columns = np.zeros((len(which), 4), np.int64)
        columns[:, 0], columns[:, 2] = first[which], len(self._resource_ports)
        columns[:, 1] = len(self._stream_ports) + np.cumsum(counts) - counts
        self._open.frombytes(columns.tobytes())
        self._stream_ports.frombytes(streams[bound].tobytes())
        self._tasks += len(which)
        return np.arange(self._tasks - len(which), self._tasks)

    def _first_row(self, table: Table, streams: int, resources: int) -> int:
        """Return the first row of a table, after adding the table if it is new.

        Args:
            streams, resources: the numbers of ports that a process binds.
        """
        if streams < table.stream_ports or resources < table.resource_ports:
            raise SimulationError(
                f"an operation table uses {table.stream_ports} stream and {table.resource_ports} resource ports, "
                f"bound are {streams} and {resources}"
            )
        known = self._tables.get(id(table))
        if known is None:
            known = (table, len(self._rows) // 4)
            self._tables[id(table)] = known
            self._rows.extend(table.words)
            self._rows.extend((Code.HALT, 0, 0, 0))
        return known[1]

    def tasks(self, body: str, words: IntArray) -> IntArray:
        """Add tasks of a compiled body, one per row of `words` (see `Signature.words`); returns their numbers."""
        self._close_processes()
        self._groups.append(Tasks(body, np.ascontiguousarray(words, np.int64)))
        self._tasks += len(words)
        return np.arange(self._tasks - len(words), self._tasks)

    def tensor(self, values: Array) -> Array:
        """Keep an array alive as long as the network, because task arguments hold its address."""
        self._tensors.append(values)
        return values

    def node(self, tasks: Sequence[int]) -> None:
        """Add a node that runs these tasks one after the other."""
        self.nodes(np.asarray(tasks, np.int64), np.asarray([len(tasks)], np.int64))

    def nodes(self, order: IntArray, counts: IntArray) -> None:
        """Add nodes: `counts[i]` tasks each, taken in turn from `order`."""
        self._nodes.append((order, counts))

    def build(self) -> Network:
        """The network. Without any `node`, every task runs on a node of its own.

        Raises:
            SimulationError: if a number is out of range, or nodes do not run every task exactly once.
        """
        self._close_processes()
        self._close_streams()
        streams = np.concatenate([np.zeros((4, 0), np.int64), *self._stream_columns], axis=1)
        one_each = np.arange(self._tasks), np.ones(self._tasks, np.int64)
        orders, counts = zip(*self._nodes or [one_each], strict=True)
        network = Network(
            depth=streams[0],
            fixed_latency=streams[1],
            token_bytes=streams[2],
            initial=streams[3],
            groups=tuple(self._groups),
            order=_join(orders),
            first=np.concatenate(([0], np.cumsum(_join(counts)))),
            rows=np.frombuffer(self._rows, np.int64).copy() if self._rows else np.zeros(0, np.int64),
            stream_ports=np.array(self._stream_ports, np.int64),
            resource_ports=np.array(self._resource_ports, np.int64),
            costs=_join(self._costs),
            resources=self._resources,
            tensors=tuple(self._tensors),
            arrays=tuple(self._arrays),
        )
        _check(network, self._tasks)
        return network

    def _close_streams(self) -> None:
        if self._open_streams:
            self._stream_columns.append(np.array(self._open_streams, np.int64).reshape(-1, 4).T)
            self._open_streams = array("q")

    def _close_processes(self) -> None:
        if self._open:
            self._groups.append(Processes(*np.array(self._open, np.int64).reshape(-1, 4).T))
            self._open = array("q")


def _join(parts: Sequence[IntArray]) -> IntArray:
    if len(parts) == 1:
        return parts[0]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _check(network: Network, tasks: int) -> None:
    _check_streams(network)
    _in_range(network.stream_ports, network.stream_count, "stream")
    _in_range(network.resource_ports, network.resources, "resource")
    counts = np.bincount(network.order, minlength=tasks) if network.order.size else np.zeros(tasks, np.int64)
    _require(len(counts) == tasks and bool((counts == 1).all()), "nodes must run every task exactly once")


def _check_streams(network: Network) -> None:
    if network.stream_count:
        _require(network.depth.min() >= 1, "a stream needs a depth of at least 1")
        _require(
            bool((network.initial <= network.depth).all()), "a stream cannot start with more tokens than its depth"
        )
        _require(
            network.fixed_latency.min() >= BY_DEPTH and network.token_bytes.min() >= 0,
            "latencies and token sizes cannot be negative",
        )


def _in_range(values: IntArray, count: int, what: str) -> None:
    if values.size:
        _require(
            values.min() >= 0 and values.max() < count, f"a table process is bound to a {what} that does not exist"
        )


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise SimulationError(message)


class Labels:
    """Names of the parts of a network: their numbers, unless a class that derives from this knows better."""

    def task(self, task: int) -> str:
        return f"task {task}"

    def stream(self, stream: int) -> str:
        return f"stream {stream}"

    def array(self, stream: int) -> str:
        """Return the name of the streams that share one depth with a stream."""
        return self.stream(stream)

    def operation(self, task: int, op: int) -> str:
        """A stream operation of a task."""
        return f"operation {op}"

    def index_check(self, task: int, check: int) -> str:
        """An index that a task checks when it runs."""
        return f"index {check}"

    def resource(self, resource: int) -> str:
        """A shared resource."""
        return f"resource {resource}"


def node_label(labels: Labels, network: Network, node: int) -> str:
    """A processing element is called by the tasks that it runs."""
    first, end = network.first[node : node + 2].tolist()
    if first == end:
        return f"processing element {node}"
    name = labels.task(int(network.order[first]))
    return name if end - first == 1 else f"{name} and {end - first - 1} more"


# Tasks that put to and get from each stream, read off a network's tables and task arguments.


UNKNOWN = -1


class Ends(Frozen):
    """Per stream the task at each end, or `UNKNOWN`."""

    producer: IntArray
    consumer: IntArray


def stream_ends(network: Network, signatures: Mapping[str, Signature]) -> Ends:
    """The tasks at the ends of all streams.

    A body that computes a stream's number leaves it unknown.

    Raises:
        SimulationError: if tasks of two nodes put to one stream, or get from one.
    """
    if not signatures and "ends" in network.once:
        return network.once["ends"]  # type: ignore[no-any-return]
    producer, consumer = np.full((2, network.stream_count), UNKNOWN)
    for first, group in network.numbered_groups:
        uses = _task_uses(group, signatures[group.body]) if isinstance(group, Tasks) else _process_uses(network, group)
        for is_put, tasks, streams in uses:
            _note(network, producer if is_put else consumer, first + tasks, streams, "put to" if is_put else "get from")
    ends = network.once["ends"] = Ends(producer, consumer)
    return ends


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
