"""Processes and everything they started, ended as a whole."""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Callable, Iterable

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
        return [process for process in psutil.Process(pid).children(recursive=True) if _has_not_ended(process)]
    return []


def _has_not_ended(process: psutil.Process) -> bool:
    """Tell processes that run from those that only wait for their parents to ask how they ended."""
    with contextlib.suppress(psutil.Error):
        return bool(process.status() != psutil.STATUS_ZOMBIE)
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
            if process.environ().get(name) == value and _has_not_ended(process):
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


def end_marked(mark: str) -> None:
    """Kill every process that has a mark in its environment, and wait until it is gone."""
    _end_all(lambda: marked(mark))


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
