"""How close the NPU timing model is to measurements on real boards.

    python benchmarks/npu_accuracy.py [--shapes]

Compares with the published measurements in ../shared/facts: the time of i16 GEMMs of 125 shapes with a 64x64x64 tile on
4x4 cores, sustained rates of i8 and bf16 at 4096^3, and pairs of tiles of which the better one is known. Without
../shared it says so and stops.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path

import numpy as np

from allo_dse import AxisFold, Buffering, Design, Device, KernelFold, MeshFold, NpuSimulator, load_program
from allo_dse.lang import install

install()
sys.path.insert(0, str(Path(__file__).parent.parent))

from allo.ir.types import bfloat16, float32, int8, int16

from studies.gemm_npu import gemm

FACTS = Path(__file__).resolve().parents[2] / "shared" / "facts"


def latency_us(m, k, n, tile, types, device, *, output_depth=2) -> float:
    """The hand-written mapping: chain along k, outputs bundled cyclically onto 4x4 cores."""
    mt, kt, nt = tile
    program = load_program(gemm, M=m, K=k, N=n, Pm=m // mt, Pk=k // kt, Pn=n // nt, TyI=types[0], TyO=types[1])
    axes = (AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic"))
    fold = MeshFold((KernelFold("gemm", axes, (1, 2)),))
    buffering = Buffering(output_depth=output_depth)
    return NpuSimulator().evaluate(Design(program, fold, buffering, device)).latency_us


def shapes(device: Device, verbose: bool, output_depth: int = 2) -> tuple[float, float]:
    """Median and 90th percentile of the absolute error over the i16 shapes with all sizes >= 512."""
    with (FACTS / "npu_gemm_i16_measured.csv").open() as file:
        rows = [[float(x) for x in row] for row in list(csv.reader(file))[1:]]
    errors, large = [], []
    for m, k, n, seconds in rows:
        predicted = latency_us(int(m), int(k), int(n), (64, 64, 64), (int16, int16), device, output_depth=output_depth)
        errors.append(predicted / (seconds * 1e6) - 1)
        large.append(min(m, k, n) >= 512)
        if verbose:
            print(
                f"  {m:5.0f} {k:5.0f} {n:5.0f}  measured {seconds * 1e6:9.1f} us  "
                f"predicted {predicted:9.1f} us  {errors[-1]:+.1%}"
            )
    results = []
    for name, chosen in (("all sizes >= 512", np.array(large)), ("all 125", np.ones(len(rows), bool))):
        absolute = np.abs(np.array(errors))[chosen]
        results.append((float(np.median(absolute)), float(np.quantile(absolute, 0.9))))
        print(
            f"i16, 64x64x64 tile, {name} ({chosen.sum()} shapes): median absolute error {np.median(absolute):.1%}, "
            f"90th percentile {np.quantile(absolute, 0.9):.1%}"
        )
    return results[0]


def sustained(device: Device) -> dict[str, float]:
    """Relative error at 4096^3, whose time follows from the published MAC per cycle and core and 150 us per call."""
    errors = {}
    for name, types, tile, rate in (
        ("i8", (int8, int8), (64, 128, 64), 159.0),
        ("i16", (int16, int16), (64, 64, 64), 48.6),
        ("bf16", (bfloat16, bfloat16), (64, 64, 64), 63.2),
    ):
        measured = 4096**3 / (16 * rate * 1e3) + 150
        predicted = latency_us(4096, 4096, 4096, tile, types, device)
        errors[name] = predicted / measured - 1
        print(f"{name} 4096^3: measured {measured:.0f} us, predicted {predicted:.0f} us, {errors[name]:+.1%}")
    return errors


def tile_pairs() -> dict[str, float]:
    """By how much the tile that the model chooses is slower than the best measured one, per published comparison."""
    regrets = {}
    tuned = Device.load("npu1_4col").with_options(board="sb", kernel_library="tuned")
    pairs = [
        (
            "i8 -> i16 [sb]",
            tuned,
            (int8, int16),
            {(96, 112, 96): ((4224, 4032, 4224), 5.85), (80, 104, 128): ((4160, 4160, 4096), 5.75)},
        ),
        (
            "bf16 [sb]",
            tuned,
            (bfloat16, bfloat16),
            {(96, 56, 96): ((4224, 4032, 4224), 3.12), (96, 48, 112): ((4224, 4032, 4032), 3.02)},
        ),
    ]
    sweep = {(64, 64, 32): 1.603, (128, 64, 32): 2.136, (64, 64, 64): 2.502, (64, 128, 32): 1.810}
    board = Device.load("npu1_4col").with_options(board="ph")
    pairs.append(
        ("bf16 -> f32 sweep [ph]", board, (bfloat16, float32), {t: ((2048,) * 3, tops) for t, tops in sweep.items()})
    )
    for name, device, types, tiles in pairs:
        predicted = {}
        for tile, ((m, k, n), _) in tiles.items():
            predicted[tile] = 2e-6 * m * k * n / latency_us(m, k, n, tile, types, device, output_depth=1)
        chosen = max(predicted, key=lambda tile: predicted[tile])
        regrets[name] = 1 - tiles[chosen][1] / max(tops for _, tops in tiles.values())
        print(f"{name}: chooses {'x'.join(map(str, chosen))}, {regrets[name]:.1%} below the best measured")
        for tile, tops in predicted.items():
            print(f"    {'x'.join(map(str, tile))}: measured {tiles[tile][1]:.2f} TOPS, predicted {tops:.2f}")
    return regrets


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shapes", action="store_true", help="print every shape")
    arguments = parser.parse_args()
    if not FACTS.is_dir():
        print(f"skipped: the measurements in {FACTS} are not here")
        return
    device = Device.load("npu1_4col")
    shapes(device, arguments.shapes)
    print(
        "the same without regard to the slow quarter of the runs (150 us per call, nothing per byte, one output slot):"
    )
    shapes(device.with_options(launch_us=150.0, host_sync_gb_s=1e9), False, output_depth=1)
    sustained(device)
    tile_pairs()


if __name__ == "__main__":
    main()
