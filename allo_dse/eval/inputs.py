"""Tensors that a run takes and gives, random inputs, and smaller instances of a program."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np

from allo_dse.common.errors import StudyError, of_the_study
from allo_dse.common.records import Array
from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.lang.storage import is_wide
from allo_dse.space.params import Assignment

from .evaluator import needed_arguments

if TYPE_CHECKING:
    from allo_dse.mapper.program import Program

LOST = "nothing is lost: correct it, and the same command verifies the front"


Smaller = Callable[[Mapping[str, object]], Mapping[str, object]]
"""Maps parameters to the changes for a smaller instance with the same mesh."""


_REDUCED: WeakKeyDictionary[Program, tuple[Smaller, Program]] = WeakKeyDictionary()
"""The smaller instances of programs by the functions that name them: designs of a front have many a program in common,
and each is run and proved."""


Reference = Callable[..., object]
"""Computes the expected outputs from the inputs, with NumPy."""


def reduced(program: Program, verify_with: Smaller) -> Program:
    """Return the smaller instance of a program that a study names.

    Raises:
        StudyError: when it cannot be made, which is not the design's fault.
    """
    known = _REDUCED.get(program)
    if known is not None and known[0] is verify_with:
        return known[1]
    with of_the_study("verify_with", LOST):
        small_one = program.with_params(**verify_with(Assignment(program.params)))
    for kernel, small in zip(program.kernels, small_one.kernels, strict=True):
        if kernel.mesh != small.mesh:
            raise StudyError(
                f"verify_with changes the mesh of {kernel.name} from {kernel.mesh} to {small.mesh}",
                hint="a reduced instance must have the same number of tasks along every axis",
            )
    _REDUCED[program] = verify_with, small_one
    return small_one


def directions(program: CompiledProgram) -> tuple[list[str], list[str]]:
    """Return the names of the tensors that are only read, and of those that are written."""
    names, written = [tensor.name for tensor in program.tensors], program.written_tensors
    return [name for name in names if name not in written], [name for name in names if name in written]


def operations_per_result(program: CompiledProgram) -> float:
    """Return the approximate number of operations behind a result."""
    results = sum(math.prod(tensor.shape) for tensor in program.tensors if tensor.name in program.written_tensors)
    return max(1.0, (program.elements_computed or 1) / max(1, results))


def asked(program: CompiledProgram, reference: Reference | None = None) -> list[str]:
    """Return the names of the tensors that a reference takes, in order, with values before a run.

    These are the tensors that the program reads. Tensors that it also writes are passed all or none: they are left out,
    and zero, if the reference has parameters for the others only (parameters with defaults are its own).
    """
    only = directions(program)[0]
    read = {port.tensor.name for port in program.tensor_ports if port.reads}
    every = [tensor.name for tensor in program.tensors if tensor.name in read or tensor.name in only]
    return every if reference is None or needed_arguments(reference) == len(every) else only


def random_arrays(program: CompiledProgram, inputs: list[str], seed: int) -> dict[str, Array]:
    """Random inputs and zeroed outputs."""
    rng = np.random.default_rng(seed)
    return {
        t.name: np.zeros(t.shape, own)
        if t.name not in inputs
        else rng.standard_normal(t.shape).astype(own)
        if t.dtype.is_float
        else np.array(np.frombuffer(rng.bytes(math.prod(t.shape) * own.itemsize), own)).reshape(t.shape)
        if is_wide(t.dtype)
        else rng.integers(*t.dtype.limits, t.shape, dtype=own)
        for t in program.tensors
        for own in [numpy_dtype(t.dtype)]
    }


def positive_arrays(program: CompiledProgram, inputs: list[str], seed: int) -> dict[str, Array]:
    """Random inputs above zero, floats of magnitudes from 1/16 to 1, integers that fit three bits; zeroed outputs.

    At the end of each axis are the largest and the smallest in turn, which a maximum or minimum without its last step
    would miss.
    """
    rng = np.random.default_rng([seed, 1])
    found = {}
    for tensor in program.tensors:
        dtype = tensor.dtype
        made: Array = np.zeros(tensor.shape)
        if tensor.name in inputs:
            most = min(8, 1 << max(1, dtype.bits - dtype.is_signed))
            made = np.exp2(rng.uniform(-4, 0, tensor.shape)) if dtype.is_float else rng.integers(0, most, tensor.shape)
            for axis in range(made.ndim):
                end = np.moveaxis(made, axis, 0)[-1:]
                in_turn = np.indices(end.shape).sum(axis=0) % 2 == 0
                powers = rng.uniform(0, 1, end.shape) - 5 * ~in_turn
                end[...] = np.exp2(powers) if dtype.is_float else np.where(in_turn, most - 1, 0)
        found[tensor.name] = made.astype(numpy_dtype(dtype))
    return found
