"""The digest of a program: equal where programs do the same in the same way, in every process, and nowhere else."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from allo_dse.compiler.program.compiled import program_digest
from allo_dse.mapper.program import load_program

from .. import samples

HEAD = """
from allo_dse.lang import install

install()
import allo
import allo.dataflow as df
from allo.ir.types import Stateful, Stream, int32
from allo.memory import Layout

S, R = Layout.Shard, Layout.Replicate
"""
PROGRAM = (
    HEAD
    + """
@df.region()
def top(A: int32[4, 4], B: int32[4, 4]):
    s: Stream[int32, 2][4]

    @df.kernel(mapping=[4], args=[A])
    def send(local_A: int32[4, 4] @ [S(0), R]):
        i = df.get_pid()
        for k in range(4):
            s[i].put(local_A[0, k])

    @df.kernel(mapping=[4], args=[B])
    def receive(local_B: int32[4, 4] @ [S(0), R]):
        i = df.get_pid()
        total: int32 @ Stateful = 0
        for k in range(4):
            total += s[i].get()
            local_B[0, k] = total
"""
)
SCHEDULE = """
top = allo.customize(top)
top.pipeline("receive:k", initiation_interval=1)
"""
CHANGES = {
    "nothing": [],
    "another layout of what is sent": [("local_A: int32[4, 4] @ [S(0), R]", "local_A: int32[4, 4] @ [R, S(0)]"),
                                       ("local_A[0, k]", "local_A[k, 0]")],
    "another stream": [("s[i].put", "s[3 - i].put")],
    "another initial value": [("Stateful = 0", "Stateful = 5")],
    "another depth": [("Stream[int32, 2]", "Stream[int32, 3]")],
    "another operation": [("total +=", "total -=")],
    "a schedule": [("", SCHEDULE)],
    "another interval": [("", SCHEDULE.replace("interval=1", "interval=2"))],
}  # fmt: skip


def digest(folder: Path, text: str) -> str:
    (folder / "program.py").write_text(text)
    values: dict[str, Any] = {"__name__": "program"}
    exec(compile(text, str(folder / "program.py"), "exec"), values)
    return program_digest(load_program(values["top"]))


def changed(changes: list[tuple[str, str]]) -> str:
    text = PROGRAM
    for old, new in changes:
        assert old in text
        text = text.replace(old, new) if old else text + new
    return text


def test_programs_that_differ_in_anything_have_other_digests(tmp_path: Path) -> None:
    found = {name: digest(tmp_path, changed(changes)) for name, changes in CHANGES.items()}
    assert [(a, b) for a, b in itertools.combinations(found, 2) if found[a] == found[b]] == []


def test_where_a_program_stands_makes_no_difference(tmp_path: Path) -> None:
    moved = PROGRAM.replace(HEAD, HEAD + "\n# A comment\n\n").replace("i = df.get_pid()", "i = df.get_pid()  # which")
    assert digest(tmp_path, moved) == digest(tmp_path, PROGRAM)


@pytest.mark.parametrize("name", ["gemm", "systolic", "hierarchical", "data_dependent"])
def test_other_processes_find_the_same(name: str) -> None:
    """Whatever their texts hash to."""
    program = (
        "from allo_dse.mapper.program import load_program\n"
        "from allo_dse.compiler.program.compiled import program_digest\n"
        f"from tests.compiler import samples\nprint(program_digest(load_program(samples.{name})))"
    )
    root = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": root, "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == program_digest(load_program(getattr(samples, name)))
