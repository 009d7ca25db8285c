"""Schedule trees: equal schedules are equal trees."""

from collections.abc import Callable
from typing import Any

import pytest

from allo_dse.mapper.graph.groups import Repeat, Seq, Task, first_leaves, leaf_tasks, repeat, seq, text

A, B = Task(0, 0), Task(0, 1)


def test_seq_flattens_nested_sequences() -> None:
    assert seq([A, seq([B, A])]) == seq([seq([A, B]), A]) == Seq((A, B, A))


def test_seq_of_one_is_the_child() -> None:
    assert seq([A]) == A


def test_repeat_flattens_nested_repeats() -> None:
    assert repeat(2, repeat(3, A)) == Repeat(6, A)


def test_repeat_once_is_the_child() -> None:
    assert repeat(1, seq([A, B])) == Seq((A, B))


def test_a_sequence_of_equal_tasks_is_not_a_repeat() -> None:
    assert seq([A, A]) != repeat(2, A)
    assert text(seq([A, A])) != text(repeat(2, A))


@pytest.mark.parametrize("build", [lambda: Seq((A,)), lambda: Seq((A, Seq((A, B)))), lambda: Repeat(1, A)])
def test_trees_that_are_not_canonical_are_refused(build: Callable[..., Any]) -> None:
    with pytest.raises(ValueError, match="build it with"):
        build()


def test_leaves_come_in_order_of_execution() -> None:
    tree = repeat(2, seq([A, repeat(2, B)]))
    assert list(leaf_tasks(tree)) == [A, B, B, A, B, B]
    assert first_leaves(tree) == {A: 0, B: 1}
    assert first_leaves(seq([repeat(3, tree), Task(9, 9)])) == {A: 0, B: 1, Task(9, 9): 18}
    assert tree.leaf_count == 6


def test_trees_are_hashable_and_equal_by_structure() -> None:
    assert len({repeat(2, seq([A, B])), repeat(2, seq([A, B])), seq([A, B])}) == 2


def test_text_is_one_line_with_runs() -> None:
    tree = repeat(64, seq([A, *[B] * 30, Task(0, 2)]))
    assert text(tree) == "64x[0.0; 30*0.1; 0.2]"
    assert text(tree, {A: "first", B: "middle", Task(0, 2): "last"}) == "64x[first; 30*middle; last]"
    assert text(repeat(4, A)) == "4x[0.0]"
