"""Evolution: NSGA-II over genes, for spaces where most proposals are repeats or break a limit.

Differences from Optuna's own NSGA-II:

* while there are few results, a model chooses among many children (`prospects`);
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
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from numbers import Integral
from typing import Literal, TypeVar

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import StudyError
from allo_dse.common.records import keep

from ..choice import Gene, Genes, Suggest, random_suggest, suggest_from
from .pareto import Floats, Individual, Parents, Results, front_with
from .prospects import Memory
from .surrogate import one_thread

MAX_ATTEMPTS = 1000  # children per proposal before the search gives up
MAX_FRUITLESS = 300  # the same if `otherwise` can find a new design
PICKY = 32  # children per proposal that are skipped if they cannot be better than the front
MOST_SEEN = 20_000  # remembered children: late in a search most are repeats
NEAR = 3  # parents whose neighbours are candidates
VALUES = 12  # values per gene among the neighbours
BRED, STRAYS = 200, 60  # candidates with parents, and without

T = TypeVar("T")
Decided = tuple[tuple[str, int], ...]


class Breeding(Struct, frozen=True):
    """Sizes and probabilities of the evolution.

    Attributes:
        initial: number of designs drawn at random to begin with.
        population: number of designs kept as parents.
        children: number of designs bred before parents are chosen anew.
        crossover: probability that a child has two parents.
        mutations: expected number of genes that change, beside the one that always does.
        wild: probability that a child has no parents at all.
        modelled: number of first designs that a model chooses among many children.
    """

    initial: int = 12
    population: int = 16
    children: int = 4
    crossover: float = 0.7
    mutations: float = 1.0
    wild: float = 0.05
    modelled: int = 256

    def generation(self, number: int) -> int:
        """Return the generation of a proposal; the first is random and larger than the others."""
        return max(0, (number - self.initial) // self.children + 1)

    def first_of(self, generation: int) -> int:
        """Return the number of the first proposal of a generation."""
        return 0 if generation == 0 else self.initial + (generation - 1) * self.children


LEAST = {"initial": 1, "population": 1, "children": 1, "modelled": 0}


def check_sizes(sizes: Mapping[str, object]) -> None:
    """Check that a search can have these sizes.

    Raises:
        StudyError: when there is no such size, or it is too small.
    """
    for name, size in sizes.items():
        if name not in LEAST:
            raise StudyError(f"a search has no size {name!r}", hint=f"one of {', '.join(LEAST)}")
        if not isinstance(size, Integral) or isinstance(size, bool) or size < LEAST[name]:
            raise StudyError(f"{name}={size!r} is no number of designs", hint=f"at least {LEAST[name]}")


def default_sizes(objectives: int) -> dict[str, int]:
    """Return the default sizes of a search; a front takes more parents than a single minimum."""
    return {"initial": 12, "population": 8 if objectives == 1 else 16, "children": 4}


@dataclass
class _State:
    """Everything a proposal depends on, beside the seed."""

    selection: Parents
    next_number: int = 0
    generation: int = -1
    told: list[Individual] = field(default_factory=list)
    parents: list[Mapping[str, int]] = field(default_factory=list)  # genes of the selected, best first
    front: Floats = field(default_factory=lambda: np.empty((0, 1)))  # losses of the best of earlier generations
    promising: list[Genes] | None = (
        None  # children of this generation, ranked by a model, best first; None: not ranked yet
    )


class Evolution:
    """One search: proposes designs by breeding from the best known ones.

    Args:
        seed: fixes every proposal, given the results told so far.
        genes: the range of every gene met so far (a live view).
    """

    def __init__(self, seed: int, genes: Mapping[str, Gene], breeding: Breeding) -> None:
        self._seed = seed
        self._genes = genes
        self.breeding = breeding
        self._state = _State(Parents(breeding.population))
        self._memory: Memory | None = Memory(genes)
        # Genes that decide a known or illegal design, and those of designs no better than the front; both for good.
        self._seen: dict[Decided, None] = {}
        self._outdone: dict[Decided, None] = {}

    @property
    def next_number(self) -> int:
        """The number of the next proposal."""
        return self._state.next_number

    def room(self, outstanding: int) -> int:
        """Return the number of proposals possible before results of the current generation are needed."""
        number = self._state.next_number
        generation = self.breeding.generation(number)
        if outstanding and number == self.breeding.first_of(generation):
            return 0
        return self.breeding.first_of(generation + 1) - number

    def restore(self, results: Results, genes: Callable[[int], Mapping[str, int]], next_number: int) -> None:
        """Continue after `next_number` proposals.

        Args:
            results: the results so far.
            genes: returns the genes of the result at a position.
        """
        self._state = state = _State(Parents(self.breeding.population), next_number)
        self._memory = Memory(self._genes)
        order = np.argsort(results.numbers, kind="stable")
        results = results[order]
        state.generation = self.breeding.generation(max(0, next_number - 1))
        firsts = [self.breeding.first_of(generation) for generation in range(state.generation + 1)]
        starts = np.searchsorted(results.numbers, firsts).tolist()
        state.selection.renew(results[: starts[-1]], starts)
        state.front = front_with(state.front, results[: starts[-1]])
        best = np.searchsorted(results.numbers, state.selection.best.numbers)
        state.parents = [genes(int(order[n])) for n in best]
        numbers, losses, penalty = results.numbers.tolist(), results.losses, results.penalty.tolist()

        def individual(n: int) -> Individual:
            return Individual(numbers[n], genes(int(order[n])), tuple(losses[n].tolist()), penalty[n])

        state.told = [individual(n) for n in range(starts[-1], len(results))]
        learnt = starts[-1] if firsts[-1] < self.breeding.modelled else 0
        self._memorise([individual(n) for n in range(learnt)])

    def learn(self, individual: Individual) -> None:
        """Take in a result."""
        self._state.told.append(individual)

    def adopt(self, individual: Individual) -> None:
        """Take in a design that was evaluated elsewhere, as if it had been proposed next."""
        self._state.next_number += 1
        self.learn(individual)

    def pass_over(self) -> None:
        """Count a proposal that is made elsewhere."""
        generation = self.breeding.generation(self._state.next_number)
        if generation > self._state.generation:
            self._select(generation)
        self._state.next_number += 1

    def revise(self, results: Mapping[int, tuple[tuple[float, ...], float]]) -> None:
        """Update losses and penalties that have changed; the next generation's parents are chosen by them.

        Args:
            results: losses and penalty of every known design, by number.
        """
        state = self._state
        state.told = [Individual(i.number, i.genes, *results[i.number]) for i in state.told]
        if self._memory is not None:
            known = self._memory.designs
            self._memory = Memory(self._genes, [Individual(i.number, i.genes, *results[i.number]) for i in known])
        state.selection.revise(results)
        state.front = state.front[:0]  # bounds do not hold for values that change

    def outdoes(self, least: Sequence[float]) -> bool:
        """Return whether some earlier design is at least as good as the given losses in every objective."""
        return bool((self._state.front <= np.array(least)).all(1).any())

    def propose(
        self,
        screen: Callable[[Suggest, bool], T | Literal[False] | None],
        otherwise: Callable[[np.random.Generator], T | None] | None = None,
    ) -> T | None:
        """Return the next new and legal design, or None when none could be found.

        Args:
            screen: decodes a proposal. It returns None when the design is known or illegal. With its second argument
                true, it may return False for a design that cannot be better than the front.
            otherwise: finds one when the first children are all known or illegal.
        """
        number = self._state.next_number
        children = itertools.islice(self.children(number), MAX_FRUITLESS if otherwise else None)
        for position, (genes, rng) in enumerate(children):
            key, picky = tuple(sorted(genes.items())), position < PICKY
            if key in self._seen or (picky and key in self._outdone):
                continue
            drawn: list[str] = []
            found = screen(suggest_from(genes, _noting(random_suggest(rng), drawn)), picky)
            if not drawn:
                keep(self._outdone if found is False else self._seen, key, None, MOST_SEEN)
            if found is not None and found is not False:
                self._state.next_number += 1
                return found
        found = otherwise(np.random.default_rng((self._seed, number, 2))) if otherwise else None
        self._state.next_number += found is not None
        return found

    def children(self, number: int) -> Iterator[tuple[Genes, np.random.Generator]]:
        """Yield genes for a proposal, ever wilder ones, with the generator that missing genes are drawn from."""
        generation = self.breeding.generation(number)
        if generation > self._state.generation:
            self._select(generation)
        rng = np.random.default_rng((self._seed, number))
        if self._state.promising is None:
            self._state.promising = self._promising()
        # Concurrent proposals start at different ranks.
        rank = number - self.breeding.first_of(generation)
        for child in self._state.promising[rank:]:
            yield child, rng
        for attempt in range(MAX_ATTEMPTS):
            yield self._child(rng, attempt), rng

    def _promising(self) -> list[Genes]:
        """Return the candidates that a model expects most of; empty without a model."""
        if self._memory is None:
            return []
        with one_thread():
            prospects = self._memory.models()
            rng = np.random.default_rng((self._seed, self._state.generation, 1))
            return [] if prospects is None else prospects.ranked(self._candidates(rng), rng)

    def _candidates(self, rng: np.random.Generator) -> list[Genes]:
        """Children of all kinds: near ones, bred ones, and some that share nothing with their parents."""
        parents = self._state.parents
        near = {int(rng.integers(min(len(parents), NEAR))) for _ in range(NEAR)}
        found = [child for n in sorted(near) for child in self._neighbours(parents[n], rng)]
        found += [self._child(rng, attempt % 40) or self._stray(rng) for attempt in range(BRED)]
        found += [self._stray(rng) for _ in range(STRAYS)]
        return [dict(genes) for genes in dict.fromkeys(tuple(sorted(child.items())) for child in found)]

    def _neighbours(self, parent: Mapping[str, int], rng: np.random.Generator) -> list[Genes]:
        """Return all designs that differ from a parent in one gene; for genes with many values, some of them."""
        found = []
        for name in sorted(parent):
            gene = self._genes[name]
            if gene.high - gene.low < VALUES:
                values = list(range(gene.low, gene.high + 1))
            else:
                values = [gene.step(parent[name], rng) for _ in range(VALUES)]
            found += [{**parent, name: value} for value in values if value != parent[name]]
        return found

    def _stray(self, rng: np.random.Generator) -> Genes:
        """Return a random design with the same set of genes as one of the parents."""
        parent = self._state.parents[int(rng.integers(len(self._state.parents)))]
        return {name: self._genes[name].draw(rng) for name in sorted(parent)}

    def _select(self, generation: int) -> None:
        """Choose the parents of a generation, and let models learn from those before it."""
        state = self._state
        # Results may already belong to the generation that begins. Leave them out, as a resumed run would.
        end = self.breeding.first_of(generation) if generation > state.generation else sys.maxsize
        state.generation = generation
        told = sorted((i for i in state.told if i.number < end), key=lambda i: i.number)
        known = dict(zip(state.selection.best.numbers.tolist(), state.parents, strict=True))
        known.update((individual.number, individual.genes) for individual in told)
        results = Results.of(told)
        state.selection.renew(results)
        state.front = front_with(state.front, results)
        state.parents = [known[number] for number in state.selection.best.numbers.tolist()]
        self._memorise(told)
        state.told = [i for i in state.told if i.number >= end]

    def _memorise(self, told: Sequence[Individual]) -> None:
        """Let models learn of designs, as long as they are used."""
        self._state.promising = None
        if self.breeding.first_of(self._state.generation) >= self.breeding.modelled:
            self._memory = None
        elif self._memory is not None:
            self._memory.designs += told

    def _child(self, rng: np.random.Generator, attempt: int) -> Genes:
        parents, breeding = self._state.parents, self.breeding
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
        rate = min(0.5, self.breeding.mutations * (1 + attempt / 20) / len(names))
        forced = int(rng.integers(len(names)))
        draws = rng.random(len(names)).tolist()
        draws[forced] = -1.0
        for name in [name for name, drawn in zip(names, draws, strict=True) if drawn < rate]:
            genes[name] = self._genes[name].step(genes[name], rng)


def _noting(suggest: Suggest, names: list[str]) -> Suggest:
    """Wrap a suggester so that it records every gene asked for."""

    def noting(name: str, gene: Gene) -> int:
        names.append(name)
        return suggest(name, gene)

    return noting


@cache
def _group(name: str) -> str:
    """Genes that cross over together: those of one mesh axis."""
    return name.rpartition(".")[0] if name.startswith("fold.") else name
