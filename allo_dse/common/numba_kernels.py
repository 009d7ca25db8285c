"""Compiling kernels on arrays with Numba, which is imported when the first of them is called."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property, partial, update_wrapper
from typing import Any, TypeVar, cast

Function = TypeVar("Function", bound=Callable[..., object])


def compiled(function: Function) -> Function:
    """Machine code on first use, kept on disk for later processes where a cache directory can be written.

    The compiled function does not hold Python's global lock.
    """
    return cast(Function, _Kernel(function, _kept))


def called(function: Function) -> Function:
    """A function for compiled functions only: without an entry for Python, compiling takes a fifth less time."""
    return cast(Function, _Kernel(function, partial(_jit, no_cpython_wrapper=True, no_cfunc_wrapper=True)))


def inlined(function: Function) -> Function:
    """A function that is inlined into compiled functions, because calls would pass tuples of arrays by value."""
    return cast(Function, _Kernel(function, partial(_jit, inline="always")))


class _Kernel:
    """A function that Numba compiles when it is first called."""

    def __init__(self, function: Callable[..., object], compiler: Callable[[Callable[..., object]], Any]) -> None:
        update_wrapper(self, function)
        self._function, self._compiler = function, compiler

    def __call__(self, *arguments: object) -> object:
        return self.dispatcher(*arguments)

    @cached_property
    def dispatcher(self) -> Any:
        """Numba's function. It replaces all kernels in the function's module, because Numba cannot call wrappers."""
        names = self._function.__globals__
        self.__dict__["dispatcher"] = dispatcher = self._compiler(self._function)  # before others that call it
        for name, value in list(names.items()):
            if isinstance(value, _Kernel):
                names[name] = value.dispatcher
        return dispatcher


def _jit(function: Callable[..., object], **options: object) -> Any:
    import numba

    return numba.njit(nogil=True, **options)(function)  # type: ignore[call-overload]


def _kept(function: Callable[..., object]) -> Any:
    try:
        dispatcher = _jit(function, cache=True)
        _forget_unreadable(dispatcher)
    except RuntimeError:  # neither the package's nor the user's cache directory can be written
        return _jit(function)
    return dispatcher


def _forget_unreadable(dispatcher: Any) -> None:
    """Empty an index of kept code that an older version of this package has left and this one cannot read.

    Indices name the tuples that functions take by module and class, and Numba reads one before it asks whether the
    source has changed: where a tuple was moved or renamed since, the first call would fail.
    """
    try:
        dispatcher._cache._cache_file._load_index()
    except (ImportError, AttributeError):
        dispatcher._cache.flush()
