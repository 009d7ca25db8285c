"""Designs measured by any command that reads a folder and writes JSON."""

from __future__ import annotations

import hashlib
import json
import math
import os
import shlex
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from allo_dse.common.errors import AlloDseError
from allo_dse.common.processes import Overdue, exit_words, printable, run_tool, tail, within, workspace
from allo_dse.space.design import Design

from .backend import Sources
from .evaluator import Metrics

PLACEHOLDER = "{design}"
REFUSED = 65
"""Exit code of a command that cannot take a design, as opposed to one that failed (EX_DATAERR of sysexits.h)."""
LOG, ERRORS = "output.txt", "errors.txt"
METRICS = "metrics.json"
_MARGIN_S = 60.0
_SHOWN_LINES = 3


class CommandError(AlloDseError):
    """A command that is malformed, failed, took too long, or left no metrics."""


class DesignRefused(CommandError):
    """A command that ran well and rejected the design."""


class Command:
    """Runs a command on a folder with the design, and reads the metrics that it writes.

        Study(..., evaluator=Command("./measure.sh {design}"))                    # every design
        Study(..., rungs=[Command("./measure.sh {design}", top=16)])              # 16 of the simulator's

    The folder holds `design.json`, `parameters.json`, `mapping.py` and the program (see docs/hardware.md). The command
    writes one JSON object of metrics, as the last line of its standard output or to `metrics.json` in the folder, and
    exits with 0, with 65 when the design is none it can take, or with anything else when it failed.

    Args:
        command: split as a shell does, but run without one; `{design}` stands for the folder.
        name: what its results are called.
        seconds: time limit per design, after which it is ended with all that it started.
        resource: the Ray resource that its workers must have.
        version: by default a digest of the command and of the files that it names.
        directory: where folders are kept, by the design's key; by default they are deleted.
        top: as a rung, how many designs are promoted to it.
        cwd: where it runs; by default where this object was made.
    """

    isolate = noisy = True

    def __init__(
        self,
        command: str,
        *,
        name: str = "command",
        seconds: float = 3600.0,
        resource: str | None = None,
        version: str | None = None,
        directory: str | Path | None = None,
        top: int | None = None,
        cwd: str | Path | None = None,
    ) -> None:
        self.command, self.name, self.seconds, self.resource, self.top = command, name, seconds, resource, top
        self.directory = None if directory is None else Path(directory).absolute()
        self.cwd = Path(cwd or Path.cwd()).absolute()
        self.words = _words(command)
        self.reference: Callable[..., Any] | None = None
        if not version:  # a hash of the command and of the files that it names
            digest = hashlib.sha256(command.encode())
            for path in (self.cwd / word for word in self.words):
                if path.is_file():
                    digest.update(path.read_bytes())
            version = digest.hexdigest()[:8]
        self.version = version

    @property
    def deadline_s(self) -> float:
        """Time limit of one design in seconds: the command's own limit, and time to write and read files."""
        return self.seconds + _MARGIN_S

    def bind(self, reference: Callable[..., Any] | None) -> None:
        """Take the study's reference, to be written beside the program."""
        self.reference = self.reference or reference

    def unavailable(self) -> str | None:
        """Return the reason why the command cannot run here; None if it can."""
        if self._program() is not None:
            return None
        if (self.cwd / self.words[0]).is_file():
            return f"{self.words[0]} is not executable: chmod +x {self.words[0]}"
        return f"there is no {self.words[0]}: looked in {self.cwd if '/' in self.words[0] else 'the folders of PATH'}"

    def evaluate(self, design: Design) -> Metrics:
        """Return the metrics of one design: the command's own, and those of the mapping for the rest.

        Raises:
            DesignRefused: if the command rejects the design.
            CommandError: if it fails, takes too long, or leaves no metrics.
        """
        with workspace(self.directory, design.key) as folder:
            from .design_folder import artifacts_of, design_files, write_files  # slow to import: it runs programs

            write_files(design_files(design, artifacts_of(design, Sources(self.reference))), folder)
            words = [word.replace(PLACEHOLDER, str(folder)) for word in self.words]
            found = self._call(words, folder, self._overdue(folder))
        decided = {
            "pe_count": design.vmg.node_count,
            **design.mapping.facts,
        }  # need no run: commands may measure time only
        return Metrics(**{**decided, **found, "evaluator": f"{self.name} {self.version}"})

    def _overdue(self, folder: Path) -> Overdue:
        """Return the time limit of the run in a folder."""
        return within(self.seconds)

    def _call(self, words: Sequence[str], folder: Path, overdue: Overdue) -> dict[str, Any]:
        """Run a command in a design's folder and read its metrics; print its output if it fails."""
        program = self._program(words[0])
        if program is None:
            raise CommandError(f"{self.name} cannot run: {self.unavailable()}")
        (folder / METRICS).unlink(missing_ok=True)
        environment = {**os.environ, "ALLO_DSE_DESIGN": str(folder)}
        code = run_tool([program, *words[1:]], self.cwd, folder / LOG, environment, overdue, folder / ERRORS)
        try:
            if code == 0:
                return _read(folder)
            self._complain(code, folder)
        except AlloDseError:
            print(tail(folder / LOG) + tail(folder / ERRORS), flush=True)  # the parent process keeps it
            raise

    def _complain(self, code: int | str, folder: Path) -> NoReturn:
        said = last_words(folder)
        if isinstance(code, str):
            raise CommandError(
                f"{self.name} {code} and was ended with all its processes: {said}", hint="raise its seconds"
            )
        if code == REFUSED:
            raise DesignRefused(f"{self.name} refuses the design: {said}")
        raise CommandError(f"{self.name} {exit_words(code)}: {said}")

    def _program(self, word: str | None = None) -> str | None:
        word = word or self.words[0]
        return shutil.which(str(self.cwd / word) if "/" in word else word)


def located(command: str) -> str:
    """Return a command whose program is found from every working directory."""
    program, *others = _words(command)
    return shlex.join([str(Path(program).absolute()) if "/" in program else program, *others])


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise CommandError(f"the command {command!r} cannot be read: {error}") from error
    if not any(PLACEHOLDER in word for word in words):
        raise CommandError(
            f"the command {command!r} is not told where the design is", hint=f'"./measure.sh {PLACEHOLDER}"'
        )
    return words


def _read(folder: Path) -> dict[str, Any]:
    """The metrics that a command has left.

    Raises:
        CommandError: if there are none.
    """
    written = folder / METRICS
    if written.exists():
        text, place = written.read_text(errors="replace"), METRICS
    else:
        lines = [line for line in tail(folder / LOG).splitlines() if line.strip()]
        text, place = (lines[-1] if lines else ""), "its last line"
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict) or not found:
        raise CommandError(
            f"{place} is no JSON object of metrics: {printable(text) or 'nothing'}",
            hint='print for example {"latency_us": 12.5} at the end',
        )
    wrong = [name for name, value in found.items() if isinstance(value, float) and not math.isfinite(value)]
    if wrong:
        raise CommandError(f"{place} gives no number for {', '.join(map(printable, wrong))}")
    return found


def last_words(folder: Path) -> str:
    """Return the last lines that a command printed, of its errors if there are any."""
    text = tail(folder / ERRORS).strip() or tail(folder / LOG)
    lines = [line for line in text.splitlines() if line.strip()]
    return " / ".join(map(printable, lines[-_SHOWN_LINES:])) or "no message"
