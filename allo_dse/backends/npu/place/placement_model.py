"""Placement as a constraint model for CP-SAT: which tile each node is on, which streams run through shared memory.

Hard rules are the geometry: one tile per node, one node per tile, buffers of shared streams where both ends reach them.
 Limits of the cores are hard too, unless the model is `soft`: then each may be exceeded at a price, so that the
cheapest solution shows which limits are in the way.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from ortools.sat.python import cp_model

from ..movement.movement import LOCKS_PER_END, WORD_BYTES
from .array import Tile
from .preferences import wire_costs
from .problem import Placement, Problem

Literal = cp_model.IntVar
Expr = cp_model.LinearExprT

# Prices of exceeded limits in a soft model: an excess byte costs less than an excess channel.
_PRICE_OF_BYTE, _PRICE_OF_PIECE = 1, 10_000
# Value, in wires, of keeping a stream in shared memory.
_PRICE_OF_ROUTE = 32


class Excess(Struct, frozen=True):
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
        self._tiles()
        self._streams()
        for node in range(len(problem.nodes)):
            self._core_limits(node)

    def _tiles(self) -> None:
        for places in self.on:
            self.model.add_exactly_one(places.values())
        for tile in self.cores:
            self.model.add_at_most_one(places[tile] for places in self.on)

    def _streams(self) -> None:
        """Shared: between neighbours, one buffer where both reach it. Otherwise: a buffer at each end."""
        add = self.model.add_bool_or
        limits = self.problem.limits
        for number, stream in enumerate(self.problem.streams):
            shared, at_source, at_target = self.shared[number], self.at_source[number], self.at_target[number]
            source, target = self.on[stream.source], self.on[stream.target]
            # Shared and one buffer, or routed and one at each end.
            self.model.add(at_source + at_target + shared == 2)
            if not stream.routable:
                self._at_most("word_alignment", number, stream.token_bytes % WORD_BYTES * (1 - shared), 0)
            for tile in self.cores:
                around = limits.adjacent[tile]
                add(~shared, ~source[tile], *(target[t] for t in around))
                add(~shared, ~target[tile], *(source[t] for t in around))
                for other in around:
                    # A shared buffer lies where the core of the other end can address it.
                    if not limits.addresses(other, tile):
                        add(~shared, ~source[tile], ~target[other], ~at_source)
                    if not limits.addresses(tile, other):
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

    def price(self) -> Expr:
        """Cost of a soft model's solution."""
        return sum(
            excess.amount * (_PRICE_OF_BYTE if excess.constraint.endswith("memory") else _PRICE_OF_PIECE)
            for excess in self.excesses
        )

    def read(self, solver: cp_model.CpSolver, columns: Sequence[int]) -> Placement:
        """The solution that a solver found."""
        tiles = tuple(next(tile for tile, here in places.items() if solver.boolean_value(here)) for places in self.on)
        owners: list[Tile | None] = []
        for number, stream in enumerate(self.problem.streams):
            if not solver.boolean_value(self.shared[number]):
                owners.append(None)
            else:
                owners.append(tiles[stream.source if solver.boolean_value(self.at_source[number]) else stream.target])
        return Placement(tiles, tuple(columns), tuple(owners))
