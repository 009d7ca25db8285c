"""Measured designs: from a CSV that names designs of a run, or from the rungs of a run that ran on hardware."""

from __future__ import annotations

import difflib
import math
from contextlib import ExitStack
from pathlib import Path

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.device.device import Device
from allo_dse.eval.calibrate.calibration import Measurement, tunable_of
from allo_dse.eval.calibrate.correction import LEAST_US, MOST_US, measured_us
from allo_dse.space.design import Design

from .earlier_runs import Replayer
from .store.rundir import find_run, read_csv

COLUMNS = ("design", "latency_us", "run")
"""Columns of a CSV: a design's key or number, its time, and its run directory relative to the CSV (or none)."""

_COLUMNS_HINT = "columns: design (key or number), latency_us, and run where designs are of several runs"
_SHORTEST_KEY = 4


def read_measurements(path: Path, run: Path | None = None, study_file: Path | None = None) -> list[Measurement]:
    """Return the measured designs of a CSV or a run directory. Executes study files.

    Args:
        run: the run of the CSV's designs, unless the CSV names it; the newest by default.
        study_file: new path of a study file that was moved.

    Raises:
        StudyError: for a line that cannot be read or is no design; names the line.
    """
    if path.is_dir():
        return _of_run(path, study_file)
    columns, table = read_csv(path, _COLUMNS_HINT)
    if unknown := [name for name in columns if name not in COLUMNS]:
        raise StudyError(f"{path}:1: unknown column {unknown[0]!r}", hint=_COLUMNS_HINT)
    if missing := [name for name in COLUMNS[:2] if name not in columns]:
        raise StudyError(f"{path}:1: no column {missing[0]!r}", hint=_COLUMNS_HINT)
    rows = [_row(*row) for row in table]  # a mistake is found before studies are executed
    with ExitStack() as opened:
        runs: dict[str, _Run] = {}
        found = []
        for where, name, latency_us, named in rows:
            if named not in runs:
                folder = find_run(path.parent / named if named else run)
                runs[named] = _Run(opened.enter_context(Replayer(folder, study_file)))
            found.append(Measurement(runs[named].design(name, where), latency_us, f"{where}: {name}"))
        return found


def on_device(measurements: list[Measurement], device: Device) -> list[Measurement]:
    """Return the measurements for another device, with their board and options if it has them."""
    tunable = tunable_of(device)
    return [replace(one, design=one.design.on(tunable.alike(device, one.design.device))) for one in measurements]


def _of_run(path: Path, study_file: Path | None) -> list[Measurement]:
    with Replayer(find_run(path), study_file) as replayer:
        measured = [(r, us) for r in replayer.records() if r.evaluated and (us := measured_us(r.metrics))]
        if not measured:
            raise StudyError(
                f"{path} has no measured designs",
                hint="its study needs a rung that measures; or name a CSV with " + _COLUMNS_HINT,
            )
        return [Measurement(replayer.candidate(r).design, us, f"design {r.number}: {r.key}") for r, us in measured]


class _Run:
    """The evaluated designs of a run, by number and by key."""

    def __init__(self, replayer: Replayer) -> None:
        self._replayer = replayer
        self._records = {r.key: r for r in replayer.records() if r.evaluated}
        self._numbers = {str(r.number): r for r in self._records.values()}

    def design(self, name: str, where: str) -> Design:
        wanted = name.removeprefix("#").lower()
        keys = [key for key in self._records if key.startswith(wanted)] if len(wanted) >= _SHORTEST_KEY else []
        record = self._numbers.get(wanted) or (self._records[keys[0]] if len(keys) == 1 else None)
        if record:
            return self._replayer.candidate(record).design
        near = difflib.get_close_matches(wanted, self._records, 1)
        raise StudyError(
            f"{where}: {self._replayer.path} has {'several designs' if keys else 'no design'} {name!r}",
            hint=f"did you mean {near[0]}?" if near else "`allo-tune pareto --csv` lists designs by key and number",
        )


def _row(where: str, row: dict[str, str]) -> tuple[str, str, float, str]:
    """Return place, design, microseconds and run of a row."""
    text = row["latency_us"]
    try:
        latency_us = float(text)
    except ValueError:
        latency_us = math.nan
    if not LEAST_US <= latency_us <= MOST_US:
        limits = f"between {LEAST_US:g} and {MOST_US:g} us"
        raise StudyError(f"{where}: latency_us: {text!r} is no number {limits}", hint="microseconds, as in 412.5")
    if not row["design"]:
        raise StudyError(f"{where}: design: empty", hint="its key or its number")
    return where, row["design"], latency_us, row.get("run", "")
