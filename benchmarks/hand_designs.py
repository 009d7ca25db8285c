"""Textbook designs written by hand against the front that `schedules="auto"` finds: nowhere may one dominate it.

python -m benchmarks.hand_designs [trials] [kernel ...]
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import allo_dse as dse
import allo_dse.lang
from allo_dse.compiler.program.compiled import Directive
from allo_dse.mapper.fold.fold import unfolded

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, float32, int16, int32, uint8

OBJECTIVES = ("latency_cycles", "dsp", "bram18")
TAPS = np.round(1000 * np.hamming(16)).astype(np.int16)


def fir() -> Any:
    N, T = 1024, 16

    @df.region()
    def top(X: int16[N], Y: int32[N]):
        samples: Stream[int16, 4]

        @df.kernel(mapping=[1], args=[X])
        def load(x: int16[N]):
            for i in range(N):
                samples.put(x[i])

        @df.kernel(mapping=[1], args=[Y])
        def taps(y: int32[N]):
            window: int16[T] = 0
            for i in range(N):
                for t in range(T - 1):
                    window[T - 1 - t] = window[T - 2 - t]
                window[0] = samples.get()
                total: int32 = 0
                with allo.meta_for(T) as t:
                    total += window[t] * TAPS[t]
                y[i] = total

    return top


def stencil() -> Any:
    N = 64

    @df.region()
    def top(A: float32[N, N], B: float32[N, N]):
        @df.kernel(mapping=[1], args=[A, B])
        def jacobi(a: float32[N, N], b: float32[N, N]):
            for i in range(1, N - 1):
                for j in range(1, N - 1):
                    b[i, j] = 0.2 * (a[i, j] + a[i, j - 1] + a[i, j + 1] + a[i - 1, j] + a[i + 1, j])

    return top


def convolution() -> Any:
    H, W = 48, 64

    @df.region()
    def top(A: uint8[H, W], B: int32[H - 2, W - 2]):
        @df.kernel(mapping=[1], args=[A, B])
        def conv(a: uint8[H, W], b: int32[H - 2, W - 2]):
            lines: uint8[3, W] = 0
            win: uint8[3, 3] = 0
            for y in range(H):
                for x in range(W):
                    for r in range(2):
                        lines[r, x] = lines[r + 1, x]
                    lines[2, x] = a[y, x]
                    for r in range(3):
                        for c in range(2):
                            win[r, c] = win[r, c + 1]
                        win[r, 2] = lines[r, x]
                    if y >= 2 and x >= 2:
                        total: int32 = 0
                        for r in range(3):
                            for c in range(3):
                                total += win[r, c] * (1 + r + c)
                        b[y - 2, x - 2] = total

    return top


def product() -> Any:
    N = 32

    @df.region()
    def top(A: float32[N, N], B: float32[N, N], C: float32[N, N]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def mm(a: float32[N, N], b: float32[N, N], c: float32[N, N]):
            for i in range(N):
                for j in range(N):
                    for k in range(N):
                        c[i, j] += a[i, k] * b[k, j]

    return top


def histogram() -> Any:
    N, BINS = 1024, 16

    @df.region()
    def top(X: uint8[N], H: int32[BINS]):
        @df.kernel(mapping=[1], args=[X, H])
        def count(x: uint8[N], h: int32[BINS]):
            bins: int32[BINS] = 0
            for i in range(N):
                v: int32 = x[i]
                for n in range(BINS):
                    if v == n:
                        bins[n] += 1
            for n in range(BINS):
                h[n] = bins[n]

    return top


def prefix() -> Any:
    N = 1024

    @df.region()
    def top(X: int32[N], Y: int32[N]):
        @df.kernel(mapping=[1], args=[X, Y])
        def scan(x: int32[N], y: int32[N]):
            total: int32 = 0
            for i in range(N):
                total += x[i]
                y[i] = total

    return top


class Hand(NamedTuple):
    """A program and the schedule that a textbook gives it."""

    program: Callable[[], Any]
    schedule: tuple[Directive, ...]


def _pipeline(loop: str) -> Directive:
    return dse.pipeline(loop).directive(1)


def _complete(array: str, dim: int = 0) -> Directive:
    scope, _, name = array.rpartition(":")
    options = {"dim": dim, "factor": 0, "partition_type": "complete"}
    return Directive("partition", scope or "top", name, options)


HANDS = {
    "fir": Hand(fir, (_pipeline("load:i"), _pipeline("taps:i"), _complete("taps:window"))),
    "stencil": Hand(stencil, (_pipeline("jacobi:j"), dse.partition("A", 1, [4]).directive(4))),
    "convolution": Hand(convolution, (_pipeline("conv:x"), _complete("conv:lines", 1), _complete("conv:win"))),
    "product": Hand(product, (_pipeline("mm:j"), _complete("A", 2), _complete("B", 1))),
    "histogram": Hand(histogram, (_pipeline("count:i"), _complete("count:bins"))),
    "prefix": Hand(prefix, (_pipeline("scan:i"),)),
}


def hand_design(hand: Hand) -> dict[str, float]:
    """Objectives of the design by hand."""
    program = dse.load_program(hand.program())
    design = dse.Design(program, unfolded(program), dse.Buffering(), dse.Device.load("u280"), hand.schedule)
    metrics = dse.FpgaSimulator().evaluate(design)
    return {name: float(metrics[name]) for name in OBJECTIVES}


def front(hand: Hand, trials: int) -> list[dict[str, float]]:
    """Objectives of the designs that a search finds."""
    study = dse.Study(
        "hand",
        program=hand.program(),
        device="u280",
        schedules="auto",
        objectives=[dse.minimize(name) for name in OBJECTIVES],
    )
    with tempfile.TemporaryDirectory() as folder:
        found = study.run(trials, run_dir=folder, progress="quiet", verify=False, seed=0)
    return [{name: float(row[name]) for name in OBJECTIVES} for _, row in found.pareto.iterrows()]


def matched(hand: dict[str, float], found: list[dict[str, float]]) -> bool:
    """Return whether some design of the front is as good as the one by hand in every objective."""
    return any(all(one[name] <= hand[name] for name in OBJECTIVES) for one in found)


def main(trials: int = 200, *names: str) -> int:
    worse = 0
    for name in names or HANDS:
        hand = hand_design(HANDS[name])
        found = front(HANDS[name], trials)
        near = min(found, key=lambda one: max(one[n] / max(1.0, hand[n]) for n in OBJECTIVES))
        ok = matched(hand, found)
        worse += not ok
        by_hand, best = (", ".join(f"{n} {one[n]:,.0f}" for n in OBJECTIVES) for one in (hand, near))
        print(f"{name:12} by hand: {by_hand:42} nearest found: {best:42} {'as good' if ok else 'DOMINATED'}")
    return worse


if __name__ == "__main__":
    trials, *names = sys.argv[1:] or ["200"]
    sys.exit(main(int(trials), *names))
