"""What lives from call to call: variables of tasks, and memory that tasks share."""

from __future__ import annotations

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.lang.storage import storage_dtype, stored
from allo_dse.program.compiled import CompiledProgram


class State(Struct, frozen=True):
    """Attributes:
    variables: per kernel and class, one array for each of the class's variables: a row per task.
    shared: per shared tensor its contents.
    """

    variables: dict[tuple[str, str], list[NDArray[np.generic]]]
    shared: dict[str, NDArray[np.generic]]


def initial_state(program: CompiledProgram) -> State:
    """Everything as it is before the first call."""
    result: dict[tuple[str, str], list[NDArray[np.generic]]] = {}
    for kernel in program.kernels:
        for count, task_class in zip(kernel.class_sizes, kernel.classes, strict=True):
            result[kernel.name, task_class.name] = [
                np.tile(stored(v.initial, v.dtype), (count, *(1,) * len(v.shape))).astype(storage_dtype(v.dtype))
                for v in task_class.state
            ]
    return State(result, {one.tensor.name: stored(one.initial, one.tensor.dtype) for one in program.shared})
