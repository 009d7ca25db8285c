"""CPU seconds that each command takes on a small run, the least of several times, and which large packages it imports.

    python -m benchmarks.startup [--times 5]

CPU time of the process (user and system) hardly depends on what else the machine does; the time until the prompt is
back is that and what reading files takes.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parents[1]
LARGE = ("torch_mlir", "numba", "ortools", "ray", "optuna", "dash", "plotly", "pandas", "pydantic", "numpy")
STUDY = HERE / "studies" / "vector_add_npu.py"
PROGRAM = """
import numpy as np
from allo.ir.types import int32
import allo.dataflow as df

@df.region()
def top(A: int32[4], B: int32[4]):
    @df.kernel(mapping=[1], args=[A, B])
    def add_one(a: int32[4], b: int32[4]):
        b[:] = a + 1

b = np.zeros(4, np.int32)
df.build(top, target="simulator")(np.arange(4, dtype=np.int32), b)
assert b.tolist() == [1, 2, 3, 4]
"""


def commands(key: str, other: str) -> list[list[str]]:
    """Command lines; `key` and `other` are designs of the run."""
    here = [sys.executable, "-m", "allo_dse"]
    looks = ["status", "best", "pareto", "list", f"show {key}", f"compare {key} {other}"]
    works = [f"replay {key}", f"export {key}", f"verify {key}", "report", f"lint {STUDY}", f"{STUDY} --help", "--help"]
    return [*([*here, *words.split()] for words in (*looks, *works)), [sys.executable, "-m", "allo_dse.lang", "add.py"]]


def cpu_seconds(command: list[str], where: Path) -> float:
    """User and system time of a command and its children.

    Raises:
        SystemExit: when it fails.
    """
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ended = subprocess.run(command, cwd=where, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{' '.join(command)}: {ended.stderr}")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def imported(command: list[str], where: Path) -> list[str]:
    """Which of the large packages it imports."""
    ended = subprocess.run(
        [command[0], "-X", "importtime", *command[1:]], cwd=where, capture_output=True, text=True, check=False
    )
    names = {
        line.rpartition("|")[2].strip().split(".")[0]
        for line in ended.stderr.splitlines()
        if line.startswith("import time:")
    }
    return [name for name in LARGE if name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=5)
    times = parser.parse_args().times
    os.environ["PYTHONPATH"] = str(HERE)
    with tempfile.TemporaryDirectory() as name:
        where = Path(name)
        (where / "add.py").write_text(PROGRAM)
        tune = [sys.executable, "-m", "allo_dse", str(STUDY), "--trials", "8", "--quiet", "--no-verify"]
        print(f"{cpu_seconds(tune, where):8.2f} s  allo-tune {STUDY.name} --trials 8")
        rows = next(where.glob("runs/*/trials.csv")).read_text().splitlines()[1:3]
        keys = [row.split(",")[1] for row in rows]
        for command in commands(*keys):
            least = min(cpu_seconds(command, where) for _ in range(times))
            words = (
                " ".join("ID" if word in keys else Path(word).name for word in command[3:])
                if "allo_dse" in command
                else "add.py"
            )
            program = "allo-tune" if "allo_dse" in command else "python -m allo_dse.lang"
            print(f"{least:8.2f} s  {f'{program} {words}':<44} {' '.join(imported(command, where))}", flush=True)


if __name__ == "__main__":
    main()
