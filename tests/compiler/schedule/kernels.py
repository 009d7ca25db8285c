"""Kernels whose loops are restructured."""

from typing import Any

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import float32, int32


def trapezoid(start: int, slope: int, end: int) -> Any:
    """Rows whose length depends on their number."""

    @df.region()
    def top(A: int32[9, 9], B: int32[9, 9]):
        @df.kernel(mapping=[1], args=[A, B])
        def k(a: int32[9, 9], b: int32[9, 9]):
            for i in range(9):
                for j in range(max(0, start - i), min(9, slope * i + end)):
                    b[i, j] += a[i, j]
                    for n in range(j):
                        b[i, n] += a[j, n]

    return top


@df.region()
def product(A: float32[8, 8], B: float32[8, 8], C: float32[8, 8]):
    @df.kernel(mapping=[1], args=[A, B, C])
    def k(a: float32[8, 8], b: float32[8, 8], c: float32[8, 8]):
        for i in range(8):
            for j in range(8):
                for k in range(8):
                    c[i, j] += a[i, k] * b[k, j]


def ordered(kind: str) -> Any:
    """Nests whose order matters, or does not help."""

    @df.region()
    def top(A: float32[9, 9]):
        @df.kernel(mapping=[1], args=[A])
        def k(a: float32[9, 9]):
            for i in range(1, 8):
                for j in range(1, 8):
                    with allo.meta_if(kind == "skewed"):
                        a[i, j] = a[i, j - 1] + a[i - 1, j + 1]
                    with allo.meta_if(kind == "element by element"):
                        a[i, j] = a[i, j] * 2.0
                    with allo.meta_if(kind == "prefix"):
                        a[i, j] = a[i, j - 1] * a[i - 1, j]

    return top
