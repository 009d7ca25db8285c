"""Kinds of devices, one folder each, and `rtl`, the circuits of programs.

A kind is a `Backend`: it maps folded graphs onto its devices, checks and times them, and writes what its tools build
from. `register_backend` and entry points add kinds.

Imports: common, compiler, device, drawing, eval, lang, mapper, simulator, space.
Imported by: allo_dse, cli, networks, tune.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allo_dse.common.imports import lazy_exports

if TYPE_CHECKING:
    from allo_dse.eval.backend import Artifacts as Artifacts
    from allo_dse.eval.backend import Asked as Asked
    from allo_dse.eval.backend import Backend as Backend
    from allo_dse.eval.backend import Choices as Choices
    from allo_dse.eval.backend import Placement as Placement
    from allo_dse.eval.backend import Sources as Sources
    from allo_dse.eval.backend import Words as Words
    from allo_dse.eval.backend import backend_of as backend_of
    from allo_dse.eval.backend import register_backend as register_backend
    from allo_dse.eval.evaluator import Metrics as Metrics
    from allo_dse.eval.recording import Recorded as Recorded
    from allo_dse.eval.target import Target as Target

_names, __getattr__ = lazy_exports(
    __name__,
    {
        ".eval.backend": [
            "Artifacts",
            "Asked",
            "Backend",
            "Choices",
            "Placement",
            "Sources",
            "Words",
            "backend_of",
            "register_backend",
        ],
        ".eval.evaluator": ["Metrics"],
        ".eval.recording": ["Recorded"],
        ".eval.target": ["Target"],
    },
)
__all__ = [*_names]
