"""`from_onnx`: an ONNX model as a network, a step for each of its operators."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.lang.rules import current_rules
from allo_dse.tune.study import call, execute_file

from ..network import Arrange, Network
from ..operators.attention import attention_work, heads_of, pair_matrix, query_matrix
from ..operators.elementwise import affine_work, binary_work, row_work, unary_work
from ..operators.execute import Work, element_type
from ..operators.rows import layer_norm_work, rms_norm_work, rope_work, softmax_work
from ..strided import is_free, simplified
from .builder import Array, Builder
from .graph import Graph, Node, evaluate, read_graph
from .host import host_step, indices_outside
from .images import batch_norm, conv, pooling, reduce_mean
from .patterns import over_last, parts_of, with_patterns

if TYPE_CHECKING:
    from onnx import ModelProto

# Checks of a model before its nodes become steps.


def require_meant(names: Iterable[str], needed: Sequence[Node], read: Graph) -> None:
    """Check that each name is the name or the type of a node that becomes a step."""
    there = {name for node in needed for name in (node.name, node.op)}
    for name in (one for one in names if one not in there):
        parts = ((part, whole) for whole in needed for part in parts_of(whole, read) if name in (part.name, part.op))
        for part, whole in parts:
            raise StudyError(
                f"{read.name}: programs[{name!r}]: {part.place} is part of {whole.place}",
                hint=f"give one for {whole.name or whole.op!r}",
            )
        raise StudyError(
            f"{read.name}: programs[{name!r}]: no operator that outputs depend on has that name or type",
            hint=f"{did_you_mean(name, there)}What depends on constants alone, or changes nothing, is none",
        )


def require_known(graph: Graph, ours: Sequence[Node], known: Collection[str], moving: Collection[str]) -> None:
    """Check that nodes without a program of the user's are of known types.

    Args:
        moving: types that only move elements, of whatever kind.
    """
    if unknown := [node for node in ours if node.op not in known or not node.is_standard]:
        raise StudyError(
            f"{graph.name}: no program for {', '.join(node.place for node in unknown)}",
            hint="give one with programs={'the node\\'s name or type': function of (node, graph) that returns a Work}",
        )
    if whole := [node for node in ours if node.output in graph.whole and node.op not in moving]:
        raise StudyError(
            f"{graph.name}: {whole[0].place}: its elements are not floating-point numbers",
            hint="cast them, or give a program for it with programs=",
        )


def require_tensors(graph: Graph, needed: Sequence[Node]) -> None:
    """Check that the tensors which nodes and outputs read are written, and have shapes that programs allow."""
    most = current_rules().elements
    for name, shape in graph.shapes.items():
        if math.prod(shape) > most:
            raise StudyError(f"{graph.name}: tensor {name!r} of {shape} has more than {most:,} elements")
    written = {"", *graph.inputs, *graph.known}
    written.update(name for n in needed for name in (n.outputs if n.op == "Split" else (n.output,)))
    shaped = {"", *graph.known, *(name for name, shape in graph.shapes.items() if min(shape, default=1) > 0)}
    reads = [(node.place, (*node.inputs, node.output)) for node in needed]
    for place, name in [(place, name) for place, names in [*reads, ("output", graph.outputs)] for name in names]:
        if name not in written:
            hint = "only the first outputs of operators are known, but of Split"
            raise StudyError(f"{graph.name}: {place}: nothing writes {name!r}", hint=hint)
        if name not in shaped:
            raise StudyError(
                f"{graph.name}: {place}: the shape of {name!r} is {graph.shapes.get(name, 'not known')}",
                hint="it may not depend on what inputs hold, nor be empty; export the model with sizes that are fixed",
            )


@contextmanager
def placed(graph: Graph, node: Node) -> Iterator[None]:
    """Add a node's place to errors about it, such as wrong sizes."""
    try:
        yield
    except StudyError as error:
        if node.place in error.message:
            raise
        raise StudyError(f"{graph.name}: {node.place}: {error.message}", hint=error.hint) from None


Floats = NDArray[np.float32]


def from_onnx(
    model: str | Path | ModelProto,
    *,
    element: str = "bf16",
    sizes: Mapping[str, int] | None = None,
    programs: Mapping[str, Callable[[Node, Graph], Work]] | None = None,
) -> Network:
    """Convert an ONNX model to a network; tensors keep their names.

    Args:
        model: a file or a model of `onnx`.
        element: element type of programs, "bf16" or "f32"; with "bf16,f32" it is chosen for each operator.
        sizes: of the dimensions that the model leaves open, by name.
        programs: makers of the work of nodes, by their name or type; they take precedence over our own.

    Raises:
        StudyError: for unknown operators, naming each with its place in the model, or for `programs` of no node.
    """
    read = read_graph(model, sizes)
    graph, own = with_patterns(read), dict(programs or {})
    needed = _needed(graph)
    require_meant(own, needed, read)
    ours = [n for n in needed if n.name not in own and n.op not in own]
    require_known(graph, ours, CONVERTERS, (*LAYOUTS, *HOST))
    require_tensors(graph, needed)
    builder = Builder(graph, Network(graph.name), element_type(element), {n.output: n for n in ours})
    for name in graph.inputs:
        builder.net.input(name, graph.shapes[name])
    for node in needed:
        with placed(graph, node):
            if make := own.get(node.name, own.get(node.op)):
                builder.add(node, make(node, graph), *node.inputs)
            else:
                CONVERTERS[node.op](builder, node)
    builder.net.output(*map(builder.read, graph.outputs))
    return simplified(builder.net)


def _needed(graph: Graph) -> list[Node]:
    """The nodes that outputs depend on."""
    wanted, kept = set(graph.outputs), []
    for node in reversed(graph.nodes):
        if wanted.intersection(node.outputs):
            kept.append(node)
            wanted.update(node.inputs)
    return kept[::-1]


def _gemm(builder: Builder, node: Node) -> None:
    a, b, *rest = node.inputs
    if node.number("alpha", 1.0) != 1.0 or (rest and node.number("beta", 1.0) != 1.0):
        raise builder.refuse(node, "alpha and beta must be 1")
    a = builder.arranged(np.transpose, a) if node.number("transA", 0) else builder.read(a)
    b = builder.arranged(np.transpose, b) if node.number("transB", 0) else builder.read(b)
    width = builder.net.shapes[b][1]
    if rest and not _is_row(builder.shape(rest[0]), width):
        raise builder.refuse(node, f"a bias of {builder.shape(rest[0])}; a row is known")
    builder.product(node, a, b, *rest)


def _is_row(shape: Sequence[int], width: int) -> bool:
    return math.prod(shape) == width == (1, *shape)[-1]


def _matmul(builder: Builder, node: Node) -> None:
    a, b = node.inputs
    if math.prod(builder.shape(b)[:-2]) != 1 or len(builder.shape(b)) < 2:
        raise builder.refuse(node, "a product of batches of matrices outside of attention")
    builder.product(node, builder.read(a), builder.read(b))


def _binary(op: str) -> Callable[[Builder, Node], None]:
    def convert(builder: Builder, node: Node) -> None:
        a, b = node.inputs
        size = math.prod(builder.shape(node.output))
        if op != "sub" and math.prod(builder.shape(a)) < math.prod(builder.shape(b)):
            a, b = b, a
        if math.prod(builder.shape(a)) == math.prod(builder.shape(b)) == size:
            return builder.elementwise(node, binary_work(op, size, builder.element), a, b)
        width = builder.shape(node.output)[-1]
        known = builder.graph.known.get(b)
        if known is not None and known.size == 1:
            value = float(known.ravel()[0])
            by, plus = {"add": (1.0, value), "sub": (1.0, -value), "mul": (value, 0.0)}[op]
            return builder.elementwise(node, affine_work(by, plus, size, builder.element), a)
        if op != "sub" and math.prod(builder.shape(a)) == size and _is_row(builder.shape(b), width):
            return builder.add(node, row_work(op, size // width, width, builder.element), a, b)
        raise builder.refuse(
            node, f"{builder.shape(a)} with {builder.shape(b)}; equal shapes, a row or a number are known"
        )

    return convert


def _div(builder: Builder, node: Node) -> None:
    known = builder.graph.known.get(node.inputs[1])
    if known is None or known.size != 1 or not known.any():
        raise builder.refuse(node, "a division by something else than a known number that is not 0")
    size = math.prod(builder.shape(node.output))
    builder.elementwise(node, affine_work(1.0 / float(known.ravel()[0]), 0.0, size, builder.element), node.inputs[0])


def _unary(op: str) -> Callable[[Builder, Node], None]:
    def convert(builder: Builder, node: Node) -> None:
        work = unary_work(op, math.prod(builder.shape(node.output)), builder.element)
        builder.elementwise(node, work, node.inputs[0])

    return convert


def _silu_mul(builder: Builder, node: Node) -> None:
    size = math.prod(builder.shape(node.output))
    builder.elementwise(node, binary_work("silu_mul", size, builder.element), *node.inputs)


def _softmax(builder: Builder, node: Node) -> None:
    if not over_last(node, builder.graph):
        raise builder.refuse(node, "a softmax along another dimension than the last")
    builder.add(node, softmax_work(*builder.rows(node.inputs[0]), builder.element), node.inputs[0])


def _normed(builder: Builder, node: Node) -> tuple[int, int]:
    """Return the rows and the width of the matrix that is normed, once its weights are known to be those of a row."""
    rows, width = builder.rows(node.inputs[0])
    if not builder.graph.along_last(node) or not all(_is_row(builder.shape(one), width) for one in node.inputs[1:]):
        raise builder.refuse(node, "a norm along the last dimension, with a weight for each of its elements, is known")
    return rows, width


def _rms_norm(builder: Builder, node: Node) -> None:
    rows, width = _normed(builder, node)
    builder.add(node, rms_norm_work(rows, width, node.number("epsilon", 1e-5), builder.element), *node.inputs[:2])


def _layer_norm(builder: Builder, node: Node) -> None:
    rows, width = _normed(builder, node)
    bias = node.inputs[2] if len(node.inputs) > 2 else builder.known(np.zeros(width, np.float32))
    weights = builder.arranged(lambda *rows: np.stack([row.ravel() for row in rows]), node.inputs[1], bias)
    work = layer_norm_work(rows, width, node.number("epsilon", 1e-5), builder.element)
    builder.add(node, work, node.inputs[0], weights)


def _rope(builder: Builder, node: Node) -> None:
    x, *tables = node.inputs
    if len(builder.shape(x)) != 4 or any(name not in builder.graph.known for name in tables):
        raise builder.refuse(node, "[1, heads, length, width] with known tables and positions are known")
    batch, heads, length, width = builder.shape(x)
    cosine, sine, *positions = (builder.graph.known[name] for name in tables)
    if batch != 1 or node.number("interleaved", 0) or 2 * cosine.shape[-1] != width:
        raise builder.refuse(node, "one batch, halves that turn with each other and whole heads are known")
    if positions:
        at = positions[0].ravel().astype(np.int64)
        cosine, sine = (one[at[at < len(one)]] for one in (cosine, sine))
    if not cosine.size == sine.size == length * width // 2:
        raise builder.refuse(node, f"tables of other positions than those of {builder.shape(x)}")
    table = np.concatenate([cosine, sine], axis=-1).reshape(length, width)
    by_position = builder.arranged(lambda one: one.transpose(0, 2, 1, 3).reshape(-1, width), x)
    work = rope_work(length * heads, width, builder.element)
    turned = builder.part(node, work, by_position, builder.known(np.repeat(table, heads, axis=0)))
    back = lambda one: one.reshape(1, length, heads, width).transpose(0, 2, 1, 3)  # noqa: E731
    builder.rearrange(node, back, turned)


def _attention(builder: Builder, node: Node) -> None:
    q, k, v, *masks = node.inputs
    batch, heads, queries, width = (1, 1, 1, *builder.shape(q))[-4:]
    joined = node.proto is not None and len(builder.shape(q)) != 4  # heads side by side
    windows = [node.number(f"{side}_window_size", -1) for side in ("left", "right")]
    more = any(masks) or max(windows) >= 0 or node.number("softcap", 0)
    if batch != 1 or len(builder.shape(q)) > 4 or joined or more:
        raise builder.refuse(node, "[1, heads, length, width] without a mask of its own, window or softcap is known")
    kv_heads, length, value_width = (1, *builder.shape(v))[-3:]
    causal = bool(node.number("is_causal", 0))
    sizes = [math.prod(builder.shape(one)) for one in (k, v, node.output)]
    fits = sizes == [kv_heads * length * width] * 2 + [heads * queries * width]
    if not fits or value_width != width or heads % kv_heads or (causal and queries != length):
        raise builder.refuse(node, f"values of {builder.shape(v)} for queries of {builder.shape(q)}")
    flip = bool(node.number("keys_transposed", 0))
    factor = node.number("scale", width**-0.5)
    if causal and factor <= 0:
        raise builder.refuse(node, f"a scale of {factor:g} with a mask; a positive one is known")

    def paired(keys: Floats, values: Floats) -> Floats:
        keys = (keys.swapaxes(-1, -2) if flip else keys).reshape(kv_heads, length, width)
        return pair_matrix(keys, values.reshape(kv_heads, length, width))

    by_group = builder.arranged(lambda one: query_matrix(one.reshape(heads, queries, width), kv_heads), q)
    pairs = builder.arranged(paired, k, v)
    work = attention_work(heads, kv_heads, length, width, factor, causal, builder.element, queries)
    out = builder.part(node, work, by_group, pairs)
    builder.rearrange(node, lambda one: heads_of(one, kv_heads, queries)[None], out)


def _by_onnx(builder: Builder, node: Node, output: str) -> tuple[Callable[..., Array], list[str]]:
    """A node as a function of the tensors that are not known, and their names."""
    version, every = builder.graph.functions.get("", 1), builder.graph.known
    # Constants of a Concat are elements, and zeros need not be read; constants of other nodes are sizes and axes.
    known = {n: every[n] for n in node.inputs if n in every and not (node.op == "Concat" and every[n].any())}
    names = [name for name in dict.fromkeys(node.inputs) if name and name not in known]

    def function(*arrays: Array) -> Array:
        shaped = (a.reshape(builder.shape(n)) for a, n in zip(arrays, names, strict=True))
        return evaluate(node, {**known, **dict(zip(names, shaped, strict=True))}, version)[output]

    return function, names


def _layout(builder: Builder, node: Node) -> None:
    assert node.proto is not None
    for output in filter(None, node.proto.output):
        function, names = _by_onnx(builder, node, output)
        free = is_free(function, [builder.shape(name) for name in names])
        builder.net.add(
            Arrange(function, free), *map(builder.read, names), output=output, shape=builder.shape(output),
            name=builder.graph.new_name(f"{node.name or node.op}:{output}"),
        )  # fmt: skip


def _host(builder: Builder, node: Node) -> None:
    if outside := indices_outside(node, builder.shape(node.inputs[0]), builder.graph.known):
        raise StudyError(f"{builder.graph.name}: {node.place}: {outside}", hint="export the model again")
    work = host_step(node, builder.shape(node.inputs[0]))
    if work is None:
        raise builder.refuse(node, "a cast to a type of which NumPy has none")
    builder.add(node, work, *node.inputs)


LAYOUTS = ("Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "Concat", "Split", "Slice", "Expand", "Identity")
HOST = ("Gather", "Cast")
CONVERTERS: dict[str, Callable[[Builder, Node], None]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Add": _binary("add"),
    "Sub": _binary("sub"),
    "Mul": _binary("mul"),
    "Div": _div,
    "Relu": _unary("relu"),
    "Gelu": _unary("gelu"),
    "Silu": _unary("silu"),
    "Sigmoid": _unary("sigmoid"),
    "Tanh": _unary("tanh"),
    "SiluMul": _silu_mul,
    "Softmax": _softmax,
    "RMSNormalization": _rms_norm,
    "LayerNormalization": _layer_norm,
    "RotaryEmbedding": _rope,
    "Attention": _attention,
    "Conv": conv,
    "BatchNormalization": batch_norm,
    "MaxPool": pooling("max"),
    "AveragePool": pooling("mean"),
    "GlobalAveragePool": pooling("mean", whole=True),
    "ReduceMean": reduce_mean,
    **dict.fromkeys(LAYOUTS, _layout),
    **dict.fromkeys(HOST, _host),
}
"""Functions that make a step of a node, by its type."""


# Loading networks from files: an ONNX model, or a Python file with a function that returns a `Network`.


def load_network(path: str | Path, settings: Mapping[str, str] | None = None) -> Network:
    """Load a network from a file.

    Args:
        path: an ONNX model, or a Python file with `def network(...) -> dse.Network`.
        settings: arguments of that function as text; for a model `element`, and the sizes of its open dimensions.

    Raises:
        StudyError: if there is no network in it, a setting is unknown, or the file does not run.
    """
    file, given = Path(path), dict(settings or {})
    if file.suffix != ".py":
        element = given.pop("element", "bf16")
        return from_onnx(file, element=element, sizes={name: _size(name, text) for name, text in given.items()})
    function = getattr(execute_file(file), "network", None)
    if not inspect.isfunction(function):
        raise StudyError(f"{file} defines no network", hint="write `def network(...) -> dse.Network:` that returns one")
    parameters = inspect.signature(function).parameters
    for name in given:
        if name not in parameters:
            hint = f"{did_you_mean(name, parameters)}There are: {', '.join(parameters)}"
            raise StudyError(f"{file} has no setting {name!r}", hint=hint)
    made = call(function, file, given)
    if not isinstance(made, Network):
        raise StudyError(f"{file}: network() returned {type(made).__name__}, not a Network")
    return made


def _size(name: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 2**63):  # ONNX's integers
        raise StudyError(f"--set {name}={text}: not the size of a dimension", hint="a positive whole number")
    return int(text)
