"""Contents of `allo.utils` for programs."""

from __future__ import annotations

import math

import numpy as np


def get_np_struct_type(bits: int) -> np.dtype[np.void]:
    """The NumPy type of a wide integer: a structure of `bits` / 8 bytes, the least significant one first."""
    return np.dtype([(f"f{i}", np.uint8) for i in range(math.ceil(bits / 8))], align=False)
