"""What a run directory says about itself, without running any code of the study."""

from __future__ import annotations

import csv
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

from allo_dse.errors import StudyError

Direction = Literal["minimize", "maximize"]
_USUAL_OBJECTIVES = ("latency_us", "pe_count", "local_memory_bytes")


@dataclass(frozen=True)
class ObjectiveFact:
    """An objective by name and direction."""

    name: str
    direction: Direction

    @property
    def sign(self) -> float:
        """Factor that turns a value into a loss."""
        return 1.0 if self.direction == "minimize" else -1.0


@dataclass(frozen=True)
class RunFacts:
    """The contents of `run.json`, as far as they are known.

    Attributes:
        device: the device's name.
        command: the command line that started the run; empty when it was started from Python.
        study_file, settings: where the study is defined, and its arguments; reading a run never executes it.
    """

    study: str
    device: str
    evaluator: str = ""
    seed: int | None = None
    program: str = ""
    objectives: tuple[ObjectiveFact, ...] = ()
    constraints: tuple[str, ...] = ()
    space: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, str] = field(default_factory=dict)
    command: tuple[str, ...] = ()
    study_file: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def command_line(self) -> str:
        """The command that reproduces the run, for a shell."""
        return shlex.join(self.command)


def read_facts(directory: Path) -> RunFacts:
    """What made a run directory.

    Raises:
        StudyError: if it is not a run directory, or its `run.json` is damaged.
    """
    path = directory / "run.json"
    if not path.exists():
        raise StudyError(
            f"{directory} is not a run directory: it has no run.json", hint="runs are kept in runs/<study> by default"
        )
    try:
        values = json.loads(path.read_text())
        if not isinstance(values, dict):
            raise ValueError("not an object")
    except ValueError as error:
        raise StudyError(f"{path} is damaged: {error}", hint="run the study again with --fresh") from error
    try:
        return _facts(directory, values)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StudyError(f"{path} is damaged: {error}", hint="run the study again with --fresh") from error


def _facts(directory: Path, values: dict[str, Any]) -> RunFacts:
    command = tuple(map(str, values.get("command") or ()))
    file, settings = _source(values.get("study_source") or values.get("source"), command)
    return RunFacts(
        study=str(values.get("study", directory.name)),
        device=str(values.get("device", "")).split(" ")[0],
        evaluator=str(values.get("evaluator", "")),
        seed=values.get("seed"),
        program=str(values.get("program", "")),
        objectives=_objectives(values.get("objectives"), directory),
        constraints=tuple(map(str, values.get("constraints") or ())),
        space=values.get("space") or {},
        versions=values.get("versions") or {},
        command=command,
        study_file=file,
        settings=settings,
    )


def _objectives(stated: Any, directory: Path) -> tuple[ObjectiveFact, ...]:
    """As stated; of older runs those of the table of results, or the metrics that studies usually minimise."""
    if stated:
        return tuple(ObjectiveFact(str(o["name"]), o.get("direction", "minimize")) for o in stated)
    table = directory / "pareto.csv"
    if table.exists():
        with table.open(newline="") as file:
            names = next(csv.reader(file), [])
        usual = [name for name in names if name in _USUAL_OBJECTIVES]
        return tuple(ObjectiveFact(name, "minimize") for name in usual)
    return tuple(ObjectiveFact(name, "minimize") for name in _USUAL_OBJECTIVES)


def _source(stated: Any, command: tuple[str, ...]) -> tuple[str | None, dict[str, str]]:
    """The study's file and settings: as stated, or taken from the command line."""
    if isinstance(stated, dict) and stated.get("file"):
        return str(stated["file"]), {str(k): str(v) for k, v in (stated.get("settings") or {}).items()}
    file = next((part for part in command[1:] if part.endswith(".py")), None)
    pairs = [b for a, b in pairwise(command) if a == "--set"]
    pairs += [part.removeprefix("--set=") for part in command if part.startswith("--set=")]
    return file, dict(pair.partition("=")[::2] for pair in pairs)
