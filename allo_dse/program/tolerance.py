"""How far results of a program may be from exact ones."""

from __future__ import annotations

import math
from functools import lru_cache

from allo_dse.ir.nest import loops_of, read_nest
from allo_dse.lang.types import DType

from .compiled import CompiledProgram

_MANTISSA_BITS = {"f16": 10, "f32": 23, "f64": 52, "bf16": 7}


def tolerance_of(dtype: DType, program: CompiledProgram) -> float:
    """Relative to the largest value: one rounding per task along the longest mesh axis, or per round of the longest
    loop of the source that a task runs, as a random walk."""
    return 4.0 * math.sqrt(_roundings(program)) * rounding_of(dtype)


def steps_of(dtype: DType, program: CompiledProgram) -> float:
    """In steps of a fixed-point type: each of these roundings, and that of the result, drops less than one step of the
    coarsest such type that a tensor or stream has, and all drop in one direction."""
    types = [*(tensor.dtype for tensor in program.tensors), *(stream.dtype for stream in program.streams)]
    coarsest = min(one.fraction_bits for one in (dtype, *types) if one.is_fixed)
    return (_roundings(program) + 1) * 2.0 ** (dtype.fraction_bits - coarsest)


def rounding_of(dtype: DType) -> float:
    """How far a number may be from the nearest of a floating-point type, relative to it."""
    bits = _MANTISSA_BITS[("bf" if dtype.kind == "bfloat" else "f") + str(dtype.bits)]
    return 2.0 ** -(bits + 1)


def _roundings(program: CompiledProgram) -> int:
    """How many one result may have behind it."""
    bodies = (task_class.body.mlir for kernel in program.kernels for task_class in kernel.classes)
    return max(*(extent for kernel in program.kernels for extent in kernel.mesh), *map(_rounds, bodies))


@lru_cache(maxsize=256)  # asked for every tensor, and for each of a program's designs
def _rounds(mlir: str) -> int:
    """How often the longest loop of a body's source runs, of those of which that is a number; 1 if there is none."""
    trips = (loop.trips for loop in loops_of(read_nest(mlir).body) if loop.source is not None)
    return max((count.constant for count in trips if count is not None and count.is_constant), default=1)
