"""The program in docs/language.md compiles, and the error shown there is the one that is raised."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import allo_dse.lang
from allo_dse.common.errors import ProgramError
from allo_dse.compiler import compile_region

TEXT = (Path(__file__).parents[2] / "docs" / "language.md").read_text()


def load(path: Path, source: str) -> Any:
    allo_dse.lang.install()
    path.write_text(source)
    names: dict[str, Any] = {}
    exec(compile(source, str(path), "exec"), names)
    return names["gemm"]


def test_the_example_compiles_to_three_classes(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    program = compile_region(load(tmp_path / "gemm.py", source), {"Pk": 8})
    assert len(program.kernels[0].classes) == 3


def test_the_error_is_the_one_shown(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    broken = source.replace("allo.meta_if(pk > 0)", "allo.meta_if(pk >= 0)")
    with pytest.raises(ProgramError) as caught:
        compile_region(load(tmp_path / "gemm.py", broken))
    shown = str(caught.value).splitlines()
    assert shown[0].split("error: ")[1] in TEXT
    assert shown[3].strip() in TEXT
