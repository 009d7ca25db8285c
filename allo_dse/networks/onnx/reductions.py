"""Reductions over any dimensions, and norms over groups of channels: the rows of a rearranged matrix."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from ..operators.elementwise import centred, normed
from ..operators.execute import Expr, Operand
from ..operators.expressions import MOST_WIDTH, number
from .builder import Array, Builder
from .graph import Node

X: Expr = ("in", 0)
FULL, COLUMN = Operand("full"), Operand("column")
Parts = tuple[Expr, str, Callable[[Expr, int], Expr]]

_MEAN: Parts = (X, "row_sum", lambda one, size: ("mul", one, number(1 / size)))
_MAX: Parts = (X, "row_max", lambda one, _: one)
REDUCTIONS: dict[str, Parts] = {
    "GlobalAveragePool": _MEAN,
    "GlobalMaxPool": _MAX,
    "ReduceL1": (("max", X, ("mul", X, number(-1))), "row_sum", lambda one, _: one),
    "ReduceL2": (("mul", X, X), "row_sum", lambda one, _: ("sqrt", one)),
    "ReduceLogSum": (X, "row_sum", lambda one, _: ("log", one)),
    "ReduceMax": _MAX,
    "ReduceMean": _MEAN,
    "ReduceMin": (X, "row_min", lambda one, _: one),
    "ReduceSum": (X, "row_sum", lambda one, _: one),
    "ReduceSumSquare": (("mul", X, X), "row_sum", lambda one, _: one),
}
"""ONNX's reductions: what is reduced of an element, how, and what becomes of the result and the number of elements."""


def axes_of(builder: Builder, node: Node) -> list[int]:
    """Return the dimensions that a node reduces; all where none are given.

    Raises:
        StudyError: if they are not known.
    """
    rank, given = len(builder.shape(node.inputs[0])), node.attributes.get("axes")
    if node.op.startswith("Global"):
        return list(range(2, rank))
    if len(node.inputs) > 1:
        known = builder.graph.known.get(node.inputs[1])
        if known is None:
            raise builder.refuse(node, "dimensions that are not known")
        given = known.ravel().tolist()
    if not given and node.number("noop_with_empty_axes", 0):
        raise builder.refuse(node, "no dimensions")
    return sorted(int(one) % rank for one in given or range(rank))  # type: ignore[attr-defined]


def reduction(builder: Builder, node: Node) -> None:
    """Convert a reduction: the reduced dimensions become the rows of a matrix."""
    x, (before, op, after) = node.inputs[0], REDUCTIONS[node.op]
    shape, axes = builder.shape(x), axes_of(builder, node)
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


def group_norm(builder: Builder, node: Node) -> None:
    """Convert a norm over groups of channels, or over each channel: over the rows of a matrix.

    Raises:
        StudyError: if weights are not known.
    """
    x, *names = node.inputs
    known, (batch, channels, *sides) = builder.graph.known, builder.shape(x)
    if any(name not in known for name in names):
        raise builder.refuse(node, "weights of each channel must be constants")
    groups = int(node.number("num_groups", channels))
    repeat = channels // known[names[0]].size  # before version 21 weights were those of groups
    scale, bias = (np.repeat(known[name].astype(np.float32).ravel(), repeat) for name in names)
    size, each = math.prod(sides), channels // groups
    rows, width = batch * groups, each * size
    own = builder.read(x)
    weights = builder.known(np.stack([np.tile(one, batch) for one in (scale, bias)]))
    if width > MOST_WIDTH:
        return _long_norm(builder, node, (rows, width), (batch * channels, size), weights)
    whole = normed(centred(X), node.number("epsilon", 1e-5))
    if each == 1:
        expr: Expr = ("add", ("mul", whole, ("in", 1)), ("in", 2))
        given = [FULL, Operand("column", 2)]
        builder.expression(node, "norm", expr, given, (rows, width), [own, weights], output=node.output)
        return None
    made = builder.expression(node, "norm", whole, [FULL], (rows, width), [own])
    if (scale == 1).all() and not bias.any():
        builder.rearrange(node, lambda one: one, made)
        return None
    expr = ("add", ("mul", X, ("in", 1)), ("in", 2))
    given, shape = [FULL, Operand("column", 2)], (batch * channels, size)
    builder.expression(node, "scale", expr, given, shape, [made, weights], output=node.output)
    return None


def _long_norm(builder: Builder, node: Node, size: tuple[int, int], channels: tuple[int, int], weights: str) -> None:
    """Add the steps of a norm of rows that no core holds: sums of parts of them, then a pass over the elements."""
    rows, width = size
    x, each = builder.read(node.inputs[0]), channels[0] // rows
    total = builder.reduced(node, "row_sum", x, rows, width)
    mean = builder.expression(node, "mean", ("mul", X, number(1 / width)), [FULL], (rows, 1), [total])

    def spread(one: Array) -> Array:
        return np.repeat(one.ravel(), each)

    centred = builder.expression(
        node, "centred", ("sub", X, ("in", 1)), [FULL, COLUMN], channels, [x, builder.arranged(spread, mean)]
    )
    squares = builder.expression(node, "squares", ("mul", X, X), [FULL], (rows * width, 1), [centred])
    total = builder.reduced(node, "row_sum", squares, rows, width)
    epsilon = number(node.number("epsilon", 1e-5))
    root: Expr = ("div", number(1), ("sqrt", ("add", ("mul", X, number(1 / width)), epsilon)))
    scale = builder.expression(node, "root", root, [FULL], (rows, 1), [total])
    columns = builder.arranged(lambda a, b: np.concatenate([np.repeat(a.ravel(), each)[None], b]), scale, weights)
    expr: Expr = ("add", ("mul", ("mul", X, ("in", 1)), ("in", 2)), ("in", 3))
    given = [FULL, Operand("column", 3)]
    builder.expression(node, "norm", expr, given, channels, [centred, columns], output=node.output)
