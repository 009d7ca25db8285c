"""Running the vendor's HLS tool on a written project: which one there is, under a time limit, with all it starts."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from allo_dse.common.errors import AlloDseError

from ..processes.tool import exit_words, printable, run_tool, tail, within

LOG = "allo_dse_hls.log"


class HlsToolError(AlloDseError):
    """The HLS tool is missing, failed, took too long, or left no report."""


class Tool(Struct, frozen=True):
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
    code = run_tool(command, directory, directory / LOG, environment, within(seconds))
    if isinstance(code, str):
        raise HlsToolError(
            f"{tool.name} {code} at {' and '.join(steps)}; it was ended with all its processes",
            hint=f"raise the evaluator's seconds, or see {directory / LOG}",
        )
    if code:
        took = f"after {time.monotonic() - start:.0f} s"
        raise HlsToolError(
            f"{tool.name} {exit_words(code)} {took}: {_last_lines(directory)}", hint=f"see {directory / LOG}"
        )


def _last_lines(directory: Path) -> str:
    """What the tool said last: its errors if it names any, else its last lines."""
    lines = [line for line in tail(directory / LOG).splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith(("ERROR", "FATAL"))]
    return " / ".join(map(printable, (errors or lines)[-3:])) or "no message"
