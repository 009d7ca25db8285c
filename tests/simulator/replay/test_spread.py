"""The queue of changed operations."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.simulator.replay.spread import pop, push


@given(st.lists(st.integers(-9, 9) | st.none(), max_size=60))
def test_the_queue_gives_the_smallest_key_first(steps: list[int | None]) -> None:
    """Entries are added (a key) and taken (None) in any order."""
    heap = np.zeros((60, 2), np.int64)
    held: list[tuple[int, int]] = []
    for number, key in enumerate(steps):
        if key is not None:
            push(heap, len(held), key, number)
            held.append((key, number))
        elif held:
            least = min(held)[0]
            assert heap[0, 0] == least
            taken = pop(heap, len(held))
            assert (least, taken) in held
            held.remove((least, taken))


@given(st.lists(st.integers(0, 99), min_size=4, max_size=40))
def test_what_was_added_comes_out_in_order(keys: list[int]) -> None:
    heap = np.zeros((len(keys), 2), np.int64)
    for number, key in enumerate(keys):
        push(heap, number, key, number)
    assert [keys[pop(heap, count)] for count in range(len(keys), 0, -1)] == sorted(keys)
