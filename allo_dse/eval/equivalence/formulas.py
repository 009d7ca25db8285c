"""Formulas of result elements: a domain whose words number the operations of a run.

When two programs differ, both run again over it. `told_apart` then writes the first element that differs as a formula
of either program, without the terms that both have.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction

import numpy as np
from msgspec import field

from allo_dse.common.records import Frozen, Ints
from allo_dse.compiler.program.tensors import IntArray

from .domains import SIGNATURES, WORDS_TYPE, code_of
from .path_comparison import ENTRY_WORDS, FUNCTIONS, Entries

_INTEGER, _REAL, _ADD, _SUB, _MUL, _CHOOSE = range(1, 7)
_FIXED = {"add": _ADD, "sub": _SUB, "mul": _MUL, "choose": _CHOOSE}
_NOTHING = -(1 << 63)
"""Stands for an operand that an operation does not have. (0 is memory that was never written.)"""
_MOST_TEXT = 300
_CUT = " ..."
_SIGNS = {"arith.addf": "+", "arith.mulf": "*", "arith.divf": "/", "arith.divsi": "//", "arith.remsi": "%"}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<="}


class FormulaDomain(Frozen, eq=False):
    """Numbers of log entries; constants are negative numbers.

    Attributes:
        names: names of the operations, by their codes.
        constants: the constants that have a number.
    """

    names: dict[int, str] = field(default_factory=dict)
    constants: list[Fraction | float] = field(default_factory=list)
    mode = 0

    @property
    def compiled(self) -> FormulaDomain:
        return self

    def constant(self, value: Fraction | float) -> int:
        self.constants.append(value)
        return -len(self.constants)

    def code(self, name: str) -> int:
        code = code_of(name)
        self.names[code] = name
        return code

    @property
    def functions(self) -> str:
        stores = "".join(
            f"  %k{k} = arith.constant {k} : i64\n"
            f"  %p{k} = func.call @place(%w, %n, %k{k}) : ({WORDS_TYPE}, i64, i64) -> !llvm.ptr\n"
            f"  llvm.store %a{k}, %p{k} : i64, !llvm.ptr\n"
            for k in range(ENTRY_WORDS)
        )
        entry = (
            f"func.func private @entry(%w: {WORDS_TYPE}, %a0: i64, %a1: i64, %a2: i64, %a3: i64) -> i64 {{\n"
            f"  %n = func.call @new_entry(%w) : ({WORDS_TYPE}) -> i64\n{stores}  return %n : i64\n}}\n"
        )
        logged = [_logged(name, words) for name, words in SIGNATURES.items() if name not in ("integer", "constant")]
        constant = f"func.func private @constant(%w: {WORDS_TYPE}, %a: i64) -> i64 {{\n  return %a : i64\n}}\n"
        bits = "  %a0 = arith.bitcast %x : f64 to i64\n"
        real = _logged("real", 1, _REAL).replace("%a0: i64", "%x: f64").replace("{\n", "{\n" + bits, 1)
        return "".join([FUNCTIONS, entry, *logged, constant, _logged("integer", 1, _INTEGER), real])


def _logged(name: str, words: int, code: int | None = None) -> str:
    """A function that writes an entry; those without a fixed code get it as their first word."""
    code = _FIXED.get(name, code)
    arguments = [f"%a{k}" for k in range(words)]
    operands = arguments if code is not None else arguments[1:]
    typed = "".join(f", {argument}: i64" for argument in arguments)
    given = ", ".join([*("%op",), *operands, *["%none"] * (3 - len(operands))])
    first = f"  %op = arith.constant {code} : i64\n" if code is not None else ""
    given = given if code is not None else given.replace("%op", "%a0", 1)
    return (
        f"func.func private @{name}(%w: {WORDS_TYPE}{typed}) -> i64 {{\n{first}"
        f"  %none = arith.constant {_NOTHING} : i64\n"
        f"  %r = func.call @entry(%w, {given}) : ({WORDS_TYPE}, i64, i64, i64, i64) -> i64\n  return %r : i64\n}}\n"
    )


class FormulaLog(Entries):
    """The operations of one run, each with its operands; the first entries are the elements of the tensors."""

    def __init__(self, domain: FormulaDomain, shapes: list[tuple[str, Ints]], operations: int) -> None:
        self._domain, self._shapes = domain, shapes
        sizes = [int(np.prod(shape)) for _, shape in shapes]
        self._firsts = np.cumsum([1, *sizes])
        super().__init__(int(self._firsts[-1]) + operations)
        self.reserve(sum(sizes))
        self.inputs: list[IntArray] = [
            np.arange(first, first + size).reshape(shape)
            for first, size, (_, shape) in zip(self._firsts, sizes, shapes, strict=False)
        ]

    def constant(self, value: Fraction | float) -> int:
        return self._domain.constant(value)

    def entry(self, word: int) -> tuple[str, Ints]:
        """The text of a leaf, or the name of an operation and its operands."""
        if word == 0:
            return "0", ()
        if word < 0:
            value = self._domain.constants[-word - 1]
            return f"{value}" if isinstance(value, Fraction) else repr(value), ()
        if word < self._firsts[-1]:
            tensor = int(np.searchsorted(self._firsts, word, "right")) - 1
            name, shape = self._shapes[tensor]
            index = np.unravel_index(word - int(self._firsts[tensor]), shape)
            return f"{name}[{', '.join(map(str, map(int, index)))}]" if shape else name, ()
        code, *operands = (int(value) for value in self.words[word])
        if code == _INTEGER:
            return str(operands[0]), ()
        if code == _REAL:
            return repr(struct.unpack("<d", struct.pack("<q", operands[0]))[0]), ()
        fixed = {number: name for name, number in _FIXED.items()}
        name = fixed.get(code) or self._domain.names.get(code, "?")
        return name, tuple(o for o in operands if o != _NOTHING)


class _Term(Frozen, order=True):
    """The text of a value, cut if it is long, and its precedence; `key` is equal for equal formulas."""

    text: str
    binds: int
    key: int

    def within(self, binds: int) -> str:
        """Return the text for a place that binds this tightly, in parentheses if needed."""
        return self.text if self.binds > binds else f"({self.text})"


class _Texts:
    """Texts of the values of a log."""

    def __init__(self, log: FormulaLog) -> None:
        self._log = log
        self._known: dict[int, _Term] = {}

    def name(self, word: int) -> str:
        return self._log.entry(word)[0]

    def operands(self, word: int) -> list[tuple[int, int]]:
        """The keys of the operands of an operation, and where they are; none of an exact sum."""
        name, operands = self._log.entry(word)
        return [] if name in ("add", "sub") else [(self.of(o).key, o) for o in operands]

    def terms(self, word: int) -> Counter[_Term]:
        """The terms of an exact sum with their signs; a single one for any other value."""
        found: Counter[_Term] = Counter()
        for at, sign in self._summands(word):
            if (term := self.of(at)).text != "0":
                found[term] += sign
        return found

    def _summands(self, word: int) -> Iterator[tuple[int, int]]:
        """The values that an exact sum adds, with their signs."""
        todo = [(word, 1)]
        while todo:
            at, sign = todo.pop()
            name, operands = self._log.entry(at)
            if operands and name in ("add", "sub"):
                todo += [(operands[1], sign if name == "add" else -sign), (operands[0], sign)]
            else:
                yield at, sign

    def of(self, word: int) -> _Term:
        """Return the text of a value, without recursion: sums can be longer than Python's stack."""
        todo = [word]
        while todo:
            at = todo[-1]
            name, operands = self._log.entry(at)
            needed = [o for o, _ in self._summands(at)] if operands and name in ("add", "sub") else operands
            missing = [o for o in needed if o not in self._known]
            if at in self._known or not missing:
                self._known.setdefault(at, self._written(at, name, operands))
                todo.pop()
            else:
                todo += missing
        return self._known[word]

    def _written(self, word: int, name: str, operands: Ints) -> _Term:
        if not operands:
            return _Term(name, 3, hash(name))
        if name in ("add", "sub"):
            terms = self.terms(word)
            return _Term(joined(terms), 1, hash(frozenset(terms.items())))
        own = [self._known[o] for o in operands]
        kind, _, rest = name.partition(" ")
        if name == "mul" or kind in _SIGNS:
            # From left to right, the longer one first where the order says nothing.
            sign = "*" if name == "mul" else _SIGNS[kind]
            binds, neutral = (1, ("0", "0.0")) if sign == "+" else (2, ("1", "1.0"))
            if sign in "+*":
                own = [term for term in own if term.text not in neutral] or own[:1]
                own.sort(key=lambda term: (term.binds != binds, term.text))
            if len(own) == 1:
                return own[0]
            keys = sorted(term.key for term in own) if sign in "+*" else [term.key for term in own]
            text = f"{own[0].within(binds - 1)} {sign} {own[1].within(binds)}"
            return _Term(_short(text), binds, hash((name, *keys)))
        if name == "choose":
            condition, yes, no = (term.within(0) for term in own)
            text, binds = f"{yes} if {condition} else {no}", 0
        elif kind in ("arith.cmpi", "arith.cmpf"):
            predicate = rest.split(" ")[0]
            sign = _COMPARED.get(predicate[-2:], predicate)
            text, binds = f" {sign} ".join(term.within(0) for term in own), 0
        else:
            text, binds = f"{kind.rpartition('.')[2]}({', '.join(term.text for term in own)})", 3
        return _Term(_short(text), binds, hash((name, *(term.key for term in own))))


def joined(terms: Counter[_Term]) -> str:
    """The text of a sum."""
    text = ""
    if [*terms.values()] == [1]:
        return next(iter(terms)).text
    for term, times in sorted((t, n) for t, n in terms.items() if n):
        sign = ("-" if not text else " - ") if times < 0 else " + " if text else ""
        text += sign + (f"{abs(times)} * {term.within(1)}" if abs(times) > 1 else term.within(1))
        if len(text) > _MOST_TEXT:
            break
    return _short(text or "0")


def _short(text: str) -> str:
    return text if len(text) <= _MOST_TEXT else text[: _MOST_TEXT - len(_CUT)] + _CUT


def told_apart(first: tuple[FormulaLog, int], second: tuple[FormulaLog, int]) -> tuple[str, str]:
    """Return two values as texts; terms that both sums have are only counted.

    Of long formulas that differ in one operand only, only that operand is shown.
    """
    texts, words, inside = [_Texts(log) for log, _ in (first, second)], [first[1], second[1]], 0
    while all(text.of(word).text.endswith(_CUT) for text, word in zip(texts, words, strict=True)):
        operands = [text.operands(word) for text, word in zip(texts, words, strict=True)]
        apart = [[o for o in own if o[0] not in dict(other)] for own, other in (operands, operands[::-1])]
        if texts[0].name(words[0]) != texts[1].name(words[1]) or [len(own) for own in apart] != [1, 1]:
            break
        words, inside = [own[0][1] for own in apart], inside + 1
    one, other = (text.terms(word) for text, word in zip(texts, words, strict=True))
    both = one & other
    count = 0 if one == other else both.total()
    behind = f" + {count:,} term{'s' * (count > 1)} that both have" if count else ""
    behind += f" (an operand, {inside:,} operations inside)" if inside else ""
    return joined(one - both if count else one) + behind, joined(other - both if count else other) + behind
