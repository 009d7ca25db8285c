"""Genes: named integers with a fixed range each, which any sampler can propose, and where their values come from.

Optuna wants one fixed distribution per name, but what is legal depends on what was chosen before: a mesh axis of 32
has other divisors than one of 48. So a gene says what is *wanted*, in terms that mean the same for every program of
the study ("8 nodes along m", "the outermost loop is n"), and decoding takes the legal option that comes closest.
Crossing two designs or changing a tile size then keeps the rest of the mapping as far as it can be kept. Genes that
want the impossible decode to a neighbour's design; such repeats cost nothing, because designs are told apart by their
key, not by their genes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

Genes = dict[str, int]


@dataclass(frozen=True)
class Gene:
    """The range of one gene: the integers from `low` to `high`.

    Attributes:
        kind: "ordinal" (neighbouring numbers mean similar designs), "log" (the same, in ratios) or "categorical".
    """

    low: int
    high: int
    kind: Literal["ordinal", "log", "categorical"] = "ordinal"

    def draw(self, rng: np.random.Generator) -> int:
        """Any value; of a logarithmic gene each octave is as likely as another."""
        if self.kind == "log":
            drawn = np.exp(rng.uniform(np.log(self.low - 0.5), np.log(self.high + 0.5)))
            return self.clip(round(float(drawn)))
        return int(rng.integers(self.low, self.high + 1))

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
