"""Operators that exporters write as several nodes: they are found in a graph and rewritten as one node.

They are recognized by what they do to numbers, however they are spelled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import permutations

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import replace

from .definitions import Array
from .evaluate import evaluate
from .graph import Graph, Node

# Attention and rotary embedding as exporters write them. A match is checked, and its sizes are read.
#
# Nodes that only move elements are not matched. They are computed, on numbers that identify the elements.


Bound = dict[str, str]
Writer = Mapping[str, Node]
MOVES = {"Concat", "Expand", "Neg", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
LOWEST = -1e4  # exp of it is 0 in every type; half precision has no number below -65504


ELEMENTWISE = {
    *("Add", "And", "Cast", "Clip", "Div", "Dropout", "Equal", "Greater", "GreaterOrEqual", "Identity", "IsInf"),
    *("IsNaN", "Less", "LessOrEqual", "Max", "Min", "Mul", "Neg", "Not", "Or", "Sub", "Where"),
}
"""Operators between the products of attention and its softmax, whatever exporters write."""
MOST_SCORES = 1 << 24
"""Scores of the largest attention that is tried on numbers."""


def attention_node(root: Node, graph: Graph, writer: Writer) -> Node | None:
    """Return the attention that a product of a softmax computes; None if it computes something else.

    Recognized by what it does to numbers: the softmax sees scores times a factor, all or those of a triangle, and its
    result goes into the product as it is.
    """
    if len(root.inputs) != 2 or root.inputs[1] in graph.known:
        return None
    weights, values = root.inputs
    base = _base_of(weights, graph, writer)
    softmax = writer.get(base or "")
    if base is None or softmax is None or softmax.op != "Softmax" or not softmax.is_standard:
        return None
    shape = graph.shapes.get(softmax.inputs[0], ())
    axis = softmax.number("axis", 1 if graph.version < 13 else -1)  # ONNX's defaults
    if len(shape) < 2 or np.prod(shape) > MOST_SCORES or axis not in (-1, len(shape) - 1):
        return None
    probe = np.random.default_rng(0).random(shape, np.float32)
    product = writer.get(_base_of(softmax.inputs[0], graph, writer) or "")
    same = _computed(weights, {base: probe}, graph, writer)
    if product is None or product.op != "MatMul" or same is None or not np.array_equal(same, probe):
        return None
    found = _shown(softmax.inputs[0], product.output, graph, writer)
    if found is None:
        return None
    factor, shown = found
    (q, of_q), (k, of_k) = (_unscaled(name, graph, writer) for name in product.inputs)
    shapes = [graph.shapes[name] for name in (q, k, values)]
    if any(len(one) < 2 for one in shapes) or shapes[0][-1] != shapes[2][-1]:
        return None
    length, over = shape[-2:]
    shown = shown.reshape(-1, length, over)
    causal = length > 1 and bool(np.array_equal(shown[0], np.tri(length, over, over - length, dtype=bool)))
    if (shown != shown[0]).any() or not (causal or shown.all()):
        return None
    attributes = {"scale": factor * of_q * of_k, "is_causal": int(causal)}
    keys, own = (_of_groups(name, flip, graph, writer) for name, flip in ((k, True), (values, False)))
    if keys is not None and own is not None and graph.shapes[keys][-3] == graph.shapes[own][-3]:
        return Node("Attention", root.name, (q, keys, own), root.output, attributes)
    return Node("Attention", root.name, (q, k, values), root.output, {**attributes, "keys_transposed": 1})


def _base_of(name: str, graph: Graph, writer: Writer) -> str | None:
    """Return the only tensor that a tensor is computed of, element by element, beside known ones."""
    bases, waiting, seen = set[str](), [name], set[str]()
    while waiting:
        one = waiting.pop()
        if one in seen or one in graph.known or not one:
            continue
        seen.add(one)
        node = writer.get(one)
        if node is not None and node.op in ELEMENTWISE and node.is_standard:
            waiting += node.inputs
        else:
            bases.add(one)
    return bases.pop() if len(bases) == 1 else None


def _computed(name: str, given: dict[str, Array], graph: Graph, writer: Writer) -> Array | None:
    """Compute a tensor from its base, to whose value it adds those on the way; None if that fails."""
    if name not in given:
        node = writer.get(name)
        if name in graph.known:
            given[name] = graph.known[name]
        elif node is None or node.proto is None:
            return None
        else:
            arrays = {one: _computed(one, given, graph, writer) for one in node.inputs if one}
            known = {one: array for one, array in arrays.items() if array is not None}
            if len(known) < len(arrays):
                return None
            given |= evaluate(node.proto, known, graph.versions)
    return given[name]


def _shown(name: str, base: str, graph: Graph, writer: Writer) -> tuple[float, NDArray[np.bool_]] | None:
    """Return the factor of scores, and a mask of the scores that a softmax sees; None for another function of them."""
    shape = graph.shapes[name]
    if graph.shapes.get(base) != shape:
        return None
    values = [_computed(name, {base: np.full(shape, one, np.float32)}, graph, writer) for one in (0, 1, 2)]
    if any(one is None for one in values):
        return None
    none, one, two = (np.asarray(own, np.float64) for own in values)
    shown: NDArray[np.bool_] = one > LOWEST
    if not shown.any() or (two > LOWEST)[~shown].any() or none[shown].any():
        return None
    factor = float(one[shown][0])
    linear = np.allclose(one[shown], factor) and np.allclose(two[shown], 2 * factor)
    return (factor, shown) if linear else None


def _unscaled(name: str, graph: Graph, writer: Writer) -> tuple[str, float]:
    """Return the tensor that a tensor is a multiple of, and the factor.

    PyTorch scales scores, queries, or keys too.
    """
    factor, node = 1.0, writer.get(name)
    while node is not None and node.op in {"Mul", "Div"}:
        known = {one: graph.known[one] for one in node.inputs if one in graph.known}
        numbers = [one for one, array in known.items() if array.size == 1 and array.any()]
        if not numbers or (node.op == "Div" and numbers != [node.inputs[1]]):
            break
        value = float(known[numbers[0]].ravel()[0])
        factor *= value if node.op == "Mul" else 1 / value
        name = next(one for one in node.inputs if one != numbers[0])
        node = writer.get(name)
    return name, factor


def _of_groups(name: str, flip: bool, graph: Graph, writer: Writer) -> str | None:
    """Return the keys or values that a tensor repeats for the queries of a group; None if it does not.

    Args:
        flip: whether heads are transposed in the tensor.
    """
    heads, last, node = graph.shapes[name][-3:], name, writer.get(name)
    while node is not None and node.op in MOVES:
        last = node.inputs[0]
        own, node = graph.shapes[last][-3:], writer.get(last)
        fits = len(own) == 3 and np.prod(graph.shapes[last]) == np.prod(own) and heads[0] % own[0] == 0
        if not fits or own[0] == heads[0] or own[1:] != (heads[:0:-1] if flip else heads[1:]):
            continue
        numbers = np.arange(np.prod(own)).reshape(own)
        moved = _moved(name, {last: numbers.reshape(graph.shapes[last])}, graph, writer)
        repeated = np.repeat(numbers, heads[0] // own[0], axis=0)
        if moved is not None and np.array_equal(moved.ravel(), (repeated.swapaxes(1, 2) if flip else repeated).ravel()):
            return last
    return None


def rotary_node(root: Node, graph: Graph, writer: Writer) -> Node | None:
    """Return the rotary embedding x * cosines + turned * sines; None if a sum computes something else.

    Halves of a row turn with each other, by angles that depend on the row alone.
    """
    products = [one for name in root.inputs if (one := writer.get(name)) is not None and one.op == "Mul"]
    pairs = [sorted(one.inputs, key=lambda name: name in graph.known) for one in products]
    for (x, cosines), (turned, sines) in permutations(pairs, 2):
        if {x, turned} & graph.known.keys() or not {cosines, sines} <= graph.known.keys():
            continue
        shape, last = graph.shapes[x], writer.get(turned)
        tables = [graph.known[name] for name in (cosines, sines)]
        fits = all(t.size == np.prod(shape[-2:]) and t.shape[-2:] == shape[-2:] for t in tables)
        if last is None or last.op != "Concat" or shape[-1] % 2 or not fits:
            continue
        numbers = np.arange(1, np.prod(shape) + 1).reshape(shape)
        low, high = np.split(numbers, 2, axis=-1)
        found = _moved(turned, {x: numbers}, graph, writer)
        halves = [np.split(table.reshape(shape[-2:]), 2, axis=-1) for table in tables]
        equal = all(np.array_equal(one, other) for one, other in halves)
        if equal and found is not None and np.array_equal(found, np.concatenate([-high, low], axis=-1)):
            each = zip(("cosine", "sine"), halves, strict=True)
            names = (graph.new_known(f"{root.output}.{name}", pair[0]) for name, pair in each)
            return Node("RotaryEmbedding", root.name, (x, *names), root.output)
    return None


def _moved(name: str, given: Mapping[str, Array], graph: Graph, writer: Writer) -> Array | None:
    """Compute a tensor from given ones by moving their elements; None if that is not enough."""
    movers = {output: node for output, node in writer.items() if node.op in MOVES}
    return _computed(name, dict(given), graph, movers)


GELU = {"Add", "Div", "Erf", "Mul", "Pow", "Tanh"}
GELU_OFF = 1e-3
"""Largest difference between the Gaussian error linear unit and its approximation, and as much again."""


def gelu_node(root: Node, graph: Graph, writer: Writer) -> Node | None:
    """Return the Gaussian error linear unit that a product computes of a tensor, exactly or by its approximation."""
    inner, waiting = dict[str, Node](), [root]
    while waiting and len(inner) <= MOST_GELU:
        node = waiting.pop()
        inner[node.output] = node
        waiting += [own for n in node.inputs if (own := writer.get(n)) and own.op in GELU and own.is_standard]
    if not any(node.op in {"Erf", "Tanh"} for node in inner.values()):
        return None
    shape = graph.shapes.get(root.output)
    x = np.linspace(-6, 6, 97)
    wanted = x * (1 + np.array([math.erf(one) for one in x / math.sqrt(2)])) / 2
    known = {name: array for name, array in graph.known.items() if array.size == 1}
    for name in dict.fromkeys(n for node in inner.values() for n in node.inputs if n not in graph.known):
        if graph.shapes.get(name) == shape:
            found = _computed(root.output, {name: x.astype(np.float32)}, replace(graph, known=known), inner)
            if found is not None and np.abs(found.ravel() - wanted).max() < GELU_OFF:
                return Node("Gelu", root.name, (name,), root.output)
    return None


MOST_GELU = 12
"""Nodes that a Gaussian error linear unit is written as, at most."""


def with_patterns(graph: Graph) -> Graph:
    """Return the graph with one node in place of each match of a pattern.

    Nodes that compute parts of a match stay for their other readers.
    """
    writer, found = graph.writer(), {"MatMul": attention_node, "Add": rotary_node, "Mul": gelu_node}
    wholes = (node.is_standard and node.op in found and found[node.op](node, graph, writer) for node in graph.nodes)
    return replace(graph, nodes=[whole or node for whole, node in zip(wholes, graph.nodes, strict=True)])


def parts_of(whole: Node, graph: Graph) -> list[Node]:
    """Return the nodes that a pattern has replaced by one node; none for a node of ONNX's own."""
    writer, found, waiting = graph.writer(), dict[str, Node](), [whole.output] if whole.proto is None else []
    while waiting:
        name = waiting.pop()
        if name in writer and name not in found and name not in whole.inputs:
            found[name] = writer[name]
            waiting += writer[name].inputs
    return list(found.values())
