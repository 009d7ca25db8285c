"""Stream depths of built FPGA designs: those that a design sets, or the smallest that cost no time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Literal

from allo_dse.common.errors import SimulationError

from ..bounds import SMALLEST_DEPTH
from ..mapping import FpgaMapping
from .solver import solve_depths

if TYPE_CHECKING:
    from allo_dse.simulator.depths.front import DepthFront


def _front(mapping: FpgaMapping) -> DepthFront:
    from .front import design_depth_front  # with compiled kernels, which few runs need

    return design_depth_front(mapping)


def known_depths(
    mapping: FpgaMapping,
    how: Literal["solve", "declared"],
    front_of: Callable[[FpgaMapping], DepthFront] = _front,
) -> Mapping[str, int] | None:
    """Return the depths by array that a design sets, or those of least memory within its allowed slowdown.

    None for the smallest that cost no time.
    """
    if mapping.depths or how == "declared":
        return dict(mapping.depths or {})
    if mapping.slowdown is None or not mapping.fifos:
        return None
    least = dict.fromkeys((stream.name for stream in mapping.vmg.program.streams), SMALLEST_DEPTH)
    return least | dict(front_of(mapping).within(mapping.slowdown).depths)


def decided_depths(mapping: FpgaMapping, how: Literal["solve", "declared"]) -> dict[str, int]:
    """Stream depths of an FPGA design by array, where they differ from the declared ones.

    Args:
        how: where the design does not say, "solve" for the smallest depths that cost no time in the simulator, or no
            more than the design allows (if its control does not depend on data), "declared" for those of the program.
    """
    try:
        known = known_depths(mapping, how)
        return solve_depths(mapping)[0] if known is None else dict(known)
    except SimulationError:
        return {}
