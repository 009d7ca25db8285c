"""The protocol of backends: everything that depends on the kind of a device.

A backend has no state. `backends.registry` finds it by the `family` of a device; the entry points of the group
`allo_dse.backends` add kinds. docs/add_a_backend.md adds one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import Struct, field

from allo_dse.common.errors import AlloDseError
from allo_dse.compiler.program.compiled import Hopeless
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering, Violation
from allo_dse.space import backend as lower
from allo_dse.space.backend import Maps
from allo_dse.space.choice import Choice

from .evaluator import Evaluator
from .target import Target

if TYPE_CHECKING:
    from allo_dse.device.device import Device


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
        device_model: what device files are read as.
        targets: the tools that can build its designs; the first is taken unless a study names another.
    """

    kind: str
    device_model: type[Device]

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


class Buildable(Struct, frozen=True):
    """A compile-time check that some design of a program can be built by a target for a device.

    It raises `Hopeless` as soon as this is ruled out.

    Attributes:
        buffering: the least that every design has.
    """

    target: Target
    device: Device
    buffering: Buffering

    @property
    def name(self) -> str:
        return self.target.name

    def tasks(self, count: int) -> None:
        most = self.target.most_tasks
        if most is not None and count > most:
            raise Hopeless(f"target {self.name!r} does not build programs of more than {most:,} tasks")

    def ports(self, ports: Sequence[TensorPort]) -> None:
        if excess := backend_of(self.device).task_excess(ports, self.device, self.buffering):
            raise Hopeless(str(excess))

    def program(self, program: Program) -> None:
        for task_class in program.task_classes:
            self.ports(task_class.tensor_ports)
        mapping = backend_of(self.device).map(program.vmg, self.device, self.buffering)
        if refused := self.target.check_program(mapping):
            raise Hopeless(str(refused[0]))


def target(name: str | None, device: Device) -> Target:
    """Return a target of a device by name; by default the first of its backend.

    Raises:
        AlloDseError: for an unknown name, or a target that does not build for the device.
    """
    known = backend_of(device).targets
    if name is None:
        return next(iter(known.values()))
    if name not in known:
        raise AlloDseError(f"there is no target {name!r} for {device.name}", hint=f"targets are {', '.join(known)}")
    return known[name]
