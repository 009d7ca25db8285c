"""Routing by negotiated congestion: nets are routed one by one, the price of overused links rises, until all fit
(McMurchie and Ebeling, PathFinder, FPGA 1995).

Quick, but it may miss a routing that exists; `by_models.py` decides those cases.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from allo_dse.common.records import Frozen
from allo_dse.mapper.graph.ports import Direction

from ..movement.movement import Transfer
from .array import MEMORY_ROW, OPPOSITE, SHIM_ROW, Link, Tile
from .placed_design import Hop, PlacedDesign, Port, Route, RouteKind
from .problem import Assignment, Problem

Tree = tuple[Link, ...]
"""The links of a route in an order in which each one starts at the source or at the end of an earlier one."""

# `benchmarks/placement_speed.py` measures these settings and those of `cp_sat_placement`.
_ROUNDS = 40
_BASE = 10


class Net(Frozen):
    """Something to route from one tile to others."""

    source: Tile
    sinks: tuple[Tile, ...]


@dataclass
class _Wires:
    capacity: Mapping[Link, int]
    used: Counter[Link] = field(default_factory=Counter)
    history: Counter[Link] = field(default_factory=Counter)
    by_tile: dict[Tile, list[Link]] = field(default_factory=dict)
    pressure: int = 0

    def cost(self, link: Link) -> int:
        over = self.used[link] + 1 - self.capacity[link]
        return _BASE + self.history[link] + (self.pressure * over if over > 0 else 0)


def route(nets: Sequence[Net], capacity: Mapping[Link, int]) -> list[Tree] | None:
    """Return a tree for each net within the capacity of all links; None when none was found."""
    wires = _Wires(capacity)
    for link in capacity:
        wires.by_tile.setdefault(link.source, []).append(link)
    # Nets to many sinks have the fewest ways out, so they choose first.
    order = sorted(range(len(nets)), key=lambda n: (-len(nets[n].sinks), n))
    trees: list[Tree] = [()] * len(nets)
    for number in range(_ROUNDS):
        # Sharing is free in the first round, which shows the preferred links. Then its price grows, and overused links
        # keep theirs: nets with another path take it, the others stay.
        wires.pressure = _BASE * number
        for net in order:
            wires.used.subtract(trees[net])
            found = _tree(nets[net], wires)
            if found is None:
                return None
            trees[net] = found
            wires.used.update(found)
        overfull = [link for link, used in wires.used.items() if used > capacity[link]]
        if not overfull:
            return trees
        for link in overfull:
            wires.history[link] += _BASE
    return None


def _tree(net: Net, wires: _Wires) -> Tree | None:
    """Grow a tree from the source by the cheapest path to the nearest sink that is left."""
    reached, left = {net.source}, set(net.sinks) - {net.source}
    links: list[Link] = []
    while left:
        path = _path(reached, left, wires)
        if path is None:
            return None
        links += path
        reached.update(link.target for link in path)
        left -= reached
    return tuple(links)


def _path(sources: set[Tile], sinks: set[Tile], wires: _Wires) -> list[Link] | None:
    queue = [(0, tile) for tile in sorted(sources)]
    costs = dict.fromkeys(sources, 0)
    came: dict[Tile, Link] = {}
    while queue:
        cost, tile = heapq.heappop(queue)
        if tile in sinks:
            path = []
            while tile in came:
                path.append(came[tile])
                tile = came[tile].source
            return path[::-1]
        if cost > costs[tile] or (tile in came and tile.row <= MEMORY_ROW):
            continue  # an entry that a cheaper one has overtaken; or a memory tile or shim, where routes end
        for link in wires.by_tile.get(tile, ()):
            target = link.target
            if target.row <= MEMORY_ROW and target not in sinks:
                continue
            total = cost + wires.cost(link)
            if total < costs.get(target, math.inf):
                costs[target] = total
                came[target] = link
                heapq.heappush(queue, (total, target))
    return None


# Switch settings for trees of links: the DMA channel and the ports of each route.


# An end at a memory tile: "in" or "out", "transfer" or "flow", and its index.
_End = tuple[str, str, int]

_Numbers = defaultdict[object, Iterator[int]]
"""Numbers of ports, given out in the order of requests."""


def nets_of(problem: Problem, placement: Assignment) -> list[Net]:
    """Return the nets to route: transfers, flows, then streams; a stream in shared memory has no target."""
    nets = []
    for transfer, column in zip(problem.transfers, placement.columns, strict=True):
        shim, memory = Tile(column, SHIM_ROW), Tile(column, MEMORY_ROW)
        nets.append(Net(shim, (memory,)) if transfer.direction == "in" else Net(memory, (shim,)))
    for flow in problem.flows:
        memory = Tile(placement.columns[problem.carriers[flow.index]], MEMORY_ROW)
        cores = tuple(placement.tiles[node] for node in flow.nodes)
        nets.append(Net(memory, cores) if flow.direction == "in" else Net(cores[0], (memory,)))
    for stream, owner in zip(problem.streams, placement.owners, strict=True):
        source, target = placement.tiles[stream.source], placement.tiles[stream.target]
        nets.append(Net(source, (target,) if owner is None else ()))
    return nets


def numbered(problem: Problem, placement: Assignment, trees: Sequence[Tree]) -> PlacedDesign | None:
    """Number the channels and ports of routed nets; None when a memory tile's banks do not hold the descriptors.

    Cores and shim tiles have one bank of descriptors, and a switch connects any port with any other: only the channels
    of memory tiles are not alike.
    """
    memory_channels: dict[_End, int] = {}
    for column in dict.fromkeys(placement.columns):
        found = _column_channels(problem, [n for n, own in enumerate(placement.columns) if own == column])
        if found is None:
            return None
        memory_channels |= found
    numbers = _Numbers(count)
    routes: list[Route] = []
    names: list[tuple[RouteKind, int, str]] = [("transfer", i, t.tensor) for i, t in enumerate(problem.transfers)]
    names += [("flow", i, f.tensor) for i, f in enumerate(problem.flows)]
    names += [("stream", i, s.stream) for i, s in enumerate(problem.streams)]
    for (kind, index, name), net, tree in zip(names, nets_of(problem, placement), trees, strict=True):
        if not net.sinks:
            continue
        start = _channel(net.source, "out", (kind, index), memory_channels, numbers)
        ports = {link: next(numbers[link]) for link in tree}
        ends = {t: _channel(t, "in", (kind, index), memory_channels, numbers) for t in dict.fromkeys(net.sinks)}
        routes.append(Route(kind, index, name, _hops(net.source, start, tree, ports, ends)))
    return PlacedDesign(problem, placement.tiles, placement.columns, placement.owners, tuple(routes))


def _channel(
    tile: Tile, direction: str, carried: tuple[str, int], of_memory: Mapping[_End, int], numbers: _Numbers
) -> int:
    return of_memory[direction, *carried] if tile.row == MEMORY_ROW else next(numbers[tile, direction])


def _hops(source: Tile, start: int, tree: Tree, ports: Mapping[Link, int], ends: Mapping[Tile, int]) -> tuple[Hop, ...]:
    """Switch settings along a tree: what enters a tile leaves by every branch, and into its memory if it ends there."""
    entered = {source: Port("dma", start)}
    for link in tree:
        entered[link.target] = Port(OPPOSITE[link.side], ports[link])
    branches: dict[Tile, list[Hop]] = {tile: [] for tile in entered}
    for link in tree:
        branches[link.source].append(Hop(link.source, entered[link.source], Port(link.side, ports[link])))
    for tile, channel in ends.items():
        branches[tile].append(Hop(tile, entered[tile], Port("dma", channel)))
    return tuple(hop for tile in entered for hop in branches[tile])


def _column_channels(problem: Problem, transfers: Sequence[int]) -> dict[_End, int] | None:
    """The channel of each end at a column's memory tile."""
    memory = problem.limits.memory
    ends = [end for number in transfers for end in _ends(number, problem.transfers[number])]
    channels = {"in": memory.dma_in, "out": memory.dma_out}
    free = {(d, bank): list(range(bank, n, memory.banks)) for d, n in channels.items() for bank in range(memory.banks)}
    room = [memory.descriptors // memory.banks] * memory.banks
    chosen: list[int] = []

    def fits(position: int) -> bool:
        if position == len(ends):
            return True
        direction, _, _, descriptors = ends[position]
        # Fullest last: it evens out the banks, so that a choice has to be taken back rarely.
        for bank in sorted(range(memory.banks), key=lambda b: (-room[b], b)):
            if room[bank] < descriptors or not free[direction, bank]:
                continue
            room[bank] -= descriptors
            chosen.append(free[direction, bank].pop(0))
            if fits(position + 1):
                return True
            room[bank] += descriptors
            free[direction, bank].insert(0, chosen.pop())
        return False

    return {end[:3]: channel for end, channel in zip(ends, chosen, strict=True)} if fits(0) else None


def _ends(number: int, transfer: Transfer) -> list[tuple[str, str, int, int]]:
    """Return the memory-tile ends of a transfer: direction, kind, and descriptors."""
    result: list[tuple[str, str, int, int]] = []
    directions: tuple[Direction, ...] = ("in", "out")
    for direction in directions:
        needs = transfer.ends(direction)
        if direction == transfer.direction:
            result.append((direction, "transfer", number, needs[0]))
        else:
            result += [(direction, "flow", flow, need) for flow, need in zip(transfer.flows, needs, strict=True)]
    return result


# Heuristic routes and channels of a placement.


def routed(problem: Problem, placement: Assignment) -> PlacedDesign | None:
    """Routes and channels for a placement, when its memory and shim tiles hold and the quick router finds routes."""
    if not _columns_hold(problem, placement):
        return None
    trees = route(nets_of(problem, placement), problem.limits.links)
    return None if trees is None else numbered(problem, placement, trees)


def _columns_hold(problem: Problem, placement: Assignment) -> bool:
    """Return whether the shim channels, bytes and locks of every column suffice; numbering channels checks the
    banks."""
    limits = problem.limits
    for column in set(placement.columns):
        own = [t for t, c in zip(problem.transfers, placement.columns, strict=True) if c == column]
        ways = Counter(transfer.direction for transfer in own)
        locks = sum(transfer.locks for transfer in own)
        staged = sum(transfer.staged_bytes for transfer in own)
        if (
            ways["in"] > limits.shim.dma_out
            or ways["out"] > limits.shim.dma_in
            or len(own) > limits.shim.descriptors
            or locks > limits.memory.locks
            or staged > limits.memory.bytes
        ):
            return False
    return True
