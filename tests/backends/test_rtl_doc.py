"""The pages about reports and the RTL flow keep up with the code."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allo_dse.backends.fpga.report.report import HlsReport
from allo_dse.backends.fpga.report.report_files import read_hls_report
from allo_dse.backends.rtl import tools
from allo_dse.lang import install

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(tools.unavailable() is not None, reason=str(tools.unavailable()))
def test_the_example_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "rtl.md").read_text(), re.DOTALL)
    file = tmp_path / "example.py"
    file.write_text(code)
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(code, str(file), "exec"), names)
    assert np.array_equal(names["B"], np.arange(16) ** 2)


def test_the_printed_report_is_what_is_printed() -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", (ROOT / "docs" / "hls_reports.md").read_text(), re.DOTALL)
    assert str(read_hls_report(ROOT / "tests" / "data" / "hls" / "project")) == shown.rstrip("\n")


def test_named_members_exist() -> None:
    text = (ROOT / "docs" / "hls_reports.md").read_text()
    fields = set(HlsReport.__dataclass_fields__) | set(dir(HlsReport))
    assert set(re.findall(r"`report\.(\w+)", text)) <= fields
