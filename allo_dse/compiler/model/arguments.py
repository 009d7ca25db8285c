"""Arguments of a call: checked, and if needed copied into memory that compiled code can use."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.errors import SimulationError, warn
from allo_dse.lang.storage import is_stored_as_given, is_wide, loaded, numpy_dtype, stored
from allo_dse.lang.types import DType

from ..program.compiled import CompiledProgram
from ..program.tensors import Tensor

__all__ = ["Arguments", "numpy_dtype"]


class Arguments:
    """The arguments of one call by tensor name, in contiguous memory; `write_back` completes those that were copied."""

    def __init__(self, program: CompiledProgram, arrays: Sequence[object]) -> None:
        if len(arrays) != len(program.tensors):
            names = ", ".join(tensor.name for tensor in program.tensors)
            raise SimulationError(
                f"{program.name} takes {len(program.tensors)} arguments ({names}), {len(arrays)} given"
            )
        self.by_name: dict[str, NDArray[np.generic]] = {}
        self._copied: list[tuple[NDArray[np.generic], NDArray[np.generic], DType]] = []
        for tensor, given in zip(program.tensors, arrays, strict=True):
            self.by_name[tensor.name] = self._usable(tensor, given)
            if tensor.name in program.written_tensors and isinstance(given, np.ndarray) and not given.flags.writeable:
                raise SimulationError(f"argument {tensor.name}: the program writes it, and the array is read-only")

    def write_back(self) -> None:
        """Copy results into the caller's arrays that could not be used in place."""
        for target, used, dtype in self._copied:
            loaded(used.reshape(target.shape), dtype, target)

    def _usable(self, tensor: Tensor, given: object) -> NDArray[np.generic]:
        if not tensor.shape and not isinstance(given, np.ndarray):
            return stored(np.array([given], object if is_wide(tensor.dtype) else None), tensor.dtype)
        if not isinstance(given, np.ndarray):
            raise SimulationError(f"argument {tensor.name}: expected a NumPy array, got {type(given).__name__}")
        expected = numpy_dtype(tensor.dtype)
        flat = given.ndim == 1 and given.size == math.prod(tensor.shape)
        more_rows = tensor.shape and given.shape[1:] == tensor.shape[1:] and given.shape[:1] > tensor.shape[:1]
        if given.shape != tensor.shape and not flat and more_rows:
            warn(f"argument {tensor.name}: only the first {tensor.shape[0]} of {len(given)} rows are used")
            given = given[: tensor.shape[0]]  # the memory begins alike, which is all that hardware sees
        if not (given.shape == tensor.shape or flat) or not _compatible(given.dtype, expected, tensor.dtype):
            shown = f"bytes of {tensor.dtype}" if is_wide(tensor.dtype) else str(expected)
            wanted = f"get_np_struct_type({tensor.dtype.bits})" if is_wide(tensor.dtype) else repr(str(expected))
            raise SimulationError(
                f"argument {tensor.name}: expected {shown} of shape {tensor.shape}, "
                f"got {given.dtype} of shape {given.shape}",
                hint=f"np.zeros({tensor.shape}, {wanted})",
            )
        in_place = given.dtype == expected and given.flags.c_contiguous and given.ndim
        if in_place and is_stored_as_given(tensor.dtype):
            return given.reshape(tensor.shape)
        if given.dtype.kind in "iu" and given.dtype.itemsize > expected.itemsize and given.size:
            low, high = tensor.dtype.limits  # integers of another size are converted, never truncated
            for value in (int(given.min()), int(given.max())):
                if not low <= value < high:
                    raise SimulationError(
                        f"argument {tensor.name}: {value} does not fit {tensor.dtype}",
                        hint=f"{tensor.dtype} holds {low} to {high - 1}",
                    )
        used = stored(given, tensor.dtype).reshape(tensor.shape or (1,))
        if given.flags.writeable:
            self._copied.append((given, used, tensor.dtype))
        return used


def _compatible(given: np.dtype[np.generic], expected: np.dtype[np.generic], dtype: DType) -> bool:
    """Return whether values of the given type can be exchanged for the expected one.

    Equal types; integers for integers; floats for floats and for fixed-point numbers; raw bytes of the same size; for
    wide integers any structure of as many bytes, or Python integers.
    """
    if given == expected or (dtype.is_fixed and given.kind == "f"):
        return True
    if is_wide(dtype):
        return given.kind == "O" or (given.kind == "V" and given.itemsize == expected.itemsize)
    if dtype.is_float:
        return given.kind == "f" and expected.kind in "fV" and given.itemsize >= expected.itemsize
    return given.kind in "iub" or (given.kind == "V" and given.itemsize == expected.itemsize)
