"""Allo's placer: strings of nodes along the columns."""

from __future__ import annotations

import pytest

from allo_dse.backends.npu.allo.placer import NotPlaced, PlacedNode, place_nodes

Pairs = list[tuple[int, int, int]]


def nodes(count: int, column: int = 0) -> dict[int, PlacedNode]:
    return {node: PlacedNode(f"core_{node}", column) for node in range(count)}


def chain(count: int, start: int = 0) -> Pairs:
    return [(node, node + 1, 1) for node in range(start, start + count - 1)]


def test_a_string_goes_up_and_down_the_columns() -> None:
    cores = place_nodes(nodes(6), chain(6), columns=2)
    laid = [cores[node] for node in range(6)]
    assert laid in (way := [(0, 0), (0, 1), (0, 2), (0, 3), (1, 3), (1, 2)], way[::-1])


def test_single_nodes_take_their_memory_tiles_column_first() -> None:
    assert place_nodes(nodes(2, column=1), [], columns=2) == {0: (1, 0), 1: (1, 1)}


def test_a_full_array_is_placed_and_one_node_more_is_not() -> None:
    assert len(place_nodes(nodes(16), chain(16), columns=4)) == 16
    with pytest.raises(NotPlaced):
        place_nodes(nodes(17), chain(17), columns=4)


def test_strings_that_run_out_of_columns_are_not_placed() -> None:
    """The second of two strings begins in the last column, and one core of the first is left over."""
    with pytest.raises(NotPlaced):
        place_nodes(nodes(8), [*chain(3), *chain(5, start=3)], columns=2)


def test_a_circle_takes_its_cores_twice() -> None:
    circle = [(0, 1, 1), (1, 2, 1), (2, 0, 1)]
    assert len(place_nodes(nodes(3), circle, columns=2)) == 3
    with pytest.raises(NotPlaced):
        place_nodes(nodes(3), circle, columns=1)


def test_pairs_with_most_fifos_are_strung_first() -> None:
    star = [(0, 1, 1), (0, 2, 2), (0, 3, 3)]
    cores = place_nodes(nodes(4), star, columns=4)
    assert [abs(cores[0][1] - cores[leaf][1]) == 1 and cores[0][0] == cores[leaf][0] for leaf in (2, 3)] == [True, True]
