"""Conversion of a model's nodes to the steps of a network: `Builder` holds the network so far."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError

from ..network import Arrange, Host, Network
from ..operators.elementwise import row_work
from ..operators.execute import Work
from ..operators.products import gemm_work, gemv_work
from ..strided import is_free
from .graph import Graph, Node

Array = NDArray[np.generic]


@dataclass
class Builder:
    """A network while its nodes are converted.

    Images are [1, channels, height, width] in ONNX; programs take and make matrices of their *pixels*: [height * width,
    channels]. What is between two of these stays in that order.

    Attributes:
        ours: the nodes that get no program of the user's, by what they write.
    """

    graph: Graph
    net: Network
    element: object
    ours: Mapping[str, Node]
    _pixels: dict[str, str] = field(default_factory=dict)
    _made: int = 0

    def shape(self, name: str) -> tuple[int, ...]:
        return self.graph.shapes[name]

    def rows(self, name: str) -> tuple[int, int]:
        """A tensor as a matrix: its last dimension stays."""
        shape = self.shape(name) or (1,)
        return math.prod(shape[:-1]), shape[-1]

    def read(self, name: str) -> str:
        """A tensor to read, which may be known."""
        if name not in self.net.shapes and name in self.graph.known:
            self.net.constant(name, self.graph.known[name])
        return name

    def known(self, array: Array) -> str:
        """A new constant."""
        return self.net.constant(self._new("constant"), array)

    def _new(self, kind: str) -> str:
        """A name that nothing in the model has."""
        self._made += 1
        return self.graph.new_name(f"{kind}_{self._made}")

    def add(self, node: Node, work: Work | Arrange | Host, *inputs: str) -> None:
        """Add the step that does a node's work and writes its output."""
        read = [self.read(name) for name in inputs]
        name = node.name or node.output
        self.net.add(work, *read, name=name, output=node.output, shape=self.shape(node.output))

    def arranged(self, function: Callable[..., Array], *inputs: str) -> str:
        """Rearrange tensors and return the name of the result; constants are rearranged at once."""
        if all(name in self.graph.known or name in self.net.constants for name in inputs):
            return self.known(function(*({**self.graph.known, **self.net.constants}[name] for name in inputs)))
        name, free = self._new("layout"), is_free(function, [self.net.shapes[self.read(name)] for name in inputs])
        return self.net.add(Arrange(function, free), *inputs, name=name, output=name)

    def part(self, node: Node, work: Work, *inputs: str, kind: str = "") -> str:
        """A step that does a part of what a node does; returns the tensor that it writes.

        Args:
            kind: which part; the step has the node's own name where it is not given.
        """
        whole = node.name or node.output
        name = self.graph.new_name(f"{whole}.{kind}") if kind else whole
        return self.net.add(work, *inputs, name=name, output=self.graph.new_name(f"{name}.result"))

    def rearrange(self, node: Node, function: Callable[..., Array], *inputs: str) -> None:
        """A node that is a rearrangement of tensors of the network."""
        free, name = is_free(function, [self.net.shapes[name] for name in inputs]), node.name or node.output
        self.net.add(
            Arrange(function, free), *inputs, name=self.graph.new_name(f"{name}.layout"), output=node.output,
            shape=self.shape(node.output),
        )  # fmt: skip

    def product(self, node: Node, a: str, b: str, bias: str = "", output: str = "") -> None:
        """a @ b + bias, with tensors of the network; the bias is added to every row."""
        depth, columns = self.net.shapes[b][-2:]
        rows = math.prod(self.net.shapes[a]) // depth
        name, out = node.name or node.output, output or node.output
        shape = (rows, columns) if output else self.shape(node.output)
        if rows == 1:
            work, a, b = (
                gemv_work(columns, depth, self.element),
                self.arranged(lambda one: one.reshape(depth, columns).T, b),
                a,
            )
        else:
            work = gemm_work(rows, columns, depth, self.element)
        if not bias:
            self.net.add(work, a, b, name=name, output=out, shape=shape)
            return
        sums = self.part(node, work, a, b, kind="product")
        row = row_work("add", rows, columns, self.element)
        self.net.add(row, sums, self.read(bias), name=name, output=out, shape=shape)

    def pixels(self, image: str) -> str:
        """The pixels of an image."""
        if image not in self._pixels:
            _, channels, height, width = self.shape(image)
            self._pixels[image] = self.arranged(lambda one: one.reshape(channels, height * width).T, image)
        return self._pixels[image]

    def new_pixels(self, node: Node) -> str:
        """The name of the pixels of a node's image, which a step is to write."""
        self._pixels[node.output] = name = self.graph.new_name(f"{node.output}.pixels")
        return name

    def made_pixels(self, node: Node) -> None:
        """A step has written the pixels of a node's image; the image for who reads that."""
        self.rearrange(node, np.transpose, self._pixels[node.output])

    def elementwise(self, node: Node, work: Work, *inputs: str) -> None:
        """A node that does the same to all elements: in the order of pixels where one of its inputs is in it."""
        images = {len(self.shape(name)) for name in (*inputs, node.output)} == {4}
        if not images or not any(name in self._pixels for name in inputs):
            return self.add(node, work, *inputs)
        pixels = [self.pixels(name) for name in inputs]
        self.net.add(
            work,
            *pixels,
            name=node.name or node.output,
            output=self.new_pixels(node),
            shape=self.net.shapes[pixels[0]],
        )
        self.made_pixels(node)

    def refuse(self, node: Node, why: str) -> StudyError:
        return StudyError(f"{self.graph.name}: {node.place}: {why}", hint="give a program for it with programs=")
