"""What proposes designs, whatever it is: the protocol that the driver's loop speaks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct

from allo_dse.space.space import Candidate

from ..store.certificate import Certificate
from ..store.record import Record


class Proposal(Struct, frozen=True):
    """A new and legal design to evaluate."""

    number: int
    candidate: Candidate


class Told(NamedTuple):
    """What a model learns of an evaluated design: its values, or why it has none that count."""

    values: tuple[float, ...] | None
    constraints: Mapping[str, float]

    @property
    def penalty(self) -> float:
        """How much the constraints are violated in all."""
        return sum(self.constraints.values())


class Proposer(Protocol):
    """Proposes designs and learns from their results.

    One that decides about designs without evaluating them has a method `certificate()` that says how far it is.
    """

    name: str
    exhausted: bool

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        """Up to `count` proposals; fewer, or none, when results of the `outstanding` ones are needed first."""
        ...

    def tell(self, number: int, told: Told) -> None:
        """Report the result of a proposal."""
        ...

    def learn(self, key: str, genes: dict[str, int], told: Told) -> int:
        """Take in an evaluated design that was proposed elsewhere; returns the number it gets here."""
        ...

    def revise(self, told: Mapping[int, Told]) -> None:
        """Take in that results have changed, by the numbers of their proposals."""
        ...

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        """Go on where an earlier run stopped, after `next_number` proposals.

        Args:
            told: what a model learns of a record.
        """
        ...


def certificate_of(proposer: Proposer) -> Certificate | None:
    """What a proposer has decided about the space; None of one that decides nothing."""
    decided = getattr(proposer, "certificate", None)
    found: Certificate | None = decided() if callable(decided) else None
    return found
