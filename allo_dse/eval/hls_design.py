"""HLS projects of designs and of folded graphs.

hls_project(design).write("best/hls")
"""

from __future__ import annotations

from collections.abc import Mapping

from ..backends.device import FpgaDevice
from ..backends.hls import Folding, HlsProject, emit_project
from ..mapper.vmg import VMG
from ..space.design import Design
from .simulator.wiring import wiring_of


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
