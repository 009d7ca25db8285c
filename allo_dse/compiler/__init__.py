"""The front end: Python source to type-checked task classes with MLIR bodies.

Imports: common, lang.
Imported by: allo_dse, backends, drawing, eval, mapper, networks, space, tune.
"""

from __future__ import annotations

from allo_dse.common.imports import lazy_exports

# Reading a compiled program does not need MLIR, which the compiler imports.
__all__, __getattr__ = lazy_exports(__name__, __file__)
