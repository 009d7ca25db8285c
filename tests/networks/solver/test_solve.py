"""The composition against all there are: partitions into launches, designs, and orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, pairwise, permutations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.common.cp_sat import answer, cp_model
from allo_dse.common.records import replace
from allo_dse.networks.solver import solve as solving
from allo_dse.networks.solver.problem import ALLOWED, BANDWIDTH, Choice, Edge, Problem, Solution
from allo_dse.networks.solver.solve import solve

MOST = 5


@st.composite
def problems(draw: st.DrawFn, most: int = MOST) -> Problem:
    """Steps that wait for each other, each done by an operator of one of three kinds or, two at once, by a fourth."""
    count = draw(st.integers(1, most))
    kinds = draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
    waits = [
        {b: draw(st.sampled_from([0, 3])) for b in range(o) if draw(st.booleans())}
        for o in range(count)
    ]  # fmt: skip
    does: list[tuple[int, ...]] = [(o,) for o in range(count)]
    for o in range(1, count):
        # What no one else waits for can be done together with what waits for it.
        alone = [b for b in waits[o] if sum(b in other for other in waits) == 1]
        fused: bool = draw(st.booleans())
        if alone and fused:
            does.append((draw(st.sampled_from(alone)), o))
            kinds.append(3)
    widths = st.sampled_from([(1,), (2,), (1, 2), (1, 2, 4)] if count < MOST else [(2,), (1, 4)])
    bandwidths = st.sampled_from([0, 300, 600, BANDWIDTH])
    numbers = sorted(set(kinds))
    ticks = st.integers(1, 20)
    choices = tuple(tuple(Choice((w,), draw(ticks), draw(bandwidths)) for w in draw(widths)) for _ in numbers)
    few = st.sampled_from([0, 0, 2])
    release, tail = (tuple(draw(few) for _ in kinds) for _ in range(2))
    after = fused_waits(waits, does)
    between = draw(st.sampled_from([0, 5, 30]))
    kinds = [numbers.index(k) for k in kinds]
    return Problem(tuple(kinds), choices, tuple(does), after, (4,), between, release, tail)


@st.composite
def configurations(draw: st.DrawFn) -> Problem:
    """Up to three steps in one launch, each on either of two pieces of hardware of its kind, of two resources; what one
    reads of another, and nobody else does, may be a stream."""
    count = draw(st.integers(1, 3))
    kinds = [draw(st.integers(0, 1)) for _ in range(count)]
    waits = [{b: 0 for b in range(o) if draw(st.booleans())} for o in range(count)]
    does = [(o,) for o in range(count) for _ in range(2)]
    few, ticks = st.integers(1, 5), st.integers(1, 20)
    designs = [
        [Choice((draw(few), draw(few)), draw(ticks), draw(st.sampled_from([0, 600]))) for _ in range(2)]
        for _ in range(2)
    ]
    lags = st.tuples(*[st.one_of(st.none(), st.integers(1, 20))] * 2)
    saves, alone = st.tuples(*[st.integers(-1, 2)] * 2), [b for b in range(count) if sum(b in w for w in waits) == 1]
    edges = [
        Edge(2 * b + of, 2 * o + to, draw(saves), draw(st.tuples(lags, lags)))
        for o in range(count) for b in waits[o] if b in alone for of in range(2) for to in range(2)
    ]  # fmt: skip
    return Problem(
        tuple(2 * kind + copy for kind in kinds for copy in range(2)),
        tuple(tuple(own) for own in designs for _ in range(2)),
        tuple(does), fused_waits(waits, does), (8, 8), 0, (0,) * 2 * count, (0,) * 2 * count, 1, tuple(edges),
    )  # fmt: skip


def fused_waits(waits: Sequence[Mapping[int, int]], does: Sequence[Sequence[int]]) -> tuple[dict[int, int], ...]:
    """From the waits of steps for each other to those of the operators that do them; none waits for one that does some
    of the same steps, as they do not run both."""
    after: list[dict[int, int]] = [{} for _ in does]
    for found, steps in zip(after, does, strict=True):
        for before, wait in (one for step in steps for one in waits[step].items()):
            for other, others in enumerate(does):
                if before in others and not set(others) & set(steps):
                    found[other] = max(wait, found.get(other, 0))
    return tuple(after)


@st.composite
def typed(draw: st.DrawFn) -> Problem:
    """Up to three steps, each in a fast type or a slow one, of which the fast one takes a share of what is allowed;
    reading the other type costs a conversion."""
    count = draw(st.integers(1, 3))
    few, ticks = st.integers(0, 6), st.integers(1, 20)
    does = tuple((o // 2,) for o in range(2 * count))
    choices = tuple((Choice((draw(st.integers(1, 4)),), draw(ticks), 0),) for _ in range(2 * count))
    after: list[dict[int, int]] = [{} for _ in does]
    for o in range(2 * count):
        for before in range(o // 2):
            after[o] |= {2 * before + o % 2: 0, 2 * before + 1 - o % 2: draw(few)}
    effects = tuple(0 if o % 2 else draw(st.integers(0, ALLOWED)) for o in range(2 * count))
    none = (0,) * 2 * count
    return Problem(tuple(range(2 * count)), choices, does, tuple(after), (4,), draw(few), none, none, effects=effects)


def single(
    kinds: Sequence[int], choices: Sequence[tuple[Choice, ...]], after: Sequence[dict[int, int]], between: int
) -> Problem:
    """Operators of one step each."""
    none = (0,) * len(kinds)
    does = tuple((o,) for o in range(len(kinds)))
    return Problem(tuple(kinds), tuple(choices), does, tuple(after), (4,), between, none, none)


def _covers(problem: Problem) -> Iterator[tuple[int, ...]]:
    """Operators that together do every step once."""
    operators = range(len(problem.kinds))
    for size in range(1, problem.steps + 1):
        for chosen in combinations(operators, size):
            within = sum(problem.effects[o] for o in chosen if problem.effects) <= ALLOWED
            if within and sorted(step for o in chosen for step in problem.does[o]) == list(range(problem.steps)):
                yield chosen


def _of(problem: Problem, chosen: Sequence[int]) -> Problem:
    """The problem of these operators alone."""
    place = {o: position for position, o in enumerate(chosen)}
    after = tuple({place[b]: wait for b, wait in problem.after[o].items() if b in place} for o in chosen)
    return Problem(
        tuple(problem.kinds[o] for o in chosen), problem.choices, tuple((at,) for at in place.values()), after,
        problem.limits, problem.between, tuple(problem.release[o] for o in chosen),
        tuple(problem.tail[o] for o in chosen), problem.launches,
        tuple(replace(e, source=place[e.source], target=place[e.target]) for e in problem.edges
              if e.source in place and e.target in place),
    )  # fmt: skip


Streams = tuple[Edge, ...]


def _streams(problem: Problem, choice: Sequence[int]) -> Iterator[Streams]:
    """The edges that may stream together with these designs, each with hardware of its own at both ends."""
    alone = [e for e in problem.edges if all(problem.kinds.count(problem.kinds[o]) == 1 for o in (e.source, e.target))]
    may = [e for e in alone if e.lags[choice[e.source]][choice[e.target]] is not None]
    for size in range(len(may) + 1):
        yield from combinations(may, size)


def _assignments(problem: Problem) -> Iterator[tuple[tuple[int, ...], tuple[int, ...], Streams]]:
    """Launches and choices of the operators that fit the array, and streams; launches are used from the first on."""
    count = len(problem.kinds)
    for launch in product(range(problem.launches or count), repeat=count):
        if set(launch) != set(range(max(launch) + 1)):
            continue
        if any(launch[b] > launch[o] for o, waits in enumerate(problem.after) for b in waits):
            continue
        groups = sorted({(problem.kinds[o], launch[o]) for o in range(count)})
        for chosen in product(*(range(len(problem.choices[k])) for k, _ in groups)):
            own = dict(zip(groups, chosen, strict=True))
            choice = tuple(own[problem.kinds[o], launch[o]] for o in range(count))
            for streams in _streams(problem, choice):
                used = [
                    sum(problem.choices[k][c].needs[number] for (k, where), c in own.items() if where == at)
                    <= limit + sum(e.saves[number] for e in streams)
                    for at in set(launch)
                    for number, limit in enumerate(problem.limits)
                ]
                if all(used):
                    yield launch, choice, streams


def _called_with(streams: Streams, o: int) -> set[int]:
    """An operator and all that streams to it or from it, over any number of streams."""
    found = {o}
    for _ in streams:
        found |= {end for e in streams for end in (e.source, e.target) if {e.source, e.target} & found}
    return found


def _length(
    problem: Problem, order: Sequence[int], launch: Sequence[int], choice: Sequence[int], streams: Streams
) -> int:
    """The end when each operator in turn begins as early as it can: for some order that is the shortest there is."""
    done: dict[int, tuple[int, int, int]] = {}  # start, end, bandwidth
    streamed = {(e.source, e.target): e.lags[choice[e.source]][choice[e.target]] for e in streams}
    for o in order:
        design = problem.designs(o)[choice[o]]
        together = _called_with(streams, o)
        reads = [(b, wait) for m in together for b, wait in problem.after[m].items() if (b, m) not in streamed]
        if any(b not in done for b, _ in reads):
            return problem.horizon  # not in this order
        lags = [done[b][0] + (lag or 0) for (b, to), lag in streamed.items() if to == o]
        earliest = max([*lags, *(problem.release[m] for m in together), *(done[b][1] + wait for b, wait in reads)])
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
    """By trying everything: what covers the steps, launches and designs, and orders."""
    return min(_shortest_of(_of(problem, chosen)) for chosen in _covers(problem))


def _shortest_of(problem: Problem) -> int:
    best = problem.horizon
    orders = list(_orders(problem))
    for launch, choice, streams in _assignments(problem):
        ticks = [problem.ticks(o)[c] for o, c in enumerate(choice)]
        least = sum(max(t for t, where in zip(ticks, launch, strict=True) if where == at) for at in set(launch))
        if least + problem.between * max(launch) < best:
            ordered = (order for order in orders if all(launch[a] <= launch[b] for a, b in pairwise(order)))
            best = min(best, *(_length(problem, order, launch, choice, streams) for order in ordered))
    return best


def _orders(problem: Problem) -> Iterator[tuple[int, ...]]:
    for order in permutations(range(len(problem.kinds))):
        if all(order.index(b) < order.index(o) for o, waits in enumerate(problem.after) for b in waits):
            yield order


def _check(problem: Problem, found: Solution) -> None:
    """The solution does every step once, keeps every rule, and ends when it says."""
    runs = [o for o, at in enumerate(found.launch) if at >= 0]
    assert sorted(step for o in runs for step in problem.does[o]) == list(range(problem.steps))
    ends = {o: found.start[o] + problem.ticks(o)[found.choice[o]] for o in runs}
    streams = tuple(problem.edges[number] for number in found.streams)
    streamed = {(e.source, e.target) for e in streams}
    for e in streams:
        lag = e.lags[found.choice[e.source]][found.choice[e.target]]
        assert lag is not None
        assert found.start[e.target] >= found.start[e.source] + lag
        kinds = [problem.kinds[o] for o in runs]
        assert all(kinds.count(problem.kinds[o]) == 1 for o in (e.source, e.target))
    for o in runs:
        first = min(found.start[m] for m in _called_with(streams, o))
        assert found.start[o] >= problem.release[o]
        waits = {b: wait for b, wait in problem.after[o].items() if b in ends and (b, o) not in streamed}
        assert all(first >= ends[b] + wait for b, wait in waits.items())
        for b in runs[: runs.index(o)]:
            first, second = sorted((o, b), key=lambda one: found.launch[one])
            if found.launch[first] != found.launch[second]:
                assert found.start[second] >= ends[first] + problem.between
            elif problem.kinds[o] == problem.kinds[b]:
                assert found.choice[o] == found.choice[b]
                assert found.start[o] >= ends[b] or found.start[b] >= ends[o]
    assert found.length == max(end + problem.tail[o] for o, end in ends.items())


@settings(max_examples=25, deadline=None)
@given(problems())
def test_no_other_composition_is_shorter(problem: Problem) -> None:
    found = solve(problem)
    _check(problem, found)
    assert found.length == shortest(problem)
    assert found.bound == found.length


@settings(max_examples=40, deadline=None)
@given(problems())
def test_calls_one_by_one_are_those_whose_times_add_up_to_the_least(problem: Problem) -> None:
    at_once = replace(problem, alone=True, after=tuple(dict.fromkeys(waits, 0) for waits in problem.after))
    found = solve(at_once)
    fastest = [min(problem.ticks(o)) for o in range(len(problem.kinds))]
    runs = [o for o, at in enumerate(found.launch) if at >= 0]
    assert sorted(step for o in runs for step in problem.does[o]) == list(range(problem.steps))
    assert sorted(found.launch[o] for o in runs) == list(range(len(runs)))
    assert sum(fastest[o] for o in runs) == found.bound == min(sum(fastest[o] for o in own) for own in _covers(problem))


@settings(max_examples=40, deadline=None)
@given(typed())
def test_no_other_types_within_the_limit_are_faster(problem: Problem) -> None:
    found = solve(problem)
    _check(problem, found)
    assert sum(effect for effect, at in zip(problem.effects, found.launch, strict=True) if at >= 0) <= ALLOWED
    assert found.length == found.bound == shortest(problem)
    assert solve(replace(problem, effects=())).length <= found.length


@settings(max_examples=25, deadline=None)
@given(problems(), st.sampled_from([0.0, 0.001, 0.01]))
def test_without_enough_work_the_gap_is_right(problem: Problem, work_limit: float) -> None:
    """What is found keeps every rule, and the shortest there is lies between the bound and its length."""
    found = solve(problem, work_limit=work_limit)
    _check(problem, found)
    assert 0 < found.bound <= shortest(problem) <= found.length


@settings(max_examples=15, deadline=None)
@given(st.one_of(problems(3), typed()), st.booleans())
def test_a_solver_that_finds_nothing_within_its_limit_leaves_single_operators(problem: Problem, alone: bool) -> None:
    problem = replace(problem, alone=alone)
    with pytest.MonkeyPatch.context() as patch:
        solver = answer(cp_model.CpModel(), work=0.0)[1]
        patch.setattr(solving, "answer", lambda *_, **__: (cp_model.UNKNOWN, solver))
        found = solve(problem, work_limit=0.0)
    _check(problem, found)
    assert sum(effect for effect, at in zip(problem.effects, found.launch, strict=False) if at >= 0) <= ALLOWED
    assert 0 < found.bound <= shortest(problem) <= found.length


@settings(max_examples=40, deadline=None)
@given(configurations())
def test_no_other_hardware_in_one_configuration_is_faster(problem: Problem) -> None:
    """For one input by its latency, for a stream by the time from input to input; or none fits."""
    every = [(_of(problem, chosen), chosen) for chosen in _covers(problem)]
    periods = [_period(one, choice, streams) for one, _ in every for _, choice, streams in _assignments(one)]
    if not periods:
        with pytest.raises(dse.StudyError, match=r"fit the device|within .* of the device"):
            solve(problem)
        return
    found, streamed = solve(problem), solve(problem, stream=True)
    _check(problem, found)
    _check(problem, streamed)
    assert found.length == found.bound == shortest(problem)
    runs = [o for o, at in enumerate(streamed.launch) if at >= 0]
    ends = [(problem.edges[edge].source, problem.edges[edge].target) for edge in streamed.streams]
    chosen = _of(problem, runs)
    streams = tuple(e for e in chosen.edges if (runs[e.source], runs[e.target]) in ends)
    assert _period(chosen, [streamed.choice[o] for o in runs], streams) == streamed.bound == min(periods)


def _period(problem: Problem, choice: Sequence[int], streams: Streams) -> int:
    """Of the busiest kind, of what is called together, or of the DRAM."""
    spans = []
    for own in {tuple(sorted(_called_with(streams, e.source))) for e in streams}:
        alone = _of(problem, own)
        inside = tuple(
            e for e in alone.edges if (own[e.source], own[e.target]) in {(s.source, s.target) for s in streams}
        )
        chosen = [choice[o] for o in own]
        spans.append(min(_length(alone, order, [0] * len(own), chosen, inside) for order in _orders(alone)))
    designs = [problem.choices[kind][c] for kind, c in zip(problem.kinds, choice, strict=True)]
    busy: dict[int, int] = {}
    for kind, design in zip(problem.kinds, designs, strict=True):
        busy[kind] = busy.get(kind, 0) + design.ticks
    return max([-(-sum(d.ticks * d.bandwidth for d in designs) // BANDWIDTH), *busy.values(), *spans])


def test_a_chain_of_five_in_one_launch_or_in_many() -> None:
    """Where beginning a launch costs little, each operator takes the whole array; else they share it."""
    choices = tuple((Choice((1,), 100, 0), Choice((4,), 30, 0)) for _ in range(4))
    after = tuple({o - 1: 0} if o else {} for o in range(5))
    for between, launches, length in ((10, 5, 190), (1000, 1, 500)):
        found = solve(single((0, 1, 2, 3, 0), choices, after, between))
        assert (len(set(found.launch)), found.length) == (launches, length)


def test_a_large_network_has_a_gap_where_work_is_short() -> None:
    count = 8
    choices = [(Choice((1,), 100 + 7 * k, 400), Choice((2,), 60 + 5 * k, 700)) for k in range(count)]
    problem = single(range(count), choices, [{}] * count, 20)
    found, later = (solve(problem, work_limit=limit) for limit in (0.0, 0.1))
    for one in (found, later):
        _check(problem, one)
    assert max(found.bound, later.bound) <= later.length <= found.length
    assert 0 < found.bound < found.length


def test_what_streams_has_hardware_of_its_own() -> None:
    """Two operators that are alike take turns on one piece of hardware, and stream where each has one."""
    own: tuple[Choice, ...] = (Choice((1,), 10, 0),)
    after: list[dict[int, int]] = [{}, {0: 0}]
    edges = (Edge(0, 1, (0,), ((3,),)),)
    shared = replace(single((0, 0), (own,), after, 0), launches=1, edges=edges)
    apart = replace(single((0, 1), (own, own), after, 0), launches=1, edges=edges)
    for problem, length, streams in ((shared, 20, ()), (apart, 13, (0,))):
        found = solve(problem)
        _check(problem, found)
        assert (found.length, found.bound, found.streams) == (length, length, streams)


def test_what_streams_is_called_when_all_it_reads_is_there() -> None:
    """The last of three reads what the second streams to it, and what the first writes: both wait for the first."""
    choices = tuple((Choice((1,), ticks, 0),) for ticks in (20, 10, 5))
    problem = single((0, 1, 2), choices, ({}, {}, {0: 0, 1: 0}), 0)
    problem = replace(problem, launches=1, edges=(Edge(1, 2, (1,), ((6,),)),))
    assert solve(problem).length == 25  # through DRAM: the second while the first runs
    found = solve(replace(problem, limits=(2,)))
    assert (found.length, found.start, found.streams) == (31, (0, 20, 26), (0,))


def test_several_types_are_proved_with_little_work() -> None:
    """A chain of steps, each in a fast type or a slow one, on a part of the array or all of it: operators of which one
    runs at most must not make it harder to put steps into launches."""
    steps, fast = 12, range(12)
    choices = [tuple(Choice((wide,), (600 + 37 * (o * 7 % 5)) // wide + 100, 0) for wide in (1, 2, 4)) for o in fast]
    choices += [tuple(Choice((wide,), 4 * (600 + 37 * o) // wide + 100, 0) for wide in (2, 4)) for o in fast]
    after = [
        {b: 3 * (o // steps != b // steps) for b in (o % steps - 1, o % steps - 1 + steps)} if o % steps else {}
        for o in range(2 * steps)
    ]
    none, does = (0,) * 2 * steps, tuple((o % steps,) for o in range(2 * steps))
    problem = Problem(tuple(range(2 * steps)), tuple(choices), does, tuple(after), (4,), 250, none, none)
    found = solve(problem, work_limit=3.0)
    _check(problem, found)
    assert found.length == found.bound
