"""Which tasks of a kernel are of which class, and which nodes are alike."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from allo_dse.common.records import Array
from allo_dse.compiler.program.compiled import Kernel
from allo_dse.mapper.axes import class_varies
from allo_dse.mapper.fold.primitives import _distinct

TABLES = st.lists(st.integers(1, 3), min_size=1, max_size=3).flatmap(
    lambda shape: arrays(np.int64, tuple(shape), elements=st.integers(0, 1))
)


@given(TABLES)
def test_a_table_of_what_varies_says_the_same(table: Array) -> None:
    kernel = Kernel("k", table.shape, (), (), table)
    assert (np.broadcast_to(kernel.varying_classes, table.shape) == table).all()
    for axis in range(table.ndim):
        varies = any((np.take(table, n, axis) != np.take(table, 0, axis)).any() for n in range(table.shape[axis]))
        assert class_varies(kernel, axis) == varies


@given(arrays(np.int64, st.tuples(st.integers(1, 6), st.integers(1, 3)), elements=st.integers(-2, 2)))
def test_different_rows_are_those_that_numpy_finds(rows: Array) -> None:
    patterns, number = _distinct(rows)
    expected, inverse = np.unique(rows, axis=0, return_inverse=True)
    assert patterns == list(map(tuple, expected.tolist()))
    assert number.tolist() == inverse.reshape(-1).tolist()
