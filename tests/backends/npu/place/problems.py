"""Random placement problems on tiny arrays, and the answer by trying everything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise, permutations, product
from typing import Literal

from hypothesis import strategies as st

from allo_dse.backends.npu.movement.movement import AccessPattern, Flow, StreamFlow, Transfer
from allo_dse.backends.npu.place.array import ArrayLimits, Tile, TileLimits
from allo_dse.backends.npu.place.problem import NodeNeed, Problem
from allo_dse.mapper.graph.ports import Direction

Edge = tuple[Tile, Tile]


def tiny_array(
    columns: int, rows: int, dma: int, ports: int, *, memory_dma: int = 6, south: int = 4, locks: int = 16
) -> ArrayLimits:
    """An array like the NPU's with `dma` channels per core and direction and `ports` switch ports between cores."""
    sides = dict.fromkeys(("north", "south", "east", "west"), (ports, ports))
    core = {**sides, "south": (min(ports, south), ports)}
    memory = {"north": (ports, south), "south": (4, 6), "east": (0, 0), "west": (0, 0)}
    shim = {"north": (6, 4), "south": (6, 8), "east": (4, 4), "west": (4, 4)}
    return ArrayLimits(
        columns,
        rows,
        ("west", "north", "south"),
        TileLimits(dma, dma, 16, 1, locks, 1000),
        TileLimits(memory_dma, memory_dma, 48, 1, 64, 4000),
        TileLimits(2, 2, 16, 1, 16, 0),
        {"core": core, "memory": memory, "shim": shim},
    )


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """Up to four nodes with streams and flows between them, on arrays that are scarce in everything."""
    columns, rows = draw(st.sampled_from([(1, 2), (2, 1), (2, 2), (1, 3), (3, 1)]))
    array = tiny_array(
        columns,
        rows,
        draw(st.integers(1, 2)),
        draw(st.integers(1, 2)),
        memory_dma=draw(st.integers(2, 6)),
        south=draw(st.integers(1, 4)),
        locks=draw(st.sampled_from([4, 8, 16])),
    )
    count = draw(st.integers(1, columns * rows))
    nodes = tuple(NodeNeed(f"n{i}", draw(st.sampled_from([0, 500, 900]))) for i in range(count))
    pairs = [(a, b) for a in range(count) for b in range(count) if a != b]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=4)) if pairs else []
    streams = tuple(StreamFlow(f"s{i}", a, b, 2, draw(st.sampled_from([2, 4, 60]))) for i, (a, b) in enumerate(chosen))
    flows: list[Flow] = []
    transfers: list[Transfer] = []
    for number in range(draw(st.integers(0, 2))):
        direction: Literal["in", "out"] = draw(st.sampled_from(["in", "out"]))
        own = []
        for _ in range(draw(st.integers(1, 2))):
            users = draw(
                st.lists(st.integers(0, count - 1), min_size=1, max_size=2 if direction == "in" else 1, unique=True)
            )
            own.append(len(flows))
            flows.append(flow("A", direction, tuple(users), len(flows)))
        column = draw(st.integers(0, columns - 1))
        transfers.append(transfer("A", direction, tuple(own), 100, column=column, index=number))
    return Problem("tiny", array, nodes, streams, tuple(flows), tuple(transfers))


def flow(tensor: str, direction: Direction, nodes: tuple[int, ...], index: int = 0, depth: int = 2) -> Flow:
    """A flow of a problem; what placement does not look at is 1."""
    return Flow(index, tensor, direction, nodes, 4, 4, depth, 1, 0)


def transfer(
    tensor: str,
    direction: Direction,
    flows: tuple[int, ...],
    tile_bytes: int,
    *,
    depth: int = 2,
    column: int = 0,
    index: int = 0,
) -> Transfer:
    """A transfer of a problem; what placement does not look at is 1."""
    return Transfer(index, tensor, direction, flows, column, tile_bytes, 4, 1, depth, AccessPattern((), 1, 0, (), ()))


def feasible(problem: Problem) -> bool:
    """Whether any choice of tiles, columns, shared streams and their buffers, and routes keeps all limits."""
    array = problem.limits
    cores = [Tile(c, 2 + r) for c in range(array.columns) for r in range(array.core_rows)]
    for tiles in permutations(cores, len(problem.nodes)):
        for owners in product(*(_owners(array, tiles, s.source, s.target, s.token_bytes) for s in problem.streams)):
            if not _cores_hold(problem, owners):
                continue
            for columns in product(range(array.columns), repeat=len(problem.transfers)):
                if _columns_hold(problem, columns) and _routable(problem, tiles, owners, columns):
                    return True
    return False


def _owners(array: ArrayLimits, tiles: tuple[Tile, ...], source: int, target: int, size: int) -> list[int | None]:
    """The nodes that may hold the buffer of a stream, and None for a routed one."""
    found: list[int | None] = [] if size % 4 else [None]
    steps = {(0, 0), (-1, 0), (0, 1), (0, -1)}  # west, north, south
    for node, other in ((source, target), (target, source)):
        if (tiles[node].column - tiles[other].column, tiles[node].row - tiles[other].row) in steps:
            found.append(node)
    return found


def _cores_hold(problem: Problem, owners: tuple[int | None, ...]) -> bool:
    core = problem.limits.core
    for node, need in enumerate(problem.nodes):
        ins = sum(node in f.nodes for f in problem.flows if f.direction == "in")
        outs = sum(node in f.nodes for f in problem.flows if f.direction == "out")
        slots, locks, size = 2 * (ins + outs), 2 * (ins + outs), need.bytes
        for stream, owner in zip(problem.streams, owners, strict=True):
            routed = owner is None and node in (stream.source, stream.target)
            ins += routed and node == stream.target
            outs += routed and node == stream.source
            slots += stream.depth * routed
            if routed or owner == node:
                locks += 2
                size += stream.depth * stream.token_bytes
        if ins > core.dma_in or outs > core.dma_out or slots > core.descriptors:
            return False
        if locks > core.locks or size > core.bytes:
            return False
    return True


def _columns_hold(problem: Problem, columns: tuple[int, ...]) -> bool:
    memory, shim = problem.limits.memory, problem.limits.shim
    for column in set(columns):
        own = [t for t, c in zip(problem.transfers, columns, strict=True) if c == column]
        into = sum(1 if t.direction == "in" else len(t.flows) for t in own)
        out = sum(1 if t.direction == "out" else len(t.flows) for t in own)
        if into > memory.dma_in or out > memory.dma_out or sum(t.staged_bytes for t in own) > memory.bytes:
            return False
        if sum(t.direction == "in" for t in own) > shim.dma_out or sum(t.direction == "out" for t in own) > shim.dma_in:
            return False
    return True


def _routable(
    problem: Problem, tiles: tuple[Tile, ...], owners: tuple[int | None, ...], columns: tuple[int, ...]
) -> bool:
    capacity = {(link.source, link.target): count for link, count in problem.limits.links.items()}
    nets = []
    for flow in problem.flows:
        memory = Tile(columns[problem.carriers[flow.index]], 1)
        ends = [tiles[node] for node in flow.nodes]
        nets.append((memory, ends) if flow.direction == "in" else (ends[0], [memory]))
    for stream, owner in zip(problem.streams, owners, strict=True):
        if owner is None:
            nets.append((tiles[stream.source], [tiles[stream.target]]))
    options = [_trees(source, sinks, capacity) for source, sinks in nets]

    def fits(number: int, used: Counter[Edge]) -> bool:
        if number == len(options):
            return True
        for tree in options[number]:
            if all(used[edge] < capacity[edge] for edge in tree) and fits(number + 1, used + Counter(tree)):
                return True
        return False

    return fits(0, Counter())


def _trees(source: Tile, sinks: list[Tile], capacity: dict[Edge, int]) -> list[frozenset[Edge]]:
    """All unions of simple paths to the sinks; memory tiles only at the ends."""
    choices = product(*(list(_paths(source, sink, capacity, (source,))) for sink in sinks))
    return sorted({frozenset().union(*paths) for paths in choices}, key=lambda tree: (len(tree), sorted(tree)))


def _paths(at: Tile, sink: Tile, capacity: dict[Edge, int], seen: tuple[Tile, ...]) -> Iterator[frozenset[Edge]]:
    if at == sink:
        yield frozenset(pairwise(seen))
        return
    for source, target in capacity:
        if source == at and target not in seen and (target.row > 1 or target == sink) and target.row > 0:
            yield from _paths(target, sink, capacity, (*seen, target))
