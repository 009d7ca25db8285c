"""FPGAs as a kind of device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allo_dse.common.errors import StudyError
from allo_dse.compiler.program.compiled import Directive
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.device.device import Device, FpgaDevice
from allo_dse.eval.backend import Asked, Choices
from allo_dse.eval.evaluator import Evaluator
from allo_dse.eval.target import MODEL, Target
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.violation import Buffering
from allo_dse.space.backend import DeviceMapping
from allo_dse.space.choices.shared import OutputDepth, Overlap

from .choices.auto_schedules import AutoSchedules, schedules_of
from .mapping import FpgaMapping


class FpgaBackend:
    """Everything that other packages ask of FPGAs."""

    kind = "fpga"
    device_model: type[Device] = FpgaDevice
    targets: Mapping[str, Target] = {"model": MODEL}

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

    def fold_bounds(self, graph: ProgramGraph, device: Device) -> None:
        """None: resources are known once the graph is folded."""

    def choices(self, asked: Asked, target: Target, device: Device) -> Choices:
        """Return the schedules, and before the fold whether independent parts of kernels overlap."""
        if asked.kernels:
            raise StudyError(f"kernels: {device.name} has no kernel libraries", hint="they belong to NPUs")
        # Output ports have no object FIFOs; one depth is no choice.
        depths = OutputDepth(asked.output_depths[-1:])
        schedules = schedules_of(asked.schedules, device) if asked.schedules not in ((), []) else None
        overlaps = isinstance(schedules, AutoSchedules) and not schedules.names_kernels
        after = [depths] if schedules is None else [depths, schedules]
        return Choices([Overlap()] if overlaps else [], after, Buffering(output_depth=asked.output_depths[-1]))

    def task_excess(self, ports: Sequence[TensorPort], device: Device, buffering: Buffering) -> None:
        """None: no limit is about single tasks."""

    def evaluator(self, device: Device) -> Evaluator:
        """Return the simulator."""
        from .evaluator import FpgaSimulator

        return FpgaSimulator()

    def built_depths(self, mapping: DeviceMapping) -> Mapping[str, int]:
        """Return the smallest depths that cost no time, or no more than the design allows."""
        from .depths.depths import decided_depths  # with compiled kernels, which few runs need

        assert isinstance(mapping, FpgaMapping)
        return decided_depths(mapping, "solve")
