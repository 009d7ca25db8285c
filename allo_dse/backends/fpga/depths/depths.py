"""Stream depths of built FPGA designs: those that a design sets, or the smallest that cost no time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from allo_dse.common.errors import SimulationError
from allo_dse.common.records import keep, replace
from allo_dse.device.device import FpgaDevice
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program
from allo_dse.space.design import Design

from ..bounds import SMALLEST_DEPTH
from .solver import solve_depths

if TYPE_CHECKING:
    from allo_dse.simulator.depths.front import DepthFront

_FRONTS_KEPT = 16


def known_depths(
    design: Design, how: Literal["solve", "declared"], fronts: dict[str, DepthFront]
) -> Mapping[str, int] | None:
    """Return the depths by array that a design sets, or those of least memory within its allowed slowdown.

    None for the smallest that cost no time.
    """
    mapping = design.mapping.fpga
    if design.depths or how == "declared":
        return dict(design.depths)
    if design.slowdown is None or not mapping.fifos:
        return None
    from .front import design_depth_front  # with compiled kernels, which few runs need

    key = replace(design, slowdown=None).key
    found = fronts.pop(key) if key in fronts else design_depth_front(mapping)
    front = keep(fronts, key, found, _FRONTS_KEPT)
    least = dict.fromkeys((stream.name for stream in mapping.vmg.program.streams), SMALLEST_DEPTH)
    return least | dict(front.within(design.slowdown).depths)


def decided_depths(design: Design, how: Literal["solve", "declared"]) -> dict[str, int]:
    """Stream depths of an FPGA design by array, where they differ from the declared ones.

    Args:
        how: where the design does not say, "solve" for the smallest depths that cost no time in the simulator, or no
            more than the design allows (if its control does not depend on data), "declared" for those of the program.
    """
    try:
        known = known_depths(design, how, {})
        return solve_depths(design.mapping.fpga)[0] if known is None else dict(known)
    except SimulationError:
        return {}


def as_built(design: Design) -> Design:
    """A design with the stream depths that it is evaluated and built with."""
    if design.depths:
        return design
    on_fpga = isinstance(design.device, FpgaDevice)
    found = decided_depths(design, "solve") if on_fpga else design.mapping.view.needed_depths.depth
    return replace(design, depths=tuple(sorted(found.items()))) if found or on_fpga else design


def built_depths(program: Program | VMG | Design, changes: Mapping[str, int] | None) -> dict[str, int]:
    """The stream depths that a design is built with, and those that a call gives."""
    own = dict(as_built(program).depths) if isinstance(program, Design) else {}
    return {**own, **(changes or {})}
