"""The front end: Python source to type-checked task classes with MLIR bodies.

Imports: common, lang.
Imported by: allo_dse, backends, drawing, eval, mapper, networks, space, tune.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allo_dse.common.imports import lazy_exports

if TYPE_CHECKING:
    from .compiler import compile_region as compile_region
    from .program.compiled import CompiledProgram as CompiledProgram

# Reading a compiled program does not need MLIR, which the compiler imports.
__all__, __getattr__ = lazy_exports(
    __name__,
    {
        "compiler": ["compile_region"],
        "program.compiled": ["CompiledProgram"],
    },
)
