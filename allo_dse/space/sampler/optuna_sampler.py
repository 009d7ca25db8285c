"""Evolution as a sampler for Optuna, and for the studies of this package."""

from __future__ import annotations

import functools
import math
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from msgspec import Struct, structs
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from allo_dse.common.records import replace

from ..genes import FINE, Gene, Genes, Suggest
from ..params import rising
from .evolution import Evolution, EvolutionParameters, check_sizes
from .pareto import FAILED, Individual, Results

GRID = 2**52
"""Steps of a real number's range: as fine as the floating-point numbers of one binade."""


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
        # Optuna can list arbitrary numbers only as categories.
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


class EvolutionSampler(BaseSampler):
    """Evolutionary sampler: new trials vary the best known ones, selected by rank and crowding as in NSGA-II.

    For any Optuna study, with one objective or several, constraints (`trial.set_constraint`), and parameters of all
    kinds that may depend on one another::

        import optuna
        from allo_dse import EvolutionSampler

        def objective(trial):
            x = trial.suggest_float("x", -5, 5)
            return x**2

        study = optuna.create_study(sampler=EvolutionSampler(seed=0))
        study.optimize(objective, n_trials=50)

    A trial depends on the seed, its number and the trials of earlier generations only. So a study that is loaded from a
    storage goes on as if it had not been interrupted, and any number of processes may work on it. A trial that would
    repeat an earlier one is replaced before it starts. `allo_dse.Study` searches with this class too
    (`run(sampler="evolution")`, or an object with other options), and also replaces designs that break a limit of the
    device.

    Args:
        seed: fixes every proposal, given the results so far; by default another one each time.
        initial: how many trials are drawn at random to begin with; by default 12.
        population: how many trials are kept as parents; by default 8 with one objective, else 16.
        children: number of trials in a generation, after which parents are chosen anew; by default 4, fewer early on.
        crossover: probability that a child has two parents.
        mutations: expected number of parameters that change, beside the one that always does.
        wild: probability that a child has no parents at all.
        modelled: how many trials with values are proposed by models of objectives, constraints and failures.
    """

    def __init__(
        self,
        seed: int | None = None,
        *,
        initial: int | None = None,
        population: int | None = None,
        children: int | None = None,
        crossover: float = 0.7,
        mutations: float = 1.0,
        wild: float = 0.05,
        modelled: int = 256,
    ) -> None:
        self._seed = np.random.SeedSequence().generate_state(1).tolist()[0] if seed is None else seed
        given = {"initial": initial, "population": population, "children": children, "modelled": modelled}
        check_sizes({name: size for name, size in given.items() if size is not None})
        self._sizes = {"initial": initial, "population": population, "children": children}
        self._parameters = EvolutionParameters(crossover=crossover, mutations=mutations, wild=wild, modelled=modelled)
        self._searches: WeakKeyDictionary[Study, _StudySearch] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def __reduce__(self) -> tuple[Any, ...]:
        # The rest of the state follows from the trials of a study.
        options: dict[str, Any] = {**structs.asdict(self._parameters), **self._sizes}
        return functools.partial(EvolutionSampler, **options), (self._seed,)

    def search(self, genes: Mapping[str, Gene], objectives: int) -> Evolution:
        """Start a search outside Optuna.

        Args:
            genes: the range of every gene met so far (a live view).
            objectives: number of objectives.
        """
        sizes = {"population": 8} if objectives == 1 else {}  # a front takes more parents than a single minimum
        sizes |= {name: size for name, size in self._sizes.items() if size is not None}
        return Evolution(self._seed, genes, replace(self._parameters, **sizes))

    # The objective asks for parameters one by one; their names and ranges may depend on earlier values. To Optuna this
    # is all "independent" sampling.

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        with self._lock:
            search = self._search_of(study)
            genes, rng = search.child(study, trial)
            coding = search.coding(param_name, param_distribution)
        wanted = genes.get(param_name)
        return coding.value(coding.gene.draw(rng) if wanted is None else coding.gene.clip(wanted))

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        with self._lock:
            self._search_of(study).finish(trial, state)

    def _search_of(self, study: Study) -> _StudySearch:
        if study not in self._searches:
            self._searches[study] = _StudySearch(self, len(study.directions))
        return self._searches[study]


class _StudySearch:
    """The search state of one Optuna study."""

    def __init__(self, sampler: EvolutionSampler, objectives: int) -> None:
        self._genes: dict[str, Gene] = {}
        self._codings: dict[str, Coding] = {}
        self._made: dict[str, tuple[BaseDistribution, Coding]] = {}  # the last coding that was made, by parameter
        self._evolution = sampler.search(self._genes, objectives)
        self._generation = self._evolution.parameters.generation
        self._current = -1  # the generation for which trials were last read
        self._looked = 0  # number of trials read so far
        self._open: list[int] = []  # those among them that had not finished
        self._children: dict[int, tuple[Genes, np.random.Generator]] = {}
        self._seen = _Paths()

    def child(self, study: Study, trial: FrozenTrial) -> tuple[Genes, np.random.Generator]:
        """Return the genes that a trial starts with, and the generator for the others."""
        if trial.number not in self._children:
            if self._generation(trial.number) > self._current:
                self._look(study, trial.number)
            for child, rng in self._evolution.children(trial.number):
                wanted = {name: self._rounded(name, value) for name, value in child.items()}
                self._children[trial.number] = wanted, rng
                if not self._seen.lead_back(wanted, functools.partial(self._drawn, rng)):
                    break
        return self._children[trial.number]

    def coding(self, name: str, distribution: BaseDistribution) -> Coding:
        """Return the coding of a parameter, which is made anew when its distribution changes."""
        made = self._made.get(name)
        if made is None or made[0] != distribution:
            made = self._made[name] = distribution, coding_of(distribution)
        return made[1]

    def finish(self, trial: FrozenTrial, state: TrialState) -> None:
        """Forget the genes that a trial started with; no other thread needs them."""
        self._children.pop(trial.number, None)
        self._see(trial, state)

    def _see(self, trial: FrozenTrial, state: TrialState) -> None:
        # A failed trial may have stopped anywhere, and may succeed next time.
        if state in (TrialState.COMPLETE, TrialState.PRUNED):
            self._seen.add(self._encoded(trial))

    def _look(self, study: Study, number: int) -> None:
        """Take in all finished trials of any process, before the first trial of a generation."""
        trials = study.get_trials(deepcopy=False)
        waiting = [*self._open, *range(self._looked, len(trials))]
        finished = [trials[n] for n in waiting if trials[n].state.is_finished()]
        found = [self._individual(study, t) for t in finished if t.params]
        if self._looked:
            for individual in found:
                self._evolution.learn(individual)
        elif found:
            self._evolution.restore(Results.of(found), found.__getitem__, number)
        for trial in finished:
            self._see(trial, trial.state)
        self._open = [n for n in waiting if not trials[n].state.is_finished()]
        self._evolution.pending = {n: self._encoded(trials[n]) for n in self._open if trials[n].params}
        self._looked, self._current = len(trials), self._generation(number)

    def _individual(self, study: Study, trial: FrozenTrial) -> Individual:
        """Return a trial as an individual; failed and pruned ones have no losses, and rank last."""
        genes = self._encoded(trial)
        if trial.state != TrialState.COMPLETE:
            return Individual(trial.number, genes, (math.inf,) * len(study.directions), {FAILED: math.inf})
        signs = [-1.0 if d == StudyDirection.MAXIMIZE else 1.0 for d in study.directions]
        losses = tuple(s * v for s, v in zip(signs, trial.values, strict=True))
        return Individual(trial.number, genes, losses, trial.constraints)

    def _drawn(self, rng: np.random.Generator, name: str) -> int:
        return self._rounded(name, self._genes[name].draw(rng))

    def _rounded(self, name: str, value: int) -> int:
        """Map gene values with the same parameter value to one of them."""
        coding = self._codings[name]
        return coding.number(coding.value(value))

    def _encoded(self, trial: FrozenTrial) -> Genes:
        """Return a trial's genes in the order in which they were asked for, without those that had no choice."""
        genes: Genes = {}
        for name, value in trial.params.items():
            if not trial.distributions[name].single():
                coding = self._codings[name] = self.coding(name, trial.distributions[name])
                self._genes[name], genes[name] = coding.gene, coding.number(value)
        return genes


class _Paths:
    """The sequences of parameters that an objective asked for; each may depend on the values before.

    They form a tree of names and values. A trial that reaches the end of a branch would repeat another.
    """

    def __init__(self) -> None:
        self._root: dict[str, dict[int, Any]] = {}

    def add(self, genes: Genes) -> None:
        """Add the genes of a trial, in the order in which they were asked for."""
        node = self._root
        for name, value in genes.items():
            node = node.setdefault(name, {}).setdefault(value, {})

    def lead_back(self, genes: Genes, draw: Callable[[str], int]) -> bool:
        """Return whether a trial with these genes would repeat another; missing genes on its path are drawn."""
        node: dict[str, dict[int, Any]] | None = self._root or None
        while node:
            name = next(iter(node))
            if name not in genes:
                genes[name] = draw(name)
            node = node[name].get(genes[name])
        return node is not None
