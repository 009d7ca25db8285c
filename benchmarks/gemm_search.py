"""Does the search beat the mapping that people write by hand? Split-K GEMM 2048^3 on npu1_4col, per element type.

    python -m benchmarks.gemm_search [--trials 1500] [--seed 0]

The hand-written mapping (Allo's library): 64x64x64 tiles, chain all k of an output, bundle outputs (i + 4p, j + 4q)
onto 4x4 cores. Prints that it is in the study's space and passes every check, the latency of the best design found, and
their ratio.
"""

from __future__ import annotations

import argparse
import tempfile

from allo_dse import AxisFold, Buffering, Design, Device, KernelFold, MeshFold, NpuSimulator, check, load_program
from allo_dse.lang import install
from allo_dse.tune.show.reporters import QuietReporter

install()

from studies.gemm_npu import ELEMENT_TYPES, gemm, study

HAND_WRITTEN = MeshFold(
    (KernelFold("gemm", (AxisFold(1, "block", "chain"), AxisFold(4, "cyclic"), AxisFold(4, "cyclic")), (1, 2)),)
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    device, buffering = Device.load("npu1_4col"), Buffering(output_depth=2)
    for name, element in ELEMENT_TYPES.items():
        searched = study(name)
        program = load_program(gemm, TyI=element, TyO=element)
        by_hand = Design(program, HAND_WRITTEN, buffering, device)
        found = searched.space.decode_genes(searched.space.encode(by_hand))
        inside = found is not None and found.design.key == by_hand.key
        violations = check(by_hand)
        hand_us = NpuSimulator().evaluate(by_hand).latency_us
        with tempfile.TemporaryDirectory() as directory:
            result = searched.run(
                trials=arguments.trials, seed=arguments.seed, run_dir=directory, verify=False, progress=QuietReporter()
            )
            best = result.best("latency_us")
        found_us = best.metrics.latency_us
        where = "in" if inside else "NOT in"
        print(f"{name}: by hand {hand_us:.0f} us ({where} the space, {len(violations)} violations), ", end="")
        print(f"found {found_us:.0f} us: {hand_us / found_us:.2f}x as fast; {best.explain()}")


if __name__ == "__main__":
    main()
