"""Exact search, which ends with a proof: designs in the order of their bounds; those that cannot be better are skipped.

A design is decided without being built if its bounds are no better than a design of the front in every objective. The
next proposal depends on bounds and results alone, so an interrupted run resumes as if it had not been interrupted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from msgspec import Struct

from allo_dse.space.space import Candidate, Space

from ..store.certificate import Certificate, Gap
from ..store.record import Record
from .least import LeastLosses, Losses
from .prospect import Prospect
from .screening import Screen

# The protocol between proposers and the driver's loop.


class Proposal(Struct, frozen=True):
    """A new and legal design to evaluate."""

    number: int
    candidate: Candidate


class Told(NamedTuple):
    """Result of a design as a model learns it: its values, or why it has none that count."""

    values: tuple[float, ...] | None
    constraints: Mapping[str, float]

    @property
    def penalty(self) -> float:
        """Total violation of the constraints."""
        return sum(self.constraints.values())


class Proposer(Protocol):
    """Proposes designs and learns from their results.

    A proposer that decides designs without evaluating them has a method `certificate()` that reports its progress.
    """

    name: str
    exhausted: bool

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        """Return up to `count` proposals; fewer, or none, if results of the `outstanding` ones are needed first."""
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
        """Resume after an earlier run with `next_number` proposals.

        Args:
            told: turns a record into the result that a model learns.
        """
        ...


def certificate_of(proposer: Proposer) -> Certificate | None:
    """Return the proposer's decisions about the space, or None if it makes none."""
    decided = getattr(proposer, "certificate", None)
    found: Certificate | None = decided() if callable(decided) else None
    return found


class ExactProposer:
    """Proposes the design whose bounds are furthest from the front, until all are decided.

    No design is further away from the front than its bounds (`undecided.py`). So the front soon is near to all open
    designs. A region is expanded into parts, and then into designs, when it is the furthest item (`prospect.py`).

    Args:
        strict: whether proposals must not depend on evaluation times.

    Attributes:
        ground: source of designs.
    """

    name = "exact"

    def __init__(self, space: Space, screen: Screen, least: LeastLosses, *, strict: bool) -> None:
        self._space, self._screen, self._least, self._strict = space, screen, least, strict
        self._signs = [o.sign for o in least.objectives]
        self._proposed: dict[int, Losses] = {}  # bounds, by proposal
        self._number = self._evaluated = self._failed = 0
        self.ground = Prospect(space, screen, least)
        self.exhausted = False

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        if self._strict:
            count = min(count, 0 if outstanding else 1)
        proposals: list[Proposal] = []
        while len(proposals) < count:
            found = self.ground.next()
            if found is None:
                self.exhausted = not self.ground.left()
                break
            self._proposed[self._number] = found.bounds
            proposals.append(Proposal(self._number, found.candidate))
            self._number += 1
        return proposals

    def tell(self, number: int, told: Told) -> None:
        del self._proposed[number]
        self._take(told)

    def learn(self, key: str, genes: dict[str, int], told: Told) -> int:
        self._take(told)
        self._number += 1
        return self._number - 1

    def _take(self, told: Told) -> None:
        self._evaluated += 1
        self._failed += told.values is None
        if told.values is None or told.penalty > 0:
            return
        self.ground.found(np.array([[s * v for s, v in zip(self._signs, told.values, strict=True)]]))

    def revise(self, told: Mapping[int, Told]) -> None:
        """Do nothing: values only change with rungs above the first, and then bounds rule nothing out."""

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        for record in history:
            self._take(told(record))
        self._number = next_number

    def certificate(self) -> Certificate:
        """Return the decisions made so far."""
        ground, evaluated, refused = self.ground, self._evaluated, self._screen.invalid
        # Designs that an earlier run decided stay open until it is their turn.
        still = ground.open + len(self._proposed)
        return Certificate(
            designs=ground.designs,
            listed=ground.listed,
            evaluated=evaluated,
            failed=self._failed,
            refused=refused,
            bounded=max(0, ground.designs - evaluated - refused - still) if ground.listed else 0,
            open=still,
            gaps=self._gaps(),
            unbounded=tuple(self._least.unbounded),
            feasible=len(ground.front) > 0,
            scope="; ".join(filter(None, (getattr(choice, "scope", "") for choice in self._space.choices))),
        )

    def _gaps(self) -> tuple[Gap, ...]:
        """Return the largest improvement that an undecided design can bring, for each objective."""
        objectives = self._least.objectives
        if not self.ground.listed:
            return tuple(Gap(o.name, o.direction, None) for o in objectives)
        best = self.ground.front.min(0, initial=math.inf)
        # An open design may be as good as its bound; one under evaluation, as good as the bound it was proposed with.
        undecided = np.vstack([best, self.ground.least, *self._proposed.values()])
        return tuple(
            Gap(o.name, o.direction, _share(found, bound), None if math.isinf(bound) else o.sign * bound)
            for o, found, bound in zip(objectives, best.tolist(), undecided.min(0).tolist(), strict=True)
        )


def _share(found: float, bound: float) -> float | None:
    """Return how much better a bound is than the best value, as a share of it; None if it is undefined."""
    if math.isinf(found) or math.isinf(bound):
        return None
    return (found - bound) / abs(found) if found else None if bound < 0 else 0.0
