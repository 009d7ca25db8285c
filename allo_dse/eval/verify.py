"""Verification: checks that a folded program computes the right results.

The design's program is instantiated at a reduced size with the same mesh, folded exactly as the design is, and executed
on random inputs, or on the study's own. Messages distinguish two statements:

* *equal to the unfolded program*: bit by bit, because folding changes when tasks run, never their results;
* *equal to the reference*, if the study has one: results without rounding agree with the reference, within the
  roundings of the reference. Results with rounding are, bit by bit, those of the same operations
  (`eval.execute.rounding`), so all that is between the two are roundings; the message says how large they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from allo_dse.common.errors import IndexRangeError, SimulationError, StudyError, of_the_study
from allo_dse.common.records import Array, Frozen, array_text, once, replace
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import BoolArray, Tensor
from allo_dse.lang.storage import wrapped
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program
from allo_dse.simulator.deadlock import DeadlockError
from allo_dse.space.design import Design

from .equivalence.compare import Equivalence, equivalent
from .equivalence.data_values import TooMuchWork, Undecidable, Unwritten
from .equivalence.exported import exported_graph
from .execute.observation import completed, sets_of
from .execute.rounding import Analysed, Analysis, analysed, has_floats, unit_roundoff
from .execute.run import run_graph
from .inputs import (
    LOST,
    Reference,
    Smaller,
    asked,
    directions,
    positive_arrays,
    random_arrays,
    reduced,
)
from .reference import Arrays, answers_of, difference_from, magnitude, share

MAX_UNFOLDED_TASKS = 100_000
"""Above this, a comparison with a reference replaces the run of the unfolded program."""

QUICK_OPERATIONS = 8_000_000
"""Most operations on data of a run that is compared by default: less than a second."""

_INPUTS = f"give inputs that it is made for, with `inputs=` of the study; {LOST}"

_NARROWER = 2.0
"""Factor on the worst case of roundings to a type, whose bound is of first order."""


_Result = TypeVar("_Result")


class VerifyResult(Frozen):
    """The result of a check.

    Attributes:
        message: the statement that was checked, or the difference.
        kind: "deadlock" or "not run" where there are no numbers to compare.
        largest: the largest rounding error; None if nothing is rounded.
    """

    ok: bool
    message: str
    seconds: float
    kind: str = ""
    largest: Largest | None = None


def verify_design(
    design: Design,
    *,
    reference: Reference | None = None,
    verify_with: Smaller | None = None,
    inputs: object = None,
    seed: int = 0,
    seconds: float = 120.0,
) -> VerifyResult:
    """Execute a folded design on random inputs, or on given ones, and compare.

    Args:
        reference: from the input arrays (see `asked`) to the output array (or a tuple of them). Floats narrower than 32
            bits come as float32; integers as they are, so that overflow wraps as in the program, beyond 64 bits as
            Python's. Of fixed-point numbers it is given raw integers, and returns them: as integers those of the
            program, as floats exact ones.
        verify_with: from the design's parameters to those to change for a smaller instance with the same mesh.
        inputs: a study's sets of inputs, in place of random ones: as a function of the parameters at that smaller size,
            as arrays at the design's own.
        seed: of the random inputs.
        seconds: time limit of each execution.
    """
    started = time.perf_counter()
    kind, largest = "", None
    try:
        ok, message, largest = _compare(design, reference, _of_size(verify_with, inputs), inputs, seed, seconds)
    except SimulationError as error:
        ok, message = False, str(error.message)
        kind = "deadlock" if isinstance(error, DeadlockError) else "not run"
    return VerifyResult(ok, message, time.perf_counter() - started, kind, largest)


def prove_design(
    design: Design,
    *,
    verify_with: Smaller | None = None,
    inputs: object = None,
    seed: int = 0,
    seconds: float = 120.0,
    most_operations: int = QUICK_OPERATIONS,
    always: bool = False,
    exported: Path | None = None,
) -> VerifyResult:
    """Check at random points of a prime field that a folded design computes its unfolded program's function.

    When data decides on loops, indices or streams, they are compared on the paths of random or given inputs.

    Args:
        verify_with: maps the design's parameters to the changes for a smaller instance with the same mesh. It is
            compared when the design itself, at its stream depths, takes more than `most_operations`.
        inputs: as for `verify_design`.
        seconds: time limit of each run.
        most_operations: limit of the operations on data in one run.
        always: ignore the limit at the smaller size, or at the only size if there is no smaller one.
        exported: the folder that the design was written to. Its program, folded as its mapping says, is compared
            instead of the design.

    Raises:
        Undecidable: when tokens are polled or vendor kernels called, or the unfolded program does not end.
        TooMuchWork: when both sizes take more operations than that.
    """
    design, verify_with = design.as_built, _of_size(verify_with, inputs)
    try:
        other = design if exported is None else exported_graph(exported)
        limit = None if always and verify_with is None else most_operations
        found = _compared(design, other, inputs, seed, seconds, limit)
        size = "full size"
    except TooMuchWork:
        if verify_with is None:
            raise
        design = replace(design, program=reduced(design.program, verify_with))
        folded = design if exported is None else exported_graph(exported, design.program.params)
        limit = None if always else most_operations
        found = _compared(design, folded, inputs, seed, seconds, limit)
        size = "reduced size"
    if found.ended == 0 or (found.ended == 1 and design.depths):
        raise Undecidable(f"{('the unfolded program', 'it')[found.ended]} ends early: {found.message}")
    return VerifyResult(found.equal, f"{found} ({size}: {_sizes(design.program)})", found.seconds)


def _compared(
    design: Design, folded: VMG | Design, inputs: object, seed: int, seconds: float, most_operations: int | None
) -> Equivalence:
    """Compare a fold with the design's program, for all inputs or else on the paths of given or random ones."""
    program = design.program
    written = program.as_written
    whole = replace(design, program=written, fold=unfolded(written)) if design.depths else written
    try:
        return equivalent(whole, folded, seed=seed, seconds=seconds, most_operations=most_operations)
    except TooMuchWork:
        raise
    except Undecidable as undecided:
        sets = _given(program, asked(program), inputs, seed)
        try:
            return equivalent(whole, folded, seed=seed, seconds=seconds, inputs=sets)
        except Undecidable:
            raise undecided from None


def verify_and_prove(
    design: Design,
    *,
    reference: Reference | None = None,
    verify_with: Smaller | None = None,
    inputs: object = None,
    seed: int = 0,
) -> VerifyResult:
    """Verify a design of a front on random or given inputs, then prove it for all inputs where that is affordable.

    The message says which of the two was done.
    """
    started = time.perf_counter()
    found = verify_design(design, reference=reference, verify_with=verify_with, inputs=inputs, seed=seed)
    if not found.ok:
        return found if found.kind else replace(found, message=found.message + _unwritten(design.program))
    try:
        proof = prove_design(design, verify_with=verify_with, inputs=inputs, seed=seed)
        ok, message = proof.ok, f"{found.message}; for all inputs: {proof.message}"
    except Undecidable as undecided:
        ok, message = True, f"{found.message}; on these inputs only: {undecided.message}"
    return VerifyResult(ok, message, time.perf_counter() - started, found.kind, found.largest)


@lru_cache(maxsize=64)
def _unwritten(program: Program) -> str:
    """Return a text on memory that was never written, if a result depends on it for certain."""
    try:
        equivalent(program, program, most_operations=QUICK_OPERATIONS)
    except SimulationError as found:
        return f"; {found.message}" if isinstance(found, Unwritten) else ""
    return ""


def _compare(
    design: Design,
    reference: Reference | None,
    verify_with: Smaller | None,
    inputs: object,
    seed: int,
    seconds: float,
) -> tuple[bool, str, Largest | None]:
    program = design.program if verify_with is None else reduced(design.program, verify_with)
    read, written = asked(program, reference), directions(program)[1]
    folded, depths = program.vmg.fold(design.fold), dict(design.as_built.depths)
    sets = _given(program, read, inputs, seed)
    whole = program.vmg if program.task_count <= MAX_UNFOLDED_TASKS else None
    if whole is None and reference is None:
        whole = program.vmg
    largest: dict[str, Largest] = {}
    left_out: list[IndexRangeError] = []
    beyond: list[str] = []
    for arrays in sets:
        try:
            known = _expected(program, reference, arrays, written, whole or folded, depths, seconds)
        except IndexRangeError as error:  # the program's own, whatever the fold
            left_out.append(error)
            if inputs is None and len(left_out) < len(sets):
                continue
            which = "random inputs" if inputs is None else "the study's inputs"
            raise StudyError(f"the program does not run on {which}: {error.message}", hint=_INPUTS) from None
        found = _outputs(folded, arrays, written, seconds, depths)
        for name, value, other in zip(written, found, known.outputs, strict=True):
            bits = [np.ascontiguousarray(one).view(f"V{one.dtype.itemsize}") for one in (value, other)]
            differs: BoolArray = bits[0] != bits[1]
            if differs.any():
                return False, f"{name} differs from the unfolded program's in {share(differs)}", None
        if known.wrong:
            return False, known.wrong, None
        for name, one in known.largest.items():
            largest[name] = max(one, largest.get(name, one))
        beyond = beyond or known.beyond
    compared = ["the unfolded program"] if whole is not None else []
    if reference is not None:
        compared.append("the reference")
    message = f"equal to {' and '.join(compared)} ({_sizes(program)}, {program.task_count:,} tasks)"
    said = [f"on small integers only: {error.message}" for error in left_out]
    said += [*map(str, largest.values()), *beyond]
    ignored = _ignored(program, reference, sets, read) if reference is not None and inputs is None else []
    if ignored:
        said.append(
            f"the reference gives the same whatever {' and '.join(ignored)} {'is' if len(ignored) < 2 else 'are'}"
        )
    return True, "; ".join([message, *said]), max(largest.values(), default=None)


class Largest(Frozen, order=True):
    """The largest rounding error of a tensor, over its largest exact value.

    Attributes:
        error: the difference at its place.
        bound: the error that the operations before it allow there.
        narrower: name of the tensor's type, if operations that all round to it would not be so far off.
    """

    error: float
    bound: float
    place: str
    narrower: str = ""

    def __str__(self) -> str:
        if math.isinf(self.error):
            return f"beyond the range of its type at {self.place}"
        said = (
            f"rounding error up to {self.error:.2g} of the largest value, at {self.place}, tolerance {self.bound:.2g}"
        )
        return (
            f"{said}; operations before it round to a narrower type than its {self.narrower}" if self.narrower else said
        )


class _Expected(Frozen):
    """A program's results on inputs.

    Attributes:
        outputs: bit by bit, the same for every fold.
        wrong: their difference from the reference, if there is one.
        beyond: texts on integers of the reference that wrap to equal ones.
    """

    outputs: Arrays
    wrong: str
    largest: Mapping[str, Largest]
    beyond: list[str]


_EXPECTED: WeakKeyDictionary[Program, dict[tuple[object, ...], _Expected]] = WeakKeyDictionary()
"""Results by program, its reference and the texts of the inputs."""
_IGNORED: WeakKeyDictionary[Program, dict[Reference, list[str]]] = WeakKeyDictionary()


def _expected(
    program: Program,
    reference: Reference | None,
    arrays: Mapping[str, Array],
    written: list[str],
    vmg: VMG,
    depths: Mapping[str, int],
    seconds: float,
) -> _Expected:
    """Return the results that all designs with this program share, computed once."""
    known, key = _EXPECTED.setdefault(program, {}), (reference, *map(array_text, arrays.values()))
    if key in known:
        return known[key]
    outputs = _outputs(vmg, arrays, written, seconds, depths)
    if reference is None:
        return known.setdefault(key, _Expected(outputs, "", {}, []))
    analysis = Analysis({}, {}, 0)
    if has_floats(program):
        analysis = _deeper(lambda own: analysed(vmg, arrays, depths=own, seconds=seconds), depths)
    expected = answers_of(reference, program, arrays)
    with of_the_study("reference", LOST):
        shapes, wanted_shapes = [one.shape for one in expected], [one.shape for one in outputs]
        if shapes != wanted_shapes:
            raise ValueError(f"returns shapes {shapes} for {', '.join(written)} of {wanted_shapes}")
    wrong = difference_from(expected, program, written, outputs, analysis)
    floats = [tensor for tensor in program.tensors if tensor.name in analysis.tensors and tensor.name in written]
    largest = {tensor.name: _largest(tensor, analysis.tensors[tensor.name]) for tensor in floats}
    types = {tensor.name: tensor.dtype for tensor in program.tensors}
    beyond = [
        f"the reference exceeds the type of {name} at some elements, which wrap"
        for name, one in zip(written, expected, strict=True)
        if one.dtype.kind in "iuO" and (one != wrapped(one, types[name])).any()
    ]
    return known.setdefault(key, _Expected(outputs, wrong, largest, beyond))


def _largest(tensor: Tensor, one: Analysed) -> Largest:
    """Return the largest rounding error of a tensor with its place."""
    name = tensor.name
    if not one.exact.size:
        return Largest(0.0, 0.0, name)
    error = np.where(np.isnan(one.error), np.inf, one.error)
    index = np.unravel_index(int(np.argmax(error)), one.exact.shape)
    scale = magnitude(one.exact)
    place = f"{name}[{', '.join(map(str, index))}]" if index else name
    narrower = error[index] > _NARROWER * unit_roundoff(tensor.dtype) * one.unit[index]
    found = float(error[index]) / scale, float(one.tolerance[index]) / scale, place
    return Largest(*found, str(tensor.dtype) if narrower else "")


def _ignored(program: Program, reference: Reference, sets: list[dict[str, Array]], read: list[str]) -> list[str]:
    """Return the tensors that a reference ignores: they change its results on no set of inputs."""

    def ignored() -> list[str]:
        first, other = sets[0], sets[-1]
        before = answers_of(reference, program, first)
        return [
            name
            for name in read
            if all(
                np.array_equal(a, b, equal_nan=a.dtype.kind == "f")
                for a, b in zip(before, answers_of(reference, program, {**first, name: other[name]}), strict=True)
            )
        ]

    return once(_IGNORED.setdefault(program, {}), reference, ignored)


def _of_size(verify_with: Smaller | None, inputs: object) -> Smaller | None:
    """Return the smaller instance, unless the inputs are arrays: these fit the design's own size only."""
    return verify_with if inputs is None or callable(inputs) else None


def _given(program: Program, read: list[str], inputs: object, seed: int) -> list[dict[str, Array]]:
    """Return the arrays that a program is run on: the study's sets of inputs, completed by random ones.

    Without such sets there are two. One has both signs and similar magnitudes, the other is positive with very
    different magnitudes, so that no activation hides the values before it.
    """
    if inputs is None:
        return [random_arrays(program, read, seed), positive_arrays(program, read, seed)]
    sets = sets_of(inputs, program)
    with of_the_study("inputs", LOST):
        return completed(program, read, sets, seed)


def _sizes(program: CompiledProgram) -> str:
    return ", ".join("x".join(map(str, t.shape)) for t in program.tensors if t.shape)


def _outputs(
    vmg: VMG, arrays: Mapping[str, Array], outputs: list[str], seconds: float, depths: Mapping[str, int]
) -> Arrays:
    own = {name: array.copy() if name in outputs else array for name, array in arrays.items()}
    _deeper(lambda needed: run_graph(vmg, *own.values(), depths=needed, seconds=seconds), depths)
    return [own[name] for name in outputs]


def _deeper(run: Callable[[Mapping[str, int]], _Result], depths: Mapping[str, int]) -> _Result:
    """A run that deadlocks only where pipelines would hold tokens: on an FPGA, whose depths were solved, they hold some
    too; here all is done in the order of the program."""
    while True:
        try:
            return run(depths)
        except DeadlockError as error:
            if not depths or not error.deeper:
                raise
            depths = {**depths, **error.deeper}
