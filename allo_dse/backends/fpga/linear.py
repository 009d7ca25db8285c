"""Index expressions of C++: sums of multiples of pids, loop variables and variables of the C++, with their text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeAlias

from msgspec import field

from allo_dse.common.mlir.bindings import ir, nested_ops
from allo_dse.common.records import Frozen

Atom: TypeAlias = ir.Value | int | str
"""Operand of an index: an MLIR value, an axis of the pid, or the name of a C++ variable."""


class IndexSum(Frozen):
    """`const` plus the sum of `factor * atom`."""

    const: int = 0
    terms: Mapping[Atom, int] = field(default_factory=dict)

    def __add__(self, other: IndexSum | int) -> IndexSum:
        if isinstance(other, int):
            return IndexSum(self.const + other, self.terms)
        terms = dict(self.terms)
        for atom, factor in other.terms.items():
            terms[atom] = terms.get(atom, 0) + factor
        return IndexSum(self.const + other.const, {atom: factor for atom, factor in terms.items() if factor})

    def __mul__(self, factor: int) -> IndexSum:
        return IndexSum(self.const * factor, {atom: f * factor for atom, f in self.terms.items()} if factor else {})

    scaled = __mul__

    def __sub__(self, other: IndexSum | int) -> IndexSum:
        return self + (-other if isinstance(other, int) else other * -1)

    @property
    def is_const(self) -> bool:
        return not self.terms

    def replaced(self, values: Mapping[Atom, IndexSum]) -> IndexSum:
        """With atoms replaced by other forms."""
        result = IndexSum(self.const)
        for atom, factor in self.terms.items():
            result = result + values.get(atom, IndexSum(0, {atom: 1})) * factor
        return result

    def text(self, name: Callable[[Atom], str]) -> str:
        """C++ text, given that of atoms."""
        parts: list[str] = []
        for atom, factor in self.terms.items():
            sign = "-" if factor < 0 else "+"
            shown = name(atom)
            product = shown if abs(factor) == 1 else f"{atomic(shown)} * {abs(factor)}"
            parts.append(f" {sign} {product}" if parts else f"-{atomic(product)}" if sign == "-" else product)
        if self.const or not parts:
            parts.append(f" {'-' if self.const < 0 else '+'} {abs(self.const)}" if parts else str(self.const))
        return "".join(parts)


def atomic(text: str) -> str:
    """Put an expression in parentheses unless it is a name, a number or a call."""
    depth = 0
    for character in text:
        depth += (character in "([") - (character in ")]")
        if character == " " and not depth:
            return f"({text})"
    return text


def atom(value: Atom) -> IndexSum:
    return IndexSum(0, {value: 1})


def linear_forms(function: ir.Operation) -> dict[ir.Value, IndexSum]:
    """The linear form of every `index` value of a function, operations on it being lowered to `arith`."""
    forms: dict[ir.Value, IndexSum] = {}
    for op in nested_ops(function, parents_first=True):
        for region in op.regions:
            for block in region.blocks:
                for argument in block.arguments:
                    if isinstance(argument.type, ir.IndexType):
                        forms[argument] = atom(argument)
        for result in op.results:
            if isinstance(result.type, ir.IndexType):
                forms[result] = _of(op, result, forms)
    return forms


def _of(op: ir.Operation, result: ir.Value, forms: Mapping[ir.Value, IndexSum]) -> IndexSum:
    if op.name == "arith.constant":
        return IndexSum(ir.IntegerAttr(op.attributes["value"]).value)
    if op.name in ("arith.addi", "arith.subi", "arith.muli"):
        a, b = (forms[operand] for operand in op.operands)
        if op.name == "arith.addi":
            return a + b
        if op.name == "arith.subi":
            return a - b
        if a.is_const or b.is_const:
            return b * a.const if a.is_const else a * b.const
    return atom(result)
