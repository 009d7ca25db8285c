"""The NPU timing model: exact arithmetic for what repeats, and the physics it claims."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.backends.npu.evaluator import NpuSimulator
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold import MeshFold, Pattern
from allo_dse.mapper.violation import Buffering
from allo_dse.simulator.engine import steady
from allo_dse.space.design import Design

from ...eval.designs import gemm_design, gemm_fold

POWERS = st.sampled_from([1, 2, 4])


@st.composite
def designs(draw: st.DrawFn) -> Design:
    """Designs with a few to some hundred periods; slow DRAM makes some of them irregular for a while."""
    mesh = (draw(st.sampled_from([1, 2, 4, 8])), draw(st.sampled_from([8, 16])), draw(st.sampled_from([8, 16])))
    k = draw(st.sampled_from([f for f in (1, 2) if f <= mesh[0]]))
    pattern: Pattern = draw(st.sampled_from(["cyclic", "block"]))
    order = draw(st.sampled_from([(1, 2), (2, 1)]))
    fold = gemm_fold(k, draw(POWERS), draw(POWERS), pattern, order)
    if fold.kernels[0].node_count > 16:
        fold = gemm_fold(k, 2, 2)
    tile = draw(st.sampled_from([16, 32, 64]))
    size = (mesh[1] * tile, mesh[0] * tile, mesh[2] * tile)
    device = NpuDevice.load("npu1_4col").with_options(
        dram_gb_s=draw(st.sampled_from([2.0, 9.0, 17.5, 60.0])),
        dram_burst_half_bytes=draw(st.sampled_from([0.0, 100.0])),
    )
    buffering = Buffering(draw(st.integers(1, 3)), draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 5])))
    return gemm_design(size, mesh, fold, device=device, buffering=buffering)


@given(designs())
@settings(max_examples=40, deadline=None)
def test_extrapolation_equals_the_full_simulation(design: Design) -> None:
    extrapolated = NpuSimulator().evaluate(design)
    with patch.object(steady, "WORTHWHILE", 1 << 60):
        assert NpuSimulator().evaluate(design) == extrapolated


@given(designs())
@settings(max_examples=30, deadline=None)
def test_no_resource_works_longer_than_the_run(design: Design) -> None:
    metrics = NpuSimulator().evaluate(design)
    assert all(0 < share <= 1 for share in metrics.bound.values())
    assert metrics.bound[metrics.bottleneck] == max(metrics.bound.values())
    assert 0 < metrics.utilization <= 1


def test_dram_traffic_is_the_published_formula() -> None:
    """A once per n * columns of output, B once per m * rows, C once ([sb] in the device files)."""
    m = k = n = 1024
    metrics = NpuSimulator().evaluate(gemm_design((m, k, n), (16, 16, 16)))
    assert metrics.dram_bytes == 2 * (m * k * n // (64 * 4) + m * k * n // (64 * 4) + m * n)


def test_a_tile_that_stays_is_not_moved_again() -> None:
    """With one task along k, a row of outputs shares its tile of A."""
    metrics = NpuSimulator().evaluate(gemm_design((512, 64, 512), (1, 8, 8)))
    rows, columns = 512 // (64 * 4), 512 // (64 * 4)
    assert metrics.dram_bytes == 2 * 64 * 64 * (4 * rows + 4 * rows * columns + 64)


def test_more_cores_are_faster_and_double_buffering_helps() -> None:
    def latency(fold: MeshFold, buffering: Buffering) -> Any:
        return (
            NpuSimulator().evaluate(gemm_design((1024, 1024, 1024), (16, 16, 16), fold, buffering=buffering)).latency_us
        )

    double = Buffering(output_depth=2)
    assert (
        latency(gemm_fold(1, 4, 4), double) < latency(gemm_fold(1, 2, 2), double) < latency(gemm_fold(1, 1, 1), double)
    )
    assert latency(gemm_fold(), double) < latency(gemm_fold(), Buffering(output_depth=1))
    assert latency(gemm_fold(), double) < latency(gemm_fold(), Buffering(input_depth=1, output_depth=2))


@pytest.mark.parametrize("shape", [(2, 4, 2), (2, 1, 8), (2, 8, 1), (4, 2, 2), (4, 4, 1)])
def test_cores_that_wait_for_each_other_do_not_share_a_channel(shape: tuple[int, int, int]) -> None:
    """Half-K chains run out of step: tiles for both on one channel in turns would hang the array."""
    design = gemm_design((1024, 1024, 1024), (16, 16, 16), gemm_fold(*shape))
    transport = NpuMapping.of(design).transport
    source = {s.source for s in NpuMapping.of(design).view.links.between}
    target = {s.target for s in NpuMapping.of(design).view.links.between}
    flows = transport.flows
    for transfer in transport.transfers:
        nodes = {node for f in transfer.flows for node in flows[f].nodes}
        assert nodes <= source - target or nodes <= target - source or nodes <= source & target
    assert NpuSimulator().evaluate(design).latency_us > 0


def test_the_board_decides() -> None:
    device = NpuDevice.load("npu1_4col")
    slow = gemm_design(device=device.with_options(dram_gb_s=1.0))
    metrics = NpuSimulator().evaluate(slow)
    assert metrics.bottleneck == "DRAM"
    fast = NpuSimulator().evaluate(gemm_design(device=device.with_options(clock_ghz=1.8)))
    assert fast.latency_us < NpuSimulator().evaluate(gemm_design(device=device)).latency_us < metrics.latency_us
    assert slow.key != gemm_design(device=device).key


def test_metrics_as_a_golden_text(golden: Callable[[str, str], None]) -> None:
    """Changes of the model must be seen: refresh with --update-golden and look at the difference."""
    lines = []
    for name, fold in (("4x4", gemm_fold()), ("half-K 2x4x2", gemm_fold(2, 4, 2)), ("one core", gemm_fold(1, 1, 1))):
        metrics = NpuSimulator().evaluate(gemm_design((1024, 1024, 1024), (16, 16, 16), fold))
        values = {k: f"{v:.3f}" if isinstance(v, float) else v for k, v in metrics.items()}
        lines.append(f"{name}\n" + "".join(f"    {k} = {v}\n" for k, v in values.items()))
    golden("npu_metrics.txt", "".join(lines))
