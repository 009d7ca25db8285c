"""The operator table of an FPGA from HLS reports: the table says what reports say, and nothing else changes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.fpga.operator_table import Reading, calibrate_operators, operators_in
from allo_dse.backends.fpga.report.report import HlsOperator, HlsReport, Resources
from allo_dse.backends.fpga.report.report_files import read_hls_report
from allo_dse.common.errors import StudyError
from allo_dse.device.device import FpgaDevice
from allo_dse.device.writing import fpga_text, write_device
from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.operator_reports import has_reports, read_reported

from ...support.others_data import SHARED, require
from ...tune.fakes import FakeEvaluator, fake_study
from ..test_hls_report import SOLUTION, text_project
from .hls.stand_in import report_xml

U280 = FpgaDevice.load("u280")

readings = st.lists(
    st.builds(
        Reading,
        label=st.sampled_from("abc"),
        mhz=st.sampled_from([100.0, 150.0, 300.3]),
        element=st.sampled_from(["f32", "f64"]),
        name=st.sampled_from(["add", "add_fabric", "mul", "div"]),
        latency=st.integers(0, 30),
        dsp=st.none() | st.integers(0, 12),
        ff=st.none() | st.integers(0, 900),
    ),
    unique_by=lambda one: (one.label, one.mhz, one.element, one.name),
)


def unit(number: int, operation: str, implementation: str, latency: int, ff: int | None = None) -> HlsOperator:
    return HlsOperator(f"U{number}", "top", operation, implementation, latency, Resources(dsp=2, ff=ff))


def test_each_operator_is_as_most_of_its_units_are() -> None:
    units = [unit(n, "fadd", "fulldsp", latency, ff) for n, (latency, ff) in enumerate([(6, 300), (6, 310), (9, 1)])]
    report = HlsReport(("x",), clock_ns=3.33, operators=(*units, unit(3, "fsub", "fabric", 4), unit(4, "icmp", "", 0)))
    adder, fabric = operators_in(report, "x")
    assert (adder.name, adder.latency, adder.ff, adder.units, adder.mhz) == ("add", 6, 300, 3, 300.3)
    assert (fabric.name, fabric.latency, fabric.ff) == ("add_fabric", 4, None)


@given(readings)
def test_the_table_says_what_reports_say(found: list[Reading]) -> None:
    by_place: dict[tuple[str, str, float], list[Reading]] = {}
    for one in found:
        by_place.setdefault((*one.key, one.mhz), []).append(one)
    calibrated = calibrate_operators(U280, found)
    for (element, name, mhz), alike in by_place.items():
        row = calibrated.device.with_options(clock_mhz=mhz).operator(element, name)
        assert row is not None
        assert row.latency in {one.latency for one in alike}
        assert sum(one.latency < row.latency for one in alike) * 2 < len(alike)
        assert sum(one.latency > row.latency for one in alike) * 2 <= len(alike)
        if any(one.dsp is not None for one in alike):
            assert row.dsp in {one.dsp for one in alike}
    untouched = calibrated.device.operators["f32"]["sqrt"], calibrated.device.operators["f32"]["exp"]
    assert untouched == (U280.operators["f32"]["sqrt"], U280.operators["f32"]["exp"])
    assert sum(row.reports for row in calibrated.rows) == len(found)


@given(readings)
def test_what_is_written_is_read_back(tmp_path_factory: pytest.TempPathFactory, found: list[Reading]) -> None:
    path = tmp_path_factory.getbasetemp() / "mine.toml"
    calibrated = calibrate_operators(U280, found)
    write_device(path, fpga_text(calibrated.device, U280, "u280", calibrated.comments))
    assert FpgaDevice.load(path).operators == calibrated.device.operators
    again = calibrate_operators(FpgaDevice.load(path), found)
    assert not any(row.is_changed for row in again.rows)


def test_a_report_is_judged_by_the_others() -> None:
    slower = [Reading(label, 300.3, "f32", "mul", 4, 3) for label in "abc"]
    held_out = calibrate_operators(U280, [*slower, Reading("a", 300.3, "f32", "add", 6, 2)]).held_out
    assert (held_out.readings, held_out.before, held_out.after) == (4, 1, 4)
    alone = calibrate_operators(U280, slower[:1])
    assert (alone.held_out.after, alone.rows[0].is_changed) == (0, True)


def test_reports_of_other_chips_are_left_out(tmp_path: Path) -> None:
    text = report_xml("top", {}, latency=1, units=[("fmul", "maxdsp", 4, 3)])
    for name, part in (("a", "xcu280-fsvh2892-2L-e"), ("b", "xc7z020-clg400-1")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "csynth.xml").write_text(text.replace("xcu280-fsvh2892-2L-e", part))
    assert has_reports(tmp_path)
    found = read_reported(tmp_path, U280)
    assert [(one.name, one.latency) for one in found.readings] == [("mul", 4)]
    assert found.other_parts == ("csynth.xml (xc7z020-clg400-1)",)
    assert len(read_reported(tmp_path, FpgaDevice.load("z7020")).readings) == 1
    with pytest.raises(StudyError, match=r"no HLS reports .* reports of other chips: csynth.xml"):
        read_reported(tmp_path, FpgaDevice.load("zcu102"))


def test_a_directory_of_text_reports_says_its_operators(tmp_path: Path) -> None:
    (tmp_path / "design").mkdir()
    text_project(tmp_path / "design")
    (found,) = read_reported(tmp_path, U280).readings
    assert (found.name, found.latency, found.mhz, found.dsp, found.ff, found.lut) == ("mul", 3, 300.3, 3, 143, 78)


def test_text_reports_count_beside_those_in_xml(tmp_path: Path) -> None:
    """They were left out, without a word, where another project had XML; copies of what XML says count once."""
    text = report_xml("top", {}, latency=1, units=[("fmul", "maxdsp", 4, 3)])
    for name in ("new", "text", "module", "copy", ".autopilot"):
        (tmp_path / name).mkdir()
    for name in ("new", ".autopilot"):
        (tmp_path / name / "csynth.xml").write_text(text)
    text_project(tmp_path / "text")
    (tmp_path / "text" / "scale_csynth.rpt").rename(tmp_path / "module" / "scale_csynth.rpt")
    assert sorted(one.latency for one in read_reported(tmp_path, U280).readings) == [3, 4]
    text_project(tmp_path / "copy")
    (tmp_path / "copy" / "csynth.xml").write_bytes((SOLUTION / "syn" / "report" / "csynth.xml").read_bytes())
    assert sorted(one.latency for one in read_reported(tmp_path, U280).readings) == [3, 4]


class Reports(FakeEvaluator):
    """Finds a report of one multiplier in every design."""

    def evaluate(self, design: Any) -> Metrics:
        found = dict(super().evaluate(design).items())
        return Metrics(**found, operators=[Reading("", 300.3, "f32", "mul", 4, 3).to_dict()])


def test_a_run_on_another_chip_says_nothing_of_this_one(tmp_path: Path) -> None:
    study = fake_study(evaluator=Reports, device=SimpleNamespace(name="u280", key="0", family="fake"))
    study.run(3, run_dir=tmp_path / "run", progress="quiet", verify=False)
    assert len(read_reported(tmp_path / "run").readings) == 3
    assert len(read_reported(tmp_path / "run", U280).readings) == 3
    with pytest.raises(StudyError, match=r"no HLS reports .* reports of other chips: u280 \(xcu280"):
        read_reported(tmp_path / "run", FpgaDevice.load("z7020"))


def test_the_tables_of_the_devices_agree_with_public_reports() -> None:
    """Each figure as the reports of the device's own chip have it: what calibration would change is nothing."""
    folder = SHARED / "csynth"
    require(folder)
    found = [one for f in sorted(folder.glob("*csynth.xml")) for one in operators_in(read_hls_report(f), f.name)]
    ours = [one for one in found if one.mhz > 299]
    assert len({one.label for one in ours}) >= 4
    assert not [row for row in calibrate_operators(U280, ours).rows if row.is_changed]
