"""The README's Python runs as it stands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path

from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent


def test_the_python_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    program = code.replace("trials=200", "trials=30")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert "compute tiles on npu1_4col: needs 32,768, has 16" in done.stdout
    assert (tmp_path / "out" / "mapping.py").exists()


def test_every_linked_page_exists() -> None:
    for page in re.findall(r"\]\((docs/[^)]+)\)", (ROOT / "README.md").read_text()):
        assert (ROOT / page).exists(), page


def test_what_is_pinned_installs_on_the_oldest_python() -> None:
    """Debian 12 has 3.11.2. What is installed here is what the constraints pin."""
    # Not all that can be imported: a library may add folders of packages for itself.
    installed = [one.metadata for one in distributions(path=[sysconfig.get_path("purelib")])]
    wanted = {one["Name"]: one["Requires-Python"] for one in installed if "Requires-Python" in one}
    assert len(wanted) > 100
    assert [name for name, versions in wanted.items() if "3.11.0" not in SpecifierSet(versions)] == []


def test_every_benchmark_is_started_as_it_can_be() -> None:
    """As a module, from the project's folder: a benchmark imports others, and what tests run."""
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "benchmarks").glob("*.py")]
    found = [words for text in texts for words in re.findall(r"python\S* (?:-m )?benchmarks\S*", text.read_text())]
    assert len(found) > 40
    named = [re.fullmatch(r"python -m benchmarks\.(\w+)`?", words) for words in found]
    assert [words for words, match in zip(found, named, strict=True) if match is None] == []
    for name in {match[1] for match in named if match is not None}:
        assert 'if __name__ == "__main__":' in (ROOT / "benchmarks" / f"{name}.py").read_text(), name
