"""Negative controls of the operators of networks: what each is right about can be wrong."""

from __future__ import annotations

import numpy as np
import pytest

from allo_dse.lang.storage import numpy_dtype
from allo_dse.lang.types import bfloat16
from allo_dse.networks.operators import (
    Work,
    attention_work,
    binary_work,
    element_type,
    gemm_work,
    gemv_work,
    rms_norm_work,
    rope_work,
    unary_work,
)
from allo_dse.networks.operators.execute import deviation, interface, loaded, reference_of
from allo_dse.networks.operators.products import fused_work

from ...support.controls import CONTROLS, Array, input_controls
from .works import layer_norm_work, pool_work, row_work, softmax_work

SIZE = 64


def _fused(first: Work, following: Work, position: int = 0) -> Work:
    work = fused_work(first, following, position)
    assert work is not None
    return work


def _works(element: object) -> dict[str, Work]:
    product = gemm_work(16, 16, 16, element)
    biased = _fused(product, row_work("add", 16, 16, element))
    return {
        **{op: unary_work(op, SIZE, element) for op in ("relu", "gelu", "silu", "sigmoid", "tanh")},
        **{op: binary_work(op, SIZE, element) for op in ("add", "sub", "mul", "silu_mul")},
        "add_row": row_work("add", 8, 16, element),
        "mul_row": row_work("mul", 8, 16, element),
        "gemm": product,
        "gemv": gemv_work(16, 16, element),
        "max_pool": pool_work("max", 4, SIZE, element),
        "mean_pool": pool_work("mean", 4, SIZE, element),
        "rms_norm": rms_norm_work(8, 16, 1e-5, element),
        "layer_norm": layer_norm_work(8, 16, 1e-5, element),
        "softmax": softmax_work(8, 16, element),
        "rope": rope_work(8, 16, element),
        "attention": attention_work(2, 1, 16, 8, 8**-0.5, True, element),
        "gemm, gelu": _fused(product, unary_work("gelu", 256, element)),
        "gemm, silu_mul": _fused(product, binary_work("silu_mul", 256, element)),
        "gemm, mul": _fused(product, binary_work("mul", 256, element)),
        "gemm, bias": biased,
        "gemm, bias, relu": _fused(biased, unary_work("relu", 256, element)),
        "gemm, bias, add": _fused(biased, binary_work("add", 256, element)),
        "add, relu": _fused(binary_work("add", 256, element), unary_work("relu", 256, element)),
    }


WORKS = {f"{name} {dtype}": work for dtype in ("bf16", "f32") for name, work in _works(element_type(dtype)).items()}


def _given(work: Work) -> list[Array]:
    rng = np.random.default_rng(0)
    shapes = [tensor.shape for tensor in interface(loaded(work))[0]]
    return [rng.standard_normal(shape).astype(numpy_dtype(bfloat16)).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("name", WORKS)
def test_operators_are_right_and_their_negative_controls_are_not(name: str) -> None:
    work = WORKS[name]
    given = _given(work)
    expected = reference_of(work, given)
    right = deviation(name, work, given, expected)
    assert right.ok, right
    for control, change in CONTROLS.items():
        assert not deviation(name, work, given, change(expected)).ok, control


@pytest.mark.parametrize("name", WORKS)
def test_a_last_step_that_is_missing_and_inputs_exchanged_are_refused(name: str) -> None:
    work = WORKS[name]
    given = _given(work)
    expected = reference_of(work, given)
    for control, change in input_controls(given):
        wrong = reference_of(work, change(given))
        if not np.allclose(wrong, expected, rtol=1e-5):  # a maximum, or a sum in another order, may not change
            assert not deviation(name, work, given, wrong).ok, control
