"""Comparison on the path that given inputs take, for programs in which data decides on loops, indices and streams.

A word is the number of a log entry. The entry holds the value's formula, as a word of another domain, and its number
on the given inputs. Numbers decide on control; formulas are compared. So equal programs are equal for all inputs that
take the same path as the given ones.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from allo_dse.common.mlir.bindings import Value, arith, ir
from allo_dse.common.records import Array, Frozen
from allo_dse.compiler.program.tensors import IntArray

from .data_values import HINT, Undecidable
from .domains import WORDS_TYPE, Constants, Domain

# The log of a run: compiled code appends entries of four words, and refers to them by number.


ENTRY_WORDS = 4

FUNCTIONS = f"""
func.func private @log(%w: {WORDS_TYPE}) -> !llvm.ptr {{
  %third = arith.constant 2 : index
  %address = memref.load %w[%third] : {WORDS_TYPE}
  %log = llvm.inttoptr %address : i64 to !llvm.ptr
  return %log : !llvm.ptr
}}
func.func private @place(%w: {WORDS_TYPE}, %entry: i64, %word: i64) -> !llvm.ptr {{
  %two = arith.constant 2 : i64
  %log = func.call @log(%w) : ({WORDS_TYPE}) -> !llvm.ptr
  %one = arith.constant 1 : i64
  %last_place = llvm.getelementptr %log[%one] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  %last = llvm.load %last_place : !llvm.ptr -> i64
  %zero = arith.constant 0 : i64
  %is_header = arith.cmpi eq, %entry, %zero : i64
  %bounded = arith.minui %entry, %last : i64
  %inside = arith.select %is_header, %zero, %bounded : i64
  %first = arith.shli %inside, %two : i64
  %at = arith.addi %first, %word : i64
  %place = llvm.getelementptr %log[%at] : (!llvm.ptr, i64) -> !llvm.ptr, i64
  return %place : !llvm.ptr
}}
func.func private @new_entry(%w: {WORDS_TYPE}) -> i64 {{
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %count_place = func.call @log(%w) : ({WORDS_TYPE}) -> !llvm.ptr
  %last_place = func.call @place(%w, %zero, %one) : ({WORDS_TYPE}, i64, i64) -> !llvm.ptr
  %n = llvm.load %count_place : !llvm.ptr -> i64
  %last = llvm.load %last_place : !llvm.ptr -> i64
  %m = arith.addi %n, %one : i64
  %next = arith.minui %m, %last : i64
  llvm.store %next, %count_place : i64, !llvm.ptr
  return %n : i64
}}
"""
"""MLIR functions: where a word of an entry lies, and a new entry's number. A full log takes its last one again."""


class Entries:
    """The memory of a log; entry 0 says how many there are, it included, and which is the last that fits.

    Attributes:
        words: int64[entries, ENTRY_WORDS].
        address: of the memory, for compiled code.
    """

    def __init__(self, most: int) -> None:
        self.words = np.zeros((most, ENTRY_WORDS), np.int64)
        self.words[0, :2] = 1, most - 1
        self.address = self.words.ctypes.data

    @property
    def count(self) -> int:
        return int(self.words[0, 0])

    @property
    def is_full(self) -> bool:
        return self.count >= int(self.words[0, 1])

    def reserve(self, entries: int) -> int:
        """Reserve new entries, and return the number of the first."""
        first = self.count
        self.words[0, 0] = first + entries
        return first


MOST_ENTRIES = 4_000_000
NUMBER_BITS = 128
"""Numbers are integers of as many bits, or doubles."""

_FUNCTIONS = f"""
func.func private @formula_place(%w: {WORDS_TYPE}, %word: i64) -> !llvm.ptr {{
  %first = arith.constant 0 : i64
  %place = func.call @place(%w, %word, %first) : ({WORDS_TYPE}, i64, i64) -> !llvm.ptr
  return %place : !llvm.ptr
}}
func.func private @number_place(%w: {WORDS_TYPE}, %word: i64) -> !llvm.ptr {{
  %third = arith.constant 2 : i64
  %place = func.call @place(%w, %word, %third) : ({WORDS_TYPE}, i64, i64) -> !llvm.ptr
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
  %n = func.call @new_entry(%w) : ({WORDS_TYPE}) -> i64
  %a = func.call @formula_place(%w, %n) : ({WORDS_TYPE}, i64) -> !llvm.ptr
  %b = func.call @number_place(%w, %n) : ({WORDS_TYPE}, i64) -> !llvm.ptr
  llvm.store %formula, %a : i64, !llvm.ptr
  llvm.store %number, %b {{alignment = 8 : i64}} : i{NUMBER_BITS}, !llvm.ptr
  return %n : i64
}}
func.func private @spread_undefined(%w: {WORDS_TYPE}, %from: i64, %from_word: i64, %to: i64, %to_word: i64) {{
  %a = func.call @place(%w, %from, %from_word) : ({WORDS_TYPE}, i64, i64) -> !llvm.ptr
  %b = func.call @place(%w, %to, %to_word) : ({WORDS_TYPE}, i64, i64) -> !llvm.ptr
  %x = llvm.load %a : !llvm.ptr -> i64
  %y = llvm.load %b : !llvm.ptr -> i64
  %r = arith.ori %x, %y : i64
  llvm.store %r, %b : i64, !llvm.ptr
  return
}}
func.func private @mark_undefined(%w: {WORDS_TYPE}, %entry: i64) -> i64 {{
  %one = arith.constant 1 : i64
  %a = func.call @place(%w, %entry, %one) : ({WORDS_TYPE}, i64, i64) -> !llvm.ptr
  llvm.store %one, %a : i64, !llvm.ptr
  return %entry : i64
}}
func.func private @computed_from(%w: {WORDS_TYPE}, %entry: i64, %operand: i64) -> i64 {{
  %one = arith.constant 1 : i64
  func.call @spread_undefined(%w, %operand, %one, %entry, %one) : ({WORDS_TYPE}, i64, i64, i64, i64) -> ()
  return %entry : i64
}}
func.func private @deciding(%w: {WORDS_TYPE}, %word: i64) -> i64 {{
  %zero = arith.constant 0 : i64
  %one = arith.constant 1 : i64
  %two = arith.constant 2 : i64
  func.call @spread_undefined(%w, %word, %one, %zero, %two) : ({WORDS_TYPE}, i64, i64, i64, i64) -> ()
  return %word : i64
}}
"""
"""The words of an entry are the formula, whether memory that was never written decides its number, and the number. The
third word of the first entry says whether such a number decided on control."""


class PathDomain(Frozen):
    """Numbers of log entries; constants and codes are those of the domain of the formulas."""

    formulas: Domain

    def constant(self, value: Fraction | float) -> int:
        return self.formulas.constant(value)

    @property
    def mode(self) -> int:
        return self.formulas.mode

    @property
    def compiled(self) -> PathDomain:
        return PathDomain(self.formulas.compiled)

    def code(self, name: str) -> int:
        return self.formulas.compiled.code(name)

    @property
    def functions(self) -> str:
        return self.formulas.compiled.functions + FUNCTIONS + _FUNCTIONS


class PathLog(Entries):
    """The formulas and numbers of one run."""

    def __init__(self, formulas: Constants) -> None:
        super().__init__(MOST_ENTRIES)
        self._formulas = formulas

    def constant(self, value: Fraction | float) -> int:
        """Return the word of a number that a program starts with."""
        number = np.float64(value) if isinstance(value, float) else np.int64(value)
        return int(self.enter(np.array([self._formulas.constant(value)]), np.array([number]))[0])

    def enter(self, formulas: IntArray, numbers: Array) -> IntArray:
        """Add entries for elements with given formulas and the numbers of an input.

        Raises:
            Undecidable: when the log is full.
        """
        size = numbers.size
        if self.count + size >= MOST_ENTRIES:
            raise Undecidable(f"inputs of more than {MOST_ENTRIES:,} elements are not compared by path", hint=HINT)
        is_float = not np.issubdtype(numbers.dtype, np.integer) and numbers.dtype != np.bool_
        bits = numbers.astype(np.float64).view(np.int64) if is_float else numbers.astype(np.int64)
        first = self.reserve(size)
        new = self.words[first : first + size]
        new[:, 0], new[:, 2], new[:, 3] = formulas.ravel(), bits.ravel(), 0 if is_float else bits.ravel() >> 63
        return np.arange(first, first + size).reshape(numbers.shape)

    @property
    def undefined_decides(self) -> bool:
        """Return whether memory that was never written decided on control."""
        return bool(self.words[0, 2])

    def formulas(self, words: IntArray) -> IntArray:
        """The formulas of words."""
        found: IntArray = self.words[words, 0]
        return found


def as_bits(value: Value) -> Value:
    """Return a number in the log's representation, at the insertion point."""
    word, type_ = ir.IntegerType.get_signless(NUMBER_BITS), value.type
    if isinstance(type_, ir.IntegerType):
        width = _width(type_)
        extend = arith.ExtUIOp if width == 1 else arith.ExtSIOp
        return value if width == NUMBER_BITS else extend(word, value).result
    double = ir.F64Type.get()
    exact = value if type_ == double else arith.ExtFOp(double, value).result
    return arith.ExtUIOp(word, arith.BitcastOp(ir.IntegerType.get_signless(64), exact).result).result


def from_bits(bits: Value, type_: ir.Type) -> Value:
    """Return a number of a type from the log's representation."""
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
