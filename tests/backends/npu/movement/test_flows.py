"""Phases: how far down a line of streams a node stands, which decides what may take turns on a channel."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement.flows import phases
from allo_dse.backends.npu.movement.movement import StreamFlow
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.vmg import VMG
from tests.mapper.laws import programs

from ..place.designs import DESIGNS

Pairs = list[tuple[int, int]]


def streams(pairs: Pairs) -> list[StreamFlow]:
    return [StreamFlow("s", a, b, 2, 4, 1) for a, b in pairs]


@st.composite
def graphs(draw: st.DrawFn, acyclic: bool) -> tuple[int, Pairs]:
    """Nodes and streams between them, in any order; without cycles, streams follow a random order of the nodes."""
    count = draw(st.integers(1, 7))
    order = draw(st.permutations(range(count)))
    pairs = [(a, b) for a in range(count) for b in range(count) if a < b or (not acyclic and a != b)]
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=12)) if pairs else []
    return count, [(order[a], order[b]) for a, b in chosen]


def has_cycle(count: int, pairs: Pairs) -> bool:
    left = set(range(count))
    while free := {n for n in left if not any(b == n and a in left for a, b in pairs)}:
        left -= free
    return bool(left)


@given(graphs(acyclic=True))
def test_a_phase_is_the_longest_line_before_a_node(graph: tuple[int, Pairs]) -> None:
    count, pairs = graph

    @cache
    def longest(node: int) -> int:
        return max((1 + longest(a) for a, b in pairs if b == node), default=0)

    assert phases(streams(pairs), count) == [longest(node) for node in range(count)]


@given(graphs(acyclic=False))
def test_streams_lead_to_later_phases_or_all_is_one_phase(graph: tuple[int, Pairs]) -> None:
    count, pairs = graph
    found = phases(streams(pairs), count)
    if has_cycle(count, pairs):
        assert found == [0] * count
    else:
        assert all(found[a] < found[b] for a, b in pairs)


def test_the_order_of_streams_does_not_matter() -> None:
    """A line of nodes, its streams listed from the end: every round settles one node."""
    line = [(i, i + 1) for i in range(30)]
    assert phases(streams(line[::-1]), 31) == phases(streams(line), 31) == list(range(31))


@pytest.mark.parametrize("name", DESIGNS)
def test_flows_that_take_turns_are_of_one_phase(name: str) -> None:
    vmg, device = DESIGNS[name]
    check_turns(vmg, device)


@given(programs())
def test_flows_of_random_programs_take_turns_within_a_phase(program: CompiledProgram) -> None:
    vmg = VMG.of(program)
    if vmg.node_count <= 64:
        check_turns(vmg, "npu2")


def check_turns(vmg: VMG, device: str) -> None:
    mapping = NpuMapping(vmg, NpuDevice.load(device))
    plan, phase = mapping.transport, phases(mapping.view.links.between, vmg.node_count)
    for transfer in plan.transfers:
        nodes = [node for flow in transfer.flows for node in plan.flows[flow].nodes]
        assert len({phase[node] for node in nodes}) == 1
