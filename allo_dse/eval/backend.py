"""The protocol of backends: everything that depends on the kind of a device.

A backend has no state. `backends.registry` finds it by the `family` of a device; the entry points of the group
`allo_dse.backends` add kinds. docs/add_a_backend.md adds one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Struct, field

from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.mapper.violation import Buffering, Violation
from allo_dse.space import backend as lower
from allo_dse.space.backend import Maps
from allo_dse.space.choice import Choice

from .evaluator import Evaluator

if TYPE_CHECKING:
    from allo_dse.device.device import Device

    from .target import Target


class Asked(Struct, frozen=True):
    """The choices beside parameters and folds that a study asks for; see `Study`."""

    output_depths: Sequence[int] = (1, 2)
    schedules: Any = ()
    kernels: Sequence[str] = ()


class Choices(Struct, frozen=True):
    """Choices beside parameters and folds.

    Attributes:
        before, after: those that are made before the fold, and after it.
        buffering: the least that every design has.
    """

    before: Sequence[Choice] = ()
    after: Sequence[Choice] = ()
    buffering: Buffering = field(default_factory=Buffering)


class Backend(Maps, Protocol):
    """Everything that depends on the kind of a device.

    Attributes:
        kind: the `family` of its device files.
        targets: the tools that can build its designs; the first is taken unless a study names another.
    """

    kind: str

    @property
    def targets(self) -> Mapping[str, Target]: ...

    def choices(self, asked: Asked, target: Target, device: Device) -> Choices:
        """Return what may vary beside parameters and folds.

        Raises:
            StudyError: for choices that the device does not have.
        """

    def task_excess(self, ports: Sequence[TensorPort], device: Device, buffering: Buffering) -> Violation | None:
        """Return the limit that the tensor ports of a single task exceed on any node; None if they may fit."""

    def evaluator(self, device: Device) -> Evaluator:
        """Return the evaluator of a study that names none."""


def backend_of(device: Device) -> Backend:
    """Return the backend of a device.

    Raises:
        DeviceError: for a device of a kind that has none.
    """
    return cast(Backend, lower.backend_of(device))
