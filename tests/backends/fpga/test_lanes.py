"""Operations on tiles that compute several elements at once: cycles, banks and code."""

from __future__ import annotations

import math

import pytest

import allo_dse as dse
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.fpga.hls.design_project import hls_project
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.compiler.program.compiled import LANES, Directive, lanes_of
from allo_dse.device.device import FpgaDevice
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.space.design import Design

from ...compiler import samples

install()

from allo.ir.types import float32

PROGRAM = dse.load_program(samples.gemm, M=16, N=32, K=16, Pm=1, Pn=1, Pk=1, TyI=float32, TyO=float32)


ONE_NODE = MeshFold((KernelFold("gemm", (AxisFold(1, "block", "chain"), AxisFold(1), AxisFold(1))),))


def design(lanes: int) -> Design:
    said = (Directive(LANES, "top", "tiles", {"factor": lanes}),) if lanes > 1 else ()
    return Design(PROGRAM, ONE_NODE, dse.Buffering(), FpgaDevice.load("u280"), said)


@pytest.mark.parametrize("lanes", [2, 8, 16])
def test_products_take_as_many_cycles_fewer(lanes: int) -> None:
    one, several = (FpgaMapping.of(design(n)) for n in (1, lanes))
    (task_class,) = PROGRAM.task_classes
    rounds = {m: max(loop.rounds * loop.ii for loop in m.cost(task_class).loops) for m in (one, several)}
    assert rounds[one] == 16 * 16 * 32
    assert rounds[several] == rounds[one] // lanes  # no sum waits for the one before, and no bank for another
    assert several.total.dsp > one.total.dsp
    assert FpgaSimulator().evaluate(design(lanes))["latency_cycles"] < rounds[one]
    code = hls_project(design(lanes)).files["kernel.cpp"]
    assert f"#pragma HLS unroll factor={lanes}" in str(code)
    assert f"dim=2 cyclic factor={lanes_of(lanes, 16)}" in str(code)


def test_lanes_divide_what_they_are_of_and_are_never_all() -> None:
    for extent in range(1, 70):
        for factor in (1, 2, 4, 8, 16, 32):
            lanes = lanes_of(factor, extent)
            assert extent % lanes == 0
            assert lanes <= math.gcd(factor, extent)
            assert extent == 1 or lanes < extent
