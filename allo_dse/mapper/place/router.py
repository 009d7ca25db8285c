"""Routing by negotiated congestion: nets are routed one by one, the price of overused links rises, until all fit
(McMurchie and Ebeling, PathFinder, FPGA 1995).

Quick, but it may miss a routing that exists; `exact_model.py` decides those cases.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from .array import MEMORY_ROW, Link, Tile

Tree = tuple[Link, ...]
"""The links of a route in an order in which each one starts at the source or at the end of an earlier one."""

_ROUNDS = 40
_BASE = 10


class Net(Struct, frozen=True):
    """Something to route from one tile to others."""

    source: Tile
    sinks: tuple[Tile, ...]


@dataclass
class _Wires:
    capacity: Mapping[Link, int]
    used: dict[Link, int] = field(default_factory=dict)
    history: dict[Link, int] = field(default_factory=dict)
    by_tile: dict[Tile, list[Link]] = field(default_factory=dict)
    pressure: int = 0

    def cost(self, link: Link) -> int:
        over = self.used.get(link, 0) + 1 - self.capacity[link]
        return _BASE + self.history.get(link, 0) + (self.pressure * over if over > 0 else 0)

    def take(self, tree: Tree, amount: int) -> None:
        for link in tree:
            self.used[link] = self.used.get(link, 0) + amount

    def overfull(self) -> list[Link]:
        return [link for link, used in self.used.items() if used > self.capacity[link]]


def route(nets: Sequence[Net], capacity: Mapping[Link, int]) -> list[Tree] | None:
    """A tree for each net such that no link carries more than it can; None when none was found."""
    wires = _Wires(capacity)
    for link in capacity:
        wires.by_tile.setdefault(link.source, []).append(link)
    # Nets to many sinks have the fewest ways out, so they choose first.
    order = sorted(range(len(nets)), key=lambda n: (-len(nets[n].sinks), n))
    trees: list[Tree] = [()] * len(nets)
    for number in range(_ROUNDS):
        # The price of sharing begins at nothing, so that the first round shows where nets want to be; it grows, and
        # links that stay overused keep what they cost: nets that have another way take it, the others stay.
        wires.pressure = _BASE * number
        for net in order:
            wires.take(trees[net], -1)
            found = _tree(nets[net], wires)
            if found is None:
                return None
            trees[net] = found
            wires.take(found, 1)
        overfull = wires.overfull()
        if not overfull:
            return trees
        for link in overfull:
            wires.history[link] = wires.history.get(link, 0) + _BASE
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
            return _back(tile, came)
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


def _back(tile: Tile, came: Mapping[Tile, Link]) -> list[Link]:
    path = []
    while tile in came:
        link = came[tile]
        path.append(link)
        tile = link.source
    return path[::-1]
