"""ONNX models as plain data: nodes, shapes and known arrays. The one place, with `evaluate`, that imports `onnx`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.common.records import replace

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

Array = NDArray[np.generic]
Shape = tuple[int, ...]
RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
"""Operators that compute something else each time."""


class Node(Struct, frozen=True, eq=False):
    """An operator of a model.

    `proto` is ONNX's own; None for a node that represents several, found by a pattern.
    """

    op: str
    name: str
    inputs: tuple[str, ...]
    output: str
    attributes: Mapping[str, object] = msgspec.field(default_factory=dict)
    proto: NodeProto | None = None

    @property
    def place(self) -> str:
        """The place in the model, for messages."""
        return f"{self.op} {self.name!r}" if self.name else f"{self.op} that writes {self.output!r}"

    @property
    def is_standard(self) -> bool:
        """True for an operator of ONNX itself, False for one of another domain with the same name."""
        return self.proto is None or self.proto.domain in {"", "ai.onnx"}

    @property
    def outputs(self) -> tuple[str, ...]:
        """All that it writes."""
        return (self.output,) if self.proto is None else tuple(self.proto.output)

    def number(self, name: str, default: float) -> float:
        """An attribute that is a number."""
        value = self.attributes.get(name, default)
        return float(value) if isinstance(value, int | float) else default


@dataclass
class Graph:
    """A model as plain data.

    Attributes:
        nodes: in an order in which they can run.
        shapes: of all tensors.
        known: arrays of the tensors that no input changes.
        whole: tensors whose elements are not floating-point numbers.
        names: of all tensors and nodes of the model, and those made since.
    """

    name: str
    nodes: list[Node]
    shapes: dict[str, Shape]
    known: dict[str, Array]
    inputs: list[str]
    outputs: list[str]
    functions: dict[str, int] = field(default_factory=dict)
    whole: frozenset[str] = frozenset()
    names: set[str] = field(default_factory=set)

    def new_name(self, wanted: str) -> str:
        """Return an unused name: the wanted one, with a number if that is taken."""
        every = chain([wanted], (f"{wanted}_{number}" for number in count(2)))
        name = next(one for one in every if one not in self.names)
        self.names.add(name)
        return name

    def writer(self) -> dict[str, Node]:
        """Return the nodes by the tensors that they write."""
        return {name: node for node in self.nodes for name in node.outputs}

    def along_last(self, node: Node, default: int = -1) -> bool:
        """Return whether a node's `axis` is the last dimension of its input."""
        return node.number("axis", default) in (-1, len(self.shapes[node.inputs[0]]) - 1)


def read_graph(model: str | Path | ModelProto, sizes: Mapping[str, int] | None = None) -> Graph:
    """Return the graph of a model whose tensors all have known shapes; constants are folded.

    Args:
        model: a file or a model of `onnx`.
        sizes: of the dimensions that the model leaves open, by name.

    Raises:
        StudyError: without `onnx`, for a file that is not a model, or for dimensions that stay open.
    """
    read = load_model(model) if isinstance(model, str | Path) else model
    graph = read.graph
    versions = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in read.opset_import}
    place = str(model) if isinstance(model, str | Path) else graph.name or "model"
    if missing := [what for what, own in (("operators", graph.node), ("outputs", graph.output)) if not own]:
        raise StudyError(f"{place}: has no {' and no '.join(missing)}", hint="is it a whole model? Export it again")
    known = {one.name: _constant(place, one) for one in graph.initializer}
    given = _bound(place, graph.input, sizes or {})
    inputs = [one.name for one in given if one.name not in known]
    types = {one.name: one.type for one in [*graph.value_info, *graph.output, *given]}
    for name in inputs:
        _require_shape(place, name, types[name])
    types |= {name: _type_of(array) for name, array in known.items()}
    outputs, nodes = [o.name for o in graph.output], []
    same, named = dict[str, str](), {name for one in graph.node for name in one.output}
    for proto in (one for one in graph.node if one.output):
        node = _node(proto, same)
        if node.name in named and node.name != node.output:  # names must be unique: else the output is used
            node = replace(node, name="")
        named.add(node.name)
        values = _values(node, known, types, versions.get("", 1))
        if values is None:
            types |= _inferred(node, known, types, versions)
            if not _changes_nothing(node, known, types):
                nodes.append(node)
            elif node.output in outputs:
                nodes.append(_identity(node))
            else:
                same[node.output] = node.inputs[0]
        else:
            known |= values
            types |= {name: _type_of(array) for name, array in values.items()}
    shapes = {name: shape for name, one in types.items() if (shape := _shape(one)) is not None}
    whole = frozenset(name for name, one in types.items() if not _is_float(one.tensor_type.elem_type))
    names = {*named, *known, *inputs}
    return Graph(graph.name or "network", nodes, shapes, known, inputs, outputs, versions, whole, names)


def _node(proto: NodeProto, same: Mapping[str, str]) -> Node:
    """Return a node that reads the originals of tensors that are equal to others."""
    from onnx import NodeProto, helper

    if any(name in same for name in proto.input):
        renamed = NodeProto()
        renamed.CopyFrom(proto)
        renamed.input[:] = [same.get(name, name) for name in proto.input]
        proto = renamed
    attributes = {one.name: helper.get_attribute_value(one) for one in proto.attribute}
    inputs = list(proto.input)
    while inputs and not inputs[-1]:  # optional inputs that are not given
        inputs.pop()
    return Node(proto.op_type, proto.name, tuple(inputs), proto.output[0], attributes, proto)


def _changes_nothing(node: Node, known: Mapping[str, Array], types: Mapping[str, TypeProto]) -> bool:
    """Return whether a node's output equals its input.

    Casts between floating-point types count: networks have one type for all of them.
    """
    if not node.is_standard:
        return False
    if node.op == "Cast" and node.inputs[0] in types:
        return _is_float(types[node.inputs[0]].tensor_type.elem_type) and _is_float(node.attributes["to"])
    trained = node.inputs[2:] and known.get(node.inputs[2], np.True_).any()
    return node.op == "Identity" or (node.op == "Dropout" and not trained)


def _identity(node: Node) -> Node:
    """Return an Identity node in place of one that changes nothing."""
    from onnx import helper

    proto = helper.make_node("Identity", [node.inputs[0]], [node.output], name=node.name)
    return Node("Identity", node.name, (node.inputs[0],), node.output, proto=proto)


def _is_float(element: object) -> bool:
    from onnx import TensorProto

    return element in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def _shape(type_: TypeProto) -> Shape | None:
    dims = type_.tensor_type.shape.dim
    closed = type_.tensor_type.HasField("shape") and all(dim.HasField("dim_value") for dim in dims)
    return tuple(dim.dim_value for dim in dims) if closed else None


def _type_of(array: Array) -> TypeProto:
    from onnx import helper

    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _require_shape(model: str, name: str, type_: TypeProto) -> None:
    shape = _shape(type_)
    if shape is None or 0 in shape:
        names = [dim.dim_param for dim in type_.tensor_type.shape.dim if dim.dim_value < 1]
        said = f"open dimensions: {', '.join(one or '?' for one in names)}" if names else "no shape"
        named = next(filter(None, names), None)
        hint = f"give their sizes: --set {named}=1, or sizes={{{named!r}: 1}}" if named else "export it with its shape"
        raise StudyError(f"{model}: input {name!r} has {said}", hint=hint)


def _values(
    node: Node, known: Mapping[str, Array], types: Mapping[str, TypeProto], version: int
) -> dict[str, Array] | None:
    """Compute the outputs of a node from constants, or from a shape; None if it depends on more."""
    if node.op in RANDOM or not node.is_standard:
        return None
    shape = _shape(types[node.inputs[0]]) if node.op == "Shape" and node.inputs[0] in types else None
    if shape is not None:
        return evaluate(node, {node.inputs[0]: np.broadcast_to(np.float32(0), shape)}, version)
    if all(name in known or not name for name in node.inputs):
        return evaluate(node, {name: known[name] for name in node.inputs if name}, version)
    return None


def _inferred(
    node: Node, known: Mapping[str, Array], types: Mapping[str, TypeProto], versions: Mapping[str, int]
) -> dict[str, TypeProto]:
    """Infer the types of a node's outputs by ONNX's rules, which read sizes from small constants."""
    from onnx import checker, defs, helper, numpy_helper, shape_inference

    assert node.proto is not None
    domain, names = node.proto.domain, [name for name in node.inputs if name]
    if not defs.has(node.op, domain) or any(name not in types for name in names):
        return {}
    small = [name for name in names if name in known and known[name].ndim < 2]
    try:
        found = shape_inference.infer_node_outputs(
            defs.get_schema(node.op, versions.get(domain, 1), domain),
            node.proto,
            {name: types[name] for name in names},
            {name: numpy_helper.from_array(known[name], name) for name in small},
            opset_imports=[helper.make_opsetid(name, version) for name, version in versions.items()],
        )
    except (shape_inference.InferenceError, defs.SchemaError, checker.ValidationError) as error:
        raise StudyError(f"{node.place}: not as ONNX has it: {str(error).strip()}") from None
    return dict(found)


def load_model(path: str | Path, name: str = "") -> ModelProto:
    """Load a model from a file, and rename it if a name is given.

    Raises:
        StudyError: without `onnx`, or for a file that is not a model.
    """
    try:
        import onnx
    except ImportError:
        raise StudyError("reading ONNX models needs the package onnx", hint="pip install 'allo-dse[onnx]'") from None
    try:
        model = onnx.load(str(path))
    except Exception as error:  # a parser for each format, with exceptions of its own
        hint = "name an ONNX model, or a .py file" if isinstance(error, OSError) else "is it whole? Export it again"
        raise StudyError(f"{path} is not a model that onnx reads: {error}", hint=hint) from None
    model.graph.name = name or model.graph.name
    return model


def _bound(model: str, inputs: Iterable[ValueInfoProto], sizes: Mapping[str, int]) -> list[ValueInfoProto]:
    """The inputs, with the sizes of their open dimensions; a model that is given stays as it is."""
    found = [deepcopy(one) for one in inputs]
    open_ = [dim for one in found for dim in one.type.tensor_type.shape.dim if dim.dim_param]
    names = {dim.dim_param for dim in open_}
    if unknown := [name for name in sizes if name not in names]:
        hint = f"{did_you_mean(unknown[0], names)}There are: {', '.join(sorted(names)) or 'none'}"
        raise StudyError(f"{model}: no input has an open dimension {unknown[0]!r}", hint=hint)
    for dim in open_:
        if dim.dim_param in sizes:
            dim.dim_value = sizes[dim.dim_param]
    return found


def _constant(model: str, tensor: TensorProto) -> Array:
    from onnx import numpy_helper

    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:  # onnx has its own exceptions, and external data may be missing
        raise StudyError(f"{model}: constant {tensor.name!r} cannot be read: {error}") from None


def evaluate(node: Node, arrays: Mapping[str, Array], version: int) -> dict[str, Array]:
    """Compute a node's outputs with ONNX's reference evaluator.

    Raises:
        StudyError: if the evaluator fails.
    """
    import onnx
    from onnx.reference import ReferenceEvaluator

    assert node.proto is not None
    names = [name for name in node.proto.input if name]
    infos = [onnx.helper.make_tensor_value_info(name, 0, None) for name in dict.fromkeys(names)]
    outs = [onnx.helper.make_tensor_value_info(name, 0, None) for name in node.proto.output if name]
    graph = onnx.helper.make_graph([node.proto], "node", infos, outs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", version)])
    given = {name: arrays[name] for name in names}
    try:
        found = ReferenceEvaluator(model).run(None, given)
    except Exception as error:  # NumPy operators raise anything
        raise StudyError(f"{node.place}: ONNX's reference evaluator cannot compute it: {error}") from None
    return {info.name: np.asarray(value) for info, value in zip(outs, found, strict=True)}
