"""Processes and what they started, on Linux: found through /proc, ended as a whole."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
END_SECONDS = 5.0


def adopt_orphans() -> None:
    """Make grandchildren whose parents exit children of this process, so that they stay in its tree."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Every process below one, nearest first."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and (parent := _parent(entry)) is not None:
            children.setdefault(parent, []).append(int(entry.name))
    found, position = [pid], 0
    while position < len(found):
        found += children.get(found[position], [])
        position += 1
    return found[1:]


def _parent(entry: Path) -> int | None:
    try:
        # The name, in parentheses, may hold anything; the state and the parent follow the last one.
        state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return None
    return None if state == "Z" else int(parent)


def resident_bytes(pids: list[int]) -> int:
    """Memory that processes have in use, in bytes; shared pages count once for each."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, IndexError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return total


def marked(mark: str) -> list[int]:
    """Processes that were started with a `name=value` in their environment, wherever in the tree they are now."""
    wanted = mark.encode() + b"\0"
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                if wanted in (entry / "environ").read_bytes() and _parent(entry) is not None:
                    found.append(int(entry.name))
    return found


def end_tree(pid: int, mark: str) -> None:
    """Kill a child of this process with everything it started, and wait until that is gone.

    The child is stopped first, so that it cannot start anything while its tree is looked at. What has left the tree,
    because its parents have exited, is known by the `mark` in its environment.
    """
    _send(pid, signal.SIGSTOP)
    _end_all(lambda: {*descendants(pid), *marked(mark)} - {pid})
    _send(pid, signal.SIGKILL)


def end_marked(mark: str) -> None:
    """Kill what has a mark in its environment, and wait until that is gone."""
    _end_all(lambda: marked(mark))


def _end_all(look: Callable[[], Collection[int]]) -> None:
    """Kill processes until there are none left."""
    until = time.monotonic() + END_SECONDS
    while (found := look()) and time.monotonic() < until:
        for process in found:
            _send(process, signal.SIGKILL)
        time.sleep(0.005)


def end_descendants() -> None:
    """Kill everything this process started."""
    for pid in descendants(os.getpid()):
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
