"""Variables of tasks that live from call to call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ...frontend.program import CompiledProgram
from ...lang.storage import storage_dtype, stored

State = dict[tuple[str, str], list[NDArray[Any]]]
"""Per kernel and class, one array for each of the class's variables: a row per task."""


def initial_state(program: CompiledProgram) -> State:
    """The variables as they are before the first call."""
    result: State = {}
    for kernel in program.kernels:
        counts = np.bincount(np.broadcast_to(kernel.class_table, kernel.mesh).ravel(), minlength=len(kernel.classes))
        for count, task_class in zip(counts, kernel.classes, strict=True):
            result[kernel.name, task_class.name] = [
                np.tile(stored(v.initial, v.dtype), (int(count), *(1,) * len(v.shape))).astype(storage_dtype(v.dtype))
                for v in task_class.state
            ]
    return result
