"""Functions of the public API that join several parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from .backends.device import Device
from .errors import AlloDseError
from .mapper.buffering import Buffering
from .mapper.check import Violation, check_mapping
from .mapper.program import Program, load_program
from .mapper.vmg import VMG
from .space.design import Design

if TYPE_CHECKING:
    from .eval.simulator.result import RunResult


def check(mapping: VMG | Design | Program, device: Device | str | None = None) -> list[Violation]:
    """What of a mapping does not fit a device; empty when it fits.

    Args:
        mapping: a graph (buffered as `Buffering()` says), a design, or a program that is not folded at all.
        device: a device or its name; a design brings its own.
    """
    if isinstance(mapping, Design):
        target, buffering, vmg = mapping.device, mapping.buffering, mapping.vmg
    else:
        vmg = mapping.vmg if isinstance(mapping, Program) else mapping
        buffering = Buffering()
        if device is None:
            raise AlloDseError("check needs a device", hint='check(vmg, "npu1_4col")')
    if device is not None:
        target = Device.load(device) if isinstance(device, str) else device
    return check_mapping(vmg, target, buffering)


def simulate(
    program: Program | VMG | Design,
    *arrays: Any,
    depths: Mapping[str, int] | None = None,
    seconds: float | None = None,
    progress: Callable[[int], None] | None = None,
) -> RunResult:
    """Run a program, a folded graph or a design: numbers and cycles in one run.

    Args:
        arrays: the region's arguments in order, written in place; without any, zeros are used.
        depths: stream depths by name, where they differ from the declared ones.
        seconds: time limit.

    Raises:
        DeadlockError: naming the tasks and streams that wait for each other.
        SimulationError: for arguments that do not fit, or at the time limit.
    """
    from .eval.simulator.arguments import numpy_dtype
    from .eval.simulator.functional import run_graph

    vmg = program if isinstance(program, VMG) else program.vmg
    if not arrays:
        arrays = tuple(np.zeros(t.shape, numpy_dtype(t.dtype)) for t in vmg.program.tensors)
    return run_graph(vmg, *arrays, depths=depths, seconds=seconds, progress=progress)


class SimulatorModule:
    """What `df.build(region)` returns: call it with the region's arguments."""

    def __init__(self, region: Any, *, mapping_primitives: Any = None, **_options: Any) -> None:
        self.program = load_program(region)
        self.vmg = self.program.vmg.apply(mapping_primitives) if mapping_primitives else self.program.vmg
        self.result: RunResult | None = None
        """The last call's cycles, stalls and occupancies."""

    def __call__(self, *arrays: Any) -> None:
        self.result = simulate(self.vmg, *arrays)


def build_simulator(region: Any, **options: Any) -> SimulatorModule:
    """The target "simulator" (and "llvm", the default) of `df.build`."""
    return SimulatorModule(region, **options)


def build_aie(region: Any, **options: Any) -> SimulatorModule:
    """The target "aie" without NPU tools: the folded design runs in the simulator, and says so."""
    print('allo-dse: no NPU tools here; target "aie" runs the folded design in the simulator')
    return SimulatorModule(region, **options)
