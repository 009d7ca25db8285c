"""Designs of one launch simulated together, against each by itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.backends.npu.evaluator import NpuSimulator
from allo_dse.backends.npu.launches import ends_together
from allo_dse.device.device import NpuDevice
from allo_dse.eval.launches import LaunchedDesign
from allo_dse.space.design import Design

from ...eval.designs import gemm_design, gemm_fold

DEVICE = NpuDevice.load("npu2")
SMALL, LARGE = ((256, 256, 256), (4, 8, 8)), ((512, 256, 256), (8, 16, 8))


def _design(which: tuple[tuple[int, int, int], tuple[int, int, int]], dram_gb_s: float) -> Design:
    return gemm_design(*which, gemm_fold(1, 2, 2), device=DEVICE.with_options(dram_gb_s=dram_gb_s))


def _alone_us(design: Design) -> float:
    return float(NpuSimulator().evaluate(design).latency_us)


@settings(max_examples=10, deadline=None)
@given(st.sampled_from([SMALL, LARGE]), st.sampled_from([SMALL, LARGE]), st.sampled_from([0.5, 5.0, 50.0]))
def test_two_at_once_take_no_less_than_alone_and_no_more_than_in_turn(
    one: tuple[tuple[int, int, int], tuple[int, int, int]],
    other: tuple[tuple[int, int, int], tuple[int, int, int]],
    dram_gb_s: float,
) -> None:
    device = DEVICE.with_options(dram_gb_s=dram_gb_s)
    designs = [_design(which, dram_gb_s) for which in (one, other)]
    alone = [_alone_us(design) for design in designs]
    ends = ends_together([LaunchedDesign(d, 4 * at, (), 0.0) for at, d in enumerate(designs)], device)
    assert all(end >= us * (1 - 1e-6) for end, us in zip(ends, alone, strict=True))
    assert max(ends) <= sum(alone)
    in_turn = ends_together([LaunchedDesign(designs[0], 0, (), 0.0), LaunchedDesign(designs[1], 4, (0,), 7.0)], device)
    assert in_turn == pytest.approx([alone[0], sum(alone) + 7.0], rel=1e-5)


def test_where_the_dram_is_slow_it_is_what_both_wait_for() -> None:
    """Of two designs that keep the DRAM busy each has half of it; of two that compute each has what it needs."""
    for dram_gb_s, least, most in ((0.5, 1.8, 2.0), (500.0, 1.0, 1.02)):
        design, device = _design(LARGE, dram_gb_s), DEVICE.with_options(dram_gb_s=dram_gb_s)
        # The board's own part of a call is not shared.
        run_us = _alone_us(design) - DEVICE.board.launch_us
        ends = ends_together([LaunchedDesign(design, 0, (), 0.0), LaunchedDesign(design, 4, (), 0.0)], device)
        assert least <= (max(ends) - DEVICE.board.launch_us) / run_us <= most
