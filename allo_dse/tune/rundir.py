"""The run directory: where a study keeps its log, what it was run with, and its results."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import StudyError

MARKER = "run.json"


def default_run_dir(name: str) -> Path:
    """`runs/<study>`, with what a file name cannot hold replaced."""
    safe = re.sub(r"[^\w.+-]+", "_", name).strip("._") or "study"
    return Path("runs") / safe


@dataclass(frozen=True)
class RunInfo:
    """What a run directory was made by: must match for a run to be resumed.

    Attributes:
        program, device, evaluator: digest and name of each.
        space: what decides the meaning of the genes in the log.
    """

    study: str
    seed: int
    program: str
    device: str
    evaluator: str
    space: dict[str, Any]
    versions: dict[str, str]
    command: list[str]

    def to_dict(self) -> dict[str, Any]:
        return dict(self.__dict__)

    def differences(self, other: RunInfo) -> list[str]:
        """What makes designs of the two runs incomparable, in words ("self" is the earlier run)."""
        found = []
        for name in ("study", "program", "device", "evaluator"):
            before, now = getattr(self, name), getattr(other, name)
            if before != now:
                found += [f"{name}: was {before}, is {now}"]
        before_space, now_space = _flat(self.space), _flat(other.space)
        for name in sorted(before_space.keys() | now_space.keys()):
            if before_space.get(name) != now_space.get(name):
                found.append(f"{name}: was {before_space.get(name, 'absent')}, is {now_space.get(name, 'absent')}")
        return found


class RunDirectory:
    """A run directory that this process has the lock of.

    Raises:
        StudyError: if another process runs a study there, or it holds something else.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        if path.exists() and not path.is_dir():
            raise StudyError(f"{path} is a file", hint="name a directory with --run-dir")
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock = os.open(path / ".lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise StudyError(f"cannot use {path} as run directory: {error.strerror}", hint="see --run-dir") from error
        self._take_lock()
        try:
            self._refuse_foreign()
            if fresh:
                self._clear()
        except BaseException:
            self.close()
            raise

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(self._lock, 32, 0).decode(errors="replace").strip() or "another process"
            os.close(self._lock)
            raise StudyError(
                f"{self.path} is in use by process {owner}", hint="wait for it, or choose another --run-dir"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _refuse_foreign(self) -> None:
        strangers = [p.name for p in self.path.iterdir() if p.name != ".lock"]
        if strangers and not (self.path / MARKER).exists() and not self.log.exists():
            raise StudyError(
                f"{self.path} is not a run directory (it holds {', '.join(sorted(strangers)[:3])})",
                hint="choose a new or empty directory with --run-dir",
            )

    def _clear(self) -> None:
        for entry in self.path.iterdir():
            if entry.is_dir():
                shutil.rmtree(entry)
            elif entry.name != ".lock":
                entry.unlink()

    @property
    def log(self) -> Path:
        return self.path / "log.jsonl"

    def earlier(self) -> RunInfo | None:
        """What the directory was made by, or None when it is new."""
        path = self.path / MARKER
        if not path.exists():
            return None
        try:
            values = json.loads(path.read_text())
            return RunInfo(**{name: values[name] for name in RunInfo.__dataclass_fields__})
        except (ValueError, KeyError, TypeError) as error:
            raise StudyError(
                f"{path} is damaged: {error}", hint="start anew with --fresh or another --run-dir"
            ) from error

    def begin(self, info: RunInfo) -> None:
        """Refuse a run that does not fit what is there; else write down what is run.

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
        self.write(MARKER, json.dumps(info.to_dict(), indent=2) + "\n")

    def write(self, name: str, text: str) -> Path:
        """Write a file of the directory so that readers see the old or the new one, never half of it."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = path.with_name(f".{path.name}.new")
        scratch.write_text(text)
        scratch.replace(path)
        return path

    def close(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def versions() -> dict[str, str]:
    """Versions of what decides a run's results."""
    from importlib.metadata import PackageNotFoundError, version

    found = {"python": sys.version.split()[0]}
    for package in ("allo-dse", "optuna", "numpy", "torch-mlir"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def _flat(space: dict[str, Any]) -> dict[str, str]:
    flat = {}
    for name, value in space.items():
        entries = value.items() if isinstance(value, dict) else [("", value)]
        for key, entry in entries:
            text = ", ".join(map(str, entry)) if isinstance(entry, list) else str(entry)
            flat[f"parameter {key}" if key else name] = text
    return flat
