"""Kinds of devices, one folder each, and `rtl`, the circuits of programs.

A kind is a `Backend`: it maps folded graphs onto its devices, checks and times them, and writes what its tools build
from. `register_backend` and entry points add kinds.

Imports: allo_dse, common, compiler, device, drawing, eval, lang, mapper, simulator, space.
Imported by: cli, networks, tune.
"""

from __future__ import annotations

from allo_dse.common.imports import lazy_exports

_names, __getattr__ = lazy_exports(__name__, __file__)
__all__ = [*_names]
