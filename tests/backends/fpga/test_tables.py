"""Tensors that the bitstream has as tables of constants: they compute the same, and take no port and no time."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.hls import KernelStreams
from allo_dse.backends.fpga.hls.design_project import CALL, hls_project
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.common.records import replace
from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.compiler.program.compiled import Directive
from allo_dse.lang import install

from ...compiler import samples

install()

from allo.ir.types import bfloat16

from .test_tensors_in_dram import SPATIAL, design

GEMM = dse.load_program(samples.gemm, M=16, N=24, K=32, Pm=2, Pn=3, Pk=4, TyI=bfloat16, TyO=bfloat16)
B16 = numpy_dtype(bfloat16)


def with_table(spatial: tuple[int, int, int]):
    own = replace(design(spatial, bits=32), program=GEMM)
    kept = [d for d in own.schedule if d.name != "B"]
    return own, replace(own, schedule=(*kept, Directive("place", "top", "B", {"memory": "rom"})))


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize("spatial", SPATIAL)
@pytest.mark.parametrize("calls", [1, 2])
def test_a_table(spatial, calls, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("CXXFLAGS", "-O0")
    _, own = with_table(spatial)
    rng = np.random.default_rng(0)
    a, *b = (rng.standard_normal(s).astype(B16) for s in ((16, 32), *[(32, 24)] * calls))
    project = hls_project(own, streams=KernelStreams(tables={"B": b}))
    project.write(tmp_path)
    print(project.hls_code)
    subprocess.run(["make", "-s", "testbench"], cwd=tmp_path, check=True)
    for number in range(calls):
        a.tofile(tmp_path / "A.bin")
        np.zeros(384, B16).tofile(tmp_path / "C.bin")
        np.array([number], np.int32).tofile(tmp_path / f"{CALL.name}.bin")
        subprocess.run(["./testbench", "."], cwd=tmp_path, check=True, timeout=60)
        found = np.fromfile(tmp_path / "C.bin", B16).astype(np.float32).reshape(16, 24)
        np.testing.assert_allclose(found, a.astype(np.float32) @ b[number].astype(np.float32), rtol=0.1, atol=0.2)
