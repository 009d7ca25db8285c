"""The front end: Python source to type-checked task classes with MLIR bodies."""

from .compiler import compile_region
from .program import CompiledProgram

__all__ = ["CompiledProgram", "compile_region"]
