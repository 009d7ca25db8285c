"""HLS projects of designs and of folded graphs.

hls_project(design).write("best/hls")
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from allo_dse.backends.hls import Folding, HlsProject, emit_project
from allo_dse.device.device import FpgaDevice
from allo_dse.errors import SimulationError
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.space.design import Design

from ..fpga.evaluator import solve_depths
from ..program.stream_wiring import wiring_of


def folding_of(vmg: VMG, depths: Mapping[str, int] | None = None) -> Folding | None:
    """Which tasks of a graph share a process; None where each has its own.

    Raises:
        SimulationError: for a stream that the program does not have, or a depth below 1.
    """
    if vmg.node_count == vmg.task_count:
        return None
    wiring = wiring_of(vmg, depths or {})
    nodes = tuple(tuple(row) for group in vmg.groups for row in group.leaves.tasks().tolist())
    return Folding(nodes, tuple(wiring.fifo.tolist()), tuple(wiring.depth.tolist()))


def decided_depths(design: Design, how: Literal["solve", "declared"]) -> dict[str, int]:
    """Stream depths of an FPGA design by array, where they differ from the declared ones.

    Args:
        how: where the design does not say, "solve" for the smallest depths that cost no time in the simulator (if its
            control does not depend on data), "declared" for those of the program.
    """
    depths = dict(design.depths)
    if how == "declared" or depths:
        return depths
    try:
        return solve_depths(design.mapping.fpga)[0]
    except SimulationError:
        return depths


def hls_project(design: Design, depths: Mapping[str, int] | None = None) -> HlsProject:
    """The HLS project of a design: its schedule, stream depths and folds, for its device.

    Args:
        depths: of streams by name, where they differ from the design's.
    """
    own = {**dict(design.depths), **(depths or {})}
    device = design.device if isinstance(design.device, FpgaDevice) else None
    return emit_project(
        design.program,
        schedule=design.schedule,
        depths=own,
        device=device,
        folding=folding_of(design.vmg, own),
    )
