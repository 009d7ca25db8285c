"""Tensors that stay in DRAM: what comes and goes when, what that takes, and that HLS code computes the same."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.fpga.hls.design_project import hls_project
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import FpgaDevice
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.space.design import Design

from ...compiler import samples
from .cost import programs
from .hls.batch import Batch

install()

from allo.ir.types import int32

from .test_bounds import assert_bounded

U280 = FpgaDevice.load("u280")
PROGRAM = dse.load_program(samples.gemm, M=16, N=24, K=32, Pm=2, Pn=3, Pk=4, TyI=int32, TyO=int32)
SPATIAL = list(itertools.product((1, 2, 4), (1, 2), (1, 3)))
IN_DRAM = ("A", "B", "C")


def fold_of(spatial: tuple[int, int, int]) -> MeshFold:
    """On so many nodes along K, M and N."""
    k, m, n = spatial
    return MeshFold((KernelFold("gemm", (AxisFold(k, "block", "chain"), AxisFold(m), AxisFold(n))),))


def design(spatial: tuple[int, int, int], in_dram: tuple[str, ...] = IN_DRAM, bits: int = 32) -> Design:
    said = [Directive("place", "top", name, {"memory": "dram"}) for name in in_dram]
    packed = [Directive("pack", "top", name, {"bits": bits}) for name in in_dram] if bits > 32 else []
    return Design(PROGRAM, fold_of(spatial), dse.Buffering(), U280, (*said, *packed))


@settings(max_examples=20, deadline=None)
@given(spatial=st.sampled_from(SPATIAL), in_dram=st.sets(st.sampled_from(IN_DRAM)), bits=st.sampled_from([32, 64]))
def test_bounds_hold(spatial: tuple[int, int, int], in_dram: set[str], bits: int) -> None:
    assert_bounded(design(spatial, tuple(sorted(in_dram)), bits), FpgaSimulator())


@pytest.mark.parametrize("in_dram", [one for n in range(6) for one in itertools.combinations("ABCDE", n)])
def test_bounds_know_what_is_done_while_tiles_are_on_their_way(in_dram: tuple[str, ...]) -> None:
    """A token that comes while a task gets its tiles, a large tile that is stored while a small one follows it."""
    program = dse.load_program(programs.passed_tiles)
    said = tuple(Directive("place", "top", name, {"memory": "dram"}) for name in in_dram)
    whole = MeshFold(tuple(KernelFold(kernel, (AxisFold(1),)) for kernel in ("first", "second")))
    assert_bounded(Design(program, whole, dse.Buffering(), U280, said), FpgaSimulator())


@pytest.mark.parametrize("spatial", SPATIAL)
def test_every_task_gets_its_tile_once_and_nodes_of_one_turn_share_it(spatial: tuple[int, int, int]) -> None:
    vmg = PROGRAM.vmg.fold(fold_of(spatial))
    pids = PROGRAM.pids(0, np.arange(PROGRAM.task_count))
    for tensor, own in (("A", pids[:, [1, 0]]), ("B", pids[:, [0, 2]])):
        found = vmg.uses.deliveries(tensor, "reads")
        assert sorted(found.task.tolist()) == list(range(PROGRAM.task_count))
        assert np.unique(found.number).tolist() == list(range(len(found.tile)))
        # One tile a delivery, and no node twice.
        assert len(np.unique(np.column_stack([found.number, own[found.task]]), axis=0)) == len(found.tile)
        assert len(np.unique(np.column_stack([found.number, vmg.node_of_task[found.task]]), axis=0)) == len(found.task)
        assert (np.diff(vmg.uses.turns[found.task]) >= 0).all()
    last = [task for task in range(PROGRAM.task_count) if pids[task][0] == 3]
    assert sorted(vmg.uses.deliveries("C", "writes").task.tolist()) == last


@pytest.mark.parametrize("spatial", SPATIAL)
def test_bytes_are_those_of_all_deliveries(spatial: tuple[int, int, int]) -> None:
    """Each product of tiles needs its tiles, but for nodes that do theirs in the same turn."""
    _, m, n = spatial
    metrics = FpgaSimulator().evaluate(design(spatial))
    tile_a, tile_b = 16 * 32 // 8 * 4, 32 * 24 // 12 * 4
    assert metrics.dram_bytes == 24 * tile_a // n + 24 * tile_b // m + 16 * 24 * 4


def test_a_node_holds_one_tile_and_the_next() -> None:
    """Of a tensor that stays in DRAM memory does not grow with the tasks of a node; of others it does."""
    for in_dram, grows in ((IN_DRAM, False), ((), True)):
        six, one = (FpgaMapping.of(design(spatial, in_dram)).processing["arrays"] for spatial in ((1, 2, 3), (1, 1, 1)))
        assert (6 * one.lut > six.lut) is grows
        assert grows or 6 * one.ff == six.ff


@pytest.mark.parametrize("order", [(32, 64, 32), (64, 32, 64)])
def test_what_holds_a_tile_is_as_wide_as_the_words_that_come(order: tuple[int, ...]) -> None:
    """Designs of one program that differ in their words only, and each of a program of its own."""
    shared = dse.load_program(samples.gemm, **PROGRAM.params)
    found = [FpgaMapping.of(replace(design((1, 2, 3), bits=bits), program=shared)).resources for bits in order]
    alone = [
        replace(design((1, 2, 3), bits=bits), program=dse.load_program(samples.gemm, **PROGRAM.params))
        for bits in order
    ]
    assert found == [FpgaMapping.of(one).resources for one in alone]
    assert found[0]["arrays"] != found[1]["arrays"]


def test_copies_are_in_the_time_of_tasks() -> None:
    """On one node: its products, and as many cycles for each element that comes and goes, of A and B at the same time;
    no more than that when the next tile comes during a product."""
    metrics = FpgaSimulator().evaluate(design((1, 1, 1)))
    onchip = Design(
        PROGRAM,
        fold_of((1, 1, 1)),
        dse.Buffering(),
        U280,
        tuple(Directive("place", "top", name, {"memory": "onchip"}) for name in IN_DRAM),
    )
    kept = FpgaSimulator().evaluate(onchip)
    elements = 24 * max(16 * 32 // 8, 32 * 24 // 12) + 16 * 24
    first_and_last = 2 * U280.external.latency_cycles + 2 * 16 * 24
    assert elements <= metrics.latency_cycles - kept.latency_cycles <= elements + first_and_last


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_code_computes_the_product_however_it_is_folded(tmp_path: Path) -> None:
    ways = [(spatial, IN_DRAM, 32) for spatial in SPATIAL] + [((1, 2, 3), ("B",), 64), ((2, 1, 1), IN_DRAM, 64)]
    projects = {f"k{number}": hls_project(design(*way)) for number, way in enumerate(ways)}
    assert "hls::vector<int32_t, 2>" in projects[f"k{len(SPATIAL)}"].hls_code
    batch = Batch(projects, "g++", tmp_path)
    rng = np.random.default_rng(0)
    a, b = rng.integers(-99, 99, (16, 32)).astype(np.int32), rng.integers(-99, 99, (32, 24)).astype(np.int32)
    for name in projects:
        *_, c = batch.run(name, a, b, np.zeros((16, 24), np.int32))
        np.testing.assert_array_equal(c, a @ b)


def test_text_of_the_processes_that_move_tiles(golden: Callable[[str, str], None]) -> None:
    golden("gemm_in_dram.cpp", hls_project(design((1, 2, 1), bits=64)).hls_code)
