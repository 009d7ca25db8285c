"""Programs that are cut out of study files declare their streams as deep as the mapping needs."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.npu.board.program_source import NotCut, program_files
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.device.device import NpuDevice
from allo_dse.eval.backend import Sources
from allo_dse.eval.design_folder import artifacts_of, design_files, write_files
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.mapper.program import load_program

from ...fpga.cost import programs

install()

from studies.attention_npu import attention, study

TWO_IN_A_LINE = """
import allo.dataflow as df
from allo.ir.types import Stream, int32

def pipe(N=4):
    @df.region()
    def top(A: int32[N]):
        ä: Stream[int32[N], 2]; wide: Stream[int32[N], 1 + 1][2]; other: Stream[int32[N]]

    return top
"""


def module_of(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_exported_program_runs_at_the_depths_it_declares(tmp_path: Path) -> None:
    """Of attention, whose rows deadlock where scores or scales have room for two tokens only."""
    designs = (candidate.design for candidate in study(length=128).space.designs())
    design = next(d for d in designs if not d.mapping.violations and NpuMapping.of(d).view.needed_depths.depth)
    write_files(design_files(design), tmp_path)
    exported = load_program(module_of(tmp_path / "program.py").region())
    declared = {stream.name: stream.depth for stream in exported.streams}
    assert declared.items() >= NpuMapping.of(design).view.needed_depths.depth.items()
    mapping = NpuMapping(exported.vmg.fold(design.fold), NpuDevice.of(design.device), design.buffering)
    assert mapping.view.needed_depths.depth == {}
    assert mapping.local_memory_bytes == NpuMapping.of(design).local_memory_bytes


def test_depths_are_set_where_streams_are_declared(tmp_path: Path) -> None:
    file = tmp_path / "pipe_study.py"
    file.write_text(TWO_IN_A_LINE)
    pipe = module_of(file).pipe
    text = program_files(pipe, {"N": 4}, None, {"ä": 16, "wide": 3})["program.py"]
    assert "ä: Stream[int32[N], 16]; wide: Stream[int32[N], 3][2]; other: Stream[int32[N]]\n" in text
    assert "as deep as the mapping needs: ä, wide" in text
    with pytest.raises(NotCut, match=r"declares no `other: Stream\[type, 4\]`"):
        program_files(pipe, {"N": 4}, None, {"other": 4})


def test_numbers_are_written_as_python_reads_them(tmp_path: Path) -> None:
    """`inf`, `nan` and `np.float64(0.1)` are names that the program does not have."""
    (tmp_path / "made.py").write_text("def made(*numbers, **named):\n    return named\n")
    given = {"high": np.inf, "low": -np.inf, "none": np.nan, "some": np.float64(0.1), "whole": 3, "text": "inf"}
    (tmp_path / "cut.py").write_text(program_files(module_of(tmp_path / "made.py").made, given, None, {})["program.py"])
    assert repr(module_of(tmp_path / "cut.py").region()) == repr({**given, "some": 0.1})


def test_without_deeper_streams_the_source_is_as_it_was() -> None:
    text = program_files(attention, {"L": 64}, None, {})["program.py"]
    assert "scales: Stream[float32[Tq], 2][rows]" in text
    assert "needs" not in text.splitlines()[0]


def test_what_repeated_runs_would_update_is_not_compared_with_a_reference() -> None:
    program = load_program(programs.picked)
    made = dse.Design(program, unfolded(program), dse.Buffering(), NpuDevice.load("npu1_4col"))
    assert "golden.npz" in design_files(made, artifacts_of(made, Sources(lambda x, at: x)))
    assert "golden.npz" not in design_files(made, artifacts_of(made, Sources(lambda x, at, y: x)))
