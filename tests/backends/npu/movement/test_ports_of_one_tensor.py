"""Nodes that take tiles of one tensor at several ports: each port is fed, and is timed by its own tiles."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest

from allo_dse.backends.npu.evaluator import NpuBounds, NpuSimulator
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.place.placed_design import PlacedDesign
from allo_dse.compiler.program.compiled import CompiledProgram, TileOp
from allo_dse.compiler.program.tensors import Tensor
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold_space import fold_choices
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design
from tests.support.programs import INT16, one_class_kernel, sharded

from ..place.independent_check import verify_placement

NPU = NpuDevice.load("npu1_4col")
N = 64
A, C, D = (Tensor(name, INT16, (N, N)) for name in "ACD")


def square(p: int = 4) -> CompiledProgram:
    """C = A @ A': a task takes two rows of tiles of A, and on the diagonal one of them twice."""
    ports = [sharded(0, A, (p, p), (0, None), reads=True), sharded(1, A, (p, p), (1, None), reads=True)]
    ports.append(sharded(2, C, (p, p), (0, 1), writes=True))
    work = (TileOp("matmul", (N // p, N, N // p), (INT16, INT16, INT16)),)
    return CompiledProgram("square", (A, C), (), (one_class_kernel("core", (p, p), (A, A, C), ports, (), work),))


def twice(p: int = 4) -> CompiledProgram:
    """C = A + A: both ports take the same tiles, and are one."""
    ports = [sharded(arg, A, (p,), (0, None), reads=True) for arg in (0, 1)]
    ports.append(sharded(2, C, (p,), (0, None), writes=True))
    work = (TileOp("add", (N // p, N), (INT16, INT16, INT16)),)
    return CompiledProgram("twice", (A, C), (), (one_class_kernel("core", (p,), (A, A, C), ports, (), work),))


def halves_and_quarters() -> CompiledProgram:
    """Two kernels that may share a node cut A into two and into four tiles."""
    kernels = []
    for name, p, tensor in (("quarters", 4, C), ("halves", 2, D)):
        ports = [sharded(0, A, (p,), (0, None), reads=True), sharded(1, tensor, (p,), (0, None), writes=True)]
        work = (TileOp("add", (N // p, N), (INT16, INT16)),)
        kernels.append(one_class_kernel(name, (p,), (A, tensor), ports, (), work))
    return CompiledProgram("halves_and_quarters", (A, C, D), (), tuple(kernels))


@pytest.mark.parametrize("compiled", [square(), twice(), halves_and_quarters()], ids=lambda p: p.name)
def test_every_port_of_every_node_is_fed(compiled: CompiledProgram) -> None:
    program, fitting = Program.of(compiled), 0
    for fold in itertools.islice(fold_choices(program), 100):
        design = Design(program, fold, Buffering(), NPU)
        mapping = NpuMapping.of(design)
        transport = mapping.transport
        fed = Counter(end for flow in transport.flows for end in zip(flow.nodes, flow.ports, strict=True))
        held = Counter(
            (g.first_node + n, k) for g in mapping.view.groups for n in range(g.group.count) for k in g.users
        )
        assert fed == held
        if mapping.violations:
            continue
        fitting += 1
        metrics = NpuSimulator().evaluate(design)
        assert metrics.dram_bytes == transport.dram_bytes
        for level in range(3):
            for name, (least, most) in NpuBounds()(design, level).items():
                assert least * (1 - 1e-9) <= metrics[name] <= most * (1 + 1e-9)
        if isinstance(placed := mapping.placement, PlacedDesign):
            assert not verify_placement(placed)
            assert PlacedDesign.from_dict(placed.to_dict()) == placed
    assert fitting > 3
