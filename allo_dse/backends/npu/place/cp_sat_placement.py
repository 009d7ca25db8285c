"""Placement where nodes exchange streams, or where routes are scarce: by CP-SAT.

1. Nodes are placed by CP-SAT, with the transport plan's columns, near the memory tiles they exchange tiles with; routes
   are found by negotiated congestion. Where nodes can only be neighbours, chains of them are tried upright first: there
   are few such placements, and their routes do not cross. This decides nearly all mappings.
2. If no routes are found, one model of placement, columns and routes decides.
3. If a model has no solution, the same model with limits that may be exceeded at a price says which, and by how much.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from allo_dse.common.cp_sat import answer, cp_model
from allo_dse.common.records import Frozen
from allo_dse.mapper.graph.ports import Direction
from allo_dse.mapper.violation import Violation

from ..movement.movement import LOCKS_PER_END, WORD_BYTES, Flow, StreamFlow
from .array import FIRST_CORE_ROW, MEMORY_ROW, SHIM_ROW, Link, Tile
from .placed_design import Infeasible, PlacedDesign
from .preferences import wire_costs
from .problem import Assignment, Problem
from .router import Net, Tree, nets_of, numbered, route, routed

# Placement as a constraint model for CP-SAT: which tile each node is on, which streams run through shared memory.
#
# Hard rules are the geometry: one tile per node, one node per tile, buffers of shared streams where both ends reach
# them. Limits of the cores are hard too, unless the model is `soft`: then each may be exceeded at a price, so that the
# cheapest solution shows which limits are in the way.


Literal = cp_model.IntVar
Expr = cp_model.LinearExprT

# Prices of exceeded limits in a soft model: an excess byte costs less than an excess channel.
_PRICE_OF_BYTE, _PRICE_OF_PIECE = 1, 10_000
# Value, in wires, of keeping a stream in shared memory.
_PRICE_OF_ROUTE = 32


class Excess(Frozen):
    """Amount by which a soft model exceeds a limit; `constraint` as in `violation.CONSTRAINTS`."""

    constraint: str
    place: int
    limit: int
    amount: Literal


class PlacementModel:
    """The model of a problem.

    Attributes:
        on: per node and core, whether the node is there.
        shared: per stream, whether it runs through shared memory.
        at_source, at_target: per stream, whether the core of that end holds a buffer of it.
    """

    def __init__(self, problem: Problem, *, soft: bool = False) -> None:
        self.problem = problem
        self.cores = problem.limits.cores
        self.model = cp_model.CpModel()
        self.soft = soft
        self.excesses: list[Excess] = []
        new = self.model.new_bool_var
        self.on = [{tile: new("") for tile in self.cores} for _ in problem.nodes]
        self.shared = [new("") for _ in problem.streams]
        self.at_source = [new("") for _ in problem.streams]
        self.at_target = [new("") for _ in problem.streams]
        for places in self.on:
            self.model.add_exactly_one(places.values())
        for tile in self.cores:
            self.model.add_at_most_one(places[tile] for places in self.on)
        self._streams()
        for node in range(len(problem.nodes)):
            self._core_limits(node)

    def _streams(self) -> None:
        """Shared: between neighbours, one buffer where both reach it. Otherwise: a buffer at each end."""
        add = self.model.add_bool_or
        reach, around = self.problem.limits.addresses, self.problem.limits.adjacent
        near = {t: [(other, reach(other, t), reach(t, other)) for other in around[t]] for t in self.cores}
        for number, stream in enumerate(self.problem.streams):
            shared, at_source, at_target = self.shared[number], self.at_source[number], self.at_target[number]
            source, target = self.on[stream.source], self.on[stream.target]
            # Shared and one buffer, or routed and one at each end.
            self.model.add(at_source + at_target + shared == 2)
            if not stream.routable:
                self._at_most("word_alignment", number, stream.token_bytes % WORD_BYTES * (1 - shared), 0)
            for tile in self.cores:
                add(~shared, ~source[tile], *(target[t] for t in around[tile]))
                add(~shared, ~target[tile], *(source[t] for t in around[tile]))
                for other, to_source, to_target in near[tile]:
                    # A shared buffer lies where the core of the other end can address it.
                    if not to_source:
                        add(~shared, ~source[tile], ~target[other], ~at_source)
                    if not to_target:
                        add(~shared, ~source[tile], ~target[other], ~at_target)

    def keep_in_columns(self) -> None:
        """Nodes that can only be neighbours are above each other: cascades stand upright, each in a column."""
        for pair in self.problem.neighbours:
            for node, other in (pair, pair[::-1]):
                for tile in self.cores:
                    near = (t for t in self.problem.limits.adjacent[tile] if t.column == tile.column)
                    self.model.add_bool_or(~self.on[node][tile], *(self.on[other][t] for t in near))

    def _core_limits(self, node: int) -> None:
        """DMA channels, descriptors, locks and bytes of the core that a node is on."""
        problem = self.problem
        into, out = problem.streams_of[node]
        routed_in, routed_out = [1 - self.shared[s] for s in into], [1 - self.shared[s] for s in out]
        buffers = [(problem.streams[s], self.at_target[s]) for s in into]
        buffers += [(problem.streams[s], self.at_source[s]) for s in out]
        routed = [(problem.streams[s], far) for s, far in zip((*into, *out), (*routed_in, *routed_out), strict=True)]
        of_streams: dict[str, Expr] = {
            "core_dma_in": sum(routed_in),
            "core_dma_out": sum(routed_out),
            "core_descriptors": sum(stream.depth * far for stream, far in routed),
            "core_locks": LOCKS_PER_END * sum(buffer for _, buffer in buffers),
            "core_memory": sum(stream.bytes * buffer for stream, buffer in buffers),
        }
        for constraint, needed in problem.needs[node].items():
            self._at_most(constraint, node, needed + of_streams[constraint], problem.limits.core_limits[constraint])

    def _at_most(self, constraint: str, place: int, needed: Expr, limit: int) -> None:
        if not self.soft:
            if isinstance(needed, int):
                self.model.add_bool_and([]) if needed <= limit else self.model.add_bool_or([])
            else:
                self.model.add(needed <= limit)
            return
        amount = self.model.new_int_var(0, 1 << 40, "")
        self.model.add(needed <= limit + amount)
        self.excesses.append(Excess(constraint, place, limit, amount))

    def wires(self) -> Expr:
        """About how many wires a placement takes, and a price for routed streams."""
        wires: list[list[int]] = wire_costs(self.problem).tolist()
        every = zip(self.on, wires, strict=True)
        near = sum(cost * here for on, costs in every for cost, here in zip(costs, on.values(), strict=True))
        return near + sum(_PRICE_OF_ROUTE * (1 - shared) for shared in self.shared)

    def read(self, solver: cp_model.CpSolver, columns: Sequence[int]) -> Assignment:
        """The solution that a solver found."""
        tiles = tuple(next(tile for tile, here in places.items() if solver.boolean_value(here)) for places in self.on)
        owners = (
            tiles[stream.source if solver.boolean_value(at_source) else stream.target]
            if solver.boolean_value(shared)
            else None
            for stream, shared, at_source in zip(self.problem.streams, self.shared, self.at_source, strict=True)
        )
        return Assignment(tiles, tuple(columns), tuple(owners))


MAX_REASONS = 8
"""Messages beyond these say nothing new."""

# Deterministic seconds for shortening wires, once a placement is known to exist.
_POLISH = 0.2
_WORK = 20.0  # for a full search; about as many seconds on an idle machine
# The same for finding the reasons, once it is known that no placement exists.
_REASONS = 1.0


def search(problem: Problem, start: Assignment | None, deadline: float) -> PlacedDesign | Infeasible:
    """Tiles, columns and routes, or the limits in the way.

    Args:
        start: a placement that keeps the limits of all cores, without quick routes; None when none is known.
        deadline: of `time.monotonic`.
    """
    if start is not None:
        return _exact(problem, start, deadline)
    if problem.neighbours:
        upright = PlacementModel(problem)
        upright.keep_in_columns()
        _, placement = _quick(upright, deadline, work=_POLISH)
        if placement is not None and (placed := routed(problem, placement)) is not None:
            return placed
    status, placement = _quick(PlacementModel(problem), deadline)
    if status == cp_model.INFEASIBLE:
        return _why(PlacementModel(problem, soft=True), deadline)
    if placement is not None and (placed := routed(problem, placement)) is not None:
        return placed
    return _exact(problem, placement, deadline)


def _quick(
    model: PlacementModel, deadline: float, work: float = _WORK
) -> tuple[cp_model.CpSolverStatus, Assignment | None]:
    """A placement with short wires, with the columns of the plan.

    Args:
        work: deterministic seconds to find any placement in.
    """
    model.model.minimize(model.wires())
    # A relaxation bounds the wires too loosely to close the gap, and takes a third of the time.
    status, solver = answer(model.model, work=_POLISH, seconds=_left(deadline), gap=0.1, linear=0)
    if status == cp_model.UNKNOWN:
        model.model.clear_objective()  # type: ignore[no-untyped-call]
        status, solver = answer(model.model, work=work, seconds=_left(deadline))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return status, None
    return status, model.read(solver, [transfer.column for transfer in model.problem.transfers])


def _exact(problem: Problem, start: Assignment | None, deadline: float) -> PlacedDesign | Infeasible:
    model = JointModel(problem)
    if start is not None:
        model.hint(start)
    status, solver = answer(model.model, work=_WORK, seconds=_left(deadline))
    if status == cp_model.INFEASIBLE:
        return _why(JointModel(problem, soft=True), deadline)
    if status == cp_model.UNKNOWN:
        return Infeasible((), proven=False)
    placement = model.read(solver, model.columns(solver))
    nets = nets_of(problem, placement)
    first = len(problem.transfers)
    direct = route(nets[:first], problem.limits.links)
    assert direct is not None, "a shim tile and the memory tile above it are linked"
    trees = [*direct, *model.trees(solver, nets[first:])]
    placed = numbered(problem, placement, trees)
    assert placed is not None, "the model numbers channels by bank"
    return placed


def _why(model: PlacementModel, deadline: float) -> Infeasible:
    """Return the limits that the cheapest placement exceeds, in the order of the soft model."""
    prices = (_PRICE_OF_BYTE if one.constraint.endswith("memory") else _PRICE_OF_PIECE for one in model.excesses)
    model.model.minimize(sum(one.amount * price for one, price in zip(model.excesses, prices, strict=True)))
    status, solver = answer(model.model, work=_REASONS, seconds=max(_left(deadline), 2.0))
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return Infeasible(())
    found: list[Violation] = []
    for excess in model.excesses:
        amount = solver.value(excess.amount)
        if amount > 0 and len(found) < MAX_REASONS:
            where, detail = _describe(excess, model, solver)
            found.append(Violation(excess.constraint, where, excess.limit + amount, excess.limit, detail))
    return Infeasible(tuple(found))


def _left(deadline: float) -> float:
    return max(0.05, deadline - time.monotonic())


def _describe(excess: Excess, model: PlacementModel, solver: cp_model.CpSolver) -> tuple[str, str]:
    problem = model.problem
    if excess.constraint.startswith("core_"):
        return f"core {problem.nodes[excess.place].name}", ", ".join(_of_core(excess, model, solver))
    if excess.constraint == "word_alignment":
        stream = problem.streams[excess.place]
        ends = f"{problem.nodes[stream.source].name} and {problem.nodes[stream.target].name}"
        return f"stream {stream.stream}", f"{stream.token_bytes}-byte tokens; {ends} are not neighbours"
    if excess.constraint == "switch_ports":
        if excess.place < problem.limits.columns:
            return f"shim tile {excess.place}", ""
        link = list(problem.limits.links)[excess.place - problem.limits.columns]
        return f"{link.source} towards {link.side}", ""
    tile = "shim tile" if excess.constraint.startswith("shim") else "memory tile"
    return f"{tile} {excess.place}", ", ".join(dict.fromkeys(t.tensor for t in problem.transfers))


def _of_core(excess: Excess, model: PlacementModel, solver: cp_model.CpSolver) -> Iterator[str]:
    """Describe the items that make up the need of a core."""
    problem, node = model.problem, excess.place
    into, out = problem.streams_of[node]
    if excess.constraint == "core_memory":
        yield f"tiles and chain buffers {problem.nodes[node].bytes:,}"
        for numbers, held in ((into, model.at_target), (out, model.at_source)):
            for number in numbers:
                if solver.boolean_value(held[number]):
                    yield f"{problem.streams[number].stream} {problem.streams[number].bytes:,}"
        return
    if excess.constraint != "core_dma_out":
        yield from problem.tensor_names(node, "in")
    if excess.constraint != "core_dma_in":
        yield from problem.tensor_names(node, "out")
    streams = into if excess.constraint == "core_dma_in" else out if excess.constraint == "core_dma_out" else into + out
    far = [problem.streams[s].stream for s in streams if not solver.boolean_value(model.shared[s])]
    if far:
        neighbours = max(len(around) for around in problem.limits.adjacent.values())
        yield f"{', '.join(dict.fromkeys(far))}: {len(far)} streams that are left over by {neighbours} neighbours"


class _Net(Frozen):
    """Variables of a route between cores and memory tiles: its links, and the tiles that it reaches."""

    used: dict[Link, Literal]
    reached: dict[Tile, Literal]


class JointModel(PlacementModel):
    """A placement model with the memory and shim tiles of transfers, and a route for each flow and routed stream.

    Attributes:
        column: per transfer and column, whether the transfer is there.
    """

    def __init__(self, problem: Problem, *, soft: bool = False) -> None:
        super().__init__(problem, soft=soft)
        new = self.model.new_bool_var
        columns = range(problem.limits.columns)
        self.column = [[new("") for _ in columns] for _ in problem.transfers]
        for places in self.column:
            self.model.add_exactly_one(places)
        for column in columns:
            self._column_limits(column)
        self.nets = [*map(self._flow, problem.flows), *map(self._stream, problem.streams, self.shared)]
        for number, (link, capacity) in enumerate(problem.limits.links.items()):
            nets = [net.used[link] for net in self.nets if link in net.used]
            if len(nets) > capacity:
                self._at_most("switch_ports", problem.limits.columns + number, sum(nets), capacity)

    # -- memory tiles and shim tiles ----------------------------------------------------------------------------------

    def _column_limits(self, column: int) -> None:
        """Limits of a shim tile and the memory tile above it.

        The memory tile's channels and descriptors are by bank: channel c uses those of bank c modulo the banks.
        """
        problem, shim, memory = self.problem, self.problem.limits.shim, self.problem.limits.memory
        here = [(t, self.column[number][column]) for number, t in enumerate(problem.transfers)]
        self._at_most("shim_dma_out", column, sum(y for t, y in here if t.direction == "in"), shim.dma_out)
        self._at_most("shim_dma_in", column, sum(y for t, y in here if t.direction == "out"), shim.dma_in)
        self._at_most("shim_descriptors", column, sum(y for _, y in here), shim.descriptors)
        for side, tile, direction in (("north", SHIM_ROW, "in"), ("south", MEMORY_ROW, "out")):
            capacity = problem.limits.links.get(Link(Tile(column, tile), side), 0)
            self._at_most("switch_ports", column, sum(y for t, y in here if t.direction == direction), capacity)
        self._at_most("memory_tile_memory", column, sum(t.staged_bytes * y for t, y in here), memory.bytes)
        self._at_most("memory_tile_locks", column, sum(t.locks * y for t, y in here), memory.locks)
        loads: list[list[cp_model.LinearExpr]] = [[] for _ in range(memory.banks)]
        channels_of: dict[Direction, int] = {"in": memory.dma_in, "out": memory.dma_out}
        for direction, channels in channels_of.items():
            taken: list[list[Literal]] = [[] for _ in range(memory.banks)]
            for transfer, place in here:
                for descriptors in transfer.ends(direction):
                    banks = [self.model.new_bool_var("") for _ in range(memory.banks)]
                    self.model.add(sum(banks) == place)
                    for bank, literal in enumerate(banks):
                        taken[bank].append(literal)
                        loads[bank].append(descriptors * literal)
            for bank in range(memory.banks):
                own = len(range(bank, channels, memory.banks))
                self._at_most(f"memory_tile_dma_{direction}", column, sum(taken[bank]), own)
        for bank in range(memory.banks):
            self._at_most("memory_tile_descriptors", column, sum(loads[bank]), memory.descriptors // memory.banks)

    # -- routes -------------------------------------------------------------------------------------------------------

    def _flow(self, flow: Flow) -> _Net:
        memory = {Tile(c, MEMORY_ROW): y for c, y in enumerate(self.column[self.problem.carriers[flow.index]])}
        if flow.direction == "in":
            net = self._net(memory)
            for node in flow.nodes:
                self._ends(net, self.on[node])
        else:
            (node,) = flow.nodes
            net = self._net(self.on[node])
            self._ends(net, memory)
        return net

    def _stream(self, stream: StreamFlow, shared: Literal) -> _Net:
        """The route of a stream, which is empty when it runs through shared memory."""
        sources: dict[Tile, Literal] = {}
        sinks: dict[Tile, Literal] = {}
        for tile in self.cores:
            for ends, node in ((sources, stream.source), (sinks, stream.target)):
                ends[tile] = end = self.model.new_bool_var("")
                self.model.add_bool_and(self.on[node][tile], ~shared).only_enforce_if(end)
                self.model.add_bool_or(end, ~self.on[node][tile], shared)
        net = self._net(sources)
        self._ends(net, sinks)
        return net

    def _net(self, sources: dict[Tile, Literal]) -> _Net:
        """A tree from wherever the source is: a tile is reached from exactly one other, nearer to the source."""
        model, limits = self.model, self.problem.limits
        from_core = all(tile.row >= FIRST_CORE_ROW for tile in sources)
        used = {link: model.new_bool_var("") for link in limits.links if _leads_on(link, from_core)}
        tiles = sorted({end for link in used for end in (link.source, link.target)} | set(sources))
        reached = {tile: model.new_bool_var("") for tile in tiles}
        depth = {tile: model.new_int_var(0, len(tiles), "") for tile in tiles}
        for tile in tiles:
            entering = [literal for link, literal in used.items() if link.target == tile]
            start = [sources[tile]] if tile in sources else []
            model.add(sum(entering) + sum(start) == reached[tile])
        for link, taken in used.items():
            model.add_implication(taken, reached[link.source])
            # Depths that grow along links keep out cycles apart from the source (Miller, Tucker and Zemlin 1960).
            model.add(depth[link.target] > depth[link.source]).only_enforce_if(taken)
        return _Net(used, reached)

    def _ends(self, net: _Net, sinks: dict[Tile, Literal]) -> None:
        for tile, literal in sinks.items():
            if tile in net.reached:
                self.model.add_implication(literal, net.reached[tile])
            else:
                self.model.add_bool_or(~literal)

    # -- solutions ----------------------------------------------------------------------------------------------------

    def hint(self, placement: Assignment) -> None:
        """Start the search from a placement that could not be routed."""
        for places, tile in zip(self.on, placement.tiles, strict=True):
            for other, literal in places.items():
                self.model.add_hint(literal, tile == other)
        for columns, column in zip(self.column, placement.columns, strict=True):
            for number, literal in enumerate(columns):
                self.model.add_hint(literal, column == number)

    def columns(self, solver: cp_model.CpSolver) -> list[int]:
        """The column of each transfer in the solution."""
        return [next(c for c, y in enumerate(places) if solver.boolean_value(y)) for places in self.column]

    def trees(self, solver: cp_model.CpSolver, nets: Sequence[Net]) -> list[Tree]:
        """The routes of the solution for nets (flows, then streams), from their sources; empty where there is none."""
        result = []
        for variables, net in zip(self.nets, nets, strict=True):
            chosen = {link.target: link for link, literal in variables.used.items() if solver.boolean_value(literal)}
            result.append(_ordered(chosen, net))
        return result


def _leads_on(link: Link, from_core: bool) -> bool:
    """Return whether a route may take a link: between cores, or from or to a memory tile at the route's ends."""
    low, high = sorted((link.source.row, link.target.row))
    return low > MEMORY_ROW or (low == MEMORY_ROW < high and (link.target if from_core else link.source).row == low)


def _ordered(arrivals: dict[Tile, Link], net: Net) -> Tree:
    """The links that lead to a net's sinks (the link by which each tile is reached), from the source on."""
    result: list[Link] = []
    for sink in net.sinks:
        path: list[Link] = []
        tile = sink
        while tile != net.source and arrivals[tile] not in result:
            path.append(arrivals[tile])
            tile = path[-1].source
        result += reversed(path)
    return tuple(result)
