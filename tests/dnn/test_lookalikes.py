"""ONNX models that look like what is known: refused with a place, or computed as ONNX does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

onnx = pytest.importorskip("onnx")

from onnx import ModelProto
from onnx.reference import ReferenceEvaluator

import allo_dse as dse
from allo_dse.dnn.layouts import simplified
from allo_dse.dnn.network import Arrange, Network
from allo_dse.dnn.operators.execute import difference

from .models import Writer

SIDE = 4
ROOT = np.sqrt(2)


def _computes_what_onnx_does(model: ModelProto) -> Network:
    network = dse.from_onnx(model, element="f32")
    rng = np.random.default_rng(1)
    given = {name: rng.standard_normal(network.shapes[name]).astype(np.float32) for name in network.inputs}
    expected = dict(zip(network.outputs, ReferenceEvaluator(model).run(None, given), strict=True))
    for found in (network.run(given, simulated=False), network.run(given)):
        for name, array in expected.items():
            assert difference({**network.constants, **found}[name], array) < 1e-5
    assert all(one.ok for one in network.check(given, expected))
    return network


def _kinds(network: Network) -> list[str]:
    return [step.work.kind for step in network.steps if not (isinstance(step.work, Arrange) and step.work.free)]


def _gelu(w: Writer, root: float) -> str:
    return w("Mul", w("Mul", "x", w("Add", w("Erf", w("Mul", "x", w.const(root))), w.const(1.0))), w.const(0.5))


def _rms_norm(w: Writer, epsilon: object = 1e-5, weight: object = 1.0, **how: object) -> str:
    mean = w("ReduceMean", w("Mul", "x", "x"), **how)
    normed = w("Div", "x", w("Sqrt", w("Add", mean, w.const(epsilon))))
    return w("Mul", normed, w.const(weight))


def _rotary(w: Writer, shape: tuple[int, ...]) -> str:
    low, high = (w("Slice", "x", *(w.const([one], np.int64) for one in ends)) for ends in ((0, 2, 3), (2, 4, 3)))
    cosine, sine = (w.const(np.tile(w.rng.random((*shape, 2)), 2)) for _ in range(2))
    return w("Add", w("Mul", "x", cosine), w("Mul", w("Concat", w("Neg", high), low, axis=3), sine))


def _attention(w: Writer, mask: NDArray[np.generic] | None = None, scale: float = 1.0) -> str:
    scores = w("Div", w("MatMul", "x", w("Transpose", "x", perm=[0, 2, 1])), w.const(scale))
    scores = scores if mask is None else w("Add", scores, w.const(mask))
    return w("MatMul", w("Softmax", scores), "x")


def _foreign(w: Writer) -> str:
    return w("Mul", "x", w("Sigmoid", "x", domain="com.example"))


ROW = np.arange(1.0, SIDE + 1)
SQUARE, HEADS = (SIDE, SIDE), (1, SIDE, SIDE)


@pytest.mark.parametrize(
    ("made", "shape", "version", "why"),
    [
        (lambda w: _gelu(w, ROOT), SQUARE, 17, "no program for Erf"),
        (lambda w: _rms_norm(w, weight=ROW, axes=[-1], keepdims=0), SQUARE, 17, "no program for Sqrt"),
        (lambda w: _rms_norm(w, weight=ROW), SQUARE, 17, "no program for Sqrt"),
        (lambda w: _rms_norm(w, epsilon=ROW, weight=ROW, axes=[-1]), SQUARE, 17, "no program for Sqrt"),
        (lambda w: _rms_norm(w, weight=ROW[:, None], axes=[-1]), SQUARE, 17, "'mul_.*': .* with a weight for each"),
        (lambda w: _rotary(w, (SIDE, 1)), (1, SIDE, SIDE, SIDE), 17, "no program for Neg"),
        (lambda w: _attention(w), (2, SIDE, SIDE), 11, "'matmul_.*': .* outside of attention"),
        (lambda w: _attention(w, np.zeros((2, SIDE, SIDE))), HEADS, 17, "'matmul_.*': values of"),
        (lambda w: _attention(w, scale=0.0), (2, SIDE, SIDE), 17, "'matmul_.*': .* outside of attention"),
        (_foreign, SQUARE, 17, "no program for Sigmoid"),
    ],
)
def test_what_is_no_pattern_is_refused(
    made: Callable[[Writer], str], shape: tuple[int, ...], version: int, why: str
) -> None:
    w = Writer()
    with pytest.raises(dse.StudyError, match=why):
        dse.from_onnx(w.model(made(w), shape, version))


def test_a_gate_of_another_shape_is_no_part_of_silu() -> None:
    w = Writer()
    up = w("Relu", w("Slice", "x", w.const([0], np.int64), w.const([1], np.int64)))
    model = w.model(w("Mul", w("Mul", "x", w("Sigmoid", "x")), up), SQUARE)
    assert _kinds(_computes_what_onnx_does(model)) == ["layout", "relu", "silu", "mul_row"]


@pytest.mark.parametrize("row", [False, True])
def test_a_softmax_between_products_need_not_be_attention(row: bool) -> None:
    w = Writer()
    part = w("Slice", "x", *(w.const([one], np.int64) for one in ((0, 1, 0) if row else (0, 3, 1))))
    query, values = (w("Reshape", part, w.const([SIDE], np.int64)), "x") if row else ("x", part)
    model = w.model(w("MatMul", w("Softmax", w("MatMul", query, w.weight(SIDE, SIDE))), values), SQUARE)
    assert "attention" not in _kinds(_computes_what_onnx_does(model))


def test_keys_are_transposed_as_onnx_shapes_them() -> None:
    w = Writer()
    image = w("Conv", "x", w.weight(2, 2, 1, 1))
    _computes_what_onnx_does(w.model(w("MatMul", w("Softmax", w("MatMul", "x", image)), "x"), (1, 2, SIDE, SIDE)))


def test_rearrangements_in_a_row_read_the_shapes_that_tensors_have() -> None:
    net = Network()
    x = net.input("x", (2, 3))
    turned = net.add(Arrange(np.transpose, False), x, shape=(1, 3, 2))
    net.output(net.add(Arrange(lambda one: one.transpose(0, 2, 1), False), turned, output="y"))
    given = {"x": np.arange(6.0).reshape(2, 3)}
    np.testing.assert_array_equal(simplified(net).run(given)["y"], net.run(given)["y"])


def test_a_softmax_of_the_lowest_numbers_is_even() -> None:
    w = Writer()
    network = dse.from_onnx(w.model(w("Softmax", "x"), SQUARE), element="f32")
    lowest = np.full(SQUARE, np.finfo(np.float32).min)
    np.testing.assert_array_equal(network.run({"x": lowest})[network.outputs[0]], np.full(SQUARE, 1 / SIDE))
