"""Operators of ONNX that the host does, as functions of NumPy that a driver can take along."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..network import Host
from .graph import Node

Array = NDArray[np.generic]


def gather(data: Array, indices: Array, axis: int = 0) -> Array:
    return np.asarray(np.take(data, indices.astype(np.int64), axis=axis))


def cast(array: Array, dtype: str) -> Array:
    return array.astype(dtype)


def host_step(node: Node) -> Host:
    """What the host does for a node."""
    if node.op == "Gather":
        return Host(node.op, partial(gather, axis=int(node.number("axis", 0))))
    import onnx

    dtype = onnx.helper.tensor_dtype_to_np_dtype(int(node.number("to", onnx.TensorProto.FLOAT)))
    return Host(node.op, partial(cast, dtype="float32" if dtype.kind not in "biuf" else dtype.name))
