"""Evolution: NSGA-II over genes, for spaces where most proposals are repeats or break a limit.

What it does differently from Optuna's own NSGA-II:

* it screens a child before anything is spent on it, and breeds another one until a new and legal design is found;
* mutation takes small steps along ordered genes;
* a proposal depends only on the seed, its number and the results of finished generations, so a resumed run goes on
  exactly as the interrupted one would have, without replaying it;
* its cost does not grow with the number of trials (Optuna's scans all trials for every proposal).

Selection by rank and crowding, and crossover and mutation of a child of two tournament winners, follow K. Deb et al.,
"A fast and elitist multiobjective genetic algorithm: NSGA-II", IEEE Trans. Evol. Comput. 6(2), 2002.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from .gene import Gene, Genes, Suggest, random_suggest, suggest_from
from .selection import Individual, Parents, Results

MAX_ATTEMPTS = 1000  # per proposal, before the space counts as exhausted

T = TypeVar("T")


@dataclass(frozen=True)
class Breeding:
    """How designs are bred.

    Attributes:
        initial: how many designs are drawn at random to begin with.
        population: how many designs are kept as parents.
        children: how many designs are bred from them before parents are chosen anew.
        crossover: probability that a child has two parents.
        mutations: expected number of genes that change, beside the one that always does.
        wild: probability that a child has no parents at all.
    """

    initial: int = 24
    population: int = 32
    children: int = 8
    crossover: float = 0.7
    mutations: float = 1.0
    wild: float = 0.05

    def generation(self, number: int) -> int:
        """The generation of a proposal: the first is random and larger than the others."""
        return max(0, (number - self.initial) // self.children + 1)

    def first_of(self, generation: int) -> int:
        """The number of the first proposal of a generation."""
        return 0 if generation == 0 else self.initial + (generation - 1) * self.children


@dataclass
class _State:
    """Everything a proposal depends on, beside the seed."""

    selection: Parents
    next_number: int = 0
    generation: int = -1
    told: list[Individual] = field(default_factory=list)
    parents: list[Mapping[str, int]] = field(default_factory=list)  # genes of the selected, best first


class Evolution:
    """One search: proposes designs by breeding from the best known ones.

    Args:
        seed: fixes every proposal, given the results told so far.
        genes: the range of every gene met so far (a live view).
    """

    def __init__(self, seed: int, genes: Mapping[str, Gene], breeding: Breeding) -> None:
        self._seed = seed
        self._genes = genes
        self._breeding = breeding
        self._state = _State(Parents(breeding.population))

    @property
    def next_number(self) -> int:
        """The number of the next proposal."""
        return self._state.next_number

    def room(self, outstanding: int) -> int:
        """How many proposals can be made before results of the current generation are needed."""
        number = self._state.next_number
        generation = self._breeding.generation(number)
        if outstanding and number == self._breeding.first_of(generation):
            return 0
        return self._breeding.first_of(generation + 1) - number

    def restore(self, results: Results, genes: Callable[[int], Mapping[str, int]], next_number: int) -> None:
        """Go on after `next_number` proposals.

        Args:
            results: those that there are so far.
            genes: of the result at a position.
        """
        self._state = state = _State(Parents(self._breeding.population), next_number)
        order = np.argsort(results.numbers, kind="stable")
        results = results[order]
        state.generation = self._breeding.generation(max(0, next_number - 1))
        firsts = [self._breeding.first_of(generation) for generation in range(state.generation + 1)]
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

    def learn(self, individual: Individual) -> None:
        """Take in a result."""
        self._state.told.append(individual)

    def adopt(self, individual: Individual) -> None:
        """Take in a design that somebody else evaluated, as if it had been proposed next."""
        self._state.next_number += 1
        self.learn(individual)

    def revise(self, results: Mapping[int, tuple[tuple[float, ...], float]]) -> None:
        """Take in that losses and penalties have changed; parents are chosen by them from the next generation on.

        Args:
            results: losses and penalty of every design told, by number.
        """
        state = self._state
        state.told = [Individual(i.number, i.genes, *results[i.number]) for i in state.told]
        state.selection.revise(results)

    def propose(self, screen: Callable[[Suggest], T | None]) -> T | None:
        """The next new and legal design, or None when none could be found.

        Args:
            screen: decodes a proposal; None when the design is known or illegal.
        """
        for genes, rng in self.children(self._state.next_number):
            found = screen(suggest_from(genes, random_suggest(rng)))
            if found is not None:
                self._state.next_number += 1
                return found
        return None

    def children(self, number: int) -> Iterator[tuple[Genes, np.random.Generator]]:
        """The genes of a proposal, ever wilder ones until one is taken, and where missing ones are drawn from."""
        generation = self._breeding.generation(number)
        if generation > self._state.generation:
            self._select()
            self._state.generation = generation
        rng = np.random.default_rng((self._seed, number))
        for attempt in range(MAX_ATTEMPTS):
            yield self._child(rng, attempt), rng

    def _select(self) -> None:
        """Choose the parents of the next generation."""
        state = self._state
        told = sorted(state.told, key=lambda i: i.number)
        known = dict(zip(state.selection.best.numbers.tolist(), state.parents, strict=True))
        known.update((individual.number, individual.genes) for individual in told)
        state.selection.renew(Results.of(told))
        state.parents = [known[number] for number in state.selection.best.numbers.tolist()]
        state.told = []

    def _child(self, rng: np.random.Generator, attempt: int) -> Genes:
        parents, breeding = self._state.parents, self._breeding
        wild = breeding.wild + 0.3 * min(1.0, attempt / 100)
        if not parents or rng.random() < wild:
            return {}
        genes = dict(self._tournament(rng))
        if rng.random() < breeding.crossover:
            other = self._tournament(rng)
            take = {group: rng.random() < 0.5 for group in sorted({_group(n) for n in other})}
            genes.update({n: v for n, v in other.items() if n not in genes or take[_group(n)]})
        self._mutate(genes, rng, attempt)
        return genes

    def _tournament(self, rng: np.random.Generator) -> Mapping[str, int]:
        # Parents are ordered best first, so the smaller position wins.
        parents = self._state.parents
        size = len(parents)
        return parents[min(int(rng.integers(size)), int(rng.integers(size)))]

    def _mutate(self, genes: Genes, rng: np.random.Generator, attempt: int) -> None:
        names = sorted(genes)
        if not names:
            return
        rate = min(0.5, self._breeding.mutations * (1 + attempt / 20) / len(names))
        forced = int(rng.integers(len(names)))
        draws = rng.random(len(names))
        for position, name in enumerate(names):
            if position == forced or draws[position] < rate:
                genes[name] = self._genes[name].step(genes[name], rng)


def _group(name: str) -> str:
    """Genes that cross over together: those of one mesh axis."""
    return name.rpartition(".")[0] if name.startswith("fold.") else name
