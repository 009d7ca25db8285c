"""Two drivers that share a study through a storage: designs that both evaluate, with claims and without, and the cost.

    python -m benchmarks.shared_drivers [sqlite:///FILE | postgresql://...] [--milliseconds 20]

The same small space is enumerated by both at once, which is the worst case: both propose the same designs in the same
order. Evaluations are noted by whoever begins them.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parent.parent
DRIVER = """
import sys, time
from tests.tune.fakes import FakeEvaluator, fake_study
from allo_dse.tune.run.optuna_storage import SharedStudy

run_dir, url, notes, seconds, claims, name = sys.argv[1:]

class Noting(FakeEvaluator):
    def evaluate(self, design):
        with open(notes, "a") as file:
            file.write(design.key + chr(10))
        time.sleep(float(seconds))
        return super().evaluate(design)

claim, spent = SharedStudy.claim, []

def timed(self, wanted):
    started = time.perf_counter()
    won = claim(self, wanted) if claims == "yes" else set(wanted)
    spent.append((len(wanted), time.perf_counter() - started))
    return won

SharedStudy.claim = timed
params = {"size": 512, "Pm": 8, "Pn": 8, "Pk": 8}
options = {"sampler": "exhaustive", "progress": "quiet", "verify": False}
if url == "none":
    options = {**options, "storage": None}
else:
    options = {**options, "storage": url}
began = time.perf_counter()
fake_study(name, evaluator=Noting, params=params).run(10**6, run_dir=run_dir, **options)
print(time.perf_counter() - began, sum(n for n, _ in spent), sum(s for _, s in spent))
"""


def drive(folder: Path, url: str, drivers: int, seconds: float, claims: str) -> None:
    """Run drivers at once and print what they did."""
    notes = folder / f"notes-{drivers}-{claims}-{url == 'none'}"
    name = f"claims-{claims}-{drivers}-{time.time_ns()}"
    started = time.perf_counter()
    running = [
        subprocess.Popen(
            [sys.executable, "-c", DRIVER, str(folder / f"{name}-{n}"), url, str(notes), str(seconds), claims, name],
            cwd=ROOT, stdout=subprocess.PIPE, text=True,
        )
        for n in range(drivers)
    ]  # fmt: skip
    said = [[float(word) for word in driver.communicate()[0].split()] for driver in running]
    elapsed = time.perf_counter() - started
    begun = Counter(notes.read_text().split())
    claimed, spent = sum(words[1] for words in said), sum(words[2] for words in said)
    cost = f", {1e3 * spent / claimed:.2f} ms per claimed design" if claims == "yes" and claimed else ""
    print(
        f"{drivers} driver(s), storage {'yes' if url != 'none' else 'no'}, claims {claims}: {len(begun)} designs, "
        f"{begun.total()} evaluations, {sum(n > 1 for n in begun.values())} doubled, {elapsed:.1f} s{cost}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("url", nargs="?")
    parser.add_argument("--milliseconds", type=float, default=20.0, help="of one evaluation")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        url = options.url or f"sqlite:///{folder}/trials.db"
        drive(folder, "none", 1, options.milliseconds / 1e3, "no")
        drive(folder, url, 1, options.milliseconds / 1e3, "yes")
        for claims in ("no", "yes"):
            drive(folder, url, 2, options.milliseconds / 1e3, claims)


if __name__ == "__main__":
    main()
