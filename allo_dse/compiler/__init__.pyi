"""Public names and their modules: for type checkers, and for `lazy_exports` to import them when first used."""

from .compiler import compile_region as compile_region
from .program.compiled import CompiledProgram as CompiledProgram

__all__: list[str]
