"""NPUs as a kind of device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import CompiledProgram, Directive
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.device.device import Device, NpuDevice
from allo_dse.eval.backend import Artifacts, Asked, Backend, Choices, Sources, Words
from allo_dse.eval.evaluator import Evaluator
from allo_dse.eval.launches import Launches
from allo_dse.eval.parameters import Tunable
from allo_dse.eval.target import MODEL, Target
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.violation import Buffering, Violation
from allo_dse.space.backend import DeviceMapping
from allo_dse.space.choice import Ask, Choice, Question, QuestionChoice
from allo_dse.space.choices.shared import OutputDepth
from allo_dse.space.design import Design, Draft

from .advice import rewrite
from .allo.rules import crowded_program
from .allo.target import ALLO
from .evaluator import NpuSimulator, overdue
from .fold_bounds import NpuFoldBounds, task_excess
from .mapping import NpuMapping
from .movement.layout_plan import layouts_on
from .place.placed_design import Infeasible, PlacedDesign, placement_from_dict

if TYPE_CHECKING:
    from allo_dse.eval.recording import Recorded


class KernelLibrary(QuestionChoice):
    """Choice of the kernel library for matrix multiplications. Gene: `kernels`; asked where several make a difference.

    A vendor's kernel accepts the element types and tile shapes of its contract (`multiple_of` in the device file). A
    library is offered for a program if at least one multiplication fits one of its kernels. Other multiplications use
    the device's other libraries.

    Args:
        device: what it selects itself is always offered, and comes first.
        libraries: names of further tables `[kernels.<name>]` of the device file.

    Raises:
        StudyError: for a device without such a table.
    """

    reads = frozenset({"program"})
    writes = frozenset({"device"})

    def __init__(self, device: Device, libraries: Sequence[str]) -> None:
        if not isinstance(device, NpuDevice):
            raise StudyError(f"kernels: {device.name} has no kernel libraries", hint="they belong to NPUs")
        unknown = [name for name in libraries if name not in device.kernels]
        if unknown:
            raise StudyError(
                f"kernels: {device.name} has no kernel library {unknown[0]!r}",
                hint=f"it has {', '.join(device.kernels)}",
            )
        self._device = device
        self._names = tuple(dict.fromkeys((device.kernel_library, *libraries)))
        others = {name: device.with_options(kernel_library=name) for name in self._names[1:]}
        self._devices = {self._names[0]: device, **others}

    def offered(self, program: CompiledProgram) -> tuple[str, ...]:
        """The libraries that make a difference to a program."""
        own, *others = self._names
        return (own, *(name for name in others if self._fits(program, name)))

    def _fits(self, program: CompiledProgram, library: str) -> bool:
        return any(
            self._device.has_kernel(library, op.dtypes, op.shape)
            for cls in program.task_classes
            for op in cls.work
            if op.kind == "matmul"
        )

    def decide(self, draft: Draft, ask: Ask) -> Draft:
        library = str(ask(Question.word("kernels", self.offered(draft.compiled), self._names)))
        return replace(draft, device=self._devices[library])

    def describe(self) -> dict[str, object]:
        return {"kernels": list(self._names)}


class NpuBackend(Backend):
    """Everything that other packages ask of NPUs."""

    kind = "npu"
    device_model: type[Device] = NpuDevice
    has_places = True
    targets: Mapping[str, Target] = {"allo": ALLO, "model": MODEL}

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

    def fold_bounds(self, graph: ProgramGraph, device: Device) -> NpuFoldBounds:
        """Return bounds of the channels and the memory that tensors take."""
        return NpuFoldBounds(graph, NpuDevice.of(device))

    def choices(self, asked: Asked, target: Target, device: Device) -> Choices:
        """Return depths of output FIFOs, and kernel libraries."""
        if asked.schedules:
            raise StudyError(f"schedules: {device.name} is no FPGA", hint="NPU designs have folds and parameters only")
        depths = asked.output_depths if target.fifo_depth is None else (target.fifo_depth,)
        after: list[Choice] = [OutputDepth(depths)]
        if asked.kernels:
            after.append(KernelLibrary(device, asked.kernels))
        return Choices((), after, Buffering(output_depth=min(depths)))

    def task_excess(self, ports: Sequence[TensorPort], device: Device, buffering: Buffering) -> Violation | None:
        """Return the limit of a core that the tensor ports of a task exceed; None if they fit."""
        return task_excess(ports, NpuDevice.of(device), buffering)

    def rewrite(self, violation: Violation, program: CompiledProgram, device: Device) -> str:
        """Return a rewrite with sizes that fit; empty if none is known."""
        return rewrite(violation, program, NpuDevice.of(device))

    def evaluator(self, device: Device) -> Evaluator:
        """Return the simulator."""
        return NpuSimulator()

    def launches(self, device: Device) -> Launches:
        """Return launches of operators side by side on columns."""
        from .launches import NpuLaunches  # which few runs need

        return NpuLaunches(NpuDevice.of(device))

    def tunable(self, device: Device) -> Tunable:
        """Return the numbers of the board and of the kernels."""
        from .calibration import NpuTunable  # imports SciPy, which is slow

        return NpuTunable()

    def words(self, design: Design, metrics: Mapping[str, Any]) -> Words:
        """Return the buffering, changes of layout and kernel library of a design."""
        device = NpuDevice.of(design.device)
        own = device.kernel_library
        changes = layouts_on(design.program.vmg.graph, device).choices
        depth = "single" if design.buffering.output_depth == 1 else "double"
        details = (
            f"{depth}-buffered output",
            *(str(choice) for choice in changes if choice.place != "nowhere"),
            *([f"kernels of the library {own!r}"] if own != next(iter(device.kernels)) else []),
        )
        work = (op for kernel in design.program.kernels for cls in kernel.by_work[0] for op in cls.work)
        once = "data decides how often some loops run, which count once: latency is a lower bound"
        caveats = (
            once if any(op.count is None for op in work) else "",
            overdue(device, metrics.get("latency_us", 0.0), (metrics.get("latency_range") or {}).get("percent", 0.0)),
            crowded_program(design.vmg, device),
        )
        return Words("core", details, tuple(filter(None, caveats)))

    def capacity(self, device: Device) -> dict[str, float]:
        """Return the cores, and the data memory of one."""
        npu = NpuDevice.of(device)
        return {"pe_count": float(npu.compute_tiles), "local_memory_bytes": float(npu.core.memory_bytes)}

    def record(self, design: Design, metrics: Mapping[str, Any]) -> Recorded:
        """Run a design from one intervention of the host to the next."""
        from .recording import recorded

        return recorded(design)

    def place(self, mapping: DeviceMapping, seconds: float | None = None) -> PlacedDesign | Infeasible:
        """Return tiles, routes and channels on the array, or the limits that forbid any."""
        assert isinstance(mapping, NpuMapping)
        return mapping.placement if seconds is None else mapping.place(seconds)

    def placement_from_dict(self, data: Mapping[str, Any]) -> PlacedDesign | Infeasible:
        """Return a placement from plain data."""
        return placement_from_dict(data)

    def artifacts(self, design: Design, sources: Sources) -> Artifacts:
        """Return a program that Allo builds, and the build script."""
        from .board.folder import allo_artifacts  # slow to import: it runs and compares programs

        return allo_artifacts(design, sources)

    def built_depths(self, mapping: DeviceMapping) -> Mapping[str, int]:
        """Return the depths without which the nodes wait for each other."""
        assert isinstance(mapping, NpuMapping)
        return mapping.view.needed_depths.depth
