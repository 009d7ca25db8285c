"""Every operation of the language, for every family of types, computes what an independent interpreter does.

The interpreter shares no code with the front end: a misunderstanding in it would be the same in the simulator, in
generated C++ and in equivalence.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.hls import emit_project
from allo_dse.backends.fpga.hls.build_modes import CSimulation
from allo_dse.compiler.expressions import scalars
from allo_dse.lang import install

from ..support.interpreter import interpret
from ..support.operator_tables import FAMILIES, Table, arguments, disagreements, region, tables
from ..support.random_mixed import mixed_program
from ..support.random_programs import random_program

CPP_SECONDS = 3600.0  # a compiler on a busy machine takes its time
MIXED = (("int8", "uint8"), ("Int(3)", "uint32"), ("UInt(5)", "int64"), ("uint8", "int16"))
PROGRAMS = 15
MIXED_PROGRAMS = 10
DIVISIONS = """
import allo
import allo.dataflow as df
from allo.ir.types import *

@df.region()
def top(X: int32[4], Y: float64[2, 6, 4]):
    @df.kernel(mapping=[2], args=[X, Y])
    def core(x: int32[4], y: float64[2, 6, 4]):
        p = df.get_pid()
        for i in range(4):
            y[p, 0, i] = p / 2
            y[p, 1, i] = 7 / 2
            y[p, 2, i] = i / 2
            y[p, 3, i] = 7 / x[i]
            y[p, 4, i] = x[i] / 2
            y[p, 5, i] = i / x[i]
"""


@pytest.fixture(autouse=True, scope="module")
def _language() -> None:
    install()


def _run(table: Table, path: Path) -> tuple[Any, dict[str, list[Any]], list[Any]]:
    program = dse.load_program(region(table.text, path))
    inputs, arrays = arguments(table, seed=1)
    return program, inputs, arrays


@pytest.mark.parametrize("family", FAMILIES)
def test_simulator_agrees(family: str, tmp_path: Path) -> None:
    table = tables(family)
    program, inputs, arrays = _run(table, tmp_path / "program.py")
    dse.simulate(program, *arrays)
    assert disagreements(table, inputs, arrays) == []


@pytest.mark.parametrize(("first", "second"), MIXED)
def test_simulator_agrees_on_two_types(first: str, second: str, tmp_path: Path) -> None:
    table = tables(first, second)
    program, inputs, arrays = _run(table, tmp_path / "program.py")
    dse.simulate(program, *arrays)
    assert disagreements(table, inputs, arrays) == []


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
@pytest.mark.parametrize("family", ["UInt(5)"])
def test_generated_cpp_agrees(family: str, tmp_path: Path) -> None:
    table = tables(family)
    program, inputs, arrays = _run(table, tmp_path / "program.py")
    with CSimulation(emit_project(program), seconds=CPP_SECONDS) as compiled:
        compiled(*arrays)
    assert disagreements(table, inputs, arrays) == []


def test_slashes_of_pids_literals_and_variables(tmp_path: Path) -> None:
    values = np.array([2, -2, 3, 4], np.int32)
    found = np.zeros((2, 6, 4))
    dse.simulate(dse.load_program(region(DIVISIONS, tmp_path / "program.py")), values, found)
    wanted = interpret(DIVISIONS, {"X": values.tolist(), "Y": np.zeros((2, 6, 4)).tolist()})["Y"]
    assert found.tolist() == wanted.tolist()
    assert found[1, :2, 0].tolist() == [0.5, 3.5]
    assert found[0, 3].tolist() == [3, -3, 2, 1]


@pytest.mark.parametrize("seed", range(PROGRAMS))
def test_random_programs_agree(seed: int, tmp_path: Path) -> None:
    program = random_program(seed, widths_matter=True)
    arrays = program.arrays(np.random.default_rng(seed))
    names = [*(f"X{k}" for k in range(len(program.inputs))), *(f"Y{k}" for k in range(len(program.outputs)))]
    wanted = interpret(program.text, {name: a.tolist() for name, a in zip(names, arrays, strict=True)})
    dse.simulate(dse.load_program(program.region(tmp_path / "program.py")), *arrays)
    for name, found in zip(names, arrays, strict=True):
        assert [int(v) for v in found] == [int(v) for v in wanted[name]], name


@pytest.mark.parametrize("seed", range(MIXED_PROGRAMS))
def test_random_programs_of_mixed_types_tiles_and_streams_agree(seed: int, tmp_path: Path) -> None:
    program = mixed_program(seed)
    loaded = dse.load_program(region(program.text, tmp_path / "program.py"))
    inputs = program.inputs(seed)
    arrays = program.arrays(inputs)
    dse.simulate(loaded, *arrays)
    assert program.differences(inputs, arrays) == []


def test_a_wrong_operation_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = scalars.result_type
    monkeypatch.setattr(scalars, "result_type", lambda op, a, b: a if op == "+" else right(op, a, b))
    table = Table("uint8", "uint8", ("x + z", "x * z"), ())
    program, inputs, arrays = _run(table, tmp_path / "program.py")
    dse.simulate(program, *arrays)
    (found,) = disagreements(table, inputs, arrays)
    assert "x + z" in found
