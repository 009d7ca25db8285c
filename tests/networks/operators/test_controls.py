"""Negative controls of the operators of networks: what each is right about can be wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from allo_dse.lang.storage import numpy_dtype
from allo_dse.lang.types import bfloat16
from allo_dse.networks.operators import (
    Work,
    affine_work,
    attention_work,
    binary_work,
    element_type,
    gemm_work,
    gemv_work,
    layer_norm_work,
    pool_work,
    rms_norm_work,
    rope_work,
    row_work,
    softmax_work,
    unary_work,
)
from allo_dse.networks.operators.execute import deviation, interface, loaded, reference_of

Array = NDArray[Any]
Control = Callable[[Array], Array]
BF16 = element_type("bf16")
SIZE = 64
WORKS: dict[str, Work] = {
    **{op: unary_work(op, SIZE, BF16) for op in ("relu", "gelu", "silu", "sigmoid", "tanh")},
    **{op: binary_work(op, SIZE, BF16) for op in ("add", "sub", "mul", "silu_mul")},
    "affine": affine_work(2.0, 0.5, SIZE, BF16),
    "add_row": row_work("add", 8, 16, BF16),
    "gemm": gemm_work(16, 16, 16, BF16),
    "gemv": gemv_work(16, 16, BF16),
    "max_pool": pool_work("max", 4, SIZE, BF16),
    "mean_pool": pool_work("mean", 4, SIZE, BF16),
    "rms_norm": rms_norm_work(8, 16, 1e-5, BF16),
    "layer_norm": layer_norm_work(8, 16, 1e-5, BF16),
    "softmax": softmax_work(8, 16, BF16),
    "rope": rope_work(8, 16, BF16),
    "attention": attention_work(2, 1, 16, 8, 8**-0.5, True, BF16),
}


def _tile_wrong(one: Array) -> Array:
    found = one.copy()
    found.flat[: max(1, one.size // 8)] += 0.25 * np.abs(one).max()
    return found


CONTROLS: dict[str, Control] = {
    "zeros": np.zeros_like,
    "times 1.1": lambda one: one * np.float32(1.1),
    "rows swapped": lambda one: one[::-1].copy(),
    "one tile wrong": _tile_wrong,
    "another activation": lambda one: np.where(one > np.median(one), one, 0).astype(one.dtype),
}


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


def _without_last(position: int, axis: int) -> Callable[[list[Array]], list[Array]]:
    """An operand whose last step of a reduction adds nothing."""

    def changed(given: list[Array]) -> list[Array]:
        found = [one.copy() for one in given]
        np.moveaxis(found[position], axis, 0)[-1] = 0
        return found

    return changed


@pytest.mark.parametrize(("name", "change"), [
    ("gemm", _without_last(0, 1)),
    ("gemv", _without_last(0, 1)),
    ("mean_pool", _without_last(0, 0)),
    ("max_pool", _without_last(0, 0)),
    ("softmax", _without_last(0, 1)),
    ("rms_norm", _without_last(0, 1)),
    ("layer_norm", _without_last(0, 1)),
    ("attention", _without_last(1, 0)),
    ("gemm", lambda given: given[::-1]),
    ("silu_mul", lambda given: given[::-1]),
    ("sub", lambda given: given[::-1]),
])  # fmt: skip
def test_a_last_step_that_is_missing_and_inputs_exchanged_are_refused(
    name: str, change: Callable[[list[Array]], list[Array]]
) -> None:
    work = WORKS[name]
    given = _given(work)
    assert not deviation(name, work, given, reference_of(work, change(given))).ok
