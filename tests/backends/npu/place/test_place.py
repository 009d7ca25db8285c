"""Placement and routing: every answer is checked independently, and against trying everything on tiny arrays."""

from __future__ import annotations

import json
from functools import cache
from itertools import permutations
from random import Random
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs
from ortools.sat.python import cp_model

from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement.movement import StreamFlow
from allo_dse.backends.npu.place.array import ArrayLimits, Link, Tile
from allo_dse.backends.npu.place.cp_sat_placement import JointModel, PlacementModel
from allo_dse.backends.npu.place.placed_design import Hop, Infeasible, PlacedDesign, Port
from allo_dse.backends.npu.place.preferences import assigned, cheapest, wire_costs
from allo_dse.backends.npu.place.problem import NodeNeed, Problem
from allo_dse.backends.npu.place.solve import solve
from allo_dse.common.cp_sat import answer
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import Tensor
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.vmg import VMG
from tests.support.programs import INT32, attention_program, one_class_kernel, sharded

from .designs import DESIGNS, attention, gemm
from .independent_check import verify_placement
from .problems import feasible, flow, problems, tiny_array, transfer


@pytest.mark.parametrize("name", DESIGNS)
def test_designs_that_pass_the_fast_check_are_placed(name: str) -> None:
    vmg, device_name = DESIGNS[name]
    device = NpuDevice.load(device_name)
    assert NpuMapping(vmg, device).violations == ()
    placed = NpuMapping(vmg, device).placement
    assert isinstance(placed, PlacedDesign), str(placed)
    assert verify_placement(placed) == []
    assert NpuMapping(vmg, device).placement == placed
    assert PlacedDesign.from_dict(json.loads(json.dumps(placed.to_dict()))) == placed


class TestHandWrittenGemm:
    placed = cast(PlacedDesign, NpuMapping(gemm(1, 4, 4), NpuDevice.load("npu1_4col")).placement)

    def test_there_is_a_placement(self) -> None:
        assert isinstance(self.placed, PlacedDesign)

    def test_every_core_uses_two_channels_in_and_one_out(self) -> None:
        cores = {tile: use for tile, use in self.placed.usage.items() if tile.kind == "core"}
        assert len(cores) == 16
        assert {(use.dma_in, use.dma_out) for use in cores.values()} == {(2, 1)}
        assert {use.descriptors for use in cores.values()} == {6}

    def test_memory_tiles_are_full(self) -> None:
        """4 outputs and 2 inputs in, 1 output and 2 inputs out, on every memory tile."""
        uses = [use for tile, use in self.placed.usage.items() if tile.kind == "memory"]
        assert [(use.dma_in, use.dma_out) for use in uses] == [(6, 3)] * 4

    def test_no_wire_is_wasted(self) -> None:
        """By hand: 12 below the memory tiles, 16 for A up its column, 22 for B along its row, 40 for C down."""
        assert self.placed.link_count == 12 + 16 + 22 + 40

    def test_tiles_of_a_are_multicast(self) -> None:
        route = next(r for r in self.placed.routes if r.kind == "flow" and r.name == "A")
        assert len(route.sinks) == 4
        assert route.source.kind == "memory"


def test_streams_of_neighbours_share_memory() -> None:
    placed = NpuMapping(gemm(2, 4, 2), NpuDevice.load("npu1_4col")).placement
    assert isinstance(placed, PlacedDesign)
    assert None not in placed.owners
    assert not any(route.kind == "stream" for route in placed.routes)


def test_cascades_whose_channels_are_taken_stand_upright() -> None:
    """Both channels into each node carry tiles, so that their streams can only be shared memory."""
    array = tiny_array(4, 4, 2, 4)
    nodes = tuple(NodeNeed(f"n{i}", 0) for i in range(16))
    streams = tuple(StreamFlow(f"s{i}", i, i + 4, 2, 60) for i in range(12))
    users = [(tensor, node) for node in range(16) for tensor in "ab"]
    flows = tuple(flow(tensor, "in", (node,), number, depth=1) for number, (tensor, node) in enumerate(users))
    problem = Problem("array", array, nodes, streams, flows, ())
    assert problem.neighbours == tuple((i, i + 4) for i in range(12))
    assert replace(problem, flows=flows[:8]).neighbours == ()
    model = PlacementModel(problem)
    model.keep_in_columns()
    status, solver = answer(model.model, work=1.0)
    assert status in (cp_model.OPTIMAL, cp_model.FEASIBLE)
    tiles = model.read(solver, ()).tiles
    assert len({tiles[node].column for node in range(4)}) == 4
    assert all(tiles[s.source].column == tiles[s.target].column for s in streams)


def added(cores: int) -> NpuMapping:
    """C = A + B, three streams a core."""
    shape, axis = (cores * 64,), (cores,)
    tensors = tuple(Tensor(name, INT32, shape) for name in "ABC")
    ports = [sharded(n, t, axis, (0,), reads=n < 2, writes=n == 2) for n, t in enumerate(tensors)]
    program = CompiledProgram("add", tensors, (), (one_class_kernel("core", axis, tensors, ports),))
    return NpuMapping(VMG.of(program), NpuDevice.load("npu2"))


def test_cores_of_two_rows_share_the_shim_channels_of_their_column() -> None:
    """A memory tile hands one shim channel's tiles to several cores, so three streams a core take three shim channels a
    column; what two rows would take without it, four channels from DRAM, no column has."""
    placed = added(16).placement
    assert isinstance(placed, PlacedDesign)
    assert {(u.dma_in, u.dma_out) for tile, u in placed.usage.items() if tile.kind == "shim"} == {(1, 2)}
    assert {(u.dma_in, u.dma_out) for tile, u in placed.usage.items() if tile.kind == "memory"} == {(4, 5)}


def test_four_rows_with_three_streams_a_core_have_too_few_channels_in_the_memory_tiles() -> None:
    assert {violation.constraint for violation in added(32).violations} == {"memory_tile_dma_out"}


def test_a_triangle_has_one_routed_stream_per_pipeline() -> None:
    """Scores, softmax, values and sums: softmax also feeds the sums, and a grid has no triangles."""
    placed = NpuMapping(attention(8, 4), NpuDevice.load("npu1_4col")).placement
    assert isinstance(placed, PlacedDesign)
    assert sum(owner is None for owner in placed.owners) == 4
    for route in placed.routes:
        if route.kind == "stream":
            assert len(route.sinks) == 1


def chain_of(array: ArrayLimits, streams: list[StreamFlow], sizes: list[int]) -> Problem:
    return Problem("tiny", array, tuple(NodeNeed(f"n{i}", s) for i, s in enumerate(sizes)), tuple(streams), (), ())


def test_a_buffer_goes_where_both_cores_reach_it() -> None:
    """A core cannot address its east neighbour's memory, so the buffer between columns is always in the west."""
    array = tiny_array(2, 1, 1, 1)
    for source, target in ((0, 1), (1, 0)):
        placed = solve(chain_of(array, [StreamFlow("s", source, target, 2, 6)], [0, 0]))
        assert isinstance(placed, PlacedDesign)
        assert placed.owners == (Tile(0, 2),)


def test_a_buffer_goes_where_there_is_room() -> None:
    placed = solve(chain_of(tiny_array(1, 2, 1, 1), [StreamFlow("s", 0, 1, 2, 60)], [900, 0]))
    assert isinstance(placed, PlacedDesign)
    assert placed.owners == (placed.tiles[1],)
    assert verify_placement(placed) == []


def test_scalars_smaller_than_a_word_cannot_be_routed() -> None:
    """Three nodes in a triangle on a grid: one stream has to be routed, and DMA moves whole words."""
    array = tiny_array(2, 2, 2, 4)
    triangle = [(0, 1), (1, 2), (0, 2)]
    for size, fits in ((4, True), (2, False)):
        found = solve(chain_of(array, [StreamFlow(f"s{a}{b}", a, b, 2, size) for a, b in triangle], [0, 0, 0]))
        assert found.placed == fits
    assert isinstance(found, Infeasible)
    assert [v.constraint for v in found.violations] == ["word_alignment"]


class TestReasons:
    def test_too_many_nodes(self) -> None:
        found = NpuMapping(gemm(1, 4, 8), NpuDevice.load("npu1_4col")).placement
        assert isinstance(found, Infeasible)
        assert [v.constraint for v in found.violations] == ["compute_tiles", "memory_tile_dma_in", "switch_ports"]

    def test_more_peers_than_neighbours_and_channels(self) -> None:
        """Softmax of an unfolded attention of four chunks has nine streams, four neighbours, two channels each way."""
        found = NpuMapping(VMG.of(attention_program(rows=2, chunks=4)), NpuDevice.load("npu2")).placement
        assert isinstance(found, Infeasible)
        assert found.proven
        assert {v.constraint for v in found.violations} <= {"core_dma_in", "core_dma_out"}
        text = "DMA in-channels on core cal_softmax_0 and 1 like it: needs 3, has 2 (3 of score)"
        assert str(found.violations[0]) == text

    def test_memory(self) -> None:
        found = solve(chain_of(tiny_array(1, 2, 1, 1), [StreamFlow("s", 0, 1, 2, 60)], [900, 900]))
        assert isinstance(found, Infeasible)
        (violation,) = found.violations
        assert (violation.constraint, violation.needed, violation.limit) == ("core_memory", 1020, 1000)

    def test_switch_ports(self) -> None:
        """Five outputs of a column need five wires down into the memory tile, which takes four."""
        array = tiny_array(1, 5, 2, 6)
        nodes = tuple(NodeNeed(f"n{i}", 0) for i in range(5))
        flows = tuple(flow("C", "out", (i,), i) for i in range(5))
        found = solve(Problem("tiny", array, nodes, (), flows, (transfer("C", "out", tuple(range(5)), 4),)))
        assert isinstance(found, Infeasible)
        assert [v.constraint for v in found.violations] == ["switch_ports"]
        assert str(found.violations[0]) == "stream-switch ports on core(0,2) towards south: needs 5, has 4"

    def test_no_time(self) -> None:
        """Undecided is not infeasible."""
        found = Infeasible((), proven=False)
        assert str(found) == "no placement found in time"


def test_columns_change_where_the_plan_does_not_hold() -> None:
    """Both transfers are planned in one column, whose memory tile holds one of them."""
    array = tiny_array(2, 1, 2, 2)
    nodes = (NodeNeed("a", 0), NodeNeed("b", 0))
    flows = (flow("A", "in", (0,)), flow("A", "in", (1,), 1))
    transfers = tuple(transfer("A", "in", (i,), 1500, index=i) for i in range(2))
    placed = solve(Problem("tiny", array, nodes, (), flows, transfers))
    assert isinstance(placed, PlacedDesign)
    assert sorted(placed.columns) == [0, 1]
    assert verify_placement(placed) == []


def test_channels_of_a_memory_tile_follow_its_banks() -> None:
    """Two banks of 24 descriptors: ends of 16, 16 and 8 fit only if the 8 goes with one of the 16s."""
    array = tiny_array(1, 3, 2, 4)
    array = replace(array, memory=replace(array.memory, banks=2))
    nodes = tuple(NodeNeed(f"n{i}", 0) for i in range(3))
    flows = tuple(flow("C", "out", (i,), i, depth=1) for i in range(2))
    transfers = (transfer("C", "out", (0,), 4, depth=12), transfer("D", "out", (1,), 4, depth=12, index=1))
    placed = solve(Problem("tiny", array, nodes, (), flows, transfers))
    assert isinstance(placed, PlacedDesign)
    assert verify_placement(placed) == []
    crowded = structs.replace(transfers[0], depth=13)
    assert not solve(Problem("tiny", array, nodes, (), flows, (crowded, transfers[1]))).placed


@settings(max_examples=60, deadline=None)
@given(problems())
def test_agrees_with_trying_everything(problem: Problem) -> None:
    found = solve(problem)
    assert found.placed == feasible(problem)
    if isinstance(found, PlacedDesign):
        assert verify_placement(found) == []
        assert PlacedDesign.from_dict(json.loads(json.dumps(found.to_dict()))) == found
    else:
        assert found.proven
        assert found.violations


@settings(max_examples=40, deadline=None)
@given(problems())
def test_without_streams_no_assignment_is_cheaper(problem: Problem) -> None:
    costs, cores = wire_costs(problem).tolist(), problem.limits.cores
    every = permutations(range(len(cores)), len(problem.nodes))
    least = min(sum(cost[at] for cost, at in zip(costs, places, strict=True)) for places in every)
    found = cheapest(problem)
    assert len(set(found)) == len(problem.nodes)
    assert sum(cost[cores.index(tile)] for cost, tile in zip(costs, found, strict=True)) == least


@settings(max_examples=25, deadline=None)
@given(problems())
def test_the_exact_model_alone_agrees_too(problem: Problem) -> None:
    """The quick way decides nearly everything; without it, the model of placement and routes has to."""
    status, _ = answer(JointModel(problem).model, work=1e6, seconds=600.0)
    assert (status in (2, 4)) == feasible(problem)


@cache
def sound() -> PlacedDesign:
    placed = NpuMapping(attention(8, 4), NpuDevice.load("npu1_4col")).placement
    assert isinstance(placed, PlacedDesign)
    return placed


class TestVerifier:
    """Each kind of damage to a sound design is found."""

    @property
    def placed(self) -> PlacedDesign:
        return sound()

    def damaged(self, **changes: Any) -> list[str]:
        return [v.constraint for v in verify_placement(replace(self.placed, **changes))]

    def test_two_nodes_on_a_tile(self) -> None:
        assert "compute_tiles" in self.damaged(tiles=(self.placed.tiles[1], *self.placed.tiles[1:]))

    def test_a_missing_route(self) -> None:
        assert "placement" in self.damaged(routes=self.placed.routes[1:])

    def test_a_route_with_a_gap(self) -> None:
        number, route = max(enumerate(self.placed.routes), key=lambda pair: len(pair[1].hops))
        cut = replace(route, hops=(route.hops[0], *route.hops[2:]))
        routes = [cut if n == number else r for n, r in enumerate(self.placed.routes)]
        assert "placement" in self.damaged(routes=tuple(routes))

    def test_a_port_that_does_not_exist(self) -> None:
        route = self.placed.routes[0]
        hops = (Hop(route.hops[0].tile, route.hops[0].source, Port("north", 17)), *route.hops[1:])
        routes = (replace(route, hops=hops), *self.placed.routes[1:])
        assert "switch_ports" in self.damaged(routes=routes)

    @pytest.mark.parametrize("kind", ["core", "memory", "shim"])
    @pytest.mark.parametrize(("channels", "end"), [("dma_in", "target"), ("dma_out", "source")])
    def test_channels_that_do_not_exist(self, kind: str, channels: str, end: str) -> None:
        """What leaves a switch to the DMA enters the tile's memory, what comes from the DMA leaves it."""
        problem = self.placed.problem
        limits = replace(problem.limits, **{kind: replace(getattr(problem.limits, kind), **{channels: 0})})
        hops = [hop for route in self.placed.routes for hop in route.hops if hop.tile.kind == kind]
        using = sum(getattr(hop, end).side == "dma" for hop in hops)
        assert self.damaged(problem=replace(problem, limits=limits)).count("switch_ports") == using

    def test_a_buffer_that_a_core_cannot_reach(self) -> None:
        number = next(n for n, owner in enumerate(self.placed.owners) if owner is not None)
        owners = [Tile(3, 5) if n == number else owner for n, owner in enumerate(self.placed.owners)]
        assert "placement" in self.damaged(owners=tuple(owners))

    def test_memory(self) -> None:
        problem = self.placed.problem
        nodes = (replace(problem.nodes[0], bytes=65537), *problem.nodes[1:])
        assert self.damaged(problem=replace(problem, nodes=nodes)) == ["core_memory"]


def test_links_carry_what_both_switches_have() -> None:
    """[tm]: six streams north and four south between cores, four into a memory tile from the north."""
    links = ArrayLimits.of(NpuDevice.of(NpuDevice.load("npu1_4col"))).links
    assert links[Link(Tile(0, 2), "north")] == 6
    assert links[Link(Tile(0, 3), "south")] == 4
    assert links[Link(Tile(0, 2), "east")] == 4
    assert links[Link(Tile(0, 1), "north")] == 6
    assert links[Link(Tile(0, 2), "south")] == 4
    assert Link(Tile(0, 1), "east") not in links


@settings(max_examples=40)
@given(st.integers(1, 4), st.integers(0, 2), st.integers(1, 9), st.randoms(use_true_random=False))
def test_assignments_have_the_least_cost(rows: int, more: int, most: int, random: Random) -> None:
    costs = np.array([[random.randint(0, most) for _ in range(rows + more)] for _ in range(rows)])
    found = assigned(costs)
    assert len(set(found)) == rows
    ways = permutations(range(rows + more), rows)
    assert costs[range(rows), found].sum() == min(costs[range(rows), way].sum() for way in ways)
