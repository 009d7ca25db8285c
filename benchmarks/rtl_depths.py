"""Smallest depths without deadlock: what the simulator says and what happens in the RTL of the same program.

Four programs whose streams must hold tokens for the program to end. For each stream in turn, the others being as deep
as found so far, the smallest depth is looked for by halving; once in the simulator, once by running the circuit.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import allo_dse as dse
from allo_dse.lang import install
from allo_dse.simulator.deadlock import DeadlockError

install()
import allo.dataflow as df
from allo.ir.types import Stream, int32

DEEPEST = 128


def skewed(N: int = 64, lead: int = 63) -> Any:
    """Two streams between two tasks; the first carries `lead` tokens before the other has one."""

    @df.region()
    def top(A: int32[N], B: int32[N]):
        left: Stream[int32, 128]
        right: Stream[int32, 2]

        @df.kernel(mapping=[1], args=[A])
        def split(a: int32[N]):
            for i in range(lead):
                left.put(a[i])
            for i in range(N):
                right.put(a[i])
                if i + lead < N:
                    left.put(a[i + lead])

        @df.kernel(mapping=[1], args=[B])
        def merge(b: int32[N]):
            for i in range(N):
                x: int32 = right.get()
                y: int32 = left.get()
                b[i] = x + y

    return top


def rates(N: int = 8, per: int = 5) -> Any:
    """One stream carries five tokens for each of the other's, and all five before it."""

    @df.region()
    def top(A: int32[N], B: int32[N]):
        many: Stream[int32, 128]
        one: Stream[int32, 128]

        @df.kernel(mapping=[1], args=[A])
        def source(a: int32[N]):
            for i in range(N):
                for j in range(per):
                    many.put(a[i] + j)
                one.put(a[i])

        @df.kernel(mapping=[1], args=[B])
        def sink(b: int32[N]):
            for i in range(N):
                total: int32 = one.get()
                for _ in range(per):
                    total += many.get()
                b[i] = total

    return top


def reconvergent(N: int = 24, window: int = 6) -> Any:
    """A value goes straight to the join, and through a stage that answers only after a whole window."""

    @df.region()
    def top(A: int32[N], B: int32[N]):
        direct: Stream[int32, 128]
        inward: Stream[int32, 128]
        outward: Stream[int32, 128]

        @df.kernel(mapping=[1], args=[A])
        def source(a: int32[N]):
            for i in range(N):
                direct.put(a[i])
                inward.put(a[i])

        @df.kernel(mapping=[1])
        def stage():
            held: int32[window]
            for _ in range(N // window):
                for i in range(window):
                    held[i] = inward.get()
                for i in range(window):
                    outward.put(held[window - 1 - i])

        @df.kernel(mapping=[1], args=[B])
        def join(b: int32[N]):
            for i in range(N):
                x: int32 = outward.get()
                y: int32 = direct.get()
                b[i] = x - y

    return top


def dealt(N: int = 32, hand: int = 8) -> Any:
    """Two workers get a hand of tokens each in turn; the join takes one of each alternately."""

    @df.region()
    def top(A: int32[N], B: int32[N]):
        first: Stream[int32, 128]
        second: Stream[int32, 128]
        third: Stream[int32, 128]
        fourth: Stream[int32, 128]

        @df.kernel(mapping=[1], args=[A])
        def deal(a: int32[N]):
            for h in range(N // (2 * hand)):
                for i in range(hand):
                    first.put(a[h * 2 * hand + i])
                for i in range(hand):
                    second.put(a[h * 2 * hand + hand + i])

        @df.kernel(mapping=[1])
        def worker():
            for _ in range(N // 2):
                third.put(first.get() + 1)

        @df.kernel(mapping=[1])
        def other():
            for _ in range(N // 2):
                fourth.put(second.get() * 3)

        @df.kernel(mapping=[1], args=[B])
        def join(b: int32[N]):
            for i in range(N // 2):
                b[2 * i] = fourth.get()
                b[2 * i + 1] = third.get()

    return top


PROGRAMS = (skewed, rates, reconvergent, dealt)


def simulator_ends(program: dse.Program, depths: Mapping[str, int]) -> bool:
    """Whether the simulated program ends at these depths."""
    try:
        dse.simulate(program, depths=depths)
    except DeadlockError:
        return False
    return True


def circuit_ends(program: dse.Program, depths: Mapping[str, int]) -> bool:
    """Whether the program's circuit ends at these depths."""
    return dse.rtl_simulate(program, depths=depths, patience=500).finished


def smallest(program: dse.Program, ends: Callable[[dse.Program, Mapping[str, int]], bool]) -> dict[str, int]:
    """Depths of which none can be one less; streams are made shallow in the order of their declaration."""
    depths = {array.name: DEEPEST for array in program.streams}
    for name in depths:
        low, high = 0, DEEPEST
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if ends(program, {**depths, name: middle}) else (middle, high)
        depths[name] = high
    return depths


def main() -> None:
    reason = dse.RtlEvaluator().unavailable()
    if reason:
        print(f"skipped: {reason}")
        return
    for make in PROGRAMS:
        program = dse.load_program(make)
        start = time.perf_counter()
        simulated = smallest(program, simulator_ends)
        between = time.perf_counter()
        circuit = smallest(program, circuit_ends)
        times = f"{between - start:.2f} s and {time.perf_counter() - between:.1f} s"
        same = "equal" if simulated == circuit else "DIFFERENT"
        print(f"{program.name:14s} simulator {simulated}, circuit {circuit}: {same} ({times})")
    values = np.arange(64, dtype=np.int32)
    for depth in (62, 63):
        run = dse.rtl_simulate(dse.load_program(skewed), values, np.zeros(64, np.int32), depths={"left": depth})
        print(f"skewed, left {depth} deep: {'ends after' if run.finished else 'hangs at'} {run.cycles} cycles")


if __name__ == "__main__":
    main()
