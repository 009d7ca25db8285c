"""Streams that are alike: one of them replayed is all of them replayed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from allo_dse.simulator.replay import plan
from allo_dse.simulator.replay.plan import AlikeStreams, Merged
from allo_dse.simulator.replay.trace import Trace
from allo_dse.simulator.replay.trace_build import Get, Loop, Put

from .support import banked, networks, replayed, token_times, trace_of


def ports(result: Any) -> int:
    """How many streams were replayed."""
    return int(np.count_nonzero(np.diff(result.merged.plan.offset)))


def rows(banks: int, depth: int = 2, *, zipped: bool = False) -> Trace:
    """Two arrays of streams from one process to another, which reads one after the other or in turns."""
    a, b = ([f"{name}{i}" for i in range(banks)] for name in "ab")
    read = [name for pair in zip(a, b, strict=True) for name in pair] if zipped else a + b
    return Trace.build(
        dict.fromkeys([*a, *b], depth),
        {"write": [Loop(9, 1, 1, [Put(s) for s in a + b])], "read": [Loop(9, 4, 1, [Get(s) for s in read])]},
    )


@settings(max_examples=300, deadline=None)
@given(networks() | banked())
def test_what_is_merged_is_what_is_not(network: Any) -> None:
    trace = trace_of(network)
    merged = replayed(trace, trace.stream_depth)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "WORTH_MERGING", len(trace.plan.port) + 2)
        plain = replayed(trace_of(network), trace.stream_depth)
    assert plain.merged.plan is plain.plan
    for name in ("process_end", "port_stall", "position", "occupancy", "finished"):
        assert np.array_equal(getattr(merged, name), getattr(plain, name)), name
    assert np.array_equal(token_times(merged), token_times(plain))
    for one, other in zip(merged.done, plain.done, strict=True):
        assert np.array_equal(one, other)
    assert merged.explain() == plain.explain()
    assert merged.by_stream() == plain.by_stream()


def test_banks_of_arrays_are_one_stream() -> None:
    result = rows(8).replay()
    assert ports(result) == 1  # the second array follows the first at both ends
    assert len(result.merged.plan.port) == 2 * 9


def test_a_bank_of_another_depth_stands_for_itself() -> None:
    trace = rows(8)
    assert ports(trace.replay({"a3": 3})) == 3  # a0 to a2, a3, a4 to b7


def test_a_batch_is_merged_where_all_its_vectors_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Merged] = []
    at = AlikeStreams.at

    def noted(self: AlikeStreams, depths: Any) -> Merged:
        asked.append(at(self, depths))
        return asked[-1]

    monkeypatch.setattr(AlikeStreams, "at", noted)
    trace = rows(8)
    batch = np.tile(np.arange(1, 21)[:, None], (1, 16))
    batch[4, 2] = 9
    cycles = trace.replay(batch)
    assert int(np.count_nonzero(np.diff(asked[0].plan.offset))) == 3
    assert [replayed(trace, depths).cycles for depths in batch] == np.asarray(cycles).tolist()


def test_what_is_read_in_turns_is_not_alike() -> None:
    """A bank whose reader does something else in between can be emptied later than the one before."""
    assert ports(rows(8, zipped=True).replay()) == 16
