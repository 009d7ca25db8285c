"""Small ONNX models, as exporters write them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import allo_dse as dse
from allo_dse.networks.network import Network
from allo_dse.networks.operators.execute import difference

Floats = NDArray[np.float32]
LENGTH, WIDTH, HEADS = 8, 16, 2


class Writer:
    """A model that is written node by node."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.known: dict[str, NDArray[np.generic]] = {}

    def __call__(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, list(inputs), [f"{name}.out"], name=name, **attributes))
        return f"{name}.out"

    def weight(self, *shape: int) -> str:
        return self.const((self.rng.standard_normal(shape) / np.sqrt(shape[0])).astype(np.float32))

    def const(self, value: object, dtype: type = np.float32) -> str:
        name = f"c{len(self.known)}"
        self.known[name] = np.asarray(value, dtype)
        return name

    def model(self, output: str, shape: tuple[int | str, ...] | None, version: int = 17) -> ModelProto:
        inits = [numpy_helper.from_array(array, name) for name, array in self.known.items()]
        given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
        outs = [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "small", given, outs, inits)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)])
        return made


def by_onnx(model: ModelProto, network: Network, x: Floats) -> dict[str, NDArray[np.generic]]:
    """All tensors of the model that the network has too, as ONNX's reference evaluator computes them."""
    whole = ModelProto()
    whole.CopyFrom(model)
    del whole.graph.output[:]
    written = {name for node in model.graph.node for name in node.output}
    ours = {step.output: step.output.removesuffix(".pixels") for step in network.steps}
    names = {name: theirs for name, theirs in ours.items() if theirs in written}
    outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in dict.fromkeys(names.values())]
    whole.graph.output.extend(outs)
    found = dict(zip((one.name for one in outs), ReferenceEvaluator(whole).run(None, {"x": x}), strict=True))
    return {name: _pixels(found[theirs]) if name != theirs else found[theirs] for name, theirs in names.items()}


def computed(model: ModelProto, host: str = "auto") -> Network:
    """The network of a model, which computes what ONNX's reference evaluator does."""
    network = dse.from_onnx(model, element="f32", host=host)
    x = np.random.default_rng(1).standard_normal(network.shapes["x"]).astype(np.float32)
    expected = dict(zip(network.outputs, ReferenceEvaluator(model).run(None, {"x": x}), strict=True))
    for simulated in (False, True):
        found = {"x": x, **network.constants, **network.run({"x": x}, simulated=simulated)}
        for name, array in expected.items():
            assert difference(found[name], array) < 1e-5, name
    return network


def _pixels(image: NDArray[np.generic]) -> NDArray[np.generic]:
    return image.reshape(image.shape[1], -1).T


def mlp() -> ModelProto:
    w = Writer()
    hidden = w("Relu", w("Gemm", "x", w.weight(32, WIDTH), w.weight(32), transB=1))
    return w.model(w("Gemm", hidden, w.weight(32, WIDTH), w.weight(WIDTH)), (LENGTH, WIDTH))


def _layer_norm(w: Writer, x: str) -> str:
    centred = w("Sub", x, w("ReduceMean", x, axes=[-1]))
    variance = w("ReduceMean", w("Pow", centred, w.const(2.0)), axes=[-1])
    normed = w("Div", centred, w("Sqrt", w("Add", variance, w.const(1e-5))))
    return w("Add", w("Mul", normed, w.weight(WIDTH)), w.weight(WIDTH))


def _linear(w: Writer, x: str, depth: int, columns: int) -> str:
    return w("Add", w.weight(columns), w("MatMul", x, w.weight(depth, columns)))


def _heads(w: Writer, x: str, perm: list[int], heads: int = HEADS) -> str:
    return w(
        "Transpose",
        w("Reshape", x, w.const([1, LENGTH, heads, WIDTH // HEADS], np.int64)),
        perm=perm,
    )


def gpt2_block() -> ModelProto:
    """Layer norm, causal attention, layer norm and a GELU of the error function, all spelled out."""
    w = Writer()
    normed = _layer_norm(w, "x")
    q, k, v = (_linear(w, normed, WIDTH, WIDTH) for _ in range(3))
    scores = w("MatMul", _heads(w, q, [0, 2, 1, 3]), _heads(w, k, [0, 2, 3, 1]))
    mask = w.const(np.where(np.tri(LENGTH), 0, -np.inf).reshape(1, 1, LENGTH, LENGTH))
    scaled = w("Div", scores, w.const(np.sqrt(WIDTH / HEADS)))
    attended = w(
        "MatMul",
        w("Softmax", w("Add", scaled, mask), axis=-1),
        _heads(w, v, [0, 2, 1, 3]),
    )
    joined = w(
        "Reshape",
        w("Transpose", attended, perm=[0, 2, 1, 3]),
        w.const([1, LENGTH, WIDTH], np.int64),
    )
    x = w("Add", "x", _linear(w, joined, WIDTH, WIDTH))
    up = _linear(w, _layer_norm(w, x), WIDTH, 32)
    erf = w("Add", w("Erf", w("Div", up, w.const(np.sqrt(2)))), w.const(1.0))
    gelu = w("Mul", w("Mul", up, erf), w.const(0.5))
    return w.model(w("Add", x, _linear(w, gelu, 32, WIDTH)), (1, LENGTH, WIDTH))


def llama_layer() -> ModelProto:
    """RMSNorm, RoPE, attention of grouped heads, and a gated feed-forward network, as ONNX's own operators."""
    w = Writer()
    half = WIDTH // HEADS // 2
    angles = np.outer(np.arange(LENGTH), 10000.0 ** (-np.arange(half) / half))
    tables = w.const(np.cos(angles)), w.const(np.sin(angles))
    positions = w.const(np.arange(LENGTH)[None], np.int64)
    normed = w("RMSNormalization", "x", w.weight(WIDTH), epsilon=1e-5)
    q = _heads(w, w("MatMul", normed, w.weight(WIDTH, WIDTH)), [0, 2, 1, 3])
    k, v = (_heads(w, w("MatMul", normed, w.weight(WIDTH, WIDTH // 2)), [0, 2, 1, 3], 1) for _ in range(2))
    q, k = (w("RotaryEmbedding", one, *tables, positions) for one in (q, k))
    attended = w("Attention", q, k, v, is_causal=1)
    joined = w(
        "Reshape",
        w("Transpose", attended, perm=[0, 2, 1, 3]),
        w.const([1, LENGTH, WIDTH], np.int64),
    )
    x = w("Add", "x", w("MatMul", joined, w.weight(WIDTH, WIDTH)))
    normed = w("RMSNormalization", x, w.weight(WIDTH), epsilon=1e-5)
    gate, up = (w("MatMul", normed, w.weight(WIDTH, 32)) for _ in range(2))
    gated = w("Mul", w("Mul", gate, w("Sigmoid", gate)), up)
    return w.model(w("Add", x, w("MatMul", gated, w.weight(32, WIDTH))), (1, LENGTH, WIDTH), 23)


def spelled_out() -> ModelProto:
    """RMSNorm with axes as an input, a hidden mask, and SiLU, as newer exporters write them."""
    w = Writer()
    axes, two = w.const([-1], np.int64), w.const(2.0)
    mean = w("ReduceMean", w("Pow", "x", two), axes)
    root = w("Sqrt", w("Add", mean, w.const(1e-6)))
    normed = w("Mul", w.weight(WIDTH), w("Mul", "x", w("Reciprocal", root)))
    q, k, v = (w("MatMul", normed, w.weight(WIDTH, WIDTH)) for _ in range(3))
    half = w.const(0.5)  # PyTorch scales queries and keys, each with the root of the factor
    q, k = w("Mul", _heads(w, q, [0, 2, 1, 3]), half), w("Mul", half, _heads(w, k, [0, 2, 3, 1]))
    scores = w("MatMul", q, k)
    shown, hidden = (
        w.const(np.tri(LENGTH).reshape(1, 1, LENGTH, LENGTH), np.bool_),
        w.const(-1e30),
    )
    weights = w("Softmax", w("Where", shown, scores, hidden), axis=-1)
    attended = w("Transpose", w("MatMul", weights, _heads(w, v, [0, 2, 1, 3])), perm=[0, 2, 1, 3])
    joined = w("Reshape", attended, w.const([1, LENGTH, WIDTH], np.int64))
    silu = w("Mul", w("Sigmoid", joined), joined)
    return w.model(w("Softmax", w("Sub", silu, w.const(0.5)), axis=-1), (1, LENGTH, WIDTH), 18)
