"""LSTM, GRU and RNN nodes: their time steps become programs that compute what ONNX does, or the host does all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

onnx = pytest.importorskip("onnx")

from onnx import ModelProto, TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import allo_dse as dse
from allo_dse.common.records import replace
from allo_dse.networks.accuracy import random_inputs
from allo_dse.networks.export.export import export
from allo_dse.networks.fronts import work_key
from allo_dse.networks.network import Host, Network
from allo_dse.networks.operators import element_type
from allo_dse.networks.operators.execute import Work, deviation, difference, interface, loaded, reference_of
from allo_dse.networks.operators.sequences import cell_of, recurrent_work

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
WIDTH = 6
Arrays = NDArray[np.generic]


def recurrent(
    op: str,
    *,
    hidden: int = 4,
    steps: int = 3,
    batch: int = 1,
    direction: str = "forward",
    given: str = "b",
    more: Mapping[str, Arrays] | None = None,
    **attributes: Any,
) -> ModelProto:
    """A layer that reads `x`.

    Args:
        given: what it has beside weights: biases (b), the states h and c as inputs.
        more: constants as further inputs of the node, by name.
    """
    rng, count = np.random.default_rng(0), 2 if direction == "bidirectional" else 1
    gates = GATES[op] * hidden
    sizes = {"w": (count, gates, WIDTH), "r": (count, gates, hidden), "b": (count, 2 * gates)}
    first = attributes.get("layout", 0)
    state = (batch, count, hidden) if first else (count, batch, hidden)
    known: dict[str, Arrays] = {
        n: rng.uniform(-1, 1, size).astype(np.float32) for n, size in sizes.items() if n in "wr" + given
    }
    known.update(more or {})
    states = {name: state for name in "hc" if name in given}
    names = ["x", "w", "r", "b", "lengths", "h", "c", "peepholes"][: 8 if op == "LSTM" else 6]
    reads = [name if name in {"x", *known, *states} else "" for name in names]
    outputs = ["y", "y_h", "y_c"][: 3 if op == "LSTM" else 2]
    node = helper.make_node(op, reads, outputs, name="layer", hidden_size=hidden, direction=direction, **attributes)
    inputs = {"x": (batch, steps, WIDTH) if first else (steps, batch, WIDTH), **states}
    graph = helper.make_graph(
        [node],
        "small",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in known.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def by_onnx(model: ModelProto, given: Mapping[str, Arrays]) -> list[Arrays]:
    """What ONNX's reference evaluator computes, which knows one forward direction: each runs by itself."""
    (node,), reverse = model.graph.node, {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}
    known = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    numbers = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    found = []
    for at, back in enumerate(reverse[numbers["direction"].decode()]):
        own = {name: array if name == "x" else array[at : at + 1] for name, array in {**known, **given}.items()}
        own["x"] = own["x"][::-1] if back else own["x"]
        one = helper.make_node(node.op_type, list(node.input), list(node.output), **{**numbers, "direction": "forward"})
        infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in own]
        outs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in node.output]
        alone = helper.make_model(helper.make_graph([one], "one", infos, outs), opset_imports=model.opset_import)
        y, *last = ReferenceEvaluator(alone).run(None, own)
        found.append([y[::-1] if back else y, *last])
    return [np.concatenate(every, axis=0 if at else 1) for at, every in enumerate(zip(*found, strict=True))]


def computed(model: ModelProto, *, simulated: bool = False) -> Network:
    """The network of a model, which computes what ONNX does."""
    network = dse.from_onnx(model, element="f32", host="never")
    rng = np.random.default_rng(1)
    given = {name: rng.standard_normal(network.shapes[name]).astype(np.float32) for name in network.inputs}
    found = network.run(given, simulated=simulated)
    for name, array in zip(network.outputs, by_onnx(model, given), strict=True):
        assert found[name].shape == array.shape
        assert difference(found[name], array) < 1e-5, name
    return network


@pytest.mark.parametrize(
    ("op", "activations", "after"),
    [
        ("GRU", ["Sigmoid", "Tanh"], True),
        ("GRU", ["HardSigmoid", "Softsign"], False),
        ("LSTM", ["Sigmoid", "Tanh", "Elu"], False),
    ],
)
def test_states_go_from_task_to_task(op: str, activations: list[str], after: bool) -> None:
    """Two directions of two sequences each, whose time is in two parts."""
    cell = cell_of(op, activations, after)
    work = recurrent_work(cell, 2, 4, 2, 8, element_type("f32"))
    work = replace(work, params={**work.params, "Pt": 2})
    rng = np.random.default_rng(0)
    given = [rng.uniform(-0.5, 0.5, tensor.shape).astype(np.float32) for tensor in interface(loaded(work))[0]]
    given[1][11:] = 0  # beyond weights, biases and first states
    found = deviation("layer", work, given, reference_of(work, given))
    assert found.ok, found
    assert found.largest < 1e-5


def test_a_layer_has_designs_and_a_driver(tmp_path: Path) -> None:
    network = dse.from_onnx(recurrent("LSTM", given="bhc", direction="bidirectional", steps=4), host="never")
    found = dse.compose(dse.search_fronts(network, "npu2", trials=2, cache=tmp_path, narrower=False))
    export(found, tmp_path / "built")
    inputs = random_inputs(network)
    made, wanted = (found.session(on).run(inputs) for on in ("simulator", "host"))
    assert all(difference(made[name], wanted[name]) < 0.03 for name in network.outputs)
    assert "recurrent" in {run.step.work.kind for run in found.runs if isinstance(run.step.work, Work)}


def hosts(network: Network) -> list[str]:
    return [step.work.kind for step in network.steps if isinstance(step.work, Host)]


@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
@pytest.mark.parametrize(
    ("op", "how"),
    [
        ("LSTM", {}),
        ("LSTM", {"given": "bhc", "batch": 2, "hidden": 3}),
        ("LSTM", {"given": "c", "steps": 1, "hidden": 8}),
        ("GRU", {}),
        ("GRU", {"given": "bh", "batch": 2}),
        ("GRU", {"linear_before_reset": 1}),
        ("GRU", {"linear_before_reset": 1, "given": "h", "steps": 4, "hidden": 5}),
        ("GRU", {"linear_before_reset": 1, "given": "", "steps": 2, "batch": 2}),
        ("RNN", {"given": "bh"}),
    ],
)
def test_time_steps_are_programs(op: str, how: dict[str, Any], direction: str) -> None:
    network = computed(
        recurrent(op, direction=direction, **how),
        simulated=how == {"given": "bh"} and op == "RNN" and direction == "forward",
    )
    assert hosts(network) == []


def test_an_rnn_may_have_relu() -> None:
    model = recurrent("RNN", given="", activations=["Relu"])
    network, h = dse.from_onnx(model, element="f32", host="never"), np.zeros(4, np.float32)
    x = np.random.default_rng(1).standard_normal((3, 1, WIDTH)).astype(np.float32)
    w, r = (numpy_helper.to_array(one)[0] for one in model.graph.initializer)
    for row in x[:, 0]:
        h = np.maximum(w @ row + r @ h, 0)
    found = network.run({"x": x}, simulated=False)
    assert hosts(network) == []
    assert h.any()
    assert np.allclose(found["y_h"].ravel(), h, atol=1e-5)


@pytest.mark.parametrize("op", GATES)
def test_the_batch_may_come_first(op: str) -> None:
    model = recurrent(op, given="bhc" if op == "LSTM" else "bh", batch=2, direction="bidirectional", layout=1)
    network = dse.from_onnx(model, element="f32", host="never")
    turned = computed(recurrent(op, given="bhc" if op == "LSTM" else "bh", batch=2, direction="bidirectional"))
    rng = np.random.default_rng(1)
    given = {name: rng.standard_normal(network.shapes[name]).astype(np.float32) for name in network.inputs}
    found = network.run(given, simulated=False)
    other = turned.run({name: array.swapaxes(0, 1) for name, array in given.items()}, simulated=False)
    assert found["y"].shape == (2, 3, 2, 4)
    assert np.allclose(found["y"], other["y"].transpose(2, 0, 1, 3))
    for name in network.outputs[1:]:
        assert np.allclose(found[name], other[name].swapaxes(0, 1))


@pytest.mark.parametrize("op", GATES)
def test_time_steps_share_programs_and_weights(op: str) -> None:
    few, many = (dse.from_onnx(recurrent(op, given="b", steps=steps), host="never") for steps in (3, 9))

    def works(network: Network) -> set[object]:
        return {work_key(step.work) for step in network.steps if isinstance(step.work, Work)}

    def elements(network: Network) -> int:
        return sum(array.size for array in network.constants.values())

    assert len(works(many)) == len(works(few))
    assert elements(many) == elements(few)


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ({"more": {"lengths": np.array([2], np.int32)}}, "sequence_lens"),
        ({"more": {"peepholes": np.full((1, 12), 0.5, np.float32)}}, "peepholes"),
        ({"clip": 0.5}, "clip"),
        ({"activations": ["HardSigmoid", "Tanh", "Affine"]}, "activations HardSigmoid, Tanh, Affine"),
        ({"hidden": 128}, "69,632 weights of a recurrent layer; a core holds 12,288"),
    ],
)
def test_what_is_not_written_out_is_the_hosts_and_says_why(how: dict[str, Any], why: str) -> None:
    model = recurrent("LSTM", **how)
    assert len(hosts(dse.from_onnx(model))) == 3
    with pytest.raises(dse.StudyError, match=re.escape(why)):
        dse.from_onnx(model, host="never")


def test_lengths_that_are_all_of_the_time_change_nothing() -> None:
    more = {"lengths": np.array([3], np.int32), "peepholes": np.zeros((1, 12), np.float32)}
    assert hosts(computed(recurrent("LSTM", more=more))) == []
