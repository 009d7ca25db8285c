"""Compiling kernels on arrays with Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Machine code on first use, kept on disk for later processes where a cache directory can be written.

    The compiled function does not hold Python's global lock.
    """
    try:
        dispatcher = numba.njit(nogil=True, cache=True)(function)
        _forget_unreadable(dispatcher)
        return cast(Function, dispatcher)
    except RuntimeError:  # neither the package's nor the user's cache directory can be written
        return cast(Function, numba.njit(nogil=True)(function))


def _forget_unreadable(dispatcher: Any) -> None:
    """Empty an index of kept code that an older version of this package has left and this one cannot read.

    Indices name the tuples that functions take by module and class, and Numba reads one before it asks whether the
    source has changed: where a tuple was moved or renamed since, the first call would fail.
    """
    try:
        dispatcher._cache._cache_file._load_index()
    except (ImportError, AttributeError):
        dispatcher._cache.flush()


def called(function: Function) -> Function:
    """A part of compiled functions that stays a function. Python cannot call it: taking its arguments apart, tuples of
    arrays, would be a fifth of the time of compiling."""
    compiler = numba.njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)  # type: ignore[call-overload]
    return cast(Function, compiler(function))


def inlined(function: Function) -> Function:
    """A part of compiled functions: written into those that call it, as a call would pass tuples of arrays by value."""
    return cast(Function, numba.njit(nogil=True, inline="always")(function))
