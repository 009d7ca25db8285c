"""Tasks of one class whose loops run more or less often by their pid: each is priced by what it does itself."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse import AxisFold, Buffering, Design, KernelFold, MeshFold, load_program
from allo_dse.backends.npu.costs import TICKS_PER_CYCLE
from allo_dse.backends.npu.evaluator import NpuSimulator
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.network import build_npu_network
from allo_dse.device.device import NpuDevice
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import Pattern
from allo_dse.mapper.program import Program

from .test_bounds import assert_bounded

install()

import allo.dataflow as df
from allo.ir.types import float32
from allo.memory import Layout

S = Layout.Shard
DEVICE = NpuDevice.load("npu2")
LOOP = DEVICE.scalar_loop
ROWS, SIZE = 8, 16


def triangle(P=ROWS, B=2, N=SIZE):
    """Row r of every batch adds r + 1 numbers `N` times over."""

    @df.region()
    def top(X: float32[B * 4, P * N], Y: float32[B * 4, P * N]):
        @df.kernel(mapping=[B, P], args=[X, Y])
        def core(x: float32[B * 4, P * N] @ [S(0), S(1)], y: float32[B * 4, P * N] @ [S(0), S(1)]):
            _, row = df.get_pid()
            for i in range(N):
                y[0, i] = x[0, i]
            for _ in range(row + 1):
                for j in range(N):
                    y[0, j] = y[0, j] + x[1, j]

    return top


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(triangle)


def _design(program: Program, batches: int, rows: int, pattern: Pattern, order: tuple[int, ...]) -> Design:
    fold = MeshFold((KernelFold("core", (AxisFold(batches), AxisFold(rows, pattern)), order),))
    return Design(program, fold.normalised(program.vmg.graph), Buffering(), DEVICE)


def test_classes_are_apart_by_work_only_where_it_is_asked(program: Program) -> None:
    (kernel,) = program.kernels
    assert len(kernel.classes) == 1
    by_work, table = kernel.by_work
    assert [[op.count for op in cls.work] for cls in by_work] == [[SIZE, SIZE * (r + 1)] for r in range(ROWS)]
    assert table.tolist() == [list(range(ROWS))]


@settings(max_examples=30, deadline=None)
@given(
    batches=st.sampled_from([1, 2]),
    rows=st.sampled_from([1, 2, 4, 8]),
    pattern=st.sampled_from(["cyclic", "block"]),
    order=st.sampled_from([(0, 1), (1, 0)]),
)
def test_every_core_computes_what_its_own_tasks_do(
    batches: int, rows: int, pattern: Pattern, order: tuple[int, ...], program: Program
) -> None:
    design = _design(program, batches, rows, pattern, order)
    view, transport = NpuMapping.of(design).view, NpuMapping.of(design).transport
    periods = view.periods[0].periods
    network = build_npu_network(view.periods, view.channels, transport, DEVICE, periods)
    found = np.array(network.core_ticks).reshape(batches, rows) * periods
    tasks = np.arange(ROWS).reshape((ROWS // rows, rows) if pattern == "cyclic" else (rows, ROWS // rows))
    own = (tasks if pattern == "block" else tasks.T) + 2  # one loop to copy, and one for each row up to its own
    cycles = (own * SIZE * LOOP.cycles_per_iteration + LOOP.task_cycles).sum(axis=1) * (2 // batches)
    assert found == pytest.approx(np.tile(cycles * TICKS_PER_CYCLE, (batches, 1)))
    assert_bounded(design, NpuSimulator().bounding())
