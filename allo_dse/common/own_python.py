"""Processes of our own: Python that finds what this process does."""

from __future__ import annotations

import os
import resource
import sys


def python_running(module: str, *arguments: str) -> list[str]:
    """A command that calls `main` of a module, which finds its arguments from `sys.argv[1]` on.

    Where modules are found is not said in PYTHONPATH, which tools that the process starts would take for theirs, in a
    Python of another version.
    """
    code = f"import sys; sys.path[:] = sys.argv[{1 + len(arguments)}:]; from {module} import main; main()"
    return [sys.executable, "-c", code, *arguments, *(place or os.getcwd() for place in sys.path)]


def limit_memory(amount: int) -> None:
    """Let this process, and each that it starts, allocate so many bytes beyond what it has now."""
    with open("/proc/self/statm") as file:
        data_pages = int(file.read().split()[5])
    limit, most = data_pages * os.sysconf("SC_PAGE_SIZE") + amount, resource.getrlimit(resource.RLIMIT_DATA)[1]
    limit = limit if most == resource.RLIM_INFINITY else min(limit, most)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
