"""A kind of device outside the package is tuned for, verified, shown and exported; see examples/add_a_backend."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.programs import Programs
from allo_dse.dashboard.report import write_report
from allo_dse.tune.study import load_studies

ROOT = Path(__file__).parents[1]
EXAMPLE = ROOT / "examples" / "add_a_backend"
STUDY, DEVICE = EXAMPLE / "gemm_cgra.py", EXAMPLE / "cgra_4x4.toml"


@pytest.fixture(scope="module")
def found(tmp_path_factory: Any) -> Any:
    study = load_studies(STUDY, {"size": "32"})[0]
    command = ["allo-tune", str(STUDY), "--set", "size=32"]
    return study.run(15, seed=1, run_dir=tmp_path_factory.mktemp("cgra") / "run", progress="quiet", command=command)


def test_a_gemm_is_tuned_to_a_verified_front(found: Any) -> None:
    assert len(found.front) > 1
    assert all(found.verified[best.key].ok for best in found.front)
    fastest, smallest = found.front[0], found.front[-1]
    assert fastest.metrics.latency_cycles < smallest.metrics.latency_cycles
    assert fastest.metrics.pe_count > smallest.metrics.pe_count
    assert "of a scratchpad" in fastest.explain()


def test_designs_are_exported_with_what_the_array_is_configured_from(found: Any, tmp_path: Path) -> None:
    best = found.front[0]
    best.export(tmp_path)
    elements = json.loads((tmp_path / "cgra.json").read_text())["elements"]
    assert len(elements) == best.metrics.pe_count
    assert sum(map(len, elements)) == best.design.program.task_count
    assert "cgra.json" in json.loads((tmp_path / "design.json").read_text())["files"]
    assert not (tmp_path / "placement.json").exists()


def test_the_page_of_a_design_has_its_words_and_its_timeline(found: Any, tmp_path: Path) -> None:
    board = Board.open([found.run_dir])
    programs, ref = Programs(board, STUDY), board.knee
    assert ref is not None
    programs.load(0)
    recorded = programs.recorded(ref)
    assert recorded.cycles == board.table(ref).record(ref.row)["metrics"]["latency_cycles"]
    assert [total.name for total in recorded.totals] == ["elements"]
    write_report(board, programs, tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "of a scratchpad" in page
    assert "What would help" in page


def test_the_limits_of_the_array_are_checked() -> None:
    program = dse.load_program(load_studies(STUDY, {})[0].program, size=32, Pk=4, Pm=4, Pn=4)
    (violation,) = dse.check(program, str(DEVICE))
    assert str(violation) == "elements on cgra_4x4: needs 64, has 16"
    with pytest.raises(dse.DeviceError, match="no array to place"):
        dse.place(program, str(DEVICE))


def test_an_installed_backend_is_found_by_its_entry_point(tmp_path: Path) -> None:
    installed = tmp_path / "allo_dse_cgra-1.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: allo-dse-cgra\nVersion: 1\n")
    (installed / "entry_points.txt").write_text("[allo_dse.backends]\ncgra = cgra.backend:CgraBackend\n")
    code = f"""
import allo_dse as dse
from allo_dse.backends import backend_of
device = dse.Device.load({str(DEVICE)!r})
print(device.max_nodes, type(backend_of(device)).__name__)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, tmp_path, EXAMPLE)))}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["16", "CgraBackend"], done.stderr


def test_a_device_of_no_known_kind_is_an_error_with_a_hint() -> None:
    code = f"import allo_dse as dse; dse.Device.load({str(DEVICE)!r})"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300)
    assert "unknown family 'cgra'" in done.stderr


def test_no_other_file_knows_of_the_example() -> None:
    files = [path for path in (ROOT / "allo_dse").rglob("*.*") if path.suffix in (".py", ".toml", ".j2", ".html")]
    assert [path for path in files if "cgra" in path.read_text(encoding="utf-8").lower()] == []
    lines = [path.read_text(encoding="utf-8").count("\n") for path in EXAMPLE.rglob("*.*") if path.suffix != ".pyc"]
    assert sum(lines) <= 500
