"""Tolerances of results that are computed elsewhere: by a device, by C++, or by another evaluator of a network.

They follow from running error analysis (`eval.execute.rounding`) of the program on the study's inputs or random ones.
A smaller instance replaces a program that is too large for that; errors grow with the root of the number of operations
behind a result.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import AlloDseError, SimulationError
from allo_dse.common.records import Array, Frozen
from allo_dse.compiler.program.tensors import Tensor
from allo_dse.mapper.program import Program

from .execute.observation import InputSets, completed
from .execute.rounding import DEVIATIONS, ROOM, SINGLE, Analysed, analysed, unit_roundoff
from .inputs import Smaller, asked, operations_per_result, positive_arrays, random_arrays, reduced

MOST_ELEMENTS = 20_000_000
"""Most loop iterations of an analysis: less than a second."""
_SECONDS = 60.0
_KEPT = 64
_LEAST = 4
"""Unit roundoffs of its type that a result may always be off."""


class Tolerance(Frozen):
    """Allowed difference of a tensor from its expected values, over the root mean square of the finite ones.

    Attributes:
        largest: limit for any element.
        rms: limit for the root mean square of all differences, which reveals a wrong factor or a missing part.
    """

    largest: float
    rms: float

    def joined(self, other: Tolerance) -> Tolerance:
        return Tolerance(max(self.largest, other.largest), max(self.rms, other.rms))


@lru_cache(_KEPT)
def tolerances_of(
    program: Program,
    verify_with: Smaller | None = None,
    inputs: InputSets | None = None,
) -> Mapping[str, Tolerance]:
    """Return the tolerance of each floating-point tensor that a program writes.

    Args:
        verify_with: maps the parameters to the changes for a smaller instance.
        inputs: the sets of inputs of a program; random ones without.
    """
    written = _written_floats(program)
    if not written:
        return {}
    own = program
    if verify_with is not None and (program.elements_computed or MOST_ELEMENTS) >= MOST_ELEMENTS:
        own = reduced(program, verify_with)
    if (own.elements_computed or 0) > MOST_ELEMENTS:
        return {tensor.name: _estimate(program, tensor) for tensor in written}
    growth = math.sqrt(max(1.0, operations_per_result(program) / operations_per_result(own)))
    found: dict[str, Tolerance] = {}
    given = [make(own, asked(own), 0) for make in (random_arrays, positive_arrays)]
    if inputs is not None:
        with suppress(AlloDseError):  # arrays that only fit the program itself
            given = completed(own, asked(own), inputs(own), 0)
    for arrays in given:
        try:
            analysis = analysed(own.vmg, arrays, depths={}, seconds=_SECONDS)
        except SimulationError:  # random inputs may not give numbers
            continue
        for tensor in written:
            one = _tolerance(analysis.tensors[tensor.name], _LEAST * unit_roundoff(tensor.dtype), growth)
            found[tensor.name] = one.joined(found.get(tensor.name, one))
    return {tensor.name: found.get(tensor.name, _estimate(program, tensor)) for tensor in written}


def limits_of(
    program: Program, arrays: Mapping[str, Array], *, from_run: bool = False
) -> dict[str, NDArray[np.float32]]:
    """Return the largest allowed error of each element of the floating-point results for these inputs.

    Empty if the program takes too much work, or these inputs do not give numbers.

    Args:
        from_run: the expected values are those of a run, with its roundings, and not of a reference.
    """
    written = _written_floats(program)
    if not written or (program.elements_computed or MOST_ELEMENTS) >= MOST_ELEMENTS:
        return {}
    try:
        analysis = analysed(program.vmg, arrays, depths={}, seconds=_SECONDS)
    except SimulationError:
        return {}
    return {
        tensor.name: element_limits(analysis.result(tensor.name), unit_roundoff(tensor.dtype), from_run=from_run)
        for tensor in written
    }


def element_limits(one: Analysed, roundoff: float, *, from_run: bool = False) -> NDArray[np.float32]:
    """Return the largest allowed error of each element.

    Args:
        roundoff: of the elements' type.
        from_run: as for `limits_of`.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        found = one.tolerance + _LEAST * roundoff * np.abs(one.exact) + SINGLE * one.unit  # of a reference
        return (found + one.error if from_run else found).astype(np.float32)


def _tolerance(one: Analysed, least: float, growth: float) -> Tolerance:
    finite = np.isfinite(one.exact) & np.isfinite(one.error)
    scale = max(1e-30, root_mean_square(one.exact[finite]))
    largest = float(one.tolerance[finite].max(initial=0.0))
    seen = root_mean_square(one.error[finite])
    most = float(np.abs(one.exact[finite]).max(initial=0.0))
    rms = ROOM * seen / scale + least
    return Tolerance(growth * (largest / scale + least * max(1.0, most / scale)), growth * rms)


def root_mean_square(values: NDArray[np.float64]) -> float:
    return float(np.sqrt(np.mean(values**2))) if values.size else 0.0


def _written_floats(program: Program) -> list[Tensor]:
    return [tensor for tensor in program.tensors if tensor.dtype.is_float and tensor.name in program.written_tensors]


def _estimate(program: Program, tensor: Tensor) -> Tolerance:
    """Estimate a tolerance without analysis: as many independent roundings as operations."""
    likely = math.sqrt(operations_per_result(program)) * unit_roundoff(tensor.dtype)
    return Tolerance(DEVIATIONS * likely, ROOM * likely)
