"""Running a tool: what it prints goes to a file, and it is ended with everything that it started."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

from .process_tree import end_marked, end_tree, marked

MARK = "ALLO_DSE_TOOL"  # in the environment of everything that a tool starts
WATCH_SECONDS = 0.05  # between looks at the tool
GRACE_SECONDS = 2.0  # between asking a tool to end and killing it
_TAIL_BYTES = 64 << 10

Overdue = Callable[[float], str]
"""Why a tool that has run for so many seconds must be ended; empty while it may go on."""


@contextmanager
def workspace(directory: Path | None, name: str) -> Iterator[Path]:
    """A folder for one run of a tool: `name` in a directory, where it is kept, or else one that is deleted."""
    if directory is not None:
        (directory / name).mkdir(parents=True, exist_ok=True)
        yield directory / name
        return
    with tempfile.TemporaryDirectory(prefix="allo-dse-") as path:
        yield Path(path)


def within(seconds: float) -> Overdue:
    """A time limit."""
    return lambda passed: f"took longer than {seconds:g} s" if passed > seconds else ""


def run_tool(
    command: Sequence[str],
    directory: Path,
    log: Path,
    environment: Mapping[str, str],
    overdue: Overdue,
    errors: Path | None = None,
) -> int | str:
    """Run a command to its end.

    It is the head of a process group of its own. When it is overdue, and on an error here, the group is asked to end;
    then, as after its own end, everything that it started and that is still there is killed, wherever in the tree.

    Args:
        log: gets what it writes to standard output, and to standard error where that has no file of its own.
        errors: gets what it writes to standard error.

    Returns:
        The exit code, or why it was ended.
    """
    value = uuid.uuid4().hex
    with log.open("wb") as output, errors.open("wb") if errors else nullcontext(subprocess.STDOUT) as other:
        process = subprocess.Popen(
            command, cwd=directory, env={**environment, MARK: value}, stdin=subprocess.DEVNULL, stdout=output,
            stderr=other, start_new_session=True,
        )  # fmt: skip
    started = time.monotonic()
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(WATCH_SECONDS)
            if reason := overdue(time.monotonic() - started):
                return reason
    finally:
        _end(process, f"{MARK}={value}")


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """End what is left of a tool: ask first, then kill."""
    if process.returncode is None or marked(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        until = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < until and (process.poll() is None or marked(mark)):
            time.sleep(WATCH_SECONDS)
    if process.returncode is None:
        end_tree(process.pid, mark)
        process.wait()
    end_marked(mark)


def tail(log: Path) -> str:
    """The end of what a tool has printed."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace").replace("\0", "")


def printable(text: str) -> str:
    """A line of a tool as it can be shown in a message."""
    return "".join(c if c.isprintable() else "?" for c in text)[:300]


def exit_words(code: int) -> str:
    """How a tool ended that did not end well."""
    return f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
