"""The notebooks of the documentation run from their first cell to their last, and show what they say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))
PROGRAM = """
import gc, json, sys
from docs.run_notebooks import run
notebook = json.load(open(sys.argv[1], encoding="utf-8"))
run(notebook, "notebook")
json.dump(notebook, open(sys.argv[2], "w", encoding="utf-8"))
gc.freeze()  # nothing is to be looked for at the end
"""


def shown(notebook: dict[str, Any]) -> list[list[list[str]]]:
    """Per code cell what kinds of output it has."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    return [[sorted(output.get("data", ["text"])) for output in cell["outputs"]] for cell in code]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_shows_what_it_was_kept_with(path: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.ipynb"
    command = [sys.executable, "-c", PROGRAM, str(path), str(again)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    kept = json.loads(path.read_text(encoding="utf-8"))
    found = shown(json.loads(again.read_text(encoding="utf-8")))
    assert found == shown(kept), "run python docs/run_notebooks.py"
    assert any("text/html" in kinds for cell in found for kinds in cell)


def test_the_manual_has_every_notebook() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    assert len(NOTEBOOKS) == 3
    assert [path.stem for path in NOTEBOOKS if f"notebooks/{path.stem}" not in index] == []
