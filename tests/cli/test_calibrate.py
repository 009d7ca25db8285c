"""`allo-tune calibrate` on a study whose rung measures: a run directory, JSON, and a device file of one's own."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from allo_dse.cli.main import main
from allo_dse.device.device import NpuDevice
from allo_dse.eval.calibrate.calibration import predicted_us
from allo_dse.tune.measurements import read_measurements

from ..backends.fpga.hls.stand_in import report_xml
from ..tune.run.test_learning import TOP, search

MINE = 'extends = "npu1_4col"\ndescription = "mine"\n[boards.default]\nlaunch_us = 150.0\n'


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a run whose best designs a command has measured: all took 1.2 times as long as predicted."""
    folder = tmp_path_factory.mktemp("measured")
    search(folder, 12)
    return folder / "run"


@pytest.fixture
def calibrate(monkeypatch: Any, capsys: Any) -> Callable[..., str]:
    def call(*arguments: object, fails: bool = False) -> str:
        monkeypatch.setattr(sys, "argv", ["allo-tune", "calibrate", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "160")
        with pytest.raises(SystemExit) as ended:
            main()
        captured = capsys.readouterr()
        assert bool(ended.value.code) == fails, captured.err
        return str(captured.err if fails else captured.out)

    return call


def test_a_run_directory_is_calibrated_by_what_its_rung_measured(
    measured: Path, tmp_path: Path, calibrate: Any
) -> None:
    output = tmp_path / "my_npu.toml"
    found = json.loads(calibrate(measured, "-o", output, "--json"))
    assert found["file"] == str(output)
    assert (found["device"], found["board"]) == ("npu1_4col", "default")
    assert found["learned"]
    assert len(found["measurements"]) == TOP
    assert all(one["measured_us"] > 1.15 * one["before_us"] for one in found["measurements"])
    assert found["errors"]["before"]["median"] > 0.15
    assert found["errors"]["after"]["median"] < 0.05
    assert any(p["standard_deviation"] is not None for p in found["parameters"])
    assert NpuDevice.load(output).accuracy[0].measurements == TOP


def test_a_device_file_of_ones_own_is_extended_where_it_lies(measured: Path, tmp_path: Path, calibrate: Any) -> None:
    (tmp_path / "devices").mkdir()
    mine = tmp_path / "devices" / "mine.toml"
    mine.write_text(MINE)
    output = tmp_path / "fitted.toml"
    said = calibrate(measured, "--device", mine, "-o", output)
    assert f"{TOP} measurements; wrote " in said
    assert "cross-validated: median" in said
    assert 'extends = "devices/mine.toml"' in output.read_text()
    assert NpuDevice.load(output).description == "mine, calibrated"


def test_a_fit_that_learned_nothing_says_so(measured: Path, tmp_path: Path, calibrate: Any) -> None:
    rows = [
        f"{m.design.key},{predicted_us(m.design, NpuDevice.of(m.design.device))}" for m in read_measurements(measured)
    ]
    table, output = tmp_path / "measured.csv", tmp_path / "fitted.toml"
    table.write_text("\n".join(["design,latency_us", *rows]))
    arguments = (table, "--run", measured, "-o", output)
    assert "learned nothing" in calibrate(*arguments)
    assert not json.loads(calibrate(*arguments, "--json"))["learned"]
    assert "before" not in output.read_text()  # what stands beside a number that is changed


@pytest.mark.parametrize("latency", [6, 7])
def test_reports_that_say_what_the_device_does_teach_nothing(latency: int, tmp_path: Path, calibrate: Any) -> None:
    report, output = tmp_path / "csynth.xml", tmp_path / "fitted.toml"
    report.write_text(report_xml("top", {}, latency=1, units=[("fadd", "fulldsp", latency, 2)]))
    arguments = (report, "--device", "u280", "-o", output)
    assert ("learned nothing" in calibrate(*arguments)) == (latency == 6)
    assert json.loads(calibrate(*arguments, "--json"))["learned"] == (latency == 7)


def test_what_is_read_is_not_written_over(tmp_path: Path, calibrate: Any) -> None:
    table, mine, link = (tmp_path / name for name in ("measured.csv", "mine.toml", "link.toml"))
    table.touch()
    mine.write_text(MINE)
    link.symlink_to(mine)
    for output in (table, link):
        said = calibrate(table, "--device", mine, "-o", output, fails=True)
        assert f"cannot write {output}: it is what is read" in " ".join(said.split())
    assert mine.read_text() == MINE
