"""Source places of task bodies that could not be compiled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from allo_dse.common.errors import CompileLimit
from allo_dse.compiler.program.compiled import CompiledProgram


@contextmanager
def compile_places(program: CompiledProgram) -> Iterator[None]:
    """Have task bodies of a program that exceed the limits of compilation named as the kernels of its source."""
    try:
        yield
    except CompileLimit as failure:
        classes = [c for c in program.task_classes if c.body.symbol in failure.symbols]
        kernels = {c.kernel: c.location or program.kernel(c.kernel).location for c in classes}
        if not kernels:
            raise
        names = ", ".join(f"`{name}`" for name in kernels)
        places = ", ".join(dict.fromkeys(str(place) for place in kernels.values() if place is not None))
        what = f"{places}: {failure.what}" if places else failure.what
        raise CompileLimit(what, failure.hint, (f"kernel{'s' if len(kernels) > 1 else ''} {names}",)) from None
