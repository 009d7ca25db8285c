"""The README's Python runs as it stands."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import sysconfig
from importlib.metadata import distributions
from pathlib import Path
from textwrap import dedent

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parent.parent


def test_the_example_of_the_readme_prints_the_front_that_it_shows(tmp_path: Path) -> None:
    text = (ROOT / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    (front,) = re.findall(r"(?:^    .*latency_us.*\n)(?:^    \d.*\n)+", text, re.MULTILINE)
    (tmp_path / "dense.py").write_text(code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "dense.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith(dedent(front)), done.stdout
    assert (tmp_path / "runs/dense/best/latency_us/build.py").exists()


@pytest.fixture(scope="module")
def measured() -> dict[str, tuple[int, int]]:
    """Words and the longest sentence of each page, by the script for people."""
    command = [sys.executable, "docs/prose.py"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    return {page: (int(words.replace(",", "")), int(longest)) for page, words, _, longest, _ in rows}


def test_the_readme_has_at_most_700_words(measured: dict[str, tuple[int, int]]) -> None:
    words = len((ROOT / "README.md").read_text().split())
    assert measured["README.md"][0] == words <= 700


def test_sentences_have_at_most_40_words(measured: dict[str, tuple[int, int]]) -> None:
    long = {page for page, (_, longest) in measured.items() if longest > 40} - {"all"}
    assert not long, "python docs/prose.py --long lists them"


def test_sentences_end_where_readers_see_an_end() -> None:
    paragraph = "One two [three four](x.md).\nFive `a b. C` six:\n\n"
    text = paragraph + "* seven\n* eight, e.g. nine. Ten\n\n    code. Code\n\n| a b | c |\n"
    code = "import sys; from docs.prose import prose; print([' '.join(s) for s in prose(sys.stdin.read()).sentences])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, input=text, capture_output=True, text=True)
    wanted = ["One two three four.", "Five `code` six:", "seven", "eight, e.g nine.", "Ten", "a b", "c"]
    assert ast.literal_eval(done.stdout) == wanted, done.stderr


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
