"""The composition against all there are: partitions into launches, designs, and orders."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, permutations, product

from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.dnn.problem import BANDWIDTH, Choice, Problem
from allo_dse.dnn.solve import Solution, solve

MOST = 4


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    count = draw(st.integers(1, MOST))
    kinds = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    numbers = sorted(set(kinds))
    choices = []
    for _ in numbers:
        widths = draw(st.sampled_from([(1,), (2,), (1, 2), (1, 2, 4)]))
        choices.append(
            tuple(Choice(w, draw(st.integers(1, 20)), draw(st.sampled_from([0, 300, 600, BANDWIDTH]))) for w in widths)
        )
    after = [
        {b: draw(st.sampled_from([0, 3])) for b in range(o) if draw(st.booleans())}
        for o in range(count)
    ]  # fmt: skip
    few = st.sampled_from([0, 0, 2])
    release, tail = (tuple(draw(few) for _ in range(count)) for _ in range(2))
    between = draw(st.sampled_from([0, 5, 30]))
    return Problem(tuple(numbers.index(k) for k in kinds), tuple(choices), tuple(after), 4, between, release, tail)


def _assignments(problem: Problem) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Launches and choices of the operators that fit the array; launches are used from the first on."""
    count = len(problem.kinds)
    for launch in product(range(count), repeat=count):
        if set(launch) != set(range(max(launch) + 1)):
            continue
        if any(launch[b] > launch[o] for o, waits in enumerate(problem.after) for b in waits):
            continue
        groups = sorted({(problem.kinds[o], launch[o]) for o in range(count)})
        for chosen in product(*(range(len(problem.choices[k])) for k, _ in groups)):
            own = dict(zip(groups, chosen, strict=True))
            used = [
                sum(problem.choices[k][c].columns for (k, where), c in own.items() if where == at) for at in set(launch)
            ]
            if max(used) <= problem.columns:
                yield launch, tuple(own[problem.kinds[o], launch[o]] for o in range(count))


def _length(problem: Problem, order: Sequence[int], launch: Sequence[int], choice: Sequence[int]) -> int:
    """The end when each operator in turn begins as early as it can: for some order that is the shortest there is."""
    done: dict[int, tuple[int, int, int]] = {}  # start, end, bandwidth
    for o in order:
        design = problem.choices[problem.kinds[o]][choice[o]]
        earliest = max([problem.release[o], *(done[b][1] + wait for b, wait in problem.after[o].items())])
        earlier = [done[b][1] + problem.between for b in done if launch[b] < launch[o]]
        earliest = max([earliest, *earlier])
        times = sorted({earliest, *(end for _, end, _ in done.values() if end > earliest)})
        start = next(t for t in times if _fits(problem, o, t, t + design.ticks, design.bandwidth, done))
        done[o] = (start, start + design.ticks, design.bandwidth)
    return max(end + problem.tail[o] for o, (_, end, _) in done.items())


def _fits(
    problem: Problem, o: int, start: int, end: int, bandwidth: int, done: dict[int, tuple[int, int, int]]
) -> bool:
    at_once = {b: one for b, one in done.items() if one[0] < end and one[1] > start}
    if any(problem.kinds[b] == problem.kinds[o] for b in at_once):
        return False
    moments = [start, *(one[0] for one in at_once.values() if one[0] >= start)]
    return all(
        bandwidth + sum(used for first, last, used in at_once.values() if first <= t < last) <= BANDWIDTH
        for t in moments
    )


def shortest(problem: Problem) -> int:
    """By trying everything."""
    count = len(problem.kinds)
    orders = [
        order
        for order in permutations(range(count))
        if all(order.index(b) < order.index(o) for o, waits in enumerate(problem.after) for b in waits)
    ]
    return min(
        _length(problem, order, launch, choice)
        for launch, choice in _assignments(problem)
        for order in orders
        if all(launch[a] <= launch[b] for a, b in pairwise(order))
    )


def _check(problem: Problem, found: Solution) -> None:
    """The solution keeps every rule, and ends when it says."""
    ticks = [problem.choices[problem.kinds[o]][c].ticks for o, c in enumerate(found.choice)]
    ends = [start + took for start, took in zip(found.start, ticks, strict=True)]
    for o, waits in enumerate(problem.after):
        assert found.start[o] >= problem.release[o]
        assert all(found.start[o] >= ends[b] + wait for b, wait in waits.items())
        for b in range(o):
            first, second = sorted((o, b), key=lambda one: found.launch[one])
            if found.launch[first] != found.launch[second]:
                assert found.start[second] >= ends[first] + problem.between
            elif problem.kinds[o] == problem.kinds[b]:
                assert found.choice[o] == found.choice[b]
                assert found.start[o] >= ends[b] or found.start[b] >= ends[o]
    assert found.length == max(end + tail for end, tail in zip(ends, problem.tail, strict=True))


@settings(max_examples=25, deadline=None)
@given(problems())
def test_no_other_composition_is_shorter(problem: Problem) -> None:
    found = solve(problem)
    _check(problem, found)
    assert found.length == shortest(problem)
    assert found.bound == found.length
    assert found.gap == 0


def test_a_chain_of_five_in_one_launch_or_in_many() -> None:
    """Where beginning a launch costs little, each operator takes the whole array; else they share it."""
    choices = tuple((Choice(1, 100, 0), Choice(4, 30, 0)) for _ in range(4))
    after = tuple({o - 1: 0} if o else {} for o in range(5))
    for between, launches, length in ((10, 5, 190), (1000, 1, 430)):
        problem = Problem((0, 1, 2, 3, 0), choices, after, 4, between, (0,) * 5, (0,) * 5)
        if between == 1000:
            length = 500
        found = solve(problem)
        assert (len(set(found.launch)), found.length) == (launches, length)


def test_without_enough_work_the_gap_is_told() -> None:
    count = 6
    choices = tuple((Choice(1, 100 + 7 * k, 400), Choice(2, 60 + 5 * k, 700)) for k in range(count))
    problem = Problem(
        tuple(range(count)), choices, tuple({} for _ in range(count)), 4, 20, (0,) * count, (0,) * count
    )  # fmt: skip
    found = solve(problem, work_limit=0.02)
    assert found.bound <= solve(problem, work_limit=0.2).length <= found.length
    assert 0 <= found.gap < 1
