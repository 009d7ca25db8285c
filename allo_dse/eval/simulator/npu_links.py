"""Streams between the nodes of an NPU design, as the leaves of one period use them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...frontend.program import CompiledProgram, IntArray
from ...mapper.vmg import VMG
from .npu_schedule import GroupSchedule

Channel = tuple[int, int, str]
"""Source node, target node, stream array: after folding, one FIFO used in turn."""


@dataclass(frozen=True)
class NodeLinks:
    """Channels of the nodes of one group.

    Attributes:
        channels: per node, its channels in the order of their ports.
        gets, puts: per leaf of the period, the ports it gets from and puts to (equal for all nodes of the group).
    """

    channels: list[list[Channel]]
    gets: list[list[int]]
    puts: list[list[int]]


@dataclass(frozen=True)
class Links:
    """Attributes:
    groups: per node group.
    depth: tokens that each channel holds.
    """

    groups: list[NodeLinks]
    depth: dict[Channel, int]


@dataclass(frozen=True)
class _Use:
    """One stream port of one leaf: the stream that each node of the group uses."""

    leaf: int
    direction: str
    array: str
    numbers: list[int]


def stream_links(vmg: VMG, schedules: Sequence[GroupSchedule]) -> Links:
    """Which leaves exchange tokens with which other node, from the streams that the first period's tasks use."""
    if not len(vmg.edges):
        none = [NodeLinks([[]] * s.group.count, [[]] * len(s.classes), [[]] * len(s.classes)) for s in schedules]
        return Links(none, {})
    program = vmg.program
    uses = [_uses(program, schedule) for schedule in schedules]
    node_of: dict[str, dict[int, int]] = {"get": {}, "put": {}}
    first = 0
    for schedule, group in zip(schedules, uses, strict=True):
        for use in group:
            node_of[use.direction].update((number, first + row) for row, number in enumerate(use.numbers))
        first += schedule.group.count
    depths = {array.name: array.depth for array in program.streams}
    links: list[NodeLinks] = []
    depth: dict[Channel, int] = {}
    first = 0
    for schedule, group in zip(schedules, uses, strict=True):
        links.append(_node_links(schedule, group, node_of, first))
        depth.update((c, depths[c[2]]) for channels in links[-1].channels for c in channels)
        first += schedule.group.count
    return Links(links, depth)


def _uses(program: CompiledProgram, schedule: GroupSchedule) -> list[_Use]:
    """The stream ports of one period, leaf after leaf."""
    if not any(schedule.stream_ports):
        return []
    result: list[_Use] = []
    tasks = schedule.group.leaves.tasks(0, len(schedule.classes))
    kernels: dict[str, int] = {kernel.name: position for position, kernel in enumerate(program.kernels)}
    for c, task_class in enumerate(schedule.class_list):
        leaves = (schedule.classes == c).nonzero()[0]
        pids = program.pids(kernels[task_class.kernel], tasks[:, leaves].reshape(-1))
        for port in task_class.stream_ports:
            numbers: IntArray = program.first_stream[port.stream.name] + port.index.linear(pids)
            columns = numbers.reshape(-1, len(leaves)).T.tolist()
            pairs = zip(leaves.tolist(), columns, strict=True)
            result.extend(_Use(leaf, port.direction, port.stream.name, column) for leaf, column in pairs)
    return sorted(result, key=lambda use: use.leaf)


def _node_links(schedule: GroupSchedule, uses: list[_Use], node_of: dict[str, dict[int, int]], first: int) -> NodeLinks:
    """The channels of one group whose nodes are numbered from `first`; a stream inside a node is none."""
    count, period = schedule.group.count, len(schedule.classes)
    result = NodeLinks([[] for _ in range(count)], [[] for _ in range(period)], [[] for _ in range(period)])
    for use in uses:
        peers = node_of["put" if use.direction == "get" else "get"]
        if peers.get(use.numbers[0], first) == first:
            continue
        for row, number in enumerate(use.numbers):
            here, there = first + row, peers[number]
            channel = (there, here, use.array) if use.direction == "get" else (here, there, use.array)
            if channel not in result.channels[row]:
                result.channels[row].append(channel)
            if row == 0:
                ports = result.gets if use.direction == "get" else result.puts
                ports[use.leaf].append(result.channels[0].index(channel))
    return result
