"""Functions of elements, and reductions: nodes of ONNX that follow each other become an expression and a program."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Literal

import numpy as np

from allo_dse.common.records import replace

from ..network import Shape
from ..operators.execute import Expr, Operand
from ..operators.expressions import (
    BINARY,
    MOST_WIDTH,
    UNARY,
    by_reciprocals,
    composed,
    fits,
    input_of,
    inside,
    number,
    power,
)
from .builder import Array, Builder
from .graph import Graph, Node

X: Expr = ("in", 0)
FULL = Operand("full")
Parts = tuple[Expr, str, Callable[[Expr, int], Expr]]


def _same(one: Expr, _: int) -> Expr:
    return one


_MEAN: Parts = (X, "row_sum", lambda one, size: ("mul", one, number(1 / size)))
_MAX: Parts = (X, "row_max", _same)
REDUCTIONS: dict[str, Parts] = {
    "GlobalAveragePool": _MEAN,
    "GlobalMaxPool": _MAX,
    "ReduceL1": (("max", X, ("mul", X, number(-1))), "row_sum", _same),
    "ReduceL2": (("mul", X, X), "row_sum", lambda one, _: ("sqrt", one)),
    "ReduceLogSum": (X, "row_sum", lambda one, _: ("log", one)),
    "ReduceMax": _MAX,
    "ReduceMean": _MEAN,
    "ReduceMin": (X, "row_min", _same),
    "ReduceSum": (X, "row_sum", _same),
    "ReduceSumSquare": (("mul", X, X), "row_sum", _same),
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


EXPRESSED = {*BINARY, *UNARY, "Cast", "Mean", "Clip", "Pow", "Where", "IsNaN"}


def reduced_from(node: Node, graph: Graph) -> int:
    """Return the first of the last dimensions that a reduction reduces and keeps with one element; -1 for other nodes.

    A core holds what it reduces.
    """
    shape = graph.shapes.get(node.inputs[0], ()) if node.op in REDUCTIONS and node.is_standard else ()
    axes = axes_of(graph, node) if shape else []
    first, kept = len(shape) - len(axes), (*shape[: len(shape) - len(axes)], *(1 for _ in axes))
    fits = axes == list(range(first, len(shape))) and 1 < math.prod(shape[first:]) <= MOST_WIDTH
    return first if axes and fits and kept == graph.shapes[node.output] else -1


def expression_of(node: Node, graph: Graph) -> Expr | None:
    """Return what a node computes of each element; its n-th input is ("in", n). None if that is no expression."""
    if (first := reduced_from(node, graph)) >= 0:
        before, op, after = REDUCTIONS[node.op]
        return after((op, before), math.prod(graph.shapes[node.inputs[0]][first:]))
    if not (node.is_standard or node.op == "QuickGelu") or node.op not in EXPRESSED:
        return None
    if node.op == "Cast" and not all(map(graph.is_float, (*node.inputs, node.output))):
        return None
    whole = sum(graph.shapes.get(name) == graph.shapes[node.output] for name in node.inputs)

    def read(at: int, name: str) -> Expr:
        """An input as a number if its elements are equal and others have the shape of the result."""
        known = graph.known.get(name)
        alike = known is not None and (known.size == 1 or (whole > 1 and known.size and (known == known.flat[0]).all()))
        return number(float(known.flat[0])) if known is not None and alike else ("in", at)

    given = list(map(read, count(), node.inputs))
    found = given[0]
    if node.op == "Clip":  # limits are inputs or, in old models, attributes; one that is not given is empty
        for at, (op, name) in enumerate((("max", "min"), ("min", "max")), 1):
            limit = given[at] if at < len(given) and node.inputs[at] else None
            if limit is None and name in node.attributes:
                limit = number(node.number(name, 0.0))
            if limit is not None:
                found = (op, found, limit)
        return found
    if node.op == "Pow":
        known = graph.known.get(node.inputs[1])
        return None if known is None or known.size != 1 else power(given[0], float(known.ravel()[0]))
    if node.op == "Where":
        return ("where", *given)
    if node.op == "IsNaN":
        return ("sub", number(1), ("eq", given[0], given[0]))
    if node.op == "Div" and given[1][0] == "number" and given[1] != number(0):
        return ("mul", given[0], number(1 / float(given[1][1])))  # type: ignore[arg-type]
    if node.op == "Cast":
        return found
    if node.op in UNARY:
        return UNARY[node.op](found, node.number)
    for one in given[1:]:
        found = BINARY["Add" if node.op == "Mean" else node.op](found, one)
    return ("mul", found, number(1 / len(given))) if node.op == "Mean" else found


@dataclass(frozen=True)
class Group:
    """Nodes that are one expression.

    Attributes:
        root: the node that writes the result.
        nodes: all of them.
        expr: of `leaves`, the tensors that they read.
        split: the first dimension that its reductions reduce; -1 without any.
    """

    root: Node
    nodes: tuple[Node, ...]
    expr: Expr
    leaves: tuple[str, ...]
    split: int = -1

    @property
    def kind(self) -> str:
        if self.split >= 0:
            return "norm" if any(one.op == "Sqrt" for one in self.nodes) else "rows"
        names = dict.fromkeys(one.op.lower() for one in self.nodes)
        return "_".join(list(names)[:4])


@dataclass
class Groups:
    """The groups of a graph, by the node that writes their result.

    Attributes:
        apart: nodes that get programs of the user's.
        within: the nodes that may be in groups; all by default.
    """

    graph: Graph
    apart: Collection[str]
    within: Sequence[Node] | None = None
    found: dict[str, Group] = field(default_factory=dict)
    inner: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        nodes = self.graph.nodes if self.within is None else self.within
        self._writer = {name: node for node in nodes for name in node.outputs}
        self._readers = self.graph.readers()
        for node in reversed(nodes):
            if node.output in self.inner or (own := self._single(node)) is None or own.split >= 0:
                continue  # a reduction that no node after it takes along has a program of its own
            group = self._grown(own)
            if self.graph.is_float(node.output) or node.output in self.graph.whole:
                self.found[node.output] = group
                self.inner |= {one.output for one in group.nodes if one is not node}

    def _single(self, node: Node) -> Group | None:
        """Return a node as a group of its own; None if it is no expression, or of other numbers."""
        graph = self.graph
        if node.name in self.apart or node.op in self.apart or graph.shapes.get(node.output) is None:
            return None
        expr = expression_of(node, graph)
        if expr is None or not all(map(self._plain, (*filter(None, node.inputs), node.output))):
            return None
        return replace(_group(node, (node,), expr, node.inputs), split=reduced_from(node, graph))

    def _plain(self, name: str) -> bool:
        """Return whether elements are floats or truth values, of a shape that no input changes."""
        from onnx import TensorProto

        known = self.graph.known.get(name)
        if known is not None and known.size == 1:
            return True
        fixed = name not in self.graph.open and min(self.graph.shapes.get(name, (0,)), default=1) > 0
        typed = name in self.graph.whole or self.graph.elements.get(name) == TensorProto.BOOL
        return fixed and (typed or self.graph.is_float(name))

    def _grown(self, group: Group) -> Group:
        """Return a group with nodes before it whose results no other node reads, as far as one program has room."""
        for leaf in group.leaves:
            more = self._extended(group, leaf, LOOKAHEAD)
            if more is not None:
                return self._grown(more)
        return group

    def _extended(self, group: Group, leaf: str, further: int) -> Group | None:
        """Return a group with the node that writes a leaf, and with nodes before that one if only they make it fit."""
        before = self._writer.get(leaf)
        inside = {one.output for one in group.nodes}
        if before is None or leaf in self.graph.outputs or any(o.output not in inside for o in self._readers[leaf]):
            return None
        own = self._single(before)
        if own is None or leaf in self.found:
            return None
        splits = {one.split for one in (own, group)} - {-1}
        reads = own.split < 0 or self.graph.shapes[before.inputs[0]] == self.graph.shapes[group.root.output]
        if len(splits) > 1 or not reads:
            return None
        more = replace(_joined(own, group, leaf), split=max(own.split, group.split))
        if view_of(self.graph, more) is not None:
            return more
        found = (self._extended(more, one, further - 1) for one in own.leaves if further)
        return next((one for one in found if one is not None), None)


LOOKAHEAD = 6
"""Nodes beyond one that does not fit: a norm reads its input and the root of a mean until the mean is part of it."""


def _group(root: Node, nodes: tuple[Node, ...], expr: Expr, inputs: Sequence[str]) -> Group:
    used = sorted({input_of(one) for one in inside(expr) if one[0] == "in"})
    leaves = tuple(dict.fromkeys(inputs[at] for at in used))
    given: list[Expr] = [("in", leaves.index(name)) if name in leaves else number(0) for name in inputs]
    return Group(root, nodes, composed(expr, given), leaves)


def _joined(before: Group, group: Group, leaf: str) -> Group:
    leaves = tuple(dict.fromkeys(name for name in (*before.leaves, *group.leaves) if name != leaf))
    own = composed(before.expr, [("in", leaves.index(name)) for name in before.leaves])
    given = [own if name == leaf else ("in", leaves.index(name)) for name in group.leaves]
    return Group(group.root, (*before.nodes, *group.nodes), composed(group.expr, given), leaves)


@dataclass(frozen=True)
class View:
    """A result as a matrix, and the tensors beside it.

    Attributes:
        split: the first dimension that is within a row.
        full: leaves as large as the result. rows, columns: leaves that rows, or columns, share.
        expanded: elements that are copied to make leaves of these.
    """

    split: int
    full: tuple[str, ...]
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    expanded: int

    def operands(self, types: Mapping[str, str]) -> list[Operand]:
        """The tensors that a program reads; rows, and columns, have one type, the first that one of them has."""
        found = [Operand("full", dtype=types.get(name, "Ty")) for name in self.full]
        for kind, names in (("row", self.rows), ("column", self.columns)):
            if names:
                own = next((types[name] for name in names if name in types), "Ty")
                found.append(Operand(kind, len(names), own))
        return found

    @property
    def leaves(self) -> tuple[str, ...]:
        return (*self.full, *self.rows, *self.columns)


def view_of(graph: Graph, group: Group, turn: bool = False) -> View | None:
    """Return how a group's result is a matrix, so that the fewest elements are copied; None if no core has room.

    Args:
        turn: channels come last, as in the pixels of images.
    """
    shape = turned(graph.shapes[group.root.output], turn)
    shapes = {name: turned(_aligned(graph.shapes[name], len(shape)), turn) for name in group.leaves}
    splits = range(len(shape) + 1) if group.split < 0 else () if turn else (group.split,)
    views = (_view(shape, shapes, split) for split in splits)
    return min((one for one in views if fits(one.operands({}))), key=lambda one: one.expanded, default=None)


def _aligned(shape: Shape, rank: int) -> Shape:
    return (1,) * (rank - len(shape)) + tuple(shape)


def turned(shape: Shape, turn: bool) -> Shape:
    """Return a shape with channels, the second dimension, last."""
    return (shape[0], *shape[2:], shape[1]) if turn and len(shape) > 1 else tuple(shape)


def _view(shape: Shape, shapes: Mapping[str, Shape], split: int) -> View:
    full: list[str] = []
    rows: list[str] = []
    columns: list[str] = []
    expanded, size = 0, math.prod(shape)
    for name, own in shapes.items():
        if own == shape:
            full.append(name)
            continue
        left, right = (
            [a == b for a, b in zip(own[cut], shape[cut], strict=True)] for cut in (slice(split), slice(split, None))
        )
        flat_left = all(one == 1 for one in own[:split])
        flat_right = all(one == 1 for one in own[split:])
        if flat_left and math.prod(shape[:split]) > 1:
            rows.append(name)
            expanded += 0 if all(right) else math.prod(shape[split:])
        elif flat_right:
            columns.append(name)
            expanded += 0 if all(left) else math.prod(shape[:split])
        else:
            full.append(name)
            expanded += size
    return View(split, tuple(full), tuple(rows), tuple(columns), expanded)


def add_group(builder: Builder, group: Group) -> None:
    """Add the step of a group.

    Raises:
        StudyError: if no program computes it on this device.
    """
    graph, root = builder.graph, group.root
    shape = graph.shapes[root.output]
    turn = len(shape) > 2 and group.split < 0 and any(map(builder.has_pixels, group.leaves))
    view = view_of(graph, group, turn)
    if view is None:
        raise builder.refuse(root, f"{group.kind} reads {', '.join(group.leaves)}; a core has channels for two")
    whole = turned(shape, turn)
    rows, width = math.prod(whole[: view.split]), math.prod(whole[view.split :])

    def part(name: str, kind: str) -> str:
        if graph.shapes[name] == shape:
            return builder.pixels(name) if turn else builder.read(name)
        own = turned(_aligned(graph.shapes[name], len(shape)), turn)
        outer = whole[: view.split] if kind != "row" else (1,) * view.split
        inner = whole[view.split :] if kind != "column" else (1,) * (len(whole) - view.split)

        def spread(array: Array) -> Array:
            array = array.reshape(_aligned(graph.shapes[name], len(shape)))
            array = np.moveaxis(array, 1, -1) if turn else array
            return np.broadcast_to(array.reshape(own), (*outer, *inner)).reshape(-1)

        return builder.arranged(spread, name)

    names = [part(name, "full") for name in view.full]
    for own, kind in ((view.rows, "row"), (view.columns, "column")):
        if own:
            parts = [part(name, kind) for name in own]
            if len(parts) > 1:
                parts = [builder.arranged(lambda *arrays: np.stack([one.ravel() for one in arrays]), *parts)]
            names += parts
    expr = composed(group.expr, [("in", view.leaves.index(name)) for name in group.leaves])
    expr = by_reciprocals(expr, view.operands({}))
    whole_nodes = (one for one in group.nodes if not one.output.startswith(f"{root.output}/"))  # no parts of the root
    name = "+".join(dict.fromkeys(one.name or one.output for one in whole_nodes))
    output = builder.new_pixels(root) if turn else root.output
    types = dict(graph.whole)
    if graph.whole.get(root.output) == "int8":  # inputs are quantized as they are, not as they are rounded
        types |= {one: "float32" for one in graph.inputs if graph.is_float(one)}
    builder.expression(root, group.kind, expr, view.operands(types), (rows, width), names, name=name, output=output)


def reduction(builder: Builder, node: Node) -> None:
    """Convert a reduction: the reduced dimensions become the rows of a matrix, in parts where no core holds them."""
    x, (before, op, after) = node.inputs[0], REDUCTIONS[node.op]
    shape, axes = builder.shape(x), axes_of(builder.graph, node)
    if not axes:
        raise builder.refuse(node, "dimensions that are not known")
    kept = [axis for axis in range(len(shape)) if axis not in axes]
    rows, width = math.prod(shape[axis] for axis in kept), math.prod(shape[axis] for axis in axes)
    turned = builder.arranged(lambda one: one.reshape(shape).transpose(*kept, *axes), x)
    left, most = width, MOST_WIDTH // builder.word  # a task has a whole word of results
    mode: Literal["constant", "edge"] = "constant" if op == "row_sum" else "edge"
    while left > most:
        share = next((one for one in range(most, most // 2, -1) if left % one == 0), -(-left // -(-left // most)))
        pads = (0, 0), (0, -left % share)
        turned = builder.arranged(lambda one, own=left, pads=pads: np.pad(one.reshape(rows, own), pads, mode), turned)
        left = -(-left // share)
        turned = builder.expression(node, op, (op, before), [FULL], (rows * left, share), [turned])
        before = X
    expr = after((op, before), width)
    builder.expression(node, node.op.lower(), expr, [FULL], (rows, left), [turned], output=node.output)
