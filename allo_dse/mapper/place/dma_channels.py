"""From trees of links to switch settings: which DMA channel and which port each route takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..graph.ports import Direction
from ..model.movement import Transfer
from .array import MEMORY_ROW, OPPOSITE, SHIM_ROW, Link, Tile
from .placed_design import Hop, PlacedDesign, Port, Route, RouteKind
from .problem import Placement, Problem
from .router import Net, Tree

# The memory-tile end of something: "in" or "out", what is carried ("transfer" or "flow"), and its index.
_End = tuple[str, str, int]


def nets_of(problem: Problem, placement: Placement) -> list[Net]:
    """What has to be routed: transfers, then flows, then streams (those in shared memory from a tile to nowhere)."""
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


@dataclass
class _Numbers:
    """Gives out numbered ports in the order of requests."""

    taken: dict[object, int] = field(default_factory=dict)

    def next(self, key: object) -> int:
        self.taken[key] = self.taken.get(key, -1) + 1
        return self.taken[key]


def numbered(problem: Problem, placement: Placement, trees: Sequence[Tree]) -> PlacedDesign | None:
    """Number the channels and ports of routed nets; None when a memory tile's banks do not hold the descriptors.

    Cores and shim tiles have one bank of descriptors, and a switch connects any port with any other: only the channels
    of memory tiles are not alike.
    """
    memory_channels = _memory_channels(problem, placement.columns)
    if memory_channels is None:
        return None
    numbers = _Numbers()
    routes: list[Route] = []
    names = _names(problem)
    for (kind, index, name), net, tree in zip(names, nets_of(problem, placement), trees, strict=True):
        if not net.sinks:
            continue
        start = _channel(net.source, "out", (kind, index), memory_channels, numbers)
        ports = {link: numbers.next(link) for link in tree}
        ends = {t: _channel(t, "in", (kind, index), memory_channels, numbers) for t in dict.fromkeys(net.sinks)}
        routes.append(Route(kind, index, name, _hops(net.source, start, tree, ports, ends)))
    return PlacedDesign(problem, placement.tiles, placement.columns, placement.owners, tuple(routes))


def _channel(
    tile: Tile, direction: str, carried: tuple[str, int], of_memory: Mapping[_End, int], numbers: _Numbers
) -> int:
    return of_memory[direction, *carried] if tile.row == MEMORY_ROW else numbers.next((tile, direction))


def _names(problem: Problem) -> list[tuple[RouteKind, int, str]]:
    names: list[tuple[RouteKind, int, str]] = [("transfer", i, t.tensor) for i, t in enumerate(problem.transfers)]
    names += [("flow", i, f.tensor) for i, f in enumerate(problem.flows)]
    return [*names, *(("stream", i, s.stream) for i, s in enumerate(problem.streams))]


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


def _memory_channels(problem: Problem, columns: Sequence[int]) -> dict[_End, int] | None:
    """The channel of each memory-tile end, by number."""
    result: dict[_End, int] = {}
    for column in dict.fromkeys(columns):
        here = [number for number, own in enumerate(columns) if own == column]
        found = _column_channels(problem, here)
        if found is None:
            return None
        result.update(found)
    return result


def _column_channels(problem: Problem, transfers: Sequence[int]) -> dict[_End, int] | None:
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

    if not fits(0):
        return None
    return {(d, kind, index): channel for (d, kind, index, _), channel in zip(ends, chosen, strict=True)}


def _ends(number: int, transfer: Transfer) -> list[tuple[str, str, int, int]]:
    """The memory-tile ends of a transfer: direction, what is carried, and descriptors."""
    result: list[tuple[str, str, int, int]] = []
    directions: tuple[Direction, ...] = ("in", "out")
    for direction in directions:
        needs = transfer.ends(direction)
        if direction == transfer.direction:
            result.append((direction, "transfer", number, needs[0]))
        else:
            result += [(direction, "flow", flow, need) for flow, need in zip(transfer.flows, needs, strict=True)]
    return result
