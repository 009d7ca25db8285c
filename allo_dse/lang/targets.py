"""Targets of `df.build(..., target=...)`.

Upper layers register a target by the name of its builder function. It is imported on first use, so that the language
depends on none of them.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from .diagnostics import ProgramError
from .rules import rules

_BUILDERS: dict[str, str] = {}


def register_target(name: str, builder: str) -> None:
    """Make `df.build(region, target=name)` call `builder`, given as "module:function" or "module:class".

    The function is called as `builder(region, **options)`. It returns the built module, which is called with arrays.
    """
    if ":" not in builder:
        raise ValueError(f"builder of target {name!r} must be 'module:function', not {builder!r}")
    _BUILDERS[name] = builder


def known_targets() -> tuple[str, ...]:
    """Return the registered target names, sorted."""
    return tuple(sorted(_BUILDERS))


def builder_of(name: str) -> Callable[..., object]:
    """Return the builder of target `name`; it also takes `strict` and `check` (see `rules.py`).

    Raises:
        ProgramError: when no such target is registered.
    """
    if name not in _BUILDERS:
        raise ProgramError(f"unknown target {name!r}", hint=f"known targets: {', '.join(known_targets()) or 'none'}")
    module, function = _BUILDERS[name].split(":")
    builder: Callable[..., object] = getattr(importlib.import_module(module), function)

    def build(region: object, *, strict: bool | None = None, check: str | None = None, **options: object) -> object:
        with rules(strict=strict, check=check):
            return builder(region, **options)

    return build
