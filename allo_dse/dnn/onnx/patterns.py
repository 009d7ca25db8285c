"""Operators that exporters write as several: found in a graph, and written as one node.

A pattern is a tree of operators; a name stands for a tensor, the same name for the same tensor, and a name that begins
with "=" for a known array. Factors and terms come in any order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from allo_dse.common.records import replace

from .graph import Graph, Node
from .transformers import Bound, attention_node, number_of, rotary_node

Pattern = str | tuple[object, ...]
COMMUTE = {"Add", "Mul"}
EXACT = {
    **{"one": 1.0, "two": 2.0, "three": 3.0, "half": 0.5, "cubic": 0.044715},
    **{"slope": np.sqrt(2 / np.pi), "root": np.sqrt(2), "inverse": np.sqrt(0.5)},
}
"""What known numbers of a pattern are to be, by name."""

_HALF = "=half"
_ERF = ("Add", ("Erf", ("Div", "x", "=root")), "=one")
_ERF_MUL = ("Add", ("Erf", ("Mul", "x", "=inverse")), "=one")
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
    "RotaryEmbedding": [("Add", ("Mul", "x", "=cosine"), ("Mul", "turned", "=sine"))],
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
    """Whether a softmax is along the last dimension of what it reads."""
    return graph.along_last(node, default=1 if graph.functions.get("", 1) < 13 else -1)  # as ONNX has it


def _is_mean_of_rows(node: Node, graph: Graph) -> bool:
    """Whether a mean is along the last dimension, which is kept."""
    return graph.shapes.get(node.output) == (*graph.shapes[node.inputs[0]][:-1], 1)


def with_patterns(graph: Graph) -> Graph:
    """The graph in which what makes up a pattern is one node; what computes its parts stays for who reads them."""
    writer = graph.writer()
    return replace(graph, nodes=[_as_one(node, graph, writer) for node in graph.nodes])


def parts_of(whole: Node, graph: Graph) -> list[Node]:
    """The nodes of a graph that one node stands for, which a pattern has made of them; none for ONNX's own."""
    writer, found, waiting = graph.writer(), dict[str, Node](), [whole.output] if whole.proto is None else []
    while waiting:
        name = waiting.pop()
        if name in writer and name not in found and name not in whole.inputs:
            found[name] = writer[name]
            waiting += writer[name].inputs
    return list(found.values())


def _as_one(node: Node, graph: Graph, writer: dict[str, Node]) -> Node:
    for op, patterns in PATTERNS.items():
        for pattern in patterns:
            for bound in match(pattern, node.output, graph, writer, {}):
                made = _node(op, node, bound, graph)
                if made is not None:
                    return made
    return node


def _node(op: str, root: Node, bound: Bound, graph: Graph) -> Node | None:
    """The node that stands for a pattern; None where its numbers are others than the operator's."""

    def number(name: str, default: float) -> float:
        return number_of(bound, name, graph, default)

    if op == "Attention":
        return attention_node(root, bound, graph)
    if op == "RotaryEmbedding":
        return rotary_node(root, bound, graph)
    if any(not np.isclose(number(f"={name}", value), value) for name, value in EXACT.items()):
        return None
    if np.isnan(number("=epsilon", 0.0)) or ("up" in bound and graph.shapes[bound["up"]] != graph.shapes[bound["x"]]):
        return None
    names = tuple(bound[name] for name in ("x", "up", "=weight", "=bias") if name in bound)
    attributes = {"epsilon": number("=epsilon", 0.0)} if "=epsilon" in bound else {}
    return Node(op, root.name, names, root.output, attributes)
