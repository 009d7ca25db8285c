"""Attention as a program, whatever its chunks, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as st

from allo_dse.common.records import replace
from allo_dse.networks.operators import attention_work, element_type
from allo_dse.networks.operators.execute import deviation, loaded, reference_of
from allo_dse.networks.operators.sequences import fitting_chunks


@pytest.mark.parametrize(("blocks", "chunks"), [(2, 4), (4, 2), (1, 8)])
@pytest.mark.parametrize("causal", [False, True])
def test_chunks_of_any_length_give_the_same(blocks: int, chunks: int, causal: bool) -> None:
    """Chunks longer and shorter than heads are wide, and than blocks of queries."""
    work = attention_work(4, 2, 32, 8, 8**-0.5, causal, element_type("f32"))
    work = replace(work, params={**work.params, "Pq": blocks, "Pk": chunks})
    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in ((64, 16), (32, 32))]
    found = deviation("attention", work, given, reference_of(work, given))
    assert found.ok, found


@pytest.mark.parametrize("queries", [64, 32])
def test_no_core_computes_chunks_that_the_mask_hides(queries: int) -> None:
    """Of 64 keys in chunks of 16, blocks of 8 of the last queries see those that begin no later than they end."""
    work = attention_work(4, 2, 64, 8, 8**-0.5, True, element_type("f32"), queries)
    work = replace(work, params={**work.params, "Pq": queries // 8, "Pk": 4})
    (kernel,) = loaded(work).kernels
    classes, table = kernel.by_work
    products = [sum(op.count or 0 for op in cls.work if op.kind == "matmul") for cls in classes]
    ends = np.arange(64 - queries, 64, 8) + 8
    seen = np.tile(np.arange(4) * 16 < ends[:, None], (2, 1))  # two heads of queries to one of keys
    per_chunk = max(products)
    assert (np.array(products)[table].reshape(-1, 4)[: len(seen)] == per_chunk * seen).all()

    rng = np.random.default_rng(0)
    given = [rng.standard_normal(shape).astype(np.float32) for shape in ((2 * queries, 16), (64, 32))]
    found = deviation("attention", work, given, reference_of(work, given))
    assert found.ok, found


@drawn(st.integers(1, 3000))
def test_chunks_of_any_length_divide_heads(length: int) -> None:
    """Allo has one kernel for products: a chunk divides the 64 columns of a head, and few chunks wait."""
    fitting = fitting_chunks(length)
    chunks = [own for own in (1, 2, 4, 8, 16, 32, 64) if fitting % own == 0]
    assert length <= fitting < length + 64
    assert fitting // chunks[-1] <= 4 or chunks[-1] == 64
