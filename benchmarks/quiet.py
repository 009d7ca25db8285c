"""Runs a benchmark, and prints what it measured only if the machine had time for it.

    python -m benchmarks.quiet benchmarks/search_speed.py [its arguments]

The load of the machine stands beside the figures, and how long a fixed piece of work (`engine_reference.py`) takes on
it before and after. Above a load of 1.5 per core, before or after, nothing is printed: figures in seconds would be of
what else runs. `make bench` runs all benchmarks like this.
"""

from __future__ import annotations

import contextlib
import io
import os
import runpy
import sys
import time

from benchmarks.engine_reference import poll, systolic

MOST_LOAD = 1.5  # per core


def reference_seconds(times: int = 3) -> float:
    """Processor seconds of the fixed work: a 16 x 16 systolic array, 1,024 rounds."""
    arguments = systolic(16, 1024, 4)
    poll(*arguments)
    seconds = []
    for _ in range(times):
        started = time.process_time()
        poll(*arguments)
        seconds.append(time.process_time() - started)
    return min(seconds)


def load_per_core() -> float:
    """Processes that were ready to run in the last minute, per core."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def refusal(load: float, when: str) -> str | None:
    """Why nothing is to be printed; None where figures mean something."""
    if load <= MOST_LOAD:
        return None
    return f"not printed: the load was {load:.1f} per core {when}, more than {MOST_LOAD:g}"


def main(arguments: list[str]) -> None:
    if not arguments:
        raise SystemExit(__doc__)
    before, speed = load_per_core(), reference_seconds()
    if reason := refusal(before, "before the benchmark"):
        raise SystemExit(reason)
    path = os.path.abspath(arguments[0])  # scripts find what lies beside the project from where they are
    sys.argv = [path, *arguments[1:]]
    printed = io.StringIO()
    status: object = None
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(path, run_name="__main__")
        except SystemExit as end:
            status = end.code
    after = load_per_core()
    if reason := refusal(after, "after the benchmark"):
        raise SystemExit(reason)
    print(printed.getvalue(), end="")
    print(f"(load {before:.1f} and {after:.1f} per core, reference {1e3 * speed:.1f} and "
          f"{1e3 * reference_seconds():.1f} ms, before and after)")  # fmt: skip
    if status:
        raise SystemExit(status)


if __name__ == "__main__":
    main(sys.argv[1:])
