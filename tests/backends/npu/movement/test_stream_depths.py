"""Depths that a fold needs: enough to run, none to spare, and a reason where none helps."""

from __future__ import annotations

import itertools
import random
from functools import cache

import pytest

import allo_dse as dse
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement.view import MappingView, _Search
from allo_dse.device.device import NpuDevice
from allo_dse.eval.token_exchange import NeededDepths, least_depths
from allo_dse.lang import install
from allo_dse.mapper.program import load_program
from allo_dse.space.design import Design

install()

import allo.dataflow as df
from allo.ir.types import Stream, int32

from studies.attention_npu import study

DEVICE = NpuDevice.load("npu1_4col")


@cache
def fitting() -> list[Design]:
    """Folds of attention that fit the device, taken from all over its space."""
    space = study(length=128).space
    found = [c.design for c in itertools.islice(space.designs(), 400)]
    random.Random(0).shuffle(found)
    return [design for design in found if not design.mapping.violations]


def designs(count: int) -> list[Design]:
    return fitting()[:count]


def test_every_design_that_fits_runs() -> None:
    chosen = designs(40)
    assert len(chosen) == 40
    assert any(NpuMapping.of(design).view.needed_depths.depth for design in chosen)
    for design in chosen:
        assert dse.NpuSimulator().evaluate(design).latency_us > 0


def test_no_depth_can_be_one_less_and_its_memory_is_counted() -> None:
    deeper = [design for design in designs(60) if NpuMapping.of(design).view.needed_depths.depth]
    assert deeper
    for design in deeper[:12]:
        view = NpuMapping.of(design).view
        needed = view.needed_depths.depth
        declared = {stream.name: stream.depth for stream in design.program.streams}
        search = _Search.of(view.periods, view.channels)
        depth = {name: needed.get(name, declared[name]) for _, _, name in view.channels.depth}
        assert search.run(depth).finished
        for name in needed:
            assert needed[name] > declared[name]
            assert not search.run({**depth, name: needed[name] - 1}).finished
        assert {flow.depth for flow in view.links.between if flow.stream in needed} == set(needed.values())
        held = sum(flow.depth * flow.token_bytes for flow in view.links.between)
        cores = {flow.source: 0 for flow in view.links.between}
        for flow in view.links.between:
            cores[flow.source] += flow.depth * flow.token_bytes
        assert max(memory.streams for memory in NpuMapping.of(design).memory) == max(cores.values()) <= held


@df.region()
def waiting_for_each_other(A: int32[4]):
    there: Stream[int32, 2]
    back: Stream[int32, 2]

    @df.kernel(mapping=[1], args=[A])
    def one(a: int32[4]):
        x: int32 = back.get()
        there.put(x)
        a[0] = x

    @df.kernel(mapping=[1], args=[])
    def other():
        y: int32 = there.get()
        back.put(y)


def test_what_no_depth_helps_is_a_violation_that_names_cores_and_streams() -> None:
    mapping = NpuMapping(load_program(waiting_for_each_other).vmg, DEVICE)
    (violation,) = (v for v in mapping.violations if v.constraint == "stream_deadlock")
    assert "one_0 waits to get from back" in violation.detail
    assert "other_0 waits to get from there" in violation.detail


@pytest.mark.parametrize("length", [64, 128])
def test_graphs_with_one_way_between_nodes_are_not_searched(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    from studies.gemm_npu import gemm

    monkeypatch.setattr("allo_dse.backends.npu.movement.view.needed_depths", None)
    program = load_program(gemm, M=length, N=length, K=length, Pm=2, Pn=2, Pk=2)
    assert NpuMapping(program.vmg, DEVICE).view.needed_depths.depth == {}


def test_folds_that_exchange_the_same_tokens_need_the_same_depths() -> None:
    """What one fold needs is taken over for others of equal keys."""
    known: dict[bytes, NeededDepths] = {}
    chosen = designs(40)
    for design in chosen:
        view = NpuMapping.of(design).view
        shared, own = (least_depths(_Search.of(view.periods, view.channels), found) for found in (known, {}))
        assert shared == own
    assert 1 < len(known) < len(chosen)


def test_the_first_place_along_separate_axes_needs_what_all_need() -> None:
    smaller = 0
    for design in designs(60):
        view = NpuMapping.of(design).view
        part = MappingView(view.vmg.slice)
        smaller += part.vmg.task_count < view.vmg.task_count
        one, every = (least_depths(_Search.of(own.periods, own._declared_channels), {}) for own in (part, view))
        assert (one.depth, bool(one.blocked)) == (every.depth, bool(every.blocked))
    assert smaller > 10
