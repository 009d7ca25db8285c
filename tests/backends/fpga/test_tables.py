"""Tensors that the bitstream has as tables of constants: the same results, without a port and sooner."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.fpga.hls.dataflow.movers import KernelStreams
from allo_dse.backends.fpga.hls.design_project import hls_project
from allo_dse.backends.fpga.hls.project import HlsProject
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.execute.run import run_graph
from allo_dse.lang import install
from allo_dse.lang.storage import numpy_dtype
from allo_dse.space.design import Design

from ...compiler import samples

install()

from allo.ir.types import bfloat16

from .test_bounds import assert_bounded
from .test_tensors_in_dram import design

GEMM = dse.load_program(samples.gemm, M=16, N=24, K=32, Pm=2, Pn=3, Pk=4, TyI=bfloat16, TyO=bfloat16)
NARROW = numpy_dtype(bfloat16)


def of(spatial: tuple[int, int, int], place: str) -> Design:
    """A product whose right matrix is in DRAM, or in the bitstream."""
    own = design(spatial, ("A", "C"))
    return replace(own, program=GEMM, schedule=(*own.schedule, Directive("place", "top", "B", {"memory": place})))


def built(own: Design, b: np.ndarray) -> HlsProject:
    return hls_project(own, streams=KernelStreams(tables={"B": b}))


@pytest.mark.parametrize("spatial", [(1, 1, 1), (2, 2, 1), (4, 2, 3)])
def test_a_table_takes_no_time_and_no_port(spatial: tuple[int, int, int]) -> None:
    table, dram = of(spatial, "rom"), of(spatial, "dram")
    assert_bounded(table, FpgaSimulator())
    found, before = (FpgaSimulator().evaluate(one) for one in (table, dram))
    assert found["latency_cycles"] <= before["latency_cycles"]
    assert found["dram_bytes"] < before["dram_bytes"]
    adapters = [FpgaMapping.of(one).scheduled.interfaces.bram18 for one in (table, dram)]
    assert adapters[0] * 3 == adapters[1] * 2  # of three tensors
    # Every node has its tiles, each element once for each row of nodes along M.
    _, rows, _ = spatial
    bits = rows * 16 * 32 * 24
    arrays = FpgaMapping.of(table).resources["arrays"]
    assert 18 * 1024 * arrays.bram18 + 64 * arrays.lut > bits


def test_larger_tables_are_block_memory_and_never_uram() -> None:
    """All tiles of a node are in one memory, whose depth counts."""
    cost = FpgaMapping.of(own := of((1, 1, 1), "rom")).cost(next(iter(GEMM.task_classes)), (0, 0, 0))
    (table,) = (one for one in cost.storages.values() if one.place == "rom")
    device = FpgaDevice.of(own.device)
    assert table.resources(device).bram18 == 0 < table.resources(device).lut
    assert table.resources(device, 64).bram18 == device.arrays.bram18(64 * 64, 16)
    assert table.resources(device, 4096).uram == 0


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("spatial", [(4, 2, 3), (2, 1, 3)])
def test_code_computes_the_same(spatial: tuple[int, int, int], tmp_path: Path) -> None:
    """With a process for each task, and with several tasks in turn."""
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype(NARROW) for shape in ((16, 32), (32, 24)))
    own, expected = of(spatial, "rom"), np.zeros((16, 24), NARROW)
    run_graph(own.vmg, a, b, expected)
    built(own, b).write(tmp_path)
    build = ["g++", "-std=c++14", "-O0", "-fwrapv", "-ffp-contract=off", "-w", "-I.", "-Icsim", "-o", "testbench"]
    subprocess.run([*build, "kernel.cpp", "testbench.cpp"], cwd=tmp_path, check=True)
    for tensor, array in (("A", a), ("C", np.zeros_like(expected))):
        array.tofile(tmp_path / f"{tensor}.bin")
    subprocess.run(["./testbench", "."], cwd=tmp_path, check=True, timeout=300)
    np.testing.assert_array_equal(np.fromfile(tmp_path / "C.bin", np.uint16), expected.view(np.uint16).ravel())


def test_text_of_a_kernel_with_a_table(golden: Callable[[str, str], None]) -> None:
    project = built(of((2, 1, 3), "rom"), np.arange(768).reshape(32, 24).astype(NARROW))
    golden("gemm_table.cpp", project.hls_code)
    assert "B_buffer" not in project.files["host.cpp"]
    assert not any(".B:" in line for line in project.files["connectivity.cfg"].splitlines())
