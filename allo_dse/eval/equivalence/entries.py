"""What a run writes down: entries of four words, which compiled code appends to a log and names by their numbers."""

from __future__ import annotations

import numpy as np

from .domains import WORDS_TYPE

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
        """Take new entries; returns the number of the first."""
        first = self.count
        self.words[0, 0] = first + entries
        return first
