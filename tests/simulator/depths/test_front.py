"""The front of cycles against memory: laws against all depth vectors of small traces."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from allo_dse.simulator.depths.front import DepthFront, find_depth_front
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_build import Frames, Get, Loop, Put
from allo_dse.simulator.replay.trace_data import TraceError

from ..replay.support import makespans, multirate, regular, systolic, trace_of

MOST = 4000


def doubling(stream: int, tokens: int) -> list[tuple[int, int]]:
    """Memories of 1, 2, 4, ... tokens; those of odd streams are twice as wide."""
    depths = [1 << n for n in range(tokens.bit_length()) if 1 << n < tokens]
    return [(depth, depth * 8 * (1 + stream % 2)) for depth in [*depths, tokens]]


def all_vectors(trace: Trace) -> tuple[np.ndarray[Any, Any], list[int]]:
    """Every choice of memories, and what it takes in all."""
    steps = [doubling(s, max(int(n), 1)) for s, n in enumerate(trace.plan.puts)]
    assume(math.prod(map(len, steps)) <= MOST)
    chosen = list(itertools.product(*steps))
    return np.array([[d for d, _ in c] for c in chosen]), [sum(bits for _, bits in c) for c in chosen]


@settings(max_examples=60, deadline=None)
@given(st.one_of(regular(), multirate()))
def test_laws_against_all_depths(network: Any) -> None:
    trace = trace_of(network)
    depths, bits = all_vectors(trace)
    cycles = makespans(trace, depths)
    assume(cycles[-1] >= 0)
    front = find_depth_front([trace], doubling)
    assert front.best_cycles == cycles[-1]
    possible = dict(zip(map(tuple, depths.tolist()), zip(cycles, bits, strict=True), strict=True))
    for point in (*front.points, front.lossless):
        assert possible[tuple(point.depths.values())] == (point.cycles, point.memory_bits)
    order = [(point.cycles, -point.memory_bits) for point in front.points]
    assert order == sorted(set(order))
    free = [n for n, found in enumerate(cycles) if 0 <= found <= front.best_cycles]
    least = min(bits[n] for n in free)
    assert front.at_least_bits <= least <= front.lossless.memory_bits
    assert not front.proven or least == front.lossless.memory_bits
    for name, depth in front.least_depths.items():
        assert min(depths[n][trace.streams.index(name)] for n in free) >= depth


@settings(max_examples=60, deadline=None)
@given(st.one_of(regular(), multirate()))
def test_no_stream_of_the_lossless_point_can_have_less_memory(network: Any) -> None:
    trace = trace_of(network)
    assume(makespans(trace, np.maximum(trace.plan.puts, 1)[None])[0] >= 0)
    front = find_depth_front([trace], doubling, max_runs=1000)
    for number, name in enumerate(trace.streams):
        steps = doubling(number, max(int(trace.plan.puts[number]), 1))
        below = [depth for depth, _ in steps if depth < front.lossless.depths[name]]
        if below:
            (cycles,) = makespans(trace, np.array([list({**front.lossless.depths, name: below[-1]}.values())]))
            assert not 0 <= cycles <= front.best_cycles


def test_what_lost_cycles_before_others_got_shallow_and_faster_is_tried_again() -> None:
    """A stream of 2 tokens has a latency of one cycle less than a deeper one."""
    first: dict[str, list[Get | Put]] = {
        "p0": [Put("s0"), Put("s1"), Put("s4")], "p1": [Put("s3")], "p2": [Get("s0"), Put("s2")],
        "p3": [Get("s2"), Get("s3")], "p4": [Get("s1"), Get("s5")],
    }  # fmt: skip
    second: dict[str, list[Get | Put]] = {"p1": [Put("s5")], "p3": [Get("s4")]}
    network = {
        name: [Loop(60, 2 if name in second else 1, 0, operations), Loop(60, 1, 0, second.get(name, []))]
        for name, operations in first.items()
    }
    trace = trace_of((network, {f"s{n}": 1 for n in range(6)}))
    front = find_depth_front([trace], doubling, max_runs=1000)
    assert [point.cycles for point in front.points[:2]] == [239, 240]
    assert front.best_cycles == 240
    assert front.lossless == front.points[1]


def slow_start(lead: int = 20) -> Trace:
    """A reader that needs `lead` tokens of one stream before the first of the other."""
    return Trace.build(
        {"early": 64, "late": 64},
        {
            "split": [Loop(lead, ops=[Put("early")]), Loop(40, ops=[Put("late"), Put("early")])],
            "join": [Loop(40, 1, 1, ops=[Get("late"), Get("early")]), Loop(lead, 1, 1, ops=[Get("early")])],
        },
    )


def test_what_must_be_deep_is_and_the_rest_is_not() -> None:
    front = find_depth_front([slow_start()], doubling)
    assert front.proven
    assert front.lossless.depths["late"] <= 2
    assert front.lossless.depths["early"] == 32
    assert front.least_depths["early"] == 17
    assert front.words == (
        f"{front.lossless.memory_bits:,} bits lose no cycle, found by run {front.lossless.run} of {front.runs}; "
        "no depths without loss take less"
    )


def test_a_design_that_stands_the_least_memory_takes_two_replays() -> None:
    trace = Trace.build({"s": 500}, {"fast": [Loop(500, 1, 1, [Put("s")])], "slow": [Loop(500, 3, 1, [Get("s")])]})
    front = find_depth_front([trace], doubling)
    assert (front.runs, front.proof_runs, front.lossless.depths) == (3, 0, {"s": 1})
    assert front.proven
    assert front.built is not None
    assert front.built.memory_bits > front.lossless.memory_bits


def test_the_least_memory_of_a_design_that_deadlocks_is_that_without_deadlock() -> None:
    front = find_depth_front([slow_start(5)], doubling)
    assert min(point.depths["early"] for point in front.points) > 4


def test_runs_with_other_inputs_count_together() -> None:
    short, long = slow_start(5), slow_start(30)
    both = find_depth_front([short, long], doubling)
    assert both.best_cycles == sum(find_depth_front([t], doubling).best_cycles for t in (short, long))
    assert both.lossless.depths["early"] == find_depth_front([long], doubling).lossless.depths["early"]


def test_points_within_a_loss_take_no_more_memory_the_more_is_lost() -> None:
    front = find_depth_front([systolic(4, 32)], doubling)
    bits = [front.within(loss).memory_bits for loss in (0.0, 0.01, 0.1, 1.0, 100.0)]
    assert bits == sorted(bits, reverse=True)
    assert bits[0] == front.lossless.memory_bits


def test_banks_of_arrays_stay_as_they_are() -> None:
    trace = Trace.build(
        {"s": 8},
        {
            "load": Frames([Loop(16)], 4, writes=["tile"]),
            "work": Frames([Loop(16, ops=[Put("s")])], 4, reads=["tile"]),
            "drain": [Loop(64, ops=[Get("s")])],
        },
        arrays={"tile": 2},
    )
    front = find_depth_front([trace], doubling)
    assert front.lossless.depths["tile"] == 2
    assert front.lossless.depths["s"] == 2  # one slot could not be filled and emptied in every cycle


@pytest.mark.parametrize("max_runs", [2, 3, 5, 9, 20])
def test_a_budget_is_kept_and_what_is_found_by_then_loses_nothing(max_runs: int) -> None:
    front: DepthFront = find_depth_front([systolic(4, 32)], doubling, max_runs)
    # The depths as built, and one more where streams that were tried are given what is known to be enough.
    assert front.runs <= max_runs + 2
    assert front.lossless.cycles <= front.best_cycles


def test_errors_say_what_is_wrong() -> None:
    with pytest.raises(TraceError, match="at least one trace"):
        find_depth_front([], doubling)
    with pytest.raises(TraceError, match="not of one design"):
        find_depth_front([slow_start(), systolic(2, 4)], doubling)
    stuck = Trace.build({"s": 4}, {"a": [Loop(1, ops=[Put("s")])], "b": [Loop(2, ops=[Get("s")])]})
    with pytest.raises(TraceError, match="no depths clear this deadlock"):
        find_depth_front([stuck], doubling)
