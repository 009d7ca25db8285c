"""Works on numbers: their programs in the simulator, their references in NumPy, and how far these are apart."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.eval.program.functional import run_graph
from allo_dse.eval.program.rounding import SINGLE, analysed
from allo_dse.eval.tolerances import tolerances_of
from allo_dse.eval.verify import as_computable, directions, unlike_reference
from allo_dse.frontend.model.arguments import numpy_dtype
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program, load_program
from allo_dse.program.tensors import Tensor

from .work import Work

Array = NDArray[np.generic]


class Deviation(Struct, frozen=True):
    """How far the numbers of a step, or at last of the whole network, are from what is expected.

    Attributes:
        largest: difference over the largest expected value. allowed: of any element, over the same.
        wrong: elements that differ by more than roundings before them explain.
    """

    step: str
    kind: str
    largest: float
    allowed: float
    wrong: int = 0

    @property
    def ok(self) -> bool:
        return not self.wrong and self.largest <= self.allowed


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
    writes = interface(program)[1]
    arrays = _arrays(program, given)
    run_graph(vmg or program.vmg, *arrays.values())
    return as_computable(arrays[writes[0].name])


def _arrays(program: Program, given: Sequence[Array]) -> dict[str, Array]:
    """The tensors of a program before a run."""
    arrays = {t.name: np.zeros(t.shape, numpy_dtype(t.dtype)) for t in program.tensors}
    for tensor, one in zip(interface(program)[0], given, strict=True):
        arrays[tensor.name][...] = one.reshape(tensor.shape).astype(arrays[tensor.name].dtype)
    return arrays


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


def deviation(name: str, work: Work, given: Sequence[Array], expected: Array) -> Deviation:
    """How far a work's result is from what is expected of it: without its roundings it is that, within the bound of
    single roundings, and with them within theirs.

    Args:
        given: as for `run_program`; they are rounded to the types of the program's tensors.
    """
    program = loaded(work)
    tensor = interface(program)[1][0]
    exact = {one.name: array for one, array in zip(interface(program)[0], given, strict=True)}
    analysis = analysed(program.vmg, _arrays(program, given), depths={}, seconds=None, exact=exact)
    if not tensor.dtype.is_float:
        found = run_program(program, given)
        wrong = int(np.count_nonzero(found.ravel() != expected.ravel()))
        return Deviation(name, work.kind, difference(found, expected), 0.0, wrong)
    one = analysis.tensors[tensor.name]
    wanted = expected.reshape(one.exact.shape)
    wrong = int(unlike_reference(one, wanted, single=True)[0].sum())
    scale = float(np.abs(wanted[np.isfinite(wanted)]).astype(np.float64).max(initial=1e-30))
    bound = one.bound + SINGLE * one.unit
    allowed = float(bound[np.isfinite(bound)].max(initial=0.0)) / scale
    largest = difference(one.rounded, wanted)
    return Deviation(
        name, work.kind, largest, max(allowed, largest if not wrong else 0.0), max(0, wrong - analysis.undecided)
    )


def tolerance(work: Work) -> float:
    """How far a work's result may be from what is expected of it, over the root mean square of that."""
    return max((one.largest for one in tolerances_of(loaded(work)).values()), default=0.0)
