"""How long it takes to close the spaces of the studies: to prove that none of their designs is better than the front.

    python -m benchmarks.certificate [--studies gemm_npu attention_npu ...] [--set NAME=VALUE]

Per study: designs of the space, designs that were built (evaluated or refused by a limit), designs that were evaluated,
seconds from loading the study to the end of the search in one process (wall and CPU), and the verdict.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.show.run_view import RunView
from allo_dse.tune.study import load_studies, parse_settings

ROOT = Path(__file__).resolve().parent.parent
STUDIES = ("gemm_npu", "attention_npu", "resnet_npu", "ffn_npu", "mlp_npu", "reduction_npu")
EVERYTHING = 10**9


class Stopwatch(QuietReporter):
    """Takes the time when the search ends: placing the front and writing its designs is not part of it."""

    def update(self, view: RunView, last: bool = False) -> None:
        if last:
            self.wall, self.cpu = time.perf_counter(), time.process_time()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--studies", nargs="+", default=list(STUDIES))
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", dest="settings")
    arguments = parser.parse_args()
    print(f"{'study':24}{'designs':>10}{'built':>8}{'evaluated':>11}{'wall s':>8}{'CPU s':>8}  verdict", flush=True)
    for name in arguments.studies:
        wall, cpu = time.perf_counter(), time.process_time()
        (study, *_) = load_studies(ROOT / "studies" / f"{name}.py", parse_settings(arguments.settings))
        ended = Stopwatch()
        with tempfile.TemporaryDirectory() as directory:
            result = study.run(EVERYTHING, sampler="exact", run_dir=directory, verify=False, progress=ended)
        wall, cpu = ended.wall - wall, ended.cpu - cpu
        found = result.certificate
        if found is None:
            sys.exit(f"{name}: no certificate")
        built = found.evaluated + found.refused
        counts = f"{found.designs:10,}{built:8,}{found.evaluated:11,}{wall:8.1f}{cpu:8.1f}"
        print(f"{study.name:24}{counts}  {str(found).partition(';')[0]}", flush=True)


if __name__ == "__main__":
    main()
