"""The kinds of devices, and the backend of each."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from allo_dse.common.errors import DeviceError
from allo_dse.common.plugins import BACKENDS, plugin
from allo_dse.device.device import FAMILIES

if TYPE_CHECKING:
    from allo_dse.device.device import Device
    from allo_dse.eval.backend import Backend

_BUILT_IN = {
    "npu": "allo_dse.backends.npu.backend:NpuBackend",
    "fpga": "allo_dse.backends.fpga.backend:FpgaBackend",
}
"""Backends of the package, imported when first asked for."""

_loaded: dict[str, Backend] = {}


def register_backend(backend: Backend) -> None:
    """Add a kind of device, as an entry point of the group `allo_dse.backends` does for installed packages."""
    _loaded[backend.kind] = backend
    FAMILIES[backend.kind] = backend.device_model


def backend_for(device: Device) -> Backend:
    """Return the backend of a device.

    Raises:
        DeviceError: for a device of a kind that has none.
    """
    kind = device.family
    if kind not in _loaded:
        if kind in _BUILT_IN:
            module, _, name = _BUILT_IN[kind].partition(":")
            _loaded[kind] = getattr(importlib.import_module(module), name)()
        elif (found := plugin(BACKENDS, kind)) is not None:
            _loaded[kind] = found()
        else:
            raise DeviceError(
                f"{device.name}: there is no backend for devices of family {kind!r}",
                hint="docs/add_a_backend.md says how to add one",
            )
    return _loaded[kind]
