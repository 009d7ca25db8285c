"""Stream depths of traces as an FPGA builds them: cycles against registers, shift registers, LUTRAM and block RAM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allo_dse.backends.fpga.fifo import fifo_resources, fifo_steps
from allo_dse.common.errors import StudyError
from allo_dse.device.device import Device, FpgaDevice
from allo_dse.device.fpga_model import Resources
from allo_dse.simulator.replay.depth_front import MAX_RUNS, DepthFront, find_depth_front
from allo_dse.simulator.replay.replay import stream_index
from allo_dse.simulator.replay.trace import Trace
from allo_dse.space.design import Design

from .design_depths import design_depth_front

DEFAULT_BITS = 32
Bits = int | Mapping[str, int]
"""Width of a stream's tokens: of all, or of some by name (the others have 32)."""


def depth_front(
    traces: Trace | Sequence[Trace] | Design,
    *,
    bits: Bits = DEFAULT_BITS,
    device: str | Device = "u280",
    max_runs: int = MAX_RUNS,
) -> DepthFront:
    """The front of cycles against memory over the depths of all streams.

    Args:
        traces: one run of the design, or several with different inputs, which count together; or a design on an FPGA,
            whose arrays of streams have one depth each, and of whose runs on given inputs the slowest counts.
        bits: width of the tokens of a trace's streams.
        device: an FPGA; says up to which size a trace's FIFO is registers, shift registers or LUTRAM.
        max_runs: replays at most. What they go to first is the least memory without loss.

    Raises:
        TraceError: for traces of different designs, unknown streams, and when no depths prevent a deadlock.
        StudyError: if the device is no FPGA.
        SimulationError: for a design that has no FIFOs, or deadlocks at any depths.
    """
    if isinstance(traces, Design):
        fpga_of(traces.device)
        return design_depth_front(traces.mapping.fpga, max_runs)
    given = (traces,) if isinstance(traces, Trace) else tuple(traces)
    fpga = fpga_of(device)
    widths = stream_bits(given[0], bits) if given else []
    return find_depth_front(given, lambda stream, tokens: fifo_steps(fpga, widths[stream], tokens), max_runs)


def fpga_of(device: str | Device) -> FpgaDevice:
    """The device, by name or itself.

    Raises:
        StudyError: if it is no FPGA.
    """
    found = Device.of(device)
    if not isinstance(found, FpgaDevice):
        raise StudyError(f"{found.name} is no FPGA: its streams have no FIFOs to size", hint="for example u280")
    return found


def stream_bits(trace: Trace, bits: Bits) -> list[int]:
    """Per stream the width of its tokens.

    Raises:
        TraceError: for streams that the trace does not have.
    """
    if isinstance(bits, int):
        return [bits] * len(trace.streams)
    found = [DEFAULT_BITS] * len(trace.streams)
    for name, width in bits.items():
        found[stream_index(trace.data, name)] = width
    return found


def fifo_total(device: FpgaDevice, trace: Trace, bits: Bits, depths: Mapping[str, int]) -> Resources:
    """What the FIFOs of a trace take with these depths; channels that are arrays are left out."""
    arrays = {trace.streams[stream] for array in trace.data.arrays for stream in array}
    widths = zip(trace.streams, stream_bits(trace, bits), strict=True)
    return Resources.total(
        [fifo_resources(device, width, depths[name]) for name, width in widths if name not in arrays]
    )
