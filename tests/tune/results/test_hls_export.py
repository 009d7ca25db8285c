"""The best designs of an FPGA study come as HLS projects that compute what the program computes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.hls import emit_project
from allo_dse.backends.fpga.hls.build_modes import load_results, save_arguments
from allo_dse.device.device import FpgaDevice
from allo_dse.tune.show.reporters import QuietReporter

from ...backends.fpga import test_observed as observed
from ...backends.fpga.hls import programs


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    study = dse.Study(
        "fir",
        program=programs.fir,
        device="zcu102",
        schedules=[dse.pipeline("taps:i", [1]), dse.unroll("taps:t", [1, 3])],
        objectives=[dse.minimize("latency_us")],
    )
    result = study.run(trials=4, seed=0, run_dir=tmp_path_factory.mktemp("run"), progress=QuietReporter())
    return result.run_dir / "best" / "latency_us"


def test_an_fpga_design_is_exported_as_a_project(exported: Path) -> None:
    assert (exported / "hls" / "run_hls.tcl").exists()
    assert not (exported / "build.py").exists()
    code = (exported / "hls" / "kernel.cpp").read_text()
    assert "#pragma HLS pipeline II=1" in code
    assert FpgaDevice.load("zcu102").part in (exported / "hls" / "run_hls.tcl").read_text()


@pytest.mark.skipif(shutil.which("g++") is None or shutil.which("make") is None, reason="needs g++ and make")
def test_the_exported_project_runs(exported: Path) -> None:
    project = emit_project(dse.load_program(programs.fir))
    x = np.arange(-16, 16).astype(np.int8)
    y, wanted = np.zeros(32, np.int32), np.zeros(32, np.int32)
    dse.simulate(dse.load_program(programs.fir), x, wanted)
    done = subprocess.run(["make", "csim"], cwd=exported / "hls", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "as they should be" in done.stdout
    shutil.rmtree(exported / "hls" / "data" / "golden")
    arguments = save_arguments(project, (x, y), exported / "hls" / "data")
    done = subprocess.run(["make", "csim"], cwd=exported / "hls", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    load_results(project, arguments, exported / "hls" / "data")
    np.testing.assert_array_equal(y, wanted)


@pytest.mark.skipif(shutil.which("g++") is None or shutil.which("make") is None, reason="needs g++ and make")
def test_the_inputs_of_a_study_are_those_of_the_test_bench(tmp_path: Path) -> None:
    """The set that the predicted latency is of comes first, and each has golden outputs of its own."""
    few, many = (np.full(observed.SIZE, start, np.int32) for start in (20, 0))
    study = dse.Study(
        "kept", program=observed.rows(True), device="u280", inputs=[{"X": few}, {"X": many}],
        schedules=[dse.pipeline("k:j", [1])], objectives=[dse.minimize("latency_us")],
    )  # fmt: skip
    result = study.run(trials=1, run_dir=tmp_path / "run", progress=QuietReporter(), verify=False)
    first, second = result.best().metrics["timed_on"]["latency_cycles"]
    assert first < second
    project = result.run_dir / "best" / "latency_us" / "hls"
    for directory, given in (("data", many), ("data/set2", few)):
        np.testing.assert_array_equal(np.fromfile(project / directory / "X.bin", np.int32), given)
    done = subprocess.run(["make", "csim"], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("as they should be") == 2
    golden = project / "data" / "set2" / "golden" / "B.bin"
    (np.fromfile(golden, np.int32) + 1).tofile(golden)
    done = subprocess.run(["make", "csim"], cwd=project, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "first difference" in done.stderr
