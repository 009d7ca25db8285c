"""Workers that breed: what the driver makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.space.sampler.optuna_sampler import EvolutionSampler
from allo_dse.tune.run.islands import JUDGED, Islands
from allo_dse.tune.search.bred import EvolutionProposer
from allo_dse.tune.search.protocol import Told
from allo_dse.tune.search.screening import Screen
from allo_dse.tune.store.described import Bred, described
from allo_dse.tune.study import Study
from allo_dse.tune.workers.nursery import Litter, Nursery, Order
from tests.tune.fakes import FakeEvaluator, check, fake_study

SIZES = {"modelled": 0}
WORKERS, APPETITE = 3, 24


class Here:
    """Workers that are functions: each order is delivered when it is next asked for, unless it is lost."""

    def __init__(self, study: Study, *, seconds: float = 0.0, lost: set[int] | None = None) -> None:
        self.nurseries = [Nursery(study, FakeEvaluator()) for _ in range(WORKERS)]
        self.seconds, self.lost = seconds, lost or set()
        self.orders: list[tuple[int, Order]] = []
        self.count = 0
        self.told: list[tuple[set[str], set[str]]] = []
        """With each order, keys that its worker was told before it bred and those that it bred then."""

    def hired(self) -> int:
        return WORKERS

    def idle(self) -> list[int]:
        return [n for n in range(WORKERS) if n not in {worker for worker, _ in self.orders}]

    def breeders(self) -> range:
        return range(WORKERS)

    def order(self, worker: int, order: Order) -> None:
        self.orders.append((worker, order))

    def litters(self) -> list[tuple[Order, Litter | None]]:
        orders, self.orders = self.orders, []
        found: list[tuple[Order, Litter | None]] = []
        for worker, order in orders:
            self.count += 1
            litter = None if self.count in self.lost else self.nurseries[worker].breed(order)
            found.append((order, litter))
            if litter is not None:
                self.told.append((set(order.known), {design.key for design in litter.designs}))
        return found

    def appetite(self) -> int:
        return APPETITE

    def share(self) -> int:
        return APPETITE // WORKERS

    def pace(self) -> float | None:
        return self.seconds


def islands(study: Study, breeders: Here, screen: Screen) -> Islands:
    central = EvolutionProposer(screen, study.least_losses(FakeEvaluator()), EvolutionSampler(0, **SIZES), strict=False)
    return Islands(central, screen, breeders, seed=0, sizes=SIZES)


def evaluated(study: Study, asker: Islands, rounds: int) -> list[Any]:
    """The proposals of some rounds, each evaluated as it comes."""
    proposals = []
    for _ in range(rounds):
        for proposal in asker.ask(APPETITE, 0):
            proposals.append(proposal)
            candidate = study.space.decode_genes(proposal.candidate.genes)
            assert candidate is not None
            assert candidate.key == proposal.candidate.key
            metrics = FakeEvaluator().evaluate(candidate.design)
            values = (metrics.latency_us, float(metrics.pe_count), float(metrics.local_memory_bytes))
            asker.tell(proposal.number, Told(values, {}))
    return proposals


def test_no_design_is_proposed_twice_whoever_bred_it_and_numbers_have_no_gaps() -> None:
    study = fake_study()
    screen = Screen(study.space, check)
    asker = islands(study, Here(study, lost={4, 7}), screen)
    proposals = evaluated(study, asker, 30)
    assert asker.apart
    assert [p.number for p in proposals] == list(range(len(proposals)))
    keys = [p.candidate.key for p in proposals]
    assert len(set(keys)) == len(keys) > 10 * APPETITE
    assert sum(isinstance(p.candidate, Bred) for p in proposals) > len(proposals) - 2 * APPETITE
    assert not any(check(present.design) for p in proposals if (present := study.space.decode_genes(p.candidate.genes)))


def test_what_breaks_limits_is_known_and_written_once() -> None:
    study = fake_study()
    screen = Screen(study.space, check)
    evaluated(study, islands(study, Here(study), screen), 30)
    broken = [design.key for design, _ in screen.taken()]
    assert len(broken) == len(set(broken)) == screen.invalid > 0


def test_workers_breed_nothing_that_they_were_told_is_known_and_one_that_was_lost_is_told_all_again() -> None:
    study = fake_study()
    breeders = Here(study, lost={5})
    asker = islands(study, breeders, Screen(study.space, check))
    proposals = evaluated(study, asker, 30)
    assert not any(known & bred for known, bred in breeders.told)
    everything = max(len(known) for known, _ in breeders.told)
    assert everything > APPETITE  # by the one that was lost
    later = {p.candidate.key for p in proposals[2 * APPETITE : 10 * APPETITE]}
    assert later <= set[str]().union(*(known for known, _ in breeders.told))


def test_orders_are_large_and_every_worker_breeds() -> None:
    study = fake_study()
    breeders = Here(study)
    evaluated(study, islands(study, breeders, Screen(study.space, check)), 30)
    bred = [len(keys) for _, keys in breeders.told]
    assert len(bred) < sum(bred) / 8
    known = [nursery._screen.known for nursery in breeders.nurseries]
    assert min(map(len, map(list, known))) > sum(bred) / (2 * WORKERS)


def test_one_process_proposes_while_it_is_fast_enough() -> None:
    study = fake_study()
    breeders = Here(study, seconds=1e6)
    asker = islands(study, breeders, Screen(study.space, check))
    assert not any(isinstance(p.candidate, Bred) for p in evaluated(study, asker, 10))
    assert not breeders.orders
    assert not asker.apart


def test_a_space_is_exhausted_when_workers_find_nothing_new() -> None:
    study = fake_study(size=64, at_most=4, max_nodes=1)
    count = sum(not check(c.design) for c in study.space.designs())
    asker = islands(study, Here(study), Screen(study.space, check))
    proposals = evaluated(study, asker, 32)
    assert asker.exhausted
    assert asker.apart
    assert len({p.candidate.key for p in proposals}) == len(proposals) == count


def test_a_design_is_described_as_where_it_was_bred() -> None:
    study = fake_study()
    nursery = Nursery(study, FakeEvaluator())
    central = EvolutionProposer(
        Screen(study.space, check), study.least_losses(FakeEvaluator()), EvolutionSampler(0, **SIZES), strict=False
    )
    parents = [p.candidate.genes for p in central.ask(4, 0)]
    litter = nursery.breed(Order(0, 100, 5, parents, central.best()[1], SIZES))
    assert len(litter.designs) == 5
    for design in litter.designs:
        candidate = study.space.decode_genes(design.genes)
        assert candidate is not None
        assert {n: bytes(v) if n != "key" else v for n, v in described(candidate).items()} == {
            n: bytes(v) if n != "key" else v for n, v in described(design).items()
        }
        assert design.program == candidate.design.program.digest


@pytest.mark.parametrize("error", [StudyError("none keeps the limits")])
def test_an_order_that_fails_counts_as_lost(tmp_path: Path, error: StudyError) -> None:
    study = fake_study()
    asker = islands(study, Here(study, lost=set(range(1, 10**4))), Screen(study.space, check))
    proposals = evaluated(study, asker, 2 * JUDGED // APPETITE)
    assert [p.number for p in proposals] == list(range(len(proposals)))
    assert len(proposals) > APPETITE  # it goes on by itself


def test_it_goes_on_while_no_worker_is_there() -> None:
    study = fake_study()
    breeders = Here(study)
    breeders.idle = lambda: []  # type: ignore[method-assign]
    asker = islands(study, breeders, Screen(study.space, check))
    assert len(evaluated(study, asker, 4)) == 4 * APPETITE
    assert asker.apart
