"""ONNX models that look like what is known: refused with a place, or computed as ONNX does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

onnx = pytest.importorskip("onnx")

from onnx import ModelProto, TensorProto, helper
from onnx.reference import ReferenceEvaluator

import allo_dse as dse
from allo_dse.networks.edges import order_of, simplified
from allo_dse.networks.network import Arrange, Network
from allo_dse.networks.operators.execute import difference

from .models import Writer, by_onnx, computed

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
    ("made", "shape", "version"),
    [
        (lambda w: _gelu(w, ROOT), SQUARE, 17),
        (lambda w: _rms_norm(w, weight=ROW, axes=[-1], keepdims=0), SQUARE, 17),
        (lambda w: _rms_norm(w, weight=ROW), SQUARE, 17),
        (lambda w: _rms_norm(w, epsilon=ROW, weight=ROW, axes=[-1]), SQUARE, 17),
        (lambda w: _rms_norm(w, weight=ROW[:, None], axes=[-1]), SQUARE, 17),
        (lambda w: _rotary(w, (SIDE, 1)), (1, SIDE, SIDE, SIDE), 17),
        (lambda w: _attention(w, np.zeros((2, SIDE, SIDE))), HEADS, 17),
        (lambda w: _attention(w, scale=2.0), (2, SIDE, SIDE), 17),
    ],
)
def test_what_is_no_pattern_is_computed_part_by_part(
    made: Callable[[Writer], str], shape: tuple[int, ...], version: int
) -> None:
    w = Writer()
    model = w.model(made(w), shape, version)
    kinds = _kinds(computed(model, host="never"))
    assert not {"gelu", "rms_norm", "rope"} & {*kinds}


def test_numbers_of_a_gelu_may_have_any_rank() -> None:
    w = Writer()
    erf = w("Erf", w("Div", "x", w.const(np.full((1, 1), ROOT))))
    model = w.model(
        w("Mul", w("Mul", "x", w("Add", erf, w.const([1.0]))), w.const(np.full((1, 1, 1), 0.5))), (1, *SQUARE)
    )
    assert _kinds(dse.from_onnx(model)) == ["gelu"]


def test_a_gate_of_another_shape_is_no_part_of_silu() -> None:
    w = Writer()
    up = w("Relu", w("Slice", "x", w.const([0], np.int64), w.const([1], np.int64)))
    model = w.model(w("Mul", w("Mul", "x", w("Sigmoid", "x")), up), SQUARE)
    assert _kinds(_computes_what_onnx_does(model)) == ["layout", "relu_sigmoid_mul"]


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


@pytest.mark.parametrize("version", [17, 23])
def test_what_is_drawn_or_learned_is_no_constant(version: int) -> None:
    w = Writer()
    noise = w("RandomNormal", shape=list(SQUARE))
    model = w.model(w("Add", "x", noise), SQUARE, version)
    assert _kinds(dse.from_onnx(model)) == ["RandomNormal", "add"]
    with pytest.raises(dse.StudyError, match="RandomNormal 'randomnormal_0': no program for it"):
        dse.from_onnx(model, host="never")
    w = Writer()
    dropped = w("Dropout", "x", w.const(0.5), w.const(True, np.bool_))
    assert _kinds(dse.from_onnx(w.model(w("Relu", dropped), SQUARE, version))) == ["Dropout", "relu"]


@pytest.mark.parametrize("op", ["Identity", "Shape"])
def test_somebody_elses_operators_are_not_computed_as_onnx_does(op: str) -> None:
    w = Writer()
    with pytest.raises(dse.StudyError, match=f"{op} '{op.lower()}_0': the shape of .* is not known"):
        dse.from_onnx(w.model(w("Relu", w(op, "x", domain="com.example")), SQUARE))


def test_whole_numbers_are_not_computed_as_floats() -> None:
    w = Writer()
    whole = w("Cast", w("Mul", "x", w.const(100.0)), to=TensorProto.INT64)
    model = w.model(w("Cast", w("Div", whole, w.const(7, np.int64)), to=TensorProto.FLOAT), SQUARE)
    assert _kinds(computed(model)) == ["mul", "Cast+Div"]
    with pytest.raises(dse.StudyError, match="Div 'div_2': its elements are not floating-point numbers"):
        dse.from_onnx(model, host="never")


@pytest.mark.parametrize("scale", [0.05, 0.1])
def test_a_quantization_and_its_reverse_are_a_rounding(scale: float) -> None:
    """Their scales may differ."""
    w = Writer()
    zero = w.const(3, np.int8)
    whole = w("QuantizeLinear", w("MatMul", "x", w.weight(SIDE, SIDE)), w.const(0.05), zero)
    model = w.model(w("Relu", w("DequantizeLinear", whole, w.const(scale), zero)), SQUARE, 21)
    assert _kinds(computed(model)) == ["gemm", "quantize_dequantize_relu"]


def test_further_outputs_and_what_is_empty_are_the_hosts() -> None:
    w = Writer()
    w("LayerNormalization", "x", w.weight(SIDE))
    w.nodes[-1].output.append("mean")
    assert _kinds(computed(w.model(w("Relu", "mean"), SQUARE))) == ["LayerNormalization", "relu"]
    w = Writer()
    none = w("Slice", "x", w.const([0], np.int64), w.const([0], np.int64))
    computed(w.model(w("Concat", w("Relu", none), "x", axis=0), SQUARE))


@pytest.mark.parametrize(("op", "how"), [("Dropout", {}), ("Identity", {}), ("Cast", {"to": TensorProto.FLOAT})])
def test_what_changes_nothing_may_be_an_output(op: str, how: dict[str, object]) -> None:
    """Dropout was refused there, and casts were steps of the host."""
    w = Writer()
    assert _kinds(_computes_what_onnx_does(w.model(w(op, w("Relu", "x"), **how), SQUARE))) == ["relu"]


def test_a_model_may_name_nodes_and_tensors_as_it_likes() -> None:
    """Steps of one name were composed as one; the names of what is made must not be the model's."""
    w = Writer()
    w.known["constant_1"] = np.arange(16, dtype=np.float32).reshape(SQUARE)
    normed = w("LayerNormalization", w("Add", w("Relu", "x"), "constant_1"), w.weight(SIDE))
    model = w.model(normed, SQUARE)
    for node in model.graph.node:
        node.name = "same"
    names = [step.name for step in _computes_what_onnx_does(model).steps]
    assert len(names) == len(set(names)) == 2
    model.opset_import[0].domain = "ai.onnx"
    assert len(dse.from_onnx(model).steps) == 2


def _image() -> ModelProto:
    w = Writer()
    first, second = ([w.const(one) for one in w.rng.random((4, 2))] for _ in range(2))
    image = w("BatchNormalization", w("Conv", "x", w.weight(2, 2, 1, 1), w.weight(2)), *first)
    pooled = w("BatchNormalization", w("MaxPool", image, kernel_shape=[1, 1]), *second)
    matrix = w("Reshape", pooled, w.const([-1, SIDE], np.int64))
    product = w("Gemm", w("Transpose", w("Sigmoid", matrix), perm=[1, 0]), w.weight(2 * SIDE, SIDE), w.weight(SIDE))
    return w.model(w("Relu", product), (1, 2, SIDE, SIDE))


def _turned() -> ModelProto:
    w = Writer()
    x = _rotary(w, (SIDE,))
    return w.model(w("Add", w("Attention", x, x, x), w.const(ROW)), (1, 2, SIDE, SIDE), 23)


def _renamed(model: ModelProto, old: str, new: str) -> ModelProto:
    """The model with another name for a constant, or for an output and what writes it."""
    made = ModelProto()
    made.CopyFrom(model)
    for one in (*made.graph.initializer, *made.graph.output):
        one.name = new if one.name == old else one.name
    for node in made.graph.node:
        node.name = new if old in node.output else node.name
        for names in (node.input, node.output):
            names[:] = [new if name == old else name for name in names]
    return made


@pytest.mark.parametrize(
    ("model", "constants"),
    [(_image(), ["batchnormalization_1.out.weights", "batchnormalization_1.out.bias"]),
     (_turned(), ["add_6.out.cosine", "add_6.out.sine"])],
)  # fmt: skip
def test_what_is_made_has_names_of_its_own(model: ModelProto, constants: list[str]) -> None:
    """They were refused as two tensors, or constants of these names took the values of what was made."""
    network, own = dse.from_onnx(model), {one for node in model.graph.node for one in (node.name, *node.output)}
    made = {*network.shapes, *(step.name for step in network.steps)} - own - {"x"}
    made -= {one.name for one in model.graph.initializer}
    assert len(made) > 5
    tried = [(name, model.graph.output[0].name) for name in made]
    tried += [(name, model.graph.initializer[-1].name) for name in constants]
    for name, old in tried:
        _computes_what_onnx_does(_renamed(model, old, name))


def test_a_node_may_have_the_name_of_what_another_one_writes() -> None:
    """A step without a name of its own is called by what it writes: two of one name were composed as one."""
    w = Writer()
    model = w.model(w("Softmax", w("Relu", "x")), SQUARE)
    first, second = model.graph.node
    first.name, second.name = "", first.output[0]
    names = [step.name for step in _computes_what_onnx_does(model).steps]
    assert len(set(names)) == 2


def test_constants_may_be_outputs_and_parts_of_what_is_joined() -> None:
    w = Writer()
    joined = w("Concat", w.const(np.ones((1, SIDE))), w("Relu", "x"), axis=0)
    model = w.model(joined, SQUARE)
    model.graph.output.append(helper.make_tensor_value_info("c0", TensorProto.FLOAT, (1, SIDE)))
    network = _computes_what_onnx_does(model)
    step = network.steps[-1]
    assert isinstance(step.work, Arrange)
    order = order_of(step.work, [network.shapes[name] for name in step.inputs], step.name)
    np.testing.assert_array_equal(order, np.arange(1, 21))


def test_a_softmax_of_the_lowest_numbers_is_even() -> None:
    w = Writer()
    network = dse.from_onnx(w.model(w("Softmax", "x"), SQUARE), element="f32")
    lowest = np.full(SQUARE, np.finfo(np.float32).min)
    np.testing.assert_array_equal(network.run({"x": lowest})[network.outputs[0]], np.full(SQUARE, 1 / SIDE))


MODES = [{"mode": "linear"}, {"mode": "linear", "coordinate_transformation_mode": "align_corners"}, {"mode": "cubic"}]


@pytest.mark.parametrize("how", MODES)
def test_interpolations_are_products_with_known_matrices(how: dict[str, object]) -> None:
    w = Writer()
    resized = w("Resize", "x", "", "", w.const([1, 2, 6, 5], np.int64), **how)
    assert set(_kinds(computed(w.model(resized, (1, 2, 4, 8), 18), host="never"))) == {"layout", "gemm"}


@pytest.mark.parametrize(
    ("equation", "kind"), [("abc,cd->abd", "gemm"), ("abc,dbc->bad", "gemm_batch"), ("abc,cd->dba", "gemm")]
)
def test_sums_of_products_are_products_of_matrices(equation: str, kind: str) -> None:
    w = Writer()
    shapes = {"abc,dbc->bad": (5, 4, 8)}
    model = w.model(w("Einsum", "x", w.weight(*shapes.get(equation, (8, 6))), equation=equation), (2, 4, 8))
    assert set(_kinds(computed(model, host="never"))) - {"layout"} == {kind}


def test_sums_of_three_products_multiply_two_of_them_first() -> None:
    w = Writer()
    known = w.weight(8, 6), w.weight(6, 3)
    model = w.model(w("Einsum", "x", *known, equation="abc,cd,de->abe"), (2, 4, 8))
    kinds = _kinds(computed(model, host="never"))
    assert kinds.count("gemm") == 2
    assert set(kinds) <= {"gemm", "layout"}


def test_what_is_hidden_is_infinitely_low() -> None:
    """A mask of equal elements is a number, and infinities are numbers as well."""
    w = Writer()
    hidden = w("Where", w("Less", "x", w.const(-1.0)), w.const(np.full(SQUARE, -np.inf)), "x")
    assert _kinds(computed(w.model(w("Softmax", hidden), SQUARE), host="never")) == ["less_where", "softmax"]


def test_an_input_of_one_whole_number_may_have_a_value() -> None:
    w = Writer()
    branches = {}
    for name, op in (("then_branch", "Relu"), ("else_branch", "Neg")):
        out = helper.make_tensor_value_info(f"{name}.y", TensorProto.FLOAT, SQUARE)
        branches[name] = helper.make_graph([helper.make_node(op, ["x"], [out.name])], name, [], [out])
    model = w.model(w("If", w("Equal", "rate", w.const(16000, np.int64)), **branches), SQUARE)
    model.graph.input.append(helper.make_tensor_value_info("rate", TensorProto.INT64, []))
    network = dse.from_onnx(model, sizes={"rate": 16000})
    assert network.inputs == ["x"]
    assert _kinds(network) == ["relu"]


SHAPES = [(4,), (1, 4), (4, 1), (4, 4), (4, 4), (1, 4, 4), (4, 4, 4), (1, 4, 4, 4), ()]  # most of them fit each other
AXIS = {"axis": [-1, 0, 1]}
OPERATORS: dict[str, tuple[int, dict[str, list[Any]]]] = {
    **{"Add": (2, {}), "Sub": (2, {}), "Mul": (2, {}), "MatMul": (2, {}), "Relu": (1, {}), "Transpose": (1, {})},
    **{"Softmax": (1, AXIS), "LayerNormalization": (3, AXIS), "RMSNormalization": (2, AXIS), "Concat": (2, AXIS)},
    "Gemm": (3, {"transA": [1], "transB": [1], "beta": [0.5]}),
    "Attention": (3, {"is_causal": [1], "q_num_heads": [2], "kv_num_heads": [2], "left_window_size": [0]}),
    "MaxPool": (1, {"kernel_shape": [[1, 1], [3, 2]], "strides": [[2, 1]], "pads": [[1] * 4], "dilations": [[2, 1]]}),
    "AveragePool": (1, {"kernel_shape": [[1, 1], [2, 2]], "count_include_pad": [1], "pads": [[1] * 4]}),
    "Conv": (3, {"kernel_shape": [[1, 1], [4, 4]], "pads": [[1, 0, 0, 1]], "strides": [[1, 2]]}),
}
"""How many tensors an operator reads at most, and its attributes."""


@settings(max_examples=300)
@given(st.integers(0, 2**32 - 1))
def test_a_model_is_refused_or_computed_as_onnx_does(seed: int) -> None:
    w = Writer(seed)

    def some(*values: object) -> Any:
        return values[w.rng.integers(len(values))]

    def numbers(*shapes: tuple[int, ...]) -> Any:
        return w.rng.standard_normal(some(*shapes, *SHAPES))

    def operator(x: str) -> str:
        op = some(*OPERATORS)
        count, known = OPERATORS[op]
        inputs = [x, *(some("x", x, w.const(numbers())) for _ in range(count - some(1, 1, 1, 2)))]
        chosen = {name: some(*values) for name, values in known.items() if name == "kernel_shape" or some(True, False)}
        made: str = w(op, *some(inputs, inputs[::-1]), **chosen)
        return made

    def spelled_out(_: str) -> str:
        axes = some({"axes": [-1]}, {"axes": [-1], "keepdims": 0}, {"axes": [0]}, {})
        made: str = some(
            lambda: _rms_norm(w, some(0.1, 0.1, ROW), numbers((4,)), **axes),
            lambda: _gelu(w, some(ROOT, 1 / ROOT)),
            lambda: _rotary(w, some((SIDE,), (SIDE, 1), (1, SIDE))),
            lambda: _attention(w, some(None, 0 * numbers(), np.where(np.tri(SIDE), 0, -1e9)), some(0.5, 0.0)),
            lambda: w("Mul", w("Mul", "x", w("Sigmoid", "x")), operator("x")),
        )()
        return made

    y = "x"
    for step in some([operator], [spelled_out], [operator, operator], [spelled_out, operator]):
        y = step(y)
    model = w.model(y, shape := some(*SHAPES), some(13, 17, 25))
    try:
        network = dse.from_onnx(model, element="f32")
    except dse.StudyError:
        return
    x = w.rng.standard_normal(shape).astype(np.float32)
    try:
        (expected,) = ReferenceEvaluator(model).run(None, {"x": x})
    except Exception:  # operands that do not broadcast, which ONNX's rules of shapes do not see
        return
    if expected.shape != network.shapes[y]:  # its evaluator broadcasts further than its rules of shapes allow
        return
    every = by_onnx(model, network, x)
    if any(one.size != np.prod(network.shapes[name]) for name, one in every.items()):
        return
    found = network.run({"x": x})[y]  # GELU as its tanh approximation
    np.testing.assert_allclose(found.astype(float).ravel(), expected.ravel(), rtol=1e-2, atol=1e-2)
