"""An independent check of placed designs: from the tiles and switch settings alone, whatever made them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from allo_dse.backends.npu.place.array import Tile, TileLimits
from allo_dse.backends.npu.place.placed_design import Hop, PlacedDesign, Port, Route, RouteKind, TileUse
from allo_dse.mapper.violation import Violation

_ACROSS = {"north": ("south", 0, 1), "south": ("north", 0, -1), "east": ("west", 1, 0), "west": ("east", -1, 0)}


def verify_placement(placed: PlacedDesign) -> list[Violation]:
    """Everything that is wrong with a placed design; empty when it can be built.

    Limits that are exceeded carry their own names; a design that is inconsistent in itself (a route with a gap, say)
    has violations named "placement".
    """
    return [
        *_nodes(placed),
        *_shared_streams(placed),
        *_ends(placed),
        *_hops(placed),
        *_trees(placed),
        *_usage(placed),
        *_banks(placed),
    ]


def _wrong(where: object, detail: str) -> Violation:
    return Violation("placement", str(where), 1, 0, detail)


def _nodes(placed: PlacedDesign) -> Iterator[Violation]:
    limits = placed.problem.limits
    for tile, nodes in Counter(placed.tiles).items():
        if nodes > 1:
            yield Violation("compute_tiles", str(tile), nodes, 1)
        if not (0 <= tile.column < limits.columns and 2 <= tile.row < 2 + limits.core_rows):
            yield _wrong(tile, "is not a core of the array")
    if len(placed.tiles) != len(placed.problem.nodes):
        yield _wrong("the array", f"{len(placed.tiles)} tiles for {len(placed.problem.nodes)} nodes")
    for number, column in enumerate(placed.columns):
        if not 0 <= column < limits.columns:
            yield _wrong(f"transfer {number}", f"column {column} is not in the array")


def _shared_streams(placed: PlacedDesign) -> Iterator[Violation]:
    """Both ends of a stream in shared memory reach its buffer, which lies with one of them."""
    problem = placed.problem
    reach = [(0, 0), *(_ACROSS[side][1:] for side in problem.limits.neighbours)]
    for stream, owner in zip(problem.streams, placed.owners, strict=True):
        if owner is None:
            continue
        ends = placed.tiles[stream.source], placed.tiles[stream.target]
        if owner not in ends:
            yield _wrong(f"stream {stream.stream}", f"its buffer is on {owner}, where neither end is")
        for tile in ends:
            if (owner.column - tile.column, owner.row - tile.row) not in reach:
                yield _wrong(f"stream {stream.stream}", f"the core on {tile} cannot address the memory of {owner}")


def _ends(placed: PlacedDesign) -> Iterator[Violation]:
    """Everything that needs a route has one, from where it is to where it is needed."""
    problem = placed.problem
    wanted: dict[tuple[RouteKind, int], tuple[Tile, set[Tile]]] = {}
    for number, (transfer, column) in enumerate(zip(problem.transfers, placed.columns, strict=True)):
        shim, memory = Tile(column, 0), Tile(column, 1)
        wanted["transfer", number] = (shim, {memory}) if transfer.direction == "in" else (memory, {shim})
    for number, flow in enumerate(problem.flows):
        memory = Tile(placed.columns[placed.problem.carriers[flow.index]], 1)
        cores = {placed.tiles[node] for node in flow.nodes}
        wanted["flow", number] = (memory, cores) if flow.direction == "in" else (cores.pop(), {memory})
    for number, (stream, owner) in enumerate(zip(problem.streams, placed.owners, strict=True)):
        if owner is None:
            wanted["stream", number] = (placed.tiles[stream.source], {placed.tiles[stream.target]})
            if stream.token_bytes % 4:
                yield Violation("word_alignment", f"stream {stream.stream}", stream.token_bytes % 4, 0, "routed")
    found = {(route.kind, route.index): (route.source, set(route.sinks)) for route in placed.routes}
    if len(found) != len(placed.routes):
        yield _wrong("the array", "two routes for one thing")
    for key in wanted.keys() | found.keys():
        if wanted.get(key) != found.get(key):
            yield _wrong(" ".join(map(str, key)), f"its route joins {found.get(key)} instead of {wanted.get(key)}")


def _hops(placed: PlacedDesign) -> Iterator[Violation]:
    """Ports exist, and no port carries two routes."""
    limits = placed.problem.limits
    owner: dict[tuple[Tile, Port, str], tuple[str, int]] = {}
    for route in placed.routes:
        key = (route.kind, route.index)
        for hop in route.hops:
            for port, way in ((hop.source, "in"), (hop.target, "out")):
                here = _channels(limits.core, limits.memory, limits.shim, hop.tile, way)
                ports = here if port.side == "dma" else limits.ports[hop.tile.kind][port.side][way == "in"]
                if not 0 <= port.number < ports:
                    yield Violation("switch_ports", f"{hop.tile} {port.side}", port.number + 1, ports, route.name)
                if owner.setdefault((hop.tile, port, way), key) != key:
                    yield _wrong(f"{hop.tile} {port}", f"carries {owner[hop.tile, port, way]} and {key}")


def _channels(core: TileLimits, memory: TileLimits, shim: TileLimits, tile: Tile, way: str) -> int:
    """DMA channels behind a switch: what enters the switch from the DMA has been read from memory."""
    kind = {0: shim, 1: memory}.get(tile.row, core)
    return kind.dma_out if way == "in" else kind.dma_in


def _trees(placed: PlacedDesign) -> Iterator[Violation]:
    """Each route is a tree: every hop follows from the source, wires join neighbouring switches, nothing dangles."""
    for route in placed.routes:
        first = route.hops[0]
        live = {(first.tile, first.source)} if first.source.side == "dma" else set()
        entered = dict.fromkeys(live, 1)
        for hop in route.hops:
            if (hop.tile, hop.source) not in live:
                yield _wrong(hop, f"{route.name} does not arrive there")
            if hop.target.side == "dma":
                continue
            arrival = _arrival(hop)
            entered[arrival] = entered.get(arrival, 0) + 1
            live.add(arrival)
        used = {(hop.tile, hop.source) for hop in route.hops}
        tiles = Counter(tile for tile, _ in entered)
        if set(entered) != used or max(tiles.values()) > 1 or max(entered.values()) > 1:
            yield _wrong(f"{route.kind} {route.index}", "its route is not a tree")
        if any(tile.row == 1 for tile in _passed(route)):
            yield _wrong(f"{route.kind} {route.index}", "its route passes through a memory tile")


def _arrival(hop: Hop) -> tuple[Tile, Port]:
    side, column, row = _ACROSS[hop.target.side]
    return Tile(hop.tile.column + column, hop.tile.row + row), Port(side, hop.target.number)


def _passed(route: Route) -> Iterable[Tile]:
    return (hop.tile for hop in route.hops if "dma" not in (hop.source.side, hop.target.side))


def _usage(placed: PlacedDesign) -> Iterator[Violation]:
    """No tile holds more than it has."""
    limits = placed.problem.limits
    for tile, use in placed.usage.items():
        have = {0: limits.shim, 1: limits.memory}.get(tile.row, limits.core)
        prefix = {0: "shim", 1: "memory_tile"}.get(tile.row, "core")
        for what, needed, limit in _amounts(use, have):
            if needed > limit and not (tile.row == 0 and what in ("locks", "memory")):
                yield Violation(f"{prefix}_{what}", str(tile), needed, limit)


def _amounts(use: TileUse, have: TileLimits) -> Iterable[tuple[str, int, int]]:
    return (
        ("dma_in", use.dma_in, have.dma_in),
        ("dma_out", use.dma_out, have.dma_out),
        ("descriptors", use.descriptors, have.descriptors),
        ("locks", use.locks, have.locks),
        ("memory", use.bytes, have.bytes),
    )


def _banks(placed: PlacedDesign) -> Iterator[Violation]:
    """Channels of a memory tile find their descriptors in the bank of their number."""
    memory = placed.problem.limits.memory
    need: Counter[tuple[int, int]] = Counter()
    for route in placed.routes:
        if route.kind == "stream":
            continue
        number = route.index if route.kind == "transfer" else placed.problem.carriers[route.index]
        transfer = placed.problem.transfers[number]
        slots = transfer.depth * (len(transfer.flows) if route.kind == "transfer" else 1)
        for hop in route.hops:
            for port in (hop.source, hop.target):
                if hop.tile.row == 1 and port.side == "dma":
                    need[hop.tile.column, port.number % memory.banks] += slots
    for (column, bank), slots in sorted(need.items()):
        if slots > memory.descriptors // memory.banks:
            limit = memory.descriptors // memory.banks
            yield Violation("memory_tile_descriptors", f"memory tile {column}", slots, limit, f"bank {bank}")
