"""Compiling the replay kernels with Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Machine code on first use, kept on disk for later processes where a cache directory can be written.

    The compiled function does not hold Python's global lock.
    """
    try:
        return cast(Function, numba.njit(nogil=True, cache=True)(function))
    except RuntimeError:  # neither the package's nor the user's cache directory can be written
        return cast(Function, numba.njit(nogil=True)(function))


def inlined(function: Function) -> Function:
    """A part of compiled functions: written into those that call it, as a call would pass tuples of arrays by value."""
    return cast(Function, numba.njit(nogil=True, inline="always")(function))
