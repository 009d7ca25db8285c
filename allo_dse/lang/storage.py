"""Storage of values in the memory of compiled code, and in NumPy.

Compiled code keeps an integer of n bits in the next machine type, or beyond 64 bits in 16-byte units, its unused high
bits zero. NumPy users hold it as the next machine type, sign-extended, or beyond 64 bits as a structure of bytes
(`allo.utils.get_np_struct_type`) or as Python integers in an array of objects.
"""

from __future__ import annotations

import math
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Array

from .allo.utils import get_np_struct_type
from .types import DType

_FLOATS = {16: np.float16, 32: np.float32, 64: np.float64}
_MACHINE_BITS = (8, 16, 32, 64)
_WIDE_UNIT_BYTES = 16


def numpy_dtype(dtype: DType) -> np.dtype[np.generic]:
    """Return the NumPy type of an element type: the next larger machine type; above 64 bits a structure of bytes."""
    if dtype.kind == "bfloat":
        found: np.dtype[np.generic] = np.dtype(ml_dtypes.bfloat16)
        return found
    if dtype.kind == "float":
        return np.dtype(_FLOATS[dtype.bits])
    if is_wide(dtype):
        return get_np_struct_type(dtype.bits)
    width = next(w for w in _MACHINE_BITS if dtype.bits <= w)
    return np.dtype(f"{'u' if dtype.kind in ('uint', 'ufixed', 'bool') else 'i'}{width // 8}")


def is_wide(dtype: DType) -> bool:
    """Return whether a value is too wide for any machine type."""
    return not dtype.is_float and dtype.bits > _MACHINE_BITS[-1]


def storage_dtype(dtype: DType) -> np.dtype[np.generic]:
    """Return the NumPy type of an element's bytes in compiled code's memory."""
    if not is_wide(dtype):
        return numpy_dtype(dtype)
    return np.dtype(f"V{_WIDE_UNIT_BYTES * math.ceil(dtype.bits / 8 / _WIDE_UNIT_BYTES)}")


def is_stored_as_given(dtype: DType) -> bool:
    """Return whether compiled code can use an array of the NumPy type in place."""
    return dtype.is_float or dtype.bits in _MACHINE_BITS


def stored(values: Array, dtype: DType) -> NDArray[np.generic]:
    """Return a row-major copy of values as compiled code keeps them, in the same shape."""
    if dtype.is_fixed and values.dtype.kind == "f":
        values = np.floor(values.astype(np.float64) * 2.0**dtype.fraction_bits)
    if is_wide(dtype):
        return _wide_stored(values, dtype)
    target = numpy_dtype(dtype)
    if dtype.is_float:
        return np.array(values, dtype=target, order="C")
    if values.dtype.kind == "O":
        values = (values & (2**64 - 1)).astype(np.uint64)
    result = np.array(values.astype(np.int64) if values.dtype.kind in "fV" else values).astype(target, order="C")
    if is_stored_as_given(dtype):
        return result
    bits = result.view(f"u{target.itemsize}")
    found: NDArray[np.generic] = (bits & bits.dtype.type((1 << dtype.bits) - 1)).view(target)
    return found


def loaded(values: Array, dtype: DType, target: NDArray[np.generic]) -> None:
    """Write values of compiled code into a user's array of the same shape."""
    if is_wide(dtype):
        _wide_loaded(values, dtype, target)
        return
    if not is_stored_as_given(dtype) and dtype.is_signed:
        unused = values.dtype.itemsize * 8 - dtype.bits
        values = (values << unused) >> unused
    if dtype.is_fixed and target.dtype.kind == "f":
        values = values * 2.0**-dtype.fraction_bits
    target[...] = values.astype(target.dtype)


def wrapped(values: Array, dtype: DType, target: Any = None) -> Array:
    """Return values as a tensor holds them.

    Args:
        target: NumPy type of the result; by default Python integers for types wider than 64 bits.
    """
    result: Array = np.empty(values.shape, target or (object if is_wide(dtype) else numpy_dtype(dtype)))
    loaded(stored(values, dtype), dtype, result)
    return result


def _wide_stored(values: NDArray[np.generic], dtype: DType) -> NDArray[np.generic]:
    used, size = math.ceil(dtype.bits / 8), storage_dtype(dtype).itemsize
    result = np.zeros((*values.shape, size), np.uint8)
    if values.dtype.kind == "V":
        result[..., :used] = _bytes_of(values, used)
    else:
        for index, value in np.ndenumerate(values):
            number = int(value) & ((1 << dtype.bits) - 1)
            result[index][:used] = np.frombuffer(number.to_bytes(used, "little"), np.uint8)
    if dtype.bits % 8:
        result[..., used - 1] &= (1 << dtype.bits % 8) - 1
    return result.view(storage_dtype(dtype)).reshape(values.shape)


def _bytes_of(values: Array, used: int) -> NDArray[np.uint8]:
    return np.ascontiguousarray(values).view(np.uint8).reshape(*values.shape, values.dtype.itemsize)[..., :used]


def _wide_loaded(values: NDArray[np.generic], dtype: DType, target: NDArray[np.generic]) -> None:
    used = math.ceil(dtype.bits / 8)
    content = _bytes_of(values, used).copy()
    if dtype.bits % 8 and dtype.is_signed:
        unused = 8 - dtype.bits % 8
        content[..., used - 1] = (content[..., used - 1] << unused).view(np.int8) >> unused
    if target.dtype.kind == "V":
        target[...] = content.view(target.dtype).reshape(target.shape)
        return
    for index in np.ndindex(*target.shape):
        target[index] = int.from_bytes(content[index].tobytes(), "little", signed=dtype.is_signed)
