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


def neighbours(kind: str) -> Any:
    """Two nests of the same rounds, the second of which uses what the first leaves, or changes what it uses."""

    @df.region()
    def top(A: float32[9], B: float32[9], C: float32[9]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def k(a: float32[9], b: float32[9], c: float32[9]):
            for i in range(8):
                b[i] = a[i] * 2.0
            for j in range(8):
                with allo.meta_if(kind == "same"):
                    c[j] = a[j] + b[j]
                with allo.meta_if(kind == "earlier"):
                    c[j + 1] = b[j] + a[j]
                with allo.meta_if(kind == "later"):
                    c[j] = a[j] + b[j + 1]
                with allo.meta_if(kind == "overwritten"):
                    a[j + 1] = c[j]

    return top


def two_sums(kind: str) -> Any:
    """Sums over rows and over columns in one nest; statements that use each other, or change what the other loads."""

    @df.region()
    def top(A: float32[8, 8], S: float32[8], Q: float32[8]):
        @df.kernel(mapping=[1], args=[A, S, Q])
        def k(a: float32[8, 8], s: float32[8], q: float32[8]):
            for i in range(8):
                for j in range(8):
                    with allo.meta_if(kind == "apart"):
                        s[j] += a[i, j]
                        q[i] += a[i, j] * 2.0
                    with allo.meta_if(kind == "handed on"):
                        s[j] += a[i, j]
                        q[i] += s[j]
                    with allo.meta_if(kind == "loaded before"):
                        t: float32 = s[j]
                        s[j] = a[i, j]
                        q[i] += t

    return top


def summed(kind: str) -> Any:
    """Sums in a variable, in the loop over the columns of a matrix."""
    last = 1 if kind == "before" else 0

    @df.region()
    def top(A: float32[8, 8], B: float32[8, 8], C: float32[8, 8]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def k(a: float32[8, 8], b: float32[8, 8], c: float32[8, 8]):
            t: float32 = 0
            for i in range(8):
                for j in range(last, 8):
                    w: float32 = b[i, j] * 0.5
                    s: float32 = w
                    with allo.meta_if(kind == "sometimes"):
                        if j > 2:
                            t = 1.0
                    with allo.meta_if(kind == "window"):
                        for u in range(2):
                            for v in range(4):
                                s += a[i, u * 4 + v] * b[j, v]
                    with allo.meta_else():
                        for q in range(8):
                            with allo.meta_if(kind in ("running", "sometimes")):
                                t += a[i, q] * b[q, j]
                            with allo.meta_elif(kind == "results"):
                                s += c[i, q] * b[q, j]
                            with allo.meta_else():
                                s += a[i, q] * b[q, j]
                    with allo.meta_if(kind == "before"):
                        c[i, j] = s + c[i, j - last]
                    with allo.meta_elif(kind in ("running", "sometimes")):
                        c[i, j] = t
                    with allo.meta_elif(kind == "scaled"):
                        for q2 in range(8):
                            c[j, q2] = a[j, q2] * s
                    with allo.meta_else():
                        c[i, j] = s + w

    return top


@df.region()
def row_sums(A: float32[8, 8], B: float32[8]):
    """Sums of the rows of a lower triangle."""

    @df.kernel(mapping=[1], args=[A, B])
    def k(a: float32[8, 8], b: float32[8]):
        for i in range(8):
            s: float32 = 0
            for j in range(i + 1):
                s += a[i, j]
            b[i] = s


@df.region()
def downwards(A: int32[9], B: int32[9]):
    """Sums from the end on."""

    @df.kernel(mapping=[1], args=[A, B])
    def k(a: int32[9], b: int32[9]):
        s: int32 = 0
        for i in range(8, -1, -1):
            s += a[i]
            b[i] = s
