"""Running the vendor's HLS tool on a written project: which one there is, under a time limit, with all it starts."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allo_dse.errors import AlloDseError

LOG = "allo_dse_hls.log"
_TAIL_BYTES = 4000
_GRACE_S = 2.0


class HlsToolError(AlloDseError):
    """The HLS tool is missing, failed, took too long, or left no report."""


@dataclass(frozen=True)
class Tool:
    """An HLS tool: its program, and how it is started on a project's script.

    Attributes:
        arguments: before the steps.
        steps_in_environment: the script reads the steps from the variable STEPS, not from its arguments.
    """

    name: str
    arguments: tuple[str, ...]
    steps_in_environment: bool = False


TOOLS = (
    Tool("vitis_hls", ("-f", "run_hls.tcl")),
    Tool("vitis-run", ("--mode", "hls", "--tcl", "run_hls.tcl"), steps_in_environment=True),
)
"""Until 2024.1 the tool is `vitis_hls`; 2024.2 and later have `vitis-run`, which comes with `v++`."""


def find_tool() -> tuple[Tool, str] | None:
    """The first tool on PATH, with its path; `vitis-run` is also found beside a `v++`."""
    beside = shutil.which("v++")
    for tool in TOOLS:
        found = shutil.which(tool.name)
        if found is None and beside is not None:
            found = shutil.which(tool.name, path=str(Path(beside).resolve().parent))
        if found is not None:
            return tool, found
    return None


def unavailable() -> str | None:
    """Why no HLS tool can be run here, and what to do; None if one can."""
    if find_tool() is not None:
        return None
    names = " or ".join(tool.name for tool in TOOLS)
    return f"no HLS tool on PATH ({names}): source settings64.sh of Vitis, or install it"


def run_steps(directory: Path, steps: Sequence[str], *, seconds: float) -> None:
    """Run steps ("csynth", "cosim") of a project; what the tool prints goes to `allo_dse_hls.log` there.

    The tool is the head of a process group of its own, which is ended as a whole: at the limit, on an error here, and
    when the tool has ended but not all that it started.

    Raises:
        HlsToolError: if there is no tool, it fails, or it takes longer.
    """
    found = find_tool()
    if found is None:
        raise HlsToolError("there is no HLS tool here", hint=unavailable() or "")
    tool, program = found
    command = [program, *tool.arguments, *(() if tool.steps_in_environment else steps)]
    environment = {**os.environ, "STEPS": " ".join(steps)} if tool.steps_in_environment else dict(os.environ)
    start = time.monotonic()
    code = _run(command, directory, environment, seconds)
    if code is None:
        raise HlsToolError(
            f"{tool.name} took longer than {seconds:g} s at {' and '.join(steps)}; it was ended with all its processes",
            hint=f"raise the evaluator's seconds, or see {directory / LOG}",
        )
    if code:
        took = f"after {time.monotonic() - start:.0f} s"
        how = f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
        raise HlsToolError(f"{tool.name} {how} {took}: {_last_lines(directory)}", hint=f"see {directory / LOG}")


def _run(command: Sequence[str], directory: Path, environment: Mapping[str, str], seconds: float) -> int | None:
    """The exit code, or None at the limit."""
    with (directory / LOG).open("wb") as log:
        process = subprocess.Popen(
            command,
            cwd=directory,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_group(process)


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End everything that is left of a process group: ask first, then kill."""
    for sign, patience in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
        try:
            os.killpg(process.pid, sign)
        except (ProcessLookupError, PermissionError):
            break
        deadline = time.monotonic() + patience
        while time.monotonic() < deadline and _is_alive(process):
            time.sleep(0.02)
    process.wait()


def _is_alive(process: subprocess.Popen[bytes]) -> bool:
    process.poll()
    try:
        os.killpg(process.pid, 0)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _last_lines(directory: Path) -> str:
    """What the tool said last: its errors if it names any, else its last lines."""
    path = directory / LOG
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
        lines = [line for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "FATAL"))]
    shown = (errors or lines)[-3:]
    return " / ".join("".join(c if c.isprintable() else "?" for c in line)[:300] for line in shown) or "no message"
