"""Folds are respelled only where Allo refuses them, and stay the same but for the pattern of axes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from allo_dse.backends.npu.allo.target import ALLO, least_transfers, with_fewer_transfers
from allo_dse.backends.npu.fold_bounds import NpuFoldBounds
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.common.records import replace
from allo_dse.device.device import NpuDevice
from allo_dse.eval.target import MODEL
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.program import Program
from allo_dse.space.choices.kernel_folds import KernelFolds
from allo_dse.space.choices.parameters import ParameterChoice
from allo_dse.space.design import Draft
from allo_dse.space.genes import random_suggest
from allo_dse.space.params import ParameterSpace
from tests.space.support import MadePrograms
from tests.support.programs import INT16, attention_program, gemm_program

install()

NPU = NpuDevice.load("npu1_4col")


@cache
def gemm() -> Program:
    return Program.of(gemm_program(512, 512, 512, 16, 16, 4, INT16))


def fold_of(k: int, m: AxisFold, n: AxisFold) -> MeshFold:
    chain = AxisFold(k, "block", "chain")
    return MeshFold((KernelFold("gemm", (chain, m, n), (1, 2)),)).normalised(gemm().vmg.graph)


def refusals(fold: MeshFold) -> set[str]:
    mapping = NpuMapping(gemm().vmg.fold(fold), NPU)
    return {v.constraint for v in ALLO.check(mapping)}


def test_blocks_along_both_axes_become_blocks_along_the_first() -> None:
    wanted = fold_of(1, AxisFold(4, "block"), AxisFold(4, "block"))
    found = with_fewer_transfers(gemm().vmg.graph, wanted, NPU)
    assert found == fold_of(1, AxisFold(4, "block"), AxisFold(4, "cyclic"))
    assert refusals(wanted) == {"allo_transfers"}
    assert refusals(found) == set()
    bounds = NpuFoldBounds(gemm().vmg.graph, NpuDevice.of(NPU))
    assert least_transfers(bounds, wanted) == {"in": 8, "out": 16}
    assert least_transfers(bounds, found) == {"in": 5, "out": 4}


@pytest.mark.parametrize("name", ["gemm", "attention"])
def test_what_allo_builds_is_left_alone(name: str) -> None:
    program = gemm() if name == "gemm" else Program.of(attention_program(2, 8, 8))
    choice, rng = KernelFolds(NPU), np.random.default_rng(0)
    built = changed = 0
    for _ in range(120):
        draft = choice.decode(Draft(NPU, program=program), random_suggest(rng))
        if draft is None or not isinstance(draft.fold, MeshFold):
            continue
        other = with_fewer_transfers(program.vmg.graph, draft.fold, NPU)
        if other == draft.fold:
            continue
        changed += 1
        assert ALLO.check(NpuMapping(program.vmg.fold(draft.fold), NPU))
        assert other == other.normalised(program.vmg.graph)
        assert with_fewer_transfers(program.vmg.graph, other, NPU) == other
        again = program.vmg.fold(other)  # legal
        assert again.node_count == draft.fold.node_count
        assert cyclic_as(other, draft.fold) == draft.fold
        built += not ALLO.check(NpuMapping(again, NPU))
    assert name != "gemm" or built > changed / 2 > 5


def cyclic_as(fold: MeshFold, other: MeshFold) -> MeshFold:
    """A fold with the patterns of another one."""
    kernels = tuple(
        replace(a, axes=tuple(replace(x, pattern=y.pattern) for x, y in zip(a.axes, b.axes, strict=True)))
        for a, b in zip(fold.kernels, other.kernels, strict=True)
    )
    return replace(fold, kernels=kernels)


def test_genes_of_a_fold_that_allo_refuses_decode_to_one_that_it_builds() -> None:
    choice = KernelFolds(NPU, ALLO.respell)
    parameters = ParameterChoice(ParameterSpace({}), MadePrograms(gemm))
    draft = parameters.decode(Draft(NPU), lambda name, gene: gene.low)
    assert draft is not None
    genes = choice._genes(draft, fold_of(1, AxisFold(4, "block"), AxisFold(4, "block")))
    found = choice.decode(draft, lambda name, gene: genes.get(name, gene.low))
    assert found is not None
    assert found.fold == fold_of(1, AxisFold(4, "block"), AxisFold(4, "cyclic"))
    assert MODEL.respell is None
