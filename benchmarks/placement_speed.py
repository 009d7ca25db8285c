"""How long placement and routing take: under a second for designs of 16 to 32 cores.

    python -m benchmarks.placement_speed

Processor time of `place` on fresh graphs, with the check and the transport plan that it begins with; the solver has one
thread. "wires" are links between stream switches; "shared" are streams between neighbours, in shared memory.
"""

from __future__ import annotations

import sys
import time

from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.place.placed_design import PlacedDesign
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.vmg import VMG
from tests.backends.npu.place.designs import DESIGNS
from tests.backends.npu.place.independent_check import verify_placement
from tests.support.programs import attention_program

LIMIT_S = 1.0


def main() -> int:
    assert NpuMapping(DESIGNS["producer and consumer"][0], NpuDevice.load("npu1_1col")).placement  # imports the solver
    slowest = 0.0
    print(f"{'design':<26} {'device':<10} {'cores':>5} {'ms':>6} {'shared':>6} {'routed':>6} {'wires':>5}")
    for name, (vmg, device_name) in DESIGNS.items():
        fresh = VMG(vmg.graph, vmg.groups, vmg.mesh_fold, vmg.applied, vmg.labels)
        start = time.process_time()
        placed = NpuMapping(fresh, NpuDevice.load(device_name)).placement
        seconds = time.process_time() - start
        assert isinstance(placed, PlacedDesign), f"{name}: {placed}"
        assert verify_placement(placed) == []
        routed = sum(owner is None for owner in placed.owners)
        shared = len(placed.owners) - routed
        row = f"{name:<26} {device_name:<10} {len(placed.tiles):>5} {seconds * 1e3:>6.0f}"
        print(f"{row} {shared:>6} {routed:>6} {placed.link_count:>5}")
        slowest = max(slowest, seconds)
    start = time.process_time()
    found = NpuMapping(VMG.of(attention_program(rows=2, chunks=4)), NpuDevice.load("npu2")).placement
    seconds = time.process_time() - start
    print(f"unfolded attention: {seconds * 1e3:.0f} ms to say why not: {found}")
    print(f"slowest placement {slowest:.2f} s, limit {LIMIT_S:.0f} s")
    return int(slowest > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
