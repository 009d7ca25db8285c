"""NPUs as a kind of device."""

from __future__ import annotations

from collections.abc import Mapping

from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import Device, NpuDevice
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.violation import Buffering
from allo_dse.space.backend import DeviceMapping

from .mapping import NpuMapping


class NpuBackend:
    """Everything that other packages ask of NPUs."""

    kind = "npu"

    def map(
        self,
        vmg: VMG,
        device: Device,
        buffering: Buffering | None = None,
        schedule: tuple[Directive, ...] = (),
        depths: tuple[tuple[str, int], ...] = (),
        slowdown: float | None = None,
    ) -> NpuMapping:
        """Return a folded graph on an NPU, which has neither schedules nor chosen depths."""
        return NpuMapping(vmg, NpuDevice.of(device), buffering or Buffering())

    def built_depths(self, mapping: DeviceMapping) -> Mapping[str, int]:
        """Return the depths without which the nodes wait for each other."""
        assert isinstance(mapping, NpuMapping)
        return mapping.view.needed_depths.depth
