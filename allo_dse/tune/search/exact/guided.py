"""What `sampler="auto"` does where designs have bounds: it goes by them alone, or by them and by breeding in turn.

Bounds that are nearer to the values than designs are to each other say which design is better, and going by them alone
ends soonest. Where they are not, every other design is bred: then neither way costs more than twice what it would
alone, each learns from the other, and the run still ends with a proof. Which it is follows from the first designs that
were evaluated, whoever proposed them, so that a run that was interrupted goes on as if it had not been.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from allo_dse.space.gene import Genes
from allo_dse.space.space import Space

from ...store.record import Record
from ..bred import EvolutionProposer
from ..least import LeastLosses, Losses
from ..protocol import Proposal, Told
from ..screening import Screen
from .by_bounds import ExactProposer
from .undecided import distance, magnitude

FIRST = 32
"""Designs that say how good bounds are: half of so many is a share of 0.50 +- 0.09."""


class GuidedProposer(ExactProposer):
    """Goes by bounds, and breeds every other design where bounds say too little.

    Args:
        breeder: makes what breeds, when it is needed.
    """

    name = "auto"

    def __init__(
        self,
        space: Space,
        screen: Screen,
        least: LeastLosses,
        breeder: Callable[[], EvolutionProposer],
        *,
        strict: bool,
    ) -> None:
        super().__init__(space, screen, least, strict=strict)
        self._breeder = breeder
        self._bred: EvolutionProposer | None = None
        self._asked: dict[int, Genes] = {}  # all designs, until the first ones have said how good bounds are
        self._first: dict[int, Told] = {}  # in the order of results

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        if self._strict:
            count = min(count, 0 if outstanding else 1)
        proposals: list[Proposal] = []
        while len(proposals) < count:
            found = self._breed() if self._bred and self._number % 2 else []
            if not found:
                found = super().ask(1, 0)
                for proposal in found:
                    self._note(proposal.number, proposal.candidate.genes)
            if not found:
                break
            proposals += found
        return proposals

    def _breed(self) -> list[Proposal]:
        assert self._bred is not None
        found = self._bred.ask(1, 0) if self.ground.left() else []
        for proposal in found:
            self._proposed[proposal.number] = self._bounds_of(proposal.candidate.genes)
            self._number += 1
        return found

    def _bounds_of(self, genes: Genes) -> Losses:
        """What is known of a design before it is evaluated."""
        candidate, found = self._space.decode_genes(genes), self._least.nothing
        for level in range(self._least.levels if candidate else 0):
            own = self._least(candidate.design, level) if candidate else None
            found = tuple(map(max, found, own or found))
        return found

    def _note(self, number: int, genes: Genes) -> None:
        """A design has been proposed by bounds, or elsewhere."""
        if self._bred:
            self._bred.take_over(number, genes)
        elif len(self._first) < FIRST:
            self._asked[number] = genes

    def tell(self, number: int, told: Told) -> None:
        super().tell(number, told)
        self._hear(number, told)

    def learn(self, key: str, genes: Genes, told: Told) -> int:
        number = super().learn(key, genes, told)
        self._note(number, genes)
        self._hear(number, told)
        return number

    def _hear(self, number: int, told: Told) -> None:
        if self._bred:
            self._bred.tell(number, told)
        elif len(self._first) < FIRST:
            self._first[number] = told
            if len(self._first) == FIRST:
                self._begin_to_breed()

    def _begin_to_breed(self) -> None:
        """Where the first designs say so."""
        if not self._bounds_tell_apart():
            self._bred = self._breeder()
            for number, genes in sorted(self._asked.items()):
                self._bred.take_over(number, genes)
                if number in self._first:
                    self._bred.tell(number, self._first[number])
        self._asked.clear()

    def _bounds_tell_apart(self) -> bool:
        """Whether half of the first designs are nearer to their bounds than to any other of them."""
        known = [(self._bounds_of(self._asked[n]), told.values) for n, told in self._first.items() if told.values]
        if not known:
            return False
        losses = np.array([values for _, values in known], float) * self._signs
        loose = distance(losses, np.array([bounds for bounds, _ in known]))
        places = magnitude(losses)
        with np.errstate(invalid="ignore"):
            apart = np.abs(places[:, None] - places[None]).max(-1)
        np.fill_diagonal(apart, np.inf)
        return bool(2 * np.count_nonzero(loose < apart.min(1)) >= FIRST)

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        super().restore(history, told, next_number)
        self._asked = {record.number: record.genes for record in history[:FIRST]}
        self._first = {record.number: told(record) for record in history[:FIRST]}
        if len(self._first) == FIRST:
            if not self._bounds_tell_apart():
                self._bred = self._breeder()
                self._bred.restore(history, told, next_number)
            self._asked.clear()
