"""Operations whose results depend on the sign of a zero."""

from __future__ import annotations

import re

from allo_dse.compiler.program.compiled import CompiledProgram

_OPERATION = re.compile(
    r"arith\.divf %\w+, (?P<divisor>%\w+)|"
    r"arith\.bitcast %\w+ : [bt]?f\d|llvm\.bitcast|"
    r"math\.(?:copysign|atan2|rsqrt|f?powf|fpowi)\b"
)


def sees_signed_zeros(program: CompiledProgram) -> bool:
    """Return whether an operation tells 0.0 from -0.0 by more than the sign of a zero.

    Sums, products, comparisons, roundings and the functions with f(-0.0) = f(0.0) or -f(0.0) do not.
    """
    return any(
        match["divisor"] is None or not _is_nonzero_constant(task_class.body.mlir, match["divisor"])
        for task_class in program.task_classes
        for match in _OPERATION.finditer(task_class.body.mlir)
    )


def _is_nonzero_constant(mlir: str, name: str) -> bool:
    found = re.search(rf"{re.escape(name)} = arith\.constant (-?[\d.]+(?:[eE][-+]?\d+)?) :", mlir)
    return found is not None and float(found[1]) != 0
