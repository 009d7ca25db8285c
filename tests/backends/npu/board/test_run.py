"""Exported programs and `dse.NpuRun` against a stand-in for Allo that enforces its checks and misbehaves as asked."""

from __future__ import annotations

import ast
import fcntl
import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.npu.board.build import wrong_elements
from allo_dse.common.processes import Overdue
from allo_dse.eval.backend import Sources
from allo_dse.eval.design_folder import artifacts_of, design_files, write_files
from allo_dse.space.design import Design
from tests.eval.test_command import gemm_study
from tests.tune.hazards import own_processes

STAND_IN = Path(__file__).parent / "stand_in_allo"
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def design() -> Design:
    study = gemm_study("64")
    return next(
        c.design for c in study.space.designs() if 1 < c.design.fold.node_count <= 16 and not study.check(c.design)
    )


@pytest.fixture
def equipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dse.NpuRun:
    """A machine that has Allo, XRT and an NPU, as far as can be seen."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(STAND_IN), str(ROOT)]))
    monkeypatch.setenv("MLIR_AIE_INSTALL_DIR", "/nowhere")
    monkeypatch.setenv("PEANO_INSTALL_DIR", "/nowhere")
    monkeypatch.setenv("XILINX_XRT", "/nowhere")
    monkeypatch.setenv("ALLO_NPU_LOCK", str(tmp_path / "lock"))
    node = tmp_path / "accel0"
    node.touch()
    run = dse.NpuRun(
        device_node=node, directory=tmp_path / "builds", calls=(1, 2, 3), build_seconds=120, run_seconds=60
    )
    run.bind(lambda A, B: A @ B)
    return run


def test_a_program_is_cut_out_without_this_package(design: Design) -> None:
    files = design_files(design, artifacts_of(design, Sources(gemm_study("64").reference)))
    for name in ("program.py", "build.py", "mapping.py"):
        tree = ast.parse(str(files[name]))
        modules = [n.module or "" for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
        modules += [alias.name for n in ast.walk(tree) if isinstance(n, ast.Import) for alias in n.names]
        assert not [m for m in modules if m.startswith("allo_dse")]
    assert "reference = lambda A, B: A @ B" in str(files["program.py"])


def test_an_exported_program_builds_runs_checks_and_times(tmp_path: Path, design: Design, equipped: dse.NpuRun) -> None:
    write_files(design_files(design, artifacts_of(design, Sources(gemm_study("64").reference))), tmp_path / "best")
    command = [sys.executable, "build.py", "--json", "--repetitions", "3"]
    done = subprocess.run(command, cwd=tmp_path / "best", capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["latency_us"] == 102.0
    assert found["latency_means_us"] == [101.0, 102.0, 103.0]
    assert found["latency_min_us"] == 99.0
    assert found["checked_by"] == "reference"


def test_what_is_infinite_equals_itself_and_allows_nothing_else() -> None:
    wanted = np.array([-np.inf, 2.0, -4.0], np.float32)
    for found, wrong in (([-np.inf, 2, -4], 0), ([-np.inf, 3, -4], 1), ([np.inf, 2, -np.inf], 2)):
        assert wrong_elements(np.array(found), wanted, {"largest": 0.1, "rms": 0.1}) == wrong
    assert wrong_elements(np.array([1, -1], np.int8), np.array([2.0**40 + 1, 2.0**40 - 1]), None) == 0


def test_a_mapping_that_allo_refuses_is_a_refusal(tmp_path: Path, design: Design, equipped: dse.NpuRun) -> None:
    files = design_files(design)
    files["mapping.py"] = "def mapping_primitives():\n    return [('chain', ['nobody', 'nothing'])]\n"
    write_files(files, tmp_path / "best")
    done = subprocess.run(
        [sys.executable, "build.py"], cwd=tmp_path / "best", capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 65
    assert "Allo refuses the design: AssertionError: Node(nobody) not found" in done.stderr


def test_a_program_on_which_allo_exits_is_a_refusal(
    tmp_path: Path, design: Design, equipped: dse.NpuRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its front end prints what it does not know, and ends the process; what comes after that is a failure."""
    monkeypatch.setenv("STAND_IN_ALLO", "front end exits")
    write_files(design_files(design), tmp_path / "best")
    command = [sys.executable, "build.py"]
    done = subprocess.run(command, cwd=tmp_path / "best", capture_output=True, text=True, timeout=300)
    assert done.returncode == 65
    assert "Allo refuses the design: AssertionError: Unsupported type `Ty`\n" in done.stderr


def test_an_exported_program_says_that_it_needs_allo(tmp_path: Path, design: Design) -> None:
    write_files(design_files(design), tmp_path / "best")
    command = [sys.executable, "build.py"]
    done = subprocess.run(command, cwd=tmp_path / "best", capture_output=True, text=True, timeout=300)
    assert done.returncode == 1
    assert "has no module 'allo'; this needs Allo" in done.stderr
    assert "Traceback" not in done.stderr


def test_the_device_is_measured(design: Design, equipped: dse.NpuRun) -> None:
    assert equipped.unavailable() is None
    found = equipped.evaluate(design)
    assert found.latency_us == 102.0
    assert found.checked is True
    assert found.latency_spread == pytest.approx(2 / 102)
    assert found.evaluator == f"npu_run {equipped.version}"
    assert equipped.directory is not None
    assert (equipped.directory / design.key / "allo_run_2.log").exists()


@pytest.mark.parametrize(
    ("mode", "error", "message"),
    [
        ("build fails", dse.CommandError, "Failed to compile the MLIR-AIE code"),
        ("build hangs", dse.CommandError, "took longer than 120 s to build"),
        ("run hangs", dse.DeviceWedged, r"took longer than 60 s on the device[\s\S]*modprobe"),
        ("driver", dse.DeviceWedged, r"the driver says DRM_IOCTL_AMDXDNA[\s\S]*modprobe"),
        ("garbage", dse.CommandError, "did not say how long it took"),
        ("wrong", dse.CommandError, r"computed wrong numbers: .*C differs in 1 of 4096"),
    ],
)
def test_what_goes_wrong_is_told_apart(
    tmp_path: Path,
    design: Design,
    equipped: dse.NpuRun,
    monkeypatch: pytest.MonkeyPatch,
    mode: str,
    error: type[Exception],
    message: str,
) -> None:
    """A clock stands still until the stand-in hangs; then an hour passes between two looks at it."""
    hangs, limits = tmp_path / "hangs", equipped._overdue
    monkeypatch.setenv("STAND_IN_ALLO", mode)
    monkeypatch.setenv("STAND_IN_HANGS", str(hangs))

    def overdue(folder: Path) -> Overdue:
        own, hours = limits(folder), itertools.count()
        return lambda _: own(3600.0 * next(hours) if hangs.exists() else 0.0)

    monkeypatch.setattr(equipped, "_overdue", overdue)
    with pytest.raises(error, match=message) as found:
        equipped.evaluate(design)
    assert type(found.value) is error
    assert not own_processes(str(equipped.directory).encode())


def test_one_run_at_a_time_uses_the_device(tmp_path: Path, design: Design, equipped: dse.NpuRun) -> None:
    """While somebody holds it a run waits, which is not counted; a lock that a dead process held is free."""
    write_files(design_files(design), tmp_path / "best")
    descriptor = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    progress = tmp_path / "progress"
    command = [sys.executable, "build.py", "--json", "--progress", str(progress)]
    with subprocess.Popen(command, cwd=tmp_path / "best", stdout=subprocess.PIPE) as process:
        while not progress.exists() or "waiting" not in progress.read_text():
            assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(1.0)
        assert progress.read_text().split()[-1] == "waiting"
        os.close(descriptor)
        assert process.wait(300) == 0


def test_the_lock_is_the_same_for_everybody(tmp_path: Path, design: Design, equipped: dse.NpuRun) -> None:
    """Evaluators in processes of their own have other folders for temporary files; other users other masks."""
    write_files(design_files(design), tmp_path / "best")
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    del environment["ALLO_NPU_LOCK"]
    command = [sys.executable, "-c", "import build; print(build.LOCK)"]
    done = subprocess.run(
        command, cwd=tmp_path / "best", env=environment, capture_output=True, text=True, umask=0o077, check=True
    )
    assert done.stdout.strip() == "/tmp/allo-npu.lock"
    command = [sys.executable, "-c", "import build\nwith build.only_user(): pass\nwith build.only_user(): pass"]
    subprocess.run(command, cwd=tmp_path / "best", umask=0o077, check=True)
    assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o666


@pytest.mark.parametrize(
    ("missing", "message"),
    [
        ("PYTHONPATH", "Allo is missing"),
        ("PEANO_INSTALL_DIR", "PEANO_INSTALL_DIR not set"),
        ("node", "there is no NPU"),
    ],
)
def test_what_is_missing_is_named(
    equipped: dse.NpuRun, monkeypatch: pytest.MonkeyPatch, missing: str, message: str
) -> None:
    if missing == "node":
        equipped.device_node.unlink()
    else:
        monkeypatch.delenv(missing)
    assert message in str(equipped.unavailable())
