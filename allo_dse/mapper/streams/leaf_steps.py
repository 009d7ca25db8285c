"""What a task does on its channels, step by step.

A task that exchanges several tokens over one channel does so as a loop would: its work is cut into as many steps, and
each step gets, computes and puts its share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
from msgspec import Struct

from allo_dse.program.index_maps import IntArray
from allo_dse.simulator.network.tables import Table

Use = tuple[bool, int]
"""A token through a channel: whether it is put, and the channel's position."""


class LeafUses(Struct, frozen=True, eq=False, dict=True):
    """What the leaves of a period get from and put to a node's channels; folds with an equal one share it.

    Attributes:
        leaves: how many there are.
        by_leaf: per leaf that uses channels, the tokens it gets and puts, in the order of the task's ports.
    """

    leaves: int
    by_leaf: Mapping[int, tuple[Use, ...]]

    def of(self, leaf: int) -> tuple[Use, ...]:
        return self.by_leaf.get(leaf, ())

    @property
    def tokens(self) -> int:
        """How many tokens a node moves in a period."""
        return sum(map(len, self.by_leaf.values()))

    @cached_property
    def codes(self) -> IntArray:
        """Per leaf a number that stands for the channels it uses; 0 where it uses none."""
        number = {own: code for code, own in enumerate(self.kinds)}
        result = np.zeros(self.leaves, np.int64)
        result[list(self.by_leaf)] = [number[own] for own in self.by_leaf.values()]
        return result

    @property
    def kinds(self) -> list[tuple[Use, ...]]:
        """By code, what such leaves get and put."""
        return list(dict.fromkeys([(), *self.by_leaf.values()]))


class Step(Struct, frozen=True):
    """A share of a task's work.

    Attributes:
        parts: the channels it gets from, and those that it puts to then; again where another get follows a put.
        ticks: of the work, all of which comes before it puts anything.
    """

    parts: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]
    ticks: int

    def write(self, table: Table, first: int) -> None:
        """Add the step to a table; channel c is the FIFO at ports 2 * (first + c), full slots, and the next, free ones.

        Room for what it puts is taken before it works, as a core acquires its object FIFOs.
        """
        for part, (gets, puts) in enumerate(self.parts):
            for channel in gets:
                table.get(2 * (first + channel))
            for channel in puts:
                table.get(2 * (first + channel) + 1)
            if not part:
                table.wait(self.ticks)
            for channel in gets:
                table.put(2 * (first + channel) + 1)
            for channel in puts:
                table.put(2 * (first + channel))


def leaf_steps(ticks: int, uses: Sequence[Use]) -> list[Step]:
    """As many steps as the busiest channel has tokens.

    The tokens of other channels are spread evenly; a single one comes in the first step when its port stands before the
    busiest one's, and else in the last. In each step they follow each other as the ports do.
    """
    tokens = Counter(uses)
    count = max(tokens.values(), default=1)
    order = list(tokens)
    busiest = next((number for number, own in enumerate(tokens.values()) if own == count), 0)
    got = next((number for number, (is_put, _) in enumerate(order) if not is_put), 0)
    steps: list[list[Use]] = [[] for _ in range(count)]
    for number, (use, own) in enumerate(tokens.items()):
        worked_out = use[0] and number >= got  # what is put before anything is got is there
        for token in range(own):
            step = token * count // own
            if own == 1 and number > busiest:
                step = count - 1
            elif own > 1 and worked_out:
                step = -(-(token + 1) * count // own) - 1
            steps[step].append(use)
    share, rest = divmod(ticks, count)
    return [Step(_parts(own), share + (rest if i == count - 1 else 0)) for i, own in enumerate(steps)]


def _parts(uses: Sequence[Use]) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
    parts: list[tuple[list[int], list[int]]] = [([], [])]
    for is_put, channel in uses:
        if not is_put and parts[-1][True]:
            parts.append(([], []))
        parts[-1][is_put].append(channel)
    return tuple((tuple(gets), tuple(puts)) for gets, puts in parts)
