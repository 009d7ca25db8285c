"""Programs for `equivalence.py`: streams, meshes, banks and running sums, to be broken; some are those of the tests."""

from collections.abc import Callable
from typing import Any

import allo_dse.lang

allo_dse.lang.install()

import allo.dataflow as df
from allo.ir.types import Stream, float32, int32

from tests.compiler.samples import systolic
from tests.eval.execute.test_folded_results import pipeline


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


def lines(H=4, W=5):
    """A filter over three lines of an image, each in a bank of its own."""

    @df.region()
    def top(X: int32[H + 2, W], Y: int32[H, W]):
        pixels: Stream[int32, 4]

        @df.kernel(mapping=[1], args=[X])
        def read(x: int32[H + 2, W]):
            for i in range(H + 2):
                for j in range(W):
                    pixels.put(x[i, j])

        @df.kernel(mapping=[1], args=[Y])
        def filter(y: int32[H, W]):
            line: int32[3, W] = 0
            for i in range(2):
                for j in range(W):
                    line[i % 3, j] = pixels.get()
            for i in range(H):
                for j in range(W):
                    line[(i + 2) % 3, j] = pixels.get()
                    y[i, j] = line[i % 3, j] - 2 * line[(i + 1) % 3, j] + 3 * line[(i + 2) % 3, j]

    return top


BROKEN: dict[Callable[..., Any], tuple[dict[str, Any], dict[str, Any]]] = {
    systolic: ({"M": 3, "N": 3, "K": 4, "T": int32}, {"M": 4, "N": 2, "K": 5, "T": int32}),
    banked: ({"L": 12, "T": 4}, {"L": 9, "T": 3}),
    lines: ({"H": 4, "W": 5}, {"H": 5, "W": 3}),
    stages: ({"P": 3, "L": 5}, {"P": 4, "L": 4}),
    pipeline: ({"R": 2, "C": 3, "turned": True}, {"R": 3, "C": 2, "turned": True}),
}
"""Those that mistakes are put in, at two sizes."""
