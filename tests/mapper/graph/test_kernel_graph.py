"""Which kernels may share nodes: laws of refusals, and folds of programs with many kernels."""

from __future__ import annotations

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.mapper.graph.kernel_graph import KernelGraph


@st.composite
def graphs(draw: st.DrawFn, most: int = 7) -> KernelGraph:
    size = draw(st.integers(2, most))
    feeds = np.zeros((size, size), np.bool_)
    for source, target in draw(st.lists(st.tuples(*[st.integers(0, size - 1)] * 2), max_size=2 * size)):
        feeds[source, target] = source != target
    return KernelGraph(feeds)


def reaches(edges: set[tuple[int, int]], start: int, goal: int) -> bool:
    seen: set[int] = set()
    todo = [start]
    while todo:
        node = todo.pop()
        targets = {b for a, b in edges if a == node} - seen
        seen |= targets
        todo += targets
    return goal in seen


@given(graphs(), st.data())
def test_refused_members_are_those_that_a_path_leads_back_from(graph: KernelGraph, data: st.DataObject) -> None:
    """Refusals are compared with sets of edges that are contracted one by one."""
    size = len(graph.feeds)
    owner = data.draw(st.lists(st.integers(0, 2), min_size=size, max_size=size))
    chains = graph.normalised([[k for k in range(size) if owner[k] == part] for part in range(3)])
    edges = {(int(a), int(b)) for a, b in zip(*np.nonzero(graph.feeds), strict=True)}
    expected = []
    for first, *rest in chains:
        for member in rest:
            if reaches(edges, member, first):
                expected.append((first, member))
            else:
                moved = {(first if a == member else a, first if b == member else b) for a, b in edges}
                edges = {(a, b) for a, b in moved if a != b}
    assert list(graph.refusals(chains)) == expected
    left = [[k for k in members if (members[0], k) not in expected] for members in chains]
    assert graph.refusal(graph.normalised(left)) is None


@given(graphs(6))
def test_single_chains_are_the_partitions_with_one_chain(graph: KernelGraph) -> None:
    assert set(graph.single_chains) == {chains[0] for chains in graph.partitions() if len(chains) == 1}


def test_many_kernels_have_chains_of_neighbours_without_listing_all_partitions() -> None:
    size = 60
    graph = KernelGraph(np.eye(size, k=1, dtype=np.bool_))
    assert list(itertools.islice(graph.partitions(), 2)) == [(), ((0, 1),)]
    assert len(list(graph.single_chains)) == size * (size - 1) // 2
