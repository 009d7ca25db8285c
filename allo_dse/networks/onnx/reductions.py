"""Reductions over any dimensions: the rows of a rearranged matrix."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..operators.execute import Expr, Operand
from ..operators.expressions import MOST_WIDTH, number
from .builder import Builder
from .graph import Graph, Node

X: Expr = ("in", 0)
FULL = Operand("full")
Parts = tuple[Expr, str, Callable[[Expr, int], Expr]]


def _as_it_is(one: Expr, _: int) -> Expr:
    return one


_MEAN: Parts = (X, "row_sum", lambda one, size: ("mul", one, number(1 / size)))
_MAX: Parts = (X, "row_max", _as_it_is)
REDUCTIONS: dict[str, Parts] = {
    "GlobalAveragePool": _MEAN,
    "GlobalMaxPool": _MAX,
    "ReduceL1": (("max", X, ("mul", X, number(-1))), "row_sum", _as_it_is),
    "ReduceL2": (("mul", X, X), "row_sum", lambda one, _: ("sqrt", one)),
    "ReduceLogSum": (X, "row_sum", lambda one, _: ("log", one)),
    "ReduceMax": _MAX,
    "ReduceMean": _MEAN,
    "ReduceMin": (X, "row_min", _as_it_is),
    "ReduceSum": (X, "row_sum", _as_it_is),
    "ReduceSumSquare": (("mul", X, X), "row_sum", _as_it_is),
}
"""ONNX's reductions: what is reduced of an element, how, and what becomes of the result and the number of elements."""


def axes_of(graph: Graph, node: Node) -> list[int]:
    """Return the dimensions that a node reduces, all by default; none if they are not known."""
    rank, given = len(graph.shapes[node.inputs[0]]), node.attributes.get("axes")
    if node.op.startswith("Global"):
        return list(range(2, rank))
    if len(node.inputs) > 1:
        known = graph.known.get(node.inputs[1])
        if known is None:
            return []
        given = known.ravel().tolist()
    if not given and node.number("noop_with_empty_axes", 0):
        return []
    return sorted(int(one) % rank for one in given or range(rank))  # type: ignore[attr-defined]


def reduction(builder: Builder, node: Node) -> None:
    """Convert a reduction: the reduced dimensions become the rows of a matrix."""
    x, (before, op, after) = node.inputs[0], REDUCTIONS[node.op]
    shape, axes = builder.shape(x), axes_of(builder.graph, node)
    if not axes:
        raise builder.refuse(node, "dimensions that are not known")
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    rows, width = math.prod(shape[axis] for axis in kept), math.prod(shape[axis] for axis in axes)
    turned = builder.arranged(lambda one: one.reshape(shape).transpose(*kept, *axes), x)
    if width > MOST_WIDTH:
        if before != X:
            turned = builder.expression(node, node.op.lower(), before, [FULL], (rows * width, 1), [turned])
        total = builder.reduced(node, op, turned, rows, width)
        builder.expression(node, node.op.lower(), after(X, width), [FULL], (rows, 1), [total], output=node.output)
        return
    expr = after((op, before), width)
    builder.expression(node, node.op.lower(), expr, [FULL], (rows, width), [turned], output=node.output)
