"""Calibrate a device file to measured times. The board is made up, so that the answer is known.

    python examples/calibrate_a_board.py        # writes measured.csv, my_npu.toml and a run directory here

runs a small study, writes what its designs take on a board with a launch of 260 us and kernels at half of their peak
to a CSV, with 1 % of noise, and fits `npu1_4col` to them.
"""

import csv
import subprocess
import sys
from pathlib import Path

import numpy as np

import allo_dse as dse
from allo_dse.tune.measurements import read_measurements

STUDY = Path(__file__).resolve().parent.parent / "studies" / "gemm_npu.py"
RUN, MEASURED, FITTED = "run", Path("measured.csv"), Path("my_npu.toml")
MADE_UP = """
extends = "npu1_4col"
[boards.default]
launch_us = 260.0
[kernels.allo]
i16 = { efficiency = 0.5 }
"""


def allo_tune(*arguments: object) -> None:
    subprocess.run([sys.executable, "-m", "allo_dse", *map(str, arguments)], check=True)


def write(rows: list[tuple[str, float]]) -> None:
    with MEASURED.open("w", newline="") as file:
        csv.writer(file).writerows([("design", "latency_us"), *rows])


def main() -> None:
    allo_tune(STUDY, "--set", "size=256", "--trials", 8, "--seed", 1, "--run-dir", RUN, "--fresh")
    with Path(RUN, "trials.csv").open() as file:
        write([(row["key"], float(row["latency_us"])) for row in csv.DictReader(file)])
    Path("made_up.toml").write_text(MADE_UP)
    board = dse.Device.load("made_up.toml")
    noise = np.random.default_rng(0)
    rows = []
    for measurement in read_measurements(MEASURED, Path(RUN)):
        time_us = dse.NpuSimulator().evaluate(measurement.design.on(board)).latency_us
        rows.append((measurement.label.split()[-1], time_us * float(np.exp(noise.normal(0, 0.01)))))
    write(rows)
    allo_tune("calibrate", MEASURED, "--run", RUN, "-o", FITTED)
    print(FITTED.read_text())


if __name__ == "__main__":
    main()
