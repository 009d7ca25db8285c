"""The sampler of allo-dse: NSGA-II over genes, for spaces where most proposals are repeats or break a device limit.

What it does differently from Optuna's own NSGA-II, which it replaces as the default:

* it screens a child before it becomes a trial (decode, compare with all known designs, check the device's limits) and
  breeds another one until a new and legal design is found, so that no evaluation and no trial is spent on the rest;
* mutation takes small steps along ordered genes;
* a proposal depends only on the seed, its number and the trials of finished generations, so a resumed run goes on
  exactly as the interrupted one would have, without replaying it;
* its cost does not grow with the number of trials (Optuna's scans all trials for every proposal).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.study import Study, StudyDirection
from optuna.trial import FrozenTrial, Trial, TrialState

from .gene import Gene, Suggest, random_suggest, suggest_from
from .selection import Individual, Parents, Results
from .space import Candidate

Screen = Callable[[Suggest], Candidate | None]

MAX_ATTEMPTS = 1000  # per proposal, before the space counts as exhausted


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


@dataclass
class _State:
    """Everything a proposal depends on, beside the seed."""

    selection: Parents
    next_number: int = 0
    generation: int = -1
    told: list[Individual] = field(default_factory=list)
    parents: list[Mapping[str, int]] = field(default_factory=list)  # genes of the selected, best first


class EvolutionSampler(BaseSampler):
    """Proposes designs that are new and legal, by breeding from the best known ones.

    Args:
        seed: fixes every proposal, given the results told so far.
        genes: the range of every gene the screen has asked for so far (a live view).
        screen: decodes a proposal; None when the design is known or illegal.
        initial: how many designs are drawn at random to begin with.
        population: how many designs are kept as parents.
        children: how many designs are bred from them before parents are chosen anew.
        crossover: probability that a child has two parents.
        mutations: expected number of genes that change, beside the one that always does.
        wild: probability that a child has no parents at all.
    """

    def __init__(
        self,
        seed: int,
        genes: Mapping[str, Gene],
        screen: Screen,
        *,
        initial: int = 24,
        population: int = 32,
        children: int = 8,
        crossover: float = 0.7,
        mutations: float = 1.0,
        wild: float = 0.05,
    ) -> None:
        self._seed = seed
        self._screen = screen
        self._initial = initial
        self._population = population
        self._children = children
        self._crossover = crossover
        self._wild = wild
        self._mutations = mutations
        self._state = _State(Parents(population))
        self._genes = genes
        self._distributions: dict[str, BaseDistribution] = {}
        self._numbers: dict[int, int] = {}  # Optuna trial number -> proposal number
        self._pending: tuple[int, Candidate] | None = None

    # -- what the driver asks -----------------------------------------------------------------------------------------

    @property
    def next_number(self) -> int:
        """The number of the next proposal."""
        return self._state.next_number

    def room(self, outstanding: int) -> int:
        """How many proposals can be made before results of the current generation are needed."""
        generation = self._generation(self._state.next_number)
        if outstanding and self._state.next_number == self._first_of(generation):
            return 0
        return self._first_of(generation + 1) - self._state.next_number

    def _generation(self, number: int) -> int:
        """The generation of a proposal: the first is random and larger than the others."""
        return max(0, (number - self._initial) // self._children + 1)

    def _first_of(self, generation: int) -> int:
        """The number of the first proposal of a generation."""
        return 0 if generation == 0 else self._initial + (generation - 1) * self._children

    def restore(self, results: Results, genes: Callable[[int], Mapping[str, int]], next_number: int) -> None:
        """Go on after `next_number` proposals.

        Args:
            results: those that there are so far.
            genes: of the result at a position.
        """
        self._state = state = _State(Parents(self._population), next_number)
        order = np.argsort(results.numbers, kind="stable")
        results = results[order]
        state.generation = self._generation(max(0, next_number - 1))
        firsts = [self._first_of(generation) for generation in range(state.generation + 1)]
        starts = np.searchsorted(results.numbers, firsts).tolist()
        for start, end in itertools.pairwise(starts):
            state.selection.renew(results[start:end])
        best = np.searchsorted(results.numbers, state.selection.best.numbers)
        state.parents = [genes(int(order[n])) for n in best]
        numbers, losses, penalty = results.numbers.tolist(), results.losses, results.penalty.tolist()
        state.told = [
            Individual(numbers[n], genes(int(order[n])), tuple(losses[n].tolist()), penalty[n])
            for n in range(starts[-1], len(results))
        ]

    def adopt(self, individual: Individual) -> None:
        """Take in a design that somebody else evaluated, as if it had been proposed next."""
        self._state.next_number += 1
        self._state.told.append(individual)

    def propose(self) -> Candidate | None:
        """The next new and legal design, or None when none could be found. Optuna's next trial gets its genes."""
        state = self._state
        number, generation = state.next_number, self._generation(state.next_number)
        if generation != state.generation:
            self._select()
            state.generation = generation
        rng = np.random.default_rng((self._seed, number))
        for attempt in range(MAX_ATTEMPTS):
            candidate = self._screen(self._child(rng, attempt))
            if candidate is not None:
                state.next_number += 1
                self._pending = number, candidate
                return candidate
        return None

    def _select(self) -> None:
        """Choose the parents of the next generation."""
        state = self._state
        told = sorted(state.told, key=lambda i: i.number)
        known = dict(zip(state.selection.best.numbers.tolist(), state.parents, strict=True))
        known.update((individual.number, individual.genes) for individual in told)
        state.selection.renew(Results.of(told))
        state.parents = [known[number] for number in state.selection.best.numbers.tolist()]
        state.told = []

    def distributions(self, candidate: Candidate) -> dict[str, BaseDistribution]:
        """The distributions of a design's genes, to ask Optuna for a trial with."""
        for name in candidate.genes.keys() - self._distributions.keys():
            self._distributions[name] = distribution(self._genes[name])
        return {name: self._distributions[name] for name in candidate.genes}

    def learn(self, individual: Individual) -> None:
        """Take in a result."""
        self._state.told.append(individual)

    # -- Optuna's protocol --------------------------------------------------------------------------------------------

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        # Optuna keeps this very dict, so `sample_relative` can add the genes of the design it chooses.
        return self._distributions

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        if self._pending is None:
            self.propose()
        if self._pending is None:
            return {}
        self._numbers[trial.number], candidate = self._pending
        self._pending = None
        self.distributions(candidate)
        return dict(candidate.genes)

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        rng = np.random.default_rng((self._seed, trial.number, len(trial.params)))
        low, high = 0, 0
        if isinstance(param_distribution, CategoricalDistribution):
            high = len(param_distribution.choices) - 1
            return param_distribution.choices[int(rng.integers(low, high + 1))]
        assert isinstance(param_distribution, IntDistribution)
        return int(rng.integers(param_distribution.low, param_distribution.high + 1))

    def after_trial(self, study: Study, trial: FrozenTrial, state: TrialState, values: Sequence[float] | None) -> None:
        number = self._numbers.pop(trial.number, None)
        if state != TrialState.COMPLETE or values is None or number is None:
            return
        signs = [-1.0 if d == StudyDirection.MAXIMIZE else 1.0 for d in study.directions]
        losses = tuple(s * v for s, v in zip(signs, values, strict=True))
        penalty = sum(max(0.0, v) for v in trial.constraints.values())
        self.learn(Individual(number, trial.params, losses, penalty))

    # -- breeding -----------------------------------------------------------------------------------------------------

    def _child(self, rng: np.random.Generator, attempt: int) -> Suggest:
        parents = self._state.parents
        wild = self._wild + 0.3 * min(1.0, attempt / 100)
        if not parents or rng.random() < wild:
            return self._suggest({}, rng)
        genes = dict(self._tournament(rng))
        if rng.random() < self._crossover:
            other = self._tournament(rng)
            take = {group: rng.random() < 0.5 for group in sorted({_group(n) for n in other})}
            genes.update({n: v for n, v in other.items() if n not in genes or take[_group(n)]})
        self._mutate(genes, rng, attempt)
        return self._suggest(genes, rng)

    def _suggest(self, genes: Mapping[str, int], rng: np.random.Generator) -> Suggest:
        return suggest_from(genes, random_suggest(rng))

    def _tournament(self, rng: np.random.Generator) -> Mapping[str, int]:
        # Parents are ordered best first, so the smaller position wins.
        parents = self._state.parents
        size = len(parents)
        return parents[min(int(rng.integers(size)), int(rng.integers(size)))]

    def _mutate(self, genes: dict[str, int], rng: np.random.Generator, attempt: int) -> None:
        names = sorted(genes)
        rate = min(0.5, self._mutations * (1 + attempt / 20) / len(names))
        forced = int(rng.integers(len(names)))
        draws = rng.random(len(names))
        for position, name in enumerate(names):
            if position == forced or draws[position] < rate:
                genes[name] = _step(self._genes[name], genes[name], rng)


def _group(name: str) -> str:
    """Genes that cross over together: those of one mesh axis."""
    return name.rpartition(".")[0] if name.startswith("fold.") else name


def _step(gene: Gene, value: int, rng: np.random.Generator) -> int:
    """A nearby value for ordered genes three times out of four, else any other value."""
    if gene.kind == "categorical" or rng.random() < 0.25:
        other = gene.draw(rng)
        return other if other != value else gene.low + (value - gene.low + 1) % (gene.high - gene.low + 1)
    up = bool(rng.integers(2))
    step = value if gene.kind == "log" else 1  # doubling and halving
    moved = value + step if up else value - (step + 1) // 2
    if moved < gene.low or moved > gene.high:
        moved = value - 1 if up else value + 1
    return min(max(moved, gene.low), gene.high)
