"""Objects that other installed packages offer through entry points."""

from __future__ import annotations

from functools import cache
from typing import Any

BACKENDS = "allo_dse.backends"
"""Group of entry points of kinds of devices: named as the `family` of device files, each a class of backends."""


@cache
def plugin(group: str, name: str) -> Any:
    """Return what the entry point of a group and name refers to; None if no installed package has one."""
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    found = next(iter(entry_points(group=group, name=name)), None)
    return None if found is None else found.load()
