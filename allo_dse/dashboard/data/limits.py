"""Resource limits of a device, and how much of each a design uses."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct

from allo_dse.common.errors import DeviceError

_FPGA = ("bram18", "uram", "dsp", "lut", "ff")


class Use(Struct, frozen=True):
    """A design's use of one limited resource."""

    name: str
    used: float
    limit: float

    @property
    def share(self) -> float:
        return self.used / self.limit if self.limit else 0.0


def uses(device: str, metrics: Mapping[str, Any]) -> list[Use]:
    """The resources of a built-in device that a design's metrics speak of; empty for other devices."""
    limits = _limits(device)
    return [
        Use(name, float(metrics[name]), limit)
        for name, limit in limits.items()
        if isinstance(metrics.get(name), int | float)
    ]


def is_fpga(device: str) -> bool:
    """Return whether a built-in device is an FPGA."""
    return "lut" in _limits(device)


@lru_cache(maxsize=32)
def _limits(name: str) -> dict[str, float]:
    from allo_dse.device.device import Device

    if name not in Device.names():
        return {}
    try:
        device: Any = Device.load(name)
    except DeviceError:
        return {}
    if device.family == "fpga":
        left = {name: float(getattr(device.resources, name) - getattr(device.shell, name)) for name in _FPGA}
        return {name: amount for name, amount in left.items() if amount > 0}
    return {
        "pe_count": float(device.compute_tiles),
        "local_memory_bytes": float(device.core.memory_bytes),
    }
