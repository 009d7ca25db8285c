"""The order of tasks that a folded graph must have."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.mapper.fold.vmg import VMG

from ...support.programs import gemm_program, graph_program, ring_program, systolic_program
from ...support.values import present


def test_acyclic_programs_are_schedulable() -> None:
    assert VMG.of(systolic_program(3, 4)).schedulable
    assert VMG.of(gemm_program(64, 64, 64, Pm=2, Pn=2, Pk=4)).schedulable


def test_tasks_that_talk_back_and_forth_are_named_in_order() -> None:
    vmg = VMG.of(graph_program([("a", "b"), ("b", "c"), ("c", "a"), ("x", "a"), ("c", "y")]))
    assert not vmg.schedulable
    cycle = present(vmg.precedence_cycle())
    start = cycle.index("a_0")
    assert cycle[start:] + cycle[:start] == ["a_0", "b_0", "c_0"]


def test_a_stream_from_a_task_to_itself_is_no_cycle() -> None:
    assert VMG.of(ring_program(2, [(0, 0), (0, 1)])).schedulable


def test_a_cycle_of_nodes_is_fine_when_tasks_can_be_ordered() -> None:
    vmg = VMG.of(graph_program([("a", "c"), ("c", "b")])).chain("a_0", "b_0")
    assert vmg.edges.source.tolist() == [0, 1]
    assert vmg.edges.target.tolist() == [1, 0]
    assert vmg.schedulable


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=14, unique=True))
def test_cycles_are_found_exactly_when_there_are_any(pairs: Any) -> None:
    vmg = VMG.of(ring_program(8, pairs))
    reach = {(a, b) for a, b in pairs if a != b}
    for middle in range(8):
        reach |= {(a, d) for a, b in reach if b == middle for c, d in reach if c == middle}
    cycle = vmg.precedence_cycle()
    assert (cycle is not None) == any((a, a) in reach for a in range(8))
    if cycle:
        numbers = [int(name.split("_")[1]) for name in cycle]
        assert all(pair in pairs for pair in zip(numbers, [*numbers[1:], numbers[0]], strict=True))
