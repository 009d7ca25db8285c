"""Linear algebra on one thread: for matrices of some hundred rows, threads that wait for each other on a busy machine
take twenty times as long as one alone, and what they find depends on their number."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np


@contextmanager
def one_thread() -> Iterator[None]:
    """Within it NumPy's linear algebra uses one thread, where NumPy brings the OpenBLAS that its wheels are made with;
    elsewhere nothing changes."""
    library = _openblas()
    if library is None:
        yield
        return
    before = library.scipy_openblas_get_num_threads64_()
    library.scipy_openblas_set_num_threads64_(1)
    try:
        yield
    finally:
        library.scipy_openblas_set_num_threads64_(before)


@cache
def _openblas() -> ctypes.CDLL | None:
    """The library that NumPy has loaded already."""
    package = Path(np.__file__).parent
    for path in (
        *package.parent.glob("numpy.libs/libscipy_openblas64_*"),
        *package.glob(".dylibs/libscipy_openblas64_*"),
    ):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        if hasattr(library, "scipy_openblas_set_num_threads64_"):
            return library
    return None
