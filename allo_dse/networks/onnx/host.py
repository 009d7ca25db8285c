"""ONNX operators on the host. Their source is exported beside the driver, so they use NumPy only."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..network import Host, Shape
from .graph import Node

Array = NDArray[np.generic]


def gather(data: Array, indices: Array, axis: int = 0) -> Array:
    return np.asarray(np.take(data, indices.astype(np.int64), axis=axis))


def cast(array: Array, dtype: str) -> Array:
    return array.astype(dtype)


def indices_outside(node: Node, shape: Shape, known: Mapping[str, Array]) -> str:
    """Return in words the first known index of a Gather outside of its tensor; empty if there is none."""
    if node.op != "Gather" or node.inputs[1] not in known:
        return ""
    indices, size = known[node.inputs[1]].astype(np.int64).ravel(), shape[int(node.number("axis", 0))]
    wrong = indices[(indices < -size) | (indices >= size)]
    return f"index {wrong[0]} of a dimension of {size}" if wrong.size else ""


def host_step(node: Node, shape: Shape) -> Host | None:
    """Return the host's computation for a node that reads a tensor of a shape.

    None for a cast to a type that NumPy lacks.
    """
    if node.op == "Gather":
        axis = int(node.number("axis", 0))
        return Host(node.op, partial(gather, axis=axis), (None, shape[axis]))
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(int(node.number("to", onnx.TensorProto.FLOAT)))
    if dtype.name == "bfloat16":
        dtype = np.dtype(np.float32)
    return Host(node.op, partial(cast, dtype=dtype.name)) if dtype.isbuiltin == 1 and dtype.kind in "biuf" else None
