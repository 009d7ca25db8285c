"""What the documentation says of the code is so: pictures, files, and names that programs may import."""

from __future__ import annotations

import ast
import csv
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.mapper.violation import CONSTRAINTS, TARGET_CONSTRAINTS

from .support.commands import allo_tune

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
WRITTEN_BY_RUNS = {"build.py", "mapping.py", "run.py"}
"""Files of exported designs and networks."""


def test_the_picture_of_the_packages_is_of_the_code_as_it_is() -> None:
    code = "from docs.packages import PICTURE, picture; assert PICTURE.read_text(encoding='utf-8') == picture()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, "run python docs/packages.py"


def test_packages_say_what_they_import_and_what_imports_them() -> None:
    code = "from docs.packages import docstrings; assert all(p.read_text() == text for p, text in docstrings().items())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, "run python docs/packages.py"


def test_every_folder_of_modules_is_a_package() -> None:
    """The import contracts do not see modules of other folders."""
    folders = {path.parent for path in (ROOT / "allo_dse").rglob("*.py")}
    assert not [folder for folder in folders if not (folder / "__init__.py").is_file()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)+[a-z_0-9]+\.(?:py|toml|md))`", text))
    linked = {link.partition("#")[0] for link in re.findall(r"\]\(([^)\s]+)\)", text) if "://" not in link} - {""}
    places = (ROOT, page.parent, ROOT / "allo_dse")
    missing = {name for name in named | linked if not any((place / name).exists() for place in places)}
    assert missing - WRITTEN_BY_RUNS == set()


def _imports(text: str) -> list[tuple[str, str]]:
    """(module, name) of every `from allo_dse... import name` in code blocks of a page."""
    lines = re.findall(r"^ *(from allo_dse[\w.]* import [\w, ]+)", text, re.MULTILINE)
    trees = [ast.parse(line.strip()).body[0] for line in lines]
    return [(tree.module or "", a.name) for tree in trees if isinstance(tree, ast.ImportFrom) for a in tree.names]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_documentation_imports_public_names_only(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for module, name in _imports(text):
        assert name in importlib.import_module(module).__all__, f"{module}.{name}"
    for name in re.findall(r"\bdse\.([A-Za-z_]\w*)", text):
        assert name in importlib.import_module("allo_dse").__all__, f"dse.{name}"


def _code(page: str) -> list[str]:
    """The blocks of Python of a page."""
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(encoding="utf-8"), re.DOTALL)


def _plain(code: str) -> str:
    """Code without spaces, its texts and annotations of a signature, so that excerpts can be set more closely."""
    bare = re.sub(r'"""[^"]*"""|: (?:int|str)\b| -> dse\.Study|\s+', "", code)
    return re.sub(r",(?=[})\]])", "", bare)


def test_the_tutorials_program_is_that_of_the_example() -> None:
    example = _plain((ROOT / "examples/dense.py").read_text(encoding="utf-8"))
    *parts, last = _code("tutorial.md")
    assert last.startswith("result = ")
    for part in parts:
        assert _plain(part) in example, part


def test_the_tutorials_commands_show_what_it_says(tmp_path: Path) -> None:
    program = ROOT / "examples/dense.py"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "allo_dse.lang", str(program)]
    checked = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert checked.stdout == "the program computes what NumPy does\n", checked.stderr

    def run(*words: object) -> str:
        done = allo_tune(*words, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    run(program, "--trials", 3000, "--run-dir", "runs/dense")
    table = re.findall(r"^\| ([\d.]+) \| (\d+) \|$", (ROOT / "docs/tutorial.md").read_text(), re.MULTILINE)
    front = csv.DictReader(run("pareto", "runs/dense", "--csv").splitlines())
    assert [(f"{float(row['latency_us']):.1f}", row["pe_count"]) for row in front] == table
    assert "on the front" in run("best", "runs/dense")


def test_a_front_is_verified_later_as_the_guide_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    names: dict[str, Any] = {}
    exec(_code("tuning.md")[-1], names)
    result = names["result"]
    assert result.unverified == 0
    assert (tmp_path / "scale" / "mapping.py").is_file()
    assert dse.open_run(tmp_path / "runs/scale", study=names["study"](schedules=())).verified == result.verified


def test_troubleshooting_names_every_limit() -> None:
    page = (ROOT / "docs/troubleshooting.md").read_text(encoding="utf-8")
    assert [name for name in (*CONSTRAINTS, *TARGET_CONSTRAINTS) if f"`{name}`" not in page] == []
