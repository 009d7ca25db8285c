"""Exact searches whose space is leased to workers: the same front and certificate as in one process."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.eval.bounding import Bounds
from allo_dse.space.space import Candidate, Space
from allo_dse.tune.search.exact.by_bounds import ExactProposer
from allo_dse.tune.search.judge import Judge
from allo_dse.tune.search.protocol import Told
from allo_dse.tune.search.screening import Screen
from allo_dse.tune.store.certificate import Certificate
from allo_dse.tune.study import Study
from allo_dse.tune.study_file import load_studies
from allo_dse.tune.workers import leases
from allo_dse.tune.workers.leases import MOST_LOST, Leases
from allo_dse.tune.workers.surveyor import Lease, Survey, Surveyor
from tests.tune.fakes import Looseness
from tests.tune.search.exact.test_by_bounds import Bounded, small

STUDIES = Path(__file__).parents[3] / "studies"
APPETITE = 6
Values = tuple[float, ...]


class Here:
    """Workers that are functions, which answer in any order and die at any time.

    Args:
        chances: that a lease is lost, by part; that a worker that has none dies.
    """

    def __init__(self, study: Study, workers: int, rng: random.Random, lost: dict[int, float], dies: float) -> None:
        self._study, self._rng, self._lost, self._dies = study, rng, lost, dies
        self._surveyors = [self._surveyor() for _ in range(workers)]
        self._orders: list[tuple[int, Lease]] = []
        self.present = set(range(workers))
        self.count = 0

    def _surveyor(self) -> Surveyor:
        return Surveyor(self._study, self._study.make_evaluator())

    def hired(self) -> int:
        return len(self._surveyors)

    def idle(self) -> list[int]:
        return [n for n in self.present if n not in {worker for worker, _ in self._orders}]

    def order(self, worker: int, order: Lease) -> None:
        if self._rng.random() < self._dies:  # and another is in its place
            self._surveyors[worker] = self._surveyor()
        self._orders.append((worker, order))

    def litters(self) -> list[tuple[Lease, Survey | None]]:
        found: list[tuple[Lease, Survey | None]] = []
        self._rng.shuffle(self._orders)
        for _ in range(self._rng.randint(0, len(self._orders))):
            worker, order = self._orders.pop()
            survey = self._surveyors[worker].survey(order)
            if self._rng.random() < self._lost.get(order.part, 0.0):
                survey = None
            found.append((order, survey))
            self.count += 1
        return found

    def breeders(self) -> range:
        return range(len(self._surveyors))

    @property
    def under_way(self) -> bool:
        return bool(self._orders)

    def appetite(self) -> int:
        return APPETITE

    def share(self) -> int:
        return APPETITE // len(self._surveyors)

    def pace(self) -> float | None:
        return None


class Run:
    """A search whose results come in any order."""

    def __init__(
        self, study: Study, workers: int, seed: int = 0, lost: dict[int, float] | None = None, dies: float = 0.0
    ) -> None:
        self.study, self.evaluator, self.rng = study, study.make_evaluator(), random.Random(seed)
        self.screen, self.judge = Screen(study.space, study.check), Judge(study.objectives, study.constraints)
        least = study.least_losses(self.evaluator)
        self.proposer = ExactProposer(study.space, self.screen, least, strict=False)
        self.breeders = Here(study, workers, self.rng, lost or {}, dies)
        if workers:
            here = partial(Surveyor, study, self.evaluator)
            self.proposer.search(Leases(self.screen, self.breeders, here, len(study.objectives)))
        self.values: list[Values] = []
        self.keys: list[str] = []
        self.evaluated: set[str] = set()
        self.outstanding: list[tuple[int, Values]] = []

    def step(self) -> None:
        room = self.rng.randint(1, APPETITE) - len(self.outstanding)
        for proposal in self.proposer.ask(room, len(self.outstanding)) if room > 0 else []:
            self.keys.append(proposal.candidate.key)
            candidate = self.study.space.decode_genes(proposal.candidate.genes)
            assert candidate is not None
            metrics = self.evaluator.evaluate(candidate.design)
            self.outstanding.append((proposal.number, tuple(o.value(metrics) for o in self.study.objectives)))
        self.rng.shuffle(self.outstanding)
        for _ in range(self.rng.randint(0, len(self.outstanding))):
            number, values = self.outstanding.pop()
            self.values.append(values)
            self.evaluated.add(self.keys[number])
            self.proposer.tell(number, Told(values, {}))

    def until(self, evaluated: float = float("inf")) -> Run:
        while len(self.values) < evaluated and (not self.proposer.exhausted or self.outstanding):
            self.step()
            # What the driver's loop goes by: something is under way, or the run ends.
            assert self.outstanding or self.breeders.under_way or self.proposer.exhausted or self.values
        return self

    @property
    def front(self) -> set[Values]:
        values = set(self.values)
        return values - {a for a in values for b in values if a != b and all(y <= x for x, y in zip(a, b, strict=True))}

    @property
    def certificate(self) -> Certificate:
        """Designs of a part that was begun again count as open, until they would come next."""
        found = self.proposer.certificate()
        assert found.evaluated + found.refused + found.bounded + found.open >= found.designs or not found.listed
        return found


def proof(found: Certificate) -> tuple[object, ...]:
    """What does not depend on the order in which designs were looked at."""
    decided = found.evaluated + found.refused + found.bounded
    return found.complete, found.designs, decided, found.open, found.gaps, found.feasible, found.unbounded


@cache
def alone(loose: float) -> tuple[set[Values], tuple[object, ...], int]:
    """Front and proof of one process, and how many designs it has evaluated."""
    run = Run(study(loose), workers=0).until()
    return run.front, proof(run.certificate), len(run.values)


@cache
def study(loose: float) -> Study:
    made: Study = small(evaluator=type("Evaluator", (Bounded,), {"loose": loose}))
    return made


LISTED = cache(lambda space, designs=Space.designs: list(designs(space)))


@pytest.fixture(autouse=True)
def _listed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each part of each run lists all designs: making them anew would take most of the time."""

    def designs(space: Space) -> Iterator[Candidate]:
        return iter(LISTED(space))

    monkeypatch.setattr(Space, "designs", designs)


@pytest.fixture(autouse=True)
def _little_effort(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that listing a part takes several leases."""
    monkeypatch.setattr(leases, "EFFORT", 60)
    monkeypatch.setattr("allo_dse.tune.search.exact.prospect._AT_ONCE", 16)


@settings(max_examples=10, deadline=None)
@given(
    workers=st.integers(1, 4),
    seed=st.integers(0, 2**32),
    loose=st.sampled_from([0.0, 0.2, 2.0]),
    lost=st.dictionaries(st.integers(0, 3), st.sampled_from([0.05, 1.0]), max_size=2),
    dies=st.sampled_from([0.0, 0.05]),
)
def test_front_and_proof_are_those_of_one_process_whoever_dies(
    workers: int, seed: int, loose: float, lost: dict[int, float], dies: float
) -> None:
    run = Run(study(loose), workers, seed, lost, dies).until()
    assert (run.front, proof(run.certificate)) == alone(loose)[:2]
    assert len(set(run.keys)) == len(run.keys)


@settings(max_examples=10, deadline=None)
@given(
    workers=st.integers(1, 4), seed=st.integers(0, 2**32), trials=st.integers(1, 40), dies=st.sampled_from([0.0, 0.05])
)
def test_stopped_at_any_time_it_says_no_less_than_what_can_be_better(
    workers: int, seed: int, trials: int, dies: float
) -> None:
    best, _, _ = alone(0.2)
    run = Run(study(0.2), workers, seed, {0: 0.05}, dies).until(trials)
    found = run.certificate
    assert found.listed
    assert found.open or run.front == best
    # The first bound of some designs says nothing: until they are looked at again nothing can be said of the space.
    silent = {one.key for one in run.study.space.designs() if int(one.key, 16) % 17 == 0}
    for number, gap in enumerate(found.gaps):
        least, now = (min(values[number] for values in front) for front in (best, run.front))
        assert gap.bound is not None or silent - run.evaluated
        assert gap.bound is None or gap.bound <= least
        assert gap.share is None or least >= now * (1 - gap.share) - 1e-9


def test_few_more_are_evaluated_than_by_one_process() -> None:
    _, _, once = alone(0.2)
    for workers in (2, 3):
        assert len(Run(study(0.2), workers).until().values) <= once + 3 * APPETITE


def test_regions_are_leased_too() -> None:
    (made,) = load_studies(STUDIES / "reduction_npu.py", {"rows": "128", "columns": "128"})
    once, run = Run(made, workers=0).until(), Run(made, workers=3, lost={1: 0.3}).until()
    assert (run.front, proof(run.certificate)) == (once.front, proof(once.certificate))


def test_a_part_that_no_worker_survives_is_the_drivers() -> None:
    run = Run(study(0.2), workers=2, lost={1: 1.0}).until()
    assert (run.front, proof(run.certificate)) == alone(0.2)[:2]
    assert run.breeders.count >= MOST_LOST


def test_it_goes_on_while_no_worker_is_there() -> None:
    run = Run(study(0.2), workers=2)
    run.breeders.present.clear()
    run.until(5)
    assert run.breeders.count == 0
    run.breeders.present.update({0, 1})
    run.until()
    assert run.breeders.count > 2
    assert (run.front, proof(run.certificate)) == alone(0.2)[:2]


def test_what_workers_raise_the_driver_raises_in_the_end() -> None:
    class Broken(Looseness):
        def __call__(self, design: Any, level: int) -> Bounds:
            raise ZeroDivisionError("a bound")

    class Evaluator(Bounded):
        def bounding(self) -> Looseness:
            return Broken(0.2)

    class Raising(Here):
        def litters(self) -> list[tuple[Lease, Survey | None]]:
            orders, self._orders = self._orders, []
            self.count += len(orders)
            return [(order, None) for _, order in orders]

    made = small(evaluator=Evaluator)
    run = Run(made, workers=2)
    run.breeders = Raising(made, 2, run.rng, {}, 0.0)
    run.proposer.search(Leases(run.screen, run.breeders, partial(Surveyor, made, run.evaluator), 3))
    with pytest.raises(ZeroDivisionError):
        run.until()
    assert run.breeders.count == 2 * MOST_LOST
