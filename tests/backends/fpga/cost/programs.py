"""Small kernels, one effect each."""

from __future__ import annotations

from typing import Any

import numpy as np

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Fixed, Int, Stream, float32, float64, int8, int16, int32, uint8

N = 256
SIDE = 16


def dot(kind: str) -> Any:
    T, R = (float32, float32) if kind == "f32" else (int8, int32)

    @df.region()
    def top(X: T[N], Y: T[N], Z: R[1]):
        @df.kernel(mapping=[1], args=[X, Y, Z])
        def k(x: T[N], y: T[N], z: R[1]):
            acc: R = 0
            for i in range(N):
                acc += x[i] * y[i]
            z[0] = acc

    return top


def by_constant(operation: str, n: int) -> Any:
    @df.region()
    def top(X: int32[N], Y: int32[N]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: int32[N], y: int32[N]):
            for i in range(N):
                with allo.meta_if(operation == "*"):
                    y[i] = x[i] * n
                with allo.meta_elif(operation == "/"):
                    y[i] = x[i] / n
                with allo.meta_elif(operation == "//"):
                    y[i] = x[i] // n
                with allo.meta_else():
                    y[i] = x[i] % n

    return top


def rows() -> Any:
    @df.region()
    def top(X: float32[64, 64], Z: float32[64]):
        @df.kernel(mapping=[1], args=[X, Z])
        def k(x: float32[64, 64], z: float32[64]):
            for i in range(64):
                for j in range(64):
                    z[j] += x[i, j]

    return top


def scale() -> Any:
    @df.region()
    def top(X: float32[N], Y: float32[N]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: float32[N], y: float32[N]):
            for i in range(N):
                y[i] = 2.0 * x[i]

    return top


def matvec(columns: int) -> Any:
    @df.region()
    def top(X: float32[N, columns], V: float32[columns], Y: float32[N]):
        @df.kernel(mapping=[1], args=[X, V, Y])
        def k(x: float32[N, columns], v: float32[columns], y: float32[N]):
            for i in range(N):
                acc: float32 = 0
                for j in range(columns):
                    acc += x[i, j] * v[j]
                y[i] = acc

    return top


def recurrence(distance: int) -> Any:
    @df.region()
    def top(X: float32[N]):
        @df.kernel(mapping=[1], args=[X])
        def k(x: float32[N]):
            for i in range(distance, N):
                x[i] = x[i - distance] + 1.0

    return top


def computed_index(kind: str) -> Any:
    """Sums in elements that nobody can tell apart before the program runs."""

    @df.region()
    def top(H: int32[64], X: float32[64], F: float32[4]):
        @df.kernel(mapping=[1], args=[H, X, F])
        def k(h: int32[64], x: float32[64], f: float32[4]):
            s: float32[4] = 0
            n: float32[4] = 0
            for t in range(16):
                with allo.meta_if(kind == "next"):
                    n[t % 4] = n[(t + 1) % 4] + x[t]
                with allo.meta_elif(kind == "other array"):
                    for q in range(4):
                        n[(q + 1) % 4] = s[q] + x[t]
                    for w in range(4):
                        s[w] = n[w]
                with allo.meta_else():
                    for r in range(4):
                        s[h[4 * t + r]] += x[t]
            f[:] = s + n

    return top


def computed_banks(index: str, nested: bool) -> Any:
    """Copies of elements whose index is linear only where unrolling makes it a number."""
    rounds, copies = (8, 8) if nested else (64, 1)

    @df.region()
    def top(X: int32[64], Y: int32[64], H: int32[64]):
        @df.kernel(mapping=[1], args=[X, Y, H])
        def k(x: int32[64], y: int32[64], h: int32[64]):
            for i in range(rounds):
                for u in range(copies):
                    with allo.meta_if(index == "half"):
                        y[copies * i + u] = x[(copies * i + u) // 2]
                    with allo.meta_elif(index == "three of eight"):
                        y[copies * i + u] = x[(copies * i + u) * 3 % 8]
                    with allo.meta_elif(index == "shifted"):
                        y[copies * i + u] = x[(copies * i + u) >> 1]
                    with allo.meta_elif(index == "data"):
                        y[copies * i + u] = x[h[copies * i + u]]
                    with allo.meta_else():
                        y[copies * i + u] = x[(copies * i + u) // 2 * 4]

    return top


def put_after_copies(kind: str) -> Any:
    """A token that follows from sums of unrolled copies: of each other's, of some copies only, or of two for each
    element."""

    @df.region()
    def top(X: float32[8, 8], Y: float32[8]):
        pipe: Stream[float32, 4]

        @df.kernel(mapping=[1], args=[X])
        def k(x: float32[8, 8]):
            s: float32[9] = 0
            for i in range(8):
                with allo.meta_if(kind == "chain"):
                    s[0] = x[i, 0]
                    for u in range(8):
                        s[u + 1] = s[u] + x[i, u]
                    pipe.put(s[8])
                with allo.meta_elif(kind == "later"):
                    s[0] = 0.0
                    for u in range(8):
                        if u >= 4:
                            s[0] += x[i, u]
                        if u == 7:
                            pipe.put(s[0])
                with allo.meta_else():
                    for v in range(4):
                        s[v] = x[i, v]
                    for u in range(8):
                        s[u // 2] += x[i, u]
                    pipe.put(s[3])

        @df.kernel(mapping=[1], args=[Y])
        def other(y: float32[8]):
            for i in range(8):
                y[i] = pipe.get()

    return top


def scattered_sums() -> Any:
    """A convolution that adds each input to all outputs it is part of."""

    @df.region()
    def top(X: float32[16], W: float32[4], Y: float32[20]):
        @df.kernel(mapping=[1], args=[X, W, Y])
        def k(x: float32[16], w: float32[4], y: float32[20]):
            for t in range(16):
                for r in range(4):
                    y[t + r] += x[t] * w[r]

    return top


def fixed_sums() -> Any:
    """Sums of products, each of which is rounded down."""
    T = Fixed(16, 8)

    @df.region()
    def top(A: T[4, 8], B: T[8, 4], C: T[4, 4]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def k(a: T[4, 8], b: T[8, 4], c: T[4, 4]):
            for i, j in allo.grid(4, 4):
                total: T = 0
                for r in range(8):
                    product: T = a[i, r] * b[r, j]
                    total += product
                c[i, j] = total

    return top


def twice() -> Any:
    @df.region()
    def top(X: float32[N], Y: float32[N]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: float32[N], y: float32[N]):
            for i in range(N):
                y[i] = 2.0 * x[i]
            for j in range(N):
                x[j] = 3.0 * y[j]

    return top


def until() -> Any:
    @df.region()
    def top(X: int32[N]):
        @df.kernel(mapping=[1], args=[X])
        def k(x: int32[N]):
            while x[0] > 0:
                x[0] -= 1

    return top


def every_fourth() -> Any:
    @df.region()
    def top(X: int32[16], Y: int32[4]):
        pipe: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[X])
        def k(x: int32[16]):
            for b in range(4):
                for i in range(4):
                    v: int32 = x[4 * b + i]
                    if i == 3:
                        pipe.put(v)

        @df.kernel(mapping=[1], args=[Y])
        def other(y: int32[4]):
            for i in range(4):
                y[i] = pipe.get()

    return top


def rows_of_sums() -> Any:
    @df.region()
    def top(X: int32[8, 4], Y: int32[8, 4]):
        firsts: Stream[int32, 8]
        sums: Stream[int32, 32]

        @df.kernel(mapping=[1], args=[X])
        def k(x: int32[8, 4]):
            for i in range(8):
                v: int32 = firsts.get()
                for j in range(4):
                    sums.put(v + x[i, j])

        @df.kernel(mapping=[1], args=[])
        def first():
            for n in range(8):
                firsts.put(n)

        @df.kernel(mapping=[1], args=[Y])
        def last(y: int32[8, 4]):
            for n in range(32):
                y[n // 4, n % 4] = sums.get()

    return top


def later_tasks_do_less() -> Any:
    """A condition on which task it is: around a put, around a get, and around sums only."""

    @df.region()
    def top(X: int32[4, 8], Y: int32[4, 8], Z: int32[4, 8]):
        pipe: Stream[int32, 8][4]

        @df.kernel(mapping=[4], args=[X])
        def puts(x: int32[4, 8]):
            p = df.get_pid()
            for i in range(8):
                if i > p:
                    pipe[p].put(x[p, i])

        @df.kernel(mapping=[4], args=[Y])
        def gets(y: int32[4, 8]):
            p = df.get_pid()
            for i in range(8):
                if i > p:
                    y[p, i] = pipe[p].get()

        @df.kernel(mapping=[4], args=[X, Z])
        def sums(x: int32[4, 8], z: int32[4, 8]):
            p = df.get_pid()
            for i in range(8):
                if i > p:
                    z[p, i] = x[p, i] + 1

    return top


def either_loop() -> Any:
    """A short loop or a long one, by which task it is, and by data."""

    @df.region()
    def top(X: int32[2, 64], Y: int32[2, 64]):
        @df.kernel(mapping=[2], args=[X])
        def known(x: int32[2, 64]):
            p = df.get_pid()
            for r in range(4):
                if r * 0 + p < 1:
                    for i in range(4):
                        x[p, i] = r + i
                else:
                    for j in range(64):
                        x[p, j] = r + j

        @df.kernel(mapping=[1], args=[Y])
        def unknown(y: int32[2, 64]):
            for r in range(4):
                if y[1, r] > 0:
                    for i in range(4):
                        y[0, i] = r + i
                else:
                    for j in range(64):
                        y[0, j] = r + j

    return top


def searched() -> Any:
    """Eight puts into a stream of 64, of which data decide how many are taken in one round."""

    @df.region()
    def top(X: int32[8], Y: int32[8]):
        found: Stream[int32, 64]

        @df.kernel(mapping=[1], args=[X])
        def k(x: int32[8]):
            for i in range(8):
                found.put(x[i])

        @df.kernel(mapping=[1], args=[Y])
        def other(y: int32[8]):
            left: int32 = 8
            while left > 0:
                y[8 - left] = found.get()
                left -= 1

    return top


def views() -> Any:
    @df.region()
    def top(X: float32[64, 64], Y: float32[64, 64]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: float32[64, 64], y: float32[64, 64]):
            y[0:8, :] = allo.add(x[8:16, :], x[16:24, :])

    return top


def skewed() -> Any:
    """One task fills a stream before it begins with the other; the second takes from both in turn."""

    @df.region()
    def top(X: int32[64], Y: int32[64]):
        left: Stream[int32, 2]
        right: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[X])
        def split(x: int32[64]):
            for i in range(64):
                left.put(x[i])
            for j in range(64):
                right.put(x[j])

        @df.kernel(mapping=[1], args=[Y])
        def merge(y: int32[64]):
            for k in range(64):
                y[k] = left.get() + right.get()

    return top


def dot_products(kind: str, columns: int = 64) -> Any:
    """Sums of rows that begin anew under a condition: in a variable, in an element, or in both of two elements."""

    @df.region()
    def top(A: float32[64, columns], X: float32[columns], Y: float32[64, 2]):
        @df.kernel(mapping=[1], args=[A, X, Y])
        def k(a: float32[64, columns], x: float32[columns], y: float32[64, 2]):
            acc: float32 = 0
            for i in range(64):
                for j in range(columns):
                    with allo.meta_if(kind == "variable"):
                        if j == 0:
                            acc = 0.0
                        acc += a[i, j] * x[j]
                        if j == columns - 1:
                            y[i, 0] = acc
                    with allo.meta_if(kind == "element"):
                        if j == 0:
                            y[i, 0] = 0.0
                        y[i, 0] += a[i, j] * x[j]
                    with allo.meta_if(kind == "plain"):
                        y[i, 0] += a[i, j] * x[j]
                    with allo.meta_if(kind == "copies"):
                        for u in range(2):
                            if j == 0:
                                y[i, u] = 0.0
                            y[i, u] += a[i, j] * x[j]

    return top


def row_sums() -> Any:
    """Rows of sums in a memory: every round reads and writes all of it."""

    @df.region()
    def top(A: float32[64, 64], B: float32[64, 64], C: float32[64]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def k(a: float32[64, 64], b: float32[64, 64], c: float32[64]):
            for r in range(64):
                for j in range(64):
                    c[j] += a[0, r] * b[r, j]

    return top


def window(height: int, width: int, size: int) -> Any:
    """Tokens of whole windows only."""

    @df.region()
    def top(A: int32[height, width], B: int32[height - size + 1, width - size + 1]):
        pipe: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[A])
        def take(a: int32[height, width]):
            for y in range(height):
                for x in range(width):
                    v: int32 = a[y, x]
                    if y >= size - 1 and x >= size - 1:
                        pipe.put(v)

        @df.kernel(mapping=[1], args=[B])
        def give(b: int32[height - size + 1, width - size + 1]):
            for y in range(height - size + 1):
                for x in range(width - size + 1):
                    b[y, x] = pipe.get()

    return top


def shares() -> Any:
    """Every task has its part of a range."""

    @df.region()
    def top(A: int32[64], B: int32[64]):
        @df.kernel(mapping=[4], args=[A, B])
        def k(a: int32[64], b: int32[64]):
            p = df.get_pid()
            for i in range(p * 16, (p + 1) * 16):
                b[i] = a[i] + 1

    return top


def triangle(size: int) -> Any:
    @df.region()
    def top(A: int32[size, size], B: int32[size]):
        @df.kernel(mapping=[1], args=[A, B])
        def k(a: int32[size, size], b: int32[size]):
            for i in range(size):
                for j in range(i, size):
                    b[j] += a[i, j]

    return top


def chosen() -> Any:
    """Positive elements only: how many there are depends on data."""

    @df.region()
    def top(X: int32[N], Y: int32[1]):
        pipe: Stream[int32, N]

        @df.kernel(mapping=[1], args=[X])
        def pick(x: int32[N]):
            for i in range(N):
                if x[i] > 0:
                    pipe.put(x[i])
            pipe.put(0)

        @df.kernel(mapping=[1], args=[Y])
        def add(y: int32[1]):
            total: int32 = 0
            v: int32 = pipe.get()
            while v > 0:
                total += v
                v = pipe.get()
            y[0] = total

    return top


def ragged() -> Any:
    """Rows whose lengths are data."""

    @df.region()
    def top(X: int32[16], Y: int32[16]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: int32[16], y: int32[16]):
            for i in range(16):
                for j in range(x[i]):
                    y[i] += j

    return top


def rows_of_triangle(size: int) -> Any:
    """The elements on and above the diagonal, row by row."""

    @df.region()
    def top(A: int32[size, size], B: int32[size * (size + 1) // 2]):
        pipe: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[A])
        def take(a: int32[size, size]):
            for i in range(size):
                for j in range(i, size):
                    pipe.put(a[i, j])

        @df.kernel(mapping=[1], args=[B])
        def give(b: int32[size * (size + 1) // 2]):
            for i in range(size * (size + 1) // 2):
                b[i] = pipe.get()

    return top


def every_third(size: int) -> Any:
    """Tokens of every third round, and a band around a diagonal."""

    @df.region()
    def top(A: int32[size], B: int32[8, 8]):
        pipe: Stream[int32, size]

        @df.kernel(mapping=[1], args=[A, B])
        def k(a: int32[size], b: int32[8, 8]):
            for i in range(size):
                if i % 3 == 2:
                    pipe.put(a[i])
            for m in range(6):
                for n in range(max(m - 1, 0), min(m + 2, 8)):
                    b[m, n] = 1

    return top


def dealt(size: int) -> Any:
    """Every task hands on the elements of its part that quotients and remainders select."""

    @df.region()
    def top(A: int32[4 * size], B: int32[4 * size]):
        pipe: Stream[int32, 4][4]

        @df.kernel(mapping=[4], args=[A])
        def take(a: int32[4 * size]):
            p = df.get_pid()
            for i in range(p * size, (p + 1) * size):
                if i % 4 == p or i // 8 == p:
                    pipe[p].put(a[i])

        @df.kernel(mapping=[4], args=[B])
        def give(b: int32[4 * size]):
            p = df.get_pid()
            for i in range(p * size, (p + 1) * size):
                if i % 4 == p or i // 8 == p:
                    b[i] = pipe[p].get()

    return top


def in_parts(size: int) -> Any:
    """Every task hands on its part."""

    @df.region()
    def top(A: int32[4 * size], B: int32[4 * size]):
        pipe: Stream[int32, 4][4]

        @df.kernel(mapping=[4], args=[A])
        def take(a: int32[4 * size]):
            p = df.get_pid()
            for i in range(p * size, (p + 1) * size):
                pipe[p].put(a[i])

        @df.kernel(mapping=[4], args=[B])
        def give(b: int32[4 * size]):
            p = df.get_pid()
            for i in range(p * size, (p + 1) * size):
                b[i] = pipe[p].get()

    return top


def in_bit_order(N: int) -> Any:
    """Puts those elements first whose place, with its bits in reverse order, is even."""

    @df.region()
    def top(A: int32[N], B: int32[N]):
        pipe: Stream[int32, N]

        @df.kernel(mapping=[1], args=[A])
        def take(a: int32[N]):
            for i in range(N):
                place: uint8 = i
                mirrored: uint8 = place.reverse()
                if mirrored < 128:
                    pipe.put(a[i])
            for j in range(N):
                place2: uint8 = j
                mirrored2: uint8 = place2.reverse()
                if mirrored2 >= 128:
                    pipe.put(a[j])

        @df.kernel(mapping=[1], args=[B])
        def give(b: int32[N]):
            for i in range(N):
                b[i] = pipe.get()

    return top


def written_and_read(U: int = 2, V: int = 2, column: bool = False) -> Any:
    """A kernel stores U elements of X a round, another loads V at the same time; each round is heard of as a token."""

    @df.region()
    def top(X: int32[SIDE, SIDE], Y: int32[1], Z: int32[1]):
        stores: Stream[int32, 4]
        loads: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[X])
        def fill(x: int32[SIDE, SIDE]):
            for i in range(SIDE):
                for j in range(SIDE // U):
                    with allo.meta_for(U) as u:
                        x[i, j * U + u] = i
                    stores.put(i)

        @df.kernel(mapping=[1], args=[X])
        def use(a: int32[SIDE, SIDE]):
            for k in range(SIDE):
                for m in range(SIDE // V):
                    s: int32 = 0
                    with allo.meta_for(V) as v:
                        with allo.meta_if(column):
                            s += a[m * V + v, k]
                        with allo.meta_else():
                            s += a[k, m * V + v]
                    loads.put(s)

        @df.kernel(mapping=[1], args=[Y])
        def hear(y: int32[1]):
            for _p in range(SIDE * SIDE // U):
                y[0] = stores.get()

        @df.kernel(mapping=[1], args=[Z])
        def listen(z: int32[1]):
            for _q in range(SIDE * SIDE // V):
                z[0] = loads.get()

    return top


def rows_and_columns() -> Any:
    @df.region()
    def top(X: int32[SIDE, SIDE], Y: int32[SIDE]):
        @df.kernel(mapping=[1], args=[X])
        def fill(x: int32[SIDE, SIDE]):
            for i in range(SIDE):
                for j in range(SIDE):
                    x[i, j] = i

        @df.kernel(mapping=[1], args=[X, Y])
        def use(x: int32[SIDE, SIDE], y: int32[SIDE]):
            for k in range(SIDE):
                for m in range(SIDE):
                    y[k] += x[m, k]

    return top


def burst(N: int) -> Any:
    """Tokens at once for a reader that takes some cycles for each, while the writer has more to do."""

    @df.region()
    def top(A: float32[N], B: float32[1]):
        values: Stream[float32, 4]
        last: Stream[float32, 4]

        @df.kernel(mapping=[1], args=[A])
        def write(a: float32[N]):
            for i in range(N):
                values.put(a[i])
            total: float32 = 0.0
            for j in range(2 * N):
                total += a[j // 2]
            last.put(total)

        @df.kernel(mapping=[1], args=[B])
        def read(b: float32[1]):
            total: float32 = 0.0
            for _ in range(N):
                total += values.get()
            b[0] = total + last.get()

    return top


def sums_first(N: int, at_once: bool) -> Any:
    """Two streams, of which the reader empties one before it looks at the other.

    Args:
        at_once: one loop writes both; the tokens of the other one are then on their way for some 30 rounds.
    """

    @df.region()
    def top(A: int32[N], B: int32[N]):
        quotients: Stream[int32, 2]
        values: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def write(a: int32[N]):
            with allo.meta_if(at_once):
                for i in range(N):
                    quotients.put(a[i] / 7)
                    values.put(a[i])
            with allo.meta_else():
                for i in range(N):
                    quotients.put(a[i] / 7)
                for i in range(N):
                    values.put(a[i])

        @df.kernel(mapping=[1], args=[B])
        def read(b: int32[N]):
            total: int32 = 0
            for _ in range(N):
                total += values.get()
            for i in range(N):
                b[i] = quotients.get() + total

    return top


def feedback(N: int) -> Any:
    """Each sum goes through another task, and into the next."""

    @df.region()
    def top(A: int32[N], B: int32[N]):
        there: Stream[int32, 2]
        back: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def add(a: int32[N]):
            there.put(a[0])
            for i in range(1, N):
                there.put(a[i] + back.get())

        @df.kernel(mapping=[1], args=[B])
        def keep(b: int32[N]):
            for i in range(N):
                b[i] = there.get()
                if i < N - 1:
                    back.put(b[i])

    return top


def puts_of_a_round(count: int) -> Any:
    """Each round puts some tokens, all into one stream."""

    @df.region()
    def top(A: float32[N]):
        values: Stream[float32, 4]

        @df.kernel(mapping=[1], args=[A])
        def write(a: float32[N]):
            for i in range(N):
                for _ in range(count):
                    values.put(a[i])

    return top


def passed_tiles() -> Any:
    """A task that takes from a stream, and whose tiles differ in size."""

    @df.region()
    def passing(A: int32[64], B: int32[256], C: int32[64], D: int32[256], E: int32[16]):
        pipe: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[A])
        def first(a: int32[64]):
            for i in range(64):
                pipe.put(a[i])

        @df.kernel(mapping=[1], args=[B, C, D, E])
        def second(b: int32[256], c: int32[64], d: int32[256], e: int32[16]):
            for i in range(64):
                c[i] = pipe.get()
            for i in range(256):
                d[i] = b[i]
            for i in range(16):
                e[i] = c[i]

    return passing


def picked(N: int = 8) -> Any:
    """Elements at places that are data, added to what is there."""

    @df.region()
    def top(X: int32[N], At: int32[N], Y: int32[N]):
        @df.kernel(mapping=[1], args=[X, At, Y])
        def pick(x: int32[N], at: int32[N], y: int32[N]):
            for i in range(N):
                y[i] += x[at[i]]

    return top


def stages(by_shifts: bool) -> Any:
    """Rounds that depend on the task and on the loop around them, as sums or as shifts that are equal."""

    @df.region()
    def top(X: int32[2, 32], Y: int32[2, 32]):
        @df.kernel(mapping=[2], args=[X, Y])
        def k(x: int32[2, 32], y: int32[2, 32]):
            p = df.get_pid()
            for i in range(2):
                with allo.meta_if(by_shifts):
                    for j in range(1 << p, (16 >> i) << 1):
                        y[p, j] = x[p, j]
                with allo.meta_else():
                    for j in range(p + 1, 32 - 16 * i):
                        y[p, j] = x[p, j]

    return top


def counting(down: bool) -> Any:
    """As many rounds of loops that count down and up, of which one depends on the loop around it."""

    @df.region()
    def top(X: int32[16], Y: int32[16]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: int32[16], y: int32[16]):
            with allo.meta_if(down):
                for i in range(15, -1, -2):
                    for j in range(15, i - 1, -1):
                        y[j] = x[j]
            with allo.meta_else():
                for i in range(1, 16, 2):
                    for j in range(i, 16):
                        y[j] = x[j]

    return top


def handed_on() -> Any:
    """Sums that go through another array from round to round, as scores of a trellis do."""

    @df.region()
    def top(G: float32[8, 4], F: float32[4]):
        @df.kernel(mapping=[1], args=[G, F])
        def k(g: float32[8, 4], f: float32[4]):
            s: float32[4] = 0
            n: float32[4]
            for t in range(8):
                for q in range(4):
                    n[q] = s[q] + g[t, q]
                for w in range(4):
                    s[w] = n[w]
            f[:] = s

    return top


def added_up(spelling: str) -> Any:
    """Sums of eight integers, from what an earlier round leaves on."""

    @df.region()
    def top(X: int32[16, 8], Y: int32[1]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: int32[16, 8], y: int32[1]):
            acc: int32 = 0
            for i in range(16):
                with allo.meta_if(spelling == "loop"):
                    for j in range(8):
                        acc += x[i, j]
                with allo.meta_elif(spelling == "statements"), allo.meta_for(8) as j:
                    acc += x[i, j]
                with allo.meta_else():
                    acc += (
                        x[i, 0] + x[i, 1] + x[i, 2] + x[i, 3] + x[i, 4] + x[i, 5] + x[i, 6] + x[i, 7]
                    )  # of 33 bits, 34 bits, ...
            y[0] = acc

    return top


def first_of_copies(by_hand: bool) -> Any:
    """A product in the first of eight copies only, and a store to an element of its own."""

    @df.region()
    def top(X: int32[16, 8], Y: int32[16], Z: int32[16, 8]):
        @df.kernel(mapping=[1], args=[X, Y, Z])
        def k(x: int32[16, 8], y: int32[16], z: int32[16, 8]):
            acc: int32 = 0
            for i in range(16):
                with allo.meta_if(by_hand):
                    acc = x[i, 0] * y[i]
                    z[i, 0] = acc
                    with allo.meta_for(7) as j:
                        acc += x[i, j + 1]
                with allo.meta_else():
                    for u in range(8):
                        if u == 0:
                            acc = x[i, u] * y[i]
                            z[i, u] = acc
                        else:
                            acc += x[i, u]
                y[i] = acc

    return top


def sent_behind(by_hand: bool) -> Any:
    """Sums in eight copies, of which one is sent behind the inner loop."""

    @df.region()
    def top(X: float32[8, 128, 8], Y: float32[8]):
        pipe: Stream[float32, 4]

        @df.kernel(mapping=[1], args=[X])
        def k(x: float32[8, 128, 8]):
            s: float32[8] = 0
            for i in range(8):
                for j in range(128):
                    with allo.meta_if(by_hand), allo.meta_for(8) as u:
                        s[u] += x[i, j, u]
                    with allo.meta_else():
                        for u in range(8):
                            s[u] += x[i, j, u]
                pipe.put(s[5])

        @df.kernel(mapping=[1], args=[Y])
        def sink(y: float32[8]):
            for i in range(8):
                y[i] = pipe.get()

    return top


def overlapping(by_hand: bool) -> Any:
    """Windows of which copies share elements, summed in one element."""

    @df.region()
    def top(X: int32[80], H: int32[4], Y: int32[64]):
        @df.kernel(mapping=[1], args=[X, H, Y])
        def k(x: int32[80], h: int32[4], y: int32[64]):
            for i in range(64):
                with allo.meta_if(by_hand), allo.meta_for(4) as u, allo.meta_for(4) as v:
                    y[i] += x[i + u + v] * h[u] - x[i]
                with allo.meta_else():
                    for u in range(4):
                        for v in range(4):
                            y[i] += x[i + u + v] * h[u] - x[i]

    return top


def of_two_products(kind: str, swapped: bool) -> Any:
    """A sum of two products, in either order: one of what the round before has left, one that is wider, or one of three
    uses of an element."""

    @df.region()
    def top(X: int16[32], Y: int16[32], B: int8[32], S: int16[1], Z: int32[32]):
        @df.kernel(mapping=[1], args=[X, Y, B, S, Z])
        def k(x: int16[32], y: int16[32], b: int8[32], s: int16[1], z: int32[32]):
            for i in range(32):
                with allo.meta_if(kind == "recurrence"):
                    with allo.meta_if(swapped):
                        s[0] = x[i] * y[i] + s[0] * x[i]
                    with allo.meta_else():
                        s[0] = s[0] * x[i] + x[i] * y[i]
                with allo.meta_elif(kind == "wide"):
                    with allo.meta_if(swapped):
                        z[i] = x[i] * y[i] + b[i] * b[31 - i]
                    with allo.meta_else():
                        z[i] = b[i] * b[31 - i] + x[i] * y[i]
                with allo.meta_else(), allo.meta_for(4) as _n:
                    with allo.meta_if(swapped):
                        s[0] += (s[0] * z[i]) + (s[0] + 5)
                    with allo.meta_else():
                        s[0] += (s[0] + 5) + (s[0] * z[i])

    return top


def chain_in_memory() -> Any:
    """Rounds that follow each other at a memory, each a long chain of products and sums."""

    @df.region()
    def top(X: float32[16, 8], Y: float32[8]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: float32[16, 8], y: float32[8]):
            for i in range(16):
                for j in range(7):
                    y[j + 1] = y[j + 1] * x[i, j] + y[j]
                y[0] = y[7]

    return top


def quotient_of_both() -> Any:
    """A quotient of copy and round."""

    @df.region()
    def top(X: int32[48], Y: int32[48]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: int32[48], y: int32[48]):
            for i in range(48):
                y[i] = x[(i + 1) // 2]

    return top


def swapped(kind: str) -> Any:
    """Two sums that hand their values on to each other, or to none but the next round's own."""

    @df.region()
    def top(X: float32[64], Y: float32[2]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: float32[64], y: float32[2]):
            a: float32 = 0
            b: float32 = 1
            s: float32[4] = 0
            for i in range(64):
                with allo.meta_if(kind == "swapped"):
                    old: float32 = a
                    a = b + x[i]
                    b = old
                with allo.meta_elif(kind == "swapped twice"):
                    old: float32 = a
                    a = b + x[i]
                    b = old + x[i]
                with allo.meta_elif(kind == "handed on"):
                    b = a + x[i]
                    a = x[i]
                with allo.meta_else():
                    s[2] = s[1] + s[3] * x[i]
                    s[1] = x[i]
            y[0] = a + b + s[2]

    return top


def scaled_between_rows(as_condition: bool) -> Any:
    """A sum that is scaled before each row, around the inner loop or in its first round."""

    @df.region()
    def top(X: float32[8, 128], Y: float32[1]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: float32[8, 128], y: float32[1]):
            acc: float32 = 0
            for i in range(8):
                with allo.meta_if(as_condition):
                    for j in range(128):
                        if j == 0:
                            acc = acc * 0.5
                        acc += x[i, j]
                with allo.meta_else():
                    acc = acc * 0.5
                    for m in range(128):
                        acc += x[i, m]
            y[0] = acc

    return top


def later_copies(by_condition: bool) -> Any:
    """Sums over a thousand copies, of which half do nothing, or are not there."""

    @df.region()
    def top(X: float32[16, 20, 50], Y: float32[1]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: float32[16, 20, 50], y: float32[1]):
            acc: float32 = 0
            for i in range(16):
                with allo.meta_if(by_condition):
                    for u in range(20):
                        for v in range(50):
                            if u >= 10:
                                acc += x[i, u, v]
                with allo.meta_else():
                    for w in range(10, 20):
                        for z in range(50):
                            acc += x[i, w, z]
            y[0] = acc

    return top


def filter_with_window() -> Any:
    @df.region()
    def top(X: int32[64], Y: int32[64]):
        pipe: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[X])
        def load(x: int32[64]):
            for i in range(64):
                pipe.put(x[i])

        @df.kernel(mapping=[1], args=[Y])
        def taps(y: int32[64]):
            window: int32[8] = 0
            for i in range(64):
                for t in range(7):
                    window[7 - t] = window[6 - t]
                window[0] = pipe.get()
                total: int32 = 0
                for t in range(8):
                    total += window[t]
                y[i] = total

    return top


def neighbours(extent: int) -> Any:
    @df.region()
    def top(X: int32[extent], Y: int32[extent]):
        @df.kernel(mapping=[1], args=[X, Y])
        def smooth(x: int32[extent], y: int32[extent]):
            for i in range(extent - 2):
                y[i] = x[i] + x[i + 1] + x[i + 2]

    return top


def sweep(kind: str) -> Any:
    """A kernel that reads X and writes Y, in some order."""

    @df.region()
    def top(X: int32[N], Y: int32[N]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: int32[N], y: int32[N]):
            with allo.meta_if(kind == "in order"):
                for i in range(N):
                    y[i] = x[i] * 3
            with allo.meta_if(kind == "twice in a round"):
                for i in range(N):
                    y[i] = x[i] * x[i]
            with allo.meta_if(kind == "backwards"):
                for i in range(N):
                    y[i] = x[N - 1 - i]
            with allo.meta_if(kind == "in two sweeps"):
                total: int32 = 0
                for i in range(N):
                    total += x[i]
                for i in range(N):
                    y[i] = x[i] - total
            with allo.meta_if(kind == "every fourth is written"):
                for i in range(N):
                    v: int32 = x[i]
                    if i % 4 == 0:
                        y[i] = v
            with allo.meta_if(kind == "written and read"):
                for i in range(N):
                    y[i] = x[i]
                    y[i] += 1
            with allo.meta_if(kind == "as the data says"):
                for i in range(N):
                    w: int32 = x[i]
                    if w > 0:
                        y[i] = w

    return top


def blur(height: int, width: int) -> Any:
    """Sums of 3 x 3 pixels, with line buffers and a window."""

    @df.region()
    def top(A: uint8[height, width], B: uint8[height - 2, width - 2]):
        pixels: Stream[uint8, 4]
        sums: Stream[uint8, 4]

        @df.kernel(mapping=[1], args=[A])
        def load(a: uint8[height, width]):
            for y in range(height):
                for x in range(width):
                    pixels.put(a[y, x])

        @df.kernel(mapping=[1])
        def conv():
            lines: uint8[3, width] = 0
            win: uint8[3, 3] = 0
            for y in range(height):
                for x in range(width):
                    for r in range(2):
                        lines[r, x] = lines[r + 1, x]
                    lines[2, x] = pixels.get()
                    for r in range(3):
                        for c in range(2):
                            win[r, c] = win[r, c + 1]
                        win[r, 2] = lines[r, x]
                    if y >= 2 and x >= 2:
                        total: int32 = 0
                        for r in range(3):
                            for c in range(3):
                                total += win[r, c]
                        sums.put(total // 16)

        @df.kernel(mapping=[1], args=[B])
        def store(b: uint8[height - 2, width - 2]):
            for y in range(height - 2):
                for x in range(width - 2):
                    b[y, x] = sums.get()

    return top


def hand_over(rest: int) -> Any:
    """A producer, and a consumer that leaves some of its tokens."""

    @df.region()
    def top(X: int32[N], Y: int32[N - rest]):
        pipe: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[X])
        def produce(x: int32[N]):
            for i in range(N):
                pipe.put(x[i])

        @df.kernel(mapping=[1], args=[Y])
        def consume(y: int32[N - rest]):
            for i in range(N - rest):
                y[i] = pipe.get()

    return top


def filter_3x3(weights: str) -> Any:
    """64 sums of 9 values, which have weights that the loops around them decide, or data."""

    @df.region()
    def top(A: int32[64, 3, 3], B: int32[64]):
        @df.kernel(mapping=[1], args=[A, B])
        def k(a: int32[64, 3, 3], b: int32[64]):
            for i in range(64):
                s: int32 = 0
                for y in range(3):
                    for x in range(3):
                        with allo.meta_if(weights == "none"):
                            s += a[i, y, x]
                        with allo.meta_elif(weights == "conditions"):
                            s += a[i, y, x] * (1 << ((1 if y == 1 else 0) + (1 if x == 1 else 0)))
                        with allo.meta_elif(weights == "variable"):
                            w: int32 = 1 << (y * y % 3 + (x & 1))
                            s += a[i, y, x] * w
                        with allo.meta_elif(weights == "quotient"):
                            s += a[i, y, x] * (4 // (1 + y * y % 2))
                        with allo.meta_elif(weights == "divisors"):
                            s += a[i, y, x] // (1 << y * x)
                        with allo.meta_elif(weights == "branches"):
                            v: int32 = 1
                            if y == 1:
                                v = 8
                            elif x > 1:
                                v = v * 4
                            s += a[i, y, x] * v
                        with allo.meta_elif(weights == "sums"):
                            u: int32 = 1
                            for z in range(y):
                                u += a[i, z, x]
                            s += a[i, y, x] * u
                        with allo.meta_elif(weights == "large"):
                            s += a[i, y, x] * (1234567 * y * y + x)
                        with allo.meta_else():
                            s += a[i, y, x] * (a[i, x, y] + y * y)
                b[i] = s

    return top


def two_stages(n: int) -> Any:
    @df.region()
    def top(A: int32[n, n], B: int32[n, n]):
        @df.kernel(mapping=[1], args=[A, B])
        def stages(a: int32[n, n], b: int32[n, n]):
            buffer: int32[n, n]
            for i, j in allo.grid(n, n):
                buffer[i, j] = a[i, j] * 3
            for p, q in allo.grid(n, n):
                b[p, q] = buffer[q, p] + 1

    return top


def handing_on(kind: str) -> Any:
    """Three nests and the array between the first and the second."""
    READERS, WRITERS, FIRST = kind == "two readers", kind == "written twice", kind == "read first"

    @df.region()
    def top(A: int32[8], B: int32[8], C: int32[8]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def k(a: int32[8], b: int32[8], c: int32[8]):
            x: int32[8]
            y: int32[8]
            with allo.meta_if(FIRST):
                for i in range(8):
                    y[i] = x[7 - i]
            for i in range(8):
                x[i] = a[i] + 1
            with allo.meta_if(WRITERS):
                for i in range(8):
                    x[i] = 1
            for i in range(8):
                b[i] = x[7 - i]
            with allo.meta_if(READERS):
                for i in range(8):
                    c[i] = x[i]

    return top


def vectors(n: int, lanes: int, order: str) -> Any:
    """Words of several elements from one task to another, which uses them all in a round, or as data says."""
    KNOWN = order == "all"

    @df.region()
    def top(A: int32[n, lanes], B: int32[n, lanes]):
        pipe: Stream[int32[lanes], 4]

        @df.kernel(mapping=[1], args=[A])
        def source(a: int32[n, lanes]):
            for i in range(n):
                v: int32[lanes]
                for j in range(lanes):
                    v[j] = a[i, j] * 3
                pipe.put(v)

        @df.kernel(mapping=[1], args=[B])
        def sink(b: int32[n, lanes]):
            for k in range(n):
                w: int32[lanes] = pipe.get()
                for m in range(lanes):
                    with allo.meta_if(KNOWN):
                        b[k, m] = w[m] + 1
                    with allo.meta_else():
                        b[k, m] = w[w[m] % lanes] + 1

    return top


def triangle_of_nests() -> Any:
    @df.region()
    def top(X: int32[32, 32], Y: int32[32, 32]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: int32[32, 32], y: int32[32, 32]):
            for i in range(4):
                for j in range(8):
                    for q in range(8 * i):
                        y[j, q] = x[q, j] * 3

    return top


def products_of_columns(n: int) -> Any:
    @df.region()
    def top(X: float32[n, n], V: float32[n], Y: float32[n]):
        @df.kernel(mapping=[1], args=[X, V, Y])
        def k(x: float32[n, n], v: float32[n], y: float32[n]):
            for i in range(n):
                s: float32 = 0
                for j in range(n):
                    s += x[j, i] * v[j]
                y[i] = s

    return top


def column_squares(words: int) -> Any:
    """Sums of squares of columns, whose elements are a row apart."""

    @df.region()
    def top(A: float64[100, words], B: float64[80]):
        @df.kernel(mapping=[1], args=[A, B])
        def body(a: float64[100, words], b: float64[80]):
            for i in range(40):
                for k in range(100):
                    b[i] += a[k, i] * a[k, i]

    return top


def histogram() -> Any:
    """Counts at addresses that are data."""

    @df.region()
    def top(X: uint8[16], H: int32[16]):
        @df.kernel(mapping=[1], args=[X, H])
        def body(x: uint8[16], h: int32[16]):
            count: int32[16]
            for i in range(16):
                count[x[i]] = count[x[i]] + 1
            for j in range(16):
                h[j] = count[j]

    return top


def scaled_by_table() -> Any:
    """Products with numbers of 5 bits in a table of 32 bits."""

    @df.region()
    def top(A: int16[8], B: int32[8]):
        @df.kernel(mapping=[1], args=[A, B])
        def body(a: int16[8], b: int32[8]):
            table: int32[8] = np.array([3, -5, 7, 11, -13, 4, 9, 2], np.int32)
            for i in range(8):
                b[i] = a[i] * table[i]

    return top


def block_stages(kind: str = "handed on", rounds: int = 3, n: int = 16) -> Any:
    """Two tasks; the second one reads the blocks of the first in another order than they are filled."""

    @df.region()
    def top(A: int32[rounds, n, n], B: int32[rounds, n, n]):
        pipe: Stream[int32[n, n], 2]

        @df.kernel(mapping=[1], args=[A])
        def fill(a: int32[rounds, n, n]):
            for r in range(rounds):
                block: int32[n, n]
                with allo.meta_if(kind == "in part"):
                    for i, j in allo.grid(n, n - 1):
                        block[i, j] = a[r, i, j] * 3
                with allo.meta_elif(kind == "summed"):
                    for i, j in allo.grid(n, n):
                        block[i, j] += a[r, i, j] * 3
                with allo.meta_else():
                    for i, j in allo.grid(n, n):
                        block[i, j] = a[r, i, j] * 3
                pipe.put(block)
                with allo.meta_if(kind == "used later"):
                    a[r, 0, 0] = block[0, 1]

        @df.kernel(mapping=[1], args=[B])
        def turn(b: int32[rounds, n, n]):
            for r in range(rounds):
                block: int32[n, n] = pipe.get()
                with allo.meta_if(kind == "changed"):
                    block[0, 0] = 7
                for i, j in allo.grid(n, n):
                    b[r, i, j] = block[j, i] + block[i, j]

    return top


def three_stages(n: int = 16) -> Any:
    """A task between two others works in a bank of each buffer."""

    @df.region()
    def top(A: int32[2, n], B: int32[2]):
        first: Stream[int32[n], 2][2]
        second: Stream[int32[n], 2][2]

        @df.kernel(mapping=[2], args=[A])
        def fill(a: int32[2, n]):
            p = df.get_pid()
            for _r in range(4):
                block: int32[n]
                for i in range(n):
                    block[i] = a[p, i] + i
                first[p].put(block)

        @df.kernel(mapping=[2], args=[])
        def reverse():
            p = df.get_pid()
            for _r in range(4):
                block: int32[n] = first[p].get()
                turned: int32[n]
                for i in range(n):
                    turned[i] = block[n - 1 - i] * block[0]
                second[p].put(turned)

        @df.kernel(mapping=[2], args=[B])
        def total(b: int32[2]):
            p = df.get_pid()
            s: int32 = 0
            for r in range(4):
                block: int32[n] = second[p].get()
                for i in range(n):
                    s += block[n - 1 - i] * r
            b[p] = s

    return top


def positive(N: int = 8) -> Any:
    """Numbers above zero; for others, memory that was never written."""

    @df.region()
    def top(X: int16[N], Y: int16[N]):
        @df.kernel(mapping=[1], args=[X, Y])
        def core(x: int16[N], y: int16[N]):
            kept: int16[N]
            for i in range(N):
                if x[i] > 0:
                    kept[i] = x[i]
                y[i] = kept[i]

    return top


def squares(bits: int = 8, N: int = 4) -> Any:
    """Squares of positive numbers; others as they are."""
    number: Any = Int(bits)

    @df.region()
    def top(X: number[N], Y: number[N]):
        @df.kernel(mapping=[1], args=[X, Y])
        def k(x: number[N], y: number[N]):
            for i in range(N):
                y[i] = x[i] * x[i] if x[i] > 0 else x[i]

    return top


def wide(N: int = 4) -> Any:
    """Integers of 100 bits."""

    @df.region()
    def top(X: Int(100)[N], Y: Int(100)[N]):
        @df.kernel(mapping=[1], args=[X, Y])
        def core(x: Int(100)[N], y: Int(100)[N]):
            for i in range(N):
                y[i] = x[i] + 1

    return top
