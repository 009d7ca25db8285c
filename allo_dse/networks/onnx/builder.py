"""Conversion of a model's nodes to the steps of a network: `Builder` holds the network so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.lang.types import float32, int8

from ..network import Arrange, Host, Network, Shape, arrange
from ..operators.execute import Expr, Operand, Work
from ..operators.expressions import (
    LEAST_ELEMENTS,
    MOST_ELEMENTS,
    expression_work,
    is_flat,
    of_rows,
    padded,
    reductions,
    row_tiles,
)
from ..operators.packed import Weights, rounded
from ..operators.products import fitting_side, gemm_work, gemv_work
from .graph import Graph, Node

Array = NDArray[np.generic]


ALIKE = 64
"""First elements of constants that are compared before all are."""


class InvalidModel(StudyError):
    """A model that contradicts ONNX's rules: the host does not compute it either."""


@dataclass
class Builder:
    """A network while its nodes are converted.

    Images are [1, channels, height, width] in ONNX; programs take and make matrices of their *pixels*: [height * width,
    channels]. What is between two of these stays in that order.

    Attributes:
        ours: the nodes that get no program of the user's, by what they write.
        bits: that known weights of products may be rounded to.
    """

    graph: Graph
    net: Network
    element: object
    ours: Mapping[str, Node]
    bits: Sequence[int] = ()
    _pixels: dict[str, str] = field(default_factory=dict)
    _constants: dict[object, list[str]] = field(default_factory=dict)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.shapes[name]

    @property
    def word(self) -> int:
        """The number of elements in a word of 32 bits, of which a DMA moves whole ones."""
        return 1 if self.element is float32 else 4 if self.element is int8 else 2

    def read(self, name: str) -> str:
        """A tensor to read, which may be known."""
        if name not in self.net.shapes and name in self.graph.known:
            self.net.constant(name, self.graph.known[name])
        return name

    def known(self, array: Array) -> str:
        """A constant; one that is there already if it has the same elements, as the weights of time steps have."""
        array = np.asarray(array)
        alike = self._constants.setdefault((array.dtype, array.shape, array.ravel()[:ALIKE].tobytes()), [])
        for name in alike:
            if name in self.net.constants and np.array_equal(self.net.constants[name], array):
                return name
        alike.append(self.net.constant(self.graph.new_name("constant"), array))
        return alike[-1]

    def add(self, node: Node, work: Work | Arrange | Host, *inputs: str) -> None:
        """Add the step that does a node's work and writes its output."""
        read = [self.read(name) for name in inputs]
        name = node.name or node.output
        self.net.add(work, *read, name=name, output=node.output, shape=self.shape(node.output))

    def arranged(self, function: Callable[..., Array], *inputs: str) -> str:
        """Rearrange tensors and return the name of the result; constants are rearranged at once."""
        if all(name in self.graph.known or name in self.net.constants for name in inputs):
            return self.known(function(*({**self.graph.known, **self.net.constants}[name] for name in inputs)))
        name = self.graph.new_name("layout")
        work = arrange(function, [self.net.shapes[self.read(one)] for one in inputs])
        return self.net.add(work, *inputs, name=name, output=name)

    def part(self, node: Node, work: Work, *inputs: str, kind: str = "", shape: Shape | None = None) -> str:
        """A step that does a part of what a node does; returns the tensor that it writes.

        Args:
            kind: which part; the step has the node's own name where it is not given.
            shape: of the tensor, if it differs from the program's.
        """
        whole = node.name or node.output
        name = self.graph.new_name(f"{whole}.{kind}") if kind else whole
        return self.net.add(work, *inputs, name=name, output=self.graph.new_name(f"{name}.result"), shape=shape)

    def rearrange(self, node: Node, function: Callable[..., Array], *inputs: str) -> None:
        """A node that is a rearrangement of tensors of the network."""
        name, work = node.name or node.output, arrange(function, [self.net.shapes[name] for name in inputs])
        self.net.add(
            work, *inputs, name=self.graph.new_name(f"{name}.layout"), output=node.output,
            shape=self.shape(node.output),
        )  # fmt: skip

    def product(self, node: Node, a: str, b: str | Weights, bias: str = "", output: str = "") -> None:
        """a @ b + bias, with tensors of the network; the bias is added to every row."""
        name, output = node.name or node.output, output or node.output
        if bias:
            sums = self.matrix_product(self.graph.new_name(f"{name}.product"), a, b)
            self.add_row(node, sums, bias, output)
            return
        self.matrix_product(name, a, b, output)
        if output == self._pixels.get(node.output):
            self.made_pixels(node)

    def along(self, node: Node, x: str, axis: int, matrix: Array) -> str:
        """The products of a known matrix with all columns of elements along a dimension; returns their tensor."""
        shape = self.net.shapes[self.read(x)]
        columns = self.arranged(lambda one: np.moveaxis(one.reshape(shape), axis, 0).reshape(shape[axis], -1), x)
        name, to = self.graph.new_name(f"{node.name or node.output}.axis{axis}"), (-1, *np.delete(shape, axis))
        made = self.matrix_product(name, self.known(matrix), columns)
        return self.arranged(lambda one: np.moveaxis(one.reshape(to), 0, axis), made)

    def add_row(self, node: Node, matrix: str, row: str, output: str) -> None:
        """The step that adds a row to every row of a matrix, and writes a node's output or its pixels."""
        (rows, columns), given = self.net.shapes[matrix], [Operand("full"), Operand("row")]
        expr: Expr = ("add", ("in", 0), ("in", 1))
        self.expression(node, "add_row", expr, given, (rows, columns), [matrix, self.read(row)], output=output)

    def matrix_product(self, name: str, a: str, b: str | Weights, output: str = "") -> str:
        """a @ b as steps of a name; returns the tensor. Sides that tiles do not divide are padded.

        Weights of few bits are unpacked by the program, or by the host before it, if the program reads them more
        than once.
        """
        depth, columns = self.net.shapes[b][-2:] if isinstance(b, str) else b.codes.shape
        rows, word = math.prod(self.net.shapes[a]) // depth, self.word
        unit = max(word, b.packed.block) if isinstance(b, Weights) else word
        shape = self.shape(output) if output else (rows, columns)
        if 1 in (rows, columns):
            to_depth, other = padded(depth, 512, 2048, unit), padded(max(rows, columns), 2, 32, word)
            to_rows, to_columns = (1, other) if rows == 1 else (other, 1)
        else:
            to_rows, to_columns, to_depth = map(fitting_side, (rows, columns, depth))
            if isinstance(b, Weights):
                to_depth += -to_depth % unit
            if any(one * other % word for one, other in combinations((to_rows, to_columns, to_depth), 2)):
                to_rows, to_columns, to_depth = (-(-one // word) * word for one in (to_rows, to_columns, to_depth))
        a, sides = self._padded(a, (rows, depth), (to_rows, to_depth)), (to_rows, to_columns, to_depth)
        is_whole = sides == (rows, columns, depth)
        made = output if output and is_whole else self.graph.new_name(f"{name}.{'result' if is_whole else 'padded'}")
        for number, (form, what) in enumerate(self._forms(b, rows, columns, to_depth)):
            packed = None if isinstance(form, str) else form.packed
            right = (
                self._padded(form, (depth, columns), (to_depth, to_columns))
                if isinstance(form, str)
                else self.known(form.in_bytes(to_depth, to_columns))
            )
            given = a, right
            if rows == 1:
                work = gemv_work(to_columns, to_depth, self.element, packed)
                given = self.arranged(lambda one: one.reshape(-1, to_columns).T, right), a
            elif columns == 1:
                work = gemv_work(to_rows, to_depth, self.element)
            else:
                work = gemm_work(*sides, self.element, packed)
            if number:
                self.net.alternative(made, work, *given, rounded=what)
            else:
                self.net.add(work, *given, name=name, output=made, shape=shape if is_whole else sides[:2])
        return made if is_whole else self._cut(made, name, (rows, columns), sides[:2], output, shape)

    def _forms(self, b: str | Weights, rows: int, columns: int, depth: int) -> Iterator[tuple[str | Weights, str]]:
        """Yield the forms in which a program may read a matrix, with what is rounded for that.

        Args:
            depth: after padding.
        """
        yield b, ""
        if isinstance(b, Weights):
            if rows > 1:  # each tile of rows unpacks them again
                yield self.known(b.floats), ""
        elif self.element is not int8 and columns > 1:
            known = {**self.graph.known, **self.net.constants}.get(b)
            found = [] if known is None else [rounded(known.reshape(-1, columns), bits, depth) for bits in self.bits]
            yield from ((own, f"int{bits} weights") for own, bits in zip(found, self.bits, strict=False) if own)

    def _padded(self, name: str, shape: Shape, to: Shape) -> str:
        """A matrix with zeros after its rows and columns."""
        if shape == to:
            return name
        pads = [(0, more - own) for own, more in zip(shape, to, strict=True)]
        return self.arranged(lambda one: np.pad(one.reshape(shape), pads), name)

    def _cut(
        self, made: str, name: str, shape: Shape, padded: Shape, output: str, as_shape: Shape | None = None
    ) -> str:
        """The first rows and columns of a matrix."""
        part = tuple(slice(own) for own in shape)
        work = arrange(lambda one: one.reshape(padded)[part], [padded])
        name = self.graph.new_name(f"{name}.cut")
        return self.net.add(
            work, made, name=name, output=output or self.graph.new_name(f"{name}.result"), shape=as_shape or shape
        )

    def expression(
        self,
        node: Node,
        kind: str,
        expr: Expr,
        given: Sequence[Operand],
        size: tuple[int, int],
        names: Sequence[str],
        *,
        name: str = "",
        output: str = "",
    ) -> str:
        """A step that computes an expression for each element, or row, of a matrix; returns the tensor.

        Rows that tasks do not divide are padded.

        Args:
            given: what `names` are. size: rows and columns of the matrix.
            name: of the step; a new one by default, or the node's for its output.
            output: the node's, or its pixels, which then become its image; a new matrix or vector by default.
        """
        (rows, width), whole, pixels = size, node.name or node.output, output == self._pixels.get(node.output)
        name = name or (whole if pixels or output == node.output else self.graph.new_name(f"{whole}.{kind}"))
        flat, vector, kinds = is_flat(expr, given), of_rows(expr, given), {one.kind for one in given}
        made_shape: Shape = self.shape(output) if output else (rows,) if vector else (rows, width)
        if flat:
            rows, width = rows * width, 1
        wide = width + (-width % self.word if "row" in kinds and not reductions(expr) else 0)
        odd = -rows % self.word if vector or "column" in kinds or wide % self.word else 0
        long = padded(rows + odd, *((LEAST_ELEMENTS, MOST_ELEMENTS) if flat else row_tiles(wide)))
        own = list(names)
        for at, one in enumerate(given):
            columns = (rows, long) if one.kind == "column" else (width, wide)
            before, after = zip((rows, long) if one.kind == "full" else (one.count,) * 2, columns, strict=True)
            own[at] = self._padded(own[at], before, after)
        to = self.graph.whole.get(node.output, "Ty") if output else "Ty"
        work = expression_work(kind, expr, given, (long, wide), self.element, to)
        if (long, wide) == (rows, width):
            output = output or self.graph.new_name(f"{name}.result")
            made = self.net.add(work, *own, name=name, output=output, shape=made_shape)
        else:
            made = self.net.add(work, *own, name=name, output=self.graph.new_name(f"{name}.padded"))
            cut, whole_shape = ((rows,), (long,)) if vector else ((rows, width), (long, wide))
            made = self._cut(made, name, cut, whole_shape, output, made_shape)
        if pixels:
            self.made_pixels(node)
        return made

    # Images: [batch, channels, ...] in ONNX, and matrices of pixels, with a row of channels for each, in programs.

    def has_pixels(self, name: str) -> bool:
        return name in self._pixels

    def pixels(self, image: str) -> str:
        """The pixels of an image."""
        if image not in self._pixels:
            shape = self.shape(image)
            self._pixels[image] = self.arranged(
                lambda one: np.moveaxis(one.reshape(shape), 1, -1).reshape(-1, shape[1]), image
            )
        return self._pixels[image]

    def new_pixels(self, node: Node) -> str:
        """The name of the pixels of a node's image, which a step is to write."""
        shape = self.shape(node.output)
        self._pixels[node.output] = name = self.graph.new_name(f"{node.output}.pixels")
        self.graph.shapes[name] = (math.prod(shape) // shape[1], shape[1])
        return name

    def made_pixels(self, node: Node, pixels: str = "") -> None:
        """A step has written the pixels of a node's image, maybe as another tensor; the image for who reads that."""
        shape, self._pixels[node.output] = self.shape(node.output), pixels or self._pixels[node.output]
        last = (shape[0], *shape[2:], shape[1])
        self.rearrange(node, lambda one: np.moveaxis(one.reshape(last), -1, 1), self._pixels[node.output])

    @contextmanager
    def attempt(self) -> Iterator[list[StudyError]]:
        """Convert a node as a whole or not at all; an error goes into the list."""
        failed: list[StudyError] = []
        kept: tuple[dict[str, Any], ...] = (self.net.shapes, self.net.constants, self._pixels)
        sizes, steps = [len(one) for one in kept], len(self.net.steps)
        try:
            yield failed
        except InvalidModel:
            raise
        except AlloDseError as error:
            failed.append(error if isinstance(error, StudyError) else StudyError(str(error)))
            del self.net.steps[steps:]
            for one, size in zip(kept, sizes, strict=True):
                while len(one) > size:
                    one.popitem()

    @contextmanager
    def typed(self, node: Node) -> Iterator[None]:
        """Convert a node with programs of 8-bit whole numbers if its result is of whole numbers."""
        own = self.element
        self.element = int8 if self.graph.whole.get(node.output) in ("int8", "int32") else own
        try:
            yield
        finally:
            self.element = own

    def refuse(self, node: Node, why: str) -> StudyError:
        return StudyError(f"{self.graph.name}: {node.place}: {why}", hint="give a program for it with programs=")
