"""FPGAs as a kind of device."""

from __future__ import annotations

from collections.abc import Mapping

from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import Device, FpgaDevice
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.violation import Buffering
from allo_dse.space.backend import DeviceMapping

from .mapping import FpgaMapping


class FpgaBackend:
    """Everything that other packages ask of FPGAs."""

    kind = "fpga"

    def map(
        self,
        vmg: VMG,
        device: Device,
        buffering: Buffering | None = None,
        schedule: tuple[Directive, ...] = (),
        depths: tuple[tuple[str, int], ...] = (),
        slowdown: float | None = None,
    ) -> FpgaMapping:
        """Return a folded graph on an FPGA, where tensors have no object FIFOs."""
        return FpgaMapping(vmg, FpgaDevice.of(device), schedule, dict(depths), slowdown)

    def built_depths(self, mapping: DeviceMapping) -> Mapping[str, int]:
        """Return the smallest depths that cost no time, or no more than the design allows."""
        from .depths.depths import decided_depths  # with compiled kernels, which few runs need

        assert isinstance(mapping, FpgaMapping)
        return decided_depths(mapping, "solve")
