"""`from_onnx`: an ONNX model as a network, a step for each of its operators."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.common.records import replace
from allo_dse.lang.rules import current_rules
from allo_dse.tune.study import call, execute_file

from ..accuracy import add_codes
from ..edges import simplified
from ..network import Network, arrange
from ..operators.elementwise import rope_work, softmax
from ..operators.execute import CODES, Operand, Work, element_type, weight_bits
from ..operators.expressions import UNARY, padded
from ..operators.products import UNIT, batch_cuts, gemm_batch_work
from ..operators.sequences import (
    LOOPED,
    TASKS,
    attention_work,
    cell_of,
    fitting_chunks,
    heads_of,
    pair_matrix,
    query_matrix,
    recurrent_work,
    weight_rows,
)
from .builder import Array, Builder, InvalidModel
from .elementwise import REDUCTIONS, Groups, add_group, reduction
from .evaluate import NotComputed, evaluate
from .graph import Graph, Node, read_graph
from .host import host_step, indices_outside, joined_hosts
from .images import batch_norm, conv, pool, resize
from .patterns import parts_of, with_patterns
from .quantized import in_whole_numbers

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


def require_tensors(graph: Graph, needed: Sequence[Node]) -> None:
    """Check that the tensors which nodes and outputs read are written, and have shapes that programs allow."""
    most = current_rules().elements
    for name, shape in graph.shapes.items():
        if math.prod(shape) > most:
            raise StudyError(f"{graph.name}: tensor {name!r} of {shape} has more than {most:,} elements")
    written = {"", *graph.inputs, *graph.known, *(name for node in needed for name in node.outputs)}
    reads = [(node.place, (*node.inputs, node.output)) for node in needed]
    for place, name in [(place, name) for place, names in [*reads, ("output", graph.outputs)] for name in names]:
        if name not in written:
            raise StudyError(f"{graph.name}: {place}: nothing writes {name!r}", hint="is it a whole model?")
        if name and name not in graph.shapes:
            raise StudyError(
                f"{graph.name}: {place}: the shape of {name!r} is not known",
                hint="neither onnx nor onnxruntime computes the model; pip install onnxruntime, give inputs of one "
                "whole number their values (--set NAME=NUMBER), or export it again",
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
LEAST_QUERIES = 4
"""Queries of a head that a task has at least, where heads do not share keys."""


HOSTS = ("auto", "never")
"""Treatment of operators without a program: the host computes them, or the model is refused."""


def from_onnx(
    model: str | Path | ModelProto,
    *,
    element: str = "bf16",
    sizes: Mapping[str, int] | None = None,
    programs: Mapping[str, Callable[[Node, Graph], Work]] | None = None,
    host: str = "auto",
    calibration: Mapping[str, Array] | None = None,
) -> Network:
    """Convert an ONNX model to a network; tensors keep their names.

    Args:
        model: a file or a model of `onnx`.
        element: element type of programs, "bf16" or "f32"; with "bf16,f32" it is chosen for each operator. With "i8" or
            "i4" beside these, weights of products may be rounded to so many bits; with "w8a8", activations too.
        sizes: of the dimensions that the model leaves open, by name, or by input and position: `x.0`; and values of
            inputs that are one whole number, by name.
        programs: makers of the work of nodes, by their name or type; they take precedence over our own.
        host: "auto" for operators without a program to run on the host, "never" to refuse them.
        calibration: for "w8a8", an array for each input: the scales of activations cover what it makes of them. Random
            ones by default.

    Raises:
        StudyError: for a model that no evaluator of ONNX computes, for `programs` of no node, and with `host="never"`
            for operators without a program, each with its place.
    """
    if host not in HOSTS:
        raise StudyError(f"host={host!r} is none of {', '.join(HOSTS)}", hint=did_you_mean(host, HOSTS))
    read = read_graph(model, sizes, frozenset(programs or ()))
    graph, own = with_patterns(in_whole_numbers(read)), dict(programs or {})
    wanted, needed = set(graph.outputs), list[Node]()
    for node in reversed(graph.nodes):  # those that outputs depend on
        if wanted.intersection(node.outputs):
            needed.append(node)
            wanted.update(node.inputs)
    needed.reverse()
    require_meant(own, needed, read)
    require_tensors(graph, needed)
    graph.nodes, ours = needed, {n.output: n for n in needed if n.name not in own and n.op not in own}
    builder = Builder(
        graph, Network(Path(model).stem if isinstance(model, str | Path) else graph.name), element_type(element), ours,
        weight_bits(element),
    )  # fmt: skip
    for name in graph.inputs:
        builder.net.input(name, graph.shapes[name])
    conversion = Conversion(builder, read, host, Groups(graph, own))
    for node in needed:
        with placed(graph, node):
            if make := own.get(node.name, own.get(node.op)):
                builder.add(node, make(node, graph), *node.inputs)
            else:
                conversion.add(node)
    if conversion.refused:
        hint = "host='auto' (--host auto) has the host do it; or give a program with programs="
        raise StudyError("\n".join(one.message for one in conversion.refused), hint=hint)
    builder.net.output(*map(builder.read, graph.outputs))
    wide = (node for node in conversion.added if not read.codes.keys().isdisjoint(node.inputs))
    builder.net.widened = [*graph.widened, *(node.name or node.output for node in wide)]
    network = joined_hosts(simplified(builder.net))
    if CODES in element:
        add_codes(network, calibration)
    return network


@dataclass
class Conversion:
    """Nodes become steps: by a program, by a rearrangement, or by the host.

    Attributes:
        read: the model before patterns were found.
        refused: why nodes have no program, if the host may do none.
        added: nodes that are converted.
    """

    builder: Builder
    read: Graph
    host: str
    groups: Groups
    refused: list[StudyError] = field(default_factory=list)
    added: list[Node] = field(default_factory=list)

    def add(self, node: Node) -> None:
        """Add the steps of a node, unless it is part of a group that comes later."""
        group = self.groups.found.get(node.output)
        if node.output in self.groups.inner or node.output in self.builder.net.shapes:
            return
        self.added.extend(group.nodes if group else [node])
        if group is None:
            self._alone(node)
            return
        with self.builder.attempt() as failed:
            add_group(self.builder, group)
        if failed and len(group.nodes) == 1:
            self._alone(node, failed[0])
        elif failed:  # each may have a program by itself
            order = [one.output for one in self.read.nodes]
            for one in sorted(group.nodes, key=lambda one: order.index(one.output)):
                groups = Groups(self.groups.graph, (), [one])
                replace(self, groups=groups).add(one)

    def _alone(self, node: Node, why: StudyError | None = None) -> None:
        """Add the steps of a node by itself.

        Args:
            why: the reason why a group that it is part of has no program.
        """
        graph = self.builder.graph
        shaped = [name for name in (*node.inputs, *node.outputs) if name and name not in graph.known]
        if any(name in graph.open or 0 in graph.shapes.get(name, (1,)) for name in shaped):
            return self._by_host(node, self.builder.refuse(node, "shapes that depend on the elements of inputs"))
        floats = graph.is_float(node.output) or node.output in graph.whole
        read = any(name in self._reads for name in node.outputs if name and name != node.output)
        if node.op in CONVERTERS and node.is_standard and floats and (node.op in LOOPED or not read):
            with self.builder.attempt() as failed, self.builder.typed(node):
                CONVERTERS[node.op](self.builder, node)
            if not failed:
                return None
            why = why or failed[0]
        if node.is_standard and node.op in MOVERS and _moved(self.builder, node):
            return None
        if not floats:
            why = self.builder.refuse(node, "its elements are not floating-point numbers")
        if node.proto is None:  # what a pattern has found has no program: its parts may have
            names = {one.output for one in parts_of(node, self.read)} - self.builder.net.shapes.keys()
            parts = [one for one in self.read.nodes if one.output in names]
            groups = Groups(self.read, (), parts)
            inside = replace(self, read=replace(self.read, nodes=parts, outputs=[node.output]), groups=groups)
            for one in parts:
                inside.add(one)
            return None
        return self._by_host(node, why or self.builder.refuse(node, "no program for it"))

    @property
    def _reads(self) -> set[str]:
        """The tensors that nodes and outputs read."""
        return {*self.read.outputs, *(name for node in self.read.nodes for name in node.inputs)}

    def _by_host(self, node: Node, why: StudyError) -> None:
        """Add a host step for each output of a node that is read."""
        graph, builder = self.builder.graph, self.builder
        if outside := indices_outside(node, graph.shapes.get("".join(node.inputs[:1]), ()), graph.known):
            raise InvalidModel(f"{graph.name}: {node.place}: {outside}", hint="export the model again")
        if self.host == "never":
            self.refused.append(why if node.place in why.message else self.builder.refuse(node, why.message))
            for name in filter(None, node.outputs):
                builder.net.shapes[name] = graph.shapes[name]
            return
        for name in (one for one in node.outputs if one and (one in self._reads or one == node.output)):
            work, names = host_step(node, graph, name)
            work = replace(work, why=why.message.removeprefix(f"{graph.name}: {node.place}: "))
            label = node.name or name if name == node.output else graph.new_name(f"{node.name or node.output}:{name}")
            builder.net.add(work, *map(builder.read, names), name=label, output=name, shape=graph.shapes[name])


def _gemm(builder: Builder, node: Node) -> None:
    a, b, *rest = node.inputs
    alpha, beta = node.number("alpha", 1.0), node.number("beta", 1.0)
    if alpha != 1.0 or (rest and beta != 1.0):
        raise builder.refuse(node, "alpha and beta must be 1")
    a = builder.arranged(np.transpose, a) if node.number("transA", 0) else builder.read(a)
    b = builder.arranged(np.transpose, b) if node.number("transB", 0) else builder.read(b)
    width = builder.net.shapes[b][1]
    shape = builder.shape(rest[0]) if rest else (width,)
    if not math.prod(shape) == width == (1, *shape)[-1]:
        raise builder.refuse(node, f"a bias of {shape}; it must be a row")
    builder.product(node, a, b, *rest)


def _packed(builder: Builder, node: Node) -> None:
    """Convert a product with weights of few bits."""
    a, *bias = node.inputs
    builder.product(node, builder.read(a), node.attributes["weights"], *bias)  # type: ignore[arg-type]


def _matmul(builder: Builder, node: Node) -> None:
    """Convert a product of matrices, or of batches of them."""
    a, b = node.inputs
    shapes = [builder.shape(a), builder.shape(b)]
    if len(shapes[1]) >= 2 and math.prod(shapes[1][:-2]) == 1 and len(shapes[0]) >= 2:
        builder.product(node, builder.read(a), builder.read(b))
        return
    left = (1, *shapes[0]) if len(shapes[0]) == 1 else shapes[0]
    right = (*shapes[1], 1) if len(shapes[1]) == 1 else shapes[1]
    batch = np.broadcast_shapes(left[:-2], right[:-2])
    batched_product(builder, node, (a, left), (b, right), batch)


Factor = tuple[str, Sequence[int]]
"""A tensor and its shape as matrices."""


def batched_product(builder: Builder, node: Node, a: Factor, b: Factor, batch: tuple[int, ...]) -> None:
    """Add a product for each matrix of a batch.

    Raises:
        StudyError: for matrices too large for a task, unless there are few.
    """
    (rows, depth), columns, count = a[1][-2:], b[1][-1], math.prod(batch)
    if count == 1:
        builder.product(node, *(builder.arranged(lambda one, to=own: one.reshape(to), name) for name, own in (a, b)))
        return
    to = [-(-size // UNIT) * UNIT for size in (rows, columns, depth)]
    cuts = batch_cuts(*to)
    if cuts is None or count * math.prod(cuts) > MOST_MATRICES:
        raise builder.refuse(node, f"{count} products of {rows} x {depth} by {depth} x {columns}: no task has room")
    m, n = cuts

    def left(one: Array) -> Array:
        one = np.broadcast_to(one.reshape(a[1]), (*batch, rows, depth)).reshape(count, rows, depth)
        one = np.pad(one, ((0, 0), (0, to[0] - rows), (0, to[2] - depth)))
        return np.repeat(one.reshape(count, m, -1), n, axis=0).reshape(-1, to[2])

    def right(one: Array) -> Array:
        one = np.broadcast_to(one.reshape(b[1]), (*batch, depth, columns)).reshape(count, depth, columns)
        one = np.pad(one, ((0, 0), (0, to[2] - depth), (0, to[1] - columns)))
        parts = one.reshape(count, to[2], n, to[1] // n).transpose(0, 2, 1, 3)
        return np.repeat(parts[:, :, None], m, axis=2).reshape(-1, to[1] // n)

    def back(one: Array) -> Array:
        parts = one.reshape(count, n, to[0], to[1] // n).transpose(0, 2, 1, 3).reshape(count, to[0], to[1])
        return parts[:, :rows, :columns]

    work = gemm_batch_work(count * m * n, to[0] // m, to[1] // n, to[2], builder.element)
    made = builder.part(node, work, builder.arranged(left, a[0]), builder.arranged(right, b[0]))
    builder.rearrange(node, back, made)


MOST_MATRICES = 4096
"""Tasks of a batched product: each has a matrix, and more take the tuner too long."""


def _softmax(builder: Builder, node: Node) -> None:
    """Convert a softmax along any dimension, which is the last one of a rearrangement."""
    x, axis = node.inputs[0], 1 if builder.graph.version < 13 else -1
    shape, axis = builder.shape(x), int(node.number("axis", axis))
    if builder.graph.version < 13:
        shape, axis = (math.prod(shape[:axis]), math.prod(shape[axis:])), -1
    *rest, width = np.moveaxis(np.empty(shape, bool), axis, -1).shape
    last = axis in (-1, len(shape) - 1)
    turned = builder.read(x) if last else builder.arranged(lambda one: np.moveaxis(one.reshape(shape), axis, -1), x)
    made = builder.expression(
        node, node.op.lower(), softmax(("in", 0), log=node.op == "LogSoftmax"), [Operand("full")],
        (math.prod(rest), width), [turned], output=node.output if last else "",
    )  # fmt: skip
    if not last:
        builder.rearrange(node, lambda one: np.moveaxis(one.reshape(*rest, width), -1, axis), made)


MOST_SUMS = 2048
"""Elements whose sums are one product: its matrix has their square."""


def _cumulative_sum(builder: Builder, node: Node) -> None:
    """Convert the sum of all elements up to each one along a dimension: a product with a triangle."""
    x, axis = node.inputs[0], builder.graph.known.get(node.inputs[1])
    if axis is None or (size := builder.shape(x)[at := int(axis.item())]) > MOST_SUMS:
        raise builder.refuse(node, f"sums of more than {MOST_SUMS:,} elements, or along a dimension that is not known")
    below = np.tri(size, k=-int(node.number("exclusive", 0)), dtype=np.float32)
    builder.rearrange(
        node, lambda one: one, builder.along(node, x, at, below.T if node.number("reverse", 0) else below)
    )


def _rope(builder: Builder, node: Node) -> None:
    x, *tables = node.inputs
    if len(builder.shape(x)) != 4 or any(name not in builder.graph.known for name in tables):
        raise builder.refuse(node, "the input must be [batch, heads, length, width], tables and positions constants")
    batch, heads, length, width = builder.shape(x)
    cosine, sine, *positions = (builder.graph.known[name] for name in tables)
    if node.number("interleaved", 0) or 2 * cosine.shape[-1] != width:
        raise builder.refuse(node, "only whole heads whose halves turn with each other are supported")
    if positions:
        at = positions[0].ravel().astype(np.int64)
        cosine, sine = (one[at[at < len(one)]] for one in (cosine, sine))
    if not cosine.size == sine.size == length * width // 2:
        raise builder.refuse(node, f"tables of other positions than those of {builder.shape(x)}")
    table = np.concatenate([cosine, sine], axis=-1).reshape(length, width)
    by_position = builder.arranged(lambda one: one.transpose(0, 2, 1, 3).reshape(-1, width), x)
    work = rope_work(batch * length * heads, width, builder.element)
    rows = np.tile(np.repeat(table, heads, axis=0), (batch, 1))
    turned = builder.part(node, work, by_position, builder.known(rows))
    back = lambda one: one.reshape(batch, length, heads, width).transpose(0, 2, 1, 3)  # noqa: E731
    builder.rearrange(node, back, turned)


def _attention(builder: Builder, node: Node) -> None:
    """Convert attention; a batch is more heads. Lengths that tiles do not divide are padded, and padded keys hidden."""
    q, k, v, *masks = node.inputs
    shape = builder.shape(q)
    heads, queries, width = math.prod(shape[:-2]), *((1, *shape)[-2:])
    windows = [node.number(f"{side}_window_size", -1) for side in ("left", "right")]
    joined = node.proto is not None and len(shape) != 4  # heads side by side
    if joined or any(masks) or max(windows) >= 0 or node.number("softcap", 0):
        raise builder.refuse(
            node, "[batch, heads, length, width] without a mask of its own, window or softcap is known"
        )
    *outer, length, value_width = (1, *builder.shape(v))
    kv_heads = math.prod(outer)
    causal = bool(node.number("is_causal", 0))
    sizes = [math.prod(builder.shape(one)) for one in (k, v, node.output)]
    fits = sizes == [kv_heads * length * width] * 2 + [heads * queries * width]
    last = node.proto is None and fitting_chunks(length) == length and fitting_chunks(queries) == queries
    if not fits or value_width != width or heads % kv_heads or (causal and queries != length and not last):
        raise builder.refuse(node, f"values of {builder.shape(v)} for queries of {builder.shape(q)}")
    flip = bool(node.number("keys_transposed", 0))
    factor = node.number("scale", width**-0.5)
    if (causal or fitting_chunks(length) != length) and factor <= 0:
        raise builder.refuse(node, f"a scale of {factor:g} with a mask; it must be positive")
    long, asked = fitting_chunks(length), length if queries == length else queries
    rows = long if queries == length else fitting_chunks(queries)
    if queries == 1:  # it sees all keys; a matrix of one row is none for Allo
        causal, rows = False, rows if heads > kv_heads else LEAST_QUERIES

    wide = -(-width // builder.word) * builder.word

    def padded(one: Floats, count: int, own: int, to: int) -> Floats:
        return np.pad(one.reshape(count, own, width), ((0, 0), (0, to - own), (0, wide - width)))

    def paired(keys: Floats, values: Floats) -> Floats:
        keys = keys.swapaxes(-1, -2) if flip else keys
        return pair_matrix(*(padded(one, kv_heads, length, long) for one in (keys, values)))

    def grouped(one: Floats) -> Floats:
        return query_matrix(padded(one, heads, queries, rows), kv_heads)

    work = attention_work(heads, kv_heads, long, wide, factor, causal, builder.element, rows, valid=length)
    out = builder.part(node, work, builder.arranged(grouped, q), builder.arranged(paired, k, v))
    builder.rearrange(node, lambda one: heads_of(one, kv_heads, rows)[:, :asked, :width], out)


def _recurrent(builder: Builder, node: Node) -> None:
    """Convert a recurrent layer: a product for the inputs of all time steps, and one program for the steps.

    Biases are rows of the weights, which multiply ones.
    """
    known, number, default = builder.graph.known, node.number, LOOPED[node.op]
    x, w, r, b, lengths, h, c, peepholes = (*node.inputs, *[""] * 7)[:8]
    first, named = int(number("layout", 0)), [one.decode() for one in node.attributes.get("activations", [])]  # type: ignore[attr-defined]
    steps, batch = (builder.shape(x)[at] for at in (first, 1 - first))
    own = named[: len(default)] or default
    reasons = {
        "weights must be constants": {w, r, b} - {""} - known.keys(),
        "sequence_lens": lengths and not (lengths in known and (known[lengths] == steps).all()),
        "peepholes": peepholes and (peepholes not in known or known[peepholes].any()),
        f"activations {', '.join(named)}": named != own * (len(named) // len(default)) or {*own} - UNARY.keys(),
        "clip, activation_alpha or input_forget": {"clip", "activation_alpha", "activation_beta", "input_forget"}
        & node.attributes.keys(),
    }
    if why := next((reason for reason, found in reasons.items() if found), ""):
        raise builder.refuse(node, why)
    cell, (directions, _, hidden) = cell_of(node.op, own, bool(number("linear_before_reset", 0))), known[r].shape
    wide, long = -(-hidden // UNIT) * UNIT, padded(max(2, steps), 2, 64)
    tall = min(UNIT, -(-batch * directions // TASKS))  # sequences of a task
    sets = -(-batch // tall)
    work = recurrent_work(cell, directions * sets, long, tall, wide, builder.element)
    backward = [directions - 1] if node.attributes.get("direction", b"forward") != b"forward" else []
    more = ((0, sets * tall - batch), (0, 0), (0, wide - hidden))

    def by_gate(weights: Array, bias: Array) -> Array:
        """[columns, directions, gates, wide] of weights and of the bias after them."""
        parts = np.moveaxis(np.concatenate([weights, bias[..., None]], axis=2), 2, 0).astype(np.float32)
        return np.pad(parts.reshape(len(parts), directions, -1, hidden), ((0, 0), *more[1:2], *more[1:]))

    def turned(one: Array) -> Array:
        """[steps, batch, directions, ...] with the time of directions that run backward turned."""
        one = one.reshape(steps, batch, directions, -1).copy()
        one[:, :, backward] = one[::-1, :, backward]
        return one

    def rows(one: Array, ones: Array) -> Array:
        own = one.swapaxes(0, 1) if first else one
        return np.concatenate([own.reshape(steps * batch, -1), np.repeat(ones, steps * batch, axis=0)], axis=1)

    def by_task(one: Array) -> Array:
        return np.pad(turned(one), ((0, long - steps), *more[:2], (0, 0))).swapaxes(1, 2).reshape(long, -1)

    def weights(base: Array, *states: Array) -> Array:
        made = base.copy()
        for at, one in zip(given, states, strict=True):
            by_batch = np.pad(one if first else one.swapaxes(0, 1), more).reshape(sets, tall, directions, wide)
            made[wide + 1 : wide + 1 + tall, :, :, at] = by_batch.transpose(1, 2, 0, 3)
        return made.reshape(len(made), -1)

    def result(at: int, one: Array) -> Array:
        every = one.reshape(long, directions, sets * tall, -1, wide)[:steps, :, :batch, max(0, at - 1), :hidden]
        found: Array = every[-1] if at else turned(every.swapaxes(1, 2)).swapaxes(1, 2)
        return np.moveaxis(found, -2, 0) if first else found

    biases = known.get(b, np.zeros((directions, 2 * cell.gates * hidden)))
    of_x, of_h = map(by_gate, (known[w], known[r]), np.split(biases, 2, axis=1))
    product = builder.graph.new_name(f"{node.name or node.output}.inputs")
    ones = builder.known(np.ones((1, 1), np.float32))
    matrix = builder.known(of_x.reshape(len(of_x), -1))
    sums = builder.matrix_product(product, builder.arranged(rows, x, ones), matrix)
    base = np.zeros((weight_rows(wide, tall), directions, sets, cell.gates, wide), np.float32)
    base[:hidden], base[wide] = of_h[:-1, :, None], of_h[-1, :, None]
    given = {at: name for at, name in enumerate((h, c)[: len(cell.states)]) if name}
    whole = builder.arranged(weights, builder.known(base), *given.values())
    made = builder.part(node, work, builder.arranged(by_task, sums), whole)
    for at, name in enumerate(node.outputs):
        if name:
            builder.rearrange(replace(node, output=name), partial(result, at), made)


def _moved(builder: Builder, node: Node) -> bool:
    """Add rearrangements if a node only moves elements of tensors; return whether it does.

    It is evaluated on roots of whole numbers: none is a mean of others.
    """
    known, tensors = builder.graph.known, node.inputs if node.op == "Concat" else node.inputs[:1]
    if any(name and name not in {*known, *tensors} for name in node.inputs) or node.proto is None:
        return False
    names = [name for name in dict.fromkeys(tensors) if name not in known or known[name].any()]
    ends = np.cumsum([math.prod(builder.shape(name)) for name in names])
    values = np.sqrt(np.arange(1.0 + sum(ends[-1:])))
    parts = [one.reshape(builder.shape(n)) for n, one in zip(names, np.split(values[1:], ends[:-1]), strict=True)]
    given = {**{name: known[name] for name in node.inputs if name in known}, **dict(zip(names, parts, strict=True))}
    try:
        found = evaluate(node.proto, given, builder.graph.versions)
    except NotComputed:
        return False
    works = {}
    for output, one in found.items():
        with np.errstate(invalid="ignore"):
            place = np.clip(np.rint(one**2), 0, len(values) - 1).astype(np.int32) if one.dtype == float else None
        if place is None or one.shape != builder.shape(output) or not np.array_equal(values[place], one):
            return False
        works[output] = arrange(partial(_taken, place), [builder.shape(name) for name in names])
    for output, work in works.items():
        label = builder.graph.new_name(f"{node.name or node.op}:{output}")
        builder.net.add(work, *map(builder.read, names), output=output, shape=builder.shape(output), name=label)
    return True


def _taken(place: NDArray[np.int32], *arrays: Array) -> Array:
    """Elements of arrays by their number, from 1; 0 stands for a zero."""
    return np.concatenate([np.zeros(1, arrays[0].dtype), *(one.ravel() for one in arrays)])[place]


MOVERS = {
    *("CenterCropPad", "Concat", "DepthToSpace", "Expand", "Flatten", "Gather", "GatherElements", "GatherND"),
    *("Identity", "Pad", "Reshape", "Resize", "ReverseSequence", "Slice", "SpaceToDepth", "Split", "Squeeze"),
    *("Tile", "Transpose", "Trilu", "Unsqueeze", "Upsample"),
}
"""Operators that may only move elements."""
CONVERTERS: dict[str, Callable[[Builder, Node], None]] = {
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Packed": _packed,
    "Softmax": _softmax,
    "LogSoftmax": _softmax,
    "CumSum": _cumulative_sum,
    "RotaryEmbedding": _rope,
    "Attention": _attention,
    "Conv": conv,
    "BatchNormalization": batch_norm,
    "MaxPool": pool,
    "AveragePool": pool,
    "ConvTranspose": conv,
    "Resize": resize,
    **dict.fromkeys(LOOPED, _recurrent),
    **dict.fromkeys(REDUCTIONS, reduction),
}
"""Functions that make a step of a node, by its type."""


# Loading networks from files: an ONNX model, or a Python file with a function that returns a `Network`.


def load_network(path: str | Path, settings: Mapping[str, str] | None = None, host: str = "auto") -> Network:
    """Load a network from a file.

    Args:
        path: an ONNX model, or a Python file with `def network(...) -> dse.Network`.
        settings: arguments of that function as text; for a model `element`, and the sizes of its open dimensions.
        host: as for `from_onnx`.

    Raises:
        StudyError: if there is no network in it, a setting is unknown, or the file does not run.
    """
    file, given = Path(path), dict(settings or {})
    if file.suffix != ".py":
        element = given.pop("element", "bf16")
        sizes = {name: _size(name, text) for name, text in given.items()}
        return from_onnx(file, element=element, sizes=sizes, host=host)
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
