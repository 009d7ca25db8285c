"""Operators that exporters write as several nodes: they are found in a graph and rewritten as one node.

A pattern is a tree of operators. A name represents a tensor, the same name the same tensor; a name that begins with "="
represents a known array. Factors and terms come in any order.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import replace

from .evaluate import evaluate
from .graph import Array, Graph, Node

# Attention and rotary embedding as exporters write them. A match is checked, and its sizes are read.
#
# Nodes that only move elements are not matched. They are computed, on numbers that identify the elements.


Bound = dict[str, str]
Writer = Mapping[str, Node]
MOVES = {"Concat", "Expand", "Neg", "Reshape", "Slice", "Split", "Squeeze", "Transpose", "Unsqueeze"}
LOWEST = -1e4  # exp of it is 0 in every type; half precision has no number below -65504


def number_of(bound: Bound, name: str, graph: Graph, default: float) -> float:
    """A known number of a pattern; not a number where it is an array."""
    array = graph.known[bound[name]] if name in bound else np.array(default)
    return float(array.ravel()[0]) if array.size == 1 else float("nan")


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
    if len(shape) < 2 or np.prod(shape) > MOST_SCORES or not over_last(softmax, graph):
        return None
    probe = np.random.default_rng(0).random(shape, np.float32)
    product = writer.get(_base_of(softmax.inputs[0], graph, writer) or "")
    if product is None or product.op != "MatMul" or not _is_same(weights, base, probe, graph, writer):
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


def _is_same(name: str, base: str, probe: Array, graph: Graph, writer: Writer) -> bool:
    found = _computed(name, {base: probe}, graph, writer)
    return found is not None and np.array_equal(found, probe)


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


def rotary_node(root: Node, bound: Bound, graph: Graph) -> Node | None:
    """Return the rotary embedding that a pattern found.

    None unless halves of a row turn with each other, by angles that depend on the row alone.
    """
    x, tables = bound["x"], [graph.known[bound[name]] for name in ("=cosine", "=sine")]
    shape = graph.shapes[x]
    turned = graph.writer().get(bound["turned"])
    if turned is None or turned.op != "Concat" or shape[-1] % 2:
        return None
    if any(t.size != np.prod(shape[-2:]) or t.shape[-2:] != shape[-2:] for t in tables):
        return None
    numbers = np.arange(1, np.prod(shape) + 1).reshape(shape)
    low, high = np.split(numbers, 2, axis=-1)
    found = _moved(bound["turned"], {x: numbers}, graph, graph.writer())
    if found is None or not np.array_equal(found, np.concatenate([-high, low], axis=-1)):
        return None
    halves = [np.split(table.reshape(shape[-2:]), 2, axis=-1) for table in tables]
    if any(not np.array_equal(one, other) for one, other in halves):
        return None
    pairs = zip(("cosine", "sine"), halves, strict=True)
    names = tuple(graph.new_known(f"{root.output}.{name}", pair[0]) for name, pair in pairs)
    return Node("RotaryEmbedding", root.name, (x, *names), root.output)


def _moved(name: str, given: Mapping[str, Array], graph: Graph, writer: Writer) -> Array | None:
    """Compute a tensor from given ones by moving their elements; None if that is not enough."""
    if name in given or name in graph.known:
        return given[name] if name in given else graph.known[name]
    node = writer.get(name)
    if node is None or node.op not in MOVES:
        return None
    arrays = {one: _moved(one, given, graph, writer) for one in node.inputs if one}
    found = {one: array for one, array in arrays.items() if array is not None}
    if len(found) < len(arrays) or node.proto is None:
        return None
    return evaluate(node.proto, found, graph.versions)[name]


Pattern = str | tuple[object, ...]
COMMUTE = {"Add", "Mul"}
EXACT = {
    **{"one": 1.0, "two": 2.0, "three": 3.0, "half": 0.5, "cubic": 0.044715},
    **{"slope": np.sqrt(2 / np.pi), "root": np.sqrt(2), "inverse": np.sqrt(0.5)},
}
"""Required values of a pattern's known numbers, by name."""

_HALF = "=half"
_ERF = ("Add", ("Erf", ("Div", "x", "=root")), "=one")
_ERF_MUL = ("Add", ("Erf", ("Mul", "x", "=inverse")), "=one")
_CENTRED = ("Sub", "x", ("ReduceMean", "x"))
_CUBES = (("Mul", "x", ("Mul", "x", "x")), ("Pow", "x", "=three"))
_TANHS = tuple(("Add", ("Tanh", ("Mul", ("Add", "x", ("Mul", cube, "=cubic")), "=slope")), "=one") for cube in _CUBES)


def _normed(x: Pattern) -> list[Pattern]:
    """Return the patterns that divide by the root of the mean square."""
    squares = [("Pow", x, "=two"), ("Mul", x, x)]
    roots = [("Sqrt", ("Add", ("ReduceMean", square), "=epsilon")) for square in squares]
    return [*(("Div", x, root) for root in roots), *(("Mul", x, ("Reciprocal", root)) for root in roots),
            *(("Mul", x, ("Div", "=one", root)) for root in roots)]  # fmt: skip


PATTERNS: dict[str, list[Pattern]] = {
    "Gelu": [
        shape
        for twice in (_ERF, _ERF_MUL, *_TANHS)
        for shape in (
            ("Mul", ("Mul", "x", twice), _HALF),
            ("Mul", ("Mul", "x", _HALF), twice),
            ("Mul", "x", ("Mul", twice, _HALF)),
        )
    ],
    "LayerNormalization": [("Add", ("Mul", normed, "=weight"), "=bias") for normed in _normed(_CENTRED)],
    "RMSNormalization": [("Mul", normed, "=weight") for normed in _normed("x")],
    "RotaryEmbedding": [("Add", ("Mul", "x", "=cosine"), ("Mul", "turned", "=sine"))],
}
"""Patterns of each operator; the first match counts."""


def match(pattern: Pattern, tensor: str, graph: Graph, writer: dict[str, Node], bound: Bound) -> Iterator[Bound]:
    """Yield the ways in which a tensor is computed as a pattern says."""
    if isinstance(pattern, str):
        if pattern.startswith("=") == (tensor in graph.known) and bound.get(pattern, tensor) == tensor:
            yield {**bound, pattern: tensor}
        return
    op, *parts = pattern
    node = writer.get(tensor)
    if node is None or node.op != op or not node.is_standard or len(node.inputs) < len(parts):
        return
    if any(name not in graph.shapes for name in node.inputs):
        return
    if (op == "Softmax" and not over_last(node, graph)) or (op == "ReduceMean" and not _is_mean_of_rows(node, graph)):
        return
    orders = [node.inputs[: len(parts)]]
    if op in COMMUTE:
        orders.append(orders[0][::-1])
    for order in orders:
        found = [bound]
        for part, name in zip(parts, order, strict=True):
            assert isinstance(part, str | tuple)
            found = [more for one in found for more in match(part, name, graph, writer, one)]
        yield from found


def over_last(node: Node, graph: Graph) -> bool:
    """Return whether a softmax runs along the last dimension of its input."""
    return graph.along_last(node, default=1 if graph.version < 13 else -1)  # ONNX's defaults


def _is_mean_of_rows(node: Node, graph: Graph) -> bool:
    """Return whether a mean runs along the last dimension and keeps it."""
    return graph.shapes.get(node.output) == (*graph.shapes[node.inputs[0]][:-1], 1)


def with_patterns(graph: Graph) -> Graph:
    """Return the graph with one node in place of each match of a pattern.

    Nodes that compute parts of a match stay for their other readers.
    """
    writer = graph.writer()
    return replace(graph, nodes=[_as_one(node, graph, writer) for node in graph.nodes])


def parts_of(whole: Node, graph: Graph) -> list[Node]:
    """Return the nodes that a pattern has replaced by one node; none for a node of ONNX's own."""
    writer, found, waiting = graph.writer(), dict[str, Node](), [whole.output] if whole.proto is None else []
    while waiting:
        name = waiting.pop()
        if name in writer and name not in found and name not in whole.inputs:
            found[name] = writer[name]
            waiting += writer[name].inputs
    return list(found.values())


def _as_one(node: Node, graph: Graph, writer: dict[str, Node]) -> Node:
    if node.op == "MatMul" and node.is_standard:
        return attention_node(node, graph, writer) or node
    for op, patterns in PATTERNS.items():
        for pattern in patterns:
            for bound in match(pattern, node.output, graph, writer, {}):
                made = _node(op, node, bound, graph)
                if made is not None:
                    return made
    return node


def _node(op: str, root: Node, bound: Bound, graph: Graph) -> Node | None:
    """Return the node that replaces a match; None if its numbers are not the operator's."""

    def number(name: str, default: float) -> float:
        return number_of(bound, name, graph, default)

    if op == "RotaryEmbedding":
        return rotary_node(root, bound, graph)
    if any(not np.isclose(number(f"={name}", value), value) for name, value in EXACT.items()):
        return None
    if np.isnan(number("=epsilon", 0.0)):
        return None
    names = tuple(bound[name] for name in ("x", "=weight", "=bias") if name in bound)
    attributes = {"epsilon": number("=epsilon", 0.0)} if "=epsilon" in bound else {}
    return Node(op, root.name, names, root.output, attributes)
