"""Proposers: evolution, Optuna's ask/tell with any sampler, bounds and evolution in turn, or a small space in order."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from allo_dse.common.errors import StudyError
from allo_dse.common.records import keep
from allo_dse.space.design import Design
from allo_dse.space.genes import Genes, Suggest
from allo_dse.space.regions import regions_of
from allo_dse.space.sampler.pareto import Individual, Results
from allo_dse.space.space import Candidate

from ..store.record import Record
from .best_first_queue import distance, magnitude
from .exact import PER_TRIAL, ExactProposer
from .lower_bounds import Losses, LowerBounds
from .objectives import Objective
from .proposer import Outcome, OutcomeOf, Proposal, Proposer
from .screening import Screen

if TYPE_CHECKING:
    import optuna

    from allo_dse.space.sampler.optuna_sampler import EvolutionSampler

MOST_DOMINATED = 100_000  # keys that are kept


class EvolutionProposer(Proposer):
    """Evolutionary sampler of this package, outside Optuna.

    Children are screened before they count. No Optuna trials are made, which would take a fifth of the driver's time.

    Args:
        strict: whether proposals must not depend on evaluation times.
        alone: whether to propose the remaining designs of the space when no child is new.
    """

    name = "evolution"

    def __init__(
        self,
        screen: Screen,
        lower_bounds: LowerBounds,
        sampler: EvolutionSampler,
        *,
        strict: bool,
        alone: bool = True,
    ) -> None:
        self._alone, space = alone, screen.space
        self._lower_bounds = lower_bounds
        self._search = sampler.search(space.genes, len(lower_bounds.objectives))
        self._screen = screen
        self._space = space
        self._signs = [o.sign for o in lower_bounds.objectives]
        self._strict = strict
        self._dominated: dict[str, None] = {}  # keys of designs found to be dominated

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        proposals: list[Proposal] = []
        for _ in range(count):
            if self._strict and self._search.room(outstanding + len(proposals)) == 0:
                break
            number = self._search.next_number
            over = self._screen.meanwhile if number else None  # a run ends with a result, if late
            candidate = self._search.propose(self._decode, self._screen.any_new if self._alone else None, over)
            if candidate is None:
                self.exhausted = not (over and over())
                break
            self._search.pending[number] = candidate.genes
            proposals.append(Proposal(number, candidate))
        return proposals

    def _decode(self, suggest: Suggest, picky: bool) -> Candidate | Literal[False] | None:
        return self._screen.decode_unless(self._is_dominated if picky else None, suggest)

    def _is_dominated(self, design: Design) -> bool:
        """Return whether a design that was found is at least as good as this one can be.

        Bounds reveal a change that leaves the bottleneck as it was.
        """
        if design.key in self._dominated:
            return True
        bounds = (self._lower_bounds(design, level) for level in range(self._lower_bounds.levels))
        if not any(found is None or self._search.dominates_bounds(found) for found in bounds):
            return False
        keep(self._dominated, design.key, None, MOST_DOMINATED)
        return True

    def tell(self, number: int, outcome: Outcome) -> None:
        self._search.learn(self._individual(number, self._search.pending[number], outcome))

    def take_over(self, number: int, genes: dict[str, int]) -> None:
        """Count a design that was proposed elsewhere as proposed, as the next one."""
        self._search.pass_over()
        self._search.pending[number] = self._space.learn(genes)

    def learn(self, key: str, genes: Genes, outcome: Outcome) -> int:
        number = self._search.next_number
        self._search.adopt(self._individual(number, genes, outcome))
        return number

    def _individual(self, number: int, genes: Mapping[str, int], outcome: Outcome) -> Individual:
        return Individual(number, genes, self._losses(outcome), outcome.constraints)

    def _losses(self, outcome: Outcome) -> Losses:
        if not outcome.values:
            return (math.inf,) * len(self._signs)
        return tuple(map(operator.mul, self._signs, outcome.values))

    def revise(self, outcome: Mapping[int, Outcome]) -> None:
        self._search.revise({number: (self._losses(found), found.constraints) for number, found in outcome.items()})

    def restore(self, history: Sequence[Record], outcome_of: OutcomeOf, next_number: int) -> None:
        # Convert results one by one: to keep a million of them takes as long to allocate as to compute.
        known = ((record.number, outcome_of(record)) for record in history)
        rows = ((number, *self._losses(one), one.penalty) for number, one in known)
        found = np.fromiter(chain.from_iterable(rows), float).reshape(-1, len(self._signs) + 2)
        results = Results(found[:, 0].astype(np.int64), np.ascontiguousarray(found[:, 1:-1]), found[:, -1])

        def individual(n: int) -> Individual:
            record = history[n]
            return self._individual(record.number, self._space.learn(record.genes), outcome_of(record))

        self._search.restore(results, individual, next_number)


# `sampler="auto"` for designs with bounds: propose by bounds alone, or alternate between bounds and evolution.
#
# Tight bounds, nearer to the values than designs are to each other, rank designs; a search by bounds alone then ends
# soonest. With loose ones neither search costs more than twice what it would alone, and each learns from the other.


FIRST = 32
"""Number of designs that show how tight bounds are: a share of half of them has an error of 0.09."""


class GuidedProposer(ExactProposer):
    """Proposer by bounds; if they are loose, evolution proposes every other design.

    Args:
        make_evolution: makes the evolutionary proposer when it is needed.
    """

    name = "auto"

    def __init__(
        self, screen: Screen, lower_bounds: LowerBounds, make_evolution: Callable[[], EvolutionProposer], **options: Any
    ) -> None:
        super().__init__(screen, lower_bounds, **options)
        self._make_evolution = make_evolution
        self._evolution: EvolutionProposer | None = None
        self._asked: dict[int, Genes] = {}  # all designs, until the first results show how tight bounds are
        self._first: dict[int, Outcome] = {}  # in the order of results

    def _next(self) -> Candidate | None:
        if self._evolution and self._number % 2 and self.open_designs.left():
            for proposal in self._evolution.ask(1, 0):
                self._proposed[self._number] = self._bounds_of(proposal.candidate.genes)
                return proposal.candidate
        candidate = super()._next()
        if candidate is not None:
            self._note(self._number, candidate.genes)
        return candidate

    def _bounds_of(self, genes: Genes) -> Losses:
        """Return a design's tightest bounds before it is evaluated."""
        bounds, candidate = self._lower_bounds, self._space.decode_genes(genes)
        levels = range(bounds.levels) if candidate else ()
        found = (bounds(candidate.design, level) for level in levels if candidate)
        return tuple(map(max, bounds.nothing, bounds.nothing, *filter(None, found)))

    def _note(self, number: int, genes: Genes) -> None:
        """A design has been proposed by bounds, or elsewhere."""
        if self._evolution:
            self._evolution.take_over(number, genes)
        elif len(self._first) < FIRST:
            self._asked[number] = genes

    def tell(self, number: int, outcome: Outcome) -> None:
        super().tell(number, outcome)
        self._add_outcome(number, outcome)

    def learn(self, key: str, genes: Genes, outcome: Outcome) -> int:
        number = super().learn(key, genes, outcome)
        self._note(number, genes)
        self._add_outcome(number, outcome)
        return number

    def _add_outcome(self, number: int, outcome: Outcome) -> None:
        if self._evolution:
            self._evolution.tell(number, outcome)
        elif len(self._first) < FIRST:
            self._first[number] = outcome
            if len(self._first) < FIRST:
                return
            if not self._bounds_are_tight():
                self._evolution = self._make_evolution()
                for asked, genes in sorted(self._asked.items()):
                    self._evolution.take_over(asked, genes)
                    if asked in self._first:
                        self._evolution.tell(asked, self._first[asked])
            self._asked.clear()

    def _bounds_are_tight(self) -> bool:
        """Return whether half of the first designs are nearer to their bounds than to any other result of them."""
        known = [
            (self._bounds_of(self._asked[n]), outcome.values) for n, outcome in self._first.items() if outcome.values
        ]
        if not known:
            return False
        losses = np.array([values for _, values in known], float) * self._signs
        loose = distance(losses, np.array([bounds for bounds, _ in known]))
        places = magnitude(losses)
        with np.errstate(invalid="ignore"):
            apart = np.abs(places[:, None] - places[None]).max(-1)
        apart[apart == 0] = np.inf  # bounds need not tell designs of equal results apart
        return bool(2 * np.count_nonzero(loose < apart.min(1)) >= FIRST)

    def restore(self, history: Sequence[Record], outcome_of: OutcomeOf, next_number: int) -> None:
        super().restore(history, outcome_of, next_number)
        self._asked = {record.number: record.genes for record in history[:FIRST]}
        self._first = {record.number: outcome_of(record) for record in history[:FIRST]}
        if len(self._first) == FIRST:
            if not self._bounds_are_tight():
                self._evolution = self._make_evolution()
                self._evolution.restore(history, outcome_of, next_number)
            self._asked.clear()


SAMPLERS = ("auto", "exact", "evolution", "random", "nsga2", "tpe", "exhaustive")
LISTED = 60_000  # most designs for which "auto" uses bounds: at most ten seconds
LEAST_LISTED = 20_000  # the same where few are evaluated
LISTED_BY_REGION = 100_000  # the same if regions have bounds: programs are compiled, but few designs are built
MOST_LISTED = 1_000_000  # designs that "exact" lists: more would not fit into memory
MOST_BY_REGION = 10_000_000  # the same if regions have bounds
COUNT_LIMIT = 5000  # largest space that is counted if the number of trials is not set
MAX_FRUITLESS = 20  # known or illegal proposals of an Optuna sampler in a row, before another design is taken


class ExhaustiveProposer(Proposer):
    """Every design of the space, in order."""

    name = "exhaustive"

    def __init__(self, screen: Screen) -> None:
        self._designs, self._screen = screen.space.designs(), screen

    def _next(self) -> Candidate | None:
        found = next((candidate for candidate in self._designs if self._screen.admit(candidate) == "new"), None)
        self.exhausted = found is None
        return found


class OptunaProposer(Proposer):
    """Optuna's ask/tell. Designs that are known or break a limit never become completed trials."""

    def __init__(
        self, screen: Screen, objectives: Sequence[Objective], sampler: Any, name: str, *, seed: int, strict: bool
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.name = name
        self.study: optuna.Study = optuna.create_study(directions=[o.direction for o in objectives], sampler=sampler)
        self._space, self._screen = screen.space, screen
        self.worst = [o.sign * math.inf for o in objectives]  # values for designs that have none
        self._strict = strict
        self._seed = seed
        self._trials: dict[int, optuna.trial.Trial] = {}
        self._outcomes: dict[str, Outcome] = {}
        self._keys: dict[int, str] = {}

    def _next(self) -> Candidate | None:
        try:
            return self._ask_one()
        except ImportError as error:  # Optuna's samplers import what they need when they are first asked
            raise StudyError(
                f"Optuna's sampler {self.name!r} needs a package that is not installed: {error}",
                hint=f"pip install {error.name}" if error.name else "install it, or choose another sampler",
            ) from error

    def _ask_one(self) -> Candidate | None:
        import optuna

        from allo_dse.space.sampler.optuna_sampler import suggest_with

        for _ in range(MAX_FRUITLESS):
            trial = self.study.ask()
            try:
                _ = trial.relative_params  # draws them
            except ValueError as error:  # such as several objectives, where it can have one
                raise StudyError(f"Optuna's sampler {self.name!r}: {error}", hint="choose another sampler") from error
            candidate, verdict = self._screen.decode_and_admit(suggest_with(trial))
            if candidate is not None and verdict == "new":
                return self._accept(trial, candidate)
            known = self._outcomes.get(candidate.key) if candidate is not None else None
            if known is not None:
                self._tell(trial, known)
            else:
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return self._ask_other()

    def _ask_other(self) -> Candidate | None:
        """Propose any new design: a model that never learns of invalid designs may repeat them for ever."""
        from allo_dse.space.sampler.optuna_sampler import distribution

        candidate = self._screen.any_new(np.random.default_rng((self._seed, self._number)))
        if candidate is None:
            self.exhausted = True
            return None
        genes = self._space.learn(candidate.genes)
        self.study.enqueue_trial(dict(genes))
        trial = self.study.ask({name: distribution(self._space.genes[name]) for name in genes})
        return self._accept(trial, candidate)

    def _accept(self, trial: optuna.trial.Trial, candidate: Candidate) -> Candidate:
        self._trials[self._number], self._keys[self._number] = trial, candidate.key
        return candidate

    def tell(self, number: int, outcome: Outcome) -> None:
        self._outcomes[self._keys.pop(number)] = outcome
        self._tell(self._trials.pop(number), outcome)

    def _tell(self, trial: optuna.trial.Trial, outcome: Outcome) -> None:
        # Designs without values are reported as complete with a violated constraint: samplers ignore failed trials.
        for name, violation in outcome.constraints.items():
            trial.set_constraint(name, violation)
        self.study.tell(trial, list(outcome.values or self.worst))

    def learn(self, key: str, genes: Genes, outcome: Outcome) -> int:
        import optuna

        from allo_dse.space.sampler.optuna_sampler import distribution

        self._outcomes[key] = outcome
        trial = optuna.trial.create_trial(
            values=list(outcome.values or self.worst),
            params=dict(genes),
            distributions={name: distribution(self._space.genes[name]) for name in genes},
            constraints=dict(outcome.constraints),
        )
        self.study.add_trial(trial)
        return super().learn(key, genes, outcome)

    def restore(self, history: Sequence[Record], outcome_of: OutcomeOf, next_number: int) -> None:
        for record in history:
            self.learn(record.key, self._space.learn(record.genes), outcome_of(record))
        super().restore(history, outcome_of, next_number)


def make_proposer(
    sampler: Any,
    screen: Screen,
    lower_bounds: LowerBounds,
    *,
    seed: int,
    done: int,
    trials: int | None,
    strict: bool,
    sizes: Mapping[str, int],
) -> Proposer:
    """Return the proposer for a sampler given by name or as an Optuna sampler.

    "auto" uses bounds (`GuidedProposer`) if every objective has one and the space can be listed in seconds. Else it
    enumerates spaces with no more designs than trials, and uses evolution in larger ones.

    Args:
        lower_bounds: the objectives, with their bounds before a design is evaluated.
        done: number of proposals of earlier runs. Optuna's samplers cannot resume their random numbers, and start from
            another seed then.
        strict: whether results must not depend on evaluation times.
        sizes: sizes of the sampler "evolution".

    Raises:
        StudyError: for an unknown name.
    """
    objectives, space = lower_bounds.objectives, screen.space
    if not isinstance(sampler, str):
        from allo_dse.space.sampler.optuna_sampler import EvolutionSampler

        if isinstance(sampler, EvolutionSampler):
            return EvolutionProposer(screen, lower_bounds, sampler, strict=strict)
        return OptunaProposer(screen, objectives, sampler, type(sampler).__name__, seed=seed, strict=strict)
    by_region = lower_bounds.knows_regions and regions_of(space) is not None

    def make_evolution(*, alone: bool = False) -> EvolutionProposer:
        from allo_dse.space.sampler.optuna_sampler import EvolutionSampler

        return EvolutionProposer(screen, lower_bounds, EvolutionSampler(seed, **sizes), strict=strict, alone=alone)

    if sampler == "auto":
        limit = COUNT_LIMIT if trials is None else min(trials, COUNT_LIMIT)
        at_once = LISTED if trials is None else min(LISTED, max(LEAST_LISTED, PER_TRIAL * trials))
        at_once = LISTED_BY_REGION if by_region else at_once  # more designs than either limit
        designs = space.count(limit if lower_bounds.unbounded else at_once, screen.meanwhile)
        if designs is not None and not lower_bounds.unbounded:
            return GuidedProposer(screen, lower_bounds, make_evolution, trials=trials, strict=strict)
        sampler = "evolution" if designs is None else "exhaustive"
    if sampler == "exact":
        most = MOST_BY_REGION if by_region else MOST_LISTED
        if space.count(most) is None:
            raise StudyError(
                f"the space has more than {most:,} designs, and sampler='exact' lists them all",
                hint='narrow the parameters, or take sampler="evolution"',
            )
        return ExactProposer(screen, lower_bounds, strict=strict)
    if sampler == "exhaustive":
        return ExhaustiveProposer(screen)
    if sampler == "evolution":
        return make_evolution(alone=True)
    import optuna

    optuna_samplers = {
        "random": optuna.samplers.RandomSampler,
        "nsga2": optuna.samplers.NSGAIISampler,
        "tpe": optuna.samplers.TPESampler,
    }
    if sampler not in optuna_samplers:
        raise StudyError(
            f"unknown sampler {sampler!r}", hint=f"one of {', '.join(SAMPLERS)}, or an Optuna sampler object"
        )
    return OptunaProposer(
        screen, objectives, optuna_samplers[sampler](seed=seed + done), sampler, seed=seed, strict=strict
    )
