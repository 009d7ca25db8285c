"""Exact search, which ends with a proof: designs in the order of their bounds; those that cannot be better are skipped.

A design is decided without being built if its bounds are no better than a design of the front in every objective. The
next proposal depends on bounds, results and the trials asked for, so an interrupted run resumes with the same trials as
if it had not been interrupted.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import accumulate, islice

import numpy as np

from allo_dse.common.records import replace
from allo_dse.space.genes import Genes, random_suggest
from allo_dse.space.regions import Region, regions_of
from allo_dse.space.space import Candidate

from ..store.certificate import Certificate, Gap
from ..store.record import Record
from .best_first_queue import REGION, BestFirstQueue
from .lower_bounds import Losses, LowerBounds
from .proposer import Outcome, OutcomeOf, Proposer
from .screening import Screen

MOST_KEPT = 256
"""Number of waiting designs that keep the inputs of their bounds: a graph and a transport plan each."""
_AT_ONCE = 256  # regions or designs whose bounds are computed in one batch
ALL_BOUNDED = 10_000  # designs of a space that all get tight bounds before the second proposal: ten seconds
PER_TRIAL = 300  # designs of larger spaces that do, for each trial, which takes some hundred times as long
FIRST_OF_PROGRAM = 10
"""Weight of the first design of a program and its directives: its bounds take 10 to 50 times as long as the others'."""
DRAWN = 16  # random proposals before the first design is that with the best bounds; most can be repaired

Ranked = tuple[int, Region | Candidate]


class OpenDesigns:
    """The designs of a space that an exact search has not decided.

    Attributes:
        designs: number of listed designs.
        listed: whether these are all.
        queue: of those that are open.
    """

    def __init__(self, screen: Screen, lower_bounds: LowerBounds, sample: float = math.inf) -> None:
        self._space, self._screen, self._lower_bounds = screen.space, screen, lower_bounds
        self._sample, self._programs = sample, set[Hashable]()
        self.queue = BestFirstQueue(len(lower_bounds.objectives))
        self._built: OrderedDict[int, None] = OrderedDict()
        regions = regions_of(self._space) if lower_bounds.knows_regions else None
        self._listing: Iterator[list[Ranked]] = batched(
            ((BestFirstQueue.rank(0, place), one) for place, one in enumerate(self._space.designs(), 1))
            if regions is None
            else ((BestFirstQueue.rank(number), region) for number, region in enumerate(regions))
        )
        self.designs, self.listed = 0, False

    def left(self) -> bool:
        """Return whether a design is open."""
        return self._ahead() is not None

    def next(self) -> tuple[Candidate, Losses] | None:
        """The next design to evaluate, with its bounds; None when all are decided."""
        queue = self.queue
        while (position := self._ahead()) is not None:
            item, bounds = queue.items[position], tuple(queue.bounds[position].tolist())
            queue.decide(position)
            if isinstance(item, Candidate) and self._screen.admit(item) == "new":
                return item, bounds
        return None

    def _ahead(self) -> int | None:
        """Return the position of the next unknown design with all its bounds; None if all are decided."""
        if not self.listed:
            self._list()
        queue, last = self.queue, self._lower_bounds.levels - 1
        while (position := queue.next()) is not None:
            item = queue.items[position]
            if isinstance(item, Region):
                self._expand(position, item)
                continue
            assert isinstance(item, Candidate)
            # Keys are slow to compute, and this search never repeats its own designs: check only if there are others.
            if self._screen.has_others and self._screen.knows(item.key):
                queue.decide(position)
                continue
            # A tighter bound costs less than an evaluation. So evaluate a design only if its last bound does not rule
            # it out, or time is up.
            level = queue.level[position]
            if level >= last or self._screen.meanwhile():
                return position
            if level == 0 and self._screen.refuses_soon(item):
                queue.decide(position)
            else:
                self._refine(position, item)
        return None

    def _list(self) -> None:
        """Take in all regions, or all designs, with their first bounds; only some if time is up."""
        for batch in self._listing:
            for _, item in batch:
                self.designs += item.size if isinstance(item, Region) else 1
                if isinstance(item, Candidate):
                    self._programs.add((str(item.params), item.design.schedule))
            self._take_in(batch)
            if self._screen.meanwhile() and self.queue.open:
                return
        self.listed = True
        if self._programs and self.designs > self._sample:
            more = (FIRST_OF_PROGRAM - 1) * len(self._programs)
            if self.designs + more > ALL_BOUNDED:
                self.queue.share = max(self._sample / FIRST_OF_PROGRAM, self._sample - more) / self.designs

    def _take_in(self, items: Iterable[Ranked]) -> None:
        """Add regions or designs by rank; those that break a constraint or are known count as decided."""
        for batch in batched(items):
            bounded: list[tuple[int, Region | Candidate, Losses]] = []
            for rank, item in batch:
                self._screen.meanwhile()
                bounds = (
                    self._lower_bounds.of_region(item)
                    if isinstance(item, Region)
                    else self._lower_bounds(item.design, 0)
                )
                if bounds is not None:
                    bounded.append((rank, item, bounds))
            if bounded:
                ranks, found, bounds = zip(*bounded, strict=True)
                level = REGION if isinstance(found[0], Region) else 0
                self.queue.add(found, np.array(bounds, float), ranks, level)

    def _expand(self, position: int, region: Region) -> None:
        """Make the parts of a region, or the designs of a part."""
        rank = self.queue.rank_of(position)
        self.queue.decide(position)
        if region.layout is None:
            parts = list(region.parts())
            ranks = accumulate((part.size for part in parts), initial=rank)
            self._take_in(zip(ranks, parts, strict=False))
        else:
            self._take_in(enumerate(region.candidates(), rank))
        if self.queue.compact():
            self._built.clear()

    def _refine(self, position: int, candidate: Candidate) -> None:
        """Compute the next bounds of a design, which may bring it nearer to the front or decide it."""
        queue = self.queue
        queue.level[position] += 1
        found = self._lower_bounds(candidate.design, int(queue.level[position]))
        if found is None:
            queue.decide(position)
        elif queue.tighten(position, found):
            self._built[position] = None
            if len(self._built) > MOST_KEPT:
                oldest, _ = self._built.popitem(last=False)
                kept = queue.items[oldest]
                if isinstance(kept, Candidate):
                    queue.items[oldest] = replace(kept, design=replace(kept.design))


def batched(items: Iterable[Ranked]) -> Iterator[list[Ranked]]:
    """Items in lists that are not too long."""
    rest = iter(items)
    return iter(lambda: list(islice(rest, _AT_ONCE)), [])


class ExactProposer(Proposer):
    """Proposes the design whose bounds are furthest from the front, until all are decided.

    No design is further away from the front than its bounds (`best_first_queue.py`), so the front is soon near all open
    designs. A region is expanded into parts, and then into designs, when it is the furthest item (`OpenDesigns`).

    Args:
        strict: whether proposals must not depend on evaluation times.
        trials: designs to evaluate, which determine the first sample of a large space; None for all of it.

    Attributes:
        open_designs: source of designs.
    """

    name = "exact"

    def __init__(self, screen: Screen, lower_bounds: LowerBounds, *, trials: int | None = None, strict: bool) -> None:
        self._space, self._screen, self._lower_bounds, self._strict = screen.space, screen, lower_bounds, strict
        self._signs = [o.sign for o in lower_bounds.objectives]
        self._proposed: dict[int, Losses] = {}  # bounds, by proposal
        self._evaluated = self._failed = 0
        self.open_designs = OpenDesigns(screen, lower_bounds, math.inf if trials is None else PER_TRIAL * trials)

    def _next(self) -> Candidate | None:
        if (found := self._drawn() or self.open_designs.next()) is None:
            self.exhausted = not self.open_designs.left()
            return None
        candidate, self._proposed[self._number] = found
        return candidate

    def _drawn(self) -> tuple[Candidate, Losses] | None:
        """Draw the first design, which is evaluated before the space is listed: a front is there at once."""
        rng = np.random.default_rng(0)
        for _ in range(0 if self._number else DRAWN):
            if found := self._screen.decode_unless(None, random_suggest(rng)):
                return found, self._lower_bounds.nothing
        return None

    def tell(self, number: int, outcome: Outcome) -> None:
        del self._proposed[number]
        self._take(outcome)

    def learn(self, key: str, genes: Genes, outcome: Outcome) -> int:
        self._take(outcome)
        return super().learn(key, genes, outcome)

    def _take(self, outcome: Outcome) -> None:
        self._evaluated += 1
        self._failed += outcome.values is None
        if outcome.values is not None and outcome.penalty <= 0:
            self.open_designs.queue.found(np.multiply(self._signs, outcome.values))

    def restore(self, history: Sequence[Record], outcome_of: OutcomeOf, next_number: int) -> None:
        for record in history:
            self._take(outcome_of(record))
        super().restore(history, outcome_of, next_number)

    def certificate(self) -> Certificate:
        """Return the decisions made so far."""
        open_designs, evaluated, refused = self.open_designs, self._evaluated, self._screen.invalid
        # Designs that an earlier run decided stay open until it is their turn.
        still = open_designs.queue.open + len(self._proposed)
        return Certificate(
            designs=open_designs.designs,
            listed=open_designs.listed,
            evaluated=evaluated,
            failed=self._failed,
            refused=refused,
            bounded=max(0, open_designs.designs - evaluated - refused - still) if open_designs.listed else 0,
            open=still,
            gaps=self._gaps(),
            unbounded=tuple(self._lower_bounds.unbounded),
            feasible=len(open_designs.queue.front) > 0,
            scope="; ".join(filter(None, (getattr(choice, "scope", "") for choice in self._space.choices))),
        )

    def _gaps(self) -> tuple[Gap, ...]:
        """Return the largest improvement that an undecided design can bring, for each objective."""
        objectives = self._lower_bounds.objectives
        if not self.open_designs.listed:
            return tuple(Gap(o.name, o.direction, None) for o in objectives)
        best = self.open_designs.queue.front.min(0, initial=math.inf)
        # An open design may be as good as its bound; one under evaluation, as good as the bound it was proposed with.
        undecided = np.vstack([best, self.open_designs.queue.open_bounds, *self._proposed.values()])
        return tuple(
            Gap(o.name, o.direction, _share(found, bound), None if math.isinf(bound) else o.sign * bound)
            for o, found, bound in zip(objectives, best.tolist(), undecided.min(0).tolist(), strict=True)
        )


def _share(found: float, bound: float) -> float | None:
    """Return how much better a bound is than the best value, as a share of it; None if it is undefined."""
    if math.isinf(found) or math.isinf(bound):
        return None
    return (found - bound) / abs(found) if found else None if bound < 0 else 0.0
