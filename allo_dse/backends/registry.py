"""The kinds of devices, and the backend of each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from allo_dse.common.errors import DeviceError

if TYPE_CHECKING:
    from allo_dse.device.device import Device
    from allo_dse.space.backend import Maps

_BUILT_IN = {
    "npu": "allo_dse.backends.npu.backend:NpuBackend",
    "fpga": "allo_dse.backends.fpga.backend:FpgaBackend",
}
"""Backends of the package, imported when first asked for."""

_loaded: dict[str, Maps] = {}


def backend_for(device: Device) -> Maps:
    """Return the backend of a device.

    Raises:
        DeviceError: for a device of a kind that has none.
    """
    kind = device.family
    if kind not in _loaded:
        if kind not in _BUILT_IN:
            raise DeviceError(f"{device.name}: no backend for devices of family {kind!r}")
        module, _, name = _BUILT_IN[kind].partition(":")
        _loaded[kind] = getattr(importlib.import_module(module), name)()
    return _loaded[kind]
