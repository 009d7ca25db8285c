"""The NPU model against published measurements, which lie beside the project and are never part of it."""

from __future__ import annotations

import numpy as np
import pytest

from allo_dse.device.device import NpuDevice

from ...support.others_data import SHARED, requires

FACTS = SHARED / "facts"
needs_measurements = requires(FACTS)

TARGETS = {
    "XDNA1 GEMM i8": (0.04, 0.10),
    "XDNA1 GEMM bf16": (0.04, 0.10),
    "XDNA1 tile sweeps": (0.08, 0.20),
    "XDNA1 tile pairs": (0.08, 0.20),
    "XDNA2 tile pairs": (0.08, 0.20),
    "XDNA2 GEMM": (0.08, 0.20),
    "XDNA1 elementwise": (0.08, 0.20),
    "XDNA2 elementwise": (0.08, 0.20),
    "XDNA2 layer_norm": (0.08, 0.20),
    "XDNA2 rope": (0.08, 0.20),
    "XDNA2 gemv": (0.08, 0.20),
    "XDNA2 attention": (0.12, 0.25),
    "XDNA1 bottleneck": (0.12, 0.12),
}
"""Median and 90th percentile of the absolute error at most."""


@needs_measurements
def test_published_measurements_are_met(capsys: pytest.CaptureFixture[str]) -> None:
    from benchmarks import npu_accuracy, npu_cases

    device = NpuDevice.load("npu1_4col")
    median, _ = npu_accuracy.shapes(device)
    assert median <= 0.03
    undisturbed = [c for c in npu_cases.npu1_gemms(device) if " i16" in c.group and not c.disturbed]
    assert np.quantile(np.abs(np.expm1(npu_accuracy.log_errors(undisturbed))), 0.9) <= 0.05
    errors = npu_accuracy.sustained(NpuDevice.load("npu1_4col"))
    assert all(abs(error) <= 0.05 for error in errors.values()), errors
    regrets = npu_accuracy.tile_pairs()
    assert all(regret <= 0.03 for regret in regrets.values()), regrets


@needs_measurements
def test_every_group_is_within_its_target() -> None:
    from benchmarks import npu_accuracy, npu_cases

    every = npu_cases.all_cases()
    assert TARGETS.keys() <= {case.group for case in every}
    for group, (median, percentile_90) in TARGETS.items():
        errors = np.abs(np.expm1(npu_accuracy.log_errors([case for case in every if case.group == group])))
        found = (round(float(np.median(errors)), 3), round(float(np.quantile(errors, 0.9)), 3))
        assert found[0] <= median, (group, found)
        assert found[1] <= percentile_90, (group, found)


def test_a_published_layer_of_llama_is_met() -> None:
    from benchmarks import llama_layer

    calls = llama_layer.calls()
    predicted, measured = [call.predicted_us for call in calls], [call.measured_us for call in calls]
    assert predicted == pytest.approx(measured, rel=llama_layer.WITHIN)
    assert sum(predicted) == pytest.approx(sum(measured), rel=llama_layer.WITHIN)


def test_a_fit_finds_what_was_changed_and_leaves_alone_what_shows_nothing() -> None:
    from benchmarks import npu_accuracy

    rng = np.random.default_rng(0)
    jacobian = np.column_stack([rng.uniform(0.2, 1.0, 30), np.zeros(30)])
    start = -0.3 * jacobian[:, 0]
    start[:3] += 2.0  # outliers
    change = npu_accuracy._fit(jacobian, start)
    assert change == pytest.approx([0.3, 0.0], abs=0.02)


def test_a_constant_of_the_device_files_can_be_scaled() -> None:
    from benchmarks import npu_accuracy

    device = NpuDevice.load("npu1_4col")
    (launch,) = npu_accuracy.constants("board.launch_us")
    (rate,) = npu_accuracy.constants("kernels.allo.i8.efficiency")
    assert launch.scaled(device, 2.0).board.launch_us == 2 * device.board.launch_us
    assert rate.scaled(device, 9.0).kernels["allo"]["i8"].efficiency == 1.0
    assert device.key != launch.scaled(device, 2.0).key
