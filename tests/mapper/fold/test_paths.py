"""Paths between labelled nodes."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import example, given, settings
from hypothesis import strategies as st

from allo_dse.mapper.fold.builder import find_path

TYPES = 2
NODE = st.integers(0, 6)
ENDS = st.dictionaries(NODE, st.integers(0, 2), min_size=1, max_size=4)


def reached(edges: set[tuple[int, int]], start: int) -> set[int]:
    """Nodes at the end of a path of one edge or more."""
    found: set[int] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        for peer in (b for a, b in edges if a == node):
            if peer not in found:
                found.add(peer)
                todo.append(peer)
    return found


@given(st.sets(st.tuples(NODE, NODE, st.integers(0, TYPES - 1)), max_size=12), ENDS, ENDS, st.sampled_from([0, 9]))
@example({(0, 1, 0), (1, 2, 0)}, {0: 0, 1: 1}, {2: 1}, 9)
@settings(max_examples=300)
def test_a_path_is_found_exactly_where_a_start_reaches_a_goal_of_another_label(
    streams: set[tuple[int, int, int]], starts: dict[int, int], goals: dict[int, int], others: int
) -> None:
    """However many others lead to a goal: a search from that side then takes long."""
    streams = {(100 + other, goal, 0) for other in range(others) for goal in goals} | streams
    out: dict[int, dict[int, int]] = {}
    inn: dict[int, dict[int, int]] = {}
    for a, b, kind in sorted(streams, reverse=True):
        out.setdefault(a, {})[b * TYPES + kind] = 1
        inn.setdefault(b, {})[a * TYPES + kind] = 1
    edges = {(a, b) for a, b, _ in streams}
    path = find_path(out, inn, TYPES, starts, goals)
    exists = any(goals[g] != starts[s] for s in starts for g in goals.keys() & reached(edges, s))
    assert (path is not None) == exists
    if path is not None:
        assert len(path) > 1
        assert set(pairwise(path)) <= edges
        assert path[0] in starts
        assert path[-1] in goals
        assert starts[path[0]] != goals[path[-1]]
