"""How long it takes to close the spaces of the studies: to prove that none of their designs is better than the front.

    python benchmarks/certificate.py [--studies gemm_npu attention_npu ...] [--set NAME=VALUE]

Per study: designs of the space, designs that were built (evaluated or refused by a limit), designs that were evaluated,
seconds from loading the study to the end in one process (wall and CPU), and the verdict.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.study_file import load_studies, parse_settings

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ("gemm_npu", "attention_npu", "resnet_npu", "ffn_npu", "mlp_npu", "reduction_npu")
EVERYTHING = 10**9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", nargs="+", default=list(STUDIES))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings")
    arguments = parser.parse_args()
    print(f"{'study':24}{'designs':>10}{'built':>8}{'evaluated':>11}{'wall s':>8}{'CPU s':>8}  verdict", flush=True)
    for name in arguments.studies:
        wall, cpu = time.perf_counter(), time.process_time()
        (study, *_) = load_studies(ROOT / "studies" / f"{name}.py", parse_settings(arguments.settings))
        with tempfile.TemporaryDirectory() as directory:
            result = study.run(
                EVERYTHING, sampler="exact", run_dir=directory, verify=False, progress=QuietReporter()
            )  # fmt: skip
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        found = result.certificate
        if found is None:
            sys.exit(f"{name}: no certificate")
        built = found.evaluated + found.refused
        counts = f"{found.designs:10,}{built:8,}{found.evaluated:11,}{wall:8.1f}{cpu:8.1f}"
        print(f"{study.name:24}{counts}  {str(found).partition(';')[0]}", flush=True)


if __name__ == "__main__":
    main()
