"""The part of a backend that spaces and designs need: bounds of folds, mappings on a device, depths of streams.

Backends have no state: designs of one kind share one. `allo_dse` adds those of the package by name, so that no module
below them imports one. `eval.backend` has the rest of the protocol.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, Self

from allo_dse.common.errors import DeviceError
from allo_dse.common.plugins import BACKENDS, plugin

if TYPE_CHECKING:
    from allo_dse.compiler.program.compiled import Directive
    from allo_dse.device.device import Device
    from allo_dse.mapper.fold.fold_space import FoldBounds
    from allo_dse.mapper.fold.vmg import VMG
    from allo_dse.mapper.graph.program_graph import ProgramGraph
    from allo_dse.mapper.violation import Buffering, Violation


class DeviceMapping(Protocol):
    """A folded graph on a device. Everything is computed when first asked for, and once."""

    @property
    def violations(self) -> Sequence[Violation]:
        """All limits of the device that it exceeds; empty when it fits."""

    @property
    def early_violations(self) -> Sequence[Violation]:
        """Violations that are found without the expensive parts of the mapping."""

    @property
    def facts(self) -> Mapping[str, int]:
        """Metrics that need no evaluator, such as `local_memory_bytes`."""

    def on(self, device: Device) -> Self:
        """Return the mapping on another device of its kind, with all results that do not depend on the difference."""


class Maps(Protocol):
    """The part of a backend that designs need."""

    def map(
        self,
        vmg: VMG,
        device: Device,
        buffering: Buffering = ...,
        schedule: tuple[Directive, ...] = (),
        depths: tuple[tuple[str, int], ...] = (),
        slowdown: float | None = None,
    ) -> DeviceMapping:
        """Return a folded graph on a device; arguments as of `Design`."""

    def fold_bounds(self, graph: ProgramGraph, device: Device) -> FoldBounds | None:
        """Return lower bounds of what folds need; None if nothing is known before a fold is built."""
        return None

    def built_depths(self, mapping: DeviceMapping) -> Mapping[str, int]:
        """Return the depths by stream array that a mapping without `depths` is timed and built with.

        Arrays that keep their declared depth may be missing.
        """
        return {}


_known: dict[str, Maps | str] = {}


def add_backend(kind: str, backend: Maps | str) -> None:
    """Add the backend of a kind of device, or its class as "module:class", which is imported on first use."""
    _known[kind] = backend


def backend_of(device: Device) -> Maps:
    """Return the backend of a device.

    Raises:
        DeviceError: for a device of a kind that has none.
    """
    kind = device.family
    found = _known.get(kind) or plugin(BACKENDS, kind)
    if found is None:
        raise DeviceError(
            f"{device.name}: there is no backend for devices of family {kind!r}",
            hint="docs/add_a_backend.md says how to add one",
        )
    if isinstance(found, str):
        module, _, name = found.partition(":")
        found = getattr(importlib.import_module(module), name)
    _known[kind] = backend = found() if isinstance(found, type) else found
    return backend
