"""Contents of `allo.dataflow` for programs, usually imported as `df`."""

from __future__ import annotations

from typing import SupportsIndex

from ..intrinsics import INTRINSICS
from ..region import kernel, region
from ..schedule import build, customize
from ..types import DType, Shape, Stream, StreamType, stream_type


def pipe(dtype: DType, shape: Shape | list[SupportsIndex] = (), depth: int = Stream.DEFAULT_DEPTH) -> StreamType:
    """A stream in the older spelling: `p = df.pipe(dtype=int8, shape=(M,), depth=4)`, in a region."""
    block = shape if isinstance(shape, tuple) else tuple(shape) if isinstance(shape, list) else (shape,)
    stream: StreamType = stream_type(dtype[block] if block else dtype, depth)
    return stream


def array(element: StreamType, shape: Shape | list[SupportsIndex]) -> StreamType:
    """An array of streams in the older spelling: `ps = df.array(df.pipe(dtype=int8), shape=[P, Q])`."""
    return element[tuple(shape) if isinstance(shape, (list, tuple)) else shape]


get_pid = INTRINSICS["get_pid"]
gather = INTRINSICS["gather"]
scatter = INTRINSICS["scatter"]

__all__ = ["array", "build", "customize", "gather", "get_pid", "kernel", "pipe", "region", "scatter"]
