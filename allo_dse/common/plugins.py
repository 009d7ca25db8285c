"""Objects that other installed packages offer through entry points, and that upper layers register by name."""

from __future__ import annotations

from functools import cache
from typing import Any

BACKENDS = "allo_dse.backends"
"""Group of entry points of kinds of devices: named as the `family` of device files, each a class of backends."""


TARGETS: dict[str, str] = {}
"""Builders of `df.build(..., target=...)` by the target's name; the language depends on none of them."""


def register_target(name: str, builder: str) -> None:
    """Make `df.build(region, target=name)` call `builder`, given as "module:function" or "module:class".

    The function is imported on first use and called as `builder(region, **options)`. It returns the built module, which
    is called with arrays.
    """
    if ":" not in builder:
        raise ValueError(f"builder of target {name!r} must be 'module:function', not {builder!r}")
    TARGETS[name] = builder


@cache
def plugin(group: str, name: str) -> Any:
    """Return what the entry point of a group and name refers to; None if no installed package has one."""
    from importlib.metadata import entry_points  # slow to import, and rarely needed

    found = next(iter(entry_points(group=group, name=name)), None)
    return None if found is None else found.load()
