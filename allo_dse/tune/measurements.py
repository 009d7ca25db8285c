"""Measured designs: from a CSV that names designs of a run, or from the rungs of a run that ran on hardware."""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from allo_dse.common.errors import StudyError
from allo_dse.common.records import Frozen, replace
from allo_dse.device.device import Device
from allo_dse.eval.calibrate.calibration import Measurement, tunable_of
from allo_dse.eval.calibrate.correction import LEAST_US, MOST_US, measured_us
from allo_dse.space.design import Design

from .earlier_runs import Replayer
from .store.record import Record
from .store.rundir import find_run

COLUMNS = ("design", "latency_us", "run")
"""Columns of a CSV: a design's key or number, its time, and its run directory relative to the CSV (or none)."""

_COLUMNS_HINT = "columns: design (key or number), latency_us, and run where designs are of several runs"
_SHORTEST_KEY = 4


class _Row(Frozen):
    """A row of a CSV."""

    where: str
    design: str
    latency_us: float
    run: str


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
    rows = list(_rows(path))
    with ExitStack() as opened:
        runs: dict[str, _Run] = {}
        found = []
        for row in rows:
            if row.run not in runs:
                folder = find_run(path.parent / row.run if row.run else run)
                runs[row.run] = _Run(opened.enter_context(Replayer(folder, study_file)))
            design = runs[row.run].design(row)
            found.append(Measurement(design, row.latency_us, f"{row.where}: {row.design}"))
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

    def design(self, row: _Row) -> Design:
        return self._replayer.candidate(self._record(row)).design

    def _record(self, row: _Row) -> Record:
        wanted = row.design.removeprefix("#").lower()
        if wanted in self._numbers:
            return self._numbers[wanted]
        keys = [key for key in self._records if key.startswith(wanted)] if len(wanted) >= _SHORTEST_KEY else []
        if len(keys) == 1:
            return self._records[keys[0]]
        near = difflib.get_close_matches(wanted, self._records, 1)
        raise StudyError(
            f"{row.where}: {self._replayer.path} has {'several designs' if keys else 'no design'} {row.design!r}",
            hint=f"did you mean {near[0]}?" if near else "`allo-tune pareto --csv` lists designs by key and number",
        )


def _rows(path: Path) -> Iterator[_Row]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            given = reader.fieldnames or []
            if twice := [name for name in dict.fromkeys(given) if given.count(name) > 1]:
                raise StudyError(f"{path}:1: more than one column {', '.join(map(repr, twice))}", hint=_COLUMNS_HINT)
            if unknown := [name for name in given if name not in COLUMNS]:
                raise StudyError(f"{path}:1: unknown column {unknown[0]!r}", hint=_COLUMNS_HINT)
            if missing := [name for name in COLUMNS[:2] if name not in given]:
                raise StudyError(f"{path}:1: no column {missing[0]!r}", hint=_COLUMNS_HINT)
            for row in reader:
                yield _row(row, f"{path}:{reader.line_num}")
    except OSError as error:
        raise StudyError(f"{path}: cannot be read: {error.strerror}", hint="a CSV, or a run directory") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise StudyError(f"{path}: not a CSV in UTF-8: {error}", hint=_COLUMNS_HINT) from None


def _row(row: dict[str, str], where: str) -> _Row:
    if None in row or None in row.values():
        raise StudyError(f"{where}: the numbers of values and of columns differ", hint=_COLUMNS_HINT)
    text = row["latency_us"].strip()
    try:
        latency_us = float(text)
    except ValueError:
        latency_us = math.nan
    if not LEAST_US <= latency_us <= MOST_US:
        limits = f"between {LEAST_US:g} and {MOST_US:g} us"
        raise StudyError(f"{where}: latency_us: {text!r} is no number {limits}", hint="microseconds, as in 412.5")
    if not row["design"].strip():
        raise StudyError(f"{where}: design: empty", hint="its key or its number")
    return _Row(where, row["design"].strip(), latency_us, (row.get("run") or "").strip())
