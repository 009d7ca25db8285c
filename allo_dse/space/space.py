"""The space of a study: every legal combination of the options of its choices."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from statistics import fmean, pstdev
from typing import TYPE_CHECKING

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace

from .design import Draft
from .genes import Gene, Genes, Suggest, suggest_from
from .params import Assignment

if TYPE_CHECKING:
    from .choice import Choice
    from .design import Design


FEWEST_PROBES, PROBES = 16, 64  # random designs from which the size of a space is estimated
SURE = 3.0  # standard errors
CERTAIN = 1000  # times a number that an unbiased estimate exceeds with a probability below one thousandth (Markov)
MOST = 1e150  # designs that an estimate tells apart: squares of their numbers are finite


class Candidate(Struct, frozen=True):
    """A proposed design, with the genes it was decoded from."""

    genes: Genes
    params: Assignment
    design: Design

    @property
    def key(self) -> str:
        return self.design.key


class Space:
    """Generates designs, counts them when they are few, and converts them to and from genes.

    Args:
        start: a draft with everything that is decided beforehand.
        choices: in the order in which they are made; each reads only fields that earlier ones write.

    Attributes:
        genes: the range of every gene met so far.
    """

    def __init__(self, start: Draft, choices: Sequence[Choice]) -> None:
        self.start = start
        self.choices = tuple(choices)
        self.genes: dict[str, Gene] = {}
        for position, choice in enumerate(self.choices):
            parts = (self.choices[:position], self.choices[position:])
            before, after = (frozenset[str]().union(*(one.writes for one in part)) for part in parts)
            if late := choice.reads & after - before:
                raise StudyError(
                    f"{type(choice).__name__} depends on {', '.join(sorted(late))}, which is decided after it",
                    hint="order the choices so that each comes after those it depends on",
                )

    def decode(self, suggest: Suggest, *, literal: bool = False) -> Candidate | None:
        """Return the design of the genes, or None where a condition of the study or the folding rules forbid it.

        Args:
            literal: see `Draft`.
        """
        genes: Genes = {}

        def ask(name: str, gene: Gene) -> int:
            self.genes[name] = gene
            genes[name] = suggest(name, gene)
            return genes[name]

        draft, undecided = replace(self.start, literal=literal) if literal else self.start, frozenset[str]()
        for choice in self.choices:
            if undecided & choice.reads:
                return None
            decided = choice.decode(draft, ask)
            if decided is None:
                # Ask the others anyway, so that the proposals of a seed do not depend on which options are illegal.
                undecided |= choice.writes
            else:
                draft = decided
        return None if undecided else Candidate(genes, draft.params, draft.design())

    def decode_genes(self, genes: Genes, *, literal: bool = False) -> Candidate | None:
        """The design of stored genes."""
        return self.decode(suggest_from(genes), literal=literal)

    def learn(self, genes: Genes) -> Genes:
        """The genes of a design of this space, whose ranges are all in `genes` from now on."""
        if not genes.keys() <= self.genes.keys():
            self.decode_genes(genes)
        return genes

    def encode(self, design: Design) -> Genes:
        """Genes that decode to this design.

        Raises:
            StudyError: when it is not in the space.
        """
        draft, genes = self.start, Genes()
        for choice in self.choices:
            own = choice.encode(draft, design)
            decided = choice.decode(draft, suggest_from(own))
            if decided is None:
                raise StudyError(f"the design is not in the space: {type(choice).__name__} does not allow it")
            draft = decided
            genes.update(own)
        return genes

    def estimate(self, limit: float = math.inf) -> tuple[float, float]:
        """Return an estimate of the number of designs, and its standard error.

        Each probe decides everything at random and stands for as many designs as there were ways to decide (D. Knuth,
        "Estimating the efficiency of backtrack programs", Mathematics of Computation 29(129), 1975).

        Args:
            limit: a number of designs that ends the estimate if there are clearly more, or clearly fewer.
        """
        rng, found = np.random.default_rng(0), list[float]()
        about = error = 0.0
        while len(found) < PROBES and not _clearly_more(len(found), about, error, limit):
            draft: Draft | None = self.start
            total = 1.0
            for choice in self.choices:
                if draft is not None:
                    draft, ways = choice.probe(draft, rng)
                    total = min(MOST, total * ways)
            found.append(0.0 if draft is None else total)
            about, error = fmean(found), pstdev(found) / math.sqrt(len(found))
            if len(found) >= FEWEST_PROBES and 0 < about + SURE * error < limit < math.inf:
                break
        return about, error

    def count(self, limit: int, over: Callable[[], bool] = lambda: False) -> int | None:
        """Return the number of designs that the space generates, or None if it exceeds `limit`.

        It is None too if a choice has more options that lead to no design. Nothing is counted if an estimate clearly
        exceeds twice the limit.

        Args:
            over: returns whether to give up.
        """
        if _clearly_more(PROBES, *self.estimate(2 * limit), 2 * limit):
            return None
        total = self._count(0, self.start, limit, over)
        return total if total <= limit else None

    def _count(self, position: int, draft: Draft, limit: int, over: Callable[[], bool]) -> int:
        """Return the number of designs once the choices before a position are made.

        A choice is counted without being made only if no later choice depends on it.
        """
        if position == len(self.choices):
            return 1
        choice, later = self.choices[position], self.choices[position + 1 :]
        if not any(choice.writes & other.reads for other in later):
            own = choice.count(draft, limit)
            return own * self._count(position + 1, draft, limit, over) if own else 0
        total = 0
        for made, (option, _) in enumerate(choice.options(draft)):
            if made >= max(1, limit) or over():
                return limit + 1
            total += self._count(position + 1, option, limit, over) if option is not None else 0
            if total > limit:
                break
        return total

    def designs(self) -> Iterator[Candidate]:
        """Every design; the last choice varies fastest."""
        for draft, genes in self.drafts():
            yield Candidate(genes, draft.params, draft.design())

    def drafts(self) -> Iterator[tuple[Draft, Genes]]:
        """Every way to make all choices, and the genes that mean it."""
        return self._drafts(0, self.start)

    def _drafts(self, position: int, draft: Draft) -> Iterator[tuple[Draft, Genes]]:
        if position == len(self.choices):
            yield draft, {}
            return
        for option, genes in self.choices[position].options(draft):
            if option is not None:
                for decided, more in self._drafts(position + 1, option):
                    yield decided, {**genes, **more}

    def describe(self) -> dict[str, object]:
        """Return everything that decides the meaning of genes, as plain data; a resumed run needs the same."""
        return {name: value for choice in self.choices for name, value in choice.describe().items()}

    @cached_property
    def fingerprint(self) -> str:
        return hashlib.sha256(json.dumps(self.describe(), sort_keys=True).encode()).hexdigest()[:16]


def _clearly_more(probes: int, about: float, error: float, limit: float) -> bool:
    """Return whether an estimate shows that there are more designs than a limit."""
    return about > CERTAIN * limit or (probes >= FEWEST_PROBES and about - SURE * error > limit)
