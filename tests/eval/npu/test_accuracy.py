"""The NPU model against published measurements, which lie beside the project and are never part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from allo_dse.device.device import Device

FACTS = Path(__file__).resolve().parents[4] / "shared" / "facts"
pytestmark = pytest.mark.skipif(not FACTS.is_dir(), reason=f"the measurements in {FACTS} are not here")


def test_published_measurements_are_met(capsys):
    from benchmarks import npu_accuracy

    median, percentile_90 = npu_accuracy.shapes(Device.load("npu1_4col"), verbose=False)
    assert median <= 0.05
    assert percentile_90 <= 0.15
    errors = npu_accuracy.sustained(Device.load("npu1_4col"))
    assert all(abs(error) <= 0.05 for error in errors.values()), errors
    regrets = npu_accuracy.tile_pairs()
    assert all(regret <= 0.03 for regret in regrets.values()), regrets
