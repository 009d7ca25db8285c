"""Programs that do several steps at once, against NumPy and against the steps by themselves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.networks.network import Arrange, fused_operators
from allo_dse.networks.operators import binary_work, element_type, gemm_work, unary_work
from allo_dse.networks.operators.execute import Work, deviation, difference, reference_of
from allo_dse.networks.operators.products import fused_work

from .works import row_work

M, N, K = 32, 48, 16
ELEMENT = element_type("f32")
PRODUCT = gemm_work(M, N, K, ELEMENT)


def _check(work: Work, given: list[np.ndarray]) -> None:
    found = deviation("fused", work, given, reference_of(work, given))
    assert found.ok, found


def _given(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [(rng.standard_normal(shape) / 4).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("op", ["relu", "gelu", "silu"])
def test_a_function_of_the_product(op: str) -> None:
    work = fused_work(PRODUCT, unary_work(op, M * N, ELEMENT), 0)
    assert work is not None
    _check(work, _given((M, K), (K, N)))


@pytest.mark.parametrize(("op", "position"), [("add", 0), ("add", 1), ("mul", 0), ("silu_mul", 0), ("silu_mul", 1)])
def test_the_product_and_another_matrix(op: str, position: int) -> None:
    alone = binary_work(op, M * N, ELEMENT)
    work = fused_work(PRODUCT, alone, position)
    assert work is not None
    A, B, other = _given((M, K), (K, N), (M, N))
    _check(work, [A, B, other])
    operands = [other, A @ B] if position else [A @ B, other]
    assert difference(reference_of(work, [A, B, other]), reference_of(alone, operands)) < 1e-5


@pytest.mark.parametrize("op", ["relu", "gelu", "silu"])
def test_a_layer_with_bias_and_function(op: str) -> None:
    biased = fused_work(PRODUCT, row_work("add", M, N, ELEMENT), 0)
    assert biased is not None
    _check(biased, _given((M, K), (K, N), (N,)))
    work = fused_work(biased, unary_work(op, M * N, ELEMENT), 0)
    assert work is not None
    _check(work, _given((M, K), (K, N), (N,)))


def test_a_sum_of_what_is_biased_and_its_relu() -> None:
    """As a block of ResNet ends, and without the function one of GPT-2."""
    works: list[Work | None] = [PRODUCT]
    size = M * N
    for alone in (row_work("add", M, N, ELEMENT), binary_work("add", size, ELEMENT), unary_work("relu", size, ELEMENT)):
        assert works[-1] is not None
        works.append(fused_work(works[-1], alone, 0))
    _, _, added, last = works
    given = _given((M, K), (K, N), (N,), (M, N))
    A, B, row, other = given
    for work, expected in ((added, A @ B + row + other), (last, np.maximum(A @ B + row + other, 0))):
        assert work is not None
        _check(work, given)
        assert difference(reference_of(work, given), expected) < 1e-5
    assert last is not None
    more = fused_work(last, unary_work("sigmoid", M * N, ELEMENT), 0)
    assert more is not None
    _check(more, given)


def test_a_sum_and_its_relu() -> None:
    work = fused_work(binary_work("add", M * N, ELEMENT), unary_work("relu", M * N, ELEMENT), 0)
    assert work is not None
    _check(work, _given((M * N,), (M * N,)))


@pytest.mark.parametrize("wanted", [False, True])
def test_a_product_in_another_shape_is_the_product_still(wanted: bool, tmp_path: Path) -> None:
    """But for one that the network gives out, in the other shape."""
    net, element = dse.Network("reshaped"), element_type("bf16")
    x, w = net.input("x", (M, K)), net.constant("w", np.ones((K, N)) / K)
    product = net.add(gemm_work(M, N, K, element), x, w, name="product")
    shaped = net.add(Arrange(lambda one: one.reshape(1, M, N), True), product, name="shaped")
    last = net.add(unary_work("relu", M * N, element), shaped, name="relu", shape=(1, M, N))
    net.output(last, *([shaped] if wanted else []))
    assert [one.names for one in fused_operators(net)] == ([] if wanted else [("product", "relu")])
    found = dse.compose(dse.search_fronts(net, "npu1_1col", trials=2, cache=tmp_path))
    given = {"x": np.random.default_rng(1).standard_normal((M, K)).astype(np.float32)}
    assert difference(found.run(given)[last], net.run(given, simulated=False)[last]) < 0.02
    assert [run.step.name for run in found.runs] == (["product", "relu"] if wanted else ["product+relu"])


def test_only_what_no_one_else_reads_is_fused() -> None:
    """The product `up` is read once, `gate` twice and `down` is wanted itself."""
    net = dse.Network("gated")
    x, w = net.input("x", (M, K)), net.constant("w", np.ones((K, N)))
    gate, up, down = (net.add(PRODUCT, x, w, name=name) for name in ("gate", "up", "down"))
    both = net.add(binary_work("silu_mul", M * N, ELEMENT), gate, up, name="both")
    net.output(down, net.add(binary_work("add", M * N, ELEMENT), both, gate, name="sum"))
    net.output(net.add(unary_work("relu", M * N, ELEMENT), down, name="relu"))
    one, more = fused_operators(net)
    assert more.names == ("up", "both", "sum")
    assert one.names == ("up", "both")
    assert one.step.inputs == ("x", "w", gate)
    assert one.step.output == both
