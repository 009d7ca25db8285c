import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.space.samplers import EvolutionSampler
from allo_dse.space.selection import Individual, Parents, crowding_distances, domination_ranks
from allo_dse.tune.proposals import EvolutionProposer, Told
from allo_dse.tune.screen import Screen
from tests.tune.fakes import FakeEvaluator, check, fake_study


def proposer(study, seed=0):
    screen = Screen(study.space, check, lambda candidate, violations: None)
    return EvolutionProposer(study.space, screen, study.objectives, seed, strict=True), screen


def losses_of(candidate):
    metrics = FakeEvaluator().evaluate(candidate.design)
    return (metrics.latency_us, float(metrics.pe_count), float(metrics.local_memory_bytes))


def run(asker, count):
    keys = []
    while len(keys) < count:
        for proposal in asker.ask(count - len(keys), 0):
            keys.append(proposal.candidate.key)
            asker.tell(proposal.number, Told(losses_of(proposal.candidate), {}))
    return keys


def test_same_seed_same_proposals_whatever_the_batches():
    first, _ = proposer(fake_study())
    second, _ = proposer(fake_study())
    keys = run(first, 100)
    singles = []
    for _ in range(100):
        (proposal,) = second.ask(1, 0)
        second.tell(proposal.number, Told(losses_of(proposal.candidate), {}))
        singles.append(proposal.candidate.key)
    assert keys == singles
    assert keys != run(proposer(fake_study(), seed=1)[0], 100)


def test_proposals_are_new_and_legal():
    asker, _ = proposer(fake_study())
    keys = run(asker, 150)
    assert len(set(keys)) == 150


def test_a_generation_waits_for_the_one_before():
    asker, _ = proposer(fake_study())
    proposals = asker.ask(100, 0)
    assert 0 < len(proposals) < 100
    assert asker.ask(10, len(proposals)) == []


def test_exhaustion_is_noticed():
    study = fake_study(size=128, at_most=2, max_nodes=4)
    legal = {c.key for c in study.space.designs() if not check(c.design)}
    asker, _ = proposer(study)
    keys = []
    while not asker.exhausted:
        for proposal in asker.ask(8, 0):
            keys.append(proposal.candidate.key)
            asker.tell(proposal.number, Told(losses_of(proposal.candidate), {}))
    assert set(keys) == legal
    assert len(keys) == len(legal)


def test_it_is_an_optuna_sampler():
    study = fake_study()
    screen = Screen(study.space, check, lambda candidate, violations: None)
    sampler = EvolutionSampler(0, study.space.genes, screen.decode)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search = optuna.create_study(directions=["minimize"] * 3, sampler=sampler)

    def objective(trial):
        from allo_dse.space.samplers import suggest_with

        return losses_of(study.space.decode(suggest_with(trial)))

    search.optimize(objective, n_trials=40)
    assert len(search.trials) == 40
    assert len({tuple(sorted(t.params.items())) for t in search.trials}) == 40


@given(st.lists(st.tuples(*[st.integers(0, 4)] * 3, st.sampled_from([0, 0, 0, 1, 2])), min_size=1, max_size=30))
def test_ranks_follow_constrained_domination(rows):
    losses = np.array([r[:3] for r in rows], float)
    penalty = np.array([r[3] for r in rows], float)
    ranks = domination_ranks(losses, penalty)
    for i in range(len(rows)):
        for j in range(len(rows)):
            if penalty[i] < penalty[j] and penalty[j] > 0:
                assert ranks[i] < ranks[j]
            if penalty[i] == penalty[j] == 0 and (losses[i] <= losses[j]).all() and (losses[i] < losses[j]).any():
                assert ranks[i] < ranks[j]


def test_crowding_prefers_the_ends_and_the_gaps():
    distance = crowding_distances(np.array([[0.0, 4.0], [1.0, 3.0], [3.0, 1.0], [4.0, 0.0]]))
    assert distance[0] == distance[3] == np.inf
    assert distance[1] == pytest.approx(distance[2])
    assert (crowding_distances(np.full((3, 2), np.inf)) == 0).all()


CHILD = st.tuples(st.integers(0, 6), st.integers(0, 6), st.sampled_from([0, 0, 0, 0, 1]))


@given(st.lists(st.lists(CHILD, max_size=5), max_size=25), st.integers(1, 6))
def test_generations_that_are_recognised_as_fruitless_change_nothing_else(generations, size):
    quick, thorough, number = Parents(size), Parents(size), 0
    for generation in generations:
        children = []
        for *losses, penalty in generation:
            children.append(Individual(number, {}, tuple(map(float, losses)), float(penalty)))
            number += 1
        quick.renew(children)
        thorough._choose([*thorough.best, *children])
        assert quick.best == thorough.best


def test_restoring_gives_the_state_of_the_uninterrupted_run():
    def individual(n):
        return Individual(n, {"g": n}, (float(n % 7), float(-n)), 0.0)

    whole = EvolutionSampler(0, {}, lambda suggest: None, initial=4, children=4, population=6)
    parents = Parents(6)
    for first in range(0, 12, 4):
        parents.renew([individual(n) for n in range(first, first + 4)])
    whole.restore([individual(n) for n in range(14)], 14)
    assert whole._state.parents.best == parents.best
    assert [i.number for i in whole._state.told] == [12, 13]
