"""ONNX models as networks: what they become, and that they compute what ONNX's reference evaluator does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

onnx = pytest.importorskip("onnx")


import allo_dse as dse
from allo_dse.networks.accuracy import random_inputs
from allo_dse.networks.network import Arrange, Host, Network
from allo_dse.networks.onnx.convert import load_network
from allo_dse.networks.onnx.graph import Graph, Node
from allo_dse.networks.operators.elementwise import unary_work
from allo_dse.networks.operators.execute import Work, difference, element_type, interface, loaded

from . import models

MODELS = {
    "mlp": models.mlp,
    "gpt2_block": models.gpt2_block,
    "llama_layer": models.llama_layer,
    "spelled_out": models.spelled_out,
}


def _input(network: Network) -> NDArray[np.float32]:
    return np.random.default_rng(1).standard_normal(network.shapes["x"]).astype(np.float32)


@pytest.mark.parametrize("element", ["bf16", "f32"])
@pytest.mark.parametrize("name", MODELS)
def test_every_step_and_the_whole_compute_what_onnx_does(name: str, element: str) -> None:
    model = MODELS[name]()
    network = dse.from_onnx(model, element=element)
    x = _input(network)
    found = network.check({"x": x}, models.by_onnx(model, network, x))
    slack = 1e-3 if element == "f32" and name == "gpt2_block" else 0.0  # GELU is its tanh approximation
    assert [one for one in found if one.largest > one.allowed + slack] == []
    assert found[-1].kind == "whole"


def _kinds(network: Network) -> list[str]:
    return [step.work.kind for step in network.steps if not (isinstance(step.work, Arrange) and step.work.free)]


def test_what_exporters_spell_out_becomes_one_step_each() -> None:
    assert _kinds(dse.from_onnx(models.gpt2_block())) == [
        *("norm", "gemm", "add", "gemm", "add", "gemm", "add", "layout", "attention", "gemm", "add", "add"),
        *("norm", "gemm", "add_gelu", "gemm", "add", "add"),
    ]


def test_newer_spellings_become_one_step_each_too() -> None:
    assert _kinds(dse.from_onnx(models.spelled_out())) == [
        *(
            "norm",
            "gemm",
            "gemm",
            "gemm",
            "layout",
            "attention",
            "sigmoid_mul_sub",
            "softmax",
        ),
    ]


def test_a_model_is_read_from_a_file_with_the_sizes_that_it_leaves_open(
    tmp_path: Path,
) -> None:
    w = models.Writer()
    onnx.save(w.model(w("Relu", "x"), ("rows", models.WIDTH)), str(tmp_path / "relu.onnx"))
    found = load_network(tmp_path / "relu.onnx", {"rows": "8", "element": "f32"})
    assert found.shapes["x"] == (8, models.WIDTH)
    for size in ("many", "0", "²", "9" * 20):
        with pytest.raises(dse.StudyError, match="not the size of a dimension"):
            load_network(tmp_path / "relu.onnx", {"rows": size})


@pytest.mark.parametrize(
    ("body", "settings", "said"),
    [
        ("return None", {}, r"net.py: network\(\) needs n"),
        ("return 1 / n", {"n": "0"}, "net.py:1: ZeroDivisionError"),
        ("return n", {"n": "0"}, r"net.py: network\(\) returned int, not a Network"),
        ("return n", {"m": "0"}, "net.py has no setting 'm'"),
    ],
)
def test_what_is_wrong_with_a_function_of_a_network_is_said(
    tmp_path: Path, body: str, settings: dict[str, str], said: str
) -> None:
    (tmp_path / "net.py").write_text(f"def network(n: int): {body}\n")
    with pytest.raises(dse.StudyError, match=said):
        load_network(tmp_path / "net.py", settings)


def test_an_input_may_be_an_output_too(tmp_path: Path) -> None:
    model = models.mlp()
    model.graph.output.extend(model.graph.input)
    network = dse.from_onnx(model)
    assert [one.largest for one in network.check({"x": _input(network)}) if one.step == "x"] == [0.0]


def test_a_layer_with_onnx_own_operators() -> None:
    found = _kinds(dse.from_onnx(models.llama_layer()))
    assert sorted(set(found)) == [
        "add",
        "attention",
        "gemm",
        "layout",
        "norm",
        "rope",
        "sigmoid_mul",
    ]


def test_unknown_operators_are_named_with_their_places_and_can_be_given() -> None:
    w = models.Writer()
    model = w.model(w("Relu", w("Neg", "x")), (models.LENGTH, models.WIDTH))
    model.graph.node[0].op_type = "Sinh"
    with pytest.raises(dse.StudyError, match="Sinh 'neg_0': no program for it"):
        dse.from_onnx(model, host="never")
    assert _kinds(models.computed(model)) == ["Sinh", "relu"]

    def negative(node: Node, graph: Graph) -> Work:
        assert graph.shapes[node.output] == (models.LENGTH, models.WIDTH)
        return unary_work("neg", models.LENGTH * models.WIDTH, element_type("f32"))

    network = dse.from_onnx(model, element="f32", programs={"neg_0": negative})
    x = _input(network)
    np.testing.assert_array_equal(network.run({"x": x})[network.outputs[0]], np.maximum(-x, 0))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("Erf", r"programs\['Erf'\]: Erf 'erf_1' is part of Gelu 'mul_4'.*\n.*give one for 'mul_4'"),
        ("erf_1", "Erf 'erf_1' is part of Gelu 'mul_4'"),
        ("relu", "no operator that outputs depend on has that name or type.*\n.*did you mean relu_5"),
    ],
)
def test_programs_are_for_what_becomes_a_step(name: str, said: str) -> None:
    """Others were not used, without a word."""
    w = models.Writer()
    erf = w("Erf", w("Div", "x", w.const(np.sqrt(2))))
    gelu = w("Mul", w("Mul", "x", w("Add", erf, w.const(1.0))), w.const(0.5))
    work = unary_work("relu", models.LENGTH * WIDTH, element_type("f32"))
    with pytest.raises(dse.StudyError, match=said):
        dse.from_onnx(w.model(w("Relu", gelu), (models.LENGTH, WIDTH)), programs={name: lambda *_: work})


def test_open_dimensions_are_given_by_name_and_position() -> None:
    w = models.Writer()
    model = w.model(w("Relu", "x"), ("rows", models.WIDTH))
    with pytest.raises(dse.StudyError, match="input 'x' has open dimensions: rows"):
        dse.from_onnx(model)
    for name in ("rows", "x.0"):
        assert dse.from_onnx(model, sizes={name: 8}).shapes["x"] == (8, models.WIDTH)


@pytest.mark.parametrize(
    ("batch", "rows", "columns"), [((2,), 4, 16), ((2, 3), 8, 8), ((1, 3), 1, 8), ((2,), 64, 200), ((2, 1), 9, 5)]
)
def test_products_of_batches_are_one_program(batch: tuple[int, ...], rows: int, columns: int) -> None:
    """Sides are padded, and large matrices cut."""
    w = models.Writer()
    model = w.model(w("MatMul", "x", w.weight(*batch, 72, columns)), (*([2] if batch[1:] else []), batch[-1], rows, 72))
    assert _kinds(models.computed(model, host="never")).count("gemm_batch") == 1


def test_sizes_that_tiles_do_not_divide_are_padded() -> None:
    w = models.Writer()
    model = w.model(w("MatMul", "x", w.weight(WIDTH, WIDTH)), (197, WIDTH))
    (padded, work, cut) = models.computed(model, host="never").steps
    assert isinstance(work.work, Work)
    assert work.work.params["M"] == 208
    assert isinstance(padded.work, Arrange)
    assert isinstance(cut.work, Arrange)
    assert (padded.work.written, cut.work.written) == (11 * WIDTH, 0)


@settings(max_examples=20, deadline=None)
@given(st.tuples(*[st.integers(1, 9)] * 3))
def test_tiles_of_small_products_are_whole_words(sizes: tuple[int, int, int]) -> None:
    """Vectors of 3 elements, and products of 3 x 5 by 5 x 7, had no design on any NPU."""
    rows, depth, columns = sizes
    w = models.Writer()
    network = dse.from_onnx(w.model(w("MatMul", "x", w.weight(depth, columns)), (rows, depth)), host="never")
    ((_, work),) = network.worked
    reads, writes = interface(loaded(work))
    assert all(np.prod(tensor.shape) * tensor.dtype.bits % 32 == 0 for tensor in (*reads, *writes))


def test_one_row_has_whole_words_too() -> None:
    w = models.Writer()
    network = dse.from_onnx(w.model(w("ReduceSum", "x", w.const([1], np.int64)), (1, 64)), host="never")
    ((_, work),) = network.worked
    assert interface(loaded(work))[1][0].shape == (2,)


def test_heads_of_odd_widths_are_padded() -> None:
    w = models.Writer()
    keys = w("Transpose", "x", perm=[0, 1, 3, 2])
    model = w.model(w("MatMul", w("Softmax", w("MatMul", "x", keys), axis=-1), "x"), (1, 3, 8, 15))
    network = dse.from_onnx(model, host="never")
    ((_, work),) = network.worked
    assert (work.kind, work.params["D"]) == ("attention", 16)
    x = _input(network)
    scores = np.exp(x @ x.swapaxes(-1, -2))
    wanted = scores / scores.sum(axis=-1, keepdims=True) @ x
    assert difference(network.run({"x": x}, simulated=False)[network.outputs[0]], wanted) < 1e-5


def test_the_host_says_why_it_does_a_step() -> None:
    w = models.Writer()
    network = dse.from_onnx(w.model(w("Hardmax", w("Relu", "x")), (models.LENGTH, WIDTH)))
    assert [step.work.why for step in network.steps if isinstance(step.work, Host)] == ["no program for it"]


def test_sizes_that_no_program_has_are_refused_where_they_are() -> None:
    """Divisors were sought for ever."""
    w = models.Writer()
    said = r"small: tensor '.*' of \(2305843009213693951, 16\) has more than 1,099,511,627,776 elements"
    with pytest.raises(dse.StudyError, match=said):
        dse.from_onnx(w.model(w("MatMul", "x", w.weight(WIDTH, WIDTH)), (2**61 - 1, WIDTH)))


WIDTH = models.WIDTH
HEADS = (1, 2, WIDTH, WIDTH)  # as many positions as elements of a head


@pytest.mark.parametrize(
    ("op", "shape", "constants", "attributes"),
    [
        ("Gemm", (WIDTH, WIDTH), [(WIDTH, WIDTH), (WIDTH, 1)], {}),
        ("LayerNormalization", (2, 4, WIDTH), [(4, WIDTH)], {"axis": 1}),
        ("LayerNormalization", (4, WIDTH), [(1,)], {}),
        ("Add", (WIDTH, 1), [(WIDTH,)], {}),
        ("RMSNormalization", (2, 4, WIDTH), [(4, WIDTH)], {"axis": 1}),
        ("Attention", HEADS, [HEADS, HEADS], {"softcap": 2.0}),
        ("Attention", (1, 2, WIDTH * WIDTH), [(1, 2, WIDTH * WIDTH)] * 2, {"q_num_heads": 2, "kv_num_heads": 2}),
        ("RotaryEmbedding", HEADS, [(1, WIDTH, WIDTH // 2)] * 2, {"interleaved": 1}),
    ],
)
def test_what_a_program_would_compute_as_something_else_it_does_not(
    op: str, shape: tuple[int, ...], constants: list[tuple[int, ...]], attributes: dict[str, object]
) -> None:
    w = models.Writer()
    given = [w.const(w.rng.standard_normal(one)) for one in constants]
    models.computed(w.model(w(op, "x", *given, **attributes), shape, 25))


def test_random_inputs_have_indices_that_there_are() -> None:
    """An index of 1 ended in a traceback where the table has one row, and what is gathered from was made of 0 and 1."""
    w = models.Writer()
    words = w("Reshape", w("Cast", "x", to=onnx.TensorProto.INT64), w.const([6], np.int64))
    model = w.model(w("Relu", w("Gather", w.weight(1, WIDTH), words)), (2, 3))
    found = dse.from_onnx(model)
    assert not random_inputs(found)["x"].any()
    found.run(random_inputs(found))
    w = models.Writer()
    data = random_inputs(dse.from_onnx(w.model(w("Relu", w("Gather", "x", w.const([0], np.int64))), (2, WIDTH))))
    assert data["x"].dtype == np.float32
    assert len(np.unique(data["x"])) == 2 * WIDTH


@pytest.mark.parametrize("index", [WIDTH, -WIDTH - 1])
def test_indices_outside_of_what_is_gathered_from_are_refused(index: int) -> None:
    """They ended in a traceback when the host gathered."""
    w = models.Writer()
    gathered = w("Gather", "x", w.const([0, -WIDTH, index], np.int64), axis=1)
    with pytest.raises(dse.StudyError, match=f"Gather 'gather_0': index {index} of a dimension of 16"):
        dse.from_onnx(w.model(w("Relu", gathered), (models.LENGTH, WIDTH)))


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_a_softmax_is_along_any_dimension(op: str, axis: int) -> None:
    w = models.Writer()
    models.computed(w.model(w(op, "x", axis=axis), (2, 4, WIDTH), 17), host="never")


@pytest.mark.parametrize("op", ["ReduceMax", "ReduceMean", "ReduceL2"])
def test_rows_that_no_core_holds_are_done_in_parts(op: str) -> None:
    """Of a prime number of elements, and of negative ones: what pads the last part does not count."""
    w = models.Writer()
    x = w("Sub", "x", w.const(9.0)) if op == "ReduceMax" else "x"
    models.computed(w.model(w(op, x, axes=[1]), (2, 8209), 17), host="never")


@pytest.mark.parametrize("attributes", [{}, {"exclusive": 1}, {"reverse": 1}, {"exclusive": 1, "reverse": 1}])
@pytest.mark.parametrize("axis", [1, -1])
def test_sums_of_all_elements_up_to_one_are_products(axis: int, attributes: dict[str, int]) -> None:
    w = models.Writer()
    models.computed(w.model(w("CumSum", "x", w.const(axis, np.int64), **attributes), (2, 4, WIDTH), 17), host="never")


@pytest.mark.parametrize("op", ["Round", "Floor", "Ceil"])
def test_numbers_become_whole(op: str) -> None:
    """Halves, and numbers that have no fractions."""
    w = models.Writer()
    network = dse.from_onnx(w.model(w(op, "x"), (8, WIDTH), 17), element="f32", host="never")
    x = np.concatenate([np.arange(-32, 32) / 4, np.ldexp(1.5, np.arange(-32, 32))]).astype(np.float32).reshape(8, WIDTH)
    wanted = {"Round": np.rint, "Floor": np.floor, "Ceil": np.ceil}[op](x)
    for simulated in (True, False):
        assert (network.run({"x": x}, simulated=simulated)[network.outputs[0]] == wanted).all()


def test_a_softmax_of_old_models_is_over_several_dimensions() -> None:
    """ONNX's reference evaluator computes it as in new ones."""
    w = models.Writer()
    network = dse.from_onnx(w.model(w("Softmax", "x"), (2, 4, WIDTH), 11), element="f32", host="never")
    x = _input(network)
    found = network.run({"x": x})[network.outputs[0]].reshape(2, -1).astype(float)
    np.testing.assert_allclose(found, np.exp(x).reshape(2, -1) / np.exp(x).sum(axis=(1, 2))[:, None], rtol=1e-5)


def test_optional_inputs_need_not_be_given() -> None:
    w = models.Writer()
    product = w("Gemm", "x", w.weight(WIDTH, WIDTH), "")
    model = w.model(w("LayerNormalization", product, w.weight(WIDTH), ""), (models.LENGTH, WIDTH))
    assert _kinds(dse.from_onnx(model)) == ["gemm", "norm"]


def test_somebody_elses_operators_are_not_taken_for_those_of_onnx() -> None:
    w = models.Writer()
    with pytest.raises(dse.StudyError, match=r"Relu 'relu_0': the shape of 'relu_0\.out' is not known"):
        dse.from_onnx(w.model(w("Relu", "x", domain="com.example"), (models.LENGTH, WIDTH)))


def test_shapes_that_depend_on_what_inputs_hold_are_the_hosts() -> None:
    w = models.Writer()
    positive = w("NonZero", w("Relu", w("Relu", "x")))
    network = dse.from_onnx(w.model(positive, (models.LENGTH, WIDTH)))
    x = _input(network)
    found = network.run({"x": x})[network.outputs[0]]
    np.testing.assert_array_equal(found, np.nonzero(np.maximum(x, 0)))


DISTANCES = np.subtract.outer(np.arange(models.LENGTH), np.arange(models.LENGTH))


@pytest.mark.parametrize("mask", [DISTANCES < 0, np.where(DISTANCES < 0, -np.inf, -DISTANCES)])
def test_a_mask_that_hides_something_else_than_what_comes_after_is_no_attention(mask: NDArray[np.generic]) -> None:
    w = models.Writer()
    heads = w("Reshape", "x", w.const([1, 1, models.LENGTH, models.WIDTH], np.int64))
    scores = w("MatMul", heads, w("Transpose", heads, perm=[0, 1, 3, 2]))
    attended = w("MatMul", w("Softmax", w("Add", scores, w.const(mask))), heads)
    kinds = _kinds(dse.from_onnx(w.model(attended, (1, models.LENGTH, models.WIDTH))))
    assert "attention" not in kinds


def test_what_only_looks_like_a_rotation_is_not_taken_for_one() -> None:
    w, half = models.Writer(), models.WIDTH // 2
    axes = w.const([-1], np.int64)
    low = w("Slice", "x", w.const([0], np.int64), w.const([half], np.int64), axes)
    high = w("Slice", "x", w.const([half], np.int64), w.const([models.WIDTH], np.int64), axes)
    table = w.const(np.ones((models.LENGTH, models.WIDTH)))
    swapped = w("Mul", w("Concat", w("Neg", low), high, axis=-1), table)
    model = w.model(w("Add", w("Mul", "x", table), swapped), (1, 1, models.LENGTH, models.WIDTH))
    assert "rope" not in _kinds(models.computed(model, host="never"))


def test_a_model_whose_shapes_do_not_fit_is_refused_at_its_place() -> None:
    w = models.Writer()
    with pytest.raises(dse.StudyError, match="MatMul 'matmul_0': not as ONNX has it"):
        dse.from_onnx(w.model(w("MatMul", "x", w.weight(5, 5)), (models.LENGTH, models.WIDTH)))


MLP = models.mlp().SerializeToString()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("empty.onnx", b"", "empty.onnx: has no operators and no outputs"),
        ("begun.onnx", MLP[:2], "begun.onnx: has no operators and no outputs"),
        ("half.onnx", MLP[: len(MLP) // 2], "half.onnx is not a model that onnx reads"),
        ("text.onnx", b"not a model", "text.onnx is not a model that onnx reads"),
        ("other.json", b'{"a": 1}', "other.json is not a model that onnx reads"),
        ("other.textproto", b"\xff", "other.textproto is not a model that onnx reads"),
    ],
)
def test_a_file_that_is_no_whole_model_is_named(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(dse.StudyError, match=said) as caught:
        load_network(tmp_path / name)
    assert caught.value.hint


@pytest.mark.parametrize("missing", ["node", "output"])
def test_a_model_without_operators_or_outputs_is_refused(missing: str) -> None:
    model = models.mlp()
    model.graph.ClearField(missing)
    with pytest.raises(dse.StudyError, match=f"small: has no {'operators' if missing == 'node' else 'outputs'}"):
        dse.from_onnx(model)


def test_a_network_without_programs_or_outputs_has_nothing_to_search() -> None:
    w = models.Writer()
    network = dse.from_onnx(w.model(w("Transpose", "x", perm=[1, 0]), (models.LENGTH, models.WIDTH)))
    with pytest.raises(dse.StudyError, match="network 'small' has no operators"):
        dse.search_fronts(network)
    network = dse.from_onnx(models.mlp())
    network.outputs.clear()
    with pytest.raises(dse.StudyError, match="network 'small' has no outputs"):
        dse.search_fronts(network)


def test_damaged_and_missing_constants_are_named() -> None:
    model = models.mlp()
    damaged, missing = model.graph.initializer[:2]
    damaged.raw_data = b"123"
    with pytest.raises(dse.StudyError, match="small: constant 'c0' cannot be read"):
        dse.from_onnx(model)
    model.graph.initializer.remove(damaged)
    missing.data_location = onnx.TensorProto.EXTERNAL
    missing.external_data.add(key="location", value="gone.bin")
    with pytest.raises(dse.StudyError, match=r"small: constant 'c1' cannot be read.*gone\.bin"):
        dse.from_onnx(model)


@pytest.mark.parametrize(
    ("op", "constants", "said"),
    [
        ("Add", [np.zeros(3)], "Add 'add_0': not as ONNX has it"),
        ("Gemm", [], "Gemm 'gemm_0': not as ONNX has it"),
    ],
)
def test_operators_that_onnx_does_not_compute_are_named(op: str, constants: list[NDArray[np.int64]], said: str) -> None:
    w = models.Writer()
    with pytest.raises(dse.StudyError, match=said):
        dse.from_onnx(
            w.model(w(op, "x", *[w.const(one, np.int64) for one in constants]), (models.LENGTH, models.WIDTH))
        )


@pytest.mark.parametrize(("shape", "said"), [(None, "no shape"), ((0, models.WIDTH), r"open dimensions: x\.0")])
def test_an_input_without_all_sizes_is_named(shape: tuple[int, ...] | None, said: str) -> None:
    w = models.Writer()
    with pytest.raises(dse.StudyError, match=f"input 'x' has {said}"):
        dse.from_onnx(w.model(w("Relu", "x"), shape))


def test_a_size_is_of_an_open_dimension_and_of_one_reading() -> None:
    w = models.Writer()
    model = w.model(w("Relu", "x"), ("rows", models.WIDTH))
    with pytest.raises(dse.StudyError, match="no input has an open dimension 'row'") as caught:
        dse.from_onnx(model, sizes={"row": 8})
    assert "did you mean rows?" in caught.value.hint
    for rows in (4, 8):
        assert dse.from_onnx(model, sizes={"rows": rows}).shapes["x"] == (rows, models.WIDTH)
