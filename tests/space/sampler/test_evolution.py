import itertools
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import DataObject

from allo_dse.space.genes import Gene
from allo_dse.space.sampler.evolution import Evolution, EvolutionParameters, Variation
from allo_dse.space.sampler.optuna_sampler import EvolutionSampler
from allo_dse.space.sampler.pareto import (
    Individual,
    Parents,
    Results,
    crowding_distances,
    dominates,
    domination_ranks,
    front_with,
)
from allo_dse.tune.search.lower_bounds import LowerBounds
from allo_dse.tune.search.proposals import EvolutionProposer
from allo_dse.tune.search.proposer import Outcome
from allo_dse.tune.search.screening import Screen
from allo_dse.tune.study import Study

from ...tune.fakes import FakeEvaluator, check, fake_study


def proposer(study: Study, seed: int = 0) -> Any:
    screen = Screen(study.space, check)
    return EvolutionProposer(screen, LowerBounds(study.objectives), EvolutionSampler(seed), strict=True), screen


def losses_of(candidate: Any) -> Any:
    metrics = FakeEvaluator().evaluate(candidate.design)
    return (metrics.latency_us, float(metrics.pe_count), float(metrics.local_memory_bytes))


def run(asker: Any, count: int) -> Any:
    keys: list[Any] = []
    while len(keys) < count:
        for proposal in asker.ask(count - len(keys), 0):
            keys.append(proposal.candidate.key)
            asker.tell(proposal.number, Outcome(losses_of(proposal.candidate), {}))
    return keys


def test_same_seed_same_proposals_whatever_the_batches() -> None:
    first, _ = proposer(fake_study())
    second, _ = proposer(fake_study())
    keys = run(first, 100)
    singles = []
    for _ in range(100):
        (proposal,) = second.ask(1, 0)
        second.tell(proposal.number, Outcome(losses_of(proposal.candidate), {}))
        singles.append(proposal.candidate.key)
    assert keys == singles
    assert keys != run(proposer(fake_study(), seed=1)[0], 100)


def test_proposals_are_new_and_legal() -> None:
    asker, _ = proposer(fake_study())
    keys = run(asker, 150)
    assert len(set(keys)) == 150


def test_a_generation_waits_for_the_one_before() -> None:
    asker, _ = proposer(fake_study())
    proposals = asker.ask(100, 0)
    assert 0 < len(proposals) < 100
    assert asker.ask(10, len(proposals)) == []


def test_exhaustion_is_noticed() -> None:
    study = fake_study(size=128, at_most=2, max_nodes=4)
    legal = {c.key for c in study.space.designs() if not check(c.design)}
    asker, _ = proposer(study)
    keys: list[Any] = []
    while not asker.exhausted:
        for proposal in asker.ask(8, 0):
            keys.append(proposal.candidate.key)
            asker.tell(proposal.number, Outcome(losses_of(proposal.candidate), {}))
    assert set(keys) == legal
    assert len(keys) == len(legal)


def test_a_study_takes_the_sampler_with_options_of_its_own(tmp_path: Path) -> None:
    keys = {}
    for name, sampler in [
        ("name", "evolution"),
        ("same", EvolutionSampler(7)),
        ("other", EvolutionSampler(7, initial=8)),
    ]:
        result = fake_study().run(60, seed=7, sampler=sampler, run_dir=tmp_path / name, verify=False, progress="quiet")
        keys[name] = [record.key for record in result.records]
    assert keys["name"] == keys["same"] != keys["other"]
    assert keys["name"][:8] == keys["other"][:8]


# -- children --

AXES = {f"fold.k.{axis}.{field}": Gene(0, 99, "categorical") for axis in range(6) for field in ("spatial", "how")}


def offspring(genes: Any, parents: Any, count: int = 400, **options: Any) -> Any:
    """Children of given parents, which are equally good."""
    parameters = EvolutionParameters(initial=len(parents), wild=0.0, mutations=0.0, modelled=0, **options)
    evolution = Evolution(0, genes, parameters)
    for number, parent in enumerate(parents):
        evolution.learn(Individual(number, parent, (float(number), -float(number))))
    return [next(evolution.children(len(parents) + n))[0] for n in range(count)]


def shares(children: Any, *values: int) -> Any:
    """How many genes of each child have each value."""
    return [tuple(list(child.values()).count(value) for value in values) for child in children]


def test_a_child_of_two_parents_has_about_half_of_its_genes_from_each() -> None:
    one, other = dict.fromkeys(AXES, 10), dict.fromkeys(AXES, 20)
    found = shares(offspring(AXES, [one, other], crossover=1.0), 10, 20)
    both = [(a, b) for a, b in found if min(a, b) >= 2]
    # Two tournaments choose the better one with 3/4 each, so that 3/8 of the children have different parents; of six
    # axes all or all but one come from the same parent 14 times in 64.
    assert len(both) / len(found) == pytest.approx(3 / 8 * 50 / 64, abs=0.07)
    assert sum(a for a, _ in both) / sum(a + b for a, b in both) == pytest.approx(0.5, abs=0.08)
    assert max(a + b for a, b in found) <= len(AXES)  # nothing comes from elsewhere but for the gene that changes
    assert min(a + b for a, b in found) >= len(AXES) - 1


def test_without_crossover_a_child_has_one_parent() -> None:
    one, other = dict.fromkeys(AXES, 10), dict.fromkeys(AXES, 20)
    found = shares(offspring(AXES, [one, other], crossover=0.0), 10, 20)
    assert all(max(a, b) >= len(AXES) - 1 and min(a, b) <= 1 for a, b in found)
    assert {a > b for a, b in found} == {True, False}


def test_the_genes_of_a_mesh_axis_cross_over_together() -> None:
    one, other = dict.fromkeys(AXES, 10), dict.fromkeys(AXES, 20)
    for child in offspring(AXES, [one, other], crossover=1.0):
        torn = [axis for axis in range(6) if {child[f"fold.k.{axis}.{f}"] for f in ("spatial", "how")} == {10, 20}]
        assert len(torn) <= 1  # by the gene that changes at random


def test_a_child_inherits_genes_that_only_the_other_parent_has() -> None:
    genes = {name: Gene(0, 99, "categorical") for name in "abcdef"}
    one, other = {"a": 10, "b": 10, "c": 10}, {"d": 20, "e": 20, "f": 20}
    children = offspring(genes, [one, other], crossover=1.0)
    crossed = [child for child in children if len(child) == 6]
    assert len(crossed) / len(children) == pytest.approx(3 / 8, abs=0.07)
    assert all(sum(child[name] == 20 for name in "def") >= 2 for child in crossed)


@given(st.sampled_from(["ordinal", "log", "fine", "categorical"]), st.integers(1, 50), st.integers(0, 10**6), st.data())
def test_a_step_is_another_value_of_the_range(kind: Any, low: Any, span: Any, data: DataObject) -> None:
    gene = Gene(low, low + (span % 40 if kind == "categorical" else span), kind)
    value = data.draw(st.integers(gene.low, gene.high))
    rng = np.random.default_rng(data.draw(st.integers(0, 100)))
    found = int(Variation(["g"], {"g": gene}).step(np.array([value]), np.zeros(1, int), rng)[0])
    assert gene.low <= found <= gene.high
    assert found != value or gene.low == gene.high


# -- selection --


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3, st.sampled_from([0, 0, 0, 1, 2])), min_size=1, max_size=30))
def test_ranks_follow_constrained_domination(rows: Any) -> None:
    losses = np.array([r[:3] for r in rows], float)
    penalty = np.array([r[3] for r in rows], float)
    ranks = domination_ranks(losses, penalty, np.arange(len(rows)))
    for i in range(len(rows)):
        for j in range(len(rows)):
            if penalty[i] < penalty[j] and penalty[j] > 0:
                assert ranks[i] < ranks[j]
            if penalty[i] == penalty[j] == 0 and (losses[i] <= losses[j]).all() and (losses[i] < losses[j]).any():
                assert ranks[i] < ranks[j]


def test_crowding_prefers_the_ends_and_the_gaps() -> None:
    front = np.array([[0.0, 4.0], [1.0, 3.0], [3.0, 1.0], [4.0, 0.0]])
    distance = crowding_distances(front, np.arange(4), np.zeros(4, int))
    assert distance[0] == distance[3] == np.inf
    assert distance[1] == pytest.approx(distance[2])
    assert (crowding_distances(np.full((3, 2), np.inf), np.arange(3), np.zeros(3, int)) == 0).all()


LOSS = st.sampled_from([0.0, 1.0, 1.0, 2.5, 3.0, 7.0, np.inf])
CHILD = st.tuples(LOSS, LOSS, st.sampled_from([0.0, 0.0, 0.0, 0.0, 1.0, 2.0]))
GENERATIONS = st.lists(st.lists(CHILD, max_size=5), max_size=25)


def individuals(generations: Any) -> Any:
    """The generations as individuals, numbered throughout."""
    numbers = itertools.count()
    return [
        [
            Individual(n, {"g": n}, (a, b), {"c": penalty})
            for (a, b, penalty), n in zip(generation, numbers, strict=False)
        ]
        for generation in generations
    ]


def plain_selection(candidates: Any, size: Any) -> Any:
    """The best of the candidates by the definitions of rank and crowding, one design at a time."""

    def beats(a: Any, b: Any) -> Any:
        if a.penalty > 0 or b.penalty > 0:
            return a.penalty < b.penalty
        return all(x <= y for x, y in zip(a.losses, b.losses, strict=True)) and a.losses != b.losses

    chosen, left = [], list(candidates)
    while left:
        rank = [b for b in left if not any(beats(a, b) for a in left)]
        left = [i for i in left if i not in rank]
        distance = dict.fromkeys((i.number for i in rank), 0.0)
        for objective in range(len(rank[0].losses)):
            row = sorted(rank, key=lambda i: i.losses[objective])
            low, high = row[0].losses[objective], row[-1].losses[objective]
            if low == high or not np.isfinite([low, high]).all():
                continue
            distance[row[0].number] = distance[row[-1].number] = np.inf
            for before, i, after in zip(row, row[1:], row[2:], strict=False):
                distance[i.number] += (after.losses[objective] - before.losses[objective]) / (high - low)
        chosen += sorted(rank, key=lambda i: -distance[i.number])
    return chosen[:size]


@given(GENERATIONS, st.integers(1, 6))
def test_selection_is_the_one_by_definition(generations: Any, size: Any) -> None:
    parents = Parents(size)
    plain: list[Any] = []
    for children in individuals(generations):
        parents.renew(Results.of(children))
        plain = plain_selection([*plain, *children], size)
        assert parents.best.numbers.tolist() == [i.number for i in plain]


@given(GENERATIONS.filter(any), st.integers(1, 6), st.integers(0, 3))
def test_many_generations_at_once_are_the_same(generations: Any, size: Any, late: int) -> None:
    children = [Results.of(made) for made in individuals(generations)]
    starts = list(itertools.accumulate(map(len, generations), initial=0))
    one_by_one, at_once = Parents(size), Parents(size)
    before, after = children[: len(children) - late], children[len(children) - late :]
    every = Results.of(list(itertools.chain(*individuals(generations))))
    at_once.renew(every[: starts[len(before)]], starts[: len(before) + 1])
    for generation in before:
        one_by_one.renew(generation)
    assert at_once.best.numbers.tolist() == one_by_one.best.numbers.tolist()
    for generation in after:
        one_by_one.renew(generation)
        at_once.renew(generation)
        assert at_once.best.numbers.tolist() == one_by_one.best.numbers.tolist()


@given(GENERATIONS.filter(any), st.integers(0, 7), st.randoms())
def test_restoring_gives_the_state_of_the_uninterrupted_run(generations: Any, missing: Any, random: Random) -> None:
    told = list(itertools.chain(*individuals(generations)))
    told = told[: len(told) - missing] or told[:1]
    next_number = told[-1].number + 1 + missing
    parents, current = Parents(6), 0 if next_number <= 4 else (next_number - 5) // 4 + 1
    for generation in range(current):
        first, end = max(0, 4 * generation), 4 * generation + 4
        parents.renew(Results.of([i for i in told if first <= i.number < end]))
    random.shuffle(shuffled := list(told))
    sampler = Evolution(0, {"g": Gene(0, 200)}, EvolutionParameters(initial=4, children=4, population=6, modelled=0))
    sampler.restore(Results.of(shuffled), shuffled.__getitem__, next_number)
    assert [genes["g"] for genes in sampler._state.parents] == parents.best.numbers.tolist()
    assert sampler._state.evaluated == [i for i in told if i.number >= 4 * current]
    assert sampler.next_number == next_number


@given(st.integers(1, 3), st.integers(0, 40), st.integers(0, 40), st.integers(0, 10**6))
def test_a_front_that_grows_is_the_front_of_all(objectives: int, known: int, more: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    losses = rng.integers(0, 8, (known + more, objectives)).astype(float)
    every = Results(np.arange(known + more), losses, rng.integers(0, 2, known + more).astype(float))
    front = front_with(front_with(np.empty((0, 1)), every[:known]), every[known:])
    feasible = np.unique(losses[every.penalty <= 0], axis=0)
    assert sorted(front.tolist()) == sorted(feasible[~dominates(feasible, feasible).any(0)].tolist())
