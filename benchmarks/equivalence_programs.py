"""Programs for `equivalence.py`: streams, meshes, banks and running sums, to be compared, folded and broken."""

from typing import Any

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32, int8, int16, int32
from allo.memory import Layout

S = Layout.Shard


def systolic(M=3, N=3, K=4):
    @df.region()
    def top(A: int8[M, K], B: int8[K, N], C: int16[M, N]):
        right: Stream[int8, 4][M, N]
        down: Stream[int8, 4][M, N]

        @df.kernel(mapping=[M], args=[A])
        def rows(a: int8[M, K]):
            i = df.get_pid()
            for k in range(K):
                right[i, 0].put(a[i, k])

        @df.kernel(mapping=[N], args=[B])
        def columns(b: int8[K, N]):
            j = df.get_pid()
            for k in range(K):
                down[0, j].put(b[k, j])

        @df.kernel(mapping=[M, N], args=[C])
        def cell(c: int16[M, N]):
            i, j = df.get_pid()
            total: int16 = 0
            for _ in range(K):
                x: int8 = right[i, j].get()
                y: int8 = down[i, j].get()
                total += x * y
                with allo.meta_if(j < N - 1):
                    right[i, j + 1].put(x)
                with allo.meta_if(i < M - 1):
                    down[i + 1, j].put(y)
            c[i, j] = total

    return top


def matmul(M=3, N=3, K=4):
    @df.region()
    def top(A: int8[M, K], B: int8[K, N], C: int16[M, N]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def core(a: int8[M, K], b: int8[K, N], c: int16[M, N]):
            for i, j in allo.grid(M, N):
                total: int16 = 0
                for k in range(K):
                    total += a[i, k] * b[k, j]
                c[i, j] = total

    return top


def banked(L=12, T=4):
    """A filter with a window in banks."""

    @df.region()
    def top(X: int32[L], W: int32[T], Y: int32[L]):
        samples: Stream[int32, 4]
        weights: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[X, W])
        def read(x: int32[L], w: int32[T]):
            for t in range(T):
                weights.put(w[t])
            for i in range(L):
                samples.put(x[i])

        @df.kernel(mapping=[1], args=[Y])
        def window(y: int32[L]):
            taps: int32[T] = 0
            bank: int32[T] = 0
            for t in range(T):
                taps[t] = weights.get()
            for i in range(L):
                bank[i % T] = samples.get()
                total: int32 = 0
                for t in range(T):
                    total += bank[(i - t + T) % T] * taps[t]
                y[i] = total

    return top


def stages(P=3, L=5):
    """A line of stages, each of which adds its own multiple of a second stream."""

    @df.region()
    def top(X: float32[P, L], Z: float32[P, L], Y: float32[P, L]):
        value: Stream[float32, 4][P + 1]
        other: Stream[float32, 4][P + 1]

        @df.kernel(mapping=[1], args=[X, Z])
        def feed(x: float32[P, L], z: float32[P, L]):
            for k in range(L):
                value[0].put(x[0, k])
                other[0].put(z[0, k] - 0.5)

        @df.kernel(mapping=[P], args=[X, Z, Y])
        def stage(x: float32[P, L], z: float32[P, L], y: float32[P, L]):
            p = df.get_pid()
            for k in range(L):
                a: float32 = value[p].get()
                b: float32 = other[p].get()
                y[p, k] = a * b
                value[p + 1].put(a + x[p, k] * b)
                other[p + 1].put(b * z[p, k])

        @df.kernel(mapping=[1], args=[])
        def sink():
            for _ in range(L):
                value[P].get()
                other[P].get()

    return top


def reduced(R=2, C=3, T=2):
    """Rows scattered over a grid, summed along it, squared by a grid turned round, and gathered."""

    @df.region()
    def top(X: int32[R, C * T], Y: int32[R, C * T]):
        out: Stream[int32[T], 2][R, C]
        scaled: Stream[int32[T], 2][R, C]
        again: Stream[int32[T], 2][R, C]
        running: Stream[int32[T], 2][R, C]

        @df.kernel(mapping=[R], args=[X])
        def scatter(x: int32[R, C * T] @ [S(0), Layout.Replicate]):
            r = df.get_pid()
            with allo.meta_for(C) as c:
                part: int32[T] = 0
                for t in range(T):
                    part[t] = x[0, c * T + t]
                out[r, c].put(part)

        @df.kernel(mapping=[R, C], args=[])
        def grid():
            r, c = df.get_pid()
            tile: int32[T] = out[r, c].get()
            for t in range(T):
                tile[t] = tile[t] * 3 + t
            with allo.meta_if(c > 0):
                before: int32[T] = running[r, c - 1].get()
                tile[:] = allo.add(tile, before)
            with allo.meta_if(c < C - 1):
                running[r, c].put(tile)
            scaled[r, c].put(tile)

        @df.kernel(mapping=[C, R], args=[])
        def turn():
            c, r = df.get_pid()
            tile: int32[T] = scaled[r, c].get()
            for t in range(T):
                tile[t] = tile[t] * tile[t] + 1
            again[r, c].put(tile)

        @df.kernel(mapping=[R], args=[Y])
        def gather(y: int32[R, C * T] @ [S(0), Layout.Replicate]):
            r = df.get_pid()
            with allo.meta_for(C) as c:
                tile: int32[T] = again[r, c].get()
                for t in range(T):
                    y[0, c * T + t] = tile[t]

    return top


def tiles(M=8, N=8, K=8, P0=2, P1=2, P2=2) -> Any:
    """Tiles of a product, summed along a mesh axis."""

    @df.region()
    def top(A: int16[M, K], B: int16[K, N], C: int16[M, N]):
        @df.kernel(mapping=[P2, P0, P1], args=[A, B, C])
        def core(a: int16[M, K] @ [S(1), S(0)], b: int16[K, N] @ [S(0), S(2)], c: int16[M, N] @ [S(1), S(2)]):
            c[:, :] += allo.matmul(a, b)

    return top


BROKEN = {"systolic": systolic, "banked": banked, "stages": stages, "reduced": reduced}
"""Those that mistakes are put in."""
OTHER_SIZES = {
    "systolic": {"M": 4, "N": 2, "K": 5},
    "banked": {"L": 9, "T": 3},
    "stages": {"P": 4, "L": 4},
    "reduced": {"R": 3, "C": 2, "T": 3},
}
