"""Loops around each other in kernels, and in how many copies their bodies can be made."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TypeAlias

from msgspec import Struct

from allo_dse.device.device import FpgaDevice
from allo_dse.ir.nest import Branch, Loop, Nest, Node, read_nest
from allo_dse.program.directive import Directive
from allo_dse.program.kernel import Kernel
from allo_dse.program.tasks import TaskClass

from ..choice import Ask, Question

MOST_COPIES = 4096  # operations of one round that unrolling may make
INTERVALS = (1, 2, 4)
BANKS = ("all", "half")
SHARES = ("all", "slow", "quarter", "one")
SLOW = 8  # times the interval of the others
MINOR = 16  # nests with fewer rounds than the largest one's by this factor may be treated differently


class Chain(Struct, frozen=True):
    """Loops around each other, outermost first, with their trip counts; the last one has none inside."""

    loops: tuple[Loop, ...]
    names: tuple[str, ...]
    trips: tuple[int, ...]

    @property
    def rounds(self) -> int:
        """How often the innermost body runs."""
        return math.prod(self.trips)

    def at_most(self, wanted: int, most: int) -> Copies:
        """The option with the most copies that are not more than wanted: nests share operators, so one that makes more
        than the others would set what all of them cost."""
        return _at_most(self.trips, wanted, most)


Copies: TypeAlias = tuple[int, int, int]
"""How many copies of the innermost body are made, the level that is pipelined, and the factor of its loop.

Level 0 is the innermost loop; everything inside the pipelined level is unrolled. A loop that would be unrolled
completely is inside, and the one around it is pipelined.
"""


@lru_cache(maxsize=1 << 12)
def _options(trip_counts: tuple[int, ...], most: int) -> tuple[Copies, ...]:
    found: dict[int, Copies] = {}
    inside = 1
    for level, trips in enumerate(reversed(trip_counts)):
        for factor in range(1, trips + 1):
            if trips % factor == 0 and factor * inside <= most:
                found[factor * inside] = (factor * inside, level, factor)
        inside *= trips
    return tuple(sorted(found.values()))


@lru_cache(maxsize=1 << 14)
def _at_most(trip_counts: tuple[int, ...], wanted: int, most: int) -> Copies:
    options = _options(trip_counts, most)
    return max((option for option in options if option[0] <= wanted), default=options[0])


@lru_cache(maxsize=1 << 12)
def _wanted(trip_counts: tuple[tuple[int, ...], ...], most: int) -> tuple[int, ...]:
    """The numbers of copies that chains can make of their innermost bodies."""
    return tuple(sorted({option[0] for trips in trip_counts for option in _options(trips, most)}))


Nests: TypeAlias = tuple[tuple[Copies, int], ...]
"""How each chain of a kernel is copied, and the interval it is pipelined with."""


class KernelChains(Struct, frozen=True):
    """What there is to ask about the nests of a kernel.

    Attributes:
        chains: of its classes; those of the same loops count once.
        most: copies that can be made.
        shares: of each chain, where it may be treated differently.
    """

    kernel: str
    chains: Sequence[Chain]
    most: int
    copies: Question
    interval: Question
    shares: Sequence[Question | None]
    banks: Question

    @classmethod
    def of(cls, kernel: Kernel, device: FpgaDevice) -> KernelChains | None:
        """None where it has no loops."""
        found: dict[tuple[str, ...], Chain] = {}
        for task_class in kernel.classes:
            for chain in _chains(read_nest(task_class.body.mlir), task_class):
                found.setdefault(chain.names, chain)
        if not found:
            return None
        chains = tuple(found.values())
        # Tasks that are not folded have hardware of their own, and a copy with an operator takes a DSP at least; the
        # longest interval lets that many copies share one.
        most = max(1, min(MOST_COPIES, INTERVALS[-1] * device.limit("dsp") // kernel.task_count))
        name, largest = f"schedule.{kernel.name}", max(chain.rounds for chain in chains)
        return cls(
            kernel.name,
            chains,
            most,
            Question.number(f"{name}.copies", _wanted(tuple(chain.trips for chain in chains), most), MOST_COPIES),
            Question.number(f"{name}.interval", INTERVALS, INTERVALS[-1]),
            tuple(
                Question.word(f"{name}.{number}.share", SHARES, SHARES) if chain.rounds * MINOR < largest else None
                for number, chain in enumerate(chains)
            ),
            Question.word(f"{name}.banks", BANKS, BANKS),
        )

    def asked(self, ask: Ask) -> Nests:
        copies, interval = int(ask(self.copies)), int(ask(self.interval))
        nests = []
        for chain, question in zip(self.chains, self.shares, strict=True):
            share = "all" if question is None else str(ask(question))
            target = {"quarter": max(1, copies // 4), "one": 1}.get(share, copies)
            pace = interval * SLOW if share == "slow" else interval
            nests.append((chain.at_most(target, self.most), pace))
        return tuple(nests)

    def directives(self, nests: Nests) -> Iterator[Directive]:
        """Pipeline and unroll the nests."""
        for chain, ((_, level, factor), interval) in zip(self.chains, nests, strict=True):
            loop = chain.names[len(chain.names) - 1 - level]
            yield Directive("pipeline", self.kernel, loop, {"initiation_interval": interval})
            if factor > 1:
                yield Directive("unroll", self.kernel, loop, {"factor": factor})

    def unrolled(self, options: Sequence[Copies]) -> dict[tuple[str, str], int]:
        """By kernel and name of a loop, how many copies of its body are made."""
        found: dict[tuple[str, str], int] = {}
        for chain, (_, level, factor) in zip(self.chains, options, strict=True):
            at = len(chain.names) - 1 - level
            found[self.kernel, chain.names[at]] = factor
            for inner, count in zip(chain.names[at + 1 :], chain.trips[at + 1 :], strict=True):
                found[self.kernel, inner] = count
        return found


def _chains(nest: Nest, task_class: TaskClass) -> Iterator[Chain]:
    for loops in _paths(nest.body, ()):
        names, trips = [], []
        for loop in loops:
            constant = loop.trips is not None and loop.trips.is_constant
            if loop.source is None or not constant:
                break
            names.append(task_class.loops[loop.source].name)
            trips.append(loop.trips.constant if loop.trips is not None else 0)
        else:
            yield Chain(loops, tuple(names), tuple(trips))


def _paths(nodes: Iterable[Node], outer: tuple[Loop, ...]) -> Iterator[tuple[Loop, ...]]:
    """From the outermost to each innermost loop."""
    for node in nodes:
        if isinstance(node, Loop):
            inner = list(_paths(node.body, (*outer, node)))
            yield from inner or [(*outer, node)]
        elif isinstance(node, Branch):
            for side in node.sides:
                yield from _paths(side, outer)
