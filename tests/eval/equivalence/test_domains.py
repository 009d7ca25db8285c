"""The field's words against Python's integers."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.eval.equivalence.compare import Side
from allo_dse.eval.equivalence.domains import DegreeDomain, FieldDomain, is_prime, random_prime
from allo_dse.mapper.program import load_program

from . import programs

FIELD = FieldDomain(random_prime(1))


@given(st.integers(0, 5000))
def test_primes_are_those_that_nothing_divides(number: int) -> None:
    assert is_prime(number) == (number > 1 and all(number % k for k in range(2, number)))


@given(st.integers(0, 50))
def test_random_primes_have_61_bits(seed: int) -> None:
    prime = random_prime(seed)
    assert prime.bit_length() == 61
    assert is_prime(prime)


@given(st.fractions(max_denominator=1 << 60))
def test_constants_stand_for_their_numbers(value: Fraction) -> None:
    assert FIELD.number(FIELD.constant(value)) * value.denominator % FIELD.prime == value.numerator % FIELD.prime


def test_compiled_arithmetic_is_that_of_python() -> None:
    a, b = (np.random.default_rng(k).integers(FIELD.prime, size=6) for k in range(2))
    a[0], b[1], a[2], b[2] = 0, 0, FIELD.prime - 1, FIELD.prime - 1
    found = _run(programs.formula(), FIELD, [a, b, np.zeros(6, np.int64)])
    x, y = ([FIELD.number(int(word)) for word in words] for words in (a, b))
    assert found == [((p - 7) * q + p**3) % FIELD.prime for p, q in zip(x, y, strict=True)]


def test_binary_fractions_are_exact() -> None:
    a, b = (np.random.default_rng(k).integers(FIELD.prime, size=6) for k in range(2))
    found = _run(programs.floats(), FIELD, [a, b, np.zeros(6, np.int64)])
    tiny, shift = Fraction(float(np.float32(1e-30))), Fraction(3, 8)
    for i in range(6):
        x, y = Fraction(FIELD.number(int(a[i]))), Fraction(FIELD.number(int(b[i])))
        exact = (x - shift) * y * (i - Fraction(5, 2)) - tiny
        assert found[i] == exact.numerator * pow(exact.denominator, -1, FIELD.prime) % FIELD.prime


def test_degrees_are_those_of_the_polynomial() -> None:
    side = Side(load_program(programs.formula()).vmg, {})
    tensors = [np.ones(6, np.int64) for _ in range(3)]
    operations, hashes = side.run(DegreeDomain(FIELD), tensors, 0, None)
    assert tensors[2].tolist() == [3] * 6
    assert (operations, hashes) == (6 * 5, 0)


def _run(region: Any, field: FieldDomain, tensors: list[Any]) -> list[int]:
    """The last tensor after a run of the field."""
    Side(load_program(region).vmg, {}, allow_reassociation=True).run(field, tensors, 0, None)
    return [field.number(int(word)) for word in tensors[-1]]
