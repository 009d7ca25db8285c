"""PolyBench on a U280 within 2,560 DSPs: the fastest design a search finds, against published RTL cycles.

    PYTHONPATH=. python benchmarks/polybench_search.py [minutes per kernel, default 5] [kernel ...]

Ours are predicted (cost model and simulator); the others' are cycles of the RTL simulation of the designs of another
optimizer, and of Allo's own. Tensors are in the chip's memory before and after, in both.
"""

from __future__ import annotations

import sys
import tempfile

import allo_dse.lang

allo_dse.lang.install()

from allo_dse.errors import AlloDseError
from studies.polybench_fpga import KERNELS, study

DSP = 2560
PUBLISHED = {"gemm": 24_051, "2mm": 36_352, "3mm": 49_092, "atax": 2_180, "bicg": 1_112, "mvt": 667, "gesummv": 673}
ALLO = {"gemm": 238_622, "2mm": 268_436, "atax": 8_822, "bicg": 1_651, "gesummv": 1_538, "mvt": 468}


def search(kernel: str, minutes: float, seed: int = 0) -> tuple[int, int, int]:
    """Cycles and DSPs of the fastest design found, and how many were evaluated."""
    with tempfile.TemporaryDirectory() as directory:
        searched = study(kernel, dsp=DSP)
        result = searched.run(
            time=f"{round(60 * minutes)}s", seed=seed, run_dir=directory, verify=False, progress="quiet"
        )
        best = result.best("latency_cycles").metrics
        return int(best["latency_cycles"]), int(best["dsp"]), len(result.records)


def main() -> None:
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    print(f"{minutes:g} minutes per kernel, at most {DSP} DSPs")
    print(f"{'kernel':10}{'predicted':>10}{'DSP':>7}{'published RTL':>15}{'ratio':>8}{'Allo RTL':>10}{'designs':>9}")
    for kernel in sys.argv[2:] or KERNELS:
        try:
            cycles, dsp, designs = search(kernel, minutes)
        except AlloDseError as error:
            print(f"{kernel:10}{error}")
            continue
        published, allo = PUBLISHED[kernel], ALLO.get(kernel)
        print(
            f"{kernel:10}{cycles:10,}{dsp:7,}{published:15,}{cycles / published:8.2f}{allo or '-':>10}{designs:9,}",
            flush=True,
        )


if __name__ == "__main__":
    main()
