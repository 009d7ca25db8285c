"""Kinds of devices, one folder each, and `rtl`, the circuits of programs.

A kind is a `Backend`: it maps folded graphs onto its devices, checks and times them, and writes what its tools build
from. `register_backend` and entry points add kinds.

Imports: common, compiler, device, drawing, eval, lang, mapper, simulator, space.
Imported by: allo_dse, cli, networks, tune.
"""

# ruff: noqa: I001 - names are grouped by module
from __future__ import annotations

from typing import TYPE_CHECKING

from allo_dse.common.imports import lazy_exports

if TYPE_CHECKING:
    from allo_dse.eval.backend import (
        Artifacts as Artifacts,
        Asked as Asked,
        Backend as Backend,
        Choices as Choices,
        Placement as Placement,
        Sources as Sources,
        Words as Words,
        backend_of as backend_of,
        register_backend as register_backend,
    )
    from allo_dse.eval.evaluator import Metrics as Metrics
    from allo_dse.eval.recording import Recorded as Recorded
    from allo_dse.eval.target import Target as Target

__all__, __getattr__ = lazy_exports(__name__, __file__)
