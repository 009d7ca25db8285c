"""PolyBench on a U280 within 2,560 DSPs: the fastest design a search finds, against published RTL cycles.

    python -m benchmarks.polybench_search [designs per kernel, default 1000] [kernel ...]

Ours are predicted (cost model and simulator); the others' are cycles of the RTL simulation of the designs of another
optimizer, and of Allo's own. Tensors are in the chip's memory before and after, in both.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass

import allo_dse.lang

allo_dse.lang.install()

from allo_dse.common.errors import AlloDseError
from benchmarks import streamed_products
from studies.polybench_fpga import KERNELS, study

DSP = 2560
PUBLISHED = {"gemm": 24_051, "2mm": 36_352, "3mm": 49_092, "atax": 2_180, "bicg": 1_112, "mvt": 667, "gesummv": 673}
STREAMED = "2mm streamed"
ALLO = {"gemm": 238_622, "2mm": 268_436, "atax": 8_822, "bicg": 1_651, "gesummv": 1_538, "mvt": 468}


@dataclass(frozen=True)
class Found:
    """The fastest design of a search; `seconds` of processor time that the search took."""

    cycles: int
    dsp: int
    parts: str
    seconds: float


def search(kernel: str, trials: int, seed: int = 0) -> Found:
    """Search one kernel."""
    with tempfile.TemporaryDirectory() as directory:
        searched = streamed_products.study(DSP) if kernel == STREAMED else study(kernel, dsp=DSP)
        start = time.process_time()
        result = searched.run(trials=trials, seed=seed, run_dir=directory, verify=False, progress="quiet")
        seconds = time.process_time() - start
        best = result.best("latency_cycles")
        parts = "at once" if best.design.program.apart else "in turn"
        return Found(int(best.metrics["latency_cycles"]), int(best.metrics["dsp"]), parts, seconds)


def main() -> None:
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"{trials} designs per kernel, at most {DSP} DSPs")
    print(
        f"{'kernel':12}{'predicted':>10}{'DSP':>7}{'published RTL':>15}{'ratio':>8}{'Allo RTL':>10}{'parts':>9}{'s':>6}"
    )
    for kernel in sys.argv[2:] or KERNELS:
        try:
            found = search(kernel, trials)
        except AlloDseError as error:
            print(f"{kernel:12}{error}")
            continue
        same = kernel.removesuffix(" streamed")
        published, allo = PUBLISHED[same], ALLO.get(same, "-")
        ratio = found.cycles / published
        print(
            f"{kernel:12}{found.cycles:10,}{found.dsp:7,}{published:15,}{ratio:8.2f}{allo:>10}"
            f"{found.parts:>9}{found.seconds:6.0f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
