"""The front end: Python source to type-checked task classes with MLIR bodies.

Imports: common, ir, lang, program.
Imported by: backends, dnn, eval, mapper, tune.
"""

from allo_dse.program.compiled import CompiledProgram

from .compiler import compile_region

__all__ = ["CompiledProgram", "compile_region"]
