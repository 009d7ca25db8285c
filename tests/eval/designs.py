"""Designs of the hand-built GEMM for tests of the NPU timing model."""

from __future__ import annotations

from allo_dse.device.device import Device
from allo_dse.mapper.fold.fold import Pattern
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design

from ..support.programs import gemm_program


def gemm_fold(
    k: int = 1, m: int = 4, n: int = 4, pattern: Pattern = "cyclic", order: tuple[int, int] = (1, 2)
) -> MeshFold:
    """Chain along k on `k` nodes per output, outputs bundled onto m x n."""
    axes = (AxisFold(k, "block", "chain"), AxisFold(m, pattern), AxisFold(n, pattern))
    return MeshFold((KernelFold("gemm", axes, order),))


def gemm_design(
    size: tuple[int, int, int] = (512, 512, 512),
    mesh: tuple[int, int, int] = (8, 8, 8),
    fold: MeshFold | None = None,
    *,
    device: Device | None = None,
    buffering: Buffering | None = None,
) -> Design:
    """A GEMM of `size` (m, k, n) as `mesh` (k, m, n) tasks."""
    m, k, n = size
    pk, pm, pn = mesh
    program = Program.of(gemm_program(m, n, k, pm, pn, pk))
    return Design(program, fold or gemm_fold(), buffering or Buffering(), device or Device.load("npu1_4col"))
