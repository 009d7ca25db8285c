"""The programs in docs/simulator.md run, one after the other."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "simulator.md"


def test_programs_of_the_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    assert len(blocks) == 3
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    names = runpy.run_path(str(script))
    assert names["B"].tolist() == list(range(0, 128, 2))
    assert names["result"].cycles == 10 * 101 + 80
    assert capsys.readouterr().out.count("\n") == 3
