"""A folded graph on an NPU: tiles, transport, memory, limits and placement.

    mapping = NpuMapping(vmg, NpuDevice.load("npu1_4col"))
    mapping.violations            # exceeded limits; empty when it fits
    mapping.placement             # PlacedDesign | Infeasible

Everything is computed once, on first use: the check, the evaluator and the exporter of a design share its mapping. Data
shared by a program's mappings is owned by the program's graph (`vmg.graph`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import cast

from allo_dse.common.records import replace
from allo_dse.device.device import Device, NpuDevice
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.violation import Buffering, Violation
from allo_dse.space.design import Design

from .limits import array_violations, core_violations, is_hopeless, movement_violations, tile_deadlock
from .movement.layout_plan import layouts_on
from .movement.links import StreamLinks
from .movement.movement import LayoutPlan, Transport
from .movement.node_memory import NodeMemory, group_memory, own_memory
from .movement.transport import plan_transport
from .movement.view import MappingView
from .place.placed_design import Infeasible, PlacedDesign
from .place.problem import problem_of

PLACE_SECONDS = 120.0
"""Time limit of a placement, unless another one is given: work limits it first, so that load does not decide."""


def _array_of(device: NpuDevice) -> tuple[object, ...]:
    """Return the parts of an NPU that a transport plan depends on: neither the board nor the costs of kernels."""
    return device.array, device.core, device.memory_tile, device.shim, device.interconnect


@dataclass(frozen=True, eq=False)
class NpuMapping:
    """A folded graph on an NPU; immutable.

    Attributes:
        buffering: depths of the ports' object FIFOs.
    """

    vmg: VMG
    device: NpuDevice
    buffering: Buffering = field(default_factory=Buffering)

    @staticmethod
    def of(design: Design) -> NpuMapping:
        """Return the mapping of a design.

        Raises:
            DeviceError: for a design on a device that is not an NPU.
        """
        NpuDevice.of(design.device)
        return cast(NpuMapping, design.mapping)

    def on(self, device: Device) -> NpuMapping:
        """The mapping on another NPU, with the same view of the graph, and the same transport plan where the array is
        the same."""
        moved = replace(self, device=NpuDevice.of(device))
        vars(moved).update(view=self.view)
        if _array_of(moved.device) == _array_of(self.device) and not is_hopeless(self.vmg, self.device):
            vars(moved).update(transport=self.transport)
        return moved

    @cached_property
    def view(self) -> MappingView:
        """Tiles and streams of the nodes."""
        return MappingView(self.vmg)

    @property
    def layouts(self) -> LayoutPlan:
        """Plan of the tensors' layout changes."""
        return layouts_on(self.vmg.graph, self.device)

    @cached_property
    def transport(self) -> Transport:
        """Plan of the tiles' transport over channels."""
        return plan_transport(self.view, self.device, self.buffering)

    @cached_property
    def memory(self) -> tuple[NodeMemory, ...]:
        """Per node group, what the node that needs most holds in its core's data memory."""
        return self._memory(self.view.links) if self.view.needed_depths.depth else self._declared_memory

    @cached_property
    def _declared_memory(self) -> tuple[NodeMemory, ...]:
        return self._memory(self.view.declared_links)

    def _memory(self, links: StreamLinks) -> tuple[NodeMemory, ...]:
        return tuple(group_memory(self.view.groups, links, self.device, self.buffering))

    @property
    def local_memory_bytes(self) -> int:
        """Data memory of the node that needs most, with what the device reserves."""
        return max(memory.total for memory in self.memory)

    @property
    def facts(self) -> dict[str, int]:
        """Metrics that need no evaluator."""
        return {"local_memory_bytes": self.local_memory_bytes}

    @cached_property
    def violations(self) -> tuple[Violation, ...]:
        """All limits of the device that the mapping exceeds; empty when it fits.

        A graph that is hopeless by the numbers (`is_hopeless`) is not looked at any further, and whether tiles hold up
        each other is asked of mappings that keep all other limits.
        """
        found = array_violations(self.vmg, self.device)
        if not is_hopeless(self.vmg, self.device):
            found += self._of_cores
            found += movement_violations(self.view, self.transport, self.device)
        # Designs that are rejected anyway need no execution.
        found += tile_deadlock(self.view, self.transport) if not found else ()
        return tuple(found)

    @property
    def early_violations(self) -> tuple[Violation, ...]:
        """Limits of cores that the mapping exceeds: even with streams as shallow as they are declared, or else
        with those as deep as they need to be.

        They are known without the transport plan, and the former without these depths, which take most of the time of
        `violations`; those have all of them.
        """
        if is_hopeless(self.vmg, self.device):
            return ()
        return self._of_cores_as_declared or self._of_cores

    @cached_property
    def _of_cores_as_declared(self) -> tuple[Violation, ...]:
        return self._core_violations(self.view.declared_links, self._declared_memory)

    @cached_property
    def _of_cores(self) -> tuple[Violation, ...]:
        deeper = self.view.needed_depths.depth
        return self._core_violations(self.view.links, self.memory) if deeper else self._of_cores_as_declared

    def _core_violations(self, links: StreamLinks, memory: Sequence[NodeMemory]) -> tuple[Violation, ...]:
        return tuple(core_violations(self.view, links.between, memory, self.device, self.buffering))

    @cached_property
    def placement(self) -> PlacedDesign | Infeasible:
        """Tiles, routes and channels, or the limits that forbid any."""
        return self.place(PLACE_SECONDS)

    def place(self, time_limit_s: float) -> PlacedDesign | Infeasible:
        """The placement as found within a time limit of the caller's; not kept."""
        from .place.solve import solve, unplaceable

        forbidden = unplaceable(self.violations)
        if forbidden is not None:
            return forbidden
        memories = own_memory(self.view.groups, self.view.links, self.device, self.buffering)
        return solve(problem_of(self.view, self.transport, memories, self.device), time_limit_s=time_limit_s)
