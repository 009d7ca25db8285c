"""FPGAs as a kind of device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from allo_dse.common.errors import SimulationError, StudyError
from allo_dse.common.records import JsonObject
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import Device, FpgaDevice
from allo_dse.eval.backend import Artifacts, Asked, Backend, Choices, Files, Sources, Words
from allo_dse.eval.evaluator import Evaluator
from allo_dse.eval.launches import Launches
from allo_dse.eval.target import Target
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.backend import DeviceMapping
from allo_dse.space.choice import QuestionChoice
from allo_dse.space.choices.shared import OfSome, OutputDepth, Overlap
from allo_dse.space.design import Design

from .choices.auto_schedules import AutoSchedules, schedules_of
from .choices.loop_forms import LoopForms
from .mapping import FpgaMapping, partition_conflicts

if TYPE_CHECKING:
    from allo_dse.eval.recording import Recorded

AS_WRITTEN = 'loops, arrays and words are as the program has them; `schedules="auto"` in the study searches them, too'

_SHOWN = ("bram18", "uram", "dsp", "lut", "ff")

_INTERVAL_FROM = {"target": "as asked", "report": "as reported by the HLS tool"}

HLS = "hls"
"""The directory of an FPGA design's HLS project."""


def _is_one_task(program: Program) -> bool:
    """Check for one task, which may be split in parts, without directives of its own."""
    return (program.apart or program.task_count == 1) and not program.schedule


class FpgaBackend(Backend):
    """Everything that other packages ask of FPGAs."""

    kind = "fpga"
    device_model: type[Device] = FpgaDevice
    project_folder = HLS
    reads_reports = True
    times_control = True

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

    def choices(self, asked: Asked, target: Target, device: Device) -> Choices:
        """Return the schedules, and before the fold whether independent parts of kernels overlap."""
        if asked.kernels:
            raise StudyError(f"kernels: {device.name} has no kernel libraries", hint="they belong to NPUs")
        # Output ports have no object FIFOs; one depth is no choice.
        depths = OutputDepth(asked.output_depths[-1:])
        schedules = schedules_of("auto" if asked.schedules is None else asked.schedules, device)
        before: Sequence[QuestionChoice] = []
        if isinstance(schedules, AutoSchedules) and not schedules.names_kernels:
            before = [Overlap(), LoopForms()]
        after: Sequence[QuestionChoice] = [depths] if schedules is None else [depths, schedules]
        if asked.schedules is None:  # a single task cannot be folded: its schedule is all there is to search
            before = [OfSome(choice, _is_one_task) for choice in before]
            after = [OfSome(choice, _is_one_task) for choice in after]
        return Choices(before, after, Buffering(output_depth=asked.output_depths[-1]))

    def evaluator(self, device: Device) -> Evaluator:
        """Return the simulator."""
        from .evaluator import FpgaSimulator

        return FpgaSimulator()

    def loops(self, design: Design) -> list[JsonObject]:
        mapping = FpgaMapping.of(design)
        return [
            {
                "task": " ".join(map(str, (cls.kernel, *((cls.name,) if cls.name != "all" else ()), *pid))),
                "loop": " ".join(filter(None, loop.names)),
                "trips": loop.trips, "ii": loop.ii, "depth": loop.depth, "cycles": loop.cycles, "times": loop.times,
                "limit": _INTERVAL_FROM.get(loop.limit, loop.limit),
            }
            for cls, pid, *_ in mapping.shared.alike(mapping.run)
            for loop in mapping.cost(cls, pid).loops
        ]  # fmt: skip

    def words(self, design: Design, metrics: Mapping[str, Any]) -> Words:
        """Return unrolled loops, tensors with bank conflicts, and the resource with the highest use."""
        unrolled = [f"{d.name} by {d.options.get('factor') or 'all'}" for d in design.schedule if d.kind == "unroll"]
        words = [f"unrolled {', '.join(unrolled)}"] if unrolled else []
        with suppress(SimulationError):  # data-dependent loops cannot be analysed
            words += partition_conflicts(FpgaMapping.of(design))
            words += FpgaMapping.of(design).remarks
        binding, share = metrics.get("binding"), metrics.get("utilization")
        if binding is not None and share is not None:
            words.append(f"uses {100 * share:.0f} % of the {str(binding).upper()}")
        return Words("processing element", tuple(words))

    def advice(self, asked: Asked, program: Program) -> str:
        """Return a hint to studies without schedules."""
        searched = _is_one_task(program) if asked.schedules is None else asked.schedules
        return "" if searched else AS_WRITTEN

    def capacity(self, device: Device) -> dict[str, float]:
        """Return the resources that designs may use."""
        fpga = FpgaDevice.of(device)
        return {name: float(fpga.limit(name)) for name in _SHOWN if fpga.limit(name) > 0}

    def record(self, design: Design, metrics: Mapping[str, Any]) -> Recorded:
        """Run a design at its depths, and at reported intervals of loops if there are any."""
        from .recording import recorded

        return recorded(design, metrics)

    def launches(self, device: Device) -> Launches:
        """Return one launch, whose operators keep their hardware."""
        from .launches import FpgaLaunches  # which few runs need

        return FpgaLaunches(FpgaDevice.of(device))

    def artifacts(self, design: Design, sources: Sources) -> Artifacts:
        """Return the HLS project; of an evaluated design at its depths, with test data and a prediction."""
        from .hls.design_project import board_project, hls_project  # slow to import: it runs and compares programs

        verify_with = sources.verify_with
        if sources.metrics is None:
            project = hls_project(design, dict(design.as_built.depths), verify_with=verify_with, inputs=sources.inputs)
        else:
            depths = sources.metrics.get("stream_depths")
            project = board_project(
                design, depths, reference=sources.reference, verify_with=verify_with, inputs=sources.inputs
            )
        files: Files = {f"{HLS}/{name}": text for name, text in project.files.items()}
        files |= {f"{HLS}/{name}": content for name, content in project.data.items()}
        return Artifacts(files)

    def waiting_pipelines(self, mapping: FpgaMapping) -> str:
        """Return why a mapping deadlocks at any stream depths; empty if it does not, or if data decides."""
        from .depths.solver import deadlock_at_any_depths

        with suppress(SimulationError):
            return deadlock_at_any_depths(mapping)
        return ""

    def built_depths(self, mapping: DeviceMapping) -> Mapping[str, int]:
        """Return the smallest depths that cost no time, or no more than the design allows."""
        from .depths.front import decided_depths

        assert isinstance(mapping, FpgaMapping)
        return decided_depths(mapping, "solve")
