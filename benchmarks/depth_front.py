"""Stream depths of recorded designs: the block RAM left without loss of cycles, and after how many replays.

Per design: block RAM as built and of the point without loss (streams of 32 bits on a U280), its cycles as a share of
those as built, which replay found it, of how many, and whether nothing can be better. Below, means and medians; also
as they would be if FIFOs above 1,024 bits were always block RAM, as in published work on the same designs.
"""

from __future__ import annotations

import time
from pathlib import Path
from statistics import mean, median

import allo_dse as dse
from allo_dse.backends.fpga.depths.front import depth_front, fifo_total, fpga_of
from allo_dse.device.device import FpgaDevice
from allo_dse.simulator.depths.front import DepthFront

TRACES = Path(__file__).parents[2] / "shared" / "traces"
BITS = 32


def without_lutram(device: FpgaDevice) -> FpgaDevice:
    """The device if FIFOs were no LUTRAM."""
    return device.model_copy(update={"fifo": device.fifo.model_copy(update={"lutram_bits": device.fifo.shift_bits})})


def row(trace: dse.Trace, device: FpgaDevice) -> tuple[DepthFront, float, float]:
    """The front, and the block RAM as built and without loss."""
    front = depth_front(trace, bits=BITS, device=device)
    built = trace.stream_depth.tolist() if front.built is None else list(front.built.depths.values())
    before = fifo_total(device, trace, BITS, dict(zip(trace.streams, built, strict=True))).bram18
    return front, before, fifo_total(device, trace, BITS, front.lossless.depths).bram18


def report(device: FpgaDevice, title: str, *, every: bool) -> None:
    shares, cycles, found, runs, seconds, proven = [], [], [], [], [], 0
    for path in sorted(TRACES.glob("*.npz")):
        trace = dse.Trace.load(path)
        start = time.perf_counter()
        front, before, after = row(trace, device)
        seconds.append(time.perf_counter() - start)
        of_built = front.lossless.cycles / front.built.cycles if front.built else 1.0
        if every:
            print(f"{path.stem:36} {before:5.0f} -> {after:3.0f} BRAM18  {of_built:8.5f} of the cycles  replay "
                  f"{front.lossless.run:3} of {front.runs:3}  {'proven' if front.proven else ''}")  # fmt: skip
        shares += [after / before] if before else []
        cycles.append(of_built)
        found.append(front.lossless.run)
        runs.append(front.runs)
        proven += front.proven
    print(
        f"{title}: {mean(shares):.2%} of the block RAM of {len(shares)} designs is left, at {mean(cycles):.5f} of the "
        f"cycles; found by replay {median(found):.0f} in the median, {max(found)} at most (replays in all: "
        f"{median(runs):.0f}, {max(runs)}); {proven} of {len(runs)} proven; {median(seconds):.3f} s a design"
    )


def main() -> None:
    if not TRACES.is_dir():
        print(f"skipped: there are no traces in {TRACES}")
        return
    device = fpga_of("u280")
    report(device, "registers, shift registers, LUTRAM, block RAM", every=True)
    report(without_lutram(device), "without LUTRAM", every=False)


if __name__ == "__main__":
    main()
