"""One program per construct: compiled, it computes what Python does; the documentation's table lists them all."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse.lang

allo_dse.lang.install()

from allo_dse.compiler import compile_region

from .constructs import CONSTRUCTS, table
from .execute import simulate

PAGE = Path(__file__).parents[2] / "docs" / "language.md"
HEAD = """import allo
import numpy as np
from allo.ir.types import Struct, int32

POINT = Struct({"x": int32, "y": int32})
WEIGHTS = [3, 1, 4, 1, 5, 9, 2, 6]
MATRIX = np.arange(8, dtype=np.int32).reshape(2, 4)


def plus_one(x: int32) -> int32:
    return x + 1


def fill(tile: int32[8], value: int32):
    for i in range(8):
        tile[i] = value + i


def program(a: int32[8], b: int32[8]):
"""
PROGRAMS = {written: body for programs in CONSTRUCTS.values() for written, body in programs.items()}


@pytest.mark.parametrize("written", PROGRAMS)
def test_a_construct_means_what_it_means_in_python(tmp_path: Path, written: str) -> None:
    source = HEAD + textwrap.indent(PROGRAMS[written], "    ") + "\n"
    path = tmp_path / "program.py"
    path.write_text(source)
    names: dict[str, Any] = {"int32": None}
    exec(compile(source, str(path), "exec"), names)
    a = np.array([0, 3, 1, 4, 2, 5, 7, 6], np.int32)
    expected, found = np.zeros(8, np.int32), np.zeros(8, np.int32)
    names["program"](a.copy(), expected)
    simulate(compile_region(names["program"]), a.copy(), found)
    assert found.tolist() == expected.tolist()
    assert expected.any()


def test_the_documentation_lists_them() -> None:
    """To refresh: paste `python -c "from tests.compiler.constructs import table; print(table())"` into the page."""
    assert table() in PAGE.read_text(encoding="utf-8")
