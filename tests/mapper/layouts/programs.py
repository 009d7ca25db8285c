"""Programs that use tiles in another layout than they lie in."""

from __future__ import annotations

from allo_dse.lang import install

install()

import allo
import allo.dataflow as df
from allo.ir.types import int8, int32
from allo.memory import Layout

S, R = Layout.Shard, Layout.Replicate
M, N, K, P = 32, 32, 16, 2


def a_bt(T=int32):
    """C = A @ B.T, B as rows of length K."""

    @df.region()
    def top(A: T[M, K], B: T[N, K], C: T[M, N]):
        @df.kernel(mapping=[P, P], args=[A, B, C])
        def mm(a: T[M, K] @ [S(0), R], b: T[N, K] @ [S(1), R], c: T[M, N] @ [S(0), S(1)]):
            c[:, :] = allo.matmul(a, b.T)

    return top


def twice(T=int32):
    """A view of the transposed tile: two steps, one after the other."""

    @df.region()
    def top(B: T[N, K], C: T[K, N]):
        @df.kernel(mapping=[1], args=[B, C])
        def core(b: T[N, K], c: T[K, N]):
            packed: T[K * N] = allo.view(b.T, [K * N])
            c[:, :] = allo.add(allo.view(packed, [K, N]), 1)

    return top


def also_as_it_lies(T=int32):
    """The tile is needed as it lies, too."""

    @df.region()
    def top(B: T[N, N], C: T[N, N]):
        @df.kernel(mapping=[1], args=[B, C])
        def core(b: T[N, N], c: T[N, N]):
            c[:, :] = allo.add(b.T, b)

    return top


def views_only(T=int8):
    @df.region()
    def top(B: T[N, K], C: T[K, N]):
        @df.kernel(mapping=[1], args=[B, C])
        def core(b: T[N, K], c: T[K, N]):
            c[:, :] = allo.add(allo.view(b, [K, N]), 1)

    return top


def there_and_back(T=int8):
    """Transposed twice: the canonical form is the tile itself."""

    @df.region()
    def top(B: T[N, K], C: T[N, K]):
        @df.kernel(mapping=[1], args=[B, C])
        def core(b: T[N, K], c: T[N, K]):
            turned: T[K, N] = b.T
            c[:, :] = allo.add(turned.T, 1)

    return top


def two_readers(T=int32):
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
