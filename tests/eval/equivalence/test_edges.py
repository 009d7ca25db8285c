"""Memory that was never written, signed zeros, and branches that never end."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.eval.equivalence.data_values import Undecidable
from allo_dse.lang import install

install()

import allo
import allo.dataflow as df
from allo.ir.types import float32, int16, int32


def partly_written(written: int, read: int, by_path: bool) -> Any:
    @df.region()
    def top(X: int32[8], Y: int32[8]):
        @df.kernel(mapping=[1], args=[X, Y])
        def core(x: int32[8], y: int32[8]):
            t: int32[4]
            for i in range(written):
                t[i] = x[i]
            for i in range(8):
                with allo.meta_if(by_path):
                    y[x[i] % 8] = t[0] + t[read]
                with allo.meta_else():
                    y[i] = t[0] + t[read]

    return dse.load_program(top)


@settings(max_examples=12, deadline=None)
@given(st.integers(1, 4), st.integers(0, 3), st.booleans())
def test_an_output_that_depends_on_memory_never_written_is_never_equal(written: int, read: int, by_path: bool) -> None:
    program = partly_written(written, read, by_path)
    inputs = {"X": np.arange(8, dtype=np.int32)} if by_path else None
    if read < written:
        assert dse.equivalent(program, program, inputs=inputs)
    else:
        with pytest.raises(Undecidable, match=r"Y\[0\] of top depends on memory .* `t` \(.*test_edges.py:26, read at"):
            dse.equivalent(program, program, inputs=inputs)


def with_zero(added: bool, divided: bool) -> Any:
    @df.region()
    def top(X: float32[2], Y: float32[2]):
        @df.kernel(mapping=[1], args=[X, Y])
        def core(x: float32[2], y: float32[2]):
            for i in range(2):
                t: float32 = x[i]
                with allo.meta_if(added):
                    t = x[i] + 0.0
                with allo.meta_if(divided):
                    y[i] = 1.0 / t
                with allo.meta_else():
                    y[i] = t / 2.0

    return dse.load_program(top)


@pytest.mark.parametrize("divided", [False, True])
def test_signed_zeros_are_mentioned_where_they_are_seen(divided: bool) -> None:
    found = dse.equivalent(with_zero(True, divided), with_zero(False, divided))
    assert found
    assert ("-0.0" in str(found)) == divided


def test_a_loop_in_a_branch_that_is_never_taken_compiles() -> None:
    @df.region()
    def top(X: int16[8], Y: int16[8]):
        @df.kernel(mapping=[1], args=[X, Y])
        def core(x: int16[8], y: int16[8]):
            for i in range(8):
                v: int16 = x[i]
                if v > 3 and (v != v or v > v):
                    for _j in range(3):
                        if v != v:
                            u: int16 = v  # noqa: F841
                else:
                    for _j in range(3):
                        pass
                y[i] = v

    y = np.zeros(8, np.int16)
    dse.simulate(dse.load_program(top), x := np.arange(8, dtype=np.int16), y)
    assert (x == y).all()
