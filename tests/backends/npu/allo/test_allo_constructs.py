"""What Allo says to kernels, body by body: `tests/data/allo_constructs.json` has the bodies and its verdicts."""

from __future__ import annotations

import json
import re
import textwrap
from pathlib import Path
from typing import Any

import pytest

from allo_dse.backends.npu.allo.program_rules import CONSTRUCTS
from allo_dse.backends.npu.allo.target import ALLO
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.common.errors import AlloDseError
from allo_dse.device.device import NpuDevice
from allo_dse.lang import install
from allo_dse.mapper.program import load_program

install()

import allo
import allo.dataflow as df
import allo.ir.types
from allo.memory import Layout

CASES = json.loads((Path(__file__).parents[3] / "data" / "allo_constructs.json").read_text())["cases"]
NPU = NpuDevice.load("npu1_4col")
PROGRAM = """
def make():
    @df.region()
    def top(A: Ty[32, 32], {B}C: Ty[32, 32]):
        @df.kernel(mapping=[2], args=[A, {B_name}C])
        def core(a: Ty[32, 32] @ [S(0), R], {b}c: Ty[32, 32] @ [S(0), R]):
            p = df.get_pid()
{body}
    return top
"""
KNOWN = 2
"""How many bodies are judged wrongly: slices of one that fit each other."""


def refused(body: str, dtype: str, path: Path) -> bool | None:
    """Whether target "allo" refuses a body; None where it is no program."""
    second = re.search(r"\bb\b", body) is not None
    parts = {"B": "B: Ty[32, 32], ", "B_name": "B, ", "b": "b: Ty[32, 32] @ [S(0), R], "}
    filled = {name: text if second else "" for name, text in parts.items()}
    path.write_text(PROGRAM.format(body=textwrap.indent(body, " " * 12), **filled))
    names = {name: getattr(allo.ir.types, name) for name in ("int32", "float32", "bool")}
    given = {"df": df, "allo": allo, "Ty": getattr(allo.ir.types, dtype), "S": Layout.Shard, "R": Layout.Replicate}
    scope: dict[str, Any] = {**names, **given, "K": 3}
    exec(compile(path.read_text(), str(path), "exec"), scope)
    try:
        program = load_program(scope["make"])
    except AlloDseError:
        return None
    return bool(ALLO.check_program(NpuMapping(program.vmg, NPU)))


@pytest.mark.parametrize("dtype", ["bfloat16", "int16"])
def test_bodies_that_allo_refuses_are_refused_with_their_line(dtype: str, tmp_path: Path) -> None:
    wrong = []
    for number, case in enumerate(CASES):
        verdict = refused(case["body"], dtype, tmp_path / f"case{number}.py")
        if verdict is not None and verdict == case[dtype]:
            wrong.append(case["body"])
    assert len(wrong) <= KNOWN, wrong


def test_every_construct_says_what_to_write_instead() -> None:
    assert all(len(hint) > 10 for hint in CONSTRUCTS.values())
