"""The protocol of backends: everything that depends on the kind of a device.

A backend has no state, and is found by the `family` of a device. `register_backend` and the entry points of the group
`allo_dse.backends` add kinds; docs/add_a_backend.md adds one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from msgspec import field

from allo_dse.common.errors import AlloDseError, SimulationError, StudyError
from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram, Hopeless
from allo_dse.device.device import FAMILIES, Device
from allo_dse.mapper.violation import Buffering, Violation
from allo_dse.space import backend as lower
from allo_dse.space.backend import Maps

from .launches import Launches
from .target import MODEL, Target

if TYPE_CHECKING:
    from allo_dse.common.records import JsonObject
    from allo_dse.compiler.program.tensors import TensorPort
    from allo_dse.mapper.program import Program
    from allo_dse.space.choice import Choice
    from allo_dse.space.design import Design

    from .evaluator import Evaluator
    from .execute.observation import InputSets
    from .inputs import Smaller
    from .parameters import Tunable
    from .recording import Recorded


class Asked(Frozen):
    """The choices beside parameters and folds that a study asks for; see `Study`."""

    output_depths: Sequence[int] = (1, 2)
    schedules: Any = None
    kernels: Sequence[str] = ()


class Choices(Frozen):
    """Choices beside parameters and folds.

    Attributes:
        before, after: made before the fold, and after it.
        buffering: the least of any design.
    """

    before: Sequence[Choice] = ()
    after: Sequence[Choice] = ()
    buffering: Buffering = field(default_factory=Buffering)


Reference = Callable[..., Any]
Files = dict[str, str | bytes]
"""Contents by path within a folder."""


class Sources(Frozen):
    """Facts that an export has beside the design.

    Attributes:
        reference: computes the expected results from the inputs, with NumPy.
        verify_with: as for `verify_design`; tolerances of large programs come from that instance.
        metrics: of the evaluated design; None if it was not evaluated.
        inputs: returns the study's sets of inputs for a program, the one that decides the latency first.
    """

    reference: Reference | None = None
    verify_with: Smaller | None = None
    metrics: Mapping[str, Any] | None = None
    inputs: InputSets | None = None


class Artifacts(Frozen):
    """Files from which the tools of a device build a design.

    Attributes:
        facts: entries of `design.json`.
        notes: sentences for `explanation.txt`.
    """

    files: Files
    facts: JsonObject = field(default_factory=dict)
    notes: tuple[str, ...] = ()


class Words(Frozen):
    """A design in words, beside its fold.

    Attributes:
        node: the noun for a node: "core", "processing element".
        parts: phrases that describe the design.
        caveats: sentences on the limits of its metrics.
    """

    node: str = "node"
    parts: tuple[str, ...] = ()
    caveats: tuple[str, ...] = ()


class Placement(Protocol):
    """Places of a design's nodes on a device, or the reasons why there are none."""

    @property
    def placed(self) -> bool: ...

    @property
    def proven(self) -> bool:
        """True unless another attempt may find other places."""

    def to_dict(self) -> JsonObject:
        """Return plain data; `Backend.placement_from_dict` is the inverse."""

    def drawn(self) -> str:
        """Return a picture as SVG; empty if nothing is placed."""

    def table(self) -> list[list[str]]:
        """Return what each place uses, in rows; the first has the headings."""

    def memory_of(self, nodes: Sequence[int]) -> str:
        """Return the memory in use where some nodes are, in words."""


class Backend(Maps, Protocol):
    """Everything that depends on the kind of a device. Classes that inherit from it define what they need.

    Attributes:
        kind: the `family` of its device files.
        device_model: the model of these files.
        has_places: True if nodes have places on the device, which `place` finds.
        reads_reports: True if its numbers are calibrated from reports of its tools rather than from latencies.
        times_control: True if its times depend on each decision of a task's control.
        project_folder: the folder among its artifacts that is a project of its own, such as "hls"; empty for none.
        targets: the tools that can build its designs; the first is the default.
    """

    kind: str
    device_model: type[Device]
    has_places: bool = False
    project_folder: str = ""
    reads_reports: bool = False
    times_control: bool = False
    targets: Mapping[str, Target] = {MODEL.name: MODEL}

    def choices(self, asked: Asked, target: Target, device: Device) -> Choices:
        """Return the choices beside parameters and folds.

        Raises:
            StudyError: for choices that the device does not have.
        """
        for name in ("schedules", "kernels"):
            if getattr(asked, name):
                raise StudyError(f"{name}: {device.name} has no choice of them")
        return Choices()

    def task_excess(self, ports: Sequence[TensorPort], device: Device, buffering: Buffering) -> Violation | None:
        """Return the limit that the tensor ports of a single task exceed on any node; None if they may fit."""
        return None

    def rewrite(self, violation: Violation, program: CompiledProgram, device: Device) -> str:
        """Return how to rewrite a program whose designs all exceed a limit; empty if nothing is known."""
        return ""

    def evaluator(self, device: Device) -> Evaluator:
        """Return the evaluator of a study that names none."""

    def launches(self, device: Device) -> Launches:
        """Return the properties of a device that networks depend on."""
        return Launches(device)

    def tunable(self, device: Device) -> Tunable | None:
        """Return the numbers that measured latencies can be fitted to; None if there are none."""
        return None

    def words(self, design: Design, metrics: Mapping[str, Any]) -> Words:
        """Return the description of a design beside its fold."""
        return Words()

    def advice(self, asked: Asked, program: Program) -> str:
        """Return a hint to users about choices that a study leaves out; empty if there is none."""
        return ""

    def capacity(self, device: Device) -> Mapping[str, float]:
        """Return the device's amount of each resource, by the metric that counts it."""
        return {}

    def record(self, design: Design, metrics: Mapping[str, Any]) -> Recorded:
        """Run a design so that any part of the run can be looked at.

        Args:
            metrics: of the design as it was evaluated.

        Raises:
            AlloDseError: if it cannot be simulated.
        """
        raise SimulationError(f"runs on {design.device.name} are not recorded")

    def loops(self, design: Design) -> list[JsonObject]:
        """Return the pipelined loops of a design, in the order of its tasks: "task", "loop", "trips", "ii", "depth",
        "cycles", "times" and "limit", which is what the interval comes from. Empty if the device has none.

        Raises:
            AlloDseError: where control depends on data.
        """
        return []

    def place(self, mapping: Any, seconds: float | None = None) -> Placement | None:
        """Return the places of a mapping's nodes, within a time limit if one is given; None if nodes have none."""
        return None

    def placement_from_dict(self, data: Mapping[str, Any]) -> Placement:
        """Return a placement from plain data."""
        raise AlloDseError(f"devices of family {self.kind!r} have no places")

    def artifacts(self, design: Design, sources: Sources) -> Artifacts:
        """Return the files from which the device's tools build a design, with notes on them."""
        return Artifacts({})


def register_backend(backend: Backend) -> None:
    """Add a kind of device, as an entry point of the group `allo_dse.backends` does for installed packages."""
    lower.add_backend(backend.kind, backend)
    FAMILIES[backend.kind] = backend.device_model


def backend_of(device: Device) -> Backend:
    """Return the backend of a device.

    Raises:
        DeviceError: for a device of a kind that has none.
    """
    return cast(Backend, lower.backend_of(device))


def with_rewrite(violation: Violation, program: CompiledProgram, device: Device) -> str:
    """Return a violation in words, with advice on how to rewrite the program."""
    found = backend_of(device).rewrite(violation, program, device)
    return f"{violation}: {found}" if found else str(violation)


class Buildable(Frozen):
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
        if found := self._obstacles(program):
            raise Hopeless(str(found[0]))

    def rewrites(self, program: Program) -> list[str]:
        """Return the limits and rules that a program breaks under any fold, each with advice on a rewrite."""
        return [with_rewrite(violation, program, self.device) for violation in self._obstacles(program)]

    def _obstacles(self, program: Program) -> list[Violation]:
        backend = backend_of(self.device)
        excess = (backend.task_excess(cls.tensor_ports, self.device, self.buffering) for cls in program.task_classes)
        mapping = backend.map(program.vmg, self.device, self.buffering)
        return list(dict.fromkeys([*filter(None, excess), *self.target.check_program(mapping)]))


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
