"""The programs in docs/hls.md run."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import allo_dse.lang

from .test_csim import needs_gcc

TEXT = (Path(__file__).parents[4] / "docs" / "hls.md").read_text()


@needs_gcc
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allo_dse.lang.install()
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for number, source in enumerate(re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)):
        path = tmp_path / f"example_{number}.py"
        path.write_text(source)
        exec(compile(source, str(path), "exec"), names)
    assert (names["b"] == 3 * names["a"]).all()
    assert (tmp_path / "top_hls" / "Makefile").exists()
