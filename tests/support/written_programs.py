"""Programs that tests write as files."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write_program(path: Path, text: str) -> Any:
    """The function `build` of a program that is written to a file of its own."""
    path.write_text("import allo\nimport allo.dataflow as df\nfrom allo.ir.types import Stream, int32\n\n\n" + text)
    names: dict[str, Any] = {}
    exec(compile(path.read_text(), str(path), "exec"), names)
    return names["build"]
