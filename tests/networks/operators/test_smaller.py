"""The smaller instance that a work is verified with has the work's reference."""

from __future__ import annotations

import numpy as np
import pytest

from allo_dse.common.records import replace
from allo_dse.networks.operators import attention_work, element_type, gemm_work, rms_norm_work, rope_work, unary_work
from allo_dse.networks.operators.execute import Work, difference, loaded, reference_of, run_program
from allo_dse.networks.operators.products import fused_work, gemv_work

from .works import layer_norm_work, pool_work, softmax_work

ELEMENT = element_type("f32")
WORKS = [
    gemm_work(64, 64, 64, ELEMENT),
    gemv_work(64, 1024, ELEMENT),
    fused_work(gemm_work(64, 64, 64, ELEMENT), unary_work("silu", 64 * 64, ELEMENT), 0),
    attention_work(4, 4, 128, 64, 0.125, True, ELEMENT),
    attention_work(4, 2, 128, 64, 0.125, True, ELEMENT),
    attention_work(4, 2, 128, 64, 0.125, False, ELEMENT, queries=64),
    attention_work(8, 2, 128, 64, 0.125, True, ELEMENT, queries=1),
    rms_norm_work(32, 64, 1e-5, ELEMENT),
    layer_norm_work(32, 64, 1e-5, ELEMENT),
    softmax_work(32, 64, ELEMENT),
    rope_work(32, 64, ELEMENT),
    unary_work("gelu", 4096, ELEMENT),
    pool_work("max", 9, 1024, ELEMENT),
]


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.kind)
def test_a_smaller_instance_computes_the_reference(work: Work) -> None:
    assert work.verify_with is not None
    params = {name: value for name, value in work.smallest.items() if isinstance(value, int)}
    small = replace(work, params={**work.smallest, **work.verify_with(params)})
    assert small.params != work.smallest
    rng = np.random.default_rng(0)
    program = loaded(small)
    given = [rng.standard_normal(t.shape).astype(np.float32) for t in program.tensors[:-1]]
    assert difference(run_program(program, given), reference_of(small, given)) < 1e-6
