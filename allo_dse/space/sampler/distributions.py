"""Genes as Optuna's distributions, and Optuna's parameters as genes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from msgspec import Struct
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.trial import Trial

from ..gene import FINE, Gene, Suggest
from ..params import rising

GRID = 2**52
"""Steps of a real number's range: as fine as floating-point numbers of one binade."""


def distribution(gene: Gene) -> BaseDistribution:
    """The Optuna distribution of a gene."""
    if gene.kind == "categorical":
        return CategoricalDistribution(tuple(range(gene.low, gene.high + 1)))
    return IntDistribution(gene.low, gene.high, log=gene.kind == "log")


def suggest_with(trial: Trial) -> Suggest:
    """Let an Optuna trial choose the genes."""

    def suggest(name: str, gene: Gene) -> int:
        if gene.kind == "categorical":
            return int(trial.suggest_categorical(name, tuple(range(gene.low, gene.high + 1))))
        return int(trial.suggest_int(name, gene.low, gene.high, log=gene.kind == "log"))

    return suggest


class Coding(Struct, frozen=True):
    """A parameter of an Optuna study as a gene.

    Attributes:
        value: of the parameter, for a value of the gene.
        number: its inverse; the nearest value of the gene where there is none.
    """

    gene: Gene
    value: Callable[[int], Any]
    number: Callable[[Any], int]


def coding_of(distribution: BaseDistribution) -> Coding:
    """The coding of a distribution's values; positions stand for categories and steps, a fine grid for the reals."""
    if isinstance(distribution, CategoricalDistribution):
        choices, number = distribution.choices, distribution.to_internal_repr
        last = len(choices) - 1
        # Optuna has no other way to say which numbers than as categories.
        gene = Gene.ordered(0, last) if rising(choices) else Gene(0, last, "categorical")
        return Coding(gene, lambda n: choices[n], lambda v: int(number(v)))
    if not isinstance(distribution, IntDistribution | FloatDistribution):
        raise TypeError(f"{distribution!r} is no distribution of Optuna")
    low, high, step = distribution.low, distribution.high, distribution.step
    integral = isinstance(distribution, IntDistribution)
    if step is None or (distribution.log and (not integral or high - low > FINE)):
        return _grid(distribution)
    if integral and step == 1:
        low, high = int(low), int(high)
        return Coding(Gene(low, high, "log") if distribution.log else Gene.ordered(low, high), int, int)
    gene = Gene.ordered(0, round((high - low) / step))
    return Coding(gene, lambda n: min(low + n * step, high), lambda v: gene.clip(round((v - low) / step)))


def _grid(distribution: IntDistribution | FloatDistribution) -> Coding:
    """Values between the bounds or, if it is logarithmic, their logarithms, as weighted means of them."""
    of, back = (math.log, math.exp) if distribution.log else (float, float)
    low, high = of(distribution.low), of(distribution.high)
    gene = Gene(0, GRID, "fine")

    def value(n: int) -> int | float:
        found = min(max(back(low * (1 - n / GRID) + high * (n / GRID)), distribution.low), distribution.high)
        return round(found) if isinstance(distribution, IntDistribution) else float(found)

    def number(given: Any) -> int:
        scale = high / 2 - low / 2  # halved, because the difference may be too large for a number
        return gene.clip(round((of(given) / 2 - low / 2) / scale * GRID)) if scale else 0

    return Coding(gene, value, number)
