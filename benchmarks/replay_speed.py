"""Speed of replay, as ratios to a short Numba reference (`replay_reference.py`) run at the same time.

For recorded designs of 200,000 and more events: millions of events per second of one replay. For those of less than
5,000: microseconds of one replay, called from Python, and of each vector of a batch. For an 8 x 8 systolic array,
K = 128: seconds for 1,000 depth vectors at once, on all cores. For a 16 x 16 array of regular loops: milliseconds of a
run that is extrapolated, for K up to a thousand million.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from allo_dse.common.processes import usable_cores
from allo_dse.simulator.replay.trace import Trace
from benchmarks.replay_reference import Reference
from tests.simulator.replay.support import systolic

TRACES = Path(__file__).parents[2] / "shared" / "traces"
LARGE, SMALL = 200_000, 5_000
VECTORS = 1_000


def best(action: Callable[[], object], times: int = 7) -> float:
    """Seconds of the fastest of several calls."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


def report_designs(traces: list[Trace]) -> None:
    speeds, ratios = [], []
    for trace in traces:
        reference = Reference(trace)
        assert trace.replay().cycles == reference.cycles(trace.stream_depth)
        ours, theirs = best(trace.replay), best(lambda r=reference, t=trace: r.cycles(t.stream_depth), 5)  # type: ignore[misc]
        speeds.append(trace.event_count / ours / 1e6)
        ratios.append(theirs / ours)
        print(
            f"{trace.name:24s} {trace.event_count} events: {speeds[-1]:4.0f} M events/s = {ratios[-1]:.1f} x reference"
        )
    print(
        f"{len(speeds)} designs of {LARGE:,} events and more: {min(speeds):.0f} to {max(speeds):.0f} M events/s, "
        f"{min(ratios):.1f} to {max(ratios):.1f} x reference"
    )


def report_small_designs(traces: list[Trace]) -> None:
    rng = np.random.default_rng(0)
    one, each, ratios = [], [], []
    for trace in traces:
        reference = Reference(trace)
        batch = rng.integers(1, 33, (VECTORS, len(trace.streams)))
        some = batch[:50]
        assert np.asarray(trace.replay(some)).tolist() == [reference.cycles(depths) for depths in some]
        one.append(best(trace.replay, 100) * 1e6)
        each.append(best(lambda t=trace, b=batch: t.replay(b)) / VECTORS * 1e6)  # type: ignore[misc]
        theirs = best(lambda r=reference, b=some: [r.cycles(depths) for depths in b]) / len(some) * 1e6  # type: ignore[misc]
        ratios.append(theirs / each[-1])
    print(
        f"{len(traces)} designs of less than {SMALL:,} events: one replay {min(one):.0f} to {max(one):.0f} us, "
        f"a vector of a batch on {usable_cores()} core(s) {min(each):.1f} to {max(each):.1f} us "
        f"= {min(ratios):.1f} to {max(ratios):.1f} x reference on one"
    )


def report_batch() -> None:
    trace = systolic(8, 128)
    reference = Reference(trace)
    rng = np.random.default_rng(0)
    batch = rng.integers(1, 33, (VECTORS, len(trace.streams)))
    some = batch[:50]
    assert np.asarray(trace.replay(some)).tolist() == [reference.cycles(depths) for depths in some]
    ours = best(lambda: trace.replay(batch), 5)
    theirs = best(lambda: [reference.cycles(depths) for depths in some], 3) * VECTORS / len(some)
    speed = VECTORS * trace.event_count / ours / 1e6
    print(f"{trace.name}, {trace.event_count} events, {VECTORS} depth vectors, {usable_cores()} core(s): {ours:.3f} s "
          f"= {speed:.0f} M events/s = {theirs / ours:.1f} x reference on one")  # fmt: skip


def report_long_loops() -> None:
    for k in (1 << 8, 1 << 10):
        short = systolic(16, k)
        reference = Reference(short)
        assert short.replay().cycles == reference.cycles(short.stream_depth)
        ours, theirs = best(short.replay), best(lambda: reference.cycles(short.stream_depth), 3)  # noqa: B023
        print(f"{short.name}, one replay: {ours * 1e3:.2f} ms = {theirs / ours:.0f} x reference")
    assert short.extrapolate().cycles == reference.cycles(short.stream_depth)
    for k in (1 << 10, 1 << 20, 1 << 30):
        trace = systolic(16, k)
        result = trace.extrapolate()
        assert result.cycles == short.extrapolate().cycles + k - (1 << 10)
        ours = best(trace.extrapolate, 3)
        print(
            f"{trace.name}, {trace.event_count:,} events: {result.cycles} cycles in {ours * 1e3:.1f} ms, "
            f"{result.computed} operations computed; {theirs / ours:.2f} x reference at K=1024"
        )


if __name__ == "__main__":
    if TRACES.is_dir():
        recorded = [Trace.load(path) for path in sorted(TRACES.glob("*.npz"))]
        report_designs([trace for trace in recorded if trace.event_count >= LARGE])
        report_small_designs([trace for trace in recorded if trace.event_count < SMALL])
    else:
        print(f"recorded designs: skipped, there are no traces in {TRACES}")
    report_batch()
    report_long_loops()
