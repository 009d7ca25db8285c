"""The wheel has everything that the package reads, and works without the repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from email import message_from_string
from pathlib import Path
from zipfile import ZipFile

import pytest

import allo_dse

ROOT = Path(__file__).parent.parent
WITHOUT_CACHES = shutil.ignore_patterns("__pycache__")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build leaves its folders beside the sources."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("dist")
    shutil.copytree(ROOT / "allo_dse", copy / "allo_dse", ignore=WITHOUT_CACHES)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, copy)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_has_all_files_of_the_package(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("allo_dse/")}
    files = [path.relative_to(ROOT) for path in (ROOT / "allo_dse").rglob("*") if path.is_file()]
    assert packed == {path.as_posix() for path in files if "__pycache__" not in path.parts}


def test_the_wheel_has_the_version_and_the_command(wheel: Path) -> None:
    info = f"allo_dse-{allo_dse.__version__}.dist-info"
    with ZipFile(wheel) as archive:
        metadata = message_from_string(archive.read(f"{info}/METADATA").decode())
        commands = archive.read(f"{info}/entry_points.txt").decode()
    assert metadata["Version"] == allo_dse.__version__
    assert "allo-tune = allo_dse.cli:main" in commands


def test_a_study_runs_without_the_repository(wheel: Path, tmp_path: Path) -> None:
    with ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    shutil.copy(ROOT / "examples/dense.py", tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}

    def run(*words: str) -> str:
        done = subprocess.run([sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert run("-c", "import allo_dse; print(allo_dse.__file__)").startswith(str(tmp_path / "installed"))
    run("-m", "allo_dse", "dense.py", "--trials", "5", "--run-dir", "run")
    run("-m", "allo_dse", "report", "run", "-o", "report.html")
    assert (tmp_path / "run/best/latency_us/build.py").exists()
    assert (tmp_path / "report.html").exists()
