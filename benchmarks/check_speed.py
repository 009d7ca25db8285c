"""How long device checks take: well under a millisecond per design, whatever the number of tasks.

    python -m benchmarks.check_speed

Times `NpuMapping.violations` including the transport plan, on fresh graphs, for GEMMs of 2048^3
folded onto 4 x 4 cores. "first" is the first check of a program, "next" that of another fold of it.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable

from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.vmg import VMG
from tests.support.programs import gemm_program

LIMIT_US = 500
EXPLICIT_LIMIT_US = 100_000


def gemm_fold(k: int, m: int, n: int) -> MeshFold:
    axes = (AxisFold(k, "block", "chain"), AxisFold(m, "cyclic"), AxisFold(n, "cyclic"))
    return MeshFold((KernelFold("gemm", axes),))


def median_us(make: Callable[[], VMG], device: NpuDevice, repetitions: int) -> float:
    """Median time of a check in microseconds; making the graph is not counted."""
    times = []
    for _ in range(repetitions):
        vmg = make()
        start = time.perf_counter()
        assert NpuMapping(vmg, device).violations is not None
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1e6


def main() -> int:
    device = NpuDevice.load("npu1_4col")
    failed = False
    print(f"{'mapping':<44} {'tasks':>9} {'first us':>9} {'next us':>9}")
    for tiles, spatial in ((32, (1, 4, 4)), (128, (1, 4, 4)), (32, (2, 4, 2)), (128, (2, 4, 2))):
        size = 2048 // tiles
        fold = gemm_fold(*spatial)
        first = median_us(lambda p=tiles, f=fold: VMG.of(gemm_program(Pm=p, Pn=p, Pk=p)).fold(f), device, 20)  # type: ignore[misc]
        unfolded = VMG.of(gemm_program(Pm=tiles, Pn=tiles, Pk=tiles))
        gc.collect()
        again = median_us(lambda u=unfolded, f=fold: u.fold(f), device, 200)  # type: ignore[misc]
        name = f"{size}^3 tiles, k x m x n = {' x '.join(map(str, spatial))} nodes"
        print(f"{name:<44} {unfolded.task_count:>9,} {first:>9.0f} {again:>9.0f}")
        failed |= spatial[0] == 1 and again > LIMIT_US
    unfolded = VMG.of(gemm_program())
    primitives = unfolded.fold(gemm_fold(1, 4, 4)).mapping_primitives
    explicit = median_us(lambda: unfolded.apply(primitives), device, 3)
    print(f"{'64^3 tiles, folded node by node':<44} {unfolded.task_count:>9,} {'':>9} {explicit:>9.0f}")
    failed |= explicit > EXPLICIT_LIMIT_US
    print(f"limits: {LIMIT_US} us for folds onto 16 nodes, {EXPLICIT_LIMIT_US:,} us node by node")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
