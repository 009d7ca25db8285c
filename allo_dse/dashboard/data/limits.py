"""Resource limits of a device, and how much of each a design uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from allo_dse.common.errors import DeviceError
from allo_dse.device.device import Device
from allo_dse.eval.backend import backend_of


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
    found = _device(device)
    limits = {} if found is None else backend_of(found).capacity(found)
    return [
        Use(name, float(metrics[name]), limit)
        for name, limit in limits.items()
        if isinstance(metrics.get(name), int | float)
    ]


def project_folder(device: str) -> str:
    """Return the folder of a built-in device's exports that is a project of its own; empty if there is none."""
    found = _device(device)
    return "" if found is None else backend_of(found).project_folder


def _device(name: str) -> Device | None:
    try:
        return Device.load(name) if name in Device.names() else None
    except DeviceError:
        return None
