"""Bounds never say more than the simulator: on whole spaces, and on random designs of larger ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.backends.npu.evaluator import NpuBounds, NpuSimulator
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.common.errors import SimulationError
from allo_dse.device.device import NpuDevice
from allo_dse.eval.evaluator import Bounds, bounding_of
from allo_dse.lang import install
from allo_dse.space.design import Design
from allo_dse.space.genes import random_suggest
from allo_dse.space.regions import regions_of
from allo_dse.tune.study import Study

from ...support.values import present

install()

from studies import (
    attention_npu,
    ffn_npu,
    gemm_npu,
    gemv_npu,
    multihead_attention_npu,
    norm_npu,
    reduction_npu,
    resnet_npu,
    rope_npu,
    vector_add_npu,
)

ROUNDING = 1e-12
WHOLE: dict[str, Any] = {
    "gemv": lambda: gemv_npu.study(target="model"),
    "norm": norm_npu.study,
    "rope": rope_npu.study,
    "vector add": lambda: vector_add_npu.study(length=1 << 16),
}
LARGE: dict[str, Any] = {
    "gemm": lambda: gemm_npu.study(size=512),
    "attention": lambda: attention_npu.study(),
    "attention of several heads": lambda: multihead_attention_npu.study(target="model"),
    "ffn": lambda: ffn_npu.study(),
    "reduction": lambda: reduction_npu.study(),
    "resnet": lambda: resnet_npu.study(target="model"),
}


@cache
def large(name: str) -> Study:
    found: Study = LARGE[name]()
    return found


def assert_bounded(design: Design, bounding: NpuBounds) -> None:
    """What every level says of a design holds for what the simulator says of it."""
    try:
        metrics = NpuSimulator().evaluate(design)
    except SimulationError:  # it deadlocks: it has no metrics
        return
    for level in range(bounding.levels):
        found = bounding(design, level)
        assert {"latency_us", "pe_count", "local_memory_bytes", "dram_bytes"} <= found.keys()
        # As much as in the least time, and not more: two operations per multiply-accumulate.
        operations = metrics["throughput_gops"] * metrics["latency_us"]
        assert found["throughput_gops"][1] * found["latency_us"][0] <= operations * (1 + 1e-6)
        for name, (least, most) in found.items():
            value = metrics[name]
            assert least <= value + ROUNDING * abs(value), (level, name)
            assert most >= value - ROUNDING * abs(value), (level, name)


@pytest.mark.parametrize("name", WHOLE)
def test_bounds_hold_for_every_design_of_a_space(name: str) -> None:
    study, bounding = WHOLE[name](), NpuBounds()
    designs = [candidate.design for candidate in study.space.designs()]
    legal = [design for design in designs if not study.check(design)]
    assert len(legal) > 30
    for design in legal:
        assert_bounded(design, bounding)
    for region in present(regions_of(study.space)):
        whole = bounding.of_region(region.draft, region.nodes)
        for part in region.parts():
            of_part = bounding.of_region(part.draft, part.nodes, part.layout)
            every = [bounding(candidate.design, 0) for candidate in part.candidates()]  # which hold, as was just seen
            assert_looser(whole, of_part)
            for own in every:
                assert_looser(of_part, own)
            # The best order of the loops is one of the designs'.
            assert min(own["dram_bytes"][0] for own in every) == pytest.approx(of_part["dram_bytes"][0])


def assert_looser(bounds: Bounds, others: Bounds) -> None:
    for metric, (least, most) in others.items():
        assert bounds[metric][0] <= least * (1 + ROUNDING), metric
        assert bounds[metric][1] >= most * (1 - ROUNDING), metric


@settings(max_examples=40, deadline=None)
@given(name=st.sampled_from(sorted(LARGE)), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_bounds_hold_for_designs_of_larger_spaces_on_devices_of_any_speed(
    name: str, seed: int, data: st.DataObject
) -> None:
    study, rng = large(name), np.random.default_rng(seed)
    drawn = (study.space.decode(random_suggest(rng)) for _ in range(20))
    found = next((c.design for c in drawn if c is not None and not c.design.mapping.violations), None)
    if found is None:
        return
    positive = st.floats(0.01, 100.0)
    device = NpuDevice.of(found.device).with_options(
        dram_gb_s=data.draw(positive),
        launch_us=data.draw(positive),
        host_rewrite_us=data.draw(st.sampled_from([0.0, 0.1, 3.0])),
        page_slowdown=data.draw(st.floats(1.0, 6.0)),
    )
    assert_bounded(Design(found.program, found.fold, found.buffering, device), NpuBounds())


def test_the_transport_plan_says_almost_all() -> None:
    """Of the fast designs, which searches compare, within some per cent."""
    study = reduction_npu.study()
    bounding, ratios = present(bounding_of(study.make_evaluator())), []
    for candidate in list(study.space.designs())[::9]:
        if not study.check(candidate.design):
            latency = NpuSimulator().evaluate(candidate.design).latency_us
            fold, rewrites, plan = (bounding(candidate.design, level)["latency_us"][0] for level in range(3))
            assert fold <= rewrites <= plan * (1 + ROUNDING)
            ratios.append(plan / latency)
    assert np.median(ratios) > 0.97


def test_what_the_host_rewrites_is_known_without_schedules() -> None:
    """All that a bound of level 1 adds to that of the fold, at half the price of the last one."""
    study = reduction_npu.study()
    bounding = present(bounding_of(study.make_evaluator()))
    apart = list[float]()
    for candidate in list(study.space.designs())[::9]:
        design = candidate.design
        fold, rewrites = (bounding(design, level)["latency_us"][0] for level in (0, 1))
        assert not {"periods", "needed_depths"} & vars(NpuMapping.of(design).view).keys()
        board, transport = NpuDevice.of(design.device).board, NpuMapping.of(design).transport
        if not transport.violations:
            apart.append(rewrites - fold)
            assert apart[-1] == pytest.approx(transport.host_rewrites * board.host_rewrite_us)
    assert max(apart) > 0
