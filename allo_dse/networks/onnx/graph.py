"""ONNX models as plain data: nodes, shapes and known arrays."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain, count
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from allo_dse.common.errors import StudyError, did_you_mean
from allo_dse.common.records import Frozen, replace

from .definitions import Array, Shape, einsum_parts, linear_parts, narrow_parts, norm_parts, shape_of
from .evaluate import NotComputed, evaluate, run_model

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto, ValueInfoProto

RANDOM = {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
"""Operators that compute something else each time."""


class Node(Frozen, eq=False):
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


class Codes(Frozen):
    """Whole numbers that a known array is made of: (codes - zero) * scale, arrays of one shape."""

    codes: Array
    scale: Array
    zero: Array


@dataclass
class Graph:
    """A model as plain data.

    Attributes:
        nodes: in an order in which they can run.
        shapes: of all tensors.
        known: arrays of the tensors that no input changes.
        versions: of ONNX's operators, by domain.
        elements: ONNX's element types of tensors.
        open: tensors whose shapes depend on the inputs' elements; `shapes` has those for one example.
        names: of all tensors and nodes of the model, and those made since.
        codes: what known arrays were quantized to.
        whole: element types of tensors that are not of the network's own type.
        widened: nodes that compute with more bits than their operands have in the model.
    """

    name: str
    nodes: list[Node]
    shapes: dict[str, Shape]
    known: dict[str, Array]
    inputs: list[str]
    outputs: list[str]
    versions: dict[str, int] = field(default_factory=dict)
    elements: dict[str, int] = field(default_factory=dict)
    open: frozenset[str] = frozenset()
    names: set[str] = field(default_factory=set)
    codes: dict[str, Codes] = field(default_factory=dict)
    whole: dict[str, str] = field(default_factory=dict)
    widened: list[str] = field(default_factory=list)

    def is_float(self, name: str) -> bool:
        """Return whether a tensor's elements are floating-point numbers."""
        return is_float(self.elements.get(name))

    @property
    def version(self) -> int:
        """The version of ONNX's own operators."""
        return self.versions.get("", 1)

    def new_name(self, wanted: str) -> str:
        """Return an unused name: the wanted one, with a number if that is taken."""
        every = chain([wanted], (f"{wanted}_{number}" for number in count(2)))
        name = next(one for one in every if one not in self.names)
        self.names.add(name)
        return name

    def new_known(self, wanted: str, array: Array) -> str:
        """Add a known array, and return its name."""
        name = self.new_name(wanted)
        self.known[name], self.shapes[name] = array, array.shape
        self.elements[name] = _type_of(array).tensor_type.elem_type
        return name

    def writer(self) -> dict[str, Node]:
        """Return the nodes by the tensors that they write."""
        return {name: node for node in self.nodes for name in node.outputs}

    def readers(self) -> Mapping[str, list[Node]]:
        """Return the nodes that read each tensor."""
        found = defaultdict[str, list[Node]](list)
        for node in self.nodes:
            for name in dict.fromkeys(node.inputs):
                found[name].append(node)
        return found


def read_graph(
    model: str | Path | ModelProto, sizes: Mapping[str, int] | None = None, keep: frozenset[str] = frozenset()
) -> Graph:
    """Return the graph of a model whose tensors all have known shapes; constants are folded.

    Shapes that ONNX's rules do not give are those of a run on random inputs.

    Args:
        model: a file or a model of `onnx`.
        sizes: of the dimensions that the model leaves open, by name, or by input and position: `x.0`; and values of
            inputs that are one whole number.
        keep: names and types of nodes that stay as they are.

    Raises:
        StudyError: without `onnx`, for a file that is not a model, or for dimensions that stay open.
    """
    read = load_model(model) if isinstance(model, str | Path) else model
    if read.functions:
        from onnx import inliner

        read = inliner.inline_local_functions(read)
    graph = read.graph
    versions = {"" if one.domain == "ai.onnx" else one.domain: one.version for one in read.opset_import}
    place = str(model) if isinstance(model, str | Path) else graph.name or "model"
    if missing := [what for what, own in (("operators", graph.node), ("outputs", graph.output)) if not own]:
        raise StudyError(f"{place}: has no {' and no '.join(missing)}", hint="is it a whole model? Export it again")
    known = {one.name: _constant(place, one) for one in graph.initializer}
    known |= (values := _number_inputs(graph.input, sizes or {}))
    rest = {name: size for name, size in (sizes or {}).items() if name not in values}
    given = [one for one in _bound(place, graph.input, rest) if one.name not in known]
    for one in given:
        shape = shape_of(one.type)
        if shape is None or 0 in shape:
            dims = enumerate(one.type.tensor_type.shape.dim)
            names = [dim.dim_param or f"{one.name}.{axis}" for axis, dim in dims if dim.dim_value < 1]
            said = f"open dimensions: {', '.join(names)}" if names else "no shape"
            hint = f"give their sizes: --set {names[0]}=1, or sizes={{{names[0]!r}: 1}}" if names else "export it again"
            raise StudyError(f"{place}: input {one.name!r} has {said}", hint=hint)
    found = _read(graph, given, known, versions, keep)
    foreign = [name for node in found.nodes if not _has_rules(node, versions) for name in node.outputs if name]
    if any(name not in found.shapes for name in foreign):  # no rules of ONNX say what they write
        types = {name: _type_of(array) for name, array in _example(found, foreign).items()}
        found = _read(graph, given, known, versions, keep, types)
    missing = [name for node in found.nodes for name in node.outputs if name and name not in found.shapes]
    example = _example(found, missing) if missing else {}
    return replace(
        found,
        shapes=found.shapes | {name: array.shape for name, array in example.items()},
        elements=found.elements | {n: _type_of(array).tensor_type.elem_type for n, array in example.items()},
        open=frozenset(example),
    )


def _read(
    graph: GraphProto,
    given: Sequence[ValueInfoProto],
    constants: Mapping[str, Array],
    versions: dict[str, int],
    keep: frozenset[str],
    measured: Mapping[str, TypeProto] | None = None,
) -> Graph:
    """Return a graph with folded constants, and the shapes that follow from its inputs.

    Args:
        keep: names and types of nodes that stay as they are.
        measured: types of tensors that no rules give.
    """
    known, inputs = dict(constants), [one.name for one in given]
    types = {one.name: one.type for one in given}
    types |= {name: _type_of(array) for name, array in known.items()}
    outputs, nodes = [o.name for o in graph.output], list[Node]()
    same, named = dict[str, str](), {name for one in graph.node for name in one.output}
    codes: dict[str, Codes] = {}
    waiting = deque(one for one in graph.node if one.output)
    while waiting:
        proto = waiting.popleft()
        first = same.get(proto.input[0], proto.input[0]) if proto.input else ""
        shape = shape_of(types[first]) if first in types and not keep & {proto.op_type, proto.name} else None
        parts = (
            _taken_branch(proto, known, same)
            or linear_parts(proto)
            or einsum_parts(proto, types, same)
            or norm_parts(proto, shape, versions.get("", 1))
        )
        if parts is None and (narrow := narrow_parts(proto, known)) is not None:
            parts, every = narrow
            codes[parts[0].output[0]] = Codes(*every)
        if parts is not None:
            waiting.extendleft(reversed(parts))
            continue
        node = _node(proto, same)
        if node.name in named and node.name != node.output:  # names must be unique: else the output is used
            node = replace(node, name="")
        named.add(node.name)
        values = _values(node, known, types, versions)
        if values is None:
            types |= _inferred(node, known, types, versions)
            types |= {name: one for name, one in (measured or {}).items() if name in node.outputs}
            if not _changes_nothing(node, known, types):
                nodes.append(node)
            elif node.output in outputs:
                nodes.append(_identity(node))
            else:
                same[node.output] = node.inputs[0]
        else:
            known |= values
            if (quantized := _codes(node, known, codes, versions)) is not None:
                codes[node.output] = quantized
            types |= {name: _type_of(array) for name, array in values.items()}
    shapes = {name: shape for name, one in types.items() if (shape := shape_of(one)) is not None}
    elements = {name: one.tensor_type.elem_type for name, one in types.items()}
    return Graph(
        graph.name or "network",
        nodes,
        shapes,
        known,
        inputs,
        outputs,
        versions,
        elements,
        names={*named, *known, *inputs},
        codes=codes,
    )


def _codes(
    node: Node, known: Mapping[str, Array], codes: Mapping[str, Codes], versions: Mapping[str, int]
) -> Codes | None:
    """Return what the result of a known node was quantized to; None if it was not, or is more than rearranged."""
    assert node.proto is not None
    if node.op == "DequantizeLinear":
        array, scale, *zero = (known[name] for name in node.inputs)
        by_scale = np.ones_like(array), scale, *map(np.zeros_like, zero)
        by_zero = np.zeros_like(array), np.ones_like(scale), *zero
        arrays = (dict(zip(node.inputs, one, strict=True)) for one in (by_scale, by_zero))
        scales, zeros = (evaluate(node.proto, one, versions)[node.output] for one in arrays)
        return Codes(array, scales, -zeros.astype(np.int32))
    if node.op not in ("Transpose", "Reshape", "Identity") or node.inputs[0] not in codes:
        return None
    given, before = {name: known[name] for name in node.inputs[1:]}, codes[node.inputs[0]]
    every = (before.codes, before.scale, before.zero)
    return Codes(*(evaluate(node.proto, {node.inputs[0]: one, **given}, versions)[node.output] for one in every))


def _example(graph: Graph, wanted: Sequence[str]) -> dict[str, Array]:
    """Compute tensors for random inputs; none if no evaluator does."""
    from onnx import helper

    rng = np.random.default_rng(0)

    def drawn(name: str) -> Array:
        dtype, shape = helper.tensor_dtype_to_np_dtype(graph.elements[name]), graph.shapes[name]
        return rng.standard_normal(shape).astype(dtype) if graph.is_float(name) else np.zeros(shape, dtype)

    given = {name: drawn(name) for name in graph.inputs}
    reads = {name for node in graph.nodes for name in node.inputs}
    constants = {name: array for name, array in graph.known.items() if name in reads}
    try:
        return run_model([node.proto for node in graph.nodes], {**constants, **given}, wanted, graph.versions)
    except NotComputed:
        return {}


def _taken_branch(proto: NodeProto, known: Mapping[str, Array], same: Mapping[str, str]) -> list[NodeProto] | None:
    """Return the nodes of the branch that an If with a known condition takes; None for any other node."""
    from onnx import NodeProto, helper

    if proto.op_type != "If" or proto.input[0] not in known:
        return None
    wanted = "then_branch" if known[proto.input[0]].all() else "else_branch"
    graph = next(one.g for one in proto.attribute if one.name == wanted)
    names = {name: f"{proto.output[0]}/{name}" for name in _own_names(graph) - {""}}
    found = [helper.make_node("Constant", [], [names[one.name]], value=one) for one in graph.initializer]
    for node in graph.node:
        copy = NodeProto()
        copy.CopyFrom(node)
        rename(copy, names)
        copy.output[:] = [names.get(name, name) for name in copy.output]
        found.append(copy)
    ends = zip(graph.output, proto.output, strict=True)
    return [*found, *(helper.make_node("Identity", [names.get(a.name, a.name)], [b]) for a, b in ends if b)]


def rename(proto: NodeProto, names: Mapping[str, str]) -> None:
    """Rename the tensors that a node reads, also inside its subgraphs."""
    proto.input[:] = [names.get(name, name) for name in proto.input]
    for graph in _subgraphs(proto):
        own = _own_names(graph)
        outer = {name: new for name, new in names.items() if name not in own}
        for node in graph.node:
            rename(node, outer)
        for output in graph.output:
            output.name = outer.get(output.name, output.name)


def _subgraphs(proto: NodeProto) -> list[GraphProto]:
    return [graph for one in proto.attribute for graph in ([one.g] if one.HasField("g") else one.graphs)]


def _own_names(graph: GraphProto) -> set[str]:
    return {one.name for one in (*graph.input, *graph.initializer)} | {n for one in graph.node for n in one.output}


def _captured(proto: NodeProto) -> list[str]:
    """Return the tensors of the outer graph that a node's subgraphs read."""
    found: list[str] = []
    for graph in _subgraphs(proto):
        own = _own_names(graph)
        reads = [name for node in graph.node for name in (*node.input, *_captured(node))]
        found += [name for name in (*reads, *(one.name for one in graph.output)) if name and name not in own]
    return list(dict.fromkeys(found))


def _node(proto: NodeProto, same: Mapping[str, str]) -> Node:
    """Return a node that reads the originals of tensors that are equal to others."""
    from onnx import NodeProto, helper

    captured = _captured(proto)
    if any(name in same for name in (*proto.input, *captured)):
        renamed = NodeProto()
        renamed.CopyFrom(proto)
        rename(renamed, same)
        proto, captured = renamed, [same.get(name, name) for name in captured]
    attributes = {one.name: helper.get_attribute_value(one) for one in proto.attribute}
    inputs = list(proto.input)
    while inputs and not inputs[-1]:  # optional inputs that are not given
        inputs.pop()
    output = next(name for name in proto.output if name)
    more = tuple(name for name in captured if name not in inputs)
    return Node(proto.op_type, proto.name, (*inputs, *more), output, attributes, proto)


def _has_rules(node: Node, versions: Mapping[str, int]) -> bool:
    """Return whether ONNX has rules for the shapes of what a node writes; it has none for what it defines by others."""
    from onnx import defs

    if not node.is_standard:
        return False
    schema = defs.get_schema(node.op, versions.get("", 1), "")
    return not (schema.has_function or schema.has_context_dependent_function)


def _changes_nothing(node: Node, known: Mapping[str, Array], types: Mapping[str, TypeProto]) -> bool:
    """Return whether a node's output equals its input.

    Casts between floating-point types count: networks have one type for all of them.
    """
    if not node.is_standard:
        return False
    if node.op == "Cast" and node.inputs[0] in types:
        return is_float(types[node.inputs[0]].tensor_type.elem_type) and is_float(node.attributes["to"])
    trained = node.inputs[2:] and known.get(node.inputs[2], np.True_).any()
    return node.op == "Identity" or (node.op == "Dropout" and not trained)


def _identity(node: Node) -> Node:
    """Return an Identity node in place of one that changes nothing."""
    from onnx import helper

    proto = helper.make_node("Identity", [node.inputs[0]], [node.output], name=node.name)
    return Node("Identity", node.name, (node.inputs[0],), node.output, proto=proto)


def is_float(element: object) -> bool:
    """Return whether a type of ONNX's is a floating-point one."""
    from onnx import TensorProto

    return element in (TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16)


def _type_of(array: Array) -> TypeProto:
    from onnx import helper

    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _values(
    node: Node, known: Mapping[str, Array], types: Mapping[str, TypeProto], versions: Mapping[str, int]
) -> dict[str, Array] | None:
    """Compute the outputs of a node from constants, or from a shape; None if it depends on more."""
    if node.op in RANDOM or (not node.is_standard and not node.inputs):
        return None
    assert node.proto is not None
    shape = shape_of(types[node.inputs[0]]) if node.op == "Shape" and node.inputs[0] in types else None
    own = known if shape is None else {node.inputs[0]: np.broadcast_to(np.float32(0), shape)}
    with suppress(NotComputed):
        if all(name in own or not name for name in node.inputs):
            return evaluate(node.proto, {name: own[name] for name in node.inputs if name}, versions)
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
        if _subgraphs(node.proto):  # rules of one node do not see what its subgraphs read
            return {}
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


def _number_inputs(inputs: Iterable[ValueInfoProto], sizes: Mapping[str, int]) -> dict[str, Array]:
    """Return the inputs that are one whole number each and have a value among the sizes, such as a sampling rate."""
    from onnx import helper

    found = {}
    for one in inputs:
        dtype, shape = helper.tensor_dtype_to_np_dtype(one.type.tensor_type.elem_type), shape_of(one.type)
        if one.name in sizes and dtype.kind in "iub" and shape is not None and prod(shape) == 1:
            found[one.name] = np.full(shape, sizes[one.name], dtype)
    return found


def _bound(model: str, inputs: Iterable[ValueInfoProto], sizes: Mapping[str, int]) -> list[ValueInfoProto]:
    """The inputs, with the sizes of their open dimensions; a model that is given stays as it is."""
    found = [deepcopy(one) for one in inputs]
    open_ = [
        (dim, f"{one.name}.{axis}")
        for one in found
        for axis, dim in enumerate(one.type.tensor_type.shape.dim)
        if not dim.HasField("dim_value") or dim.dim_value < 1
    ]
    names = {name for dim, at in open_ for name in (dim.dim_param, at) if name}
    if unknown := [name for name in sizes if name not in names]:
        hint = f"{did_you_mean(unknown[0], names)}There are: {', '.join(sorted(names)) or 'none'}"
        raise StudyError(f"{model}: no input has an open dimension {unknown[0]!r}", hint=hint)
    for dim, at in open_:
        size = sizes.get(at, sizes.get(dim.dim_param))
        if size is not None:
            dim.dim_value = size
    return found


def _constant(model: str, tensor: TensorProto) -> Array:
    from onnx import numpy_helper

    try:
        return np.asarray(numpy_helper.to_array(tensor))
    except Exception as error:  # onnx has its own exceptions, and external data may be missing
        raise StudyError(f"{model}: constant {tensor.name!r} cannot be read: {error}") from None
