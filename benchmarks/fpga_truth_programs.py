"""Public designs whose vendor-generated circuits were simulated, written in this project's language.

Programs and schedules only. What was measured stays in a folder beside the checkout (`fpga_truth.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32, float64, int8, int16, int32

from allo_dse.compiler.program.compiled import Directive
from benchmarks.fpga_programs import pipeline


@dataclass(frozen=True)
class Design:
    """A design as it was published.

    Attributes:
        truth: beginning of its name in the measured data. family: what one errs on alike; left out as a whole.
        kind: of error table.
        device, mhz: to predict it for.
        ports: tensors that are memory outside of the circuit. schedule: other directives.
        options: further options of the device.
        adapters: AXI ports of 32 bits, with a register file for the host, through which the program's nests copy.
    """

    truth: str
    family: str
    kind: str
    program: Callable[[], Any]
    device: str = "u55c"
    mhz: float = 200.0
    ports: tuple[str, ...] = ()
    schedule: tuple[Directive, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)
    adapters: int = 0

    @property
    def directives(self) -> tuple[Directive, ...]:
        """All of them."""
        return (*(Directive("place", "top", name, {"memory": "onchip"}) for name in self.ports), *self.schedule)


def jacobi_1d() -> Any:
    @df.region()
    def top(A: float64[120], B: float64[120]):
        @df.kernel(mapping=[1], args=[A, B])
        def body(a: float64[120], b: float64[120]):
            for _ in range(40):
                for i in range(1, 119):
                    b[i] = 0.33333 * (a[i - 1] + a[i] + a[i + 1])
                for i2 in range(1, 119):
                    a[i2] = 0.33333 * (b[i2 - 1] + b[i2] + b[i2 + 1])

    return top


def heat_3d() -> Any:
    n = 20

    @df.region()
    def top(A: float64[n, n, n], B: float64[n, n, n]):
        @df.kernel(mapping=[1], args=[A, B])
        def body(a: float64[n, n, n], b: float64[n, n, n]):
            for _ in range(40):
                for i in range(1, n - 1):
                    for j in range(1, n - 1):
                        for k in range(1, n - 1):
                            b[i, j, k] = (
                                0.125 * (a[i + 1, j, k] - 2.0 * a[i, j, k] + a[i - 1, j, k])
                                + 0.125 * (a[i, j + 1, k] - 2.0 * a[i, j, k] + a[i, j - 1, k])
                                + 0.125 * (a[i, j, k + 1] - 2.0 * a[i, j, k] + a[i, j, k - 1])
                                + a[i, j, k]
                            )
                for i2 in range(1, n - 1):
                    for j2 in range(1, n - 1):
                        for k2 in range(1, n - 1):
                            a[i2, j2, k2] = (
                                0.125 * (b[i2 + 1, j2, k2] - 2.0 * b[i2, j2, k2] + b[i2 - 1, j2, k2])
                                + 0.125 * (b[i2, j2 + 1, k2] - 2.0 * b[i2, j2, k2] + b[i2, j2 - 1, k2])
                                + 0.125 * (b[i2, j2, k2 + 1] - 2.0 * b[i2, j2, k2] + b[i2, j2, k2 - 1])
                                + b[i2, j2, k2]
                            )

    return top


def doitgen() -> Any:
    @df.region()
    def top(A: float64[25, 20, 30], C: float64[30, 30], S: float64[30]):
        @df.kernel(mapping=[1], args=[A, C, S])
        def body(a: float64[25, 20, 30], c: float64[30, 30], total: float64[30]):
            for r in range(25):
                for q in range(20):
                    for p in range(30):
                        total[p] = 0.0
                        for s in range(30):
                            total[p] += a[r, q, s] * c[s, p]
                    for p2 in range(30):
                        a[r, q, p2] = total[p2]

    return top


def covariance() -> Any:
    @df.region()
    def top(D: float64[100, 80], C: float64[80, 80], M: float64[80], n: float64):
        @df.kernel(mapping=[1], args=[D, C, M, n])
        def body(data: float64[100, 80], cov: float64[80, 80], mean: float64[80], count: float64):
            for j in range(80):
                mean[j] = 0.0
                for i in range(100):
                    mean[j] += data[i, j]
                mean[j] = mean[j] / count
            for i1 in range(100):
                for j1 in range(80):
                    data[i1, j1] = data[i1, j1] - mean[j1]
            for i2 in range(80):
                for j2 in range(i2, 80):
                    cov[i2, j2] = 0.0
                    for k in range(100):
                        cov[i2, j2] += data[k, i2] * data[k, j2]
                    cov[i2, j2] = cov[i2, j2] / (count - 1.0)
                    cov[j2, i2] = cov[i2, j2]

    return top


def durbin() -> Any:
    @df.region()
    def top(R: float64[40], Y: float64[40]):
        @df.kernel(mapping=[1], args=[R, Y])
        def body(r: float64[40], y: float64[40]):
            z: float64[40]
            y[0] = -r[0]
            beta: float64 = 1.0
            alpha: float64 = -r[0]
            for k in range(1, 40):
                beta = (1.0 - alpha * alpha) * beta
                total: float64 = 0.0
                for i in range(k):
                    total += r[k - i - 1] * y[i]
                alpha = -(r[k] + total) / beta
                for i2 in range(k):
                    z[i2] = y[i2] + alpha * y[k - i2 - 1]
                for i3 in range(k):
                    y[i3] = z[i3]
                y[k] = alpha

    return top


def floyd_warshall() -> Any:
    @df.region()
    def top(P: int32[60, 60]):
        @df.kernel(mapping=[1], args=[P])
        def body(path: int32[60, 60]):
            for k in range(60):
                for i in range(60):
                    for j in range(60):
                        other: int32 = path[i, k] + path[k, j]
                        path[i, j] = path[i, j] if path[i, j] < other else other

    return top


def atax() -> Any:
    n = 64

    @df.region()
    def top(A: float32[n, n], X: float32[n], Y: float32[n]):
        @df.kernel(mapping=[1], args=[A, X, Y])
        def body(a: float32[n, n], x: float32[n], y: float32[n]):
            ba: float32[n, n]
            bx: float32[n]
            by: float32[n]
            tmp: float32[n]
            for i in range(n):
                bx[i] = x[i]
                by[i] = 0.0
                tmp[i] = 0.0
                for j in range(n):
                    ba[i, j] = a[i, j]
            for i1 in range(n):
                for j1 in range(n):
                    tmp[i1] = tmp[i1] + ba[i1, j1] * bx[j1]
            for i2 in range(n):
                for j2 in range(n):
                    by[j2] = by[j2] + ba[i2, j2] * tmp[i2]
            for i3 in range(n):
                y[i3] = by[i3]

    return top


def bicg() -> Any:
    n = 64

    @df.region()
    def top(A: float32[n, n], P: float32[n], R: float32[n], S: float32[n], Q: float32[n]):
        @df.kernel(mapping=[1], args=[A, P, R, S, Q])
        def body(a: float32[n, n], p: float32[n], r: float32[n], s: float32[n], q: float32[n]):
            ba: float32[n, n]
            bp: float32[n]
            br: float32[n]
            bs: float32[n]
            bq: float32[n]
            for i in range(n):
                bp[i] = p[i]
                br[i] = r[i]
                bs[i] = 0.0
                bq[i] = 0.0
                for j in range(n):
                    ba[i, j] = a[i, j]
            for i1 in range(n):
                for j1 in range(n):
                    bs[j1] += br[i1] * ba[i1, j1]
            for i2 in range(n):
                for j2 in range(n):
                    bq[i2] += ba[i2, j2] * bp[j2]
            for i3 in range(n):
                s[i3] = bs[i3]
                q[i3] = bq[i3]

    return top


def gesummv() -> Any:
    n = 64

    @df.region()
    def top(A: float32[n, n], B: float32[n, n], X: float32[n], Y: float32[n], alpha: float32, beta: float32):
        @df.kernel(mapping=[1], args=[A, B, X, Y, alpha, beta])
        def body(a: float32[n, n], b: float32[n, n], x: float32[n], y: float32[n], u: float32, v: float32):
            ba: float32[n, n]
            bb: float32[n, n]
            bx: float32[n]
            by: float32[n]
            one: float32[n]
            two: float32[n]
            for i in range(n):
                bx[i] = x[i]
                one[i] = 0.0
                two[i] = 0.0
                by[i] = 0.0
                for j in range(n):
                    ba[i, j] = a[i, j]
                    bb[i, j] = b[i, j]
            for i1 in range(n):
                for j1 in range(n):
                    one[i1] += u * ba[i1, j1] * bx[j1]
            for i2 in range(n):
                for j2 in range(n):
                    two[i2] += v * bb[i2, j2] * bx[j2]
            for i3 in range(n):
                by[i3] = one[i3] + two[i3]
            for i4 in range(n):
                y[i4] = by[i4]

    return top


def mvt() -> Any:
    n = 64

    @df.region()
    def top(
        A: float32[n, n],
        X1: float32[n],
        X2: float32[n],
        Y1: float32[n],
        Y2: float32[n],
        O1: float32[n],
        O2: float32[n],
    ):
        @df.kernel(mapping=[1], args=[A, X1, X2, Y1, Y2, O1, O2])
        def body(
            a: float32[n, n],
            x1: float32[n],
            x2: float32[n],
            y1: float32[n],
            y2: float32[n],
            o1: float32[n],
            o2: float32[n],
        ):
            ba: float32[n, n]
            b1: float32[n]
            b2: float32[n]
            c1: float32[n]
            c2: float32[n]
            for i in range(n):
                b1[i] = x1[i]
                b2[i] = x2[i]
                c1[i] = y1[i]
                c2[i] = y2[i]
                for j in range(n):
                    ba[i, j] = a[i, j]
            for i1 in range(n):
                for j1 in range(n):
                    b1[i1] = b1[i1] + ba[i1, j1] * c1[j1]
            for i2 in range(n):
                for j2 in range(n):
                    b2[i2] = b2[i2] + ba[j2, i2] * c2[j2]
            for i3 in range(n):
                o1[i3] = b1[i3]
                o2[i3] = b2[i3]

    return top


def lu() -> Any:
    n = 40

    @df.region()
    def top(A: float64[n, n]):
        @df.kernel(mapping=[1], args=[A])
        def body(a: float64[n, n]):
            for i in range(n):
                for j in range(i):
                    for k in range(j):
                        a[i, j] = a[i, j] - a[i, k] * a[k, j]
                    a[i, j] = a[i, j] / a[j, j]
                for j2 in range(i, n):
                    for k2 in range(i):
                        a[i, j2] = a[i, j2] - a[i, k2] * a[k2, j2]

    return top


def ludcmp() -> Any:
    n = 40

    @df.region()
    def top(A: float64[n, n], B: float64[n], X: float64[n], Y: float64[n]):
        @df.kernel(mapping=[1], args=[A, B, X, Y])
        def body(a: float64[n, n], b: float64[n], x: float64[n], y: float64[n]):
            for i in range(n):
                for j in range(i):
                    w: float64 = a[i, j]
                    for k in range(j):
                        w = w - a[i, k] * a[k, j]
                    a[i, j] = w / a[j, j]
                for j2 in range(i, n):
                    w2: float64 = a[i, j2]
                    for k2 in range(i):
                        w2 = w2 - a[i, k2] * a[k2, j2]
                    a[i, j2] = w2
            for i3 in range(n):
                w3: float64 = b[i3]
                for j3 in range(i3):
                    w3 = w3 - a[i3, j3] * y[j3]
                y[i3] = w3
            for i4 in range(n):
                w4: float64 = y[n - 1 - i4]
                for j4 in range(n - i4, n):
                    w4 = w4 - a[n - 1 - i4, j4] * x[j4]
                x[n - 1 - i4] = w4 / a[n - 1 - i4, n - 1 - i4]

    return top


def trisolv() -> Any:
    n = 40

    @df.region()
    def top(L: float64[n, n], X: float64[n], B: float64[n]):
        @df.kernel(mapping=[1], args=[L, X, B])
        def body(a: float64[n, n], x: float64[n], b: float64[n]):
            for i in range(n):
                x[i] = b[i]
                for j in range(i):
                    x[i] = x[i] - a[i, j] * x[j]
                x[i] = x[i] / a[i, i]

    return top


def stencil_2d() -> Any:
    rows, columns = 128, 64

    @df.region()
    def top(A: int32[8192], S: int32[8192], F: int32[9]):
        @df.kernel(mapping=[1], args=[A, S, F])
        def body(a: int32[8192], s: int32[8192], f: int32[9]):
            for r in range(rows - 2):
                for c in range(columns - 2):
                    t: int32 = 0
                    for k1 in range(3):
                        for k2 in range(3):
                            t += f[k1 * 3 + k2] * a[(r + k1) * columns + c + k2]
                    s[r * columns + c] = t

    return top


def stencil_3d() -> Any:
    h, c, r = 32, 32, 16

    @df.region()
    def top(K: int32[2], A: int32[16384], S: int32[16384]):
        @df.kernel(mapping=[1], args=[K, A, S])
        def body(w: int32[2], a: int32[16384], s: int32[16384]):
            for j in range(c):
                for k in range(r):
                    s[k + r * j] = a[k + r * j]
                    s[k + r * (j + c * (h - 1))] = a[k + r * (j + c * (h - 1))]
            for i1 in range(1, h - 1):
                for k1 in range(r):
                    s[k1 + r * (c * i1)] = a[k1 + r * (c * i1)]
                    s[k1 + r * (c - 1 + c * i1)] = a[k1 + r * (c - 1 + c * i1)]
            for i2 in range(1, h - 1):
                for j2 in range(1, c - 1):
                    s[r * (j2 + c * i2)] = a[r * (j2 + c * i2)]
                    s[r - 1 + r * (j2 + c * i2)] = a[r - 1 + r * (j2 + c * i2)]
            for i in range(1, h - 1):
                for j3 in range(1, c - 1):
                    for k3 in range(1, r - 1):
                        t: int32 = (
                            a[k3 + r * (j3 + c * (i + 1))]
                            + a[k3 + r * (j3 + c * (i - 1))]
                            + a[k3 + r * (j3 + 1 + c * i)]
                            + a[k3 + r * (j3 - 1 + c * i)]
                            + a[k3 + 1 + r * (j3 + c * i)]
                            + a[k3 - 1 + r * (j3 + c * i)]
                        )
                        s[k3 + r * (j3 + c * i)] = a[k3 + r * (j3 + c * i)] * w[0] + t * w[1]

    return top


_TABLE = np.array(
    [
        [8192, 8192, 8192, 8192, 8192, 8192, 8192, 8192],
        [11363, 9633, 6436, 2260, -2260, -6436, -9632, -11362],
        [10703, 4433, -4433, -10703, -10703, -4433, 4433, 10703],
        [9633, -2260, -11362, -6436, 6436, 11363, 2260, -9632],
        [8192, -8192, -8192, 8192, 8192, -8191, -8191, 8192],
        [6436, -11362, 2260, 9633, -9632, -2260, 11363, -6436],
        [4433, -10703, 10703, -4433, -4433, 10703, -10703, 4433],
        [2260, -6436, 9633, -11362, 11363, -9632, 6436, -2260],
    ],
    np.int16,
)


def dct() -> Any:
    @df.region()
    def top(A: int16[64], B: int16[64]):
        @df.kernel(mapping=[1], args=[A, B])
        def body(inp: int16[64], out: int16[64]):
            table: int16[8, 8] = _TABLE
            block: int16[8, 8]
            row: int16[8, 8]
            turned: int16[8, 8]
            column: int16[8, 8]
            back: int16[8, 8]
            for r in range(8):
                for c in range(8):
                    block[r, c] = inp[r * 8 + c]
            for i in range(8):
                for k in range(8):
                    t: int32 = 0
                    for n in range(8):
                        t += block[i, n] * table[k, n]
                    row[i, k] = (t + 4096) >> 13
            for j1 in range(8):
                for i1 in range(8):
                    turned[j1, i1] = row[i1, j1]
            for i2 in range(8):
                for k2 in range(8):
                    t2: int32 = 0
                    for n2 in range(8):
                        t2 += turned[i2, n2] * table[k2, n2]
                    column[i2, k2] = (t2 + 4096) >> 13
            for j3 in range(8):
                for i3 in range(8):
                    back[j3, i3] = column[i3, j3]
            for r4 in range(8):
                for c4 in range(8):
                    out[r4 * 8 + c4] = back[r4, c4]

    return top


def product_3x3() -> Any:
    @df.region()
    def top(A: int8[3, 3], B: int8[3, 3], C: int16[3, 3]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def body(a: int8[3, 3], b: int8[3, 3], c: int16[3, 3]):
            for i in range(3):
                for j in range(3):
                    t: int16 = 0
                    for k in range(3):
                        t += a[i, k] * b[k, j]
                    c[i, j] = t

    return top


def vec_add() -> Any:
    n = 100

    @df.region()
    def top(A: float32[n], B: float32[n], C: float32[n]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def body(a: float32[n], b: float32[n], c: float32[n]):
            ba: float32[n]
            bb: float32[n]
            bc: float32[n]
            for i in range(n):
                ba[i] = a[i]
            for i1 in range(n):
                bb[i1] = b[i1]
            for i2 in range(n):
                bc[i2] = c[i2]
            for i3 in range(n):
                ba[i3] = bb[i3] + bc[i3] * 2.5
            for i4 in range(n):
                a[i4] = ba[i4]

    return top


def streamed_atax() -> Any:
    m, n = 390, 410

    @df.region()
    def top(A: float32[m, n], A2: float32[m, n], X: float32[n], Y: float32[n]):
        pipe: Stream[float32, m]

        @df.kernel(mapping=[1], args=[A, X])
        def first(a: float32[m, n], x: float32[n]):
            v: float32[m]
            for z in range(m):
                v[z] = 0.0
            for r in range(n):
                for c in range(m):
                    v[c] = v[c] + a[c, r] * x[r]
            for i in range(m):
                pipe.put(v[i])

        @df.kernel(mapping=[1], args=[A2, Y])
        def second(a: float32[m, n], y: float32[n]):
            v: float32[m]
            for i in range(m):
                v[i] = pipe.get()
            for k in range(m):
                for q in range(n):
                    y[q] = y[q] + a[k, q] * v[k]

    return top


def sequential_2mm() -> Any:
    n = 64

    @df.region()
    def top(A: float32[n, n], B: float32[n, n], C: float32[n, n], D: float32[n, n]):
        @df.kernel(mapping=[1], args=[A, B, C, D])
        def body(a: float32[n, n], b: float32[n, n], c: float32[n, n], d: float32[n, n]):
            t: float32[n, n] = 0
            e: float32[n, n] = 0
            for i in range(n):
                for k in range(n):
                    for j in range(n):
                        t[i, j] += a[i, k] * b[k, j]
            for i2 in range(n):
                for k2 in range(n):
                    for j2 in range(n):
                        e[i2, j2] += t[i2, k2] * c[k2, j2]
            for i3 in range(n):
                for j3 in range(n):
                    d[i3, j3] = e[i3, j3]

    return top


def streamed_2mm(first: str, second: str) -> Callable[[], Any]:
    """Two products with a stream of elements between them, each with its own order of loops."""

    def made() -> Any:
        n = 64

        @df.region()
        def top(A: float32[n, n], B: float32[n, n], C: float32[n, n], D: float32[n, n]):
            pipe: Stream[float32, 4]

            @df.kernel(mapping=[1], args=[A, B])
            def one(a: float32[n, n], b: float32[n, n]):
                with allo.meta_if(first == "ijk"):
                    for i in range(n):
                        for j in range(n):
                            t: float32 = 0
                            for k in range(n):
                                t += a[i, k] * b[k, j]
                            pipe.put(t)
                with allo.meta_elif(first == "ikj"):
                    for i0 in range(n):
                        r0: float32[n] = 0
                        for k0 in range(n):
                            for j0 in range(n):
                                r0[j0] += a[i0, k0] * b[k0, j0]
                        for p0 in range(n):
                            pipe.put(r0[p0])
                with allo.meta_else():
                    for j9 in range(n):
                        r9: float32[n] = 0
                        for k9 in range(n):
                            for i9 in range(n):
                                r9[i9] += a[i9, k9] * b[k9, j9]
                        for p9 in range(n):
                            pipe.put(r9[p9])

            @df.kernel(mapping=[1], args=[C, D])
            def two(c: float32[n, n], d: float32[n, n]):
                with allo.meta_if(second == "ikj"):
                    for i1 in range(n):
                        left: float32[n]
                        for g in range(n):
                            left[g] = pipe.get()
                        r1: float32[n] = 0
                        for k1 in range(n):
                            for j1 in range(n):
                                r1[j1] += left[k1] * c[k1, j1]
                        for p1 in range(n):
                            d[i1, p1] = r1[p1]
                with allo.meta_elif(second == "jki"):
                    whole: float32[n, n]
                    for i2 in range(n):
                        taken: float32[n]
                        for g2 in range(n):
                            taken[g2] = pipe.get()
                        for p2 in range(n):
                            whole[i2, p2] = taken[p2]
                    for j3 in range(n):
                        r3: float32[n] = 0
                        for k3 in range(n):
                            for i3 in range(n):
                                r3[i3] += whole[i3, k3] * c[k3, j3]
                        for p3 in range(n):
                            d[p3, j3] = r3[p3]
                with allo.meta_else():
                    sums: float32[n, n] = 0
                    for k4 in range(n):
                        got: float32[n]
                        for g4 in range(n):
                            got[g4] = pipe.get()
                        for i4 in range(n):
                            for j4 in range(n):
                                sums[i4, j4] += got[i4] * c[k4, j4]
                    for i5 in range(n):
                        for p5 in range(n):
                            d[i5, p5] = sums[i5, p5]

        return top

    return made


def _unroll(kernel: str, loop: str, factor: int) -> Directive:
    return Directive("unroll", kernel, loop, {"factor": factor})


def _banks(kernel: str, array: str, dim: int, factor: int = 0) -> Directive:
    kind = "cyclic" if factor else "complete"
    return Directive("partition", kernel, array, {"dim": dim, "factor": factor, "partition_type": kind})


def _loops(kernel: str, *names: str) -> tuple[Directive, ...]:
    return tuple(pipeline(kernel, name) for name in names)


_OLD: dict[str, Any] = {"device": "z7045", "options": {"tool": "2015.3", "uncertainty": 0.125}}
_COPIES = ("c", "i1", "i3", "c4")
_DCT: dict[str, Any] = {**_OLD, "mhz": 125.0, "ports": ("A", "B")}
_3X3: dict[str, Any] = {**_OLD, "mhz": 75.0, "ports": ("A", "B", "C")}
_ALLO: dict[str, Any] = {"device": "vu11p", "mhz": 100.0}


def _streamed(number: int, first: str, second: str) -> Design:
    names = {"ijk": ("k",), "ikj": ("j0", "p0"), "jki": ("i9", "p9")}[first]
    others = {"ikj": ("g", "j1", "p1"), "jki": ("g2", "p2", "i3", "p3"), "kij": ("g4", "j4", "p5")}[second]
    schedule = (*_loops("one", *names), *_loops("two", *others))
    return Design(f"silv_00{number}", "2mm", "streaming", streamed_2mm(first, second), schedule=schedule, **_ALLO)


DESIGNS = (
    Design("hlst_056", "stencils", "f64", jacobi_1d, ports=("A", "B")),
    Design("hlst_053", "stencils", "f64", heat_3d, ports=("A", "B")),
    Design("hlst_045", "doitgen", "f64", doitgen, ports=("A", "C", "S")),
    Design("hlst_043", "covariance", "f64", covariance, ports=("D", "C", "M")),
    Design("hlst_046", "durbin", "f64", durbin, ports=("R", "Y")),
    Design("hlst_060", "lu", "f64", lu, ports=("A",)),
    Design("hlst_061", "lu", "f64", ludcmp, ports=("A", "B", "X", "Y")),
    Design("hlst_068", "trisolv", "f64", trisolv, ports=("L", "X", "B")),
    Design("hlst_049", "floyd_warshall", "integer", floyd_warshall, ports=("P",)),
    Design("hlst_036", "machsuite", "integer", stencil_2d, ports=("A", "S", "F")),
    Design("hlst_037", "machsuite", "integer", stencil_3d, ports=("K", "A", "S")),
    Design("hlst_040", "vectors", "f32 plain", atax, ports=("A", "X", "Y")),
    Design("hlst_041", "vectors", "f32 plain", bicg, ports=("A", "P", "R", "S", "Q")),
    Design("hlst_051", "vectors", "f32 plain", gesummv, ports=("A", "B", "X", "Y")),
    Design("hlst_063", "vectors", "f32 plain", mvt, ports=("A", "X1", "X2", "Y1", "Y2", "O1", "O2")),
    Design("nguyen_083", "dct", "small", dct, **_DCT),
    Design(
        "nguyen_084",
        "dct",
        "small",
        dct,
        schedule=_loops("body", "n", "n2", *_COPIES),
        **_DCT,
    ),
    Design(
        "nguyen_085",
        "dct",
        "small",
        dct,
        schedule=_loops("body", "k", "k2", *_COPIES),
        **_DCT,
    ),
    Design(
        "nguyen_086",
        "dct",
        "small",
        dct,
        **_DCT,
        schedule=(*_loops("body", "k", "k2", *_COPIES), _banks("body", "block", 2), _banks("body", "turned", 2)),
    ),
    Design("nguyen_090", "matrixmul", "small", product_3x3, **_3X3),
    Design(
        "nguyen_091",
        "matrixmul",
        "small",
        product_3x3,
        **_3X3,
        schedule=(*_loops("body", "j"), _banks("body", "a", 2), _banks("body", "b", 1)),
    ),
    Design(
        "nguyen_092",
        "matrixmul",
        "small",
        product_3x3,
        schedule=_loops("body", "j"),
        **_3X3,
    ),
    Design(
        "pldi_069",
        "allo",
        "f32 tuned",
        streamed_atax,
        device="u280",
        mhz=400.0,
        ports=("A", "A2", "X", "Y"),
        schedule=(
            *_loops("first", "c"),
            _unroll("first", "c", 39),
            _banks("first", "a", 1, 39),
            _banks("first", "v", 1, 39),
            *_loops("second", "q"),
            _unroll("second", "q", 41),
            _banks("second", "a", 2, 41),
            _banks("second", "y", 1, 41),
        ),
    ),
    Design(
        "nguyen_071",
        "vec_add",
        "f32 copied",
        vec_add,
        device="zcu102",
        mhz=100.0,
        ports=("A", "B", "C"),
        options={"tool": "2020.2"},
        schedule=_loops("body", "i", "i1", "i2", "i3", "i4"),
        adapters=3,
    ),
    Design("silv_000", "2mm", "f32 tuned", sequential_2mm, schedule=_loops("body", "j", "j2", "j3"), **_ALLO),
    _streamed(1, "ijk", "ikj"),
    _streamed(2, "ikj", "ikj"),
    _streamed(3, "ikj", "jki"),
    _streamed(4, "jki", "jki"),
    _streamed(5, "jki", "kij"),
)
