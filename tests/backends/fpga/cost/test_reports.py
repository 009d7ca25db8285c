"""The cost model against the public HLS reports of five Allo designs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from allo_dse.device.device import FpgaDevice
from benchmarks.fpga_accuracy import errors, held_out, measure, report_loops
from benchmarks.fpga_programs import DESIGNS, LOOPS, Reported
from tests.support.values import present

LIMITS = {"cycles": 0.05, "dsp": 0.0, "bram18": 0.15, "ff": 0.15, "lut": 0.15}


@pytest.mark.parametrize("reported", DESIGNS, ids=lambda reported: reported.name)
def test_loops_are_exact_and_totals_close(reported: Reported) -> None:
    metrics, loops = measure(reported)
    assert set(reported.loops) <= loops
    found = errors(reported, metrics)
    assert {q: e for q, e in found.items() if abs(e) > LIMITS[q]} == {}


def test_predictions_are_within_two_percent_of_rtl() -> None:
    for reported in DESIGNS:
        if reported.rtl:
            metrics, _ = measure(reported)
            assert metrics.latency_cycles == pytest.approx(reported.rtl, rel=0.02)


def test_loops_of_other_reports_have_their_trips_and_intervals() -> None:
    addition = present(FpgaDevice.load("u280").operator("f32", "add")).latency + 1  # and a register
    saved = {f"{one.name} {name}": one.reordered * addition for one in LOOPS for name, *_ in one.loops}
    for name, (trips, ii, depth), (found_trips, found_ii, found_depth) in report_loops():
        assert found_trips == trips
        assert found_ii == ii
        assert found_depth - saved[name] <= depth


def test_the_docs_quote_predictions_of_designs_that_constants_were_not_fitted_to() -> None:
    page = (Path(__file__).parents[4] / "docs" / "fpga.md").read_text(encoding="utf-8")
    lines = list(held_out())
    assert "\n".join(lines) in page
    # A fit that moves no constant fits nothing.
    assert [line for line in lines if re.search(r"in the file, (\S+) to \1 without", line)] == []
