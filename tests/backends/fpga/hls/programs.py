"""Small programs for the tests of the code generator, one feature each."""

# Programs are written as users write them:
# ruff: noqa: B007

from typing import Any

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
import numpy as np
from allo.ir.types import Fixed, Int, Stateful, Stream, UFixed, UInt, bfloat16, float16, float32, int8, int16, int32
from allo.memory import Layout

S = Layout.Shard
R = Layout.Replicate
TABLE = np.array([3, -1, 4, 1], dtype=np.int32)


def scaled_rows(M: int = 4, N: int = 8, P: int = 2) -> Any:
    """Rows of blocks through an array of streams, a scalar argument and a table."""

    @df.region()
    def scaled_rows(A: int16[M, N], B: int32[M, N], bias: int32):
        pipe: Stream[int16[N], 3][P]

        @df.kernel(mapping=[P], args=[A])
        def send(a: int16[M, N] @ [S(0), R]):
            p = df.get_pid()
            for i in range(M // P):
                pipe[p].put(a[i, :])

        @df.kernel(mapping=[P], args=[B, bias])
        def scale(b: int32[M, N] @ [S(0), R], n: int32):
            p = df.get_pid()
            row: int16[N]
            for i in range(M // P):
                row[:] = pipe[p].get()
                for j in range(N):
                    b[i, j] = row[j] * TABLE[j % 4] + n if row[j] > 0 else n

    return scaled_rows


def fir(N: int = 32, T: int = 4) -> Any:
    """A shift register in a loop: local arrays, pipelining, conditions on data."""

    @df.region()
    def fir(X: int8[N], Y: int32[N]):
        samples: Stream[int8, 4]

        @df.kernel(mapping=[1], args=[X])
        def source(x: int8[N]):
            for i in range(N):
                samples.put(x[i])

        @df.kernel(mapping=[1], args=[Y])
        def taps(y: int32[N]):
            window: int8[T] = 0
            for i in range(N):
                for t in range(T - 1):
                    window[T - 1 - t] = window[T - 2 - t]
                window[0] = samples.get()
                total: int32 = 0
                for t in range(T):
                    total += window[t] * TABLE[t]
                y[i] = total if total > 0 else 0

    return fir


def feedback(N: int = 16) -> Any:
    """Two tasks that answer each other."""

    @df.region()
    def feedback(A: int32[N], B: int32[N]):
        ask: Stream[int32, 1]
        reply: Stream[int32, 1]

        @df.kernel(mapping=[1], args=[A, B])
        def client(a: int32[N], b: int32[N]):
            for i in range(N):
                ask.put(a[i])
                b[i] = reply.get()

        @df.kernel(mapping=[1])
        def server():
            total: int32 = 0
            for i in range(N):
                total += ask.get()
                reply.put(total)

    return feedback


def starved(N: int = 8) -> Any:
    """Takes from its second stream what is put behind what nobody takes: a deadlock at depth 2."""

    @df.region()
    def starved(A: int32[N], B: int32[N]):
        first: Stream[int32, 2]
        second: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def source(a: int32[N]):
            for i in range(N):
                first.put(a[i])
            for i in range(N):
                second.put(a[i])

        @df.kernel(mapping=[1], args=[B])
        def sink(b: int32[N]):
            for i in range(N):
                b[i] = second.get()
            for i in range(N):
                b[i] += first.get()

    return starved


def widths(N: int = 8) -> Any:
    """Integers of odd and large widths, bits and ranges of them."""

    @df.region()
    def widths(A: Int(7)[N], B: UInt(33)[N], W: UInt(256)[N], V: Int(900)[N], C: Int(70)[N], D: UInt(256)[N]):
        @df.kernel(mapping=[1], args=[A, B, W, V, C, D])
        def core(a: Int(7)[N], b: UInt(33)[N], w: UInt(256)[N], v: Int(900)[N], c: Int(70)[N], d: UInt(256)[N]):
            for i in range(N):
                c[i] = a[i] * b[i] - (b[i] >> 3) + (v[i] >> 5)
                x: UInt(256) = w[i]
                x[8:24] = b[i] * 3
                x[200] = a[i] < 0
                d[i] = x ^ w[(i + 1) % N]
                v[i] = v[i] * v[i] - a[i]

    return widths


def rounded(N: int = 8) -> Any:
    """Integers of more than 64 bits as floats: a little more than halfway between two of them."""

    @df.region()
    def rounded(A: UInt(23)[N], B: UInt(32)[N], C: UInt(32)[N]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def core(a: UInt(23)[N], b: UInt(32)[N], c: UInt(32)[N]):
            for i in range(N):
                between: UInt(130) = a[i] | (1 << 23)
                between = (2 * between + 1 << 70) + 1
                negative: Int(130) = 0 - between
                one: float32 = between
                other: float32 = negative
                b[i] = one.bitcast()
                c[i] = other.bitcast()

    return rounded


def chosen(N: int = 8) -> Any:
    """What one of two values is chosen of has one type in C++, also where numbers written alone widen one of them."""

    @df.region()
    def chosen(A: Int(31)[N], B: Int(8)[N], C: Int(31)[N], D: Int(31)[N]):
        @df.kernel(mapping=[1], args=[A, B, C, D])
        def core(a: Int(31)[N], b: Int(8)[N], c: Int(31)[N], d: Int(31)[N]):
            for i in range(N):
                v: Int(16) = -5
                c[i] = ((a[i] | v) ^ (a[i] & v)) if b[i] > 3 else (min(a[i], b[i]) | 4)
                d[i] = ((a[i] ^ v) >> 2) if b[i] > 3 else min(a[i], b[i])

    return chosen


def flags(N: int = 8) -> Any:
    """The smaller and larger of single bits, which are `bool` in C++."""

    @df.region()
    def flags(A: UInt(1)[N], B: UInt(1)[N], C: UInt(1)[N]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def core(a: UInt(1)[N], b: UInt(1)[N], c: UInt(1)[N]):
            for i in range(N):
                c[i] = max(a[i], b[i]) if i < 4 else min(a[i], b[i]) ^ abs(a[i])

    return flags


def some_blocks(N: int = 4, P: int = 2) -> Any:
    """The first task gets no block, and so leaves its part of the tensor as it was."""

    @df.region()
    def some_blocks(A: int32[P, N], B: int32[P, N]):
        pipe: Stream[int32[1, N], 2][P]

        @df.kernel(mapping=[P], args=[A])
        def send(a: int32[P, N] @ [S(0), R]):
            p = df.get_pid()
            for i in range(p):
                pipe[p].put(a)

        @df.kernel(mapping=[P], args=[B])
        def keep(b: int32[P, N] @ [S(0), R]):
            p = df.get_pid()
            for i in range(p):
                b[:, :] = pipe[p].get()

    return some_blocks


def numbers(N: int = 16) -> Any:
    """Fixed point, the three short floating-point types, functions and comparisons."""

    @df.region()
    def numbers(F: Fixed(16, 8)[N], U: UFixed(12, 4)[N], H: float16[N], X: bfloat16[N], Z: float32[N], Y: float32[N]):
        @df.kernel(mapping=[1], args=[F, U, H, X, Z, Y])
        def core(f: Fixed(16, 8)[N], u: UFixed(12, 4)[N], h: float16[N], x: bfloat16[N], z: float32[N], y: float32[N]):
            for i in range(N):
                y[i] = allo.exp(z[i]) + f[i] if h[i] > x[i] else max(z[i], x[i] * h[i])
                f[i] = f[i] * u[i] + 1
                h[i] = h[i] * h[i] + 2.5
                x[i] = x[i] / 3 - h[i]

    return numbers


def counter(N: int = 4, P: int = 3) -> Any:
    """Every task counts how often it has been called."""

    @df.region()
    def counter(A: int32[P, N]):
        @df.kernel(mapping=[P], args=[A])
        def core(a: int32[P, N] @ [S(0), R]):
            p = df.get_pid()
            calls: int32 @ Stateful = 10
            calls += p + 1
            for i in range(N):
                a[0, i] = calls

    return counter


def polling(N: int = 12) -> Any:
    """Tasks that ask before they take and put."""

    @df.region()
    def polling(A: int32[N], B: int32[N]):
        pipe: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def source(a: int32[N]):
            sent: int32 = 0
            while sent < N:
                if not pipe.full():
                    ok = pipe.try_put(a[sent])
                    if ok:
                        sent += 1

        @df.kernel(mapping=[1], args=[B])
        def sink(b: int32[N]):
            taken: int32 = 0
            while taken < N:
                value, ok = pipe.try_get()
                if ok:
                    b[taken] = value
                    taken += 1

    return polling


def histogram(N: int = 32, P: int = 2) -> Any:
    """Two tasks write anywhere in one tensor, one after the other."""

    @df.region()
    def histogram(A: UInt(3)[N], H: int32[8]):
        turn: Stream[int32, 1]

        @df.kernel(mapping=[P], args=[A, H])
        def core(a: UInt(3)[N] @ [S(0)], h: int32[8]):
            p = df.get_pid()
            with allo.meta_if(p == 1):
                turn.get()
            for i in range(N // P):
                h[a[i]] += 1
            with allo.meta_if(p == 0):
                turn.put(1)

    return histogram


def routed(N: int = 12, P: int = 3) -> Any:
    """Streams chosen by loop variables."""

    @df.region()
    def routed(A: int32[N], B: int32[N]):
        lanes: Stream[int32, 2][2, P]

        @df.kernel(mapping=[1], args=[A])
        def split(a: int32[N]):
            for i in range(N // P):
                for p in range(P):
                    lanes[i % 2, p].put(a[i * P + p])

        @df.kernel(mapping=[1], args=[B])
        def join(b: int32[N]):
            for i in range(N // P):
                for p in range(P):
                    b[i * P + p] = lanes[i % 2, p].get() * 2

    return routed


def while_(int: int = 5, N: int = 4) -> Any:
    """Names that mean something else in C++."""

    @df.region()
    def template(double: int32[N], new: int32[N]):
        switch: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[double])
        def delete(union: int32[N]):
            for struct in range(N):
                goto: int32 = union[struct]
                goto += int
                switch.put(goto)

        @df.kernel(mapping=[1], args=[new])
        def main(auto: int32[N]):
            for log in range(N):
                auto[log] = switch.get()

    return template


def tile(P: int = 2) -> Any:
    """Names that variables of generated processes have."""
    Ly = [S(0), R]

    @df.region()
    def tile(t: int32[4, 4], tile: int32[4, 4], i: int32[4, 4], word: int32[4, 4]):
        @df.kernel(mapping=[P], args=[t, tile, i, word])
        def node_0(t: int32[4, 4] @ Ly, tile: int32[4, 4] @ Ly, i: int32[4, 4] @ Ly, place: int32[4, 4] @ Ly):
            for way, shape in allo.grid(4 // P, 4):
                i[way, shape] = t[way, shape] + tile[way, shape]
                place[way, shape] = t[way, shape] - tile[way, shape]

    return tile


def borrowed(P: int = 2) -> Any:
    """Tensors called like variables of generated code, of seven dimensions, of one element that two kernels read."""
    rows = [S(0), *[R] * 6]

    @df.region()
    def borrowed(k: int32[P, 3, 1, 2, 2, 3, 2], place: int32[1], p0: int32[P, 3, 1, 2, 2, 3, 2], t: int32[P]):
        lane: Stream[int32, 2][P]

        @df.kernel(mapping=[P], args=[k, place, p0])
        def first(a: int32[P, 3, 1, 2, 2, 3, 2] @ rows, n: int32[1], b: int32[P, 3, 1, 2, 2, 3, 2] @ rows):
            p = df.get_pid()
            for i, j, u, v, w in allo.grid(3, 2, 2, 3, 2):
                b[0, i, 0, j, u, v, w] = a[0, i, 0, j, u, v, w] + n[0]
            lane[p].put(b[0, 2, 0, 1, 1, 2, 1])

        @df.kernel(mapping=[P], args=[place, t])
        def second(n: int32[1], c: int32[P] @ [S(0)]):
            p = df.get_pid()
            c[0] = lane[p].get() - n[0]

    return borrowed


def twice(N: int = 4, P: int = 2) -> Any:
    """Tasks that reach a tensor by two arguments, and see in one what they write by the other."""

    @df.region()
    def twice(A: int32[P, N], B: int32[P, N]):
        @df.kernel(mapping=[P], args=[A, A, B])
        def core(a: int32[P, N] @ [S(0), R], same: int32[P, N] @ [S(0), R], b: int32[P, N] @ [S(0), R]):
            for j in range(1, N):
                same[0, j] += a[0, j - 1]
            for j in range(N):
                b[0, j] = a[0, j]

    return twice


ALL = (
    scaled_rows, fir, feedback, widths, rounded, chosen, flags, some_blocks, numbers, counter, polling, histogram,
    routed, while_, tile, borrowed, twice,
)  # fmt: skip


def added_in_place() -> Any:
    """A tensor that two tasks read and write."""

    @df.region()
    def added_in_place(A: int32[64], B: int32[64]):
        @df.kernel(mapping=[2], args=[A, B])
        def add(a: int32[64] @ [S(0)], b: int32[64] @ [S(0)]):
            for i in range(32):
                a[i] = a[i] + b[i]

    return added_in_place
