"""Tiles that several nodes take at once, and nodes that wait for each other because of it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.backends.npu.limits import waiting
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.network import build_npu_network
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import StreamArray, Tensor
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.violation import Buffering
from allo_dse.simulator.engine.engine import table_engine

from ...mapper.laws import programs
from ...support.programs import INT16, affine, get, one_class_kernel, put, sharded, unit
from .place.designs import DESIGNS

TILES = 4
DEVICE = NpuDevice.load("npu1_4col")
TENSORS = {name: Tensor(name, INT16, (TILES, 8)) for name in "AB"}


def nodes(orders: list[str], depth: int = 2, streams: tuple[tuple[int, int], ...] = ()) -> NpuMapping:
    """A node for each order of what it does: "A" and "B" take the next of four tiles, "." gets or puts a token."""
    pipes = {(a, b): StreamArray(f"s{a}", INT16, (4,), 2, (orders[a].count("."),)) for a, b in streams}
    kernels = []
    for node, order in enumerate(orders):
        for letter in sorted(set(order)):
            tiles = [sharded(0, TENSORS[letter], (TILES,), (0, None), reads=True)] if letter in TENSORS else []
            mesh, name = (order.count(letter),), f"{letter if tiles else 'x'}{node}"
            own = affine(mesh, unit(1, 0))
            ports = [get(pipe, own) for (_, target), pipe in pipes.items() if target == node]
            ports += [put(pipe, own) for (source, _), pipe in pipes.items() if source == node]
            kernels.append(one_class_kernel(name, mesh, [t.tensor for t in tiles], tiles, [] if tiles else ports))
    graph = VMG.of(CompiledProgram("shared", tuple(TENSORS.values()), tuple(pipes.values()), tuple(kernels)))
    for node, order in enumerate(orders):
        tasks = [f"{c if c in TENSORS else 'x'}{node}_{order[:at].count(c)}" for at, c in enumerate(order)]
        for at in range(1, len(tasks)):
            graph = graph.chain("-".join(tasks[:at]), tasks[at])
    return NpuMapping(graph, DEVICE, Buffering(depth, 2))


def runs(mapping: NpuMapping) -> bool:
    """Whether the network that times the mapping comes to its end."""
    view = mapping.view
    periods = math.gcd(*(schedule.periods for schedule in view.periods))
    network = build_npu_network(view.periods, view.channels, mapping.transport, mapping.device, periods).network
    return table_engine().run(network, extrapolate=True).finished


def test_nodes_that_take_shared_tiles_in_opposite_orders_wait_for_each_other() -> None:
    mapping = nodes(["AAAABBBB", "BBBBAAAA"])
    assert not runs(mapping)
    (violation,) = mapping.violations
    assert (violation.constraint, violation.needed) == ("tile_deadlock", 2)
    first, second = mapping.vmg.nodes
    assert f"A to 2 nodes -> {second} -> B to 2 nodes -> {first} -> A to 2 nodes" in violation.detail


@pytest.mark.parametrize(("orders", "depth"), [(["AAAABBBB"] * 2, 2), (["AAAABBBB", "BBBBAAAA"], 4)])
def test_equal_orders_and_deep_buffers_hold_nothing_up(orders: list[str], depth: int) -> None:
    mapping = nodes(orders, depth)
    assert runs(mapping)
    assert not mapping.violations


def test_lines_of_streams_side_by_side_hold_each_other_up() -> None:
    """No node waits for one that it shares tiles with: 0 for room of 2, which for 3's, which for 1's, which for 0."""
    mapping = nodes(["AAAA....", "....BBBB", "....AAAA", "BBBB...."], streams=((0, 1), (2, 3)))
    assert {flow.nodes for flow in mapping.transport.flows} == {(0, 2), (1, 3)}
    assert not runs(mapping)
    assert [violation.constraint for violation in mapping.violations] == ["tile_deadlock"]


@settings(max_examples=15)
@given(st.data())
def test_what_is_refused_is_what_does_not_run(data: st.DataObject) -> None:
    lines = data.draw(st.booleans())  # 0 to 1 and 2 to 3
    work = "A" * TILES + "B" * TILES + "." * (TILES * lines)
    count = 4 if lines else data.draw(st.integers(2, 3))
    orders = ["".join(data.draw(st.permutations(work))) for _ in range(count)]
    mapping = nodes(orders, data.draw(st.integers(1, 3)), ((0, 1), (2, 3)) if lines else ())
    assert bool(waiting(mapping.view, mapping.transport)) != runs(mapping)


@settings(max_examples=30)
@given(programs())
def test_programs_of_the_usual_kinds_run(program: CompiledProgram) -> None:
    mapping = NpuMapping(VMG.of(program), NpuDevice.load("npu2"))
    if not mapping.violations:
        assert runs(mapping)


def test_nodes_in_step_are_not_executed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allo_dse.backends.npu.network.build_npu_network", None)
    for name in ("gemm 4x4", "gemm in half chains"):
        vmg, device = DESIGNS[name]
        assert not NpuMapping(vmg, NpuDevice.load(device)).violations
