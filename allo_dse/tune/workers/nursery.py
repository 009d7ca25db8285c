"""Breeding designs in workers: what a driver orders, and what it gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from msgspec import Struct

from allo_dse.eval.evaluator import Evaluator
from allo_dse.space.design import Design
from allo_dse.space.gene import Genes
from allo_dse.space.sampler.selection import Floats

from ..declare.spec import StudySpec
from ..search.bred import EvolutionProposer
from ..search.screening import Screen
from ..store.described import Bred, bred

Broken = tuple[Bred, list[dict[str, str]]]
"""A design that breaks limits of the device, and what it breaks."""


class Order(Struct, frozen=True):
    """Designs wanted.

    Attributes:
        seed: of the search.
        first: number of the first of them; no other order has numbers up to `first + count`.
        parents: genes of the best designs, best first.
        front: losses of the best designs, (designs, objectives): children that cannot be better are passed over.
        sizes: of the search.
        known: keys of designs that others have bred.
    """

    seed: int
    first: int
    count: int
    parents: Sequence[Genes]
    front: Floats
    sizes: dict[str, int]
    known: Sequence[str] = ()


@dataclass
class Litter:
    """What was bred.

    Attributes:
        designs: new and legal ones, as far as the worker knows; `broken`: those that break limits.
        repeats, illegal: proposals of known designs; proposals that no design corresponds to.
    """

    designs: list[Bred] = field(default_factory=list)
    broken: list[Broken] = field(default_factory=list)
    repeats: int = 0
    illegal: int = 0


class Nursery:
    """Breeds designs of a study that it has not bred before, nor others as far as it was told.

    Args:
        pause: called between designs.
    """

    def __init__(self, study: StudySpec, evaluator: Evaluator, pause: Callable[[], None] = lambda: None) -> None:
        self._study, self._least, self._pause = study, study.least_losses(evaluator), pause
        self._screen = Screen(study.space, study.check, self._check_soon)
        self._proposer: EvolutionProposer | None = None

    def _check_soon(self, design: Design) -> Sequence[Any]:
        self._pause()
        return self._study.check_soon(design)

    def breed(self, order: Order) -> Litter:
        """Breed designs; fewer than were ordered when nothing new is found any more.

        Raises:
            StudyError: when no design seems to keep the limits.
        """
        if self._proposer is None:
            from allo_dse.space.sampler.optuna_sampler import EvolutionSampler  # Optuna is slow to import

            sampler = EvolutionSampler(order.seed, **order.sizes)
            self._proposer = EvolutionProposer(self._screen, self._least, sampler, strict=False, alone=False)
        repeats, illegal = self._screen.repeats, self._screen.illegal
        self._screen.know(order.known)
        for parent in order.parents:
            self._study.space.learn(parent)
        found = self._proposer.breed(order.first, order.count, order.parents, order.front)
        return Litter(
            [bred(candidate) for candidate in found],
            [(bred(candidate), violations) for candidate, violations in self._screen.taken()],
            self._screen.repeats - repeats,
            self._screen.illegal - illegal,
        )
