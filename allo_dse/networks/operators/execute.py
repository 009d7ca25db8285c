"""Works on numbers: their programs in the simulator, their references in NumPy, and how far these are apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np
from allo.ir.types import bfloat16, float32
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError
from allo_dse.common.records import Frozen, replace
from allo_dse.compiler.model.arguments import numpy_dtype
from allo_dse.compiler.program.tensors import Tensor
from allo_dse.eval.execute.rounding import SINGLE, Analysed, Analysis, Doubles, analysed, exactly, unit_of
from allo_dse.eval.execute.run import run_graph
from allo_dse.eval.inputs import directions
from allo_dse.eval.reference import as_computable, magnitude, unlike_reference
from allo_dse.eval.tolerances import element_limits
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program, load_program
from allo_dse.space.params import Parameter, choices, divisors

from .packed import Packed

LEAST_TILE, MOST_TILE = 16, 256  # sides of a tile: smaller ones are dominated by kernel calls, larger ones fit no core


Expr = tuple[object, ...]
"""An operation and its operands; see `expressions`."""


class Operand(Frozen):
    """A tensor that a program reads.

    Attributes:
        kind: "full" for a matrix as large as the result, "row" or "column" for what all rows or columns share.
        count: rows or columns in it; each is an input of the expression.
        dtype: its element type; the program's own, `Ty`, by default.
    """

    kind: str
    count: int = 1
    dtype: str = "Ty"


class Made(Frozen):
    """An expression and the tensors that a work computes it of.

    Attributes:
        stages: of a product, the expressions that follow it: each of the result so far and at most one more tensor.
        to: the element type of the result.
        sums: the element type of a product's sums.
        packed: the format of a product's weights; None for numbers of the program's type.
        blocks: of columns of a product's weights, each a tensor of its own.
    """

    expr: Expr = ("in", 0)
    given: tuple[Operand, ...] = ()
    stages: tuple[tuple[Expr, Operand | None], ...] = ()
    to: str = "Ty"
    sums: str = "Ty"
    packed: Packed | None = None
    blocks: int = 1


@dataclass(frozen=True)
class Work:
    """A program, its parameters, and its reference.

    Attributes:
        kind: name of the operator.
        program: a function of `params` that returns a region. Its inputs come first among its tensors.
        params: sizes and element types; variable ones are a `Parameter`. Each element type is a work of its own.
        reference: from the arrays that the program reads (narrow floats as float32) to those that it writes.
        verify_with: from parameters to those of a smaller instance with the same tasks.
        made_of: of a program that was written from expressions, these.
    """

    kind: str
    program: Callable[..., object]
    params: Mapping[str, object]
    reference: Callable[..., object] | None = None
    verify_with: Callable[[Mapping[str, int]], Mapping[str, object]] | None = field(default=None, compare=False)
    made_of: Made | None = field(default=None, compare=False)

    @property
    def smallest(self) -> dict[str, object]:
        """The parameters, with the first value of each that may vary."""
        return {name: one.values[0] if isinstance(one, Parameter) else one for name, one in self.params.items()}

    @property
    def variants(self) -> tuple[Work, ...]:
        """The work in each of the element types that its parameters allow."""
        types = {
            name: one.values
            for name, one in self.params.items()
            if isinstance(one, Parameter) and not any(isinstance(value, int | float | str) for value in one.values)
        }
        chosen = (dict(zip(types, values, strict=True)) for values in product(*types.values()))
        return tuple(replace(self, params={**self.params, **own}) for own in chosen) if types else (self,)


def tile_counts(size: int, least: int = LEAST_TILE, most: int = MOST_TILE, unit: int = 1) -> Parameter:
    """Return the numbers of tiles of `least` to `most` elements that a side of `size` may have; one if it is smaller.

    Args:
        unit: that tiles are multiples of.

    Raises:
        StudyError: if the side is not a whole number of such tiles.
    """
    try:
        return divisors(size // unit, at_least=-(-size // most), at_most=max(1, size // max(least, unit)))
    except StudyError as none:
        if size < 1:
            raise
        raise StudyError(
            f"a side of {size} is no whole number of tiles of {least} to {most} elements", hint=f"pad it; {none.hint}"
        ) from None


ELEMENTS = {"bf16": bfloat16, "f32": float32}
"""Types of elements that networks are made of, by name."""
WEIGHTS = {"i8": 8, "i4": 4}
"""Bits of weights that products may have beside them."""
CODES = "w8a8"
"""The type of products whose weights and activations have eight bits, beside them."""


def element_type(name: str) -> object:
    """An element type as programs take it; of several with commas between, each operator has one.

    Raises:
        StudyError: for a name that is none of `ELEMENTS`, `WEIGHTS` or `CODES`, and for types of products alone.
    """
    names = list(dict.fromkeys(one.strip() for one in name.split(",")))
    found = [ELEMENTS[one] for one in names if one in ELEMENTS]
    if not {*ELEMENTS, *WEIGHTS, CODES}.issuperset(names):
        hint = f"of {', '.join(ELEMENTS)}, one or several; {', '.join(WEIGHTS)} and {CODES} beside them for products"
        raise StudyError(f"no element type {name!r} for networks", hint=hint)
    if not found:
        raise StudyError(f"{name!r} is a type of products only", hint=f"for example bf16,{name}, with a --tolerance")
    return found[0] if len(found) == 1 else choices(found)


def weight_bits(name: str) -> list[int]:
    """Return the bits that weights may be rounded to, of the types that `element_type` reads."""
    return [bits for own, bits in WEIGHTS.items() if own in name]


Array = NDArray[np.generic]


class Deviation(Frozen):
    """The deviation of a step's result, or of the whole network's outputs, from the expected values.

    Attributes:
        largest: largest difference, relative to the largest expected value.
        allowed: largest difference allowed for any element, relative to the same.
        wrong: number of elements whose difference exceeds what earlier roundings explain.
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
    """Load the program for the first value of each parameter; equal works share it."""
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
    """Run a program and return its result; narrow floats become float32.

    Args:
        given: arrays with as many elements as the tensors that the program reads.
        vmg: the folded graph to run; the program's own, not folded, by default.
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
    """Compute a work's reference in float32, from arrays with as many elements as its program reads."""
    assert work.reference is not None
    reads, _ = interface(loaded(work))
    shaped = [as_computable(one).reshape(tensor.shape) for one, tensor in zip(given, reads, strict=True)]
    return np.asarray(work.reference(*shaped))


def apart(a: Array, b: Array) -> Doubles:
    """Return the distance of each two elements: 0 of equal infinities, no number where one of them is none."""
    own, other = a.astype(np.float64), b.astype(np.float64)
    with np.errstate(invalid="ignore"):
        found: Doubles = np.where(own == other, 0.0, np.abs(own - other))
        return found


def difference(found: Array, expected: Array) -> float:
    """The largest difference over the largest finite expected value; equal infinities do not differ."""
    return float(apart(found.ravel(), expected.ravel()).max(initial=0) / magnitude(expected))


def compared(step: str, kind: str, found: Array, wanted: Array, limits: Array, wrong: int) -> Deviation:
    """Return the deviation of a result.

    Args:
        limits: largest allowed error of each element; `wrong`: number of elements that exceed theirs.
    """
    allowed = float(limits[np.isfinite(limits)].max(initial=0.0)) / magnitude(wanted)
    largest = difference(found, wanted)
    return Deviation(step, kind, largest, allowed if wrong else max(allowed, largest), wrong)


def deviation(name: str, work: Work, given: Sequence[Array], expected: Array) -> Deviation:
    """Compare a work's result with the expected one.

    Without the program's roundings they must agree within those of float32; with its roundings, within their bound.

    Args:
        given: as for `run_program`; they are rounded to the types of the program's tensors.
    """
    program = loaded(work)
    tensor = interface(program)[1][0]
    analysis = _analysis(program, [exactly(one) for one in given])
    if not tensor.dtype.is_float:
        found = run_program(program, given)
        dtypes = [numpy_dtype(one.dtype) for one in interface(program)[0]]
        rounded = [array.astype(dtype) for array, dtype in zip(given, dtypes, strict=True)]
        if work.reference is not None and any((a != b).any() for a, b in zip(given, rounded, strict=True)):
            expected = reference_of(work, rounded)  # a rounded input may be another whole number
        wrong = int(np.count_nonzero(found.ravel() != expected.ravel()))
        return Deviation(name, work.kind, difference(found, expected), 0.0, wrong)
    one, decided = analysis.tensors[tensor.name], analysis.decided
    wanted = expected.reshape(one.exact.shape)
    wrong = int(unlike_reference(decided.tensors[tensor.name], wanted, single=True)[0].sum())
    excused = 0 if decided is analysis else decided.undecided
    limits = one.bound + SINGLE * one.unit
    return compared(name, work.kind, one.rounded, wanted, limits, max(0, wrong - excused))


def _analysis(program: Program, given: Sequence[Analysed]) -> Analysis:
    before = {tensor.name: one for tensor, one in zip(interface(program)[0], given, strict=True)}
    arrays = _arrays(program, [one.rounded for one in given])
    return analysed(program.vmg, arrays, depths={}, seconds=None, before=before)


def analysed_result(program: Program, given: Sequence[Analysed]) -> Analysed:
    """Run a program on results of earlier steps; return its own with the roundings of all."""
    one = _analysis(program, given).result(interface(program)[1][0].name)
    return replace(one, rounded=as_computable(one.rounded))


_DIRECTIONS = 8
"""Random directions in which arguments move: of errors of one size, one in a thousand looks a third as large."""


def moved_result(function: Callable[..., Array], given: Sequence[Analysed]) -> Analysed:
    """Return the result of a function of the host, with errors by how far it moves when its arguments do."""
    rng = np.random.default_rng(0)

    def at(steps: Sequence[Doubles]) -> Doubles:
        moved = [
            _moved(one, step * rng.choice((-1.0, 1.0), step.shape)) for one, step in zip(given, steps, strict=True)
        ]
        return np.asarray(function(*moved)).astype(np.float64)

    rounded = np.asarray(function(*(one.rounded for one in given)))
    unknown = np.full(rounded.shape, np.inf)
    try:
        exact = at([0 * one.exact for one in given])
        off = [apart(at([np.sqrt(one.variance) for one in given]), exact) for _ in range(_DIRECTIONS)]
        unit = np.abs(exact) + apart(at([SINGLE * one.unit for one in given]), exact) / SINGLE
        variance = np.maximum(apart(rounded, exact) ** 2, np.mean(np.square(off), axis=0))
    except Exception:  # it may be undefined beside its arguments, or elements decide on its shape
        return replace(exactly(rounded), bound=unknown, variance=unknown)
    return Analysed(rounded, exact, unknown, variance, unit)


def _moved(one: Analysed, step: Doubles) -> Array:
    return one.rounded if one.rounded.dtype.kind in "biu" else (one.exact + step).astype(one.rounded.dtype)


def output_limits(one: Analysed) -> NDArray[np.float32]:
    """Return the largest allowed error of each element of an output."""
    is_float = one.rounded.dtype.kind not in "biu"
    return element_limits(one, unit_of(one.rounded) if is_float else 0.0)
