"""Genes: named integers with a fixed range each, which any sampler can propose, and where their values come from.

Optuna wants one fixed distribution per name, but what is legal depends on what was chosen before: a mesh axis of 32
has other divisors than one of 48. So a gene says what is *wanted*, in terms that mean the same for every program of
the study ("8 nodes along m", "the outermost loop is n"), and decoding takes the legal option that comes closest.
Crossing two designs or changing a tile size then keeps the rest of the mapping as far as it can be kept. Genes that
want the impossible decode to a neighbour's design; such repeats cost nothing, because designs are told apart by their
key, not by their genes.
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
"""Ranges of more integers than this are searched in steps of all sizes rather than one by one."""
FINE_STEPS = (0.5, 5.0)  # of a fine gene, as negative powers of ten of its range


class Gene(Struct, frozen=True):
    """The range of one gene: the integers from `low` to `high`.

    Attributes:
        kind: "ordinal" (neighbouring numbers mean similar designs), "log" (the same, in ratios), "fine" (neighbours
            mean nearly the same design, as on the grid of a real number) or "categorical".
    """

    low: int
    high: int
    kind: Kind = "ordinal"

    @staticmethod
    def ordered(low: int, high: int) -> Gene:
        """For numbers of which neighbours are alike, the more so the more numbers there are."""
        return Gene(low, high, "fine" if high - low > FINE else "ordinal")

    def draw(self, rng: np.random.Generator) -> int:
        """Any value; of a logarithmic gene each octave is as likely as another."""
        if self.kind == "log":
            low, high = math.log(self.low - 0.5), math.log(self.high + 0.5)
            return self.clip(round(math.exp(low + (high - low) * rng.random())))  # in half of the time of `uniform`
        return int(rng.integers(self.low, self.high + 1))

    def step(self, value: int, rng: np.random.Generator) -> int:
        """Another value: three times out of four a nearby one for ordered genes, else any."""
        value = self.clip(value)
        if self.kind == "categorical" or rng.random() < 0.25:
            other = self.draw(rng)
            return other if other != value else self.low + (value - self.low + 1) % (self.high - self.low + 1)
        up = bool(rng.integers(2))
        if self.kind == "fine":  # steps of all sizes: which one helps depends on how near the best is
            size = max(1, round((self.high - self.low) * 10.0 ** -rng.uniform(*FINE_STEPS)))
        else:
            size = value if self.kind == "log" else 1  # doubling and halving
        down = size if self.kind == "fine" else (size + 1) // 2
        moved = value + size if up else value - down
        back = -1 if up else 1
        for other in (value + back, value - back):  # beyond the end: a step back, or the only way there is
            moved = moved if self.clip(moved) == moved else other
        return self.clip(moved)

    def clip(self, value: int) -> int:
        """The nearest value of the range."""
        return min(max(value, self.low), self.high)


Suggest = Callable[[str, Gene], int]
"""Gives a value for a gene, by its name and range."""


def suggest_from(genes: Mapping[str, int], otherwise: Suggest | None = None) -> Suggest:
    """Reads genes, and asks `otherwise` for those that are missing."""

    def suggest(name: str, gene: Gene) -> int:
        value = genes.get(name)
        if value is None:
            return gene.low if otherwise is None else otherwise(name, gene)
        return gene.clip(value)

    return suggest


def random_suggest(rng: np.random.Generator) -> Suggest:
    """Draws every gene at random."""
    return lambda name, gene: gene.draw(rng)
