"""Values that constants and loop variables decide, beyond linear forms. HLS tools fold them in unrolled loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeAlias, cast

import numpy as np

from allo_dse.common.mlir.bindings import Operation, Value, ir
from allo_dse.common.records import Frozen

from .affine import PREDICATES, Linear, LinearForms, Test, everywhere, forms_of, holds, replaced

_MOST_OPERATIONS = 64  # of one value; a longer expression counts as unknown
_LARGEST = 1 << 62
_COMPARE = "arith.cmpi."
_EVALUATE: Mapping[str, Callable[..., Any]] = {
    **{f"arith.{of[:3]}{kind}": getattr(np, of) for of in ("add", "subtract", "multiply") for kind in "if"},
    **{f"arith.{name}i": getattr(np, f"bitwise_{name}") for name in ("and", "or", "xor")},
    **{f"arith.{name}{sign}i": getattr(np, f"{name}imum") for name in ("min", "max") for sign in "su"},
    **dict.fromkeys(("arith.extsi", "arith.extui", "arith.trunci", "arith.index_cast", "arith.extf"), np.positive),
    **dict.fromkeys(("arith.sitofp", "arith.uitofp", "arith.truncf"), np.float64),
    **dict.fromkeys(("arith.shrsi", "arith.shrui"), np.right_shift),
    **dict.fromkeys(("arith.remsi", "arith.remui"), np.fmod),
    **dict.fromkeys(("arith.floordivsi", "arith.divui"), np.floor_divide),
    "arith.divsi": lambda left, right: (left - np.fmod(left, right)) // right,
    "arith.shli": np.left_shift,
    "arith.divf": np.divide,
    "arith.negf": np.negative,
    "arith.select": np.where,
}
"""Meanings of operations on arrays of 64 bits."""
_UNSIGNED = ("arith.divui", "arith.remui", "arith.shrui", "arith.extui", "arith.minui", "arith.maxui", "arith.uitofp")


class Computed(Frozen, dict=True):
    """An operation on constants, loop variables and process ids.

    Attributes:
        bits: width of the integers that it reads; 0 if they are floating-point numbers.
    """

    name: str
    bits: int
    operands: tuple[Known, ...]

    @cached_property
    def variables(self) -> frozenset[int]:
        """All variables that it depends on."""
        return frozenset().union(*map(_variables, self.operands))

    @cached_property
    def size(self) -> int:
        """Count its operations, those of its operands included."""
        return 1 + sum(one.size for one in self.operands if isinstance(one, Computed))

    @property
    def constant(self) -> Any:
        """Its value, if it depends on no variable."""
        return self.value({})

    def value(self, variables: Mapping[int, Any]) -> Any:
        """Evaluate it for values, or arrays of values that broadcast, of all its variables."""
        with np.errstate(all="ignore"):
            operands = [_value(one, variables) for one in self.operands]
            if self.name == "arith.select":
                return np.where(*operands)
            if self.bits:
                unsigned = self.name in _UNSIGNED or self.name.startswith(f"{_COMPARE}u")
                operands = [_wrapped(one, self.bits, signed=not unsigned) for one in operands]
            if self.name.startswith(_COMPARE):
                return holds(self.name.removeprefix(_COMPARE), operands[0] - operands[1])
            return _EVALUATE[self.name](*operands)

    def put_in(self, variable: int, form: Linear) -> Computed:
        """The same with a form in place of a variable."""
        return Computed(self.name, self.bits, tuple(_put_in(one, variable, form) for one in self.operands))


Known: TypeAlias = "Linear | Computed | Test | float"


def _variables(known: Known) -> set[int] | frozenset[int]:
    if isinstance(known, Linear | Computed):
        return known.variables
    return set().union(*(form.variables for form in forms_of(cast("Test", known))))


def _value(known: Known, variables: Mapping[int, Any]) -> Any:
    if isinstance(known, Linear | Computed):
        return known.value(variables)
    return everywhere(cast("Test", known), variables)


def _put_in(known: Known, variable: int, form: Linear) -> Known:
    if isinstance(known, Linear | Computed):
        return known.put_in(variable, form)
    return cast("Known", replaced(cast("Test", known), lambda f: f.put_in(variable, form)))


def _wrapped(value: Any, bits: int, *, signed: bool) -> Any:
    """Return integers as numbers of some bits."""
    value = np.asarray(value).astype(np.int64)
    if bits >= 64:
        return value
    low = value & (1 << bits) - 1
    return low - (low >> bits - 1 << bits) if signed else low


class Constants:
    """The computed values of a function; see `Computed`.

    Args:
        forms: of its index values.
    """

    def __init__(self, forms: LinearForms) -> None:
        self._forms = forms
        self._known: dict[Value, Known | None] = {}
        self.variables: dict[Value, Known] = {}
        """Values of the source's variables at this place of the body, which is read in its order."""

    def access(self, op: Operation) -> None:
        """Load or store a variable of the source, which is an array without dimensions."""
        *stored, variable = list(op.operands)
        if not stored:
            self._known[op.results[0]] = self.variables.get(variable)
            return
        known = None if isinstance(variable, ir.BlockArgument) else self._of(stored[0])
        if known is None:
            self.variables.pop(variable, None)
        else:
            self.variables[variable] = known

    def forget(self, loop: Operation) -> None:
        """Forget the variables that a loop assigns."""
        for op in (op.operation for region in loop.regions for block in region.blocks for op in block.operations):
            if op.name in ("memref.store", "affine.store"):
                self.variables.pop(op.operands[1], None)
            self.forget(op)

    def join(self, branch: Operation, then: Mapping[Value, Known], otherwise: Mapping[Value, Known]) -> None:
        """Set the variables after a branch, given those after its two sides."""
        condition = self._of(branch.operands[0])
        self.variables = {}
        for variable in then.keys() & otherwise.keys():
            one, other = then[variable], otherwise[variable]
            if one == other:
                self.variables[variable] = one
            elif condition is not None:
                self.variables[variable] = Computed("arith.select", 0, (condition, one, other))

    def of(self, value: Value) -> Linear | Computed | None:
        """Return the value of an integer or a floating-point number; None if data decide it."""
        found = self._of(value)
        return found if isinstance(found, Linear | Computed) else None

    def _of(self, value: Value) -> Known | None:
        if value not in self._known:
            self._known[value] = self._found(value)
        return self._known[value]

    def _found(self, value: Value) -> Known | None:
        if (form := self._forms.get(value)) is not None:
            numbers = (form.constant, *(factor for _, factor in form.terms))
            return form if all(abs(number) < _LARGEST for number in numbers) else None
        if (test := self._forms.test(value)) is not None or isinstance(value, ir.BlockArgument):
            return test
        op = value.owner
        if op.name == "arith.constant":
            number = op.attributes["value"]
            return float(number.value) if isinstance(number, ir.FloatAttr) else None
        if op.name == "scf.if" and len(op.results) == 1:
            yielded = [list(region.blocks[0].operations)[-1].operands[0] for region in op.regions]
            return self._computed("arith.select", [op.operands[0], *yielded])
        if op.name == "arith.cmpi":
            predicate = PREDICATES[int(ir.IntegerAttr(op.attributes["predicate"]).value)]
            return self._computed(_COMPARE + predicate, list(op.operands))
        return self._computed(op.name, list(op.operands)) if op.name in _EVALUATE else None

    def _computed(self, name: str, values: list[Value]) -> Known | None:
        operands = [self._of(value) for value in values]
        if any(one is None for one in operands):
            return None
        kind = values[-1].type
        bits = kind.width if isinstance(kind, ir.IntegerType) else 64 if str(kind) == "index" else 0
        found = Computed(name, bits, tuple(cast("list[Known]", operands)))
        return found if found.size <= _MOST_OPERATIONS else None
