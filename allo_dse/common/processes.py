"""Processes and everything they started, ended as a whole."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import psutil

_PR_SET_CHILD_SUBREAPER = 36
END_SECONDS = 5.0


def adopt_orphans() -> None:
    """Make grandchildren whose parents exit children of this process, so that they stay in its tree."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[psutil.Process]:
    """Return every process below one that has not ended."""
    with contextlib.suppress(psutil.Error):
        return [process for process in psutil.Process(pid).children(recursive=True) if has_not_ended(process)]
    return []


def has_not_ended(process: psutil.Process) -> bool:
    """Return whether a process runs, rather than only waiting for its parent to collect its exit status."""
    with contextlib.suppress(psutil.Error):
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    return False


def tree_bytes(pid: int) -> int:
    """Return the memory that a process and all below it have in use, in bytes; shared pages count once for each."""
    total = 0
    for one in (pid, *(process.pid for process in descendants(pid))):
        with contextlib.suppress(psutil.Error):
            total += psutil.Process(one).memory_info().rss
    return total


def marked(mark: str) -> list[psutil.Process]:
    """Return processes that were started with a `name=value` in their environment, wherever in the tree they are."""
    name, _, value = mark.partition("=")
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(name) == value and has_not_ended(process):
                found.append(process)
    return found


def end_tree(pid: int, mark: str) -> None:
    """Kill a child of this process with everything it started, and wait until that is gone.

    The child is stopped first, so that it cannot start anything while its tree is looked at. What has left the tree,
    because its parents have exited, is known by the `mark` in its environment.
    """
    with contextlib.suppress(psutil.Error):
        psutil.Process(pid).suspend()
    _end_all(lambda: [p for p in {*descendants(pid), *marked(mark)} if p.pid != pid])
    with contextlib.suppress(psutil.Error):
        psutil.Process(pid).kill()


def end_descendants() -> None:
    """Kill everything this process started."""
    _kill(descendants(os.getpid()))


def _end_all(look: Callable[[], Iterable[psutil.Process]]) -> None:
    """Kill processes until none is left."""
    until = time.monotonic() + END_SECONDS
    while (found := list(look())) and time.monotonic() < until:
        _kill(found)
        time.sleep(0.005)


def _kill(processes: Iterable[psutil.Process]) -> None:
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()


def usable_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):  # not available on every system
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def collect_rarely() -> None:
    """Look for reference cycles seldom: a search makes many objects but hardly any cycles, and looking takes time."""
    gc.freeze()
    gc.set_threshold(200_000, 20, 50)


@contextmanager
def rare_collections() -> Iterator[None]:
    """The same for a while."""
    before = gc.get_threshold()
    collect_rarely()
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


@contextmanager
def no_collections() -> Iterator[None]:
    """While much is read that stays: looking for cycles in it again and again takes up to a fifth of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if before:
            gc.enable()


# Python subprocesses import the same modules as this process.


def python_running(module: str, *arguments: str) -> list[str]:
    """A command that calls `main` of a module, which finds its arguments from `sys.argv[1]` on.

    The module path is not passed in PYTHONPATH: tools that the process starts would use it too, perhaps in another
    version of Python.
    """
    code = f"import sys; sys.path[:] = sys.argv[{1 + len(arguments)}:]; from {module} import main; main()"
    return [sys.executable, "-c", code, *arguments, *(place or os.getcwd() for place in sys.path)]


def limit_memory(amount: int) -> None:
    """Limit this process, and each that it starts, to `amount` bytes beyond its present memory."""
    with open("/proc/self/statm") as file:
        data_pages = int(file.read().split()[5])
    limit, most = data_pages * os.sysconf("SC_PAGE_SIZE") + amount, resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))


# A tool's output goes to a file. When it is ended, so is everything that it has started.


MARK = "ALLO_DSE_TOOL"  # in the environment of everything that a tool starts
WATCH_SECONDS = 0.05  # between looks at the tool
GRACE_SECONDS = 2.0  # between asking a tool to end and killing it
_TAIL_BYTES = 64 << 10

Overdue = Callable[[float], str]
"""Returns why a tool must be ended after these seconds; empty while it may go on."""


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
    """End all remaining processes of a tool: ask first, then kill."""
    if process.returncode is None or marked(mark):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGTERM)
        until = time.monotonic() + GRACE_SECONDS
        while time.monotonic() < until and (process.poll() is None or marked(mark)):
            time.sleep(WATCH_SECONDS)
    if process.returncode is None:
        end_tree(process.pid, mark)
        process.wait()
    _end_all(lambda: marked(mark))


def tail(log: Path) -> str:
    """The end of a tool's output."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
        return file.read().decode("utf-8", "replace").replace("\0", "")


def printable(text: str) -> str:
    """A line of a tool as it can be shown in a message."""
    return "".join(c if c.isprintable() else "?" for c in text)[:300]


def exit_words(code: int) -> str:
    """Describe the exit of a tool that failed."""
    return f"was ended by signal {-code}" if code < 0 else f"failed with exit code {code}"
