"""Origin of a run directory: its file `run.json`, to resume a run or to read it without its study."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import msgspec

from allo_dse.common.errors import StudyError
from allo_dse.common.quoting import shell_command

from .certificate import Certificate

# Texts from evaluators, verifiers and users, made valid and short enough for logs, tables and pages.


TEXT_LENGTH = 4000
"""Characters of a text that are kept: more than a message needs, and a thousand of them still make a small log."""
KIND_LENGTH = 80
_DIFFERS = re.compile(r"0x[0-9a-f]+|\d+(\.\d+)?(e[+-]?\d+)?")


def valid_text(text: str, longest: int = TEXT_LENGTH) -> str:
    """A text with halves of surrogate pairs spelt out, which no encoding has, and without the middle of a long one."""
    if len(text) > longest:
        half = longest // 2
        text = f"{text[:half]} [{len(text) - 2 * half:,} characters left out] {text[-half:]}"
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def valid(value: Any) -> Any:
    """Plain data with all texts in it made valid."""
    if isinstance(value, str):
        return valid_text(value)
    if isinstance(value, dict):
        return {valid_text(str(name)): valid(entry) for name, entry in value.items()}
    return [valid(entry) for entry in value] if isinstance(value, list | tuple) else value


def error_text(error: BaseException) -> str:
    """Return an exception's type and message, even if its `__str__` fails."""
    try:
        text = str(error)
    except BaseException as another:
        if isinstance(another, KeyboardInterrupt):
            raise
        text = f"(its text cannot be had: {type(another).__name__})"
    name = type(error).__name__
    return valid_text(f"{name}: {text}" if text else name)


def shortened(text: str, longest: int) -> str:
    """A text without the end of a long one."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def failure_kind(error: str | None) -> str:
    """Return the first line of an error without its numbers, to group failures with the same reason."""
    return shortened(_DIFFERS.sub("N", (error or "failed").strip().partition("\n")[0]), KIND_LENGTH)


def failures_by_kind(errors: Iterable[str | None]) -> Counter[str]:
    """Count failures of each kind; the first text of a kind stands for it."""
    first: dict[str, str] = {}
    return Counter(first.setdefault(failure_kind(error), (error or "failed").strip()) for error in errors)


MARKER = "run.json"
_MANY = 12  # values of a parameter to list in full


class StatedObjective(msgspec.Struct, frozen=True):
    """An objective by name and direction."""

    name: str
    direction: Literal["minimize", "maximize"] = "minimize"

    @property
    def sign(self) -> float:
        """Factor that turns a value into a loss."""
        return 1.0 if self.direction == "minimize" else -1.0


class RunInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Origin of a run directory. A run can be resumed if the first four fields and the space match.

    Attributes:
        program, device, evaluator: digest and name of each.
        space: everything that decides the meaning of the genes in the log.
        command: the command line; empty when the run was started from Python.
        study_source: file, function and settings of the study, if it came from a file.
        evaluators: name, version and resource of each, cheapest first.
        storage: the storage that trials are copied to, without a password.
        certificate: decisions about the space, if the sampler decides about designs that it does not evaluate.
    """

    study: str
    program: str
    device: str
    evaluator: str
    seed: int
    space: dict[str, Any]
    versions: dict[str, str]
    command: list[str]
    objectives: list[StatedObjective] = []
    constraints: list[str] = []
    study_source: dict[str, Any] | None = None
    evaluators: list[dict[str, Any]] = []
    sampler: str = ""
    workers: int = 1
    storage: str | None = None
    certificate: Certificate | None = None

    @property
    def text(self) -> str:
        """Contents of the file."""
        return json.dumps(valid(msgspec.to_builtins(self)), indent=2) + "\n"

    @property
    def device_name(self) -> str:
        return self.device.split(" ")[0]

    @property
    def command_line(self) -> str:
        """The command that reproduces the run, for a shell."""
        return shell_command(self.command)

    @property
    def study_file(self) -> str | None:
        """File that defines the study, as stated or taken from the command line."""
        if self.study_source is not None:
            return str(self.study_source["file"])
        return next((part for part in self.command[1:] if part.endswith(".py")), None)

    @property
    def settings(self) -> dict[str, str]:
        """The arguments of the study, from the same place as its file."""
        if self.study_source is not None:
            return {str(k): str(v) for k, v in self.study_source["settings"].items()}
        pairs = [b for a, b in pairwise(self.command) if a == "--set"]
        pairs += [part.removeprefix("--set=") for part in self.command if part.startswith("--set=")]
        return dict(pair.partition("=")[::2] for pair in pairs)

    def differences(self, other: RunInfo) -> list[str]:
        """Describe the differences that make designs of two runs incomparable (`self` is the earlier run)."""
        found = []
        for name in ("study", "program", "device", "evaluator"):
            before, now = getattr(self, name), getattr(other, name)
            if before != now:
                found += [f"{name}: was {before}, is {now}"]
        before_space, now_space = _flat(self.space), _flat(other.space)
        for name in sorted(before_space.keys() | now_space.keys()):
            if before_space.get(name) != now_space.get(name):
                found.append(f"{name}: {_change(before_space.get(name), now_space.get(name))}")
        return found


def read_info(directory: Path) -> RunInfo:
    """Read the origin of a run directory.

    Raises:
        StudyError: when it is none, or its file is damaged.
    """
    path = directory / MARKER
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunInfo)
    except FileNotFoundError:
        raise StudyError(
            f"{directory} is not a run directory: it has no {MARKER}", hint="runs are kept in runs/<study> by default"
        ) from None
    except OSError as error:
        raise StudyError(f"cannot read {path}: {error.strerror}") from error
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise StudyError(f"{path} is damaged: {error}", hint="start anew with --fresh or another --run-dir") from error


def _flat(space: dict[str, Any]) -> dict[str, object]:
    flat = {}
    for name, value in space.items():
        entries = value.items() if isinstance(value, dict) else [("", value)]
        for key, entry in entries:
            flat[f"parameter {key}" if key else name] = entry
    return flat


def _change(before: object, now: object) -> str:
    """Describe a change; for long lists, only the elements that are gone or new."""
    if isinstance(before, list) and isinstance(now, list) and max(len(before), len(now)) > _MANY:
        olds, news = dict.fromkeys(map(str, before)), dict.fromkeys(map(str, now))
        gone, new = [one for one in olds if one not in news], [one for one in news if one not in olds]
        changes = [f"without {_some(gone)}"] * bool(gone) + [f"now also {_some(new)}"] * bool(new)
        return ", ".join(changes) or "in another order"
    return f"was {_some(before)}, is {_some(now)}"


def _some(entry: object) -> str:
    if not isinstance(entry, list):
        return "absent" if entry is None else str(entry)
    rest = f", ... ({len(entry):,} values)" if len(entry) > _MANY else ""
    return ", ".join(map(str, entry[:_MANY])) + rest


def first_line(error: BaseException) -> str:
    """Return the first line of an error's text."""
    return str(error).strip().partition("\n")[0]
