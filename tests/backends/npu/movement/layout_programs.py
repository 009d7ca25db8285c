"""Programs that use tiles in another layout than they lie in."""

from __future__ import annotations

from typing import Any

from allo_dse.lang import install

install()

import allo
import allo.dataflow as df
from allo.ir.types import int8, int32
from allo.memory import Layout

S, R = Layout.Shard, Layout.Replicate
M, N, K, P = 32, 32, 16, 2


def a_bt(T: Any = int32) -> Any:
    """C = A @ B.T, B as rows of length K."""

    @df.region()
    def top(A: T[M, K], B: T[N, K], C: T[M, N]):
        @df.kernel(mapping=[P, P], args=[A, B, C])
        def mm(a: T[M, K] @ [S(0), R], b: T[N, K] @ [S(1), R], c: T[M, N] @ [S(0), S(1)]):
            c[:, :] = allo.matmul(a, b.T)

    return top


def twice(T: Any = int32) -> Any:
    """A view of the transposed tile: two steps, one after the other."""

    @df.region()
    def top(B: T[N, K], C: T[K, N]):
        @df.kernel(mapping=[1], args=[B, C])
        def core(b: T[N, K], c: T[K, N]):
            packed: T[K * N] = allo.view(b.T, [K * N])
            c[:, :] = allo.add(allo.view(packed, [K, N]), 1)

    return top


def also_as_it_lies(T: Any = int32) -> Any:
    """The tile is needed as it lies, too."""

    @df.region()
    def top(B: T[N, N], C: T[N, N]):
        @df.kernel(mapping=[1], args=[B, C])
        def core(b: T[N, N], c: T[N, N]):
            c[:, :] = allo.add(b.T, b)

    return top


def views_only(T: Any = int8) -> Any:
    @df.region()
    def top(B: T[N, K], C: T[K, N]):
        @df.kernel(mapping=[1], args=[B, C])
        def core(b: T[N, K], c: T[K, N]):
            c[:, :] = allo.add(allo.view(b, [K, N]), 1)

    return top


def there_and_back(T: Any = int8) -> Any:
    """Transposed twice: the canonical form is the tile itself."""

    @df.region()
    def top(B: T[N, K], C: T[N, K]):
        @df.kernel(mapping=[1], args=[B, C])
        def core(b: T[N, K], c: T[N, K]):
            turned: T[K, N] = b.T
            c[:, :] = allo.add(turned.T, 1)

    return top


def two_readers(T: Any = int32) -> Any:
    """One kernel wants the tile transposed, the other as it lies; their tiles are one flow."""

    @df.region()
    def top(B: T[N, N], C: T[N, N], D: T[N, N]):
        @df.kernel(mapping=[1], args=[B, C])
        def first(b: T[N, N], c: T[N, N]):
            c[:, :] = allo.add(b.T, 1)

        @df.kernel(mapping=[1], args=[B, D])
        def second(b: T[N, N], d: T[N, N]):
            d[:, :] = allo.add(b, 1)

    return top


def written_turned(T: Any = int32) -> Any:
    """The sum is transposed on its way out."""

    @df.region()
    def top(A: T[M, N], C: T[N, M]):
        @df.kernel(mapping=[P], args=[A, C])
        def core(a: T[M, N] @ [S(0), R], c: T[N, M] @ [R, S(0)]):
            total: T[M // P, N] = allo.add(a, 1)
            c[:, :] = total.T

    return top


def written_twice(T: Any = int32) -> Any:
    """What is transposed into the output is needed once more."""

    @df.region()
    def top(A: T[M, N], C: T[N, M], D: T[M, N]):
        @df.kernel(mapping=[P], args=[A, C, D])
        def core(a: T[M, N] @ [S(0), R], c: T[N, M] @ [R, S(0)], d: T[M, N] @ [S(0), R]):
            total: T[M // P, N] = allo.add(a, 1)
            c[:, :] = total.T
            d[:, :] = total

    return top


def turned_through(T: Any = int32) -> Any:
    """Nothing but a transpose: the input is read for it, and it needs no core either way."""

    @df.region()
    def top(A: T[M, N], C: T[N, M]):
        @df.kernel(mapping=[1], args=[A, C])
        def core(a: T[M, N], c: T[N, M]):
            c[:, :] = a.T

    return top
