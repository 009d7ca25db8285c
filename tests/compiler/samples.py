"""Programs as users write them, for the tests of the front end."""

# Programs are written as users write them:

from typing import Any

import allo_dse.lang
from allo_dse.lang.types import DType

allo_dse.lang.install()

import allo
import allo.dataflow as df
import numpy as np
from allo.backend.aie import ExternalModule
from allo.ir.types import ConstExpr, Stateful, Stream, bfloat16, float32, int8, int16, int32, uint8  # noqa: F401
from allo.memory import Layout

S = Layout.Shard
R = Layout.Replicate


def gemm(
    M: int = 2048,
    N: DType | int = 2048,
    K: int = 2048,
    Pm: int = 32,
    Pn: int = 32,
    Pk: Any = 32,
    TyI: Any = int16,
    TyO: Any = int16,
) -> Any:
    """Split-K GEMM: partial sums move along the first mesh axis."""
    Mt, Nt = M // Pm, N // Pn
    LyA = [S(1), S(0)]
    LyB = [S(0), S(2)]
    LyC = [S(1), S(2)]

    @df.region()
    def top(A: TyI[M, K], B: TyI[K, N], C: TyO[M, N]):
        pipe: Stream[TyO[Mt, Nt], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(local_A: TyI[M, K] @ LyA, local_B: TyI[K, N] @ LyB, local_C: TyO[M, N] @ LyC):
            pk, pm, pn = df.get_pid()
            C_in: TyO[Mt, Nt]
            with allo.meta_if(pk > 0):
                C_in[:, :] = pipe[pk - 1, pm, pn].get()
            with allo.meta_else():
                C_in[:, :] = 0
            C_out: TyO[Mt, Nt] = allo.add(allo.matmul(local_A, local_B), C_in)
            with allo.meta_if(pk < Pk - 1):
                pipe[pk, pm, pn].put(C_out)
            with allo.meta_elif(pk == Pk - 1):
                local_C[:, :] = C_out

    return top


def gemm_with_string_layouts(M: int = 64, N: int = 64, K: int = 64, Pm: int = 2, Pn: int = 4, Pk: int = 8) -> Any:
    """The same distribution in the older notation."""
    LyA, LyB, LyC = Layout("S1S2"), Layout("S2S0"), Layout("S1S0")

    @df.region()
    def top(A: int16[M, K], B: int16[K, N], C: int16[M, N]):
        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(local_A: int16[M, K] @ LyA, local_B: int16[K, N] @ LyB, local_C: int16[M, N] @ LyC):
            local_C[:, :] += allo.matmul(local_A, local_B)

    return top


def systolic(M: Any = 4, N: int = 4, K: int = 8, T: Any = float32) -> Any:
    """An output-stationary array of M x N cells in a frame: feeders above and to the left, sinks opposite."""

    @df.region()
    def top(A: T[M, K], B: T[K, N], C: T[M, N]):
        east: Stream[T, 4][M + 2, N + 2]
        south: Stream[T, 4][M + 2, N + 2]

        @df.kernel(mapping=[M + 2, N + 2], args=[A, B, C])
        def array(rows: T[M, K], columns: T[K, N], sums: T[M, N]):
            r, c = df.get_pid()
            with allo.meta_if(0 < r <= M and 0 < c <= N):
                total: T = 0
                for _ in range(K):
                    x: T = east[r, c].get()
                    y: T = south[r, c].get()
                    east[r, c + 1].put(x)
                    south[r + 1, c].put(y)
                    total += x * y
                sums[r - 1, c - 1] = total
            with allo.meta_elif(0 < r <= M and c == 0):
                for k in range(K):
                    east[r, 1].put(rows[r - 1, k])
            with allo.meta_elif(r == 0 and 0 < c <= N):
                for k in range(K):
                    south[1, c].put(columns[k, c - 1])
            with allo.meta_elif(0 < r <= M):
                for _ in range(K):
                    east[r, c].get()
            with allo.meta_elif(0 < c <= N):
                for _ in range(K):
                    south[r, c].get()

    return top


def producer_consumer(M: int = 16, N: int = 16) -> Any:
    """One scalar stream between two tasks: B = A + 1."""

    @df.region()
    def top(A: float32[M, N], B: float32[M, N]):
        values: Stream[float32, 4]

        @df.kernel(mapping=[1], args=[A])
        def producer(a: float32[M, N]):
            for i, j in allo.grid(M, N):
                values.put(a[i, j])

        @df.kernel(mapping=[1], args=[B])
        def consumer(b: float32[M, N]):
            for i, j in allo.grid(M, N):
                b[i, j] = values.get() + 1

    return top


def tiled(M: int = 32, N: Any = 32, K: Any = 32, P0: int = 2, P1: int = 2) -> Any:
    """Every task computes a tile of the product, found by arithmetic on its pid."""

    @df.region()
    def top(A: float32[M, K], B: float32[K, N], C: float32[M, N]):
        @df.kernel(mapping=[P0, P1], args=[A, B, C])
        def tile(a: float32[M, K], b: float32[K, N], c: float32[M, N]):
            p, q = df.get_pid()
            height: ConstExpr[int32] = M // P0
            width: ConstExpr[int32] = N // P1
            for i, j, k in allo.grid(height, width, K):
                c[p * height + i, q * width + j] += a[p * height + i, k] * b[k, q * width + j]

    return top


def hierarchical(M: int = 16, N: int = 16, K: int = 16) -> Any:
    """Two tasks that each run a tiled product on a mesh of their own."""
    coarse, fine = tiled(M, N, K, 2, 2), tiled(M, N, K, 4, 4)

    @df.region()
    def top(A: float32[M, K], B: float32[K, N], C: float32[M, N], D: float32[M, N]):
        @df.kernel(mapping=[2], args=[A, B, C, D])
        def product(a: float32[M, K], b: float32[K, N], c: float32[M, N], d: float32[M, N]):
            with allo.meta_if(df.get_pid() == 0):
                coarse(a, b, c)
            with allo.meta_else():
                fine(a, b, d)

    return top


def clamp(x: int32, low: int32, high: int32) -> int32:
    """A helper function."""
    y: int32 = x
    if y < low:
        y = low
    elif y > high:
        y = high
    return y


WEIGHTS = np.array([3, -1, 4, 1], dtype=np.int32)


def data_dependent(M: int = 64) -> Any:
    """Helpers, loops and branches on data, constant arrays, scalars and wrap-around."""

    @df.region()
    def top(A: int8[M], B: int32[M], limit: int32):
        @df.kernel(mapping=[1], args=[A, B, limit])
        def core(a: int8[M], b: int32[M], n: int32):
            for i in range(M):
                x: int32 = a[i]
                y = 0
                while x > 3 and y < n:
                    x = x - 1
                    y += 2
                if x % 2 == 0:
                    b[i] = x * y if y > 2 else x // 3
                elif x == 1:
                    b[i] = min(x, y) << 2
                else:
                    b[i] = clamp(-x, -20, 20) * WEIGHTS[i % 4]

    return top


def data_dependent_reference(a: np.ndarray, limit: int) -> list[int]:
    """What `data_dependent` computes."""
    result = []
    for i, value in enumerate(a.tolist()):
        x, y = value, 0
        while x > 3 and y < limit:
            x, y = x - 1, y + 2
        if x % 2 == 0:
            result.append(x * y if y > 2 else x // 3)
        elif x == 1:
            result.append(min(x, y) << 2)
        else:
            result.append(max(-20, min(20, -x)) * int(WEIGHTS[i % 4]))
    return result


VENDOR = ExternalModule(top="vendor_scale", impl_path="scale.cc", input_idx=[0], output_idx=[1])


def everything(M: Any = 8, P: int = 4) -> Any:
    """Groups of streams, state, jumps, functions inside kernels, vendor kernels, polling."""

    @df.region()
    def top(A: int32[M, P], B: int32[M, P], C: int32[P]):
        lanes: Stream[int32[M], 2][P]
        back: Stream[int32, 2][P + 1]
        pipe: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A, B])
        def host(a: int32[M, P], b: int32[M, P]):
            calls: int32 @ Stateful = 0
            turned: int32[P, M] = a.T
            df.scatter(turned, lanes)
            found: int32[P] = df.gather(back[1:])
            calls += 1
            for i, j in allo.grid(M, P):
                if found[j] < 0:
                    continue
                if a[i, j] == 99:
                    break
                b[i, j] = found[j] + calls
            for k in range(M):
                pipe.put(a[k, 0])

        @df.kernel(mapping=[P])
        def lane():
            p = df.get_pid()
            x: int32[M] = lanes[p].get()
            y: int32[M]
            VENDOR(x, y)

            def first(limit: int32) -> int32:
                for i in range(M):
                    if y[i] > limit:
                        return i
                return -1

            back[p + 1].put(first(3 * p))

        @df.kernel(mapping=[1], args=[C])
        def poll(c: int32[P]):
            taken: int32 = 0
            while taken < M:
                value, ok = pipe.try_get()
                if not ok:
                    continue
                c[value % P] += value
                taken += 1
            if pipe.empty():
                return
            c[0] = -1

    return top
