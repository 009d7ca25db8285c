"""docs/devices.md keeps up with the code."""

from __future__ import annotations

import re
from pathlib import Path

from allo_dse.device.device import NpuDevice

DOC = (Path(__file__).parents[2] / "docs" / "devices.md").read_text(encoding="utf-8")


def test_the_example_file_loads(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", DOC, re.DOTALL)
    path = tmp_path / "mine.toml"
    path.write_text(example, encoding="utf-8")
    device = NpuDevice.load(path)
    assert (device.compute_tiles, device.clock_ghz) == (8, 1.6)
    assert device.with_options(board="quiet").clock_ghz == 0.8


def test_tables_are_documented() -> None:
    documented = set(re.findall(r"`\[(\w+)", DOC))
    derived = {
        "name", "family", "architecture", "description", "board", "board_name", "kernel_library", "unmeasured_percent"
    }  # fmt: skip
    assert set(NpuDevice.model_fields) - derived <= documented
