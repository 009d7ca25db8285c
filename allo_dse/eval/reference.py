"""Comparison of results with those of a reference, within the roundings of the program."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from allo_dse.common.errors import of_the_study
from allo_dse.common.records import Array
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import BoolArray
from allo_dse.lang.storage import is_wide, stored, wrapped
from allo_dse.lang.types import DType

from .execute.rounding import SINGLE, Analysed, Analysis, Doubles, unit_of
from .inputs import LOST, Reference, asked, operations_per_result

Arrays = list[Array]
_DOUBLE = 2.0**-53
"""Unit roundoff of float64."""


_RAW = "; it gets and returns raw integers of fixed-point numbers"


def magnitude(values: Array) -> float:
    """The largest finite absolute value."""
    wide = np.abs(values.astype(np.float64))
    return float(wide[np.isfinite(wide)].max(initial=1e-30))


def difference_from(
    expected: Arrays,
    program: CompiledProgram,
    outputs: list[str],
    found: Arrays,
    analysis: Analysis,
) -> str:
    """Return a text on how the outputs of a run differ from a reference's results; empty if they agree."""
    types, decided = {tensor.name: tensor.dtype for tensor in program.tensors}, analysis.decided
    for name, value, wanted in zip(outputs, found, expected, strict=True):
        dtype = types[name]
        if dtype.is_float:
            own = analysis.tensors[name].rounded
            if not np.array_equal(value, own, equal_nan=True):
                return f"{name} differs in {share(value != own)} from a run that observes roundings"
            wrong, why = unlike_reference(decided.tensors[name], wanted)
        else:
            exact = decided.integers.get(name, value)
            if (value != exact).sum() > analysis.undecided:
                return f"{name} differs in {share(value != exact)} from a run without roundings"
            if dtype.is_fixed and wanted.dtype.kind == "f":
                wrong, why = _steps_apart(wrapped(exact, dtype), wanted, dtype, _steps(dtype, program))
            else:
                why, lost = "", np.zeros(wanted.shape, bool)
                if wanted.dtype.kind == "f":
                    why, lost = f", which was computed in {wanted.dtype}", ~np.isfinite(wanted)
                with np.errstate(invalid="ignore"):  # floats do not wrap
                    numbers = np.where(lost, 0, wanted) if why else wanted
                    wrong = lost | (stored(exact, dtype) != stored(numbers, dtype))
        if wrong.sum() > (0 if decided is analysis else decided.undecided):
            raw = _RAW if any(other.is_fixed for other in types.values()) else ""
            return f"{name} differs from the reference in {share(wrong)}{why}{raw}"
    return ""


def unlike_reference(one: Analysed, wanted: Array, *, single: bool = False) -> tuple[BoolArray, str]:
    """Return the elements whose exact results contradict a reference, as a mask, and a text on the largest difference.

    Args:
        single: the reference computes in float32, however few bits its values have.
    """
    own, roundoff = wanted.astype(np.float64), SINGLE if single else unit_of(wanted)
    finest = _DOUBLE if one.rounded.dtype == np.float64 else SINGLE
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        allowed = (max(finest, min(roundoff, SINGLE)) + _DOUBLE) * one.unit  # that of exact values is float64's
        # Underflow in the reference is off by the least normal number, times the operations that follow.
        least = float(np.finfo(np.float64 if max(finest, roundoff) < SINGLE else np.float32).tiny)
        allowed = allowed + least * (1 + np.fmin(one.unit / np.abs(one.exact), 1 / SINGLE))
        if roundoff > SINGLE:  # the reference rounds as programs do, at least its results
            allowed = allowed + roundoff * np.abs(one.exact) + one.tolerance
        same = (own == one.exact) | (np.isnan(own) & np.isnan(one.exact))
        wrong: BoolArray = ~(same | (np.isfinite(own) & (np.abs(own - one.exact) <= allowed)))
        return wrong, _worst(own, one.exact, allowed, wrong)


def _worst(found: Doubles, exact: Doubles, allowed: Doubles, wrong: BoolArray) -> str:
    """Describe the element that differs most."""
    if not wrong.any():
        return ""
    off = np.abs(found - exact)
    off = np.where(wrong, np.where(np.isnan(off), np.inf, off), -1.0)
    index = np.unravel_index(int(np.argmax(off)), off.shape)
    place = f" at [{', '.join(map(str, index))}]" if index else ""
    if not np.isfinite(allowed[index]):
        return f", first{place}: {exact[index]:.6g} instead of {found[index]:.6g}"
    return f", most{place} by {off[index]:.2g} where {allowed[index]:.2g} is allowed"


def _steps(dtype: DType, program: CompiledProgram) -> float:
    """Return an error bound in steps of a fixed-point type.

    Each operation on the way to a result, and its final rounding, drops less than one step of the coarsest fixed-point
    type of a tensor or stream. All of them drop in one direction.
    """
    types = [*(tensor.dtype for tensor in program.tensors), *(stream.dtype for stream in program.streams)]
    coarsest = min(one.fraction_bits for one in (dtype, *types) if one.is_fixed)
    return (math.ceil(operations_per_result(program)) + 1) * 2.0 ** (dtype.fraction_bits - coarsest)


def _steps_apart(value: Array, wanted: Array, dtype: DType, steps: float) -> tuple[BoolArray, str]:
    """Compare fixed-point numbers, which wrap, with a reference in floats, which does not round each of them."""
    span = 2.0**dtype.bits
    with np.errstate(invalid="ignore"):
        apart = (value.astype(np.float64) - wanted.astype(np.float64) + span / 2) % span - span / 2
        return ~(np.abs(apart) <= steps), f" by more than {steps:g} steps of {dtype}"


def answers_of(reference: Reference, program: CompiledProgram, arrays: Mapping[str, Array]) -> Arrays:
    """Return the outputs that a reference computes from the inputs; wide integers are Python's.

    Raises:
        StudyError: when it fails.
    """
    with of_the_study("reference", LOST):
        types = {tensor.name: tensor.dtype for tensor in program.tensors}
        inputs = ((arrays[name], types[name]) for name in asked(program, reference))
        given = reference(*(wrapped(one, dtype) if is_wide(dtype) else as_computable(one) for one, dtype in inputs))
        return [np.asarray(one) for one in (given if isinstance(given, tuple) else (given,))]


def as_computable(array: Array) -> Array:
    """Return a copy that the user's function may write to; narrow floats become float32 for NumPy."""
    return array.astype(np.float32) if array.dtype.itemsize < 4 and array.dtype.kind in "fV" else array.copy()


def share(wrong: BoolArray) -> str:
    return f"{int(np.count_nonzero(wrong)):,} of {wrong.size:,} elements"
