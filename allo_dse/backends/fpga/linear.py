"""Linear forms of loop variables, and the index arithmetic that makes them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from allo_dse.ir.bindings import ir

_PREDICATES = ("eq", "ne", "slt", "sle", "sgt", "sge", "ult", "ule", "ugt", "uge")
_HOLDS: Mapping[str, Callable[[int], bool]] = {
    "eq": lambda d: d == 0,
    "ne": lambda d: d != 0,
    "lt": lambda d: d < 0,
    "le": lambda d: d <= 0,
    "gt": lambda d: d > 0,
    "ge": lambda d: d >= 0,
}


@dataclass(frozen=True)
class Linear:
    """The sum of `coefficient * variable` over `terms`, plus a constant; variables are value numbers."""

    terms: tuple[tuple[int, int], ...]
    constant: int = 0

    @staticmethod
    def variable(number: int) -> Linear:
        return Linear(((number, 1),))

    @property
    def is_constant(self) -> bool:
        return not self.terms

    def __add__(self, other: Linear) -> Linear:
        terms = dict(self.terms)
        for variable, factor in other.terms:
            terms[variable] = terms.get(variable, 0) + factor
        return Linear(tuple(sorted((v, f) for v, f in terms.items() if f)), self.constant + other.constant)

    def scaled(self, factor: int) -> Linear:
        if not factor:
            return Linear(())
        return Linear(tuple((v, f * factor) for v, f in self.terms), self.constant * factor)

    def factor(self, variable: int) -> int:
        """The coefficient of a variable."""
        return next((f for v, f in self.terms if v == variable), 0)

    def value(self, variables: Mapping[int, int]) -> int | None:
        """Its value, or None when a variable is not given."""
        total = self.constant
        for variable, factor in self.terms:
            if variable not in variables:
                return None
            total += factor * variables[variable]
        return total


def holds(predicate: str, difference: int) -> bool:
    """Whether `left predicate right`, given left - right."""
    return _HOLDS[predicate.lstrip("su") if predicate not in ("eq", "ne") else predicate](difference)


class LinearForms:
    """The linear forms of the index values of a function."""

    def __init__(self) -> None:
        self._forms: dict[ir.Value, Linear] = {}
        self._tests: dict[ir.Value, tuple[str, Linear]] = {}

    def set(self, value: ir.Value, form: Linear) -> None:
        self._forms[value] = form

    def get(self, value: ir.Value) -> Linear | None:
        """The form of a value, or None when it has none."""
        if value in self._forms:
            return self._forms[value]
        if not isinstance(value, ir.BlockArgument) and value.owner.name == "arith.constant":
            attribute = value.owner.attributes["value"]
            if isinstance(attribute, ir.IntegerAttr):
                return Linear((), int(attribute.value))
        return None

    def test(self, condition: ir.Value) -> tuple[str, Linear] | None:
        """A comparison of linear forms, as (predicate, left - right)."""
        return self._tests.get(condition)

    def compute(self, op: ir.Operation, number: Callable[[ir.Value], int]) -> bool:
        """Whether an operation is index arithmetic, which is then known by its form."""
        if op.name == "affine.apply":
            return False
        if op.name == "arith.cmpi":
            return self._compare(op)
        operands = [self.get(v) for v in op.operands]
        form = _combined(op.name, operands)
        if form is None or len(list(op.results)) != 1:
            return False
        self._forms[op.results[0]] = form
        return True

    def _compare(self, op: ir.Operation) -> bool:
        left, right = self.get(op.operands[0]), self.get(op.operands[1])
        if left is None or right is None:
            return False
        predicate = _PREDICATES[int(ir.IntegerAttr(op.attributes["predicate"]).value)]
        self._tests[op.results[0]] = (predicate, left + right.scaled(-1))
        return True

    def bounds(self, op: ir.Operation) -> tuple[Linear | None, Linear | None, int]:
        """Lower and upper bound and step of a loop; a bound without a form is None, so is an unknown step (0)."""
        if op.name == "scf.for":
            lower, upper, step = (self.get(v) for v in list(op.operands)[:3])
            return lower, upper, step.constant if step is not None and step.is_constant else 0
        low, high = (op.attributes[name] for name in ("lowerBoundMap", "upperBoundMap"))
        return _constant_map(low), _constant_map(high), int(ir.IntegerAttr(op.attributes["step"]).value)


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
    if name == "arith.muli":
        left, right = known
        if right.is_constant:
            return left.scaled(right.constant)
        return right.scaled(left.constant) if left.is_constant else None
    return None


def _constant_map(attribute: ir.Attribute) -> Linear | None:
    """The value of a constant affine map `() -> (64)`."""
    text = str(attribute)
    inside = text[text.rindex("(") + 1 : text.rindex(")")].strip()
    return Linear((), int(inside)) if inside.lstrip("-").isdigit() else None
