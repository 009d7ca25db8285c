"""How the host's interventions divide a run."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.costs import blocks_of


@given(st.integers(1, 1000), st.lists(st.integers(1, 60), max_size=4), st.sampled_from([0.0, 2.5]))
def test_periods_are_shared_out_evenly_between_interventions(
    periods: int, descriptors: list[int], rewrite_us: float
) -> None:
    transfers = [SimpleNamespace(pattern=SimpleNamespace(descriptors=n)) for n in descriptors]
    transport: Any = SimpleNamespace(transfers=transfers)
    board: Any = SimpleNamespace(host_rewrite_us=rewrite_us)
    blocks = blocks_of(periods, transport, board)
    assert sum(length * count for length, count in blocks) == periods
    times = max(descriptors, default=1) if rewrite_us else 1
    assert sum(count for _, count in blocks) == min(periods, times)
    lengths = [length for length, _ in blocks]
    assert max(lengths) - min(lengths) <= 1
