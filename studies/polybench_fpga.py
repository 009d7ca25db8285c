"""Seven PolyBench kernels (medium size, float32) as dataflow programs on an FPGA.

    allo-tune studies/polybench_fpga.py --set kernel=gemm          # or 2mm, 3mm, atax, bicg, mvt, gesummv
    allo-tune studies/polybench_fpga.py --set kernel=mvt --set dsp=220 --set device=z7020

The rows of a kernel's first matrix are shared out among P tasks. What tasks contribute to one result travels as streams
to tasks that add it up. How many tasks there are, at which level each nest of loops is pipelined, how far it is
unrolled and into how many banks arrays are split is searched. Tensors are in memory on the chip before and after, as in
published results.
"""

import math
from collections.abc import Callable
from typing import Any

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32
from allo.memory import Layout

import allo_dse as dse

S, R = Layout.Shard, Layout.Replicate
ALPHA, BETA = 1.5, 1.2


def gemm(H=200, J=220, K=240, P=10):
    T = H // P

    @df.region()
    def top(A: float32[H, K], B: float32[K, J], C: float32[H, J], D: float32[H, J]):
        @df.kernel(mapping=[P], args=[A, B, C, D])
        def gemm(
            a: float32[H, K] @ [S(0), R],
            b: float32[K, J],
            c: float32[H, J] @ [S(0), R],
            d: float32[H, J] @ [S(0), R],
        ):
            acc: float32[T, J]
            for i0 in range(T):
                for j0 in range(J):
                    acc[i0, j0] = 0.0
            for k in range(K):
                for i in range(T):
                    for j in range(J):
                        acc[i, j] += a[i, k] * b[k, j]
            for i1 in range(T):
                for j1 in range(J):
                    d[i1, j1] = ALPHA * acc[i1, j1] + BETA * c[i1, j1]

    return top


def two_mm(H=180, J=190, K=210, L=220, P=10):
    T = H // P

    @df.region()
    def top(A: float32[H, K], B: float32[K, J], C: float32[J, L], D: float32[H, L], E: float32[H, L]):
        @df.kernel(mapping=[P], args=[A, B, C, D, E])
        def mm(
            a: float32[H, K] @ [S(0), R],
            b: float32[K, J],
            c: float32[J, L],
            d: float32[H, L] @ [S(0), R],
            e: float32[H, L] @ [S(0), R],
        ):
            mid: float32[T, J]
            acc: float32[T, L]
            for i0 in range(T):
                for j0 in range(J):
                    mid[i0, j0] = 0.0
            for k in range(K):
                for i in range(T):
                    for j in range(J):
                        mid[i, j] += a[i, k] * b[k, j]
            for i1 in range(T):
                for l1 in range(L):
                    acc[i1, l1] = 0.0
            for j2 in range(J):
                for i2 in range(T):
                    for l2 in range(L):
                        acc[i2, l2] += mid[i2, j2] * c[j2, l2]
            for i3 in range(T):
                for l3 in range(L):
                    e[i3, l3] = ALPHA * acc[i3, l3] + BETA * d[i3, l3]

    return top


def three_mm(H=180, J=190, K=200, L=210, M=220, P=10, W=10):
    """Every task computes its rows of both factors; those of the second one are passed on until all tasks have them."""
    T, U = H // P, J // P

    @df.region()
    def top(A: float32[H, K], B: float32[K, J], C: float32[J, M], D: float32[M, L], G: float32[H, L]):
        ring: Stream[float32, U * (L // W)][P, W]  # a task puts all of its rows before it gets any

        @df.kernel(mapping=[P], args=[A, B, C, D, G])
        def mm(
            a: float32[H, K] @ [S(0), R],
            b: float32[K, J],
            c: float32[J, M] @ [S(0), R],
            d: float32[M, L],
            g: float32[H, L] @ [S(0), R],
        ):
            p = df.get_pid()
            first: float32[T, J]
            own: float32[U, L]
            whole: float32[J, L]
            acc: float32[T, L]
            for i0 in range(U):
                for l0 in range(L):
                    own[i0, l0] = 0.0
            for m in range(M):
                for i1 in range(U):
                    for l1 in range(L):
                        own[i1, l1] += c[i1, m] * d[m, l1]
            for i2 in range(T):
                for j2 in range(J):
                    first[i2, j2] = 0.0
            for k in range(K):
                for i3 in range(T):
                    for j3 in range(J):
                        first[i3, j3] += a[i3, k] * b[k, j3]
            for u4 in range(U):
                for l4 in range(L // W):
                    with allo.meta_for(W) as w:
                        x: float32 = own[u4, l4 * W + w]
                        whole[p * U + u4, l4 * W + w] = x
                        ring[(p + 1) % P, w].put(x)
            for s in range(P - 2):
                for u5 in range(U):
                    for l5 in range(L // W):
                        with allo.meta_for(W) as w:
                            y: float32 = ring[p, w].get()
                            whole[((p + P - 1 - s) % P) * U + u5, l5 * W + w] = y
                            ring[(p + 1) % P, w].put(y)
            for u9 in range(U):
                for l9 in range(L // W):
                    with allo.meta_for(W) as w:
                        whole[((p + 1) % P) * U + u9, l9 * W + w] = ring[p, w].get()
            for i6 in range(T):
                for l6 in range(L):
                    acc[i6, l6] = 0.0
            for j7 in range(J):
                for i7 in range(T):
                    for l7 in range(L):
                        acc[i7, l7] += first[i7, j7] * whole[j7, l7]
            for i8 in range(T):
                for l8 in range(L):
                    g[i8, l8] = acc[i8, l8]

    return top


def atax(M=390, N=410, P=13, V=10, W=5):
    """y = A' (A x): every task has some rows; a tree of tasks adds up what they contribute."""
    T = M // P

    @df.region()
    def top(A: float32[M, N], X: float32[N], Y: float32[N]):
        part: Stream[float32, 4][2 * P - 1, W]  # a tree: the sum of streams 2 n + 1 and 2 n + 2 is stream n

        @df.kernel(mapping=[P], args=[A, X])
        def rows(a: float32[M, N] @ [S(0), R], x: float32[N]):
            p = df.get_pid()
            t: float32[T, V]
            y: float32[N]
            for i0 in range(T):
                for v0 in range(V):
                    t[i0, v0] = 0.0
            for j0 in range(N):
                y[j0] = 0.0
            for j in range(N // V):
                for i in range(T):
                    for v in range(V):
                        t[i, v] += a[i, j * V + v] * x[j * V + v]
            for i1 in range(T):
                whole: float32 = 0.0
                for v1 in range(V):
                    whole += t[i1, v1]
                t[i1, 0] = whole
            for i2 in range(T):
                for j2 in range(N):
                    y[j2] += a[i2, j2] * t[i2, 0]
            for j3 in range(N // W):
                with allo.meta_for(W) as w:
                    part[P - 1 + p, w].put(y[j3 * W + w])

        @df.kernel(mapping=[P - 1])
        def add():
            n = df.get_pid()
            for j4 in range(N // W):
                with allo.meta_for(W) as w:
                    part[n, w].put(part[2 * n + 1, w].get() + part[2 * n + 2, w].get())

        @df.kernel(mapping=[1], args=[Y])
        def result(y: float32[N]):
            for j5 in range(N // W):
                with allo.meta_for(W) as w:
                    y[j5 * W + w] = part[0, w].get()

    return top


def bicg(M=390, N=410, P=13, V=10, W=5):
    """s = A' r, q = A p: a tree of tasks adds up parts of s while the others go on with their elements of q."""
    T = M // P

    @df.region()
    def top(A: float32[M, N], Pv: float32[N], Rv: float32[M], Q: float32[M], Sv: float32[N]):
        part: Stream[float32, 4][2 * P - 1, W]  # a tree: the sum of streams 2 n + 1 and 2 n + 2 is stream n

        @df.kernel(mapping=[P], args=[A, Pv, Rv, Q])
        def rows(a: float32[M, N] @ [S(0), R], x: float32[N], r: float32[M] @ [S(0)], q: float32[M] @ [S(0)]):
            p = df.get_pid()
            t: float32[T, V]
            s: float32[N]
            for j0 in range(N):
                s[j0] = 0.0
            for i2 in range(T):
                for j2 in range(N):
                    s[j2] += a[i2, j2] * r[i2]
            for j3 in range(N // W):
                with allo.meta_for(W) as w:
                    part[P - 1 + p, w].put(s[j3 * W + w])
            for i0 in range(T):
                for v0 in range(V):
                    t[i0, v0] = 0.0
            for j in range(N // V):
                for i in range(T):
                    for v in range(V):
                        t[i, v] += a[i, j * V + v] * x[j * V + v]
            for i1 in range(T):
                whole: float32 = 0.0
                for v1 in range(V):
                    whole += t[i1, v1]
                q[i1] = whole

        @df.kernel(mapping=[P - 1])
        def add():
            n = df.get_pid()
            for j4 in range(N // W):
                with allo.meta_for(W) as w:
                    part[n, w].put(part[2 * n + 1, w].get() + part[2 * n + 2, w].get())

        @df.kernel(mapping=[1], args=[Sv])
        def result(s: float32[N]):
            for j5 in range(N // W):
                with allo.meta_for(W) as w:
                    s[j5 * W + w] = part[0, w].get()

    return top


def mvt(N=400, P=20, V=10, W=5):
    """x1 + A y1 and x2 + A' y2: a tree of tasks adds up parts of the second while the others go on with the first."""
    T = N // P

    @df.region()
    def top(
        A: float32[N, N], Y1: float32[N], Y2: float32[N], X1: float32[N], X2: float32[N], Z1: float32[N], Z2: float32[N]
    ):
        part: Stream[float32, 4][2 * P - 1, W]  # a tree: the sum of streams 2 n + 1 and 2 n + 2 is stream n

        @df.kernel(mapping=[P], args=[A, Y1, Y2, X1, Z1])
        def rows(
            a: float32[N, N] @ [S(0), R],
            y1: float32[N],
            y2: float32[N] @ [S(0)],
            x1: float32[N] @ [S(0)],
            z1: float32[N] @ [S(0)],
        ):
            p = df.get_pid()
            t: float32[T, V]
            s: float32[N]
            for j0 in range(N):
                s[j0] = 0.0
            for i2 in range(T):
                for j2 in range(N):
                    s[j2] += a[i2, j2] * y2[i2]
            for j3 in range(N // W):
                with allo.meta_for(W) as w:
                    part[P - 1 + p, w].put(s[j3 * W + w])
            for i0 in range(T):
                for v0 in range(V):
                    t[i0, v0] = 0.0
            for j in range(N // V):
                for i in range(T):
                    for v in range(V):
                        t[i, v] += a[i, j * V + v] * y1[j * V + v]
            for i1 in range(T):
                whole: float32 = x1[i1]
                for v1 in range(V):
                    whole += t[i1, v1]
                z1[i1] = whole

        @df.kernel(mapping=[P - 1])
        def add():
            n = df.get_pid()
            for j4 in range(N // W):
                with allo.meta_for(W) as w:
                    part[n, w].put(part[2 * n + 1, w].get() + part[2 * n + 2, w].get())

        @df.kernel(mapping=[1], args=[X2, Z2])
        def result(x2: float32[N], z2: float32[N]):
            for j5 in range(N // W):
                with allo.meta_for(W) as w:
                    z2[j5 * W + w] = x2[j5 * W + w] + part[0, w].get()

    return top


def gesummv(N=250, P=25, V=5):
    """y = alpha A x + beta B x: rows are independent."""
    T = N // P

    @df.region()
    def top(A: float32[N, N], B: float32[N, N], X: float32[N], Y: float32[N]):
        @df.kernel(mapping=[P], args=[A, B, X, Y])
        def rows(a: float32[N, N] @ [S(0), R], b: float32[N, N] @ [S(0), R], x: float32[N], y: float32[N] @ [S(0)]):
            t: float32[T, V]
            u: float32[T, V]
            for i0 in range(T):
                for v0 in range(V):
                    t[i0, v0] = 0.0
                    u[i0, v0] = 0.0
            for j in range(N // V):
                for i in range(T):
                    for v in range(V):
                        t[i, v] += a[i, j * V + v] * x[j * V + v]
                        u[i, v] += b[i, j * V + v] * x[j * V + v]
            for i1 in range(T):
                whole: float32 = 0.0
                for v1 in range(V):
                    whole += ALPHA * t[i1, v1] + BETA * u[i1, v1]
                y[i1] = whole

    return top


SPLITS = dse.choices([2, 5, 10])  # streams side by side
KERNELS: dict[str, tuple[Callable[..., Any], dict[str, Any], str, Callable[..., Any]]] = {
    "gemm": (gemm, {"P": dse.divisors(200)}, "ABCD", lambda A, B, C: ALPHA * (A @ B) + BETA * C),
    "2mm": (two_mm, {"P": dse.divisors(180)}, "ABCDE", lambda A, B, C, D: ALPHA * (A @ B @ C) + BETA * D),
    "3mm": (
        three_mm,
        {"P": dse.choices([2, 5, 10]), "W": dse.choices([5, 10, 14, 21, 35, 42])},
        "ABCDG",
        lambda A, B, C, D: (A @ B) @ (C @ D),
    ),
    "atax": (
        atax,
        {"P": dse.divisors(390, at_least=5, at_most=39), "V": dse.divisors(410, at_least=5, at_most=82), "W": SPLITS},
        "AXY",
        lambda A, X: A.T @ (A @ X),
    ),
    "bicg": (
        bicg,
        {"P": dse.divisors(390, at_least=5, at_most=39), "V": dse.divisors(410, at_least=5, at_most=82), "W": SPLITS},
        ("A", "Pv", "Rv", "Q", "Sv"),
        lambda A, Pv, Rv: (A @ Pv, A.T @ Rv),
    ),
    "mvt": (
        mvt,
        {"P": dse.divisors(400, at_least=5, at_most=50), "V": dse.divisors(400, at_least=5, at_most=80), "W": SPLITS},
        ("A", "Y1", "Y2", "X1", "X2", "Z1", "Z2"),
        lambda A, Y1, Y2, X1, X2: (X1 + A @ Y1, X2 + A.T @ Y2),
    ),
    "gesummv": (
        gesummv,
        {"P": dse.divisors(250), "V": dse.divisors(250, at_most=50)},
        "ABXY",
        lambda A, B, X: ALPHA * (A @ X) + BETA * (B @ X),
    ),
}


# Short sums, whose rounding does not depend on their order much.
SMALLER: dict[str, Callable[[Any], dict[str, int]]] = {
    "gemm": lambda p: {"H": p["P"], "J": 6, "K": 4},
    "2mm": lambda p: {"H": p["P"], "J": 6, "K": 4, "L": 5},
    "3mm": lambda p: {"H": p["P"], "J": p["P"], "K": 4, "L": p["W"], "M": 4},
    "atax": lambda p: {"M": p["P"], "N": math.lcm(p["V"], p["W"])},
    "bicg": lambda p: {"M": p["P"], "N": math.lcm(p["V"], p["W"])},
    "mvt": lambda p: {"N": math.lcm(p["P"], p["V"], p["W"])},
    "gesummv": lambda p: {"N": math.lcm(p["P"], p["V"])},
}


def study(kernel: str = "gemm", device: str = "u280", dsp: int = 2560) -> dse.Study:
    """The study `allo-tune` runs; its arguments can be set with `--set name=value`."""
    program, params, tensors, reference = KERNELS[kernel]
    chip = dse.Device.load(device)
    return dse.Study(
        f"polybench_{kernel}",
        program=program,
        params=params,
        where=lambda p: p["P"] * p.get("V", 1) <= dsp // 3,
        device=chip.with_options(dsp=min(dsp, chip.limit("dsp"))),
        objectives=[dse.minimize("latency_cycles"), dse.minimize("dsp")],
        schedules=["auto", *(dse.memory(tensor, ["onchip"]) for tensor in tensors)],
        reference=reference,
        verify_with=SMALLER[kernel],
        trials=300,
    )
