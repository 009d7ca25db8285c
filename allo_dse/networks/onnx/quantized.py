"""Quantized models: products of whole numbers stay products of whole numbers, with scales and offsets after them.

Quantized tensors are 8-bit *codes*: a tensor is (codes - zero) * scale. A product of two such tensors is
(codes @ codes - offsets) * scales, and offsets and scales are rows known when the model is read, if one tensor is.
Known codes less their zeros that need a ninth bit are sums of codes along the depth. Unsigned codes become signed ones,
128 less. Rearrangements and maxima of codes are made of the codes.

Quantizing and its reverse are functions of elements (`elementwise`), which join their neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen, replace

from ..operators.packed import weights_of
from .definitions import Array, Shape
from .graph import Codes, Graph, Node, rename
from .patterns import MOVES

KEEP = {*MOVES, "Flatten", "Identity", "MaxPool"} - {"Concat", "Neg"}
"""Operators whose result has the codes of their first input, rearranged or chosen."""
FLOAT, UINT8, INT8, INT32 = 1, 2, 3, 6
"""ONNX's numbers of element types."""
LOWEST = {INT8: -128, UINT8: 0}
EXACT = 1 << 24
"""Whole numbers up to it are exact in float32."""


class Quantized(Frozen):
    """A tensor of codes, and what they stand for: (codes - zero) * scale."""

    name: str
    scale: float
    zero: int


def in_whole_numbers(graph: Graph) -> Graph:
    """Return the graph whose products of quantized tensors multiply codes."""
    return _Conversion(graph).graph


class _Conversion:
    """The graph so far.

    Attributes:
        codes: of tensors of the model. same: names of tensors that equal others.
        made: codes by tensor, scale and zero.
    """

    def __init__(self, graph: Graph) -> None:
        self.read, self.readers = graph, graph.readers()
        self.graph = replace(
            graph, nodes=[], shapes=dict(graph.shapes), elements=dict(graph.elements), known=dict(graph.known)
        )
        self.codes: dict[str, Quantized] = {}
        self.same: dict[str, str] = {}
        self.made: dict[tuple[str, float, int], str] = {}
        for node in graph.nodes:
            self._add(node)

    def _add(self, node: Node) -> None:
        if any(name in self.same for name in node.inputs):
            node = renamed(node, self.same)
        if node.is_standard and (
            self._quantizes(node) or self._dequantizes(node) or self._multiplies(node) or self._dynamic(node)
        ):
            return
        self._keeps(node)
        self.graph.nodes.append(node)

    def _parameters(self, node: Node) -> tuple[float, int] | None:
        """The scale and the zero of signed codes; None unless they are known numbers of 8-bit codes."""
        names, known = (*node.inputs[1:3], "")[:2], self.read.known
        if names[0] not in known or known[names[0]].size != 1 or (names[1] and names[1] not in known):
            return None
        typed = names[1] or (node.output if node.op == "QuantizeLinear" else node.inputs[0])
        zero = int(known[names[1]].ravel()[0]) if names[1] else 0
        low = LOWEST.get(self.read.elements.get(typed, 0))
        return None if low is None else (float(known[names[0]].ravel()[0]), zero - low - 128)

    def _quantizes(self, node: Node) -> bool:
        found = self._parameters(node) if node.op == "QuantizeLinear" else None
        if found is None or not self._is_inside(node.output) or not self.graph.is_float(node.inputs[0]):
            return False
        key = (node.inputs[0], *found)
        if key in self.made:
            self.same[node.output] = self.made[key]
            return True
        self.made[key] = node.output
        self._whole(node.output, "int8")
        scale, zero = found
        attributes = {"scale": scale, "zero": zero, "low": -128 - zero, "high": 127 - zero}
        self.graph.nodes.append(Node("Quantize", node.name, node.inputs[:1], node.output, attributes))
        return True

    def _is_inside(self, name: str) -> bool:
        """Return whether codes are only rearranged and dequantized, so that they may be signed ones."""
        return name not in self.read.outputs and all(
            one.op == "DequantizeLinear" or (one.op in KEEP and one.inputs[0] == name and self._is_inside(one.output))
            for one in self.readers.get(name, [])
        )

    def _dequantizes(self, node: Node) -> bool:
        found = self._parameters(node) if node.op == "DequantizeLinear" else None
        if found is None or self.graph.whole.get(node.inputs[0]) != "int8":
            return False
        self.codes[node.output] = Quantized(node.inputs[0], *found)
        self.made[node.output, *found] = node.inputs[0]
        attributes = {"scale": found[0], "zero": found[1]}
        self.graph.nodes.append(Node("Dequantize", node.name, node.inputs[:1], node.output, attributes))
        return True

    def _keeps(self, node: Node) -> None:
        """Add a node that does the same to the codes of the node's first input."""
        if node.op not in KEEP or node.proto is None or len(node.outputs) > 1 or not node.is_standard:
            return
        if self.graph.whole.get(node.inputs[0]) == "int8":
            self._whole(node.output, "int8")
        own = self.codes.get(node.inputs[0])
        if own is None:
            return
        name = self.graph.new_name(f"{node.output}.codes")
        self.graph.shapes[name] = self.graph.shapes[node.output]
        self._whole(name, "int8")
        self.codes[node.output] = Quantized(name, own.scale, own.zero)
        self.made[node.output, own.scale, own.zero] = name
        twin = renamed(node, {node.inputs[0]: own.name, node.output: name})
        self.graph.nodes.append(replace(twin, name=self.graph.new_name(f"{node.name or node.output}.codes")))

    def _multiplies(self, node: Node) -> bool:
        """Replace a product of a quantized tensor and known codes by that of the codes."""
        if node.op not in ("MatMul", "Gemm", "Conv") or node.proto is None or len(node.inputs) < 2:
            return False
        own, weights = self.codes.get(node.inputs[0]), self.read.codes.get(node.inputs[1])
        plain = node.number("alpha", 1) == 1 == node.number("beta", 1) and not node.number("transA", 0)
        if own is None:
            return weights is not None and plain and self._packs(node, weights)
        if (other := self.codes.get(node.inputs[1])) is not None:
            return self._pairs(node, own, other)
        bias = self.read.known.get(node.inputs[2]) if len(node.inputs) > 2 else np.zeros(1, np.float32)
        if weights is None or bias is None or not plain:
            return False
        axis = 0 if node.op == "Conv" or node.number("transB", 0) else -1
        return self._product(node, own, weights, bias, axis)

    def _pairs(self, node: Node, own: Quantized, other: Quantized) -> bool:
        """Replace a product of two quantized tensors by that of their codes; name it if that is none of matrices.

        (A - a)(B - b) = AB - aB - Ab + ab, and aB is one row, Ab one column: products with a matrix of zeros.
        """
        left, right = (self.graph.shapes[name] for name in node.inputs[:2])
        if node.op != "MatMul" or ((own.zero or other.zero) and min(prod(left[:-1]), right[-1], len(right)) < 2):
            self.graph.widened.append(node.name or node.output)
            return False
        sums, steps = self._sums(node, own.name, other.name), list[tuple[str, str]]()
        if own.zero:
            row = self._known(node, np.full((1, left[-1]), own.zero, np.int8))
            steps.append(("Sub", self._sums(node, row, other.name, shape=(*right[:-2], 1, right[-1]))))
        if other.zero:
            column = np.full((left[-1], 1), other.zero)
            steps.append(("Sub", self._sums(node, own.name, column, shape=(*left[:-1], 1))))
        numbers = {"Add": left[-1] * own.zero * other.zero, "Mul": own.scale * other.scale}
        steps += [(op, self._known(node, np.full(1, one, np.float32))) for op, one in numbers.items() if one]
        self._finished(node, sums, steps)
        return True

    def _packs(self, node: Node, weights: Codes) -> bool:
        """Replace a product of floats and known codes by one that unpacks the codes."""
        arrays = (one.T if node.number("transB", 0) else one for one in (weights.codes, weights.scale, weights.zero))
        found = weights_of(*arrays) if weights.codes.ndim == 2 else None
        if found is None:
            return False
        self.graph.nodes.append(
            Node("Packed", node.name, (node.inputs[0], *node.inputs[2:]), node.output, {"weights": found})
        )
        return True

    def _product(self, node: Node, own: Quantized, weights: Codes, bias: Array, axis: int) -> bool:
        """Add the product of codes, then (products - offsets) * scales + bias.

        Args:
            axis: of the weights, the dimension of columns of the result.
        """
        scale = np.moveaxis(weights.scale, axis, 0).reshape(weights.scale.shape[axis], -1)
        codes = weights.codes.astype(np.int64) - weights.zero.astype(np.int64)
        groups = int(node.number("group", 1))
        most = 256 if groups == 1 else 128 if codes.shape[:2] == (groups, 1) else 0
        if (scale != scale[:, :1]).any() or codes.ndim < 2 or np.abs(codes + 0.5).max() > most:
            return False
        offset = own.zero * np.moveaxis(codes, axis, 0).reshape(len(scale), -1).sum(axis=1)
        if node.op == "Gemm" and axis == 0:
            codes = codes.T
        factors = np.float32(own.scale) * scale[:, 0].astype(np.float32)
        plus = np.broadcast_to(np.asarray(bias, np.float32).ravel(), factors.shape)
        whole = np.rint(plus / factors)
        if np.abs(whole).max(initial=0) < EXACT and np.allclose(whole * factors, plus, rtol=1e-6, atol=0):
            offset, plus = offset - whole, np.zeros_like(plus)  # biases are whole multiples of the products' scale
        shape = (-1, *(1,) * (codes.ndim - 2)) if node.op == "Conv" else -1
        rows = (("Sub", offset), ("Mul", factors), ("Add", plus))
        steps = [
            (op, self._known(node, one.astype(np.float32).reshape(shape)))
            for op, one in rows
            if op == "Mul" or one.any()
        ]
        self._finished(node, self._sums(node, own.name, codes, own.zero), steps)
        return True

    def _sums(
        self, node: Node, name: str, other: str | NDArray[np.int64], edge: int = 0, shape: Shape | None = None
    ) -> str:
        """Add a product of codes; returns its tensor of 32-bit sums.

        Args:
            other: a tensor, or known codes. Of nine bits, they are two or three along the depth.
            shape: of the sums; that of the node's output by default.
        """
        sums, op = self.graph.new_name(f"{node.output}.sums"), "Conv" if node.op == "Conv" else "MatMul"
        self.graph.shapes[sums] = shape or self.graph.shapes[node.output]
        self._whole(sums, "int32")
        if not isinstance(other, str):
            own, axis = (1, 1) if op == "Conv" else (-1, -2)
            codes, size, depth = np.moveaxis(other, axis, -1), list(self.graph.shapes[name]), other.shape[axis]
            parts = np.ceil(np.abs(codes + 0.5).reshape(-1, depth).max(axis=0) / 127.5).astype(int)
            place = np.repeat(np.arange(depth), parts)
            if len(place) > depth:
                size[own], given = len(place), [name, self.graph.new_known(f"{sums}.places", place)]
                name = self.graph.new_name(f"{name}.repeated")
                self._standard("Gather", given, name, tuple(size), INT8, axis=own)
                self.graph.whole[name] = "int8"
            # The sum of the floors of (code + i) / n, of all i below n, is the code: Hermite's identity.
            codes = (codes[..., place] + np.arange(len(place)) % parts[place]) // parts[place]
            other = self._known(node, np.moveaxis(codes, -1, axis).astype(np.int8))
        product = self.graph.new_name(f"{node.name or node.output}.product")
        self.graph.nodes.append(Node(op, product, (name, other), sums, {**node.attributes, "edge": edge}))
        return sums

    def _finished(self, node: Node, name: str, steps: Sequence[tuple[str, str]]) -> None:
        """Add functions of a tensor's elements; the last one writes the node's output."""
        for number, (op, other) in enumerate(steps, 1):
            last = number == len(steps)
            output = node.output if last else self.graph.new_name(f"{node.output}.{op.lower()}")
            self.graph.shapes[output] = self.graph.shapes[node.output]
            self.graph.elements[output] = FLOAT
            if not last:
                self.graph.whole[output] = "float32"
            self.graph.nodes.append(Node(op, node.name if last else "", (name, other), output))
            name = output

    def _dynamic(self, node: Node) -> bool:
        """Replace a product with quantization at run time; its result is a float, which is all that is read of it."""
        if node.op != "MatMulInteger" or node.inputs[1] not in self.read.known:
            return False
        readers = self.readers.get(node.output, [])
        a, b, zero, of_b = (*node.inputs, "", "")[:4]
        casts = all(one.op == "Cast" and self.graph.is_float(one.output) for one in readers)
        if not casts or node.output in self.read.outputs or (of_b and of_b not in self.read.known):
            return False
        codes = np.subtract(self.read.known[b], self.read.known[of_b] if of_b else 0, dtype=np.int64)
        low = LOWEST.get(self.graph.elements.get(a, 0))
        if low is None or codes.ndim != 2:
            return False
        sums = self._sums(node, self._by_host(a, low + 128, "int8"), codes)
        offset = self._known(node, codes.sum(axis=0).astype(np.float32))
        number = (
            self._by_host(zero, low + 128, "float32") if zero else self._known(node, np.full(1, -low - 128, np.float32))
        )
        row = self.graph.new_name(f"{node.output}.offsets")
        self.graph.shapes[row], self.graph.elements[row] = (codes.shape[1],), FLOAT
        self.graph.whole[row] = "float32"
        self.graph.nodes.append(Node("Mul", "", (offset, number), row))
        self._finished(node, sums, [("Sub", row)])
        self.same |= {one.output: node.output for one in readers if one.output not in self.read.outputs}
        return True

    def _by_host(self, name: str, less: int, dtype: str) -> str:
        """Add nodes that subtract a number from codes, for the host; returns their tensor."""
        made = f"{name}.{dtype}"
        if made in self.graph.shapes:
            return made
        wide, moved = (self.graph.new_name(f"{made}.{part}") for part in ("wide", "moved"))
        number = self.graph.new_known(f"{made}.less", np.asarray(less, np.int32))
        shape, to = self.graph.shapes[name], INT8 if dtype == "int8" else FLOAT
        self._standard("Cast", [name], wide, shape, INT32, to=INT32)
        self._standard("Sub", [wide, number], moved, shape, INT32)
        self._standard("Cast", [moved], made, shape, to, to=to)
        self.graph.whole[made] = dtype
        return made

    def _standard(
        self, op: str, inputs: Sequence[str], output: str, shape: Shape, element: int, **attributes: int
    ) -> None:
        """Add a node of ONNX's own."""
        from onnx import helper

        self.graph.shapes[output], self.graph.elements[output] = shape, element
        proto = helper.make_node(op, inputs, [output], **attributes)
        self.graph.nodes.append(Node(op, "", tuple(inputs), output, proto=proto))

    def _known(self, node: Node, array: Array) -> str:
        name = self.graph.new_known(f"{node.output}.row", array)
        self.graph.whole[name] = str(array.dtype)
        return name

    def _whole(self, name: str, dtype: str) -> None:
        self.graph.elements[name], self.graph.whole[name] = {"int8": INT8, "int32": INT32}[dtype], dtype


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """Return a node that reads and writes tensors of other names."""
    inputs = tuple(names.get(name, name) for name in node.inputs)
    found = replace(node, inputs=inputs, output=names.get(node.output, node.output))
    if node.proto is None:
        return found
    proto = type(node.proto)()
    proto.CopyFrom(node.proto)
    rename(proto, names)
    proto.output[:] = [names.get(name, name) for name in proto.output]
    return replace(found, proto=proto)
