"""What is exported computes what the design does."""

from __future__ import annotations

from pathlib import Path

import pytest

import allo_dse as dse
from allo_dse.eval.design_folder import design_files, write_files
from allo_dse.eval.verify import prove_design

from ..test_command import gemm_study

SUM = "allo.add(allo.matmul(local_A, local_B), C_in)"


@pytest.fixture(scope="module")
def design() -> dse.Design:
    """One whose partial sums go from task to task."""
    candidates = (c.design for c in gemm_study("64").space.designs())
    return next(d for d in candidates if d.program.params["Pk"] == 2 and 1 < d.fold.node_count <= 16)


@pytest.fixture
def folder(tmp_path: Path, design: dse.Design) -> Path:
    write_files(design_files(design), tmp_path)
    return tmp_path


def test_a_folder_is_proved_equal_at_its_size_and_at_others(design: dse.Design, folder: Path) -> None:
    full = prove_design(design, exported=folder)
    assert full.ok
    assert "(full size: 64x64" in full.message
    smaller = {**design.program.params, "M": 32, "K": 32}
    reduced = prove_design(design, exported=folder, verify_with=lambda params: smaller, most_operations=300_000)
    assert reduced.ok
    assert "(reduced size: 32x32" in reduced.message


def test_a_changed_program_differs(design: dse.Design, folder: Path) -> None:
    program = folder / "program.py"
    text = program.read_text()
    assert SUM in text
    program.write_text(text.replace(SUM, "allo.add(allo.matmul(local_A, local_B), allo.add(C_in, C_in))"))
    found = prove_design(design, exported=folder)
    assert not found.ok
    assert f"({program}:" in found.message
    assert "): 0 + 64 terms that both have" in found.message


def test_a_folder_without_a_program_is_refused(design: dse.Design, folder: Path) -> None:
    (folder / "program.py").unlink()
    with pytest.raises(dse.StudyError, match=r"has no program\.py"):
        prove_design(design, exported=folder)
