"""A mapping on a device: the only state between a folded graph and a design, which owns all derived data.

    mapping = DeviceMapping(vmg, Device.load("npu1_4col"))
    mapping.violations            # exceeded limits; empty when it fits
    mapping.placement             # PlacedDesign | Infeasible

Everything is computed once, on first use: the check, the evaluator and the exporter of a design share its mapping. Data
shared by a program's mappings is owned by the program's graph (`vmg.graph`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import Directive
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.device.device import Device, FpgaDevice, NpuDevice
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.violation import Buffering, Violation

from .limits import array_violations, core_violations, is_hopeless, movement_violations, stream_deadlock, tile_deadlock
from .movement.layout_plan import layouts_on
from .movement.links import StreamLinks
from .movement.movement import LayoutPlan, Transport
from .movement.node_memory import NodeMemory, group_memory, own_memory
from .movement.strided import read_as_it_lies
from .movement.token_exchange import exchange_depths
from .movement.transport import plan_transport
from .movement.view import MappingView
from .place.placed_design import Infeasible, PlacedDesign
from .place.problem import problem_of

if TYPE_CHECKING:
    from ..fpga.mapping import FpgaCosts

PLACE_SECONDS = 120.0
"""Time limit of a placement, unless another one is given: work limits it first, so that load does not decide."""


def _array_of(device: Device) -> tuple[object, ...] | None:
    """Return the parts of an NPU that a transport plan depends on; None for other devices.

    Neither the board nor the costs of kernels matter.
    """
    if not isinstance(device, NpuDevice):
        return None
    return device.array, device.core, device.memory_tile, device.shim, device.interconnect


@dataclass(frozen=True, eq=False)
class DeviceMapping:
    """A folded graph on a device; immutable.

    Attributes:
        buffering: depths of the ports' object FIFOs; NPU only.
        schedule: directives beside those of the program; FPGA only.
        depths: stream depths by array name, where they differ from the declared ones; FPGA only.
    """

    vmg: VMG
    device: Device
    buffering: Buffering = field(default_factory=Buffering)
    schedule: tuple[Directive, ...] = ()
    depths: Mapping[str, int] = field(default_factory=dict)

    def on(self, device: Device) -> DeviceMapping:
        """The mapping on another device of its kind, with the same view of the graph, and the same transport plan where
        the array is the same."""
        moved = replace(self, device=device)
        vars(moved).update(view=self.view)
        array = _array_of(device)
        if array is not None and array == _array_of(self.device) and not is_hopeless(self.vmg, self.npu):
            vars(moved).update(transport=self.transport)
        return moved

    @property
    def npu(self) -> NpuDevice:
        """The device.

        Raises:
            DeviceError: for a device that is not an NPU; so do all properties that speak of its array.
        """
        return NpuDevice.of(self.device)

    @cached_property
    def view(self) -> MappingView:
        """Tiles and streams of the nodes."""
        return MappingView(self.vmg)

    @property
    def layouts(self) -> LayoutPlan:
        """Plan of the tensors' layout changes; empty on a device without an array."""
        return layouts_on(self.vmg.graph, self.device) if isinstance(self.device, NpuDevice) else LayoutPlan(())

    @cached_property
    def transport(self) -> Transport:
        """Plan of the tiles' transport over channels."""
        return plan_transport(self.view, self.npu, self.buffering)

    def reading(self, orders: Mapping[str, IntArray]) -> Transport | str:
        """The same for tensors that lie in DRAM in another order, or why there is none; see `read_as_it_lies`."""
        return read_as_it_lies(self.transport, self.view, self.npu.shim.descriptor, self.buffering, orders)

    @cached_property
    def memory(self) -> tuple[NodeMemory, ...]:
        """Per node group, what the node that needs most holds in its core's data memory."""
        return self._memory(self.view.links) if self.view.needed_depths.depth else self._declared_memory

    @cached_property
    def _declared_memory(self) -> tuple[NodeMemory, ...]:
        return self._memory(self.view.declared_links)

    def _memory(self, links: StreamLinks) -> tuple[NodeMemory, ...]:
        return tuple(group_memory(self.view.groups, links, self.npu, self.buffering))

    @property
    def local_memory_bytes(self) -> int:
        """Data memory of the node that needs most, with what the device reserves."""
        return max(memory.total for memory in self.memory)

    @cached_property
    def fpga(self) -> FpgaCosts:
        """Costs and resources on an FPGA.

        Raises:
            DeviceError: for a device that is not an FPGA.
        """
        from ..fpga.mapping import FpgaCosts  # and a cost model that NPUs do without

        return FpgaCosts(self.vmg, FpgaDevice.of(self.device), self.schedule, self.depths)

    @cached_property
    def violations(self) -> tuple[Violation, ...]:
        """All limits of the device that the mapping exceeds; empty when it fits.

        A graph that is hopeless by the numbers (`is_hopeless`) is not looked at any further, and whether tiles hold up
        each other is asked of mappings that keep all other limits.
        """
        if isinstance(self.device, FpgaDevice):
            from ..fpga.mapping import fpga_violations

            found = fpga_violations(self.fpga)
            # Designs that are rejected anyway need no execution.
            found += stream_deadlock(exchange_depths(self.vmg)) if not found else ()
            return tuple(found)
        found = array_violations(self.vmg, self.npu)
        if not is_hopeless(self.vmg, self.npu):
            found += self._of_cores
            found += movement_violations(self.view, self.transport, self.npu)
        # Designs that are rejected anyway need no execution.
        found += tile_deadlock(self.view, self.transport) if not found else ()
        return tuple(found)

    @property
    def core_violations(self) -> tuple[Violation, ...]:
        """Limits of an NPU's cores that the mapping exceeds: even with streams as shallow as they are declared, or else
        with those as deep as they need to be.

        They are known without the transport plan, and the former without these depths, which take most of the time of
        `violations`; those have all of them.
        """
        if isinstance(self.device, FpgaDevice) or is_hopeless(self.vmg, self.npu):
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
        return tuple(core_violations(self.view, links.between, memory, self.npu, self.buffering))

    @cached_property
    def placement(self) -> PlacedDesign | Infeasible:
        """Tiles, routes and channels, or the limits that forbid any."""
        return self.place(PLACE_SECONDS)

    def place(self, time_limit_s: float) -> PlacedDesign | Infeasible:
        """The placement as found within a time limit of the caller's; not kept.

        Raises:
            DeviceError: for a device that is not an NPU.
        """
        from .place.solve import solve, unplaceable

        npu = self.npu
        forbidden = unplaceable(self.violations)
        if forbidden is not None:
            return forbidden
        memories = own_memory(self.view.groups, self.view.links, npu, self.buffering)
        return solve(problem_of(self.view, self.transport, memories, npu), time_limit_s=time_limit_s)
