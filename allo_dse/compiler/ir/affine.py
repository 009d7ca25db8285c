"""Linear forms of loop variables and process ids, conditions on them, and the arithmetic that makes them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, TypeAlias

import numpy as np

from allo_dse.common.mlir.bindings import Operation, Value, ir
from allo_dse.common.records import Frozen, Ints

PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_HOLDS: Mapping[str, Callable[[int], bool]] = {
    "eq": lambda d: d == 0,
    "ne": lambda d: d != 0,
    "lt": lambda d: d < 0,
    "le": lambda d: d <= 0,
    "gt": lambda d: d > 0,
    "ge": lambda d: d >= 0,
}


_MOST_SHIFTED = 62
_MOST_NARROW = 31  # bits; wider integers are taken not to wrap
_MODULAR = ("arith.addi", "arith.subi", "arith.muli", "arith.shli", "arith.trunci")  # alike with and without a sign
SHIFTS = ("arith.shli", "arith.shrsi", "arith.shrui")


class Linear(Frozen):
    """The sum of `coefficient * variable` over `terms`, plus a constant; variables are value numbers.

    Attributes:
        derived: further summands that are not linear, each with its coefficient.
    """

    terms: tuple[tuple[int, int], ...]
    constant: int = 0
    derived: tuple[tuple[Derived, int], ...] = ()

    @staticmethod
    def variable(number: int) -> Linear:
        return Linear(((number, 1),))

    @property
    def is_constant(self) -> bool:
        return not self.terms and not self.derived

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for variable, factor in other.terms:
            terms[variable] = terms.get(variable, 0) + factor
        derived = dict(self.derived)
        for part, factor in other.derived:
            derived[part] = derived.get(part, 0) + factor
        return Linear(
            tuple(sorted((v, f) for v, f in terms.items() if f)),
            self.constant + other.constant,
            tuple(sorted(((d, f) for d, f in derived.items() if f), key=repr)),
        )

    def scaled(self, factor: int) -> Linear:
        if not factor:
            return Linear(())
        return Linear(
            tuple((v, f * factor) for v, f in self.terms),
            self.constant * factor,
            tuple((d, f * factor) for d, f in self.derived),
        )

    def factor(self, variable: int) -> int:
        """The coefficient of a variable."""
        return next((f for v, f in self.terms if v == variable), 0)

    @property
    def variables(self) -> set[int]:
        """All variables that it depends on."""
        return {v for v, _ in self.terms}.union(*(part.variables for part, _ in self.derived))

    def value(self, variables: Mapping[int, int]) -> int | None:
        """Its value, or None when a variable is not given."""
        total = self.constant
        for variable, factor in self.terms:
            if variable not in variables:
                return None
            total = total + factor * variables[variable]  # variables may be arrays that broadcast
        for part, factor in self.derived:
            left, right = part.left.value(variables), part.right.value(variables)
            if left is None or right is None:
                return None
            total = total + factor * part.apply(left, right)
        return total

    def put_in(self, variable: int, form: Linear) -> Linear:
        """The same with a form in place of a variable."""
        factor = self.factor(variable)
        total = Linear(self.terms, self.constant) + Linear(((variable, -factor),)) + form.scaled(factor)
        for part, times in self.derived:
            inside = derive(part.name, part.left.put_in(variable, form), part.right.put_in(variable, form))
            total = total + inside.scaled(times)
        return total

    def extreme(self, ends: Iterable[tuple[int, tuple[Linear, Linear]]], *, most: bool) -> Linear:
        """Return its least or greatest value over variables from a first to a last one, inner variables first.

        A variable in a derived part stays: only linear forms have their extremes at the ends.
        """
        form = self
        for variable, (first, last) in ends:
            factor = form.factor(variable)
            if factor and all(variable not in part.variables for part, _ in form.derived):
                form = form.put_in(variable, last if (factor > 0) is most else first)
        return form

    def at(self, values: Mapping[int, int]) -> Linear:
        """The same where some variables have values."""
        left = tuple((v, f) for v, f in self.terms if v not in values)
        if len(left) == len(self.terms) and not self.derived:
            return self
        total = Linear(left, self.constant + sum(f * values[v] for v, f in self.terms if v in values))
        for part, times in self.derived:
            total = total + derive(part.name, part.left.at(values), part.right.at(values)).scaled(times)
        return total


class Derived(Frozen):
    """A control expression that is not a sum.

    Attributes:
        name: an operation in `DERIVE`, or a table that `left` indexes.
    """

    name: str | Ints
    left: Linear
    right: Linear

    def apply(self, left: Any, right: Any) -> Any:
        """Its value for numbers, or arrays of numbers, as operands."""
        if isinstance(self.name, str):
            return DERIVE[self.name](left, right)
        return np.take(self.name, left, mode="clip")

    @property
    def variables(self) -> set[int]:
        """All variables that it depends on."""
        return self.left.variables | self.right.variables


DERIVE: Mapping[str, Callable[[Any, Any], Any]] = {
    "arith.floordivsi": lambda left, right: left // (max(right, 1) if isinstance(right, int) else np.maximum(right, 1)),
    "arith.muli": operator.mul,
    "arith.minsi": np.minimum,
    "arith.maxsi": np.maximum,
    "arith.shli": lambda left, right: left << _amount(right),
    "arith.shrsi": lambda left, right: left >> _amount(right),
}
"""Meanings of derived forms, for numbers and for arrays; each is monotonic in either operand. Divisors are positive."""


def derive(name: str | Ints, left: Linear, right: Linear) -> Linear:
    """Apply `name` to two forms.

    Two constants give a constant, and a product with a constant is linear. A quotient takes the multiples of its
    divisor out as a linear part.
    """
    part = Derived(name, left, right)
    if left.is_constant and right.is_constant:
        return Linear((), int(part.apply(left.constant, right.constant)))
    if name == "arith.muli" and (left.is_constant or right.is_constant):
        return left.scaled(right.constant) if right.is_constant else right.scaled(left.constant)
    if name in ("arith.shli", "arith.shrsi") and right.is_constant:
        power = 1 << _amount(right.constant)
        return left.scaled(power) if name == "arith.shli" else derive("arith.floordivsi", left, Linear((), power))
    if name != "arith.floordivsi" or not right.is_constant:
        return Linear((), 0, ((part, 1),))
    by = right.constant
    terms = tuple((v, f // by) for v, f in left.terms if f % by == 0)
    whole = Linear(terms, left.constant // by, tuple((d, f // by) for d, f in left.derived if f % by == 0))
    rest = left + whole.scaled(-by)
    return whole if rest.is_constant else whole + Linear((), 0, ((Derived(name, rest, right), 1),))


def _amount(right: Any) -> Any:
    return max(0, min(right, _MOST_SHIFTED)) if isinstance(right, int) else np.clip(right, 0, _MOST_SHIFTED)


Ranges = Mapping[int, tuple[int, int]]
"""The smallest and the largest value of variables."""
UNKNOWN = (-(1 << 40), 1 << 40)


def extent(form: Linear, ranges: Ranges) -> tuple[int, int]:
    """Bounds of a form: its smallest and largest value, or somewhat wider."""
    ends = [sorted((factor * low, factor * high)) for v, factor in form.terms for low, high in [ranges.get(v, UNKNOWN)]]
    for part, factor in form.derived:
        left, right = extent(part.left, ranges), extent(part.right, ranges)
        lefts: Iterable[int] = left
        if not isinstance(part.name, str):
            first, last = (min(max(end, 0), len(part.name) - 1) for end in left)
            lefts = range(first, last + 1)
        values = [factor * int(part.apply(*pair)) for pair in product(lefts, right)]
        ends.append([min(values), max(values)])
    return form.constant + sum(e[0] for e in ends), form.constant + sum(e[1] for e in ends)


def holds(predicate: str, difference: int) -> bool:
    """Return whether `left predicate right` holds, given left - right."""
    return _HOLDS[predicate.lstrip("su") if predicate not in ("eq", "ne") else predicate](difference)


class Compare(Frozen):
    """A comparison: `left predicate right`, where `difference` is left - right."""

    predicate: str
    difference: Linear


@dataclass(frozen=True)
class Choice:
    """`then if test else otherwise`; and, or and not are made of it."""

    test: Test
    then: Test
    otherwise: Test


Test: TypeAlias = bool | Compare | Choice
"""A condition that linear forms decide."""


def decided(test: Test | None, variables: Mapping[int, int]) -> bool | None:
    """Evaluate a condition; None if it depends on data, or on variables that are not given."""
    if test is None or isinstance(test, bool):
        return test
    if isinstance(test, Compare):
        value = test.difference.value(variables)
        return None if value is None else holds(test.predicate, value)
    chosen = decided(test.test, variables)
    if chosen is not None:
        return decided(test.then if chosen else test.otherwise, variables)
    then, otherwise = decided(test.then, variables), decided(test.otherwise, variables)
    return then if then == otherwise else None


def everywhere(test: Test | None, grid: Mapping[int, Any]) -> Any:
    """Evaluate a condition for values, or arrays of values, of all its variables."""
    if isinstance(test, Compare):
        value = test.difference.value(grid)
        assert value is not None
        return holds(test.predicate, value)
    if isinstance(test, Choice):
        parts = (everywhere(part, grid) for part in (test.test, test.then, test.otherwise))
        return np.where(*parts)
    return test


def forms_of(test: Test | None) -> Iterator[Linear]:
    """The forms that a condition compares."""
    if isinstance(test, Compare):
        yield test.difference
    elif isinstance(test, Choice):
        for part in (test.test, test.then, test.otherwise):
            yield from forms_of(part)


def replaced(test: Test | None, put: Callable[[Linear], Linear]) -> Test | None:
    """The condition with every form replaced."""
    if isinstance(test, Compare):
        return Compare(test.predicate, put(test.difference))
    if isinstance(test, Choice):
        parts = (replaced(part, put) for part in (test.test, test.then, test.otherwise))
        return Choice(*parts)  # type: ignore[arg-type]
    return test


class LinearForms:
    """The linear forms of the index values of a function.

    The form of an integer of fewer than 32 bits equals its value modulo 2**bits. Its use as a number decides whether it
    has a sign.

    Attributes:
        ranges: of the loops' variables, where their bounds are known.
        pids: process ids. Values that depend on them alone have forms, linear or not.
    """

    def __init__(self) -> None:
        self.ranges: dict[int, tuple[int, int]] = {}
        self.pids: frozenset[int] = frozenset()
        self._forms: dict[Value, Linear] = {}
        self._tests: dict[Value, Test] = {}

    def set(self, value: Value, form: Linear) -> None:
        self._forms[value] = form

    def get(self, value: Value) -> Linear | None:
        """The form of a value, or None when it has none."""
        if value in self._forms:
            return self._forms[value]
        if not isinstance(value, ir.BlockArgument) and value.owner.name == "arith.constant":
            attribute = value.owner.attributes["value"]
            if isinstance(attribute, ir.IntegerAttr):
                return Linear((), int(attribute.value))
        return None

    def test(self, condition: Value) -> Test | None:
        """The condition of a value; None if it depends on data."""
        if condition not in self._tests and not isinstance(condition, ir.BlockArgument):
            owner = condition.owner
            if owner.name == "arith.constant" and str(condition.type) == "i1":
                return bool(ir.BoolAttr(owner.attributes["value"]).value)
        return self._tests.get(condition)

    def choose(self, op: Operation, then: Iterable[Value], otherwise: Iterable[Value]) -> bool:
        """Record the results of an `scf.if` without operations as conditions, if everything it yields is one.

        Returns:
            Whether they were recorded.
        """
        test = self.test(op.operands[0])
        pairs = [(self.test(one), self.test(other)) for one, other in zip(then, otherwise, strict=True)]
        if test is None or not pairs or any(one is None or other is None for one, other in pairs):
            return False
        for result, (one, other) in zip(op.results, pairs, strict=True):
            assert one is not None
            assert other is not None
            self._tests[result] = Choice(test, one, other)
        return True

    def compute(self, op: Operation) -> bool:
        """Record the form of an operation if it is index arithmetic, or a condition on it.

        Returns:
            Whether the form replaces the operation. It does not for shifts: they have a form, but are hardware too.
        """
        if op.name == "arith.cmpi":
            return self._compare(op)
        if op.name in ("arith.andi", "arith.ori", "arith.xori", "arith.select") and str(op.results[0].type) == "i1":
            tests = [self.test(v) for v in op.operands]
            first, second = tests[0], tests[1]
            if first is None or second is None or tests[-1] is None:
                return False
            if op.name == "arith.select":
                found = Choice(first, second, tests[-1])
            elif op.name == "arith.andi":
                found = Choice(first, second, False)
            elif op.name == "arith.ori":
                found = Choice(first, True, second)
            else:
                found = Choice(first, Choice(second, False, True), second)
            self._tests[op.results[0]] = found
            return True
        operands = [self._read(op, v) for v in op.operands]
        if op.name == "affine.apply":
            form = _mapped(ir.AffineMapAttr(op.attributes["map"]).value, operands)
        else:
            form = _combined(op.name, operands) or self._of_task(op.name, operands)
        if form is None or len(list(op.results)) != 1:
            return False
        self._forms[op.results[0]] = form
        return op.name not in SHIFTS

    def _of_task(self, name: str, forms: list[Linear | None]) -> Linear | None:
        """The form of an operation on numbers that a task's place in the mesh decides."""
        known = [form for form in forms if form is not None and form.variables <= self.pids]
        if name not in ("arith.muli", "arith.floordivsi") or len(known) < len(forms):
            return None
        if name == "arith.floordivsi" and extent(known[1], self.ranges)[0] <= 0:
            return None
        return derive(name, *known)

    def entry(self, result: Value, table: Ints, shape: Ints, index: Iterable[Linear | None]) -> None:
        """Record the form of a row-major table's entry, if a task's place in the mesh decides the index."""
        flat = Linear(())
        for form, size in zip(index, shape, strict=True):
            if form is None or not form.variables <= self.pids:
                return
            flat = flat.scaled(size) + form
        self._forms[result] = derive(table, flat, Linear(()))

    def _read(self, op: Operation, value: Value) -> Linear | None:
        """The form of an operand; a narrow integer that is read as a number wraps."""
        form = self.get(value)
        if form is None or op.name in _MODULAR:
            return form
        return self._wrapped(value, form, signed=op.name != "arith.extui")

    def _wrapped(self, value: Value, form: Linear, *, signed: bool) -> Linear:
        """Return the form of a value after it wraps to the width of its type.

        It stays linear if the whole range wraps equally often.
        """
        bits = ir.IntegerType(value.type).width if isinstance(value.type, ir.IntegerType) else _MOST_NARROW + 1
        if bits > _MOST_NARROW:
            return form
        least = Linear((), -(1 << bits - 1) if signed else 0)
        above = form + least.scaled(-1)
        low, high = (end >> bits for end in extent(above, self.ranges))
        if low == high:
            return form + Linear((), -(low << bits))
        rounds = Derived("arith.floordivsi", above, Linear((), 1 << bits))
        return form + Linear((), 0, ((rounds, -(1 << bits)),))

    def _compare(self, op: Operation) -> bool:
        predicate = PREDICATES[int(ir.IntegerAttr(op.attributes["predicate"]).value)]
        sides = [(value, self.get(value)) for value in op.operands]
        left, right = (form and self._wrapped(v, form, signed=predicate[0] != "u") for v, form in sides)
        if left is None or right is None:
            return False
        self._tests[op.results[0]] = Compare(predicate, left + right.scaled(-1))
        return True

    def bounds(self, op: Operation) -> tuple[Linear | None, Linear | None, int]:
        """Lower and upper bound and step of a loop; a bound without a form is None, so is an unknown step (0).

        Its variable, which has a form already, is known to be within them from then on.
        """
        lower, upper, step = self._bounds(op)
        variable = self.get(op.regions[0].blocks[0].arguments[0])
        if lower is not None and upper is not None and variable is not None:
            first, last = extent(lower, self.ranges)[0], extent(upper, self.ranges)[1] - 1
            self.ranges[variable.terms[0][0]] = (first, max(first, last))
        return lower, upper, step

    def _bounds(self, op: Operation) -> tuple[Linear | None, Linear | None, int]:
        if op.name == "scf.for":
            lower, upper, step = (self.get(v) for v in list(op.operands)[:3])
            return lower, upper, step.constant if step is not None and step.is_constant else 0
        low, high = (ir.AffineMapAttr(op.attributes[name]).value for name in ("lowerBoundMap", "upperBoundMap"))
        operands = [self.get(v) for v in op.operands]
        first, second = operands[: low.n_inputs], operands[low.n_inputs : low.n_inputs + high.n_inputs]
        return _mapped(low, first), _mapped(high, second), int(ir.IntegerAttr(op.attributes["step"]).value)


def _combined(name: str, forms: list[Linear | None]) -> Linear | None:
    if not forms or any(form is None for form in forms):
        return None
    known = [form for form in forms if form is not None]
    if name in ("arith.index_cast", "arith.extsi", "arith.extui", "arith.trunci"):
        return known[0]
    if name == "arith.addi":
        return known[0] + known[1]
    if name == "arith.subi":
        return known[0] + known[1].scaled(-1)
    if name == "arith.muli" and not (known[0].is_constant or known[1].is_constant):
        return None
    if name == "arith.ceildivsi":
        name, known[0] = "arith.floordivsi", known[0] + Linear((), known[1].constant - 1)
    if name in DERIVE and (name != "arith.floordivsi" or (known[1].is_constant and known[1].constant > 0)):
        return derive(name, known[0], known[1])
    return None


def _mapped(mapping: ir.AffineMap, operands: list[Linear | None]) -> Linear | None:
    """The one result of an affine map; None for several, or where it divides."""
    return _expression(mapping.results[0], operands, mapping.n_dims) if len(mapping.results) == 1 else None


def _expression(expression: ir.AffineExpr, operands: list[Linear | None], dims: int) -> Linear | None:
    if isinstance(expression, ir.AffineConstantExpr):
        return Linear((), expression.value)
    if isinstance(expression, ir.AffineDimExpr):
        return operands[expression.position]
    if isinstance(expression, ir.AffineSymbolExpr):
        return operands[dims + expression.position]
    if isinstance(expression, ir.AffineAddExpr | ir.AffineMulExpr):
        name = "arith.addi" if isinstance(expression, ir.AffineAddExpr) else "arith.muli"
        return _combined(name, [_expression(side, operands, dims) for side in (expression.lhs, expression.rhs)])
    return None


# Execution counts in a task body, from loops with known bounds and conditions on their variables.


class Around(Frozen):
    """A loop around an operation. A bound without a linear form is None, so is an unknown step (0)."""

    variable: int
    lower: Linear | None
    upper: Linear | None
    step: int

    @property
    def variables(self) -> set[int]:
        return {v for bound in (self.lower, self.upper) if bound is not None for v in bound.variables}


class Under(Frozen):
    """A side of a condition around an operation; `test` is None where data decides."""

    test: Test | None
    side: bool

    @property
    def variables(self) -> set[int]:
        return {v for form in forms_of(self.test) for v in form.variables}


Path: TypeAlias = tuple[Around | Under, ...]
"""Loops and conditions around an operation, outermost first."""


def rounds(path: Sequence[Around | Under], known: Mapping[int, int], left: Iterator[int]) -> int | None:
    """Count the executions of something; None if data decides, or if counting takes too long.

    Args:
        path: the loops and conditions around it, outermost first.
        known: process ids, and variables of loops further out, by value number.
        left: has an item for each value of a loop variable that may be tried; several calls may share it.
    """
    if not path:
        return 1
    first, rest = path[0], path[1:]
    if isinstance(first, Under):
        holds = decided(first.test, known)
        return None if holds is None else rounds(rest, known, left) if holds == first.side else 0
    if first.lower is None or first.upper is None or first.step <= 0:
        return None
    start, end = first.lower.value(known), first.upper.value(known)
    if start is None or end is None:
        return None
    values = range(start, end, first.step)
    if not any(first.variable in inner.variables for inner in rest):
        each = rounds(rest, known, left) if values else 0
        return None if each is None else len(values) * each
    total = 0
    for value in values:
        each = rounds(rest, {**known, first.variable: value}, left)
        if each is None or next(left, None) is None:
            return None
        total += each
    return total
