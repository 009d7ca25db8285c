"""How far floating-point results may be from exact ones."""

from __future__ import annotations

import math
from collections.abc import Iterator

from allo_dse.ir.nest import loops_of, read_nest
from allo_dse.lang.types import DType

from .compiled import CompiledProgram
from .kernel import Kernel

_MANTISSA_BITS = {"f16": 10, "f32": 23, "f64": 52, "bf16": 7}


def tolerance_of(dtype: DType, program: CompiledProgram) -> float:
    """Relative to the largest value: one rounding per task along the longest mesh axis, or per round of the longest
    loop of the source that a task runs, as a random walk."""
    longest = max(max(*kernel.mesh, *_rounds(kernel)) for kernel in program.kernels)
    return 4.0 * math.sqrt(longest) * rounding_of(dtype)


def rounding_of(dtype: DType) -> float:
    """How far a number may be from the nearest of a floating-point type, relative to it."""
    bits = _MANTISSA_BITS[("bf" if dtype.kind == "bfloat" else "f") + str(dtype.bits)]
    return 2.0 ** -(bits + 1)


def _rounds(kernel: Kernel) -> Iterator[int]:
    """How often each loop of a kernel's source runs, where that is a number; 1 if there is none."""
    yield 1
    for task_class in kernel.classes:
        for loop in loops_of(read_nest(task_class.body.mlir).body):
            if loop.source is not None and loop.trips is not None and loop.trips.is_constant:
                yield loop.trips.constant
