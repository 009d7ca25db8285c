"""Launches one by one: what each takes at least, and long networks that are proved with next to no work."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings

from allo_dse.networks.solver import shortest_path as module
from allo_dse.networks.solver.problem import Choice, Problem
from allo_dse.networks.solver.shortest_path import ByLaunches
from allo_dse.networks.solver.solve import _Work, solve

from .test_solve import problems, single

BLOCK = 5


def blocks(count: int) -> Problem:
    """Blocks of four operators one after another and one beside them, each on one or two columns, or all."""
    kinds = [o % BLOCK for o in range(BLOCK * count)]
    choices = [tuple(Choice((wide,), (500 + 90 * k) // wide + 70, 0) for wide in (1, 2, 4)) for k in range(BLOCK)]
    after: list[dict[int, int]] = []
    for o in range(BLOCK * count):
        place, first = o % BLOCK, o - o % BLOCK
        if place in (0, BLOCK - 1):  # the last of a block is read where the next begins
            after.append({first - 1: 0, first - 2: 40} if first else {})
        else:
            after.append({o - 1: 30})
    return single(kinds, choices, after, 250)


def test_a_network_of_many_blocks_is_proved_with_little_work() -> None:
    problem = blocks(8)
    found = solve(problem, work_limit=2.0)
    assert found.length == found.bound
    assert found.length < sum(min(problem.ticks(o)) for o in range(len(problem.kinds))) + 250 * 8 * BLOCK


def test_what_is_too_wide_for_it_is_left_to_the_solver_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = blocks(1)
    found = solve(problem)
    monkeypatch.setattr(module, "MOST_SETS", 2)
    assert ByLaunches(problem).launches is None
    assert solve(problem).length == found.length == found.bound


@settings(max_examples=40, deadline=None)
@given(problems())
def test_no_launch_takes_less_than_is_said_before_it_is_solved(problem: Problem) -> None:
    """And those that are left out do not fit."""
    own, work = ByLaunches(problem), _Work(math.inf)
    assert own.launches is not None
    for done, ends in own.launches.items():
        for after in range(done + 1, own.whole + 1):
            left_out = after & done == done and after in own.launches and after not in ends
            if after in ends or left_out:
                bound, found = own.solved(done, after & ~done, work.launch)
                assert math.isinf(bound) if left_out else own.least(after & ~done) <= bound
                assert found is None or found.length == bound
