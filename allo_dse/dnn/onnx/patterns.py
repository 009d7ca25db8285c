"""Operators that exporters write as several: found in a graph, and written as one node.

A pattern is a tree of operators; a name stands for a tensor, the same name for the same tensor, and a name that begins
with "=" for a known array. Factors and terms come in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from .graph import Graph, Node

Pattern = str | tuple[object, ...]
Bound = dict[str, str]
COMMUTE = {"Add", "Mul"}
EXACT = {"one": 1.0, "two": 2.0, "three": 3.0, "half": 0.5, "cubic": 0.044715, "slope": np.sqrt(2 / np.pi)}
"""What known numbers of a pattern are to be, by name."""
LOWEST = -1e4  # exp of it is 0 in every type; half precision has no number below -65504

_HALF = "=half"
_ERF = ("Add", ("Erf", ("Div", "x", "=root")), "=one")
_ERF_MUL = ("Add", ("Erf", ("Mul", "x", "=root")), "=one")
_CENTRED = ("Sub", "x", ("ReduceMean", "x"))
_CUBES = (("Mul", "x", ("Mul", "x", "x")), ("Pow", "x", "=three"))
_TANHS = tuple(("Add", ("Tanh", ("Mul", ("Add", "x", ("Mul", cube, "=cubic")), "=slope")), "=one") for cube in _CUBES)


def _normed(x: Pattern) -> list[Pattern]:
    """What divides by the root of the mean square."""
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
    "SiluMul": [("Mul", ("Mul", "x", ("Sigmoid", "x")), "up")],
    "Silu": [("Mul", "x", ("Sigmoid", "x"))],
    "LayerNormalization": [("Add", ("Mul", normed, "=weight"), "=bias") for normed in _normed(_CENTRED)],
    "RMSNormalization": [("Mul", normed, "=weight") for normed in _normed("x")],
    "Attention": [
        ("MatMul", ("Softmax", ("Add", "scores", "=mask")), "v"),
        ("MatMul", ("Softmax", ("Where", "=shown", "scores", "=lowest")), "v"),
        ("MatMul", ("Softmax", ("Where", "=hidden", "=lowest", "scores")), "v"),
        ("MatMul", ("Softmax", "scores"), "v"),
    ],
}
"""What stands for what; the first that fits is taken."""


def match(pattern: Pattern, tensor: str, graph: Graph, writer: dict[str, Node], bound: Bound) -> Iterator[Bound]:
    """The ways in which a tensor is computed as a pattern says."""
    if isinstance(pattern, str):
        if pattern.startswith("=") == (tensor in graph.known) and bound.get(pattern, tensor) == tensor:
            yield {**bound, pattern: tensor}
        return
    op, *parts = pattern
    node = writer.get(tensor)
    if node is None or node.op != op or len(node.inputs) < len(parts):
        return
    if op in {"ReduceMean", "Softmax"} and not over_last(node, graph):
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
    """Whether a node works along the last dimension of what it reads."""
    return axes_of(node, graph) in ([-1], [len(graph.shapes[node.inputs[0]]) - 1])


def axes_of(node: Node, graph: Graph) -> list[int]:
    """The dimensions along which a node works; none where they are not known."""
    if len(node.inputs) > 1:
        return [int(one) for one in graph.known.get(node.inputs[1], np.zeros(0)).ravel()]
    given = node.attributes.get("axes", node.attributes.get("axis", -1))
    return list(given) if isinstance(given, list | tuple) else [int(str(given))]


def with_patterns(graph: Graph) -> Graph:
    """The graph in which what makes up a pattern is one node; what computes its parts stays for who reads them."""
    writer = graph.writer()
    return replace(graph, nodes=[_as_one(node, graph, writer) for node in graph.nodes])


def _as_one(node: Node, graph: Graph, writer: dict[str, Node]) -> Node:
    for op, patterns in PATTERNS.items():
        for pattern in patterns:
            for bound in match(pattern, node.output, graph, writer, {}):
                made = _node(op, node, bound, graph)
                if made is not None:
                    return made
    return node


def _number(bound: Bound, name: str, graph: Graph, default: float) -> float:
    array = graph.known[bound[name]] if name in bound else np.array(default)
    return float(array.ravel()[0]) if array.size == 1 else float("nan")


def _node(op: str, root: Node, bound: Bound, graph: Graph) -> Node | None:
    """The node that stands for a pattern; None where its numbers are others than the operator's."""

    def number(name: str, default: float) -> float:
        return _number(bound, name, graph, default)

    if op == "Attention":
        return _attention(root, bound, graph)
    if any(not np.isclose(number(f"={name}", value), value) for name, value in EXACT.items()):
        return None
    if "=root" in bound and not np.isclose(max(number("=root", 0), 1 / number("=root", 1)), np.sqrt(2)):
        return None
    names = tuple(bound[name] for name in ("x", "up", "=weight", "=bias") if name in bound)
    attributes = {"epsilon": number("=epsilon", 0.0)} if "=epsilon" in bound else {}
    return Node(op, root.name, names, root.output, attributes)


def _attention(root: Node, bound: Bound, graph: Graph) -> Node | None:
    """Keys come transposed here; None where what is hidden is not what comes after a query."""
    writer = graph.writer()
    scores, factor = _unscaled(bound["scores"], graph, writer)
    product = writer.get(scores)
    if product is None or product.op != "MatMul":
        return None
    (q, of_q), (k, of_k) = (_unscaled(name, graph, writer) for name in product.inputs)
    length, over = graph.shapes[q][-2], graph.shapes[k][-1]
    shown = np.broadcast_to(_shown(bound, graph), (*graph.shapes[bound["scores"]][:-2], length, over))
    shown = shown.reshape(-1, length, over)
    causal = length == over > 1 and bool(np.array_equal(shown[0], np.tri(length, dtype=bool)))
    if (shown != shown[0]).any() or not (causal or shown.all()):
        return None
    attributes = {"scale": factor * of_q * of_k, "is_causal": int(causal), "keys_transposed": 1}
    return Node("Attention", root.name, (q, k, bound["v"]), root.output, attributes)


def _unscaled(name: str, graph: Graph, writer: dict[str, Node]) -> tuple[str, float]:
    """The tensor of which a tensor is a multiple, and the factor: PyTorch scales scores, queries, or keys too."""
    factor, node = 1.0, writer.get(name)
    while node is not None and node.op in {"Mul", "Div"}:
        numbers = [one for one in node.inputs if one in graph.known and graph.known[one].size == 1]
        if not numbers or (node.op == "Div" and numbers != [node.inputs[1]]):
            break
        value = float(graph.known[numbers[0]].ravel()[0])
        factor *= value if node.op == "Mul" else 1 / value
        name = next(one for one in node.inputs if one != numbers[0])
        node = writer.get(name)
    return name, factor


def _shown(bound: Bound, graph: Graph) -> NDArray[np.bool_]:
    """Which scores the softmax sees: of a mask those to which nothing is added, where so much is taken off the others
    that their weights vanish."""
    if "=mask" in bound:
        mask = graph.known[bound["=mask"]].astype(np.float32)
        return np.asarray((mask == 0) if ((mask == 0) | (mask <= LOWEST)).all() else np.zeros_like(mask, bool))
    if "=lowest" not in bound:
        return np.ones((1, 1), bool)
    lowest = _number(bound, "=lowest", graph, 0.0) <= LOWEST
    shown = graph.known[bound["=shown"]] if "=shown" in bound else np.logical_not(graph.known[bound["=hidden"]])
    return shown.astype(bool) & lowest
