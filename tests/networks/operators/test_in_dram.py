"""Operators on FPGAs, folded and with their tensors in DRAM: HLS code computes what the simulator does."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.fpga.hls.design_project import hls_project
from allo_dse.backends.fpga.launches import in_dram
from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.networks.operators import (
    Work,
    attention_work,
    binary_work,
    element_type,
    gemm_work,
    gemv_work,
    rope_work,
    unary_work,
)
from allo_dse.networks.operators.execute import difference, interface, loaded, run_program
from allo_dse.networks.operators.products import fused_work
from allo_dse.space.design import Design
from allo_dse.space.genes import random_suggest
from allo_dse.tune.search.objectives import minimize
from allo_dse.tune.study import Study

from ...backends.fpga.hls.batch import Batch
from .works import layer_norm_work, pool_work, row_work

ELEMENT = element_type("bf16")
PRODUCT = gemm_work(32, 32, 32, ELEMENT)
FUSED = fused_work(PRODUCT, row_work("add", 32, 32, ELEMENT), 0)
assert FUSED is not None
WORKS = (
    *(PRODUCT, FUSED, layer_norm_work(16, 16, 1e-5, ELEMENT), row_work("add", 16, 16, ELEMENT)),
    *(attention_work(4, 2, 64, 8, 0.3, True, ELEMENT), unary_work("gelu", 1024, ELEMENT)),
    *(pool_work("max", 4, 256, ELEMENT), gemv_work(32, 1024, ELEMENT), rope_work(32, 8, ELEMENT)),
    *(binary_work("silu_mul", 1024, ELEMENT), gemm_work(1, 128, 32, ELEMENT, blocks=4)),
)

ROUNDING = 0.01  # of bfloat16; the tool may add in another order
TRIES = 100


def _folded(work: Work) -> Design:
    """One of several nodes with several tasks each, where there is one."""
    study = Study(
        work.kind,
        program=work.program,
        params=work.params,
        device="u280",
        schedules=in_dram(loaded(work)),
        objectives=[minimize("latency_us")],
    )
    rng = np.random.default_rng(0)
    found = (study.space.decode(random_suggest(rng)) for _ in range(TRIES))
    designs = [one.design for one in found if one is not None]
    designs.sort(key=lambda one: min(one.vmg.node_count, 3) * one.vmg.task_count / one.vmg.node_count, reverse=True)
    return next(one for one in designs if not study.check(one))  # far more work than to fold it


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_code_computes_what_the_simulator_does(tmp_path: Path) -> None:
    designs = {f"k{number}": _folded(work) for number, work in enumerate(WORKS)}
    assert all(one.vmg.node_count < one.vmg.task_count for one in designs.values())
    depths = {name: FpgaSimulator().evaluate(one)["stream_depths"] for name, one in designs.items()}
    batch = Batch({name: hls_project(one, depths[name]) for name, one in designs.items()}, "g++", tmp_path)
    rng = np.random.default_rng(1)
    for name, one in designs.items():
        reads, writes = interface(one.program)
        given = [rng.standard_normal(tensor.shape).astype(np.float32) for tensor in reads]
        arrays = {tensor.name: np.zeros(tensor.shape, numpy_dtype(tensor.dtype)) for tensor in one.program.tensors}
        for tensor, array in zip(reads, given, strict=True):
            arrays[tensor.name][...] = array
        found = dict(zip(arrays, batch.run(name, *arrays.values()), strict=True))[writes[0].name]
        wanted = run_program(one.program, given, one.vmg)
        assert difference(found.astype(np.float32), wanted) < ROUNDING, one.program.name
