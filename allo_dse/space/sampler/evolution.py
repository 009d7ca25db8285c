"""Evolution: NSGA-II over genes, for spaces where most proposals are repeats or break a limit.

Differences from Optuna's own NSGA-II:

* while there are few results, a model chooses among many children (`acquisition`);
* it screens children before they cost an evaluation, and makes more until a design is new and legal;
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
from numbers import Integral
from typing import Literal, TypeVar

import numpy as np
from msgspec import Struct

from allo_dse.common.errors import StudyError
from allo_dse.common.records import keep

from ..genes import Gene, Genes, Suggest, random_suggest, suggest_from
from .acquisition import Archive, Model
from .pareto import Booleans, Floats, Individual, Integers, Parents, Results, front_with
from .surrogate import as_rows, one_thread

# `benchmarks/sampler_quality.py` measures the results of these settings, `benchmarks/search_speed.py` their time.
MAX_ATTEMPTS = 1000  # children per proposal before the search gives up
MAX_FRUITLESS = 300  # the same if `otherwise` can find a new design
PICKY = 32  # children per proposal that are skipped if they cannot be better than the front
MOST_SEEN = 20_000  # remembered children: late in a search most are repeats
NEAR = 3  # parents, and best candidates, whose neighbours are candidates
VALUES, AGAIN = 12, 4  # values per gene among the neighbours of parents, and of candidates
MOST_NEAR, CHILDREN, IMMIGRANTS = 96, 96, 64  # candidates near parents, from parents, and at random
TRIED = 8  # children or random designs that are compared by the probability of success alone
KEPT = 32  # candidates that are compared with the neighbours of the best
ALONE = 32  # the first designs that a model proposes one by one
AT_ONCE = 8  # children made in one batch

T = TypeVar("T")
Decided = tuple[tuple[str, int], ...]


class EvolutionParameters(Struct, frozen=True, dict=True):
    """Sizes and probabilities of the evolution.

    Attributes:
        initial: number of designs drawn at random to begin with.
        population: number of designs kept as parents.
        children: number of designs in a generation, fewer while models are small.
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

    @property
    def _phases(self) -> list[tuple[int, int, int]]:
        """First proposal, first generation and generation size of each phase, the last one first.

        A model costs the more, the more designs it has, so that it is made for the more proposals.
        """
        phases, number, generation = [(0, 0, self.initial)], self.initial, 1
        for size, end in ((1, ALONE), (2, 2 * ALONE), (self.children, 0)):
            phases.append((number, generation, min(size, self.children)))
            more = -(-max(0, min(end, self.modelled) - number) // phases[-1][2])
            number, generation = number + more * phases[-1][2], generation + more
        return phases[::-1]

    def generation(self, number: int) -> int:
        """Return the generation of a proposal; the first is random and larger than the others."""
        start, first, size = next(phase for phase in self._phases if phase[0] <= number)
        return first + (number - start) // size

    def first_of(self, generation: int) -> int:
        """Return the number of the first proposal of a generation."""
        start, first, size = next(phase for phase in self._phases if phase[1] <= generation)
        return start + (generation - first) * size


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


@dataclass
class _State:
    """Everything a proposal depends on, beside the seed."""

    selection: Parents
    next_number: int = 0
    generation: int = -1
    evaluated: list[Individual] = field(default_factory=list)
    parents: list[Mapping[str, int]] = field(default_factory=list)  # genes of the selected, best first
    front: Floats = field(default_factory=lambda: np.empty((0, 1)))  # losses of the best of earlier generations
    # Of this generation, made when first needed: how parents vary, parents as rows, and candidates, best first.
    variation: Variation | None = None
    rows: Integers = field(default_factory=lambda: np.empty((0, 0), np.int64))
    promising: Integers | None = None


class Evolution:
    """One search: proposes offspring of the best known designs.

    Args:
        seed: fixes every proposal, given the results so far.
        genes: the range of every gene met so far (a live view).
    """

    def __init__(self, seed: int, genes: Mapping[str, Gene], parameters: EvolutionParameters) -> None:
        self._seed = seed
        self._genes = genes
        self.parameters = parameters
        self._state = _State(Parents(parameters.population))
        self._archive: Archive | None = Archive(genes)
        self.pending: dict[int, Mapping[str, int]] = {}  # genes of proposals without results, by number
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
        generation = self.parameters.generation(number)
        if outstanding and number == self.parameters.first_of(generation):
            return 0
        return self.parameters.first_of(generation + 1) - number

    def restore(self, results: Results, individual: Callable[[int], Individual], next_number: int) -> None:
        """Continue after `next_number` proposals.

        Args:
            results: the results so far.
            individual: returns the design of the result at a position.
        """
        self._state = state = _State(Parents(self.parameters.population), next_number)
        self._archive, self.pending = Archive(self._genes), {}
        order = np.argsort(results.numbers, kind="stable")
        results = results[order]
        state.generation = self.parameters.generation(max(0, next_number - 1))
        firsts = [self.parameters.first_of(generation) for generation in range(state.generation + 1)]
        starts = np.searchsorted(results.numbers, firsts).tolist()
        state.selection.renew(results[: starts[-1]], starts)
        state.front = front_with(state.front, results[: starts[-1]])
        best = np.searchsorted(results.numbers, state.selection.best.numbers)
        state.parents = [individual(n).genes for n in order[best].tolist()]
        state.evaluated = [individual(n) for n in order[starts[-1] :].tolist()]
        learnt = starts[-1]
        if np.isfinite(results.losses[:learnt]).all(1).sum() >= self.parameters.modelled:
            learnt, self._archive = 0, None
        self._add_to_archive([individual(n) for n in order[:learnt].tolist()])

    def learn(self, individual: Individual) -> None:
        """Take in a result."""
        self.pending.pop(individual.number, None)
        self._state.evaluated.append(individual)

    def adopt(self, individual: Individual) -> None:
        """Take in a design that was evaluated elsewhere, as if it had been proposed next."""
        self._state.next_number += 1
        self.learn(individual)

    def pass_over(self) -> None:
        """Count a proposal that is made elsewhere."""
        generation = self.parameters.generation(self._state.next_number)
        if generation > self._state.generation:
            self._select(generation)
        self._state.next_number += 1

    def revise(self, results: Mapping[int, tuple[tuple[float, ...], Mapping[str, float]]]) -> None:
        """Update results that have changed; the next generation's parents are chosen by them.

        Args:
            results: losses and constraints of every known design, by number.
        """
        state = self._state
        state.evaluated = [Individual(i.number, i.genes, *results[i.number]) for i in state.evaluated]
        if self._archive is not None:
            known = self._archive.designs
            self._archive = Archive(self._genes, [Individual(i.number, i.genes, *results[i.number]) for i in known])
        state.selection.revise({n: Individual(n, {}, *results[n]) for n in state.selection.best.numbers.tolist()})
        state.front = state.front[:0]  # bounds do not hold for values that change

    def dominates_bounds(self, least: Sequence[float]) -> bool:
        """Return whether some earlier design is at least as good as the given losses in every objective."""
        return bool((self._state.front <= np.array(least)).all(1).any())

    def propose(
        self,
        screen: Callable[[Suggest, bool], T | Literal[False] | None],
        otherwise: Callable[[np.random.Generator], T | None] | None = None,
        over: Callable[[], bool] | None = None,
    ) -> T | None:
        """Return the next new and legal design, or None when none could be found.

        Args:
            screen: decodes a proposal. It returns None when the design is known or illegal. With its second argument
                true, it may return False for a design that cannot be better than the front.
            otherwise: finds one when the first children are all known or illegal.
            over: returns whether to give up.
        """
        number = self._state.next_number
        children = itertools.islice(self.children(number), MAX_FRUITLESS if otherwise else None)
        for position, (genes, rng) in enumerate(children):
            key, picky = tuple(sorted(genes.items())), position < PICKY
            if key in self._seen or (picky and key in self._outdone):
                continue
            if over and over():
                return None
            before = rng.bit_generator.state
            found = screen(suggest_from(genes, random_suggest(rng)), picky)
            if rng.bit_generator.state == before:  # genes alone decide
                keep(self._outdone if found is False else self._seen, key, None, MOST_SEEN)
            if found is not None and found is not False:
                self._state.next_number += 1
                return found
        found = otherwise(np.random.default_rng((self._seed, number, 2))) if otherwise else None
        self._state.next_number += found is not None
        return found

    def children(self, number: int) -> Iterator[tuple[Genes, np.random.Generator]]:
        """Yield genes for a proposal, ever wilder ones, with the generator that missing genes are drawn from."""
        generation = self.parameters.generation(number)
        if generation > self._state.generation:
            self._select(generation)
        rng = np.random.default_rng((self._seed, number))
        variation = self._variation
        if self._state.promising is None:
            self._state.promising = self._promising(variation)
        # Concurrent proposals start at different ranks.
        rank = number - self.parameters.first_of(generation)
        for row in self._state.promising[rank:]:
            yield variation.genes(row), rng
        for start in range(0, MAX_ATTEMPTS, AT_ONCE):
            for row in self._offspring(variation, np.arange(start, start + AT_ONCE), rng):
                yield variation.genes(row), rng

    @property
    def _variation(self) -> Variation:
        state = self._state
        if state.variation is None:
            names = {name for parent in state.parents for name in parent}
            names.update(self._archive.names if self._archive else ())
            state.variation = Variation(sorted(names), self._genes)
            state.rows = state.variation.rows(state.parents)
        return state.variation

    def _promising(self, variation: Variation) -> Integers:
        """Return the candidates that a model expects most of, best first; none without a model."""
        nothing = np.empty((0, len(variation.names)), np.int64)
        if self._archive is None or not self._state.parents:
            return nothing
        rng = np.random.default_rng((self._seed, self._state.generation, 1))
        with one_thread():
            # Ratios of several objectives may trade off, or differences: models of either take turns.
            several = self._state.selection.best.losses.shape[1:] > (1,)
            model = self._archive.model(linear=several and self._state.generation % 2 == 0)
            if model is None:
                return nothing
            pending = variation.rows([*self.pending.values()])
            known = np.vstack((self._archive.rows, pending))
            if not model.informed:
                # Far from failures success is hardly more probable: prefer it, but stay random.
                return self._ranked(model, _unique(self._immigrants(variation, TRIED, rng), known), pending, rng)
            if self._state.generation % 2 and not model.predictive:
                # The model misleads, so every other time do without it.
                offspring = self._offspring(variation, np.zeros(TRIED, int), rng)
                offspring = offspring[variation.present(offspring).any(1)]
                return self._ranked(model, _unique(offspring, known), pending, rng, by_gain=False)
            # Candidates: neighbours of parents, children, and random designs.
            near = variation.neighbours(self._state.rows[:NEAR], VALUES, rng)
            near = near[rng.permutation(len(near))[:MOST_NEAR]]
            offspring = self._offspring(variation, np.arange(CHILDREN) % 40, rng)
            offspring = offspring[variation.present(offspring).any(1)]
            rows = _unique(np.vstack((near, offspring, self._immigrants(variation, IMMIGRANTS, rng))), known)
            if not len(rows):
                return nothing
            # Candidates are few: look again near the best of them.
            order = np.argsort(-np.round(model.candidates(rows).worth(rng), 7), kind="stable")
            near = variation.neighbours(rows[order[:NEAR]], AGAIN, rng)
            near = near[rng.permutation(len(near))[:MOST_NEAR]]
            rows = _unique(np.vstack((rows[order[:KEPT]], near)), known)
            return self._ranked(model, rows, pending, rng)

    def _ranked(
        self, model: Model, rows: Integers, pending: Integers, rng: np.random.Generator, *, by_gain: bool = True
    ) -> Integers:
        """Return candidates in the order of their worth, or feasibility, the first of them each given those before."""
        found = model.candidates(np.vstack((rows, pending)))
        for position in range(len(rows), len(rows) + len(pending)):
            found.believe(position)
        left, chosen = np.arange(len(rows)), list[int]()
        begin, end = (self.parameters.first_of(self._state.generation + more) for more in (0, 1))
        for _ in range(begin, end):
            if not len(left):
                break
            worth = (found.worth(rng) if by_gain else found.probability())[left]
            # Round, so that equally good candidates stay in order on every machine.
            order = np.argsort(-np.round(worth, 7), kind="stable")
            chosen.append(int(left[order[0]]))
            left = left[order[1:]]
            found.believe(chosen[-1])
        found_order: Integers = rows[np.array([*chosen, *left.tolist()], int)]
        return found_order

    def _immigrants(self, variation: Variation, count: int, rng: np.random.Generator) -> Integers:
        """Return random designs with the same sets of genes as parents."""
        rows = self._state.rows
        return variation.random(rows[rng.integers(len(rows), size=count)], rng)

    def _offspring(self, variation: Variation, attempts: Integers, rng: np.random.Generator) -> Integers:
        """Return children, the later the wilder; some have no genes, so that all are drawn."""
        rows, parameters, count = self._state.rows, self.parameters, len(attempts)
        if not len(rows):
            return np.repeat(variation.absent[None], count, 0)
        # Parents are ordered best first, so the smaller position wins a tournament.
        one, other = rows[rng.integers(len(rows), size=(4, count)).reshape(2, 2, count).min(1)]
        crossed = rng.random(count) < parameters.crossover
        children = np.where(crossed[:, None], variation.cross(one, other, rng), one)
        children = variation.mutate(children, parameters.mutations * (1 + attempts / 20), rng)
        wild = rng.random(count) < parameters.wild + 0.3 * np.minimum(1.0, attempts / 100)
        children[wild] = variation.absent
        return children

    def _select(self, generation: int) -> None:
        """Choose the parents of a generation, and let models learn from those before it."""
        state = self._state
        # Results may already belong to the generation that begins. Leave them out, as a resumed run would.
        end = self.parameters.first_of(generation) if generation > state.generation else sys.maxsize
        state.generation = generation
        evaluated = sorted((i for i in state.evaluated if i.number < end), key=lambda i: i.number)
        known = dict(zip(state.selection.best.numbers.tolist(), state.parents, strict=True))
        known.update((individual.number, individual.genes) for individual in evaluated)
        results = Results.of(evaluated)
        state.selection.renew(results)
        state.front = front_with(state.front, results)
        state.parents = [known[number] for number in state.selection.best.numbers.tolist()]
        self._add_to_archive(evaluated)
        state.evaluated = [i for i in state.evaluated if i.number >= end]

    def _add_to_archive(self, evaluated: Sequence[Individual]) -> None:
        """Let models learn of designs, as long as they are used."""
        self._state.promising = self._state.variation = None
        if self._archive is not None:
            self._archive.add(evaluated)
            if sum(np.isfinite(i.losses).all() for i in self._archive.designs) >= self.parameters.modelled:
                self._archive = None


def _unique(rows: Integers, known: Integers) -> Integers:
    """Return the different rows that are not known, in their order."""
    every = np.ascontiguousarray(np.vstack((known, rows)))
    _, first = np.unique(every.view(f"V{every.itemsize * every.shape[1]}")[:, 0], return_index=True)
    found: Integers = every[np.sort(first[first >= len(known)])]
    return found


FINE_STEPS = (0.5, 5.0)  # steps of a fine gene, as negative powers of ten of its range
ANY = 0.25  # probability that a mutation draws any value instead of a near one


class Variation:
    """Makes designs from others. A design is a row of values, one per gene, below the gene's range for an absent one.

    Args:
        names: names of the genes, sorted.
        genes: range of each gene.
    """

    def __init__(self, names: Sequence[str], genes: Mapping[str, Gene]) -> None:
        self.names, self.ranges = tuple(names), [genes[name] for name in names]
        self._low = np.array([gene.low for gene in self.ranges], np.int64)
        self._high = np.array([gene.high for gene in self.ranges], np.int64)
        kinds = np.array([gene.kind for gene in self.ranges], object)
        self._is = {kind: kinds == kind for kind in ("log", "fine", "categorical")}
        # Genes of one mesh axis cross over together.
        groups = [name.rpartition(".")[0] if name.startswith("fold.") else name for name in names]
        _, self._groups = np.unique(groups, return_inverse=True)

    @property
    def absent(self) -> Integers:
        """A row without genes."""
        return self._low - 1

    def rows(self, designs: Sequence[Mapping[str, int]]) -> Integers:
        """Return designs as rows, (designs, genes)."""
        return as_rows(designs, self.names, self.ranges)

    def genes(self, row: Integers) -> Genes:
        """Return a row as a design."""
        pairs = zip(self.names, row.tolist(), self.ranges, strict=True)
        return {name: value for name, value, gene in pairs if value >= gene.low}

    def present(self, rows: Integers) -> Booleans:
        """Return a mask of the genes that designs have, (designs, genes)."""
        found: Booleans = rows >= self._low
        return found

    def draw(self, columns: Integers, rng: np.random.Generator) -> Integers:
        """Draw a value for each of these genes; each octave of a logarithmic gene is equally likely."""
        low, high, share = self._low[columns], self._high[columns], rng.random(len(columns))
        found = low + np.floor(share * (high - low + 1.0)).astype(np.int64)
        if (logarithmic := self._is["log"][columns]).any():
            first, last = np.log(low[logarithmic] - 0.5), np.log(high[logarithmic] + 0.5)
            found[logarithmic] = np.rint(np.exp(first + (last - first) * share[logarithmic]))
        return np.clip(found, low, high)

    def step(self, values: Integers, columns: Integers, rng: np.random.Generator) -> Integers:
        """Draw another value for each of these genes: a near one three times out of four where they are ordered."""
        low, high = self._low[columns], self._high[columns]
        values = np.clip(values, low, high)
        other = self.draw(columns, rng)
        other = np.where(other == values, low + (values - low + 1) % (high - low + 1), other)
        up = rng.random(len(columns)) < 0.5
        # The distance to the best value is unknown: fine genes take steps of all sizes.
        fine = np.rint((high - low) * 10.0 ** -rng.uniform(*FINE_STEPS, len(columns))).astype(np.int64)
        is_fine = self._is["fine"][columns]
        size = np.where(is_fine, np.maximum(1, fine), np.where(self._is["log"][columns], values, 1))
        moved = np.where(up, values + size, values - np.where(is_fine, size, (size + 1) // 2))
        back = np.where(up, -1, 1)
        for turned in (values + back, values - back):  # at an end of the range, step back
            moved = np.where((moved < low) | (moved > high), turned, moved)
        anywhere = self._is["categorical"][columns] | (rng.random(len(columns)) < ANY)
        return np.where(anywhere, other, np.clip(moved, low, high))

    def random(self, like: Integers, rng: np.random.Generator) -> Integers:
        """Return random designs with the same sets of genes as others, (designs, genes)."""
        found, present = like.copy(), self.present(like)
        found[present] = self.draw(np.nonzero(present)[1], rng)
        return found

    def neighbours(self, rows: Integers, count: int, rng: np.random.Generator) -> Integers:
        """Return designs that each differ from one of some in a gene, (designs, genes): all of a gene with few values.

        Args:
            rows: (designs, genes).
            count: most values per gene.
        """
        which = np.nonzero(self.present(rows))
        span = (self._high - self._low)[which[1]]
        copies = np.where(span < count, span + 1, count)
        origin, columns, few = np.repeat(which[0], copies), np.repeat(which[1], copies), np.repeat(span < count, copies)
        position = np.arange(len(columns)) - np.repeat(np.cumsum(copies) - copies, copies)
        before = rows[origin, columns]
        values = np.where(few, self._low[columns] + position, 0)
        values[~few] = self.step(before[~few], columns[~few], rng)
        different = values != before
        found: Integers = rows[origin[different]]
        found[np.arange(len(found)), columns[different]] = values[different]
        return found

    def cross(self, one: Integers, other: Integers, rng: np.random.Generator) -> Integers:
        """Return children that have each group of genes from either parent, (children, genes)."""
        groups = int(self._groups.max(initial=-1)) + 1
        take = (rng.random((len(one), groups)) < 0.5)[:, self._groups] | ~self.present(one)
        return np.where(take & self.present(other), other, one)

    def mutate(self, rows: Integers, rates: Floats, rng: np.random.Generator) -> Integers:
        """Change genes of designs, at least one each.

        Args:
            rates: expected number of genes that change beside that one, (designs,).
        """
        present = self.present(rows)
        drawn = np.where(present, rng.random(rows.shape), np.inf)
        forced = np.where(present, rng.random(rows.shape), np.inf)
        chosen = drawn < np.minimum(0.5, rates / np.maximum(1, present.sum(1)))[:, None]
        chosen |= present & (forced == forced.min(1, keepdims=True, initial=np.inf))
        found, columns = rows.copy(), np.nonzero(chosen)[1]
        found[chosen] = self.step(rows[chosen], columns, rng)
        return found
