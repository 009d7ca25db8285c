"""Equivalence check of two programs, with a bound of the probability that the answer is wrong.

    found = equivalent(program, folded)
    print(found)                equal: C (64x64) ... error probability below 2.2e-13

Both run over random points of a prime field, through the same compiled code, folds, streams and layouts as any run.
Different polynomials agree at a random point with a probability of at most their degree over the size of the field
(Schwartz and Zippel). Operations that are not polynomial become hashes of their name and operands: two programs are
equal when they apply the same operations to the same values.
"""

from __future__ import annotations

import ast
import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from allo_dse.common.errors import CompileLimit, SimulationError, TimeLimitError
from allo_dse.common.records import Array, Frozen, Ints, replace
from allo_dse.compiler.ir.nest import Loop, Node, read_nest
from allo_dse.compiler.model.arguments import Arguments
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import BoolArray, IntArray
from allo_dse.lang.types import DType
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program
from allo_dse.simulator.engine.engine import Engine, compile_bodies
from allo_dse.space.design import Design

from ..execute.observation import Inputs, arrays_of, sets_of
from ..execute.run import Externals, Run, State, Wiring, compile_places, wiring_of
from .data_values import TooMuchWork, Undecidable, Unwritten
from .domains import OWN_WORDS, PRIME_BITS, Code, Constants, DegreeDomain, Domain, FieldDomain, Log, random_prime
from .formulas import FormulaDomain, FormulaLog, told_apart
from .path_comparison import MOST_ENTRIES, PathDomain, PathLog
from .rewrite import rewritten

# Runs of a graph over a domain: engine, wiring and folds are those of any run, only the words differ.


KEPT_ENGINES = 8
"""A program is compared with one fold after the other."""


class EndedEarly(SimulationError):
    """A program that started but did not reach its end: it deadlocks, or leaves its arrays."""


class Side(Frozen, dict=True):
    """One of the two programs that are compared: a graph, with stream depths where they differ from the declared."""

    vmg: VMG
    depths: Mapping[str, int]
    allow_reassociation: bool = False

    @cached_property
    def wiring(self) -> Wiring:
        return wiring_of(self.vmg, self.depths)

    def run(
        self,
        domain: Domain,
        tensors: list[IntArray],
        key: int,
        seconds: float | None,
        most_operations: int | None = None,
        log: Log | None = None,
        undefined: int = 0,
    ) -> tuple[int, int]:
        """Run over a domain; `tensors` are words, and written in place.

        Args:
            key: key of the hashes.
            undefined: seed of the values of memory that was never written.
            log: of the operations, in a domain that keeps one.
            most_operations: limit of the operations in a run over degrees.

        Returns:
            The sums of the tasks' own two words.

        Raises:
            TooMuchWork: if it exceeds the limit.
            EndedEarly: if it does not reach its end.
        """
        program, constants = self.vmg.program, log or domain
        # Variables as they are before the first call, as words, and behind them each task's own words.
        variables: dict[tuple[str, str], list[Array]] = {}
        rng = np.random.default_rng([key, undefined])
        for kernel in program.kernels:
            for count, task_class in zip(kernel.class_sizes, kernel.classes, strict=True):
                rows = [words_of(np.asarray(v.initial), v.dtype, constants) for v in task_class.state]
                words = np.array([key, 0, 0 if log is None else log.address, domain.mode], np.int64)
                last = np.tile(words, (count, 1))
                if not domain.mode:  # not in runs that count degrees
                    last[:, 1] = rng.integers(1 << 62, size=count)
                states = (np.tile(row, (count, *(1,) * row.ndim)) for row in rows)
                variables[kernel.name, task_class.name] = [*states, last]
        shared = {t.tensor.name: words_of(np.asarray(t.initial), t.tensor.dtype, constants) for t in program.shared}
        state = State(variables, dict(shared))
        named = {t.name: words for t, words in zip(program.tensors, tensors, strict=True)}
        with compile_places(program):
            engine = _engine(program, domain.compiled, self.allow_reassociation)
        run = Run(self.vmg, engine, named | state.shared, self.wiring, state, Externals(program))
        own = [arrays[-1].reshape(-1, OWN_WORDS) for arrays in state.variables.values() if arrays[-1].size]

        def require_little_work(_finished: int = 0) -> None:
            if most_operations is not None and _counted(own)[0] > most_operations:
                raise TooMuchWork(f"more than {most_operations:,} operations")

        network, task_id = run.network()
        result = engine.run(network, seconds=seconds, progress=require_little_work)
        try:
            run.require_finished(result, task_id)
        except SimulationError as failure:
            raise EndedEarly(failure.message, hint=failure.hint) from None
        require_little_work()
        return _counted(own)


@lru_cache(KEPT_ENGINES)
def _engine(program: CompiledProgram, domain: Code, allow_reassociation: bool) -> Engine:
    classes = list(program.task_classes)
    bodies = rewritten(classes, domain, allow_reassociation=allow_reassociation)
    return compile_bodies(bodies, elements=program.elements_computed)


def _counted(own: Sequence[Array]) -> tuple[int, int]:
    """The sums of the first two words of all tasks."""
    first, second, *_ = np.concatenate(own).sum(axis=0, dtype=object).tolist()
    return first, second


def words_of(values: Array, dtype: DType, domain: Constants) -> IntArray:
    """Numbers as words."""
    words = [domain.constant(_number(value, dtype)) for value in values.ravel().tolist()]
    return np.array(words, np.int64).reshape(values.shape)


def _number(value: float, dtype: DType) -> Fraction | float:
    if not isinstance(value, float):
        return Fraction(int(value))
    return Fraction(math.floor(value * 2**dtype.fraction_bits)) if dtype.is_fixed else value


ERROR = 1e-12
"""The probability of a wrong answer is at most this."""
MAX_POINTS = 32
MOST_CODE = 60_000
"""Characters of MLIR that are compiled within seconds, where work is limited."""


class Difference(Frozen):
    """The first element in which two programs differ.

    Attributes:
        tensor: its name in the first program.
        index: the first element that differs, in row-major order.
        elements: number of elements that differ, of `size`.
        values: the two values there: elements of the field, at the random point.
        writers: the tasks of the two programs whose tiles hold the element, with their places in the source.
        formulas: the two formulas there, without common terms; empty if a run is too long to record.
    """

    tensor: str
    index: Ints
    elements: int
    size: int
    values: tuple[int, int]
    writers: tuple[str, str]
    formulas: tuple[str, str] | None = None

    def __str__(self) -> str:
        where = f"{self.tensor}[{', '.join(map(str, self.index))}]"
        own, other = [f": {formula}" for formula in self.formulas] if self.formulas else ["", ""]
        return (
            f"{where} is {self.values[0]} in the one and {self.values[1]} in the other at a random point "
            f"({self.elements:,} of {self.size:,} elements differ)\n"
            f"  written by {self.writers[0]}{own}\n  and by {self.writers[1]}{other}"
        )


class Equivalence(Frozen):
    """The result of comparing two programs; true as a condition if they are equal.

    Attributes:
        points: random points that were tried.
        degree: bound of the degree of the compared polynomials.
        error: bound of the probability that different programs are found equal.
        operations: operations on data in one run of both.
        seconds: total time.
        difference: the first place where they differ.
        reordered: the first float in which they agree for real numbers only, because one of them reassociates.
        message: the reason why one of them ended early.
        ended: the one that ended early: 0 or 1.
        signed_zeros: whether 0.0 and -0.0 are told apart wherever more than the sign of a zero depends on it.
        paths: number of sets of inputs whose paths were compared; 0 when the result holds for all inputs.
    """

    equal: bool
    points: int
    degree: int
    error: float
    operations: int
    seconds: float
    difference: Difference | None = None
    reordered: Difference | None = None
    message: str = ""
    ended: int | None = None
    paths: int = 0
    signed_zeros: bool = True

    def __bool__(self) -> bool:
        return self.equal

    def __str__(self) -> str:
        if not self.equal:
            hint = "\n  but equal for real numbers, which is enough with `allow_reassociation=True`"
            return f"different: {self.difference or self.message}{hint if self.reordered else ''}"
        order = f"; in another order: {self.reordered}" if self.reordered else ""
        zeros = (
            "" if self.signed_zeros else "; 0.0 and -0.0 are not told apart, and a division or a bit cast can see it"
        )
        plural = "s" if self.paths > 1 else ""
        path = f", on the path{plural} of {self.paths} set{plural} of inputs" if self.paths else ""
        return (
            f"equal at {self.points} random point{'s' if self.points > 1 else ''} of degree {self.degree:,}, "
            f"{self.operations:,} operations{path}: error probability below {self.error:.1e}{zeros}{order}"
        )


def equivalent(
    a: Program | VMG | Design,
    b: Program | VMG | Design,
    *,
    allow_reassociation: bool = False,
    seed: int = 0,
    seconds: float | None = None,
    most_operations: int | None = None,
    inputs: Inputs | Sequence[Inputs] | None = None,
) -> Equivalence:
    """Return whether two programs compute the same outputs from all inputs.

    Args:
        a, b: programs, folded graphs or designs with the same tensors, in the same order.
        allow_reassociation: treat floating-point sums and products as those of real numbers. By default their order
            counts; `reordered` of the result says where it matters.
        seed: seed of the prime and the points.
        seconds: time limit of each run.
        most_operations: limit of the operations on data in one run of either program, and of the elements in its
            tensors.
        inputs: arrays by the names of tensors in `a`, or a list of such sets; missing tensors are zero. Programs in
            which data decides on loops, indices or streams are compared on the paths of these inputs, for all inputs
            that take the same paths.

    Raises:
        Undecidable: when data decides on more than values (loops, indices, use of streams) and no inputs are given,
            or on something that neither formulas nor inputs tell. The message names the place.
        TooMuchWork: when it takes more operations or time than allowed.
        SimulationError: when the tensors of the programs do not match, or one of the programs cannot be run.
    """
    sides = [
        Side(
            one if isinstance(one, VMG) else one.vmg,
            dict(one.depths) if isinstance(one, Design) else {},
            allow_reassociation,
        )
        for one in (a, b)
    ]
    program = sides[0].vmg.program
    mine, theirs = ([(t.dtype, t.shape) for t in side.vmg.program.tensors] for side in sides)
    if mine != theirs:
        programs = [side.vmg.program for side in sides]
        shown = [", ".join(f"{t.name}: {t.dtype}{list(t.shape)}" for t in one.tensors) for one in programs]
        raise SimulationError(
            f"{program.name} and {programs[1].name} do not have the same arguments: ({shown[0]}) and ({shown[1]})",
            hint="programs are compared argument by argument: same types, same shapes, same order",
        )
    if most_operations is not None:
        for side in sides:
            require_little_work(side.vmg, most_operations)
    sets = [] if inputs is None else sets_of(inputs, program)
    numbers = [list(Arguments(program, arrays_of(program, one)).by_name.values()) for one in sets]
    given: list[Numbers | None] = [None] if inputs is None else [*numbers]
    found = _compared(sides, given, limits := _Limits(seed, seconds, most_operations))
    if found.ended is None and any(t.dtype.is_float for t in program.tensors) and found.equal == allow_reassociation:
        others = [replace(side, allow_reassociation=not allow_reassociation) for side in sides]
        with suppress(Undecidable):  # `reordered` stays unknown, but the answer holds
            other = _compared(others, given, limits)
            return (
                replace(found, reordered=found.difference or other.difference) if found.equal != other.equal else found
            )
    return found


class _Limits(Frozen):
    """The seed, and the limits of runs."""

    seed: int
    seconds: float | None
    most_operations: int | None


def _compared(sides: list[Side], given: Sequence[Numbers | None], limits: _Limits) -> Equivalence:
    started = time.perf_counter()
    by_path, field = given[0] is not None, FieldDomain(random_prime(limits.seed))
    counted: list[tuple[int, int, int]] = []
    try:
        counted.extend(_degree(side, DegreeDomain(field), limits, given) for side in sides)
        degree, (operations, hashes) = max(c[0] for c in counted), (sum(c[k] for c in counted) for k in (1, 2))
        points, error = points_for(degree, hashes)
        difference, tried = _difference(sides, field, points, limits, given)
        if difference is not None and not by_path:
            difference = replace(difference, formulas=_formulas(sides, difference, operations, limits.seconds))
    except (TimeLimitError, CompileLimit) as failure:
        raise TooMuchWork(failure.message, hint=failure.hint) from None
    except EndedEarly as failure:
        taken = time.perf_counter() - started
        return Equivalence(False, 0, 0, 0.0, 0, taken, message=failure.message, ended=min(len(counted), 1))
    taken, paths = time.perf_counter() - started, len(given) if by_path else 0
    texts = (task_class.body.mlir for side in sides for task_class in side.vmg.program.task_classes)
    told_apart_zeros = not any(map(_sees_signed_zeros, texts))
    return Equivalence(
        difference is None, tried, degree, error, operations, taken, difference, paths=paths,
        signed_zeros=told_apart_zeros,
    )  # fmt: skip


def points_for(degree: int, hashes: int) -> tuple[int, float]:
    """Return the number of random points needed, and the error probability with that many.

    Two of n hashes collide with probability at most (degree + 1) / p, and there are n**2 / 2 pairs. Without collisions,
    the outputs are polynomials of independent variables.

    Raises:
        Undecidable: when the degree is too high.
    """
    # Schwartz 1980, Zippel 1979: a nonzero polynomial of this degree vanishes at a random point of a field with
    # probability degree / p at most. Points are independent, so their probabilities multiply.
    once = (degree + 1) * (1 + hashes * hashes / 2) / 2 ** (PRIME_BITS - 1)
    points = math.ceil(math.log(ERROR) / math.log(once)) if once < 1 else MAX_POINTS + 1
    if points > MAX_POINTS:
        raise Undecidable(
            f"polynomials of degree {degree:,} over {hashes:,} operations that are not sums or products are too large "
            "to be told apart at random points",
            hint="compare a smaller instance",
        )
    return points, once**points


def require_little_work(vmg: VMG, most_operations: int) -> None:
    """Check, before anything is compiled or run, that a graph is not known to need too much work.

    Raises:
        TooMuchWork: with the quantity that is too large.
    """
    program = vmg.program
    elements = sum(math.prod(t.shape) for t in program.tensors)
    characters = sum(len(task_class.body.mlir) for task_class in program.task_classes)
    rounds = (
        len(group.tasks) * _least_rounds(read_nest(group.task_class.body.mlir).body) for group in vmg.graph.class_tasks
    )
    limits = {"elements": most_operations, "characters of code": MOST_CODE, "rounds of loops": most_operations}
    # Rounds come last: to read the code takes longest.
    for (what, most), amounts in zip(limits.items(), ([elements], [characters], rounds), strict=True):
        if (amount := sum(amounts)) > most:
            raise TooMuchWork(f"{amount:,} {what} are more than {most:,}")


def _least_rounds(nodes: Iterable[Node]) -> int:
    """Return a lower bound of the iterations of a task's innermost loops, as far as trip counts are constant."""
    rounds = 0
    for node in nodes:
        if isinstance(node, Loop):
            trips = node.trips
            rounds += (trips.constant if trips is not None and trips.is_constant else 1) * _least_rounds(node.body)
    return max(rounds, 1)


Numbers = list[Array]
"""An array per tensor: the inputs whose path is taken."""


def _run(
    side: Side,
    domain: Domain,
    words: list[IntArray],
    given: Numbers | None,
    *,
    key: int = 0,
    undefined: int = 0,
    seconds: float | None,
    most_operations: int | None = None,
) -> tuple[list[IntArray], tuple[int, int]]:
    """The words of the tensors after a run, all of it or by the path of given inputs; and the tasks' counts."""
    if given is None:
        found = [word.copy() for word in words]
        return found, side.run(domain, found, key, seconds, most_operations, undefined=undefined)
    log = PathLog(domain)
    found = [log.enter(word, numbers) for word, numbers in zip(words, given, strict=True)]
    counts = side.run(PathDomain(domain), found, key, seconds, most_operations, log, undefined)
    if log.is_full:
        raise TooMuchWork(f"more than {MOST_ENTRIES:,} operations", hint="give smaller inputs")
    if log.undefined_decides:
        raise _undefined(side, "the path")
    return [log.formulas(word) for word in found], counts


def _degree(side: Side, domain: DegreeDomain, limits: _Limits, given: Sequence[Numbers | None]) -> tuple[int, int, int]:
    """Return the highest degree, and the numbers of operations and of hashes."""
    ones = [np.ones(t.shape, np.int64) for t in side.vmg.program.tensors]
    found = [
        _run(side, domain, ones, one, seconds=limits.seconds, most_operations=limits.most_operations) for one in given
    ]
    degree = max(int(words.max(initial=0)) for tensors, _ in found for words in tensors)
    operations, hashes = (sum(counts[k] for _, counts in found) for k in (0, 1))
    return degree, operations, hashes


def _difference(
    sides: list[Side], field: FieldDomain, points: int, limits: _Limits, given: Sequence[Numbers | None]
) -> tuple[Difference | None, int]:
    """Return the first difference, and the number of points that were tried."""
    for point in range(points):
        rng = np.random.default_rng([limits.seed, point])
        key = int(rng.integers(1 << 62))  # a new one per point: hashes that collide at one point do not at the next
        words = [rng.integers(field.prime, size=t.shape) for t in sides[0].vmg.program.tensors]
        for one in given:
            # Unwritten memory differs between the two sides, so equal results do not depend on it.
            run = partial(_run, domain=field, words=words, given=one, key=key, seconds=limits.seconds)
            found = [run(side, undefined=k)[0] for k, side in enumerate(sides)]
            for position, (own, other) in enumerate(zip(*found, strict=True)):
                if (own != other).any():
                    for k, side in enumerate(sides):
                        _require_defined(side, found[k], run(side, undefined=2)[0])
                    return _described(sides, position, own, other, field), point + 1
    return None, points


def _require_defined(side: Side, found: list[IntArray], again: list[IntArray]) -> None:
    """Check that no result depends on memory that was never written.

    Raises:
        Undecidable: with the first element that does, and variables that are declared without a value.
    """
    for tensor, own, other in zip(side.vmg.program.tensors, found, again, strict=True):
        if (own != other).any():
            index = np.argwhere(own != other)[0].tolist()
            raise _undefined(side, f"{tensor.name}{index if index else ''}")


def _undefined(side: Side, what: str) -> Unwritten:
    program, found = side.vmg.program, dict[str, None]()
    for task_class in program.task_classes:
        place = task_class.location
        with suppress(OSError, SyntaxError, ValueError):
            if place is not None:
                for node in ast.walk(ast.parse(Path(place.file).read_text())):
                    if isinstance(node, ast.FunctionDef) and node.lineno == place.line:
                        found |= dict.fromkeys(_of_function(node, place.file))
    variables = "; ".join(found) or "a local variable"
    return Unwritten(
        f"{what} of {program.name} depends on memory that was never written: {variables}",
        hint="give the variable a value where it is declared, or write it before it is read",
    )


def _described(sides: list[Side], position: int, own: IntArray, other: IntArray, field: FieldDomain) -> Difference:
    wrong = own != other
    first = int(np.flatnonzero(wrong)[0])
    index = tuple(map(int, np.unravel_index(first, wrong.shape)))
    values = (field.number(int(own.ravel()[first])), field.number(int(other.ravel()[first])))
    writers = _writer(sides[0].vmg, position, first), _writer(sides[1].vmg, position, first)
    name = sides[0].vmg.program.tensors[position].name
    return Difference(name, index, int(np.count_nonzero(wrong)), wrong.size, values, writers)


def _formulas(
    sides: list[Side], difference: Difference, operations: int, seconds: float | None
) -> tuple[str, str] | None:
    """Return the formulas of both programs at a difference, from a run that records all operations."""
    if operations > MOST_ENTRIES:
        return None
    found = []
    for side in sides:
        domain, tensors = FormulaDomain(), side.vmg.program.tensors
        # Numbers that are not constants have entries too; there are hardly more of them than operations.
        log = FormulaLog(domain, [(t.name, t.shape) for t in tensors], 2 * operations + 1000)
        side.run(domain, log.inputs, 0, seconds, log=log)
        if log.is_full:
            return None
        position = [t.name for t in sides[0].vmg.program.tensors].index(difference.tensor)
        found.append((log, int(log.inputs[position][difference.index])))
    return told_apart(*found)


def _writer(vmg: VMG, position: int, element: int) -> str:
    """Return the tasks that write tiles with an element of a tensor, and the places of their kernels."""
    program, found = vmg.program, []
    name = program.tensors[position].name
    for group in vmg.graph.class_tasks:
        ports = {kernel_arg.arg for kernel_arg in group.task_class.tensor_ports if kernel_arg.writes}
        for arg, (tensor, offset, strides) in enumerate(group.tiles):
            if tensor == name and arg in ports:
                shape = next(p.tile_shape for p in group.task_class.tensor_ports if p.arg == arg)
                holds = _holds(np.broadcast_to(offset, len(group.tasks)), shape, strides, element)
                found += [(program.task_name(int(t)), group.task_class.location) for t in group.tasks[holds][:2]]
    return ", ".join(f"{task} ({place})" for task, place in found[:2]) or "no task"


def _holds(offset: IntArray, shape: Ints, strides: Ints, element: int) -> BoolArray:
    """Return a mask of the tiles, given by their first elements, that hold an element."""
    inside = np.zeros((), np.int64)
    for size, stride in zip(shape, strides, strict=True):
        inside = np.add.outer(inside, stride * np.arange(size))
    return np.isin(element - offset, inside)


# Operations whose results depend on the sign of a zero.

_OPERATION = re.compile(
    r"arith\.divf %\w+, (?P<divisor>%\w+)|"
    r"arith\.bitcast %\w+ : [bt]?f\d|llvm\.bitcast|"
    r"math\.(?:copysign|atan2|rsqrt|f?powf|fpowi)\b"
)


def _sees_signed_zeros(mlir: str) -> bool:
    """Return whether an operation tells 0.0 from -0.0 by more than the sign of a zero.

    Sums, products, comparisons, roundings and the functions with f(-0.0) = f(0.0) or -f(0.0) do not.
    """
    for match in _OPERATION.finditer(mlir):
        name = re.escape(match["divisor"] or "none")
        found = re.search(rf"{name} = arith\.constant (-?[\d.]+(?:[eE][-+]?\d+)?) :", mlir)
        if found is None or float(found[1]) == 0:
            return True
    return False


# Variables that are declared without a value, and the places that read them.


def _of_function(function: ast.FunctionDef, file: str) -> Iterator[str]:
    nodes: list[Any] = list(ast.walk(function))
    written = {n.value for n in nodes if isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Store)}
    for node in nodes:
        if isinstance(node, ast.AnnAssign) and node.value is None and isinstance(node.target, ast.Name):
            name = node.target.id
            used = [n for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load) and n not in written]
            reads = sorted({n.lineno for n in used if n.id == name})
            lines = f", read at line{'s' * (len(reads) > 1)} {', '.join(map(str, reads))}" if reads else ""
            yield f"`{name}` ({file}:{node.lineno}{lines})"
