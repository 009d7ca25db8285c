"""What stored trials cost: reading them for the page, resuming, and the driver's memory and time per trial.

    python -m benchmarks.stored_trials [--trials 10000,100000]

Records of a run of a study with eleven parameters are multiplied into a log of the wanted length, each with parameters
and results of its own. The page reads it, as `allo-tune dashboard` does before it shows designs; and a driver opens it
(that is resuming: reading, checking, judging, front, search model), and then evaluates some more with a formula.
"""

import argparse
import copy
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import allo_dse as dse
from allo_dse.dashboard.data.runs import Board
from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.store.log import Log, RunLog
from allo_dse.tune.study import Study
from tests.tune.fakes import fake_study

SEED_TRIALS = 500
MORE = 300
OPTIONS = 7
VALUES = 8
AT_ONCE = 10_000  # records that are written


class Clock(QuietReporter):
    """Notes when the search starts and ends."""

    def start(self, view: Any) -> None:
        self.started, self.before = time.perf_counter(), view.tally.done
        self.cpu = time.process_time()

    def update(self, view: Any, last: bool = False) -> None:
        self.ended, self.after, self.peak = time.perf_counter(), view.tally.done, peak_kib()


def study() -> Study:
    tiles = dse.divisors(128, at_most=8)
    options = {f"option{n}": dse.choices(range(VALUES)) for n in range(OPTIONS)}
    return fake_study("stored", size=128, params={"size": 128, "Pm": tiles, "Pn": tiles, "Pk": tiles, **options})


def another(entry: dict[str, Any], number: int) -> dict[str, Any]:
    """The record of a design like that of an entry, with options of its own."""
    made = {**copy.deepcopy(entry), "number": number, "key": f"{number:016x}", "at": 0.01 * number}
    for option in range(OPTIONS):
        value = number // VALUES**option % VALUES
        made["params"][f"option{option}"] = made["genes"][f"param.option{option}"] = value
    made["metrics"]["latency_us"] *= 1 + number % 99_991 / 1e5
    made["values"]["latency_us"] = made["metrics"]["latency_us"]
    return made


def write_log(run_dir: Path, trials: int) -> None:
    """Write the log of a run of some thousand or a million trials."""
    study().run(SEED_TRIALS, verify=False, progress="quiet", run_dir=run_dir)
    entries = [e for e in Log(run_dir / "log.jsonl").entries if e["type"] == "design"]
    done = [e for e in entries if e["status"] != "violation"]
    log = RunLog(run_dir / "log.jsonl")
    for first in range(SEED_TRIALS, trials, AT_ONCE):
        log.append(another(done[n % len(done)], n) for n in range(first, min(first + AT_ONCE, trials)))
    log.close()


def peak_kib() -> int:
    """The most memory this process ever had. (What `getrusage` says begins with the parent's.)"""
    found = re.search(r"VmHWM:\s*(\d+)", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1])


def page(folder: Path, _: Any) -> None:
    """Read what the page shows."""
    started, cpu = time.perf_counter(), time.process_time()
    designs = sum(map(len, Board.open([folder]).runs))
    print(f"{designs:7,} trials: read by the page in {time.perf_counter() - started:.2f} s "
          f"({time.process_time() - cpu:.2f} s of CPU)")  # fmt: skip


def resume(folder: Path, trials: Any) -> None:
    """Resume in a process of its own, whose memory is that of the driver."""
    made, clock = study(), Clock()
    base = peak_kib()
    started, cpu = time.perf_counter(), time.process_time()
    made.run(trials + MORE, verify=False, progress=clock, run_dir=folder)
    more = (clock.ended - clock.started) / (clock.after - clock.before)
    tables = (peak_kib() - base) / trials
    size = (folder / "log.jsonl").stat().st_size
    print(f"{trials:7,} trials: resumed in {clock.started - started:.2f} s ({clock.cpu - cpu:.2f} s of CPU), "
          f"{(clock.peak - base) / trials:.2f} KiB of memory each ({tables:.2f} with the tables at the end), "
          f"{1e3 * more:.2f} ms per further trial, "
          f"{size / trials:.0f} bytes of log each")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", default="10000,100000")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        {"page": page, "resume": resume}[options.child[0]](Path(options.child[1]), int(options.child[2]))
        return
    for trials in (int(n) for n in options.trials.split(",")):
        with tempfile.TemporaryDirectory() as folder:
            run_dir = Path(folder) / "run"
            write_log(run_dir, trials)
            for what in ("page", "resume"):
                child = [sys.executable, "-m", "benchmarks.stored_trials", "--child", what, str(run_dir), str(trials)]
                subprocess.run(child, check=True)


if __name__ == "__main__":
    main()
