"""Operators that exporters write as several: found in a graph, and written as one node.

A pattern is a tree of operators; a name stands for a tensor, the same name for the same tensor, and a name that begins
with "=" for a known array. Factors and terms come in any order.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from .graph import Graph, Node

Pattern = str | tuple[object, ...]
Bound = dict[str, str]
COMMUTE = {"Add", "Mul"}

_HALF = "=half"
_ERF = ("Add", ("Erf", ("Div", "x", "=root")), "=one")
_ERF_MUL = ("Add", ("Erf", ("Mul", "x", "=root")), "=one")
_CENTRED = ("Sub", "x", ("ReduceMean", "x"))
_SCORES = ("MatMul", "q", "k")
_SCALED = (("Mul", _SCORES, "=factor"), ("Div", _SCORES, "=divisor"), _SCORES)


def _normed(x: Pattern) -> list[Pattern]:
    """What divides by the root of the mean square."""
    squares = [("Pow", x, "=two"), ("Mul", x, x)]
    roots = [("Sqrt", ("Add", ("ReduceMean", square), "=epsilon")) for square in squares]
    return [*(("Div", x, root) for root in roots), *(("Mul", x, ("Reciprocal", root)) for root in roots),
            *(("Mul", x, ("Div", "=one", root)) for root in roots)]  # fmt: skip


PATTERNS: dict[str, list[Pattern]] = {
    "Gelu": [
        shape
        for erf in (_ERF, _ERF_MUL)
        for shape in (
            ("Mul", ("Mul", "x", erf), _HALF),
            ("Mul", ("Mul", "x", _HALF), erf),
            ("Mul", "x", ("Mul", erf, _HALF)),
        )
    ],
    "SiluMul": [("Mul", ("Mul", "x", ("Sigmoid", "x")), "up")],
    "Silu": [("Mul", "x", ("Sigmoid", "x"))],
    "LayerNormalization": [("Add", ("Mul", normed, "=weight"), "=bias") for normed in _normed(_CENTRED)],
    "RMSNormalization": [("Mul", normed, "=weight") for normed in _normed("x")],
    "Attention": [
        *(("MatMul", ("Softmax", ("Add", scaled, "=mask")), "v") for scaled in _SCALED),
        *(("MatMul", ("Softmax", ("Where", "=shown", scaled, "=hidden")), "v") for scaled in _SCALED),
        *(("MatMul", ("Softmax", scaled), "v") for scaled in _SCALED),
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
    if len(node.inputs) > 1:
        axes = graph.known[node.inputs[1]].tolist() if node.inputs[1] in graph.known else []
    else:
        given = node.attributes.get("axes", node.attributes.get("axis", -1))
        axes = list(given) if isinstance(given, list | tuple) else [given]
    return axes in ([-1], [len(graph.shapes[node.inputs[0]]) - 1])


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

    if number("=one", 1) != 1 or number("=half", 0.5) != 0.5 or number("=two", 2) != 2:
        return None
    if "=root" in bound and not np.isclose(max(number("=root", 0), 1 / number("=root", 1)), np.sqrt(2)):
        return None
    if op == "Attention":
        return _attention(root, bound, graph)
    names = tuple(bound[name] for name in ("x", "up", "=weight", "=bias") if name in bound)
    attributes = {"epsilon": number("=epsilon", 0.0)} if "=epsilon" in bound else {}
    return Node(op, root.name, names, root.output, attributes)


def _attention(root: Node, bound: Bound, graph: Graph) -> Node | None:
    """Keys come transposed here; None where what is hidden is not what comes after a query."""
    factor = _number(bound, "=factor", graph, 1.0) / _number(bound, "=divisor", graph, 1.0)
    length, over = graph.shapes[bound["q"]][-2], graph.shapes[bound["k"]][-1]
    if "=mask" in bound:
        shown = graph.known[bound["=mask"]] == 0
    else:
        shown = graph.known[bound["=shown"]] if "=shown" in bound else np.ones((length, over), bool)
    shown = np.broadcast_to(shown.astype(bool), (*shown.shape[:-2], length, over)).reshape(-1, length, over)
    causal = bool(np.array_equal(shown[0], np.tri(length, over, dtype=bool)))
    if (shown != shown[0]).any() or not (causal or shown.all()) or length != over or np.isnan(factor):
        return None
    attributes = {"scale": factor, "is_causal": int(causal), "keys_transposed": 1}
    return Node("Attention", root.name, (bound["q"], bound["k"], bound["v"]), root.output, attributes)
