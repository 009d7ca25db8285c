"""Proposals that workers breed, where one process cannot propose as fast as they evaluate.

Breeding a design, decoding it and checking it against the limits of the device takes milliseconds; taking in one that a
worker has bred takes some ten microseconds. So the driver only chooses the parents, tells which of the workers' designs
are new, and numbers them. Every design passes it before it is evaluated: none is evaluated twice. Workers are told
which designs have become known: else most of what they breed late in a search others have bred before.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice

from ..search.bred import EvolutionProposer
from ..search.protocol import Proposal, Told
from ..search.screening import Screen
from ..store.described import Bred
from ..store.record import Record
from ..workers.breeders import Breeders
from ..workers.nursery import Litter, Order

LATE = 0.5  # time to propose, as a share of the time between results, from which on workers breed
LITTER = 16  # designs of an order at least: Ray, and a process that begins to breed, cost as much as one or two
MOST_TOLD = 20_000  # keys of known designs that a worker is told with an order
LEAST_BRED = 0.1  # new designs among those bred, below which workers only find what others have found
JUDGED = 256  # designs ordered by which that is judged
RECENT = 0.95  # weight of earlier proposals in the time that one takes


class Islands:
    """Proposes as `central` does, until that takes longer than evaluating; then workers breed from its parents.

    Args:
        sizes: of the search.
    """

    def __init__(
        self,
        central: EvolutionProposer,
        screen: Screen,
        breeders: Breeders[Order, Litter],
        *,
        seed: int,
        sizes: dict[str, int],
    ) -> None:
        self.name, self.exhausted = central.name, False
        self._central, self._screen, self._breeders = central, screen, breeders
        self._seed, self._sizes = seed, sizes
        self._stock: deque[Bred] = deque()
        self._seconds: float | None = None  # that a central proposal takes
        self._open = 0  # designs ordered that have not come
        self._ordered: Counter[int] = Counter()  # by worker
        self._bred_by: dict[int, int] = {}  # workers of orders that have not come, by their first numbers
        self._learnt = list(islice(screen.known, MOST_TOLD))  # keys of known designs
        self._told: Counter[int] = Counter()  # how many of them each worker knows
        self._asked = self._new = 0  # since it was last judged
        self._first = 0  # number of the next order
        self.apart = False
        """Whether workers breed."""
        self._barren = False

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        self._take()
        self.apart = self.apart or self._late
        if self.apart and not self._barren:
            self._order()
        if not self._stock and not self._open:  # also while no worker is there: the run ends when nothing is under way
            return self._ask_central(count, outstanding)
        proposals = []
        for _ in range(min(count, len(self._stock))):
            number, design = self._central.next_number, self._stock.popleft()
            self._central.take_over(number, design.genes, at_once=False)
            proposals.append(Proposal(number, design))
        return proposals

    def _ask_central(self, count: int, outstanding: int) -> list[Proposal]:
        started = time.perf_counter()
        found = self._central.ask(count, outstanding)
        self._learnt += [proposal.candidate.key for proposal in found]
        self.exhausted = self._central.exhausted
        if found and self._central.next_number >= self._central.modelled:
            each = (time.perf_counter() - started) / len(found)
            self._seconds = each if self._seconds is None else RECENT * self._seconds + (1 - RECENT) * each
        return found

    @property
    def _late(self) -> bool:
        pace = self._breeders.pace()
        return pace is not None and self._seconds is not None and self._seconds > LATE * pace

    def _order(self) -> None:
        """Keep about as many designs on order or in stock as the workers have: from those who have bred least, and
        from each so many that an order costs little beside breeding them."""
        appetite = self._breeders.appetite()
        wanted = appetite - len(self._stock) - self._open
        litter = max(LITTER, self._breeders.share())
        if wanted < min(litter, max(1, appetite // 2)):
            return
        breeders = self._breeders.breeders()
        idle = [worker for worker in self._breeders.idle() if worker in breeders]
        if not idle:
            return
        parents, front = self._central.best()
        self._first = max(self._first, self._central.next_number)
        for worker in sorted(idle, key=lambda one: self._ordered[one])[: -(-wanted // litter)]:
            count = min(litter, wanted)
            order = Order(self._seed, self._first, count, parents, front, self._sizes, self._news(worker))
            self._breeders.order(worker, order)
            self._bred_by[order.first] = worker
            self._ordered[worker] += count
            self._first += count
            self._open += count
            wanted -= count

    def _news(self, worker: int) -> list[str]:
        """Keys of what has become known since a worker was last told, the latest of them."""
        start = max(self._told[worker], len(self._learnt) - MOST_TOLD)
        self._told[worker] = len(self._learnt)
        return self._learnt[start:]

    def _take(self) -> None:
        """Take in what was bred; what was found by several counts once."""
        for order, litter in self._breeders.litters():
            worker = self._bred_by.pop(order.first)
            self._open -= order.count
            self._asked += order.count
            if litter is not None:
                self._new += self._admit(litter)
            else:  # another process may have its place, which knows nothing
                self._told[worker] = 0
        if self._asked >= JUDGED:
            self._barren = self._new < LEAST_BRED * self._asked
            self._asked = self._new = 0

    def _admit(self, litter: Litter) -> int:
        """How many were new."""
        screen, before = self._screen, len(self._stock)
        screen.repeats += litter.repeats
        screen.illegal += litter.illegal
        for design, violations in litter.broken:
            if screen.rule_out(design, violations):
                self._learnt.append(design.key)
        for design in litter.designs:
            if screen.knows(design.key):
                screen.repeats += 1
            else:
                screen.remember(design.key, None)
                self._learnt.append(design.key)
                self._stock.append(design)
        return len(self._stock) - before

    def tell(self, number: int, told: Told) -> None:
        self._central.tell(number, told)

    def learn(self, key: str, genes: dict[str, int], told: Told) -> int:
        return self._central.learn(key, genes, told)

    def revise(self, told: Mapping[int, Told]) -> None:
        self._central.revise(told)

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        self._central.restore(history, told, next_number)
