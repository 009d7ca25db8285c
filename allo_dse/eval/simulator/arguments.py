"""The arrays a program is called with: checked, and where needed copied into memory that compiled code can use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from ...errors import SimulationError
from ...frontend.program import CompiledProgram, Tensor
from ...lang.types import DType

_FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}


def numpy_dtype(dtype: DType) -> np.dtype[Any]:
    """How values of an element type are stored: the next larger machine type.

    Raises:
        SimulationError: for integers of more than 64 bits, which no NumPy type holds.
    """
    if dtype.kind == "bfloat":
        return np.dtype(ml_dtypes.bfloat16)
    if dtype.kind == "float":
        return np.dtype(_FLOATS[dtype.bits])
    if dtype.bits > 64:
        raise SimulationError(f"{dtype}: arrays of more than 64 bits per element cannot be arguments yet")
    width = next(w for w in (8, 16, 32, 64) if dtype.bits <= w)
    return np.dtype(f"{'u' if dtype.kind in ('uint', 'ufixed', 'bool') else 'i'}{width // 8}")


class Arguments:
    """The arguments of one call by tensor name, in contiguous memory; `write_back` completes those that were copied."""

    def __init__(self, program: CompiledProgram, arrays: Sequence[Any]) -> None:
        if len(arrays) != len(program.tensors):
            names = ", ".join(tensor.name for tensor in program.tensors)
            raise SimulationError(
                f"{program.name} takes {len(program.tensors)} arguments ({names}), {len(arrays)} given"
            )
        self.by_name: dict[str, NDArray[Any]] = {}
        self._copied: list[tuple[NDArray[Any], NDArray[Any]]] = []
        for tensor, given in zip(program.tensors, arrays, strict=True):
            self.by_name[tensor.name] = self._usable(tensor, given)

    def write_back(self) -> None:
        """Copy results into the caller's arrays that could not be used in place."""
        for target, used in self._copied:
            target[...] = used.reshape(target.shape)

    def _usable(self, tensor: Tensor, given: Any) -> NDArray[Any]:
        expected = numpy_dtype(tensor.dtype)
        if not tensor.shape and not isinstance(given, np.ndarray):
            return np.full(1, given, expected)
        if not isinstance(given, np.ndarray):
            raise SimulationError(f"argument {tensor.name}: expected a NumPy array, got {type(given).__name__}")
        if given.shape != tensor.shape or not _compatible(given.dtype, expected):
            raise SimulationError(
                f"argument {tensor.name}: expected {expected} of shape {tensor.shape}, "
                f"got {given.dtype} of shape {given.shape}",
                hint=f"np.zeros({tensor.shape}, {str(expected)!r})",
            )
        if given.dtype == expected and given.flags.c_contiguous and given.ndim:
            return given
        used = np.ascontiguousarray(given).astype(expected).reshape(tensor.shape or (1,))
        if given.flags.writeable:
            self._copied.append((given, used))
        return used


def _compatible(given: np.dtype[Any], expected: np.dtype[Any]) -> bool:
    """Whether values can be exchanged: equal types, or integers of the same size (such as int4 stored in a byte)."""
    return given == expected or (given.itemsize == expected.itemsize and given.kind in "iubV" and expected.kind in "iu")
