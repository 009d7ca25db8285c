"""The protocol between proposers and the driver's loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from allo_dse.space.genes import Genes
from allo_dse.space.space import Candidate

from ..store.certificate import Certificate
from ..store.record import Record


class Proposal(Struct, frozen=True):
    """A new and legal design to evaluate."""

    number: int
    candidate: Candidate


class Outcome(NamedTuple):
    """Result of a design as a model learns it: its values, or why it has none that count."""

    values: tuple[float, ...] | None
    constraints: Mapping[str, float]

    @property
    def penalty(self) -> float:
        """Total violation of the constraints."""
        return sum(self.constraints.values())


OutcomeOf = Callable[[Record], Outcome]


class Proposer:
    """Proposes designs. Those that learn from results override more than `ask` or `_next`."""

    name: str
    exhausted = False
    _number = 0  # of the next proposal
    _strict = False  # whether proposals must not depend on evaluation times

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        """Return up to `count` proposals; fewer, or none, if results of the `outstanding` ones are needed first."""
        if self._strict:
            count = min(count, 0 if outstanding else 1)
        proposals: list[Proposal] = []
        while len(proposals) < count and (candidate := self._next()) is not None:
            proposals.append(Proposal(self._number, candidate))
            self._number += 1
        return proposals

    def _next(self) -> Candidate | None:
        """Return the next design to evaluate; None if there is none now."""
        raise NotImplementedError

    def tell(self, number: int, outcome: Outcome) -> None:
        """Report the result of a proposal."""

    def learn(self, key: str, genes: Genes, outcome: Outcome) -> int:
        """Take in an evaluated design that was proposed elsewhere; returns the number it gets here."""
        self._number += 1
        return self._number - 1

    def revise(self, outcome: Mapping[int, Outcome]) -> None:
        """Take in that results have changed, by the numbers of their proposals."""

    def restore(self, history: Sequence[Record], outcome_of: OutcomeOf, next_number: int) -> None:
        """Resume after an earlier run with `next_number` proposals.

        Args:
            outcome_of: turns a record into the result that a model learns.
        """
        self._number = next_number

    def certificate(self) -> Certificate | None:
        """Return the decisions about the space, or None if it makes none."""
        return None
