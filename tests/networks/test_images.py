"""Convolution and pooling of ONNX as products and pools of pixels, against ONNX's reference evaluator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnx")

from onnx import ModelProto

import allo_dse as dse
from allo_dse.networks.network import Arrange, Network
from allo_dse.networks.operators.execute import difference, element_type

from . import models
from .operators.works import row_work

CHANNELS, INSIDE, SIDE = 16, 8, 6


def _kinds(network: Network) -> list[str]:
    return [step.work.kind for step in network.steps if not (isinstance(step.work, Arrange) and step.work.free)]


def _check(model: ModelProto, element: str = "f32") -> Network:
    network = dse.from_onnx(model, element=element)
    x = np.random.default_rng(1).standard_normal(network.shapes["x"]).astype(np.float32)
    expected = models.by_onnx(model, network, x)
    assert {step.output for step, _ in network.worked if not step.name.endswith(".product")} <= set(expected)
    found = network.check({"x": x}, expected)
    assert max(one.largest for one in found) < (0.02 if element == "bf16" else 1e-5)
    return network


def _statistics(w: models.Writer, channels: int) -> tuple[str, ...]:
    scale, bias, mean, variance = w.rng.standard_normal((4, channels)).astype(np.float32)
    return tuple(w.const(one) for one in (scale, bias, mean, variance**2 + 0.5))


def bottleneck() -> ModelProto:
    """1x1, 3x3 and 1x1, each with its batch normalization, and the input added to the result, which is pooled."""
    w = models.Writer()
    x = "x"
    for index, (columns, depth, side) in enumerate([(INSIDE, CHANNELS, 1), (INSIDE, INSIDE, 3), (CHANNELS, INSIDE, 1)]):
        x = w("Relu", x) if index else x
        bias = [w.weight(columns)] if index == 1 else []
        x = w("Conv", x, w.weight(columns, depth, side, side), *bias, pads=[side // 2] * 4)
        x = w("BatchNormalization", x, *_statistics(w, columns), epsilon=1e-3)
    return w.model(w("GlobalAveragePool", w("Relu", w("Add", "x", x))), (1, CHANNELS, SIDE, SIDE))


@pytest.mark.parametrize("element", ["bf16", "f32"])
def test_a_bottleneck_stays_in_the_order_of_pixels(element: str) -> None:
    assert _kinds(_check(bottleneck(), element)) == [
        *("layout", "gemm", "add_row", "relu", "layout", "gemm", "add_row", "relu", "gemm", "add_row"),
        *("add_relu", "layout", "globalaveragepool"),
    ]


@pytest.mark.parametrize(
    "attributes",
    [
        {"kernel_shape": [1, 1], "strides": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 2], "dilations": [2, 1], "pads": [2, 0, 1, 1]},
        {"kernel_shape": [7, 7], "strides": [2, 2], "pads": [3, 3, 3, 3]},
    ],
)
def test_kernels_of_every_shape(attributes: dict[str, list[int]]) -> None:
    w = models.Writer()
    weights = w.weight(INSIDE, CHANNELS, *attributes["kernel_shape"])
    assert "gemm" in _kinds(_check(w.model(w("Conv", "x", weights, **attributes), (1, CHANNELS, SIDE, SIDE))))


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("MaxPool", {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ("AveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("AveragePool", {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1], "count_include_pad": 1}),
        ("ReduceMean", {"axes": [2, 3], "keepdims": 0}),
    ],
)
def test_pools(op: str, attributes: dict[str, object]) -> None:
    w = models.Writer()
    _check(w.model(w(op, "x", **attributes), (1, CHANNELS, SIDE, SIDE)))


def test_a_batch_normalization_of_its_own_scales_and_shifts() -> None:
    w = models.Writer()
    model = w.model(w("BatchNormalization", w("Relu", "x"), *_statistics(w, CHANNELS)), (1, CHANNELS, SIDE, SIDE))
    network = dse.from_onnx(model, element="f32")
    x = np.random.default_rng(1).standard_normal(network.shapes["x"]).astype(np.float32)
    assert network.check({"x": x}, models.by_onnx(model, network, x))[-1].largest < 1e-5


@pytest.mark.parametrize("op", ["GlobalAveragePool", "GlobalMaxPool"])
def test_pools_of_large_images_have_designs(op: str, tmp_path: Path) -> None:
    """A task had one row, whose result is half a word."""
    w = models.Writer()
    network = dse.from_onnx(w.model(w(op, "x"), (1, CHANNELS, 56, 56)))
    dse.search_fronts(network, "npu2", trials=2, cache=tmp_path, host="never", narrower=False)


def test_a_convolution_with_a_program_of_its_own_is_no_part_of_what_follows() -> None:
    """The batch normalization took its weights, and the program was not used."""
    w = models.Writer()
    made = w("Conv", "x", w.weight(1, 1, 1, 1))
    model = w.model(w("BatchNormalization", made, *_statistics(w, 1)), (1, 1, SIDE, SIDE))
    by_weight = row_work("mul", SIDE * SIDE, 1, element_type("f32"))
    network = dse.from_onnx(model, element="f32", programs={"Conv": lambda *_: by_weight})
    assert _kinds(network) == ["mul_row", "batch_norm"]
    x = np.random.default_rng(1).standard_normal(network.shapes["x"]).astype(np.float32)
    assert network.check({"x": x}, models.by_onnx(model, network, x))[-1].largest < 1e-5


@pytest.mark.parametrize(
    ("op", "attributes"),
    [
        ("Conv", {"group": 2}),
        ("Conv", {"group": CHANNELS}),
        ("Conv", {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ("Conv", {"dilations": [2, 1], "strides": [1, 2], "pads": [0, 1, 2, 1]}),
        ("ConvTranspose", {"strides": [2, 2], "pads": [1, 0, 1, 1], "output_padding": [1, 0]}),
        ("ConvTranspose", {"dilations": [2, 2]}),
        ("MaxPool", {"kernel_shape": [2, 2], "ceil_mode": 1}),
        ("AveragePool", {"kernel_shape": [2, 2], "pads": [1, 1, 1, 1]}),
        ("ReduceMean", {"axes": [1]}),
        ("GlobalMaxPool", {}),
        ("LpNormalization", {"axis": 1}),
    ],
)
def test_images_in_batches(op: str, attributes: dict[str, object]) -> None:
    w = models.Writer()
    group = int(str(attributes.get("group", 1)))
    weights = [w.weight(CHANNELS, CHANNELS // group, 3, 3)] if op.startswith("Conv") else []
    image = w("Clip", w("Conv", "x", w.weight(CHANNELS, CHANNELS, 1, 1)), w.const(-0.1), w.const(0.2))
    models.computed(w.model(w("Relu", w(op, image, *weights, **attributes)), (2, CHANNELS, 5, 5)))


@pytest.mark.parametrize("rank", [1, 3])
def test_images_of_one_and_three_dimensions(rank: int) -> None:
    w, kernel = models.Writer(), [3] * rank
    made = w("Conv", "x", w.weight(6, CHANNELS, *kernel), w.weight(6), strides=[2] * rank, pads=[1] * 2 * rank)
    pooled = w("MaxPool", w("LeakyRelu", made), kernel_shape=[2] * rank)
    models.computed(w.model(w("GlobalAveragePool", pooled), (2, CHANNELS, *[6] * rank)), host="never")


@pytest.mark.parametrize("groups", [1, 2, CHANNELS])
def test_norms_of_groups_of_channels(groups: int) -> None:
    w = models.Writer()
    made = w("GroupNormalization", "x", w.weight(CHANNELS), w.weight(CHANNELS), num_groups=groups, epsilon=1e-3)
    models.computed(w.model(w("Mul", made, w("Sigmoid", made)), (2, CHANNELS, SIDE, SIDE), 21), host="never")


def test_a_depthwise_convolution_is_cut_where_no_core_holds_its_weights() -> None:
    w, channels = models.Writer(), 480
    model = w.model(w("Conv", "x", w.weight(channels, 1, 5, 5), group=channels), (1, channels, 5, 6))
    network = dse.from_onnx(model)
    assert [work.params["C"] for _, work in network.worked] == [240, 240]
    x = np.random.default_rng(1).standard_normal((1, channels, 5, 6)).astype(np.float32)
    (output,) = network.outputs
    wanted = models.by_onnx(model, network, x)[output]
    assert difference(network.run({"x": x}, simulated=False)[output], wanted) < 1e-5


def test_weights_of_other_channels_are_refused_and_learned_statistics_the_hosts() -> None:
    w = models.Writer()
    with pytest.raises(dse.StudyError, match=r"Conv 'conv_0': weights of \(8, 3, 1, 1\) for an image of"):
        dse.from_onnx(w.model(w("Conv", "x", w.weight(8, 3, 1, 1)), (1, CHANNELS, SIDE, SIDE)))
    w = models.Writer()
    trained = w("BatchNormalization", "x", *_statistics(w, CHANNELS), training_mode=1)
    w.nodes[-1].output.extend(["mean", "variance"])
    assert _kinds(models.computed(w.model(trained, (1, CHANNELS, SIDE, SIDE)))) == ["BatchNormalization"]


def test_what_is_beside_images_has_another_order() -> None:
    """A tensor without the dimension of the batch, a number with one more, and what is left of a mean."""
    w = models.Writer()
    pooled = w("MaxPool", "x", kernel_shape=[1, 1])
    beside = w("Add", pooled, w("Squeeze", "x", w.const([0], np.int64)))
    more = w("Mul", w("Relu", beside), w.const(np.full((1,) * 5, 2)))
    mean = w("ReduceMean", pooled, axes=[2, 3], keepdims=0)
    least = w("Slice", "x", *(w.const([*ends], np.int64) for ends in ((0, 0), (1, 1), (2, 3))))
    both = w("Add", mean, w("Reshape", least, w.const([1, CHANNELS], np.int64)))
    model = w.model(w("Concat", w("Flatten", more), both, axis=1), (1, CHANNELS, SIDE, SIDE))
    _check(model)


def test_a_convolution_whose_bias_is_given_stays_apart_from_the_normalization_after_it() -> None:
    w = models.Writer()
    bias = w("Slice", w("Flatten", "x", axis=4), *(w.const([*ends], np.int64) for ends in ((0,), (INSIDE,))))
    made = w("Conv", "x", w.weight(INSIDE, CHANNELS, 1, 1), w("Reshape", bias, w.const([INSIDE], np.int64)))
    model = w.model(w("BatchNormalization", made, *_statistics(w, INSIDE)), (1, CHANNELS, SIDE, SIDE))
    network = dse.from_onnx(model, element="f32")
    x = np.random.default_rng(1).standard_normal(network.shapes["x"]).astype(np.float32)
    assert "batch_norm" in _kinds(network)
    assert network.check({"x": x}, models.by_onnx(model, network, x))[-1].largest < 1e-5
