"""Genes as parameters of Optuna trials: real names and values."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution

from allo_dse.common.records import Frozen
from allo_dse.space.genes import Gene
from allo_dse.space.params import plain_value
from allo_dse.space.sampler.optuna_sampler import distribution

from .spec import StudySpec

_NAMES = (
    (re.compile(r"param\.(.+)"), r"\1"),
    (re.compile(r"fold\.(.+)\.(\d+)\.spatial"), r"\1.axis\2.nodes"),
    (re.compile(r"fold\.(.+)\.(\d+)\.(how|pattern)"), r"\1.axis\2.\3"),
    (re.compile(r"fold\.(.+)\.(order|chain)"), r"\1.\2"),
    (re.compile(r"schedule\.(.+)"), r"\1"),
)


class TrialParameter(Frozen):
    """A gene as a parameter of Optuna trials.

    Attributes:
        values: the values that the gene's numbers stand for; empty if they stand for themselves.
    """

    name: str
    distribution: BaseDistribution
    low: int
    values: tuple[Any, ...]

    @staticmethod
    def of(name: str, gene: Gene) -> TrialParameter:
        """Return the parameter of a gene."""
        values = tuple(v if isinstance(v, bool | int | float | str) else plain_value(v) for v in gene.labels)
        if len(values) <= 1 or len(set(values)) < len(values):
            return TrialParameter(name, distribution(gene), gene.low, ())
        return TrialParameter(name, _listed(values, ordered=gene.kind != "categorical"), gene.low, values)

    def value(self, number: int) -> Any:
        """Return the value that a number of the gene stands for."""
        return self.values[min(max(number - self.low, 0), len(self.values) - 1)] if self.values else number

    def number(self, value: Any) -> int:
        """Return the gene's number for a value; the inverse of `value`."""
        return self.low + self.values.index(value) if self.values else int(value)

    def suggest(self, trial: optuna.Trial) -> int:
        """Let a trial choose a value; return the gene's number."""
        found = self.distribution
        if isinstance(found, CategoricalDistribution):
            return self.number(trial.suggest_categorical(self.name, found.choices))
        assert isinstance(found, IntDistribution)
        return self.number(trial.suggest_int(self.name, found.low, found.high, step=found.step, log=found.log))


def _listed(values: tuple[Any, ...], *, ordered: bool) -> BaseDistribution:
    """Return a range for whole numbers in equal steps, else categories: Optuna lists other values only as these."""
    whole = ordered and all(type(value) is int for value in values)
    steps = {after - before for before, after in pairwise(values)} if whole else set()
    if len(steps) == 1 and (step := steps.pop()) > 0:
        return IntDistribution(values[0], values[-1], step=step)
    return CategoricalDistribution(values)


class TrialParameters:
    """The parameters of a study's trials, by gene."""

    def __init__(self, study: StudySpec) -> None:
        self._study = study
        self._known: dict[str, TrialParameter] = {}

    def of(self, gene_name: str, gene: Gene) -> TrialParameter:
        """Return the parameter of a gene. Those of the program have its names."""
        if (known := self._known.get(gene_name)) is not None:
            return known
        pattern, named = next((one for one in _NAMES if one[0].fullmatch(gene_name)), (None, ""))
        name = pattern.sub(named, gene_name) if pattern else gene_name
        if name in self._study.parameters.parameters and not gene_name.startswith("param."):
            name = f"mapping.{name}"
        return self._known.setdefault(gene_name, TrialParameter.of(name, gene))
