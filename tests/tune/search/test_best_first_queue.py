"""What comes next in an exact search is what its definition says, however bounds and front have changed since."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from allo_dse.tune.search import best_first_queue
from allo_dse.tune.search.best_first_queue import BestFirstQueue, distance, magnitude

POINTS = st.tuples(*[st.sampled_from([-4.0, -1.0, 0.5, 1.0, 2.0, 3.0, 8.0])] * 2)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.lists(POINTS, min_size=1, max_size=6)),
        st.tuples(st.just("tighten"), POINTS),
        st.tuples(st.sampled_from(["decide", "found"]), POINTS),
    ),
    min_size=2,
    max_size=30,
)


def expected(queue: BestFirstQueue) -> int | None:
    """The item of the lowest rank among those that are worth most, by looking at all."""
    worth = {}
    for position, item in enumerate(queue.items):
        if item is not None:
            bounds = queue.bounds[position]
            worth[position] = (
                float(distance(queue.front, bounds).min()) if len(queue.front) else -float(magnitude(bounds).sum())
            )
    return min(worth, key=lambda position: (-worth[position], queue.rank_of(position)), default=None)


@pytest.mark.filterwarnings("error")
def test_what_may_be_anything_in_one_objective_and_nothing_in_another() -> None:
    queue = BestFirstQueue(2)
    queue.add(["a", "b"], np.array([[1.0, 1.0], [-np.inf, np.inf]]), [0, 1], level=0)  # type: ignore[list-item]
    assert queue.next() == 1


@given(steps=STEPS, kept=st.sampled_from([1, 4096]))
@example(  # a point leaves the front for one of another sign
    steps=[
        ("found", (-1.0, 0.5)),
        ("add", [(-4.0, -4.0), (-4.0, -4.0)]),
        ("tighten", (-1.0, -4.0)),
        ("found", (-4.0, -1.0)),
    ],
    kept=1,
)
def test_the_next_item_is_that_which_the_front_is_furthest_from(steps: Any, kept: int) -> None:
    before, best_first_queue._MOST_DECIDED = best_first_queue._MOST_DECIDED, kept
    try:
        queue, added = BestFirstQueue(2), 0
        for step, given_ in steps:
            position = queue.next()
            assert position == expected(queue)
            if step == "add":
                ranks = [BestFirstQueue.rank(0, 1000 - added - n) for n in range(len(given_))]
                queue.add([object()] * len(given_), np.array(given_), ranks, 0)  # type: ignore[list-item]
                added += len(given_)
            elif step == "found":
                queue.found(np.array(given_))
            elif position is not None and step == "tighten":
                queue.tighten(position, given_)
            elif position is not None:
                queue.decide(position)
            queue.compact()
            assert queue.open == sum(item is not None for item in queue.items)
        assert queue.next() == expected(queue)
    finally:
        best_first_queue._MOST_DECIDED = before
