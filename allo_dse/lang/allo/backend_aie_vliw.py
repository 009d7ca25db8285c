"""Contents of `allo.backend.aie.vliw` for programs: functions compiled separately for one core.

Options of the generated C code (`project`, `save_code`, ...) have no effect here.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType

from ..externals import VliwKernel


def kernel(**_options: object) -> Callable[[FunctionType], VliwKernel]:
    """Decorator: kernels call the function with its results as further arguments."""
    return VliwKernel


def create_vliw_module(function: FunctionType, **_options: object) -> VliwKernel:
    """Make a vendor kernel of an existing function; kernels call its `get_external_module()`."""
    return VliwKernel(function)
