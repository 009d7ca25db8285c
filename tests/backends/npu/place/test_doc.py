"""The commands of docs/placement.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import allo_dse as dse
from allo_dse.lang import install

install()

DOC = (Path(__file__).parents[4] / "docs" / "placement.md").read_text(encoding="utf-8")


def test_the_commands_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = re.findall(r"(?:^    .*\n|^\n(?=    ))+", DOC, re.MULTILINE)
    code = "\n".join(line[4:] for block in blocks for line in block.splitlines())
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    exec(code, names)
    assert isinstance(names["placed"], dse.PlacedDesign)
    assert {path.name for path in tmp_path.iterdir()} == {"before.svg", "after.svg", "array.svg"}
