"""Genes: named integers, each with a fixed range, which any sampler can propose.

Optuna requires one fixed distribution per name, but legal values depend on earlier choices: a mesh axis of 32 has
other divisors than one of 48. So a gene states a *wanted* value that means the same for every program of the study
("8 nodes along m", "the outermost loop is n"), and decoding takes the nearest legal option. Crossover or a new tile
size then keeps the rest of the mapping where possible. Impossible genes decode to a neighbour's design; such repeats
cost nothing, because designs are identified by their key, not by their genes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal

import numpy as np
from msgspec import Struct

Genes = dict[str, int]


Kind = Literal["ordinal", "log", "fine", "categorical"]


FINE = 64
"""Larger ranges are searched in steps of all sizes rather than one by one."""


class Gene(Struct, frozen=True):
    """The range of one gene: the integers from `low` to `high`.

    Attributes:
        kind: "ordinal" (neighbouring numbers mean similar designs), "log" (the same, in ratios), "fine" (neighbours
            mean nearly the same design, as on the grid of a real number) or "categorical".
        labels: the values that the numbers stand for; empty if each stands for itself.
    """

    low: int
    high: int
    kind: Kind = "ordinal"
    labels: tuple[object, ...] = ()

    @staticmethod
    def ordered(low: int, high: int, labels: tuple[object, ...] = ()) -> Gene:
        """Return a gene for numbers with similar neighbours; the more numbers, the more similar."""
        return Gene(low, high, "fine" if high - low > FINE else "ordinal", labels)

    def draw(self, rng: np.random.Generator) -> int:
        """Draw any value; each octave of a logarithmic gene is equally likely."""
        if self.kind == "log":
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return self.clip(round(math.exp(low + (high - low) * rng.random())))  # takes half the time of `uniform`
        return int(rng.integers(self.low, self.high + 1))

    def clip(self, value: int) -> int:
        """Return the nearest value of the range."""
        return min(max(value, self.low), self.high)


Suggest = Callable[[str, Gene], int]
"""Gives a value for a gene, by its name and range."""


def suggest_from(genes: Mapping[str, int], otherwise: Suggest | None = None) -> Suggest:
    """Return a suggester that reads genes, and asks `otherwise` for missing ones."""

    def suggest(name: str, gene: Gene) -> int:
        value = genes.get(name)
        if value is None:
            return gene.low if otherwise is None else otherwise(name, gene)
        return gene.clip(value)

    return suggest


def random_suggest(rng: np.random.Generator) -> Suggest:
    """Return a suggester that draws every gene at random."""
    return lambda name, gene: gene.draw(rng)
