"""Quantized models multiply whole numbers on the device, and compute exactly what ONNX defines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")

from hypothesis import example, given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

import allo_dse as dse
from allo_dse.common.records import replace
from allo_dse.lang.types import int8
from allo_dse.networks.network import Host, Network, without
from allo_dse.networks.operators import Work, gemm_work, gemv_work
from allo_dse.networks.operators.execute import deviation, difference, reference_of

from .models import Writer, computed


def _quantized(w: Writer, x: str, scale: float, zero: int, dtype: type) -> str:
    names = w.const(scale), w.const(zero, dtype)
    return w("DequantizeLinear", w("QuantizeLinear", x, *names), *names)


def _weights(w: Writer, *shape: int, axis: int) -> str:
    """Known codes with a scale for each column."""
    scales = (0.01 + w.rng.random(shape[axis]) / 50).astype(np.float32)
    codes = w.const(w.rng.integers(-127, 128, shape), np.int8)
    return w("DequantizeLinear", codes, w.const(scales), w.const(np.zeros(shape[axis]), np.int8), axis=axis)


def _mlp(w: Writer, dtype: type) -> str:
    x = _quantized(w, "x", 0.03, -7 if dtype is np.int8 else 110, dtype)
    x = w("Relu", w("Gemm", x, _weights(w, 8, 6, axis=0), w.weight(8), transB=1))
    x = w("Reshape", _quantized(w, x, 0.05, -128 if dtype is np.int8 else 0, dtype), w.const([8, 4], np.int64))
    return _quantized(w, w("MatMul", x, _weights(w, 4, 3, axis=1)), 0.2, 5, dtype)


def _images(w: Writer, dtype: type) -> str:
    zero = 3 if dtype is np.int8 else 131
    x = _quantized(w, "x", 0.03, zero, dtype)
    x = w("Relu", w("Conv", x, _weights(w, 4, 2, 3, 3, axis=0), w.weight(4), pads=[1, 1, 1, 1]))
    x = w("MaxPool", _quantized(w, x, 0.04, zero, dtype), kernel_shape=[2, 2], strides=[2, 2])
    x = _quantized(w, x, 0.04, zero, dtype)
    y = w("Conv", x, _weights(w, 4, 1, 3, 3, axis=0), pads=[1, 1, 1, 1], group=4)
    return _quantized(w, w("Add", _quantized(w, y, 0.1, zero, dtype), x), 0.1, zero, dtype)


def _programs(network: Network) -> list[str]:
    assert not any(isinstance(step.work, Host) for step in network.steps)
    return [step.work.kind for step, _ in network.worked]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize(
    ("made", "shape", "kinds"),
    [
        (_mlp, (4, 6), ["quantize", "gemm", "sub_mul_add_relu", "gemm", "sub_mul_quantize_dequantize"]),
        (
            _images,
            (1, 2, 4, 4),
            ["quantize", "gemm", "sub_mul_add_relu", "max_pool", "depthwise", "sub_mul", "dequantize_quantize_add"],
        ),
    ],
)
def test_products_of_quantized_tensors_multiply_codes(
    made: Callable[[Writer, type], str], shape: tuple[int, ...], kinds: list[str], dtype: type
) -> None:
    w = Writer()
    network = computed(w.model(made(w, dtype), shape, 21))
    assert _programs(network) == kinds
    products = [work for step, work in network.worked if step.work.kind in ("gemm", "depthwise")]
    assert {work.params["Ty"] for work in products} == {int8}
    x = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    assert all(one.ok and not one.largest for one in network.check({"x": x}) if one.kind not in ("whole", "layout"))


def test_operators_on_quantized_tensors_are_read() -> None:
    """QLinearMatMul with a scale for each column, and its bias in QLinearConv."""
    w = Writer()
    one, two, three = (w.const(scale) for scale in (0.02, 0.01, 0.3))
    zeros = [w.const(zero, np.uint8) for zero in (120, 128)]
    codes = w("QuantizeLinear", "x", one, zeros[0])
    weights = w.const(w.rng.integers(-100, 100, (3, 2, 1, 1)), np.int8)
    bias = w.const(w.rng.integers(-900, 900, 3), np.int32)
    signed = w.const(0, np.int8)
    made = w("QLinearConv", codes, one, zeros[0], weights, two, signed, three, zeros[1], bias)
    network = computed(w.model(w("DequantizeLinear", made, three, zeros[1]), (1, 2, 4, 4), 21))
    assert _programs(network) == ["quantize", "gemm", "sub_mul_quantize_dequantize"]


def test_tensors_quantized_at_run_time_multiply_codes() -> None:
    """The host finds scales; products and what follows are programs."""
    w = Writer()
    quantized = helper.make_node("DynamicQuantizeLinear", ["x"], ["codes", "scale", "zero"], name="dynamic")
    w.nodes.append(quantized)
    sums = w("MatMulInteger", "codes", w.const(w.rng.integers(-127, 128, (6, 8)), np.int8), "zero")
    scaled = w("Mul", w("Cast", sums, to=onnx.TensorProto.FLOAT), w("Mul", "scale", w.const(0.02)))
    network = computed(w.model(w("Add", scaled, w.weight(8)), (4, 6), 21))
    kinds = [step.work.kind for step, _ in network.worked]
    assert kinds[0] == "gemm"
    assert not any("MatMul" in step.work.kind for step in network.steps)


def test_what_products_of_codes_cannot_express_is_computed_in_floats() -> None:
    """Scales along the depth."""
    w = Writer()
    x = _quantized(w, "x", 0.03, 2, np.int8)
    network = computed(w.model(w("MatMul", x, _weights(w, 6, 4, axis=0)), (4, 6), 21))
    assert not any(work.params["Ty"] == int8 for step, work in network.worked if step.work.kind == "gemm")


ZEROS = st.sampled_from([0, 1, 100, 127, 128, 255])
"""Above the lowest code."""


@settings(max_examples=8, deadline=None, derandomize=True)
@given(st.integers(1, 3), st.integers(2, 9), st.integers(1, 9), ZEROS, ZEROS, st.booleans(), st.booleans())
@example(1, 5, 7, 0, 0, False, True)
@example(2, 5, 7, 255, 0, True, False)
def test_products_of_codes_with_zeros_are_exact(
    batch: int, size: int, depth: int, zero: int, other: int, signed: bool, known: bool
) -> None:
    """All codes, as integers: of known weights, some of nine bits less their zero, and of two activations."""
    w, dtype, low = Writer(), np.int8 if signed else np.uint8, -128 if signed else 0
    x = w.rng.integers(-255, 256, (batch, size, depth))
    x[0, :2, 0] = 255, -255
    codes = [np.clip(x + one, 0, 255) for one in (zero, other)]
    right = codes[1][0].T if known else codes[1].swapaxes(1, 2)
    if known:
        numbers = w.const(1), w.const(other + low, dtype)
        factor = w("DequantizeLinear", w.const(right + low, dtype), *numbers)
    else:
        factor = w("Transpose", _quantized(w, "x", 1, other + low, dtype), perm=[0, 2, 1])
    model = w.model(w("MatMul", _quantized(w, "x", 1, zero + low, dtype), factor), x.shape, 21)
    network = dse.from_onnx(model, element="f32", host="never")
    assert not network.widened
    products = [work for step, work in network.worked if step.work.kind.startswith("gem")]
    assert {work.params["Ty"] for work in products} == {int8}
    made = network.run({"x": x.astype(np.float32)}, simulated=False)[network.outputs[0]]
    np.testing.assert_array_equal(made.reshape(batch, size, size), (codes[0] - zero) @ (right - other))


@pytest.mark.parametrize("work", [gemm_work(32, 32, 64, int8), gemv_work(32, 1024, int8)])
def test_sums_of_codes_are_exact(work: Work) -> None:
    rng = np.random.default_rng(0)
    shapes = [(32, 64), (64, 32)] if work.kind == "gemm" else [(32, 1024), (1024,)]
    given = [rng.integers(-128, 128, shape).astype(np.int8) for shape in shapes]
    expected = given[0].astype(np.int64) @ given[1].astype(np.int64)
    np.testing.assert_array_equal(reference_of(work, given).reshape(expected.shape), expected)
    assert deviation("sums", work, given, expected).ok


@pytest.mark.parametrize(("rows", "zeros"), [(1, False), (1, True), (4, False), (4, True)])
def test_weights_of_four_bits_in_blocks_stay_narrow(rows: int, zeros: bool) -> None:
    """As onnxruntime's own operator has them: low halves of bytes first, a scale and a zero for each block."""
    w = Writer()
    depth, columns, block = 40, 6, 16
    codes, blocks = w.rng.integers(0, 16, (columns, 48)), 3
    scales = w.rng.random((columns, blocks)).astype(np.float32)
    zero = w.rng.integers(0, 16, (columns, 4)) if zeros else np.full((columns, 4), 8)
    packed = [(one[:, ::2] | one[:, 1::2] << 4).astype(np.uint8) for one in (codes, zero)]
    inputs = ["x", w.const(packed[0].reshape(columns, blocks, -1), np.uint8), w.const(scales.ravel())]
    inputs += [w.const(packed[1].ravel(), np.uint8)] if zeros else []
    sizes = {"K": depth, "N": columns, "bits": 4, "block_size": block}
    model = w.model(w("MatMulNBits", *inputs, domain="com.microsoft", **sizes), (rows, depth))
    network = dse.from_onnx(model, element="f32", host="never")
    assert not network.widened
    (step,) = (one for one in network.steps if one.works)
    assert not step.rounded
    most = 48 // 2 * columns + 6 * 3 * columns  # codes, scales of float32, zeros and a row that Allo's tiles need
    assert network.constants[step.inputs[rows > 1]].nbytes <= most
    weights = ((codes.reshape(columns, blocks, block) - zero[:, :blocks, None]) * scales[..., None]).reshape(
        columns, -1
    )
    x = np.random.default_rng(1).standard_normal((rows, depth)).astype(np.float32)
    made = network.run({"x": x}, simulated=False)[network.outputs[0]]
    assert difference(made, x @ weights[:, :depth].T) < 1e-5
    assert all(one.ok for one in network.check({"x": x}))


@pytest.mark.parametrize(("shape", "zero"), [((2, 6, 5), 0), ((1, 6, 5), 0), ((2, 6, 5), 4)])
def test_products_of_two_quantized_tensors_multiply_codes(shape: tuple[int, ...], zero: int) -> None:
    """As attention's products; what zeros add is a row and a column."""
    w = Writer()
    x = _quantized(w, "x", 0.03, -zero, np.int8)
    turned = w("Transpose", _quantized(w, w("Relu", "x"), 0.02, zero, np.int8), perm=[0, 2, 1])
    model = w.model(w("MatMul", x, turned), shape, 21)
    network = computed(model)
    products = [work for step, work in network.worked if step.work.kind.startswith("gem")]
    assert [work.params["Ty"] for work in products] == [int8] * (3 if zero else 1)
    assert not network.widened
    given = np.random.default_rng(2).standard_normal(shape).astype(np.float32)
    assert all(one.ok for one in network.check({"x": given}))


def test_weights_that_no_program_unpacks_are_widened_and_named() -> None:
    """Of short blocks, and of convolutions."""
    w = Writer()
    codes, scales = w.const(w.rng.integers(-8, 8, (16, 6)), np.int8), w.const(w.rng.random((2, 6)))
    short = w("DequantizeLinear", codes, scales, axis=0, block_size=8)
    network = dse.from_onnx(w.model(w("MatMul", "x", short), (4, 16), 21), host="never")
    assert network.widened == ["matmul_1"]


def test_products_of_codes_are_those_of_quantized_tensors() -> None:
    """Codes are those of QuantizeLinear, also beyond the calibration, and results those of ONNX's evaluator."""
    w = Writer()
    model = w.model(w("MatMul", w("Relu", "x"), w.weight(32, 16)), (8, 32))
    calibration, x = np.random.default_rng(1).standard_normal((2, 8, 32)).astype(np.float32) * [[[1]], [[2]]]
    network = dse.from_onnx(model, element="bf16,w8a8", calibration={"x": calibration.astype(np.float32)})
    assert all(one.ok for one in network.check({"x": x.astype(np.float32)}))
    product = network.steps[-1].others[-1]
    quantize: Any = network.steps[-2].work
    scaled: Any = product.work
    scale, whole = quantize.made_of.expr[1][1][1][2][1], scaled.made_of.stages[-1][0][2][1]
    positive = np.maximum(x, 0).astype(np.float32)
    codes, weights = reference_of(quantize, [positive]).reshape(8, 32), network.constants[product.inputs[1]]
    assert codes.max() == 127
    w = Writer()
    one, other, zero = w.const(np.array(scale)), w.const(np.array(whole / scale)), w.const(np.array(0), np.int8)
    exact = w("QuantizeLinear", "x", one, zero)
    y = w("MatMul", w("DequantizeLinear", exact, one), w("DequantizeLinear", w.const(weights, np.int8), other))
    expected = ReferenceEvaluator(w.model(y, (8, 32), 21)).run(None, {"x": positive})[0]
    found = reference_of(scaled, [codes, weights]).reshape(8, 16).astype(np.float32)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def test_activations_are_rounded_within_a_tolerance(tmp_path: Path) -> None:
    """Products of codes run where they are faster, and quantizing only with them."""
    w = Writer()
    model = w.model(w("MatMul", w("Relu", "x"), w.weight(32, 16)), (16, 32))
    network = dse.from_onnx(model, element="bf16,w8a8")
    fronts = dse.search_fronts(network, "npu1_1col", trials=1, target="model", cache=tmp_path)
    faster = {one.key for one in fronts.candidates if "activations" in one.step.type}
    points = {
        key: tuple(replace(one, latency_us=one.latency_us / 2) for one in own) if key in faster else own
        for key, own in fronts.points.items()
    }
    tolerance = 0.1
    for rounded in (True, False):
        found = dse.compose(replace(fronts, points=points), tolerance=tolerance)
        assert any("activations" in one for one in found.types.values()) == rounded
        assert any(step.work.kind.endswith("quantize") for step, _ in found.network.worked) == rounded
        assert found.deviation <= tolerance
        tolerance = 0.99 * found.deviation
    lost = without(network, [network.steps[-2].name])
    assert [step.work.kind for step in lost.steps] == ["relu", "gemm"]
    assert not lost.steps[-1].others


def test_weights_are_rounded_within_a_tolerance(tmp_path: Path) -> None:
    """Operator by operator: the first product may not lose its small weights, the second is as good in eight bits."""
    w = Writer()
    known = np.where(np.arange(256)[:, None] % 128, 1e-3, 4.0) * w.rng.standard_normal((256, 64))
    y = w("MatMul", w("Mul", "x", w.const(np.where(np.arange(256) % 128, 1, 0))), w.const(known))
    model = w.model(w("MatMul", y, w.weight(64, 2048)), (1, 256))
    network = dse.from_onnx(model, element="bf16,i8")
    x = np.random.default_rng(1).standard_normal((1, 256)).astype(np.float32)
    assert all(one.ok for one in network.check({"x": x}))
    fronts = dse.search_fronts(network, "npu1_1col", trials=2, target="model", cache=tmp_path)
    found = dse.compose(fronts, tolerance=0.02, inputs={"x": x})
    first, *_, last = found.types.values()
    assert (first, last) == ("bfloat16", "bfloat16 with int8 weights")
    assert found.deviation <= 0.02


@pytest.mark.parametrize("turned", [0, 1])
def test_a_quantized_gemm_has_a_scale_for_each_column(turned: int) -> None:
    """Its scales were those of the other dimension where the weights are transposed, and onnxruntime refused them."""
    rng, w = np.random.default_rng(0), Writer()
    codes, scale = rng.integers(-127, 127, (16, 8)).astype(np.int8), rng.random(8).astype(np.float32) / 64
    one, zero = w.const(0.5), w.const(0, np.int8)
    x = w("QuantizeLinear", "x", one, zero)
    weights = w.const(codes.T if turned else codes, np.int8)
    given = [x, one, zero, weights, w.const(scale), w.const(np.zeros(8), np.int8), "", one, zero]
    model = w.model(
        w("DequantizeLinear", w("QGemm", *given, transB=turned, domain="com.microsoft"), one, zero), (4, 16), 17
    )
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    network, inputs = dse.from_onnx(model, element="f32"), rng.integers(-9, 9, (4, 16)).astype(np.float32)
    found = network.run({"x": inputs}, simulated=False)[network.outputs[0]].astype(np.float32)
    products = np.rint(inputs / 0.5) * 0.5 @ (codes * scale)
    np.testing.assert_allclose(found, np.clip(np.rint(products / 0.5), -128, 127) * 0.5, atol=1e-5)
