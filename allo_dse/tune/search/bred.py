"""Proposals that are bred: our sampler outside Optuna."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Literal

import numpy as np

from allo_dse.common.records import keep
from allo_dse.space.choice import Suggest
from allo_dse.space.design import Design
from allo_dse.space.space import Candidate

from ..store.record import Record
from .exact import Proposal, Told
from .least import LeastLosses
from .screening import Screen

if TYPE_CHECKING:
    from allo_dse.space.sampler.optuna_sampler import EvolutionSampler
    from allo_dse.space.sampler.pareto import Individual

MOST_OUTDONE = 100_000  # keys that are kept


class EvolutionProposer:
    """Evolutionary sampler of this package, outside Optuna.

    Children are screened before they count. No Optuna trials are made, which would take a fifth of the driver's time.

    Args:
        strict: whether proposals must not depend on evaluation times.
        alone: whether to propose unseen designs that it did not breed once it breeds nothing new, until all designs of
            the space are known.
    """

    name = "evolution"

    def __init__(
        self,
        screen: Screen,
        least: LeastLosses,
        sampler: EvolutionSampler,
        *,
        strict: bool,
        alone: bool = True,
    ) -> None:
        self._alone, space = alone, screen.space
        self._least = least
        self._search = sampler.search(space.genes, len(least.objectives))
        self._screen = screen
        self._space = space
        self._signs = [o.sign for o in least.objectives]
        self._strict = strict
        self._genes: dict[int, dict[str, int]] = {}
        self._outdone: dict[str, None] = {}  # keys of designs found to be outdone
        self.exhausted = False

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        proposals: list[Proposal] = []
        for _ in range(count):
            if self._strict and self._search.room(outstanding + len(proposals)) == 0:
                break
            number = self._search.next_number
            candidate = self._search.propose(self._decode, self._screen.any_new if self._alone else None)
            if candidate is None:
                self.exhausted = True
                break
            self._genes[number] = self._search.pending[number] = candidate.genes
            proposals.append(Proposal(number, candidate))
        return proposals

    def _decode(self, suggest: Suggest, picky: bool) -> Candidate | Literal[False] | None:
        return self._screen.decode_unless(self._is_outdone if picky else None, suggest)

    def _is_outdone(self, design: Design) -> bool:
        """Return whether a design that was found is at least as good as this one can be.

        Bounds reveal a change that leaves the bottleneck as it was.
        """
        if design.key in self._outdone:
            return True
        bounds = (self._least(design, level) for level in range(self._least.levels))
        if not any(found is None or self._search.outdoes(found) for found in bounds):
            return False
        keep(self._outdone, design.key, None, MOST_OUTDONE)
        return True

    def tell(self, number: int, told: Told) -> None:
        self._search.learn(self._individual(number, self._genes.pop(number), told))

    def take_over(self, number: int, genes: dict[str, int]) -> None:
        """Count a design that was proposed elsewhere as proposed, as the next one."""
        self._search.pass_over()
        self._genes[number] = self._search.pending[number] = self._space.learn(genes)

    def learn(self, key: str, genes: dict[str, int], told: Told) -> int:
        number = self._search.next_number
        self._search.adopt(self._individual(number, genes, told))
        return number

    def _individual(self, number: int, genes: dict[str, int], told: Told) -> Individual:
        from allo_dse.space.sampler.pareto import Individual

        return Individual(number, genes, self._losses(told), told.constraints)

    def _losses(self, told: Told) -> tuple[float, ...]:
        if not told.values:
            return (math.inf,) * len(self._signs)
        return tuple(s * v for s, v in zip(self._signs, told.values, strict=True))

    def revise(self, told: Mapping[int, Told]) -> None:
        self._search.revise({number: (self._losses(found), found.constraints) for number, found in told.items()})

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        from allo_dse.space.sampler.pareto import Results

        # Convert results one by one: to keep a million of them takes as long to allocate as to compute.
        rows = ((*self._losses(one), one.penalty) for one in map(told, history))
        found = np.fromiter(chain.from_iterable(rows), float).reshape(-1, len(self._signs) + 1)
        numbers = np.array([record.number for record in history], np.int64)
        results = Results(numbers, np.ascontiguousarray(found[:, :-1]), found[:, -1])

        def individual(n: int) -> Individual:
            return self._individual(history[n].number, self._space.learn(history[n].genes), told(history[n]))

        self._search.restore(results, individual, next_number)
