"""Works on numbers: their programs in the simulator, their references in NumPy, and how far these are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.eval.program.functional import run_graph
from allo_dse.eval.verify import as_computable, directions
from allo_dse.frontend.model.arguments import numpy_dtype
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program, load_program
from allo_dse.program.tensors import Tensor
from allo_dse.program.tolerance import tolerance_of

from .work import Work

Array = NDArray[np.generic]


class Deviation(Struct, frozen=True):
    """How far the numbers of a step, or at last of the whole network, are from what is expected.

    Attributes:
        largest: difference over the largest expected value. allowed: the tolerance of its element type.
    """

    step: str
    kind: str
    largest: float
    allowed: float

    @property
    def ok(self) -> bool:
        return self.largest <= self.allowed


_PROGRAMS: dict[tuple[object, ...], Program] = {}


def loaded(work: Work) -> Program:
    """The program for the first value of each parameter; the same one for works that are alike."""
    key = (work.program, *sorted((name, str(value)) for name, value in work.smallest.items()))
    if key not in _PROGRAMS:
        _PROGRAMS[key] = load_program(work.program, **work.smallest)
    return _PROGRAMS[key]


def interface(program: Program) -> tuple[list[Tensor], list[Tensor]]:
    """The tensors that a program reads, and those that it writes."""
    reads, writes = directions(program)
    by_name = {tensor.name: tensor for tensor in program.tensors}
    return [by_name[name] for name in reads], [by_name[name] for name in writes]


def run_program(program: Program, given: Sequence[Array], vmg: VMG | None = None) -> Array:
    """What a program writes from arrays of as many elements as the tensors it reads; narrow floats as float32.

    Args:
        vmg: how it is folded; not at all where it is not given.
    """
    reads, writes = interface(program)
    arrays = {t.name: np.zeros(t.shape, numpy_dtype(t.dtype)) for t in program.tensors}
    for tensor, one in zip(reads, given, strict=True):
        arrays[tensor.name][...] = one.reshape(tensor.shape).astype(arrays[tensor.name].dtype)
    run_graph(vmg or program.vmg, *arrays.values())
    return as_computable(arrays[writes[0].name])


def reference_of(work: Work, given: Sequence[Array]) -> Array:
    """What a work's reference computes in float32 from arrays of as many elements as its program reads."""
    assert work.reference is not None
    reads, _ = interface(loaded(work))
    shaped = [as_computable(one).reshape(tensor.shape) for one, tensor in zip(given, reads, strict=True)]
    return np.asarray(work.reference(*shaped))


def difference(found: Array, expected: Array) -> float:
    """The largest difference over the largest finite expected value; equal infinities do not differ."""
    own, exact = (one.astype(np.float64).ravel() for one in (found, expected))
    with np.errstate(invalid="ignore"):
        apart = np.where(own == exact, 0, np.abs(own - exact)).max(initial=0)
    return float(apart / np.abs(exact[np.isfinite(exact)]).max(initial=1e-30))


def deviation(name: str, work: Work, found: Array, expected: Array) -> Deviation:
    """How far a work's result is from what is expected of it."""
    return Deviation(name, work.kind, difference(found, expected), tolerance(work))


def tolerance(work: Work) -> float:
    """How far a work's result may be from what is expected of it, over its largest value."""
    program = loaded(work)
    return tolerance_of(interface(program)[1][0].dtype, program)
