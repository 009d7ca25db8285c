"""What `df.build` and `df.customize` make of a program, for every target a user can name."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse
import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import int32

from allo_dse.common.errors import AlloDseError

from ..backends.fpga.cost import programs
from . import samples

RNG = np.random.default_rng(0)


def pair() -> tuple[Any, Any]:
    return RNG.random((16, 16), dtype=np.float32), np.zeros((16, 16), np.float32)


@pytest.mark.parametrize("mesh", [(4,), (4, 3), (4, 3, 2)])
def test_a_task_knows_its_place_in_a_mesh_of_any_rank(mesh: tuple[int, ...]) -> None:
    @df.region()
    def line(A: int32[4]):
        @df.kernel(mapping=[4], args=[A])
        def place(a: int32[4]):
            x = df.get_pid()
            a[x] = x

    @df.region()
    def plane(A: int32[4, 3]):
        @df.kernel(mapping=[4, 3], args=[A])
        def place(a: int32[4, 3]):
            x, y = df.get_pid()
            a[x, y] = 3 * x + y

    @df.region()
    def space(A: int32[4, 3, 2]):
        @df.kernel(mapping=[4, 3, 2], args=[A])
        def place(a: int32[4, 3, 2]):
            x, y, z = df.get_pid()
            a[x, y, z] = (3 * x + y) * 2 + z

    a = np.zeros(mesh, np.int32)
    df.build((line, plane, space)[len(mesh) - 1])(a)
    np.testing.assert_array_equal(a.ravel(), np.arange(a.size))


@pytest.mark.parametrize("options", [{"target": "simulator"}, {"target": "llvm"}, {"target": "aie"}, {}], ids=str)
def test_targets_that_run_here(options: dict[str, str]) -> None:
    a, b = pair()
    df.build(samples.producer_consumer(), **options)(a, b)
    np.testing.assert_array_equal(b, a + 1)


@pytest.mark.parametrize("target", ["simulator", "vhls"])
def test_depths_are_those_of_the_build(target: str) -> None:
    """The program deadlocks at its own."""
    a, b = np.arange(20, dtype=np.int32), np.zeros(20, np.int32)
    df.build(programs.sums_first(20, at_once=False), target=target, depths={"quotients": 20})(a, b)
    np.testing.assert_array_equal(b, a // 7 + a.sum())
    with pytest.raises(AlloDseError, match="no stream 'quotient'"):
        df.build(programs.sums_first(20, at_once=False), target=target, depths={"quotient": 20})


@pytest.mark.parametrize("target", ["llvm", "vhls"])
def test_a_returned_argument_is_the_callers_array(target: str) -> None:
    def swapped(A: int32[4], B: int32[4]) -> (int32[4], int32[4], int32):
        last: int32 = A[3]
        for i in range(4):
            kept: int32 = A[i]
            A[i] = B[i]
            B[i] = kept
        return B, A, last

    def either(A: int32[4], B: int32[4]) -> int32[4]:
        if A[0] > 0:
            return A
        return B

    a, b = np.arange(4, dtype=np.int32), np.arange(4, 8, dtype=np.int32)
    first, second, last = allo.customize(swapped).build(target=target)(a, b)
    assert (first is b, second is a, last) == (True, True, 3)
    assert (a.tolist(), b.tolist()) == ([4, 5, 6, 7], [0, 1, 2, 3])
    one = allo.customize(either).build(target=target)(a, b)
    assert one.tolist() == a.tolist()
    assert one is not a
    assert one is not b


def test_hls_code_alone() -> None:
    assert "#pragma HLS dataflow" in df.build(samples.producer_consumer(), target="vhls").hls_code


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_hls_code_runs_as_c_simulation(tmp_path: Path) -> None:
    a, b = pair()
    df.build(samples.producer_consumer(), target="vitis_hls", mode="csim", project=str(tmp_path / "add"))(a, b)
    np.testing.assert_array_equal(b, a + 1)


@pytest.mark.skipif(shutil.which("vitis_hls") is not None, reason="would take hours")
def test_hardware_emulation_writes_the_project_and_names_the_tool(tmp_path: Path) -> None:
    module = df.build(samples.producer_consumer(), target="vitis_hls", mode="hw_emu", project=str(tmp_path / "add"))
    with pytest.raises(allo_dse.AlloDseError, match="needs AMD Vitis"):
        module(*pair())
    assert (tmp_path / "add" / "kernel.cpp").exists()


def test_directives_reach_the_program_and_the_hls_code(tmp_path: Path) -> None:
    schedule = df.customize(samples.tiled(16, 16, 16))
    schedule.partition("top:A", dim=1, factor=2)
    schedule.partition("top:B", dim=0, factor=4)
    module = schedule.build(target="simulator")
    assert [str(directive) for directive in module.program.schedule] == [
        "partition(top:A, dim=1, factor=2, partition_type=complete)",
        "partition(top:B, dim=0, factor=4, partition_type=complete)",
    ]
    (a, b), c = (RNG.random((2, 16, 16), dtype=np.float32)), np.zeros((16, 16), np.float32)
    module(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    code = schedule.build(target="vitis_hls", mode="hw_emu", project=str(tmp_path / "tiled")).hls_code
    assert "#pragma HLS array_partition variable=a dim=1 complete" in code
