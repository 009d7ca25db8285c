"""What programs import from `allo.backend.aie.vliw`: functions that are compiled for one core by themselves.

Options of the generated C code (`project`, `save_code`, ...) mean nothing here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

from ..externals import VliwKernel


def kernel(**_options: object) -> Callable[[FunctionType], VliwKernel]:
    """Decorator: kernels call the function with its results as further arguments."""
    return VliwKernel


def create_vliw_module(function: FunctionType, **_options: object) -> VliwKernel:
    """The same for a function that is defined already; kernels call its `get_external_module()`."""
    return VliwKernel(function)
