"""The run directory, with a study's log, its settings and its results."""

from __future__ import annotations

import csv
import difflib
import fcntl
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from allo_dse.common.errors import RunDirectoryError, StudyError
from allo_dse.common.files import write_whole
from allo_dse.common.quoting import file_name
from allo_dse.common.records import replace

from .certificate import Certificate
from .log import disk_full, same_file
from .run_info import MARKER, RunInfo, read_info

RUNS = Path("runs")
"""Default folder of runs; it does not exist before the first one."""
LOCK = ".lock"
LOG = "log.jsonl"
LOGS = "logs"
MOST_KEPT = 100  # replacements for a directory that is deleted again and again
ANOTHER = "--run-dir (of a network --cache)"
LOCK_SECONDS = 10.0  # to wait for readers: `running` shares the lock for a moment


def default_run_dir(name: str, settings: Mapping[str, str] | None = None) -> Path:
    """Return `runs/<study>`, or `runs/<study>-<setting>_<value>` if settings were given.

    So runs of other sizes or on other devices do not collide. Characters that file names cannot hold are replaced.
    """
    chosen = [f"-{setting}_{value}" for setting, value in sorted((settings or {}).items())]
    return RUNS / file_name("".join([name, *chosen]), "study")


def find_run(path: Path | None) -> Path:
    """The run directory a person means: the one given, also by its name in `runs`, or the newest there.

    Raises:
        StudyError: when there is none.
    """
    found = sorted(RUNS.glob(f"*/{MARKER}"), key=lambda p: p.stat().st_mtime)
    if path is not None:
        for place in (path, RUNS / path):
            if (place / MARKER).exists():
                return place
        known = {one.parent.name: one.parent for one in found}
        near = difflib.get_close_matches(path.name, known, 1)
        hint = f"did you mean {known[near[0]]}?" if near else "`allo-tune list` shows the runs in runs/"
        raise StudyError(f"{path} is not a run directory: it has no {MARKER}", hint=hint)
    if not found:
        raise StudyError("there is no run in runs/", hint="name a run directory, or run a study first")
    return found[-1].parent


def running(path: Path) -> int | None:
    """Return the id of the process that runs a study in a directory, 0 if it is unknown, or None."""
    try:
        lock = os.open(path / LOCK, os.O_RDONLY)
    except OSError:
        return None
    try:
        if _try_lock(lock, fcntl.LOCK_SH):
            return None
        owner = os.pread(lock, 32, 0).decode(errors="replace").strip()
        return int(owner) if owner.isdecimal() else 0
    finally:
        os.close(lock)


def _try_lock(descriptor: int, kind: int) -> bool:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class RunDirectory:
    """A run directory that this process has the lock of.

    Raises:
        StudyError: if another process runs a study there, or it holds something else.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._info: RunInfo | None = None
        self._is_new = not path.exists()
        if path.exists() and not path.is_dir():
            raise RunDirectoryError(f"{path} is a file", hint=f"name a directory with {ANOTHER}")
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._refuse_foreign()  # before writing into someone else's directory
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise disk_full(path, error) or RunDirectoryError(
                f"cannot use {path} as run directory: {error.strerror}", hint=f"choose another with {ANOTHER}"
            ) from error
        self._take_lock()

    def _take_lock(self) -> None:
        until = time.monotonic() + LOCK_SECONDS
        while not _try_lock(self._lock, fcntl.LOCK_EX):
            if not _try_lock(self._lock, fcntl.LOCK_SH) or time.monotonic() > until:
                owner = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "another process"
                os.close(self._lock)
                hint = f"wait for it, or choose another with {ANOTHER}"
                raise RunDirectoryError(f"{self.path} is in use by process {owner}", hint=hint)
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            time.sleep(0.01)
        if not self.is_there:  # the previous owner has removed the directory
            os.close(self._lock)
            raise RunDirectoryError(f"{self.path} was in use until now", hint="start again")
        try:
            os.ftruncate(self._lock, 0)
            os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            self.close()
            raise (disk_full(self.path, error) or error) from error

    def _refuse_foreign(self) -> None:
        strangers = [p.name for p in self.path.iterdir() if p.name != LOCK and not p.name.startswith(f".{MARKER}.")]
        if strangers and not (self.path / MARKER).exists() and not self.log.exists():
            raise RunDirectoryError(
                f"{self.path} is not a run directory (it holds {', '.join(sorted(strangers)[:3])})",
                hint=f"choose a new or empty directory with {ANOTHER}",
            )

    def clear(self) -> None:
        """Delete the contents. Links are removed, but not the folders that they point to."""
        for entry in sorted(self.path.iterdir(), key=lambda one: one.name == MARKER):  # the marker last
            if entry.is_dir() and not entry.is_symlink():
                shutil.rmtree(entry)
            elif entry.name != LOCK:
                entry.unlink()

    @property
    def log(self) -> Path:
        return self.path / LOG

    def earlier(self) -> RunInfo | None:
        """Return the origin of the directory, or None when it is new."""
        return read_info(self.path) if (self.path / MARKER).exists() else None

    def begin(self, info: RunInfo) -> None:
        """Refuse a run that does not match the directory; else write its `run.json`.

        Raises:
            StudyError: naming everything that differs.
        """
        earlier = self.earlier()
        if earlier is not None:
            differences = earlier.differences(info)
            if differences:
                raise StudyError(
                    f"{self.path} holds a run of something else:\n    " + "\n    ".join(differences),
                    hint="--fresh discards that run, another --run-dir keeps it",
                )
        self._info = info
        self.write(MARKER, info.text)

    @property
    def is_there(self) -> bool:
        """True if the directory is still the one that this process has locked."""
        return same_file(self.path / LOCK, self._lock)

    def settle_elsewhere(self) -> None:
        """Continue in a new directory beside the one that was deleted or replaced, or in the temporary folder.

        Raises:
            StudyError: when there is no room for it.
        """
        self.close()
        for number in range(1, MOST_KEPT + 1):
            path = self.path.with_name(f"{self.path.name}.kept{number}")
            try:
                if number == MOST_KEPT:
                    path = Path(tempfile.mkdtemp()) / self.path.name
                path.mkdir(parents=True)
            except OSError:
                continue
            self.path = path
            self._lock = os.open(path / LOCK, os.O_RDWR | os.O_CREAT, 0o644)
            self._take_lock()
            if self._info is not None:
                self.write(MARKER, self._info.text)
            return
        raise StudyError(f"{self.path} is gone, and nothing can be kept beside it or in {tempfile.gettempdir()}")

    def certify(self, certificate: Certificate) -> None:
        """Add the decisions about the space to `run.json`."""
        if self._info is not None:
            self.write(MARKER, replace(self._info, certificate=certificate).text)

    def write(self, name: str, text: Iterable[str]) -> Path:
        """Write a file of the directory so that readers see the old or the new one, never half of it."""
        path = self.path / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, text)
        except OSError as error:
            raise (disk_full(path, error) or error) from error
        return path

    def close(self) -> None:
        """Release the lock; remove a new directory in which nothing was begun."""
        if self._lock >= 0:
            if self._is_new and self.is_there and [entry.name for entry in self.path.iterdir()] == [LOCK]:
                shutil.rmtree(self.path)
            os.close(self._lock)
            self._lock = -1


def versions() -> dict[str, str]:
    """Return the versions of software that affects a run's results."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": sys.version.split()[0]}
    for package in ("allo-dse", "optuna", "numpy", "torch-mlir"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def read_csv(path: Path, hint: str) -> tuple[list[str], list[tuple[str, dict[str, str]]]]:
    """Return the columns of a CSV file, and the place and the cells of each row, without space around them.

    Raises:
        StudyError: for a file that is none, and a line with more or fewer values than columns; with this hint.
    """
    rows = []
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            table = csv.DictReader(file)
            table.fieldnames = columns = [name.strip() for name in table.fieldnames or ()]
            for row in table:
                where = f"{path}:{table.line_num}"
                if None in row or None in row.values():
                    raise StudyError(f"{where}: the numbers of values and of columns differ", hint=hint)
                rows.append((where, {name: text.strip() for name, text in row.items()}))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise StudyError(f"{path}: cannot be read as CSV in UTF-8: {error}", hint=hint) from None
    if twice := [name for name in dict.fromkeys(columns) if columns.count(name) > 1]:
        raise StudyError(f"{path}:1: more than one column {', '.join(map(repr, twice))}", hint=hint)
    return columns, rows
