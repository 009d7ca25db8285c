"""Processes of our own: Python that finds what this process does."""

from __future__ import annotations

import os
import sys


def python_running(module: str, *arguments: str) -> list[str]:
    """A command that calls `main` of a module, which finds its arguments from `sys.argv[1]` on.

    Where modules are found is not said in PYTHONPATH, which tools that the process starts would take for theirs, in a
    Python of another version.
    """
    code = f"import sys; sys.path[:] = sys.argv[{1 + len(arguments)}:]; from {module} import main; main()"
    return [sys.executable, "-c", code, *arguments, *(place or os.getcwd() for place in sys.path)]
