"""ONNX models as plain data: nodes, shapes and known arrays. The one place, with `evaluate`, that imports `onnx`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = NDArray[np.generic]
Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Node:
    """An operator of a model. `proto` is ONNX's own; None for one that stands for a pattern of several."""

    op: str
    name: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, object] = field(default_factory=dict)
    proto: NodeProto | None = None

    @property
    def place(self) -> str:
        """Where it is in the model, for messages."""
        return f"{self.op} {self.name!r}" if self.name else f"{self.op} that writes {self.output!r}"

    def number(self, name: str, default: float) -> float:
        """An attribute that is a number."""
        value = self.attributes.get(name, default)
        return float(value) if isinstance(value, int | float) else default


@dataclass
class Graph:
    """Attributes:
    nodes: in an order in which they can run. shapes: of all tensors. known: arrays of those that no input changes.
    """

    name: str
    nodes: list[Node]
    shapes: dict[str, Shape]
    known: dict[str, Array]
    inputs: list[str]
    outputs: list[str]
    functions: dict[str, int] = field(default_factory=dict)

    def writer(self) -> dict[str, Node]:
        """The nodes by what they write."""
        return {node.output: node for node in self.nodes}


def read_graph(model: str | Path | ModelProto, sizes: Mapping[str, int] | None = None) -> Graph:
    """A model whose tensors all have known shapes; what depends on constants alone is computed.

    Args:
        model: a file or a model of `onnx`.
        sizes: of the dimensions that the model leaves open, by name.

    Raises:
        StudyError: without `onnx`, for a file that is no model, or dimensions that stay open.
    """
    try:
        import onnx
        from onnx import numpy_helper, shape_inference
    except ImportError:
        raise StudyError("reading ONNX models needs the package onnx", hint="pip install 'allo-dse[onnx]'") from None
    read = _read(model) if isinstance(model, str | Path) else model
    _bind(read, sizes or {})
    read = shape_inference.infer_shapes(read, data_prop=True)
    graph = read.graph
    known = {one.name: numpy_helper.to_array(one) for one in graph.initializer}
    inputs = [one.name for one in graph.input if one.name not in known]
    shapes = {name: array.shape for name, array in known.items()}
    for value in [*graph.input, *graph.value_info, *graph.output]:
        dims = value.type.tensor_type.shape.dim
        if all(dim.HasField("dim_value") for dim in dims):
            shapes[value.name] = tuple(dim.dim_value for dim in dims)
        elif value.name in inputs:
            names = [dim.dim_param or "?" for dim in dims if not dim.HasField("dim_value")]
            raise StudyError(
                f"{graph.name}: input {value.name!r} has open dimensions: {', '.join(names)}",
                hint=f"give their sizes: sizes={{{names[0]!r}: 1}}",
            )
    nodes = []
    for proto in graph.node:
        attributes = {one.name: onnx.helper.get_attribute_value(one) for one in proto.attribute}
        node = Node(proto.op_type, proto.name, tuple(proto.input), proto.output[0], attributes, proto)
        if all(name in known or not name for name in node.inputs):
            values = evaluate(node, {name: known[name] for name in node.inputs if name}, read.opset_import[0].version)
            known |= values
            shapes |= {name: array.shape for name, array in values.items()}
        else:
            nodes.append(node)
    versions = {one.domain: one.version for one in read.opset_import}
    return Graph(graph.name or "network", nodes, shapes, known, inputs, [o.name for o in graph.output], versions)


def _read(path: str | Path) -> ModelProto:
    import onnx
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

    try:
        return onnx.load(str(path))
    except (OSError, DecodeError) as error:
        raise StudyError(f"{path} is not a model that onnx reads: {error}") from None


def _bind(model: ModelProto, sizes: Mapping[str, int]) -> None:
    """Give open dimensions of the inputs their sizes."""
    for value in model.graph.input:
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in sizes:
                dim.dim_value = sizes[dim.dim_param]


def evaluate(node: Node, arrays: Mapping[str, Array], version: int) -> dict[str, Array]:
    """What a node computes, by ONNX's reference evaluator."""
    import onnx
    from onnx.reference import ReferenceEvaluator

    assert node.proto is not None
    names = [name for name in node.proto.input if name]
    infos = [onnx.helper.make_tensor_value_info(name, 0, None) for name in dict.fromkeys(names)]
    outs = [onnx.helper.make_tensor_value_info(name, 0, None) for name in node.proto.output if name]
    graph = onnx.helper.make_graph([node.proto], "node", infos, outs)
    evaluator = ReferenceEvaluator(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)]))
    found = evaluator.run(None, {name: arrays[name] for name in names})
    return {info.name: np.asarray(value) for info, value in zip(outs, found, strict=True)}
