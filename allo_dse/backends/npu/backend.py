"""NPUs as a kind of device."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allo_dse.common.errors import StudyError
from allo_dse.compiler.program.compiled import Directive
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.device.device import Device, NpuDevice
from allo_dse.eval.backend import Asked, Choices
from allo_dse.eval.evaluator import Evaluator
from allo_dse.eval.target import MODEL, Target
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.violation import Buffering, Violation
from allo_dse.space.backend import DeviceMapping
from allo_dse.space.choice import Choice
from allo_dse.space.choices.shared import OutputDepth

from .allo.target import ALLO
from .choices import KernelLibrary
from .evaluator import NpuSimulator
from .fold_bounds import NpuFoldBounds, task_excess
from .mapping import NpuMapping


class NpuBackend:
    """Everything that other packages ask of NPUs."""

    kind = "npu"
    device_model: type[Device] = NpuDevice
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
        if asked.schedules not in ((), []):
            raise StudyError(f"schedules: {device.name} is no FPGA", hint="NPU designs have folds and parameters only")
        depths = asked.output_depths if target.fifo_depth is None else (target.fifo_depth,)
        after: list[Choice] = [OutputDepth(depths)]
        if asked.kernels:
            after.append(KernelLibrary(device, asked.kernels))
        return Choices((), after, Buffering(output_depth=min(depths)))

    def task_excess(self, ports: Sequence[TensorPort], device: Device, buffering: Buffering) -> Violation | None:
        """Return the limit of a core that the tensor ports of a task exceed; None if they fit."""
        return task_excess(ports, NpuDevice.of(device), buffering)

    def evaluator(self, device: Device) -> Evaluator:
        """Return the simulator."""
        return NpuSimulator()

    def built_depths(self, mapping: DeviceMapping) -> Mapping[str, int]:
        """Return the depths without which the nodes wait for each other."""
        assert isinstance(mapping, NpuMapping)
        return mapping.view.needed_depths.depth
