"""Programs that compute the same, or nearly the same, in different ways."""

from typing import Any

from allo_dse.lang import install

install()

import allo
import allo.dataflow as df
from allo.ir.types import ConstExpr, Stream, float16, float32, index, int8, int16, int32, int64, uint8


def matmul(M: int = 4, N: int = 4, K: int = 8, T: Any = int32, *, backwards: bool = False) -> Any:
    """One task, three loops."""
    first, step = (K - 1, -1) if backwards else (0, 1)

    @df.region()
    def top(A: T[M, K], B: T[K, N], C: T[M, N]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def core(a: T[M, K], b: T[K, N], c: T[M, N]):
            for i in range(M):
                for j in range(N):
                    total: T = 0
                    for k in range(K):
                        total += a[i, first + step * k] * b[first + step * k, j]
                    c[i, j] = total

    return top


def formula(T: Any = int32) -> Any:
    """D = (A - 7) * B + A * A * A."""

    @df.region()
    def top(A: T[6], B: T[6], D: T[6]):
        @df.kernel(mapping=[1], args=[A, B, D])
        def core(a: T[6], b: T[6], d: T[6]):
            for i in range(6):
                d[i] = (a[i] - 7) * b[i] + a[i] * a[i] * a[i]

    return top


def copied() -> Any:
    """D = B."""

    @df.region()
    def top(A: int32[6], B: int32[6], D: int32[6]):
        @df.kernel(mapping=[1], args=[B, D])
        def core(b: int32[6], d: int32[6]):
            for i in range(6):
                d[i] = b[i]

    return top


def floats() -> Any:
    """D = (A - 0.375) * B - 1e-30, in part with numbers that are not constants."""

    @df.region()
    def top(A: float32[6], B: float32[6], D: float32[6]):
        @df.kernel(mapping=[1], args=[A, B, D])
        def core(a: float32[6], b: float32[6], d: float32[6]):
            for i in range(6):
                step: float32 = i - 2.5
                d[i] = (a[i] - 0.375) * b[i] * step - 1e-30

    return top


def rectified(way: str = "statement") -> Any:
    """B = A where that is above 0, else 0: in several ways."""

    @df.region()
    def top(A: int32[8], B: int32[8]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int32[8], b: int32[8]):
            for i in range(8):
                with allo.meta_if(way == "statement"):
                    if a[i] > 0:
                        b[i] = a[i]
                    else:
                        b[i] = 0
                with allo.meta_elif(way == "expression"):
                    b[i] = a[i] if a[i] > 0 else 0
                with allo.meta_else():
                    b[i] = 0
                    if a[i] > 1:
                        b[i] = a[i]

    return top


def widths(way: str = "wide") -> Any:
    """C = A * B + A: summed in 32 bits, in 16, or with the product cut to 8 bits."""
    T: ConstExpr[Any] = int32 if way == "wide" else int16 if way == "narrow" else int8

    @df.region()
    def top(A: int8[8], B: int8[8], C: int16[8]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def core(a: int8[8], b: int8[8], c: int16[8]):
            for i in range(8):
                product: T = a[i] * b[i]
                c[i] = product + a[i]

    return top


def chain(first: int = 0, dropped: int = -1) -> Any:
    """B = A + 1 through a stream; counted from `first`, without token `dropped`."""

    @df.region()
    def top(A: int32[8], B: int32[8]):
        values: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def source(a: int32[8]):
            for i in range(8):
                if i != dropped:
                    values.put(a[(i + first) % 8])

        @df.kernel(mapping=[1], args=[B])
        def sink(b: int32[8]):
            for i in range(8):
                b[i] = values.get() + 1

    return top


def searched(step: int = 3) -> Any:
    """Data decides how often a loop runs."""

    @df.region()
    def top(A: int32[8], B: int32[8]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int32[8], b: int32[8]):
            for i in range(8):
                left: int32 = a[i]
                while left > step:
                    left -= step
                b[i] = left

    return top


def weighted(double: int = -1, T: Any = float32, N: int = 300) -> Any:
    """C = the sum of A, of which element `double` counts twice."""

    @df.region()
    def top(A: T[N], C: T[1]):
        @df.kernel(mapping=[1], args=[A, C])
        def core(a: T[N], c: T[1]):
            total: T = 0
            for i in range(N):
                total += a[i] * (2 if i == double else 1)
            c[0] = total

    return top


def gathered(tasks: int = 2, more: int = 0) -> Any:
    """B = 2 A where the index is above 2, else A + `more`: data decides on indices, and on which put is made."""

    @df.region()
    def top(A: float32[8], At: int8[8], B: float32[8]):
        values: Stream[float32, 4][tasks]

        @df.kernel(mapping=[tasks], args=[A, At])
        def source(a: float32[8], at: int8[8]):
            p = df.get_pid()
            for i in range(8 // tasks):
                place: index = at[p * (8 // tasks) + i]
                if at[p * (8 // tasks) + i] > 2:
                    values[p].put(a[place] * 2.0)
                else:
                    values[p].put(a[place] + more)

        @df.kernel(mapping=[tasks], args=[B])
        def sink(b: float32[8]):
            p = df.get_pid()
            for i in range(8 // tasks):
                b[p * (8 // tasks) + i] = values[p].get()

    return top


def classified(bound: int = 100) -> Any:
    """Sums of 8-bit values in 64 bits, through widths, signs and floats, that decide on what is added next."""

    @df.region()
    def top(A: int8[16], U: uint8[16], F: float16[16], C: int64[1]):
        @df.kernel(mapping=[1], args=[A, U, F, C])
        def core(a: int8[16], u: uint8[16], f: float16[16], c: int64[1]):
            total: int64 = 0
            for i in range(16):
                wide: int64 = a[i] * u[i]
                n: int32 = 0
                while wide > bound and n < 4:
                    wide = wide // 2
                    n += 1
                if f[i] > 0.5:
                    total += wide
                else:
                    total -= n
            c[0] = total

    return top
