"""Domains of symbolic runs, which replace numbers, as MLIR functions and in Python.

`FieldDomain`: elements of a prime field of 61 bits, in Montgomery form (x is stored as x * 2**64 mod p). Integers and
binary fractions map to it as a ring does; any other operation is a hash of its name and operands.
`DegreeDomain`: upper bounds of the degrees of the polynomials in such a run, and counts of its operations.

The same functions compute both, so a body is rewritten and compiled once. Each function takes the task's own words
first. These are the key of the hashes and the state of undefined values, or the counts of operations and of hashes;
then the address of a log, if there is one, and the domain to compute in.
"""

from __future__ import annotations

import hashlib
import math
import random
import re
from fractions import Fraction
from functools import cached_property
from typing import Protocol

from allo_dse.common.records import Frozen

WORDS_TYPE = "memref<4xi64, strided<[?], offset: ?>>"
"""The type of a task's own words."""
OWN_WORDS = 4
PRIME_BITS = 61
_WORD = 1 << 64
_WITNESSES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37)
MAX_DEGREE = 1 << 61
_EXPONENTS = 1075
"""Powers of two by which the smallest double is below 1."""

SIGNATURES = {
    **dict.fromkeys(("add", "sub", "mul"), 2),
    **dict.fromkeys(("sum", "product", "commutative"), 3),
    **{"apply1": 2, "apply2": 3, "apply3": 4, "choose": 3, "integer": 1, "constant": 1, "undefined": 1},
}
"""Number of words that each function takes after the task's own. `constant` takes the word of a number, `integer` the
number, and `real` a float of 64 bits. Each call of `undefined` is a new variable: memory that was never written."""


class Constants(Protocol):
    """The words that stand for numbers."""

    def constant(self, value: Fraction | float) -> int:
        """The word that stands for a number."""


class Log(Constants, Protocol):
    """The place where the functions of a domain record their operations."""

    address: int


class Domain(Constants, Protocol):
    """The arithmetic that a run computes in."""

    @property
    def mode(self) -> int:
        """The computation that the functions perform: the last of a task's own words."""

    @property
    def compiled(self) -> Code:
        """The domain whose functions compute with it."""


class Code(Domain, Protocol):
    """A domain that bodies are rewritten to."""

    def __hash__(self) -> int: ...

    def code(self, name: str) -> int:
        """Return the number of an operation."""

    @property
    def functions(self) -> str:
        """Return the MLIR text of the functions in `SIGNATURES`, and of `real`."""


def code_of(name: str) -> int:
    """The number of an operation in hashes."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=7).digest(), "little")


def random_prime(seed: int) -> int:
    """Return a prime between 2**60 and 2**61; all 2.7e16 of them are equally likely."""
    rng = random.Random(f"prime {seed}")
    while True:
        candidate = rng.randrange(1 << (PRIME_BITS - 1), 1 << PRIME_BITS) | 1
        if is_prime(candidate):
            return candidate


def is_prime(number: int) -> bool:
    """Return whether a number is prime, by Miller and Rabin's test; with these witnesses it is exact below 3e23."""
    if number < 2 or any(number % small == 0 for small in _WITNESSES):
        return number in _WITNESSES
    twos = (number - 1 & 1 - number).bit_length() - 1
    for witness in _WITNESSES:
        power = pow(witness, number - 1 >> twos, number)
        if power in (1, number - 1):
            continue
        for _ in range(twos - 1):
            power = power * power % number
            if power == number - 1:
                break
        else:
            return False
    return True


class FieldDomain(Frozen, dict=True):
    """The integers modulo a prime between 2**60 and 2**61, in Montgomery form."""

    prime: int
    mode = 0

    @property
    def compiled(self) -> FieldDomain:
        return self

    def constant(self, value: Fraction | float) -> int:
        """Return the word of a number; one that is not finite becomes a hash of its name."""
        if isinstance(value, float) and not math.isfinite(value):
            return code_of(repr(value))
        exact = Fraction(value)
        return exact.numerator * pow(exact.denominator, -1, self.prime) * _WORD % self.prime

    def code(self, name: str) -> int:
        return code_of(name)

    def number(self, word: int) -> int:
        """Return the number that a word stands for, from 0 to the prime."""
        return word * pow(_WORD, -1, self.prime) % self.prime

    @cached_property
    def functions(self) -> str:
        inverse = pow(self.prime, -1, _WORD)
        values = {
            "words": WORDS_TYPE,
            "p": self.prime,
            "inverse": inverse - _WORD if inverse >> 63 else inverse,
            "square": _WORD * _WORD % self.prime,
            "one": self.constant(1),
        }
        return _FUNCTION.sub(_by_mode, _FIELD % values + _real(self))


class DegreeDomain(Frozen):
    """Bounds of total degrees: 1 for unknown values, 0 for constants; a hash counts as a new variable.

    Attributes:
        compiled: any field.
    """

    compiled: FieldDomain
    mode = 1

    def constant(self, value: Fraction | float) -> int:
        return 0


_FUNCTION = re.compile(r"func\.func private @(\w+)\(([^)]*)\) -> i64 \{\n(.*?)  return (%\w+) : i64\n\}\n", re.DOTALL)


def _by_mode(function: re.Match[str]) -> str:
    """Extend a function of the field to compute degrees in the other mode; helper functions stay as they are."""
    name, arguments, body, result = function.groups()
    if name not in (*SIGNATURES, "real"):
        return function[0]
    lines = _degree_lines(name, re.findall(r"(%\w+):", arguments)[1:])
    return (
        f"func.func private @{name}({arguments}) -> i64 {{\n"
        f"  %mode_place = arith.constant 3 : index\n  %mode = memref.load %w[%mode_place] : {WORDS_TYPE}\n"
        "  %of_field = arith.constant 0 : i64\n  %by_degree = arith.cmpi ne, %mode, %of_field : i64\n"
        f"  %result = scf.if %by_degree -> i64 {{\n{lines}  }} else {{\n{body}  scf.yield {result} : i64\n  }}\n"
        "  return %result : i64\n}\n"
    )


def _degree_lines(name: str, arguments: list[str]) -> str:
    """Return code for the degree of a result: the sum for products, else the maximum; at least 1 for hashes."""
    if name in ("constant", "integer", "real"):
        return "  %degree = arith.constant 0 : i64\n  scf.yield %degree : i64\n"
    is_ring, operation = name in ("add", "sub", "mul"), "addi" if name == "mul" else "maxui"
    degrees = arguments if is_ring or name == "choose" else arguments[1:]
    # Memory that was never written is a variable of its own, which does not collide with hashes.
    steps = (f"  %degree{k + 1} = arith.{operation} %degree{k}, {degree} : i64\n" for k, degree in enumerate(degrees))
    all_steps = "".join(steps)
    return f"""\
  %degree0 = arith.constant {int(not is_ring)} : i64
  %hashes = arith.constant {int(not is_ring and name != "undefined")} : i64
  func.call @count(%w, %hashes) : ({WORDS_TYPE}, i64) -> ()
{all_steps}  %most_degree = arith.constant {MAX_DEGREE} : i64
  %degree = arith.minui %degree{len(degrees)}, %most_degree : i64
  scf.yield %degree : i64
"""


_FIELD = """
func.func private @count(%%w: %(words)s, %%hashes: i64) {
  %%operation = arith.constant 0 : index
  %%hash = arith.constant 1 : index
  %%one = arith.constant 1 : i64
  %%a = memref.load %%w[%%operation] : %(words)s
  %%b = arith.addi %%a, %%one : i64
  memref.store %%b, %%w[%%operation] : %(words)s
  %%c = memref.load %%w[%%hash] : %(words)s
  %%d = arith.addi %%c, %%hashes : i64
  memref.store %%d, %%w[%%hash] : %(words)s
  return
}
func.func private @constant(%%w: %(words)s, %%a: i64) -> i64 {
  return %%a : i64
}
func.func private @add(%%w: %(words)s, %%a: i64, %%b: i64) -> i64 {
  %%p = arith.constant %(p)d : i64
  %%s = arith.addi %%a, %%b : i64
  %%d = arith.subi %%s, %%p : i64
  %%r = arith.minui %%s, %%d : i64
  return %%r : i64
}
func.func private @sub(%%w: %(words)s, %%a: i64, %%b: i64) -> i64 {
  %%p = arith.constant %(p)d : i64
  %%d = arith.subi %%a, %%b : i64
  %%s = arith.addi %%d, %%p : i64
  %%r = arith.minui %%s, %%d : i64
  return %%r : i64
}
func.func private @mul(%%w: %(words)s, %%a: i64, %%b: i64) -> i64 {
  %%p = arith.constant %(p)d : i64
  %%inverse = arith.constant %(inverse)d : i64
  %%low, %%high = arith.mului_extended %%a, %%b : i64
  %%m = arith.muli %%low, %%inverse : i64
  %%same, %%carry = arith.mului_extended %%m, %%p : i64
  %%d = arith.subi %%high, %%carry : i64
  %%s = arith.addi %%d, %%p : i64
  %%r = arith.minui %%s, %%d : i64
  return %%r : i64
}
func.func private @mix(%%x0: i64) -> i64 {
  %%c30 = arith.constant 30 : i64
  %%c27 = arith.constant 27 : i64
  %%c31 = arith.constant 31 : i64
  %%f1 = arith.constant -4658895280553007687 : i64
  %%f2 = arith.constant -7723592293110705685 : i64
  %%x1 = arith.shrui %%x0, %%c30 : i64
  %%x2 = arith.xori %%x0, %%x1 : i64
  %%x3 = arith.muli %%x2, %%f1 : i64
  %%x4 = arith.shrui %%x3, %%c27 : i64
  %%x5 = arith.xori %%x3, %%x4 : i64
  %%x6 = arith.muli %%x5, %%f2 : i64
  %%x7 = arith.shrui %%x6, %%c31 : i64
  %%x8 = arith.xori %%x6, %%x7 : i64
  return %%x8 : i64
}
func.func private @begin(%%w: %(words)s, %%op: i64) -> i64 {
  %%zero = arith.constant 0 : index
  %%key = memref.load %%w[%%zero] : %(words)s
  %%x = arith.xori %%key, %%op : i64
  %%r = func.call @mix(%%x) : (i64) -> i64
  return %%r : i64
}
func.func private @absorb(%%h: i64, %%a: i64) -> i64 {
  %%x = arith.xori %%h, %%a : i64
  %%r = func.call @mix(%%x) : (i64) -> i64
  return %%r : i64
}
func.func private @end(%%h: i64) -> i64 {
  %%p = arith.constant %(p)d : i64
  %%c3 = arith.constant 3 : i64
  %%s = arith.shrui %%h, %%c3 : i64
  %%d = arith.subi %%s, %%p : i64
  %%r = arith.minui %%s, %%d : i64
  return %%r : i64
}
func.func private @apply1(%%w: %(words)s, %%op: i64, %%a: i64) -> i64 {
  %%h = func.call @begin(%%w, %%op) : (%(words)s, i64) -> i64
  %%ha = func.call @absorb(%%h, %%a) : (i64, i64) -> i64
  %%r = func.call @end(%%ha) : (i64) -> i64
  return %%r : i64
}
func.func private @apply2(%%w: %(words)s, %%op: i64, %%a: i64, %%b: i64) -> i64 {
  %%h = func.call @begin(%%w, %%op) : (%(words)s, i64) -> i64
  %%ha = func.call @absorb(%%h, %%a) : (i64, i64) -> i64
  %%hb = func.call @absorb(%%ha, %%b) : (i64, i64) -> i64
  %%r = func.call @end(%%hb) : (i64) -> i64
  return %%r : i64
}
func.func private @apply3(%%w: %(words)s, %%op: i64, %%a: i64, %%b: i64, %%c: i64) -> i64 {
  %%h = func.call @begin(%%w, %%op) : (%(words)s, i64) -> i64
  %%ha = func.call @absorb(%%h, %%a) : (i64, i64) -> i64
  %%hb = func.call @absorb(%%ha, %%b) : (i64, i64) -> i64
  %%hc = func.call @absorb(%%hb, %%c) : (i64, i64) -> i64
  %%r = func.call @end(%%hc) : (i64) -> i64
  return %%r : i64
}
func.func private @commutative(%%w: %(words)s, %%op: i64, %%a: i64, %%b: i64) -> i64 {
  %%least = arith.minui %%a, %%b : i64
  %%most = arith.maxui %%a, %%b : i64
  %%r = func.call @apply2(%%w, %%op, %%least, %%most) : (%(words)s, i64, i64, i64) -> i64
  return %%r : i64
}
func.func private @neutral(%%w: %(words)s, %%op: i64, %%a: i64, %%b: i64, %%e: i64) -> i64 {
  %%h = func.call @commutative(%%w, %%op, %%a, %%b) : (%(words)s, i64, i64, i64) -> i64
  %%is_a = arith.cmpi eq, %%a, %%e : i64
  %%is_b = arith.cmpi eq, %%b, %%e : i64
  %%x = arith.select %%is_b, %%a, %%h : i64
  %%r = arith.select %%is_a, %%b, %%x : i64
  return %%r : i64
}
func.func private @sum(%%w: %(words)s, %%op: i64, %%a: i64, %%b: i64) -> i64 {
  %%e = arith.constant 0 : i64
  %%r = func.call @neutral(%%w, %%op, %%a, %%b, %%e) : (%(words)s, i64, i64, i64, i64) -> i64
  return %%r : i64
}
func.func private @product(%%w: %(words)s, %%op: i64, %%a: i64, %%b: i64) -> i64 {
  %%e = arith.constant %(one)d : i64
  %%r = func.call @neutral(%%w, %%op, %%a, %%b, %%e) : (%(words)s, i64, i64, i64, i64) -> i64
  return %%r : i64
}
func.func private @choose(%%w: %(words)s, %%c: i64, %%a: i64, %%b: i64) -> i64 {
  %%op = arith.constant 1 : i64
  %%h = func.call @apply3(%%w, %%op, %%c, %%a, %%b) : (%(words)s, i64, i64, i64, i64) -> i64
  %%same = arith.cmpi eq, %%a, %%b : i64
  %%r = arith.select %%same, %%a, %%h : i64
  return %%r : i64
}
func.func private @undefined(%%w: %(words)s, %%op: i64) -> i64 {
  %%place = arith.constant 1 : index
  %%step = arith.constant -7046029254386353131 : i64
  %%last = memref.load %%w[%%place] : %(words)s
  %%next = arith.addi %%last, %%step : i64
  memref.store %%next, %%w[%%place] : %(words)s
  %%h = func.call @mix(%%next) : (i64) -> i64
  %%r = func.call @end(%%h) : (i64) -> i64
  return %%r : i64
}
func.func private @integer(%%w: %(words)s, %%x: i64) -> i64 {
  %%p = arith.constant %(p)d : i64
  %%zero = arith.constant 0 : i64
  %%square = arith.constant %(square)d : i64
  %%m = arith.remsi %%x, %%p : i64
  %%up = arith.addi %%m, %%p : i64
  %%negative = arith.cmpi slt, %%m, %%zero : i64
  %%y = arith.select %%negative, %%up, %%m : i64
  %%r = func.call @mul(%%w, %%y, %%square) : (%(words)s, i64, i64) -> i64
  return %%r : i64
}
"""


def _real(field: FieldDomain) -> str:
    """Return the function `real`: mantissa times a power of two, by the exponent's bits; other values are hashed."""
    product = f"({WORDS_TYPE}, i64, i64) -> i64"
    bits = (_EXPONENTS + 1024).bit_length()
    powers = "".join(
        f"""\
  %power{k} = arith.constant {field.constant(Fraction(1 << (1 << k)))} : i64
  %bit{k} = arith.constant {1 << k} : i64
  %and{k} = arith.andi %exponent, %bit{k} : i64
  %has{k} = arith.cmpi ne, %and{k}, %zero : i64
  %more{k} = func.call @mul(%w, %r{k}, %power{k}) : {product}
  %r{k + 1} = arith.select %has{k}, %more{k}, %r{k} : i64
"""
        for k in range(bits)
    )
    # With an integer mantissa, biased exponents count from 2**-1075.
    return f"""\
func.func private @real(%w: {WORDS_TYPE}, %x: f64) -> i64 {{
  %bits = arith.bitcast %x : f64 to i64
  %c52 = arith.constant 52 : i64
  %c2047 = arith.constant 2047 : i64
  %c1 = arith.constant 1 : i64
  %zero = arith.constant 0 : i64
  %fraction = arith.constant {(1 << 52) - 1} : i64
  %leading = arith.constant {1 << 52} : i64
  %shifted = arith.shrui %bits, %c52 : i64
  %biased = arith.andi %shifted, %c2047 : i64
  %low = arith.andi %bits, %fraction : i64
  %tiny = arith.cmpi eq, %biased, %zero : i64
  %implied = arith.select %tiny, %zero, %leading : i64
  %mantissa = arith.ori %low, %implied : i64
  %exponent = arith.maxui %biased, %c1 : i64
  %negated = arith.subi %zero, %mantissa : i64
  %minus = arith.cmpi slt, %bits, %zero : i64
  %signed = arith.select %minus, %negated, %mantissa : i64
  %m = func.call @integer(%w, %signed) : ({WORDS_TYPE}, i64) -> i64
  %scale = arith.constant {field.constant(Fraction(1, 1 << _EXPONENTS))} : i64
  %r0 = func.call @mul(%w, %m, %scale) : {product}
{powers}  %infinite = arith.cmpi eq, %biased, %c2047 : i64
  %hash = func.call @apply1(%w, %c2047, %bits) : {product}
  %r = arith.select %infinite, %hash, %r{bits} : i64
  return %r : i64
}}
"""
