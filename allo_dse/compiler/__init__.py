"""The front end: Python source to type-checked task classes with MLIR bodies.

Imports: common, lang.
Imported by: allo_dse, backends, drawing, eval, mapper, networks, space, tune.
"""

from .compiler import compile_region
from .program.compiled import CompiledProgram

__all__ = ["CompiledProgram", "compile_region"]
