"""ONNX operators on the host. The source of functions is exported beside the driver, so they use NumPy only."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import replace

from ..network import Host, Network, Step
from .evaluate import ModelSession, model_of, session_of
from .graph import Graph, Node

Array = NDArray[np.generic]
PRODUCTS = {"MatMul": 1, "Gemm": 1, "Conv": 0, "ConvTranspose": 0, "MatMulNBits": 1, "MatMulInteger": 1}
"""Operators whose work is a sum of products for each element of their result."""


@dataclass(frozen=True)
class OnnxHost:
    """Nodes of ONNX as a function of arrays.

    Attributes:
        nodes: serialized, in an order in which they can run.
        elements: ONNX's element types of what they read, by name, in the order of the arrays.
        output: the tensor that is returned.
        versions: of the operators, by domain.
    """

    nodes: tuple[bytes, ...]
    elements: tuple[tuple[str, int], ...]
    output: str
    versions: tuple[tuple[str, int], ...]

    @cached_property
    def model(self) -> bytes:
        """The nodes as a model."""
        from onnx import NodeProto

        protos = [NodeProto.FromString(one) for one in self.nodes]
        model = model_of(protos, dict(self.elements), [self.output], dict(self.versions))
        return bytes(model.SerializeToString())

    @cached_property
    def _session(self) -> ModelSession:
        from onnx import ModelProto

        return session_of(ModelProto.FromString(self.model))

    @property
    def dtypes(self) -> dict[str, np.dtype[np.generic]]:
        """NumPy's types of the arrays."""
        from onnx import helper

        return {name: helper.tensor_dtype_to_np_dtype(element) for name, element in self.elements}

    def __call__(self, *arrays: Array) -> Array:
        given = {
            name: np.asarray(array).astype(dtype, copy=False)
            for array, (name, dtype) in zip(arrays, self.dtypes.items(), strict=True)
        }
        return np.asarray(self._session.run([self.output], given)[0])

    def after(self, before: OnnxHost) -> OnnxHost:
        """Return this function with another before it, whose result is one of its arrays."""
        own = [one for one in self.elements if one[0] != before.output]
        elements = dict([*before.elements, *own])
        return replace(self, nodes=(*before.nodes, *self.nodes), elements=tuple(elements.items()))


def indices_outside(node: Node, shape: Sequence[int], known: Mapping[str, Array]) -> str:
    """Return in words the first known index of a Gather outside of its tensor; empty if there is none."""
    if node.op != "Gather" or node.inputs[1] not in known:
        return ""
    indices, size = known[node.inputs[1]].astype(np.int64).ravel(), shape[int(node.number("axis", 0))]
    wrong = indices[(indices < -size) | (indices >= size)]
    return f"index {wrong[0]} of a dimension of {size}" if wrong.size else ""


def host_step(node: Node, graph: Graph, output: str) -> tuple[Host, list[str]]:
    """Return the host's computation of one of a node's outputs, and the tensors that it reads."""
    assert node.proto is not None
    names = [name for name in dict.fromkeys(node.inputs) if name]
    elements = tuple((name, graph.elements[name]) for name in names)
    proto, versions = node.proto, tuple(graph.versions.items())
    function = OnnxHost((proto.SerializeToString(),), elements, output, versions)
    below = tuple(None if graph.is_float(name) else _below(node, graph, name) for name in names)
    return Host(node.op, function, below, flops=flops_of(node, graph), bytes=bytes_of(node, graph)), names


def _below(node: Node, graph: Graph, name: str) -> int:
    """Return the exclusive upper bound of a tensor's whole numbers: 2 unless they are indices."""
    if node.op.startswith("Gather") and name in node.inputs[1:2]:
        return graph.shapes[node.inputs[0]][int(node.number("axis", 0))]
    return 2


def bytes_of(node: Node, graph: Graph) -> int:
    """Return the bytes that a node reads and writes; of a table only the rows that it gathers."""
    if node.op == "Gather":
        return 8 * math.prod(graph.shapes[node.output])
    return sum(4 * math.prod(graph.shapes.get(name, ())) for name in (*node.inputs, *node.outputs) if name)


def flops_of(node: Node, graph: Graph) -> float:
    """Estimate a node's floating-point operations: one for each element, or those of its products."""
    written = sum(math.prod(graph.shapes.get(name, ())) for name in node.outputs if name)
    shapes = [graph.shapes.get(name, ()) for name in node.inputs if name]
    if node.op in PRODUCTS and len(shapes) > 1:
        return 2.0 * written * (shapes[0][-1] if PRODUCTS[node.op] else math.prod(shapes[1][1:]))
    if node.op in {"LSTM", "GRU", "RNN"}:  # every weight is used once for each element of the sequence
        return 2.0 * math.prod(shapes[0][:2]) * sum(math.prod(one) for one in shapes[1:3])
    return float(written)


def joined_hosts(network: Network) -> Network:
    """Return the network with host steps joined to the only step of the host that reads them."""
    readers = network.readers
    made: dict[str, Step] = {}
    gone: set[str] = set()
    for step in network.steps:
        own = step
        for name in dict.fromkeys(step.inputs):
            before = made.get(name)
            alone = len(readers[name]) == 1 and name not in network.outputs
            if before is not None and alone and (both := _joined(before, own)) is not None:
                own = both
                gone.add(name)
        made[step.output] = own
    steps = [made[step.output] for step in network.steps if step.output not in gone]
    return replace(network, steps=steps)


def _joined(before: Step, step: Step) -> Step | None:
    """Return two steps as one; None unless both are nodes of ONNX."""
    match before.work, step.work:
        case (Host(function=OnnxHost() as inner) as first, Host(function=OnnxHost() as outer) as second):
            function = outer.after(inner)
        case _:
            return None
    bounds = dict(zip((*step.inputs, *before.inputs), (*second.below, *first.below), strict=True))
    inputs = tuple(one for one, _ in function.elements)
    kinds = dict.fromkeys([*first.kind.split("+"), *second.kind.split("+")])
    work = Host(
        "+".join(kinds),
        function,
        tuple(bounds[one] for one in inputs),
        flops=first.flops + second.flops,
        bytes=first.bytes + second.bytes,
        why=second.why,
    )
    return replace(step, work=work, inputs=inputs)
