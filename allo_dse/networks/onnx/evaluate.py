"""Operators of ONNX on arrays: by onnxruntime where it is installed, else by ONNX's reference evaluator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import StudyError

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Array = NDArray[np.generic]
IR_VERSION = 10
"""The format of models that onnxruntime has read since 1.18; it has types of four bits."""


class NotComputed(StudyError):
    """Nodes that no evaluator here computes."""


class ModelSession(Protocol):
    """A model that can be run, as both evaluators have it."""

    def run(self, output_names: Any, input_feed: Any) -> Any: ...


def model_of(
    nodes: Sequence[NodeProto], arrays: Mapping[str, int], outputs: Sequence[str], versions: Mapping[str, int]
) -> ModelProto:
    """Return a model of some nodes.

    Args:
        arrays: what the nodes read, with ONNX's element types.
        versions: of the operators, by domain.
    """
    from onnx import ValueInfoProto, helper

    infos = [helper.make_tensor_value_info(name, element, None) for name, element in arrays.items()]
    outs = [ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(list(nodes), "part", infos, outs)
    if all(node.op_type == "DequantizeLinear" for node in nodes):  # the reference evaluator begins with version 19
        versions = {**versions, "": max(21, versions.get("", 1))}
    imports = [helper.make_opsetid(domain, version) for domain, version in versions.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=IR_VERSION)


def session_of(model: ModelProto) -> ModelSession:
    """Return what runs a model.

    Raises:
        NotComputed: if no evaluator takes it.
    """
    why = ""
    try:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        session: ModelSession = onnxruntime.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        return session
    except ImportError:
        why = "; pip install onnxruntime, which has more operators"
    except Exception as error:  # it has exceptions of its own
        why = f"; onnxruntime: {error}"
    from onnx.reference import ReferenceEvaluator

    try:
        made: ModelSession = ReferenceEvaluator(model)
        return made
    except Exception as error:
        raise NotComputed(f"ONNX's reference evaluator: {error}{why}") from None


def run_model(
    nodes: Sequence[NodeProto | None],
    arrays: Mapping[str, Array],
    outputs: Sequence[str],
    versions: Mapping[str, int],
    *,
    exact: bool = False,
) -> dict[str, Array]:
    """Compute tensors that nodes write.

    Args:
        exact: by ONNX's reference evaluator, unless that fails.

    Raises:
        NotComputed: if no evaluator does.
    """
    from onnx import helper
    from onnx.reference import ReferenceEvaluator

    types = {name: helper.np_dtype_to_tensor_dtype(array.dtype) for name, array in arrays.items()}
    model, found = model_of([node for node in nodes if node is not None], types, outputs, versions), None
    if exact:
        with suppress(Exception):  # NumPy operators raise anything
            found = ReferenceEvaluator(model).run(list(outputs), dict(arrays))
    try:
        found = found or session_of(model).run(list(outputs), dict(arrays))
    except NotComputed:
        raise
    except Exception as error:
        raise NotComputed(str(error)) from None
    return {name: np.asarray(value) for name, value in zip(outputs, found, strict=True)}


def evaluate(proto: NodeProto, arrays: Mapping[str, Array], versions: Mapping[str, int]) -> dict[str, Array]:
    """Compute a node's outputs by ONNX's reference evaluator, or by onnxruntime where that fails.

    Raises:
        NotComputed: if both fail.
    """
    return run_model([proto], arrays, [name for name in proto.output if name], versions, exact=True)
