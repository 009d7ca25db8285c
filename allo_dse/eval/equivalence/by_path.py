"""Comparing programs in which data decides on loops, indices and streams: on the path that given inputs take.

A word is the number of an entry of a log, which holds the value's formula, a word of another domain, and its number on
the given inputs. Numbers decide on control; formulas are compared. So equal programs are equal for all inputs that take
the same path as those given.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from allo_dse.ir.bindings import arith, ir
from allo_dse.program.index_maps import IntArray

from .data_values import HINT, Undecidable
from .domains import WORDS_TYPE, Constants, Domain

MOST_ENTRIES = 4_000_000
NUMBER_BITS = 128
"""Numbers are integers of as many bits, or doubles."""
_WIDTH = 4
"""Words of an entry: the formula, nothing, and the number."""

_FUNCTIONS = f"""
func.func private @log(%w: {WORDS_TYPE}) -> !llvm.ptr {{
  %third = arith.constant 2 : index
  %address = memref.load %w[%third] : {WORDS_TYPE}
  %log = llvm.inttoptr %address : i64 to !llvm.ptr
  return %log : !llvm.ptr
}}
func.func private @formula_place(%w: {WORDS_TYPE}, %word: i64) -> !llvm.ptr {{
  %two = arith.constant 2 : i64
  %log = func.call @log(%w) : ({WORDS_TYPE}) -> !llvm.ptr
  %at = arith.shli %word, %two : i64
  %place = llvm.getelementptr %log[%at] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  return %place : !llvm.ptr
}}
func.func private @number_place(%w: {WORDS_TYPE}, %word: i64) -> !llvm.ptr {{
  %two = arith.constant 2 : i64
  %entry = func.call @formula_place(%w, %word) : ({WORDS_TYPE}, i64) -> !llvm.ptr
  %place = llvm.getelementptr %entry[%two] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  return %place : !llvm.ptr
}}
func.func private @formula(%w: {WORDS_TYPE}, %word: i64) -> i64 {{
  %place = func.call @formula_place(%w, %word) : ({WORDS_TYPE}, i64) -> !llvm.ptr
  %r = llvm.load %place : !llvm.ptr -> i64
  return %r : i64
}}
func.func private @number(%w: {WORDS_TYPE}, %word: i64) -> i{NUMBER_BITS} {{
  %place = func.call @number_place(%w, %word) : ({WORDS_TYPE}, i64) -> !llvm.ptr
  %r = llvm.load %place {{alignment = 8 : i64}} : !llvm.ptr -> i{NUMBER_BITS}
  return %r : i{NUMBER_BITS}
}}
func.func private @entry(%w: {WORDS_TYPE}, %formula: i64, %number: i{NUMBER_BITS}) -> i64 {{
  %one = arith.constant 1 : i64
  %log = func.call @log(%w) : ({WORDS_TYPE}) -> !llvm.ptr
  %n = llvm.load %log : !llvm.ptr -> i64
  %last_place = llvm.getelementptr %log[%one] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %last = llvm.load %last_place : !llvm.ptr -> i64
  %m = arith.addi %n, %one : i64
  %next = arith.minui %m, %last : i64
  llvm.store %next, %log : i64, !llvm.ptr
  %a = func.call @formula_place(%w, %n) : ({WORDS_TYPE}, i64) -> !llvm.ptr
  %b = func.call @number_place(%w, %n) : ({WORDS_TYPE}, i64) -> !llvm.ptr
  llvm.store %formula, %a : i64, !llvm.ptr
  llvm.store %number, %b {{alignment = 8 : i64}} : i{NUMBER_BITS}, !llvm.ptr
  return %n : i64
}}
"""


@dataclass(frozen=True)
class PathDomain:
    """Numbers of log entries; constants and codes are those of the domain of the formulas."""

    formulas: Domain

    def constant(self, value: Fraction | float) -> int:
        return self.formulas.constant(value)

    def code(self, name: str) -> int:
        return self.formulas.code(name)

    @property
    def functions(self) -> str:
        return self.formulas.functions + _FUNCTIONS


class PathLog:
    """The entries of one run; entry 0 counts them."""

    def __init__(self, formulas: Constants) -> None:
        self._formulas = formulas
        self._entries = np.zeros((MOST_ENTRIES, _WIDTH), np.int64)
        self._entries[0, :2] = 1, MOST_ENTRIES - 1
        self.address = self._entries.ctypes.data

    @property
    def is_full(self) -> bool:
        return bool(self._entries[0, 0] >= self._entries[0, 1])

    @property
    def count(self) -> int:
        return int(self._entries[0, 0])

    def constant(self, value: Fraction | float) -> int:
        """The word of a number that a program starts with."""
        number = np.float64(value) if isinstance(value, float) else np.int64(value)
        return int(self.words(np.array([self._formulas.constant(value)]), np.array([number]))[0])

    def words(self, formulas: IntArray, numbers: NDArray[np.generic]) -> IntArray:
        """New entries for elements whose formulas are given, and whose numbers are those of an input.

        Raises:
            Undecidable: where there are more than fit.
        """
        first, size = self.count, numbers.size
        if first + size >= MOST_ENTRIES:
            raise Undecidable(f"inputs of more than {MOST_ENTRIES:,} elements are not compared by path", hint=HINT)
        is_float = not np.issubdtype(numbers.dtype, np.integer) and numbers.dtype != np.bool_
        bits = numbers.astype(np.float64).view(np.int64) if is_float else numbers.astype(np.int64)
        new = self._entries[first : first + size]
        new[:, 0], new[:, 2], new[:, 3] = formulas.ravel(), bits.ravel(), 0 if is_float else bits.ravel() >> 63
        self._entries[0, 0] = first + size
        return np.arange(first, first + size).reshape(numbers.shape)

    def numbers(self, words: IntArray) -> IntArray:
        """The numbers of words: the lowest 64 bits of integers, or doubles' bits."""
        found: IntArray = self._entries[words, 2]
        return found

    def formulas(self, words: IntArray) -> IntArray:
        """The formulas of words."""
        found: IntArray = self._entries[words, 0]
        return found


def as_bits(value: ir.Value) -> ir.Value:
    """A number as the log holds it, at the insertion point."""
    word, type_ = ir.IntegerType.get_signless(NUMBER_BITS), value.type
    if isinstance(type_, ir.IntegerType):
        width = _width(type_)
        extend = arith.ExtUIOp if width == 1 else arith.ExtSIOp
        return value if width == NUMBER_BITS else extend(word, value).result
    double = ir.F64Type.get()
    exact = value if type_ == double else arith.ExtFOp(double, value).result
    return arith.ExtUIOp(word, arith.BitcastOp(ir.IntegerType.get_signless(64), exact).result).result


def from_bits(bits: ir.Value, type_: ir.Type) -> ir.Value:
    """A number of a type, from what the log holds."""
    if isinstance(type_, ir.IntegerType):
        return bits if _width(type_) == NUMBER_BITS else arith.TruncIOp(type_, bits).result
    double = ir.F64Type.get()
    low = arith.TruncIOp(ir.IntegerType.get_signless(64), bits).result
    exact = arith.BitcastOp(double, low).result
    return exact if type_ == double else arith.TruncFOp(type_, exact).result


def _width(type_: ir.Type) -> int:
    width = ir.IntegerType(type_).width
    if width > NUMBER_BITS:
        raise Undecidable(f"integers of {width} bits are not compared by path", hint=HINT)
    return width
