"""A recorded run of an FPGA design: who worked when, what waited for what, and what was in every FIFO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from ..backends.device import FpgaDevice
from ..frontend.program import CompiledProgram, IntArray
from ..mapper.fpga import FpgaMapping
from ..space.design import Design
from .fpga import solve_depths
from .simulator.ends import Ends, stream_ends
from .simulator.engine import table_engine
from .simulator.fpga_network import FpgaNetwork, fpga_network
from .simulator.result import RunResult

MAX_EVENTS = 400_000
"""Operations after which the recording ends; what a longer run does then is not shown."""


@dataclass(frozen=True)
class FpgaLabels:
    """Names of the tasks, copies and FIFOs of an FPGA design's network.

    Attributes:
        number: per table process the program's task, or -1 for copies.
        copies: names of the copies, by table process.
        ends: who is at either end of each stream: those beyond the program's FIFOs say that a tile has arrived or is
            done.
    """

    program: CompiledProgram
    network: FpgaNetwork
    number: IntArray
    copies: Mapping[int, str]
    ends: Ends

    def task(self, task: int) -> str:
        return self.copies[task] if task in self.copies else self.program.task_name(int(self.number[task]))

    def stream(self, stream: int) -> str:
        if stream >= self.network.fifos:
            return self._tile(stream)
        return self.program.stream_name(int(self.network.wiring.stream[stream]))

    def _tile(self, stream: int) -> str:
        source, target = int(self.ends.producer[stream]), int(self.ends.consumer[stream])
        if source in self.copies:
            return f"{self.copies[source]} for {self.task(target)}"
        return f"{self.copies[target]} from {self.task(source)}"

    def array(self, stream: int) -> str:
        """What shares one depth with a stream."""
        if stream >= self.network.fifos:
            return self._tile(stream)
        return self.program.streams[int(self.network.wiring.array[stream])].name

    def operation(self, task: int, op: int) -> str:
        return f"operation {op} of {self.task(task)}"

    def resource(self, resource: int) -> str:
        return f"AXI port {resource}"


@dataclass(frozen=True)
class FpgaRecording:
    """The beginning of a design's run, or all of a short one.

    Attributes:
        result: what was recorded; times are cycles.
        whole: the whole run, of which no single operations are kept.
        depths: stream depths of the run.
    """

    result: RunResult
    whole: RunResult
    depths: Mapping[str, int]

    @property
    def is_whole(self) -> bool:
        return self.result.finished


def record_fpga(
    design: Design, depths: Mapping[str, int] | None = None, *, max_events: int = MAX_EVENTS
) -> FpgaRecording:
    """Simulate a design at the cost model's intervals and depths, keeping every operation of the beginning.

    Args:
        depths: stream depths by array where they differ from the declared ones; by default the design's, or else the
            smallest that cost no time.

    Raises:
        DeviceError: if the design is not for an FPGA.
        SimulationError: if it deadlocks, or its control flow depends on data.
    """
    mapping = FpgaMapping(design.vmg, FpgaDevice.of(design.device), design.schedule, dict(design.depths))
    used = dict(design.depths if depths is None else depths)
    if depths is None and not used:
        used = solve_depths(mapping)[0]
    network = fpga_network(mapping, used)
    labels = _labels(mapping, network)
    result = table_engine().run(network.network, record=True, max_events=max_events, stop_when_full=True)
    result.labels = labels
    if result.finished:
        return FpgaRecording(result, result, used)
    whole = table_engine().run(network.network, extrapolate=True)
    whole.require_finished(labels)
    return FpgaRecording(result, whole, used)


def _labels(mapping: FpgaMapping, network: FpgaNetwork) -> FpgaLabels:
    """Names in the order in which `fpga_network` makes processes and streams."""
    program = mapping.vmg.program
    number = np.full(network.network.task_count, -1)
    number[network.task] = np.arange(len(network.task))
    names = [
        f"{verb} {use.tensor.name}"
        for use in mapping.tensors
        if not use.onchip
        for verb, does in (("load", use.reads), ("store", use.writes))
        if does
    ]
    copies = dict(zip(network.movers, names, strict=True))
    return FpgaLabels(program, network, number, copies, stream_ends(network.network, {}))
