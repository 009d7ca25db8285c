"""Quantized models: products of whole numbers stay products of whole numbers, with scales and offsets after them.

Quantized tensors are 8-bit *codes*: a tensor is (codes - zero) * scale. A product of two such tensors is
(codes @ codes - offsets) * scales, and offsets and scales are rows known when the model is read. Unsigned codes become
signed ones, 128 less. Rearrangements and maxima of codes are made of the codes.

Quantizing and its reverse are functions of elements (`elementwise`), which join their neighbours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from allo_dse.common.records import Frozen, replace

from ..operators.packed import weights_of
from .definitions import Array
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
        self.read = graph
        self.readers: dict[str, list[Node]] = {}
        for node in graph.nodes:
            for name in node.inputs:
                self.readers.setdefault(name, []).append(node)
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
        element = self.read.elements.get(node.output if node.op == "QuantizeLinear" else node.inputs[0])
        if names[1]:
            element = self.read.elements.get(names[1])
        zero = int(known[names[1]].ravel()[0]) if names[1] else 0
        low = LOWEST.get(element or 0)
        return None if low is None else (float(known[names[0]].ravel()[0]), zero - low - 128)

    def _quantizes(self, node: Node) -> bool:
        found = self._parameters(node) if node.op == "QuantizeLinear" else None
        if found is None or not self._is_inside(node.output) or not self.graph.is_float(node.inputs[0]):
            return False
        key = (node.inputs[0], *found)
        before = self.codes.get(node.inputs[0])
        if before is not None and (before.scale, before.zero) == found:
            self.made[key] = before.name
        if key in self.made:
            self.same[node.output] = self.made[key]
            return True
        self.made[key] = node.output
        self._whole(node.output, "int8")
        attributes = {"scale": found[0], "zero": found[1], "low": -128 - found[1], "high": 127 - found[1]}
        self.graph.nodes.append(Node("Quantize", node.name, node.inputs[:1], node.output, attributes))
        return True

    def _is_inside(self, name: str) -> bool:
        """Return whether codes are only rearranged and dequantized, so that they may be signed ones."""
        readers = self.readers.get(name, [])
        return name not in self.read.outputs and all(
            one.op == "DequantizeLinear" or (one.op in KEEP and one.inputs[0] == name and self._is_inside(one.output))
            for one in readers
        )

    def _dequantizes(self, node: Node) -> bool:
        found = self._parameters(node) if node.op == "DequantizeLinear" else None
        if found is None or self.graph.whole.get(node.inputs[0]) != "int8":
            return False
        self.codes[node.output] = Quantized(node.inputs[0], *found)
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
        twin = renamed(node, {node.inputs[0]: own.name, node.output: name})
        self.graph.nodes.append(replace(twin, name=self.graph.new_name(f"{node.name or node.output}.codes")))

    def _multiplies(self, node: Node) -> bool:
        """Replace a product of a quantized tensor and known codes by that of the codes."""
        if node.op not in ("MatMul", "Gemm", "Conv") or node.proto is None or len(node.inputs) < 2:
            return False
        own, weights = self.codes.get(node.inputs[0]), self.read.codes.get(node.inputs[1])
        if own is None:
            return weights is not None and self._packs(node, weights)
        if (other := self.codes.get(node.inputs[1])) is not None:
            return self._pairs(node, own, other)
        bias = self.read.known.get(node.inputs[2]) if len(node.inputs) > 2 else np.zeros(1, np.float32)
        plain = node.number("alpha", 1) == 1 == node.number("beta", 1) and not node.number("transA", 0)
        if weights is None or bias is None or not plain:
            return False
        axis = 0 if node.op == "Conv" or node.number("transB", 0) else -1
        return self._product(node, own, weights, bias, axis)

    def _pairs(self, node: Node, own: Quantized, other: Quantized) -> bool:
        """Replace a product of two quantized tensors by that of their codes; name it if codes have a zero.

        What zeros add to a product depends on sums of codes, which nobody knows before.
        """
        if own.zero or other.zero or node.op != "MatMul":
            self.graph.widened.append(node.name or node.output)
            return False
        factor = self._known(node, np.full(1, own.scale * other.scale, np.float32))
        self._finished(node, self._sums(node, own.name, other.name), [("Mul", factor)])
        return True

    def _packs(self, node: Node, weights: Codes) -> bool:
        """Replace a product of floats and known codes by one that unpacks the codes."""
        plain = node.number("alpha", 1) == 1 == node.number("beta", 1) and not node.number("transA", 0)
        if weights.codes.ndim != 2 or not plain:
            return False
        arrays = (one.T if node.number("transB", 0) else one for one in (weights.codes, weights.scale, weights.zero))
        found = weights_of(*arrays)
        if found is None:
            return False
        inputs = (node.inputs[0], *node.inputs[2:])
        self.graph.nodes.append(Node("Packed", node.name, inputs, node.output, {"weights": found}))
        return True

    def _product(self, node: Node, own: Quantized, weights: Codes, bias: Array, axis: int) -> bool:
        """Add the product of codes, then (products - offsets) * scales + bias.

        Args:
            axis: of the weights, the dimension of columns of the result.
        """
        matrices = [np.moveaxis(one, axis, 0).reshape(one.shape[axis], -1) for one in (weights.scale, weights.zero)]
        scale = matrices[0][:, :1]
        codes = weights.codes.astype(np.int64) - weights.zero.astype(np.int64)
        groups = int(node.number("group", 1))
        known = all((one == one[:, :1]).all() for one in matrices) and np.abs(codes + 0.5).max() < 128
        if not known or (groups > 1 and groups != weights.codes.shape[0]):
            return False
        if node.op == "Gemm" and axis == 0:
            codes = codes.T
        offset = own.zero * np.moveaxis(codes, 0 if node.op == "Conv" else -1, 0).reshape(len(scale), -1).sum(axis=1)
        factors = np.float32(own.scale) * scale.ravel().astype(np.float32)
        plus = np.broadcast_to(np.asarray(bias, np.float32).ravel(), factors.shape)
        whole = np.rint(plus / factors)
        if np.abs(whole).max(initial=0) < EXACT and np.allclose(whole * factors, plus, rtol=1e-6, atol=0):
            offset, plus = offset - whole, np.zeros_like(plus)  # biases are whole multiples of the products' scale
        shape = (-1, *(1,) * (len(self.read.shapes[node.output]) - 2)) if node.op == "Conv" else (-1,)
        rows = [self._known(node, np.asarray(one, np.float32).reshape(shape)) for one in (offset, factors, plus)]
        sums = self._sums(node, own.name, self._known(node, codes.astype(np.int8)), own.zero)
        steps = [("Sub", rows[0], offset.any()), ("Mul", rows[1], True), ("Add", rows[2], plus.any())]
        self._finished(node, sums, [(op, row) for op, row, needed in steps if needed])
        return True

    def _sums(self, node: Node, name: str, other: str, edge: int = 0) -> str:
        """Add a product of codes; returns its tensor of 32-bit sums."""
        sums = self.graph.new_name(f"{node.output}.sums")
        self.graph.shapes[sums] = self.graph.shapes[node.output]
        self._whole(sums, "int32")
        op = "Conv" if node.op == "Conv" else "MatMul"
        attributes = {**node.attributes, "edge": edge} if op == "Conv" else {}
        product = self.graph.new_name(f"{node.name or node.output}.product")
        self.graph.nodes.append(Node(op, product, (name, other), sums, attributes))
        return sums

    def _finished(self, node: Node, name: str, steps: Sequence[tuple[str, str]]) -> None:
        """Add functions of a tensor's elements; the last one writes the node's output."""
        for number, (op, other) in enumerate(steps, 1):
            last = number == len(steps)
            output = node.output if last else self.graph.new_name(f"{node.output}.{op.lower()}")
            self.graph.shapes[output] = self.graph.shapes[node.output]
            self.graph.elements[output] = FLOAT
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
        codes = self.read.known[b].astype(np.int64) - (self.read.known[of_b].astype(np.int64) if of_b else 0)
        low = LOWEST.get(self.graph.elements.get(a, 0))
        if low is None or np.abs(codes + 0.5).max() >= 128 or codes.ndim != 2:
            return False
        signed, offset = self._by_host(a, low + 128, "int8"), self._known(node, codes.sum(axis=0).astype(np.float32))
        sums = self._sums(node, signed, self._known(node, codes.astype(np.int8)))
        steps = []
        if zero or low + 128:
            number = (
                self._by_host(zero, low + 128, "float32")
                if zero
                else self._known(node, np.full(1, -low - 128, np.float32))
            )
            row = self.graph.new_name(f"{node.output}.offsets")
            self.graph.shapes[row], self.graph.elements[row] = (codes.shape[1],), FLOAT
            self.graph.whole[row] = "float32"
            self.graph.nodes.append(Node("Mul", "", (offset, number), row))
            steps = [("Sub", row)]
        self._finished(node, sums, steps or [("Mul", self._known(node, np.ones(1, np.float32)))])
        self.same |= {one.output: node.output for one in readers if one.output not in self.read.outputs}
        return True

    def _by_host(self, name: str, less: int, dtype: str) -> str:
        """Add nodes that subtract a number from codes, for the host; returns their tensor."""
        from onnx import helper

        made = f"{name}.{dtype}"
        if made in self.graph.shapes:
            return made
        wide, moved = (self.graph.new_name(f"{made}.{part}") for part in ("wide", "moved"))
        number = self.graph.new_known(f"{made}.less", np.asarray(less, np.int32))
        to = INT8 if dtype == "int8" else FLOAT
        steps: list[tuple[str, list[str], str, int]] = [
            ("Cast", [name], wide, INT32), ("Sub", [wide, number], moved, INT32), ("Cast", [moved], made, to),
        ]  # fmt: skip
        for op, inputs, output, element in steps:
            self.graph.shapes[output], self.graph.elements[output] = self.graph.shapes[name], element
            proto = helper.make_node(op, inputs, [output], **({"to": element} if op == "Cast" else {}))
            self.graph.nodes.append(Node(op, "", tuple(inputs), output, proto=proto))
        self.graph.whole[made] = dtype
        return made

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
