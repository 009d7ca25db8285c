"""Proposers: Optuna's ask/tell with any sampler, or every design of a small space in turn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from allo_dse.common.errors import StudyError
from allo_dse.space.choice import Genes
from allo_dse.space.regions import regions_of
from allo_dse.space.space import Candidate, Space

from ..store.record import Record
from .bred import EvolutionProposer
from .exact import ExactProposer, Proposal, Proposer, Told
from .least import LeastLosses, Losses
from .objectives import Objective
from .screening import Screen
from .undecided import distance, magnitude

if TYPE_CHECKING:
    import optuna

# `sampler="auto"` for designs with bounds: propose by bounds alone, or alternate between bounds and breeding.
#
# Tight bounds, nearer to the values than designs are to each other, rank designs; a search by bounds alone then ends
# soonest. With loose bounds every other design is bred. Neither search then costs more than twice what it would alone,
# each learns from the other, and the run still ends with a proof. The first evaluated designs decide, whoever proposed
# them, so that an interrupted run resumes as if it had not been interrupted.


FIRST = 32
"""Number of designs that show how tight bounds are: a share of half of them has an error of 0.09."""


class GuidedProposer(ExactProposer):
    """Proposes designs by bounds, and breeds every other design if bounds are loose.

    Args:
        breeder: makes the evolutionary proposer when it is needed.
    """

    name = "auto"

    def __init__(
        self,
        space: Space,
        screen: Screen,
        least: LeastLosses,
        breeder: Callable[[], EvolutionProposer],
        *,
        strict: bool,
    ) -> None:
        super().__init__(space, screen, least, strict=strict)
        self._breeder = breeder
        self._bred: EvolutionProposer | None = None
        self._asked: dict[int, Genes] = {}  # all designs, until the first results show how tight bounds are
        self._first: dict[int, Told] = {}  # in the order of results

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        if self._strict:
            count = min(count, 0 if outstanding else 1)
        proposals: list[Proposal] = []
        while len(proposals) < count:
            found = self._breed() if self._bred and self._number % 2 else []
            if not found:
                found = super().ask(1, 0)
                for proposal in found:
                    self._note(proposal.number, proposal.candidate.genes)
            if not found:
                break
            proposals += found
        return proposals

    def _breed(self) -> list[Proposal]:
        assert self._bred is not None
        found = self._bred.ask(1, 0) if self.ground.left() else []
        for proposal in found:
            self._proposed[proposal.number] = self._bounds_of(proposal.candidate.genes)
            self._number += 1
        return found

    def _bounds_of(self, genes: Genes) -> Losses:
        """Return a design's tightest bounds before it is evaluated."""
        candidate, found = self._space.decode_genes(genes), self._least.nothing
        for level in range(self._least.levels if candidate else 0):
            own = self._least(candidate.design, level) if candidate else None
            found = tuple(map(max, found, own or found))
        return found

    def _note(self, number: int, genes: Genes) -> None:
        """A design has been proposed by bounds, or elsewhere."""
        if self._bred:
            self._bred.take_over(number, genes)
        elif len(self._first) < FIRST:
            self._asked[number] = genes

    def tell(self, number: int, told: Told) -> None:
        super().tell(number, told)
        self._hear(number, told)

    def learn(self, key: str, genes: Genes, told: Told) -> int:
        number = super().learn(key, genes, told)
        self._note(number, genes)
        self._hear(number, told)
        return number

    def _hear(self, number: int, told: Told) -> None:
        if self._bred:
            self._bred.tell(number, told)
        elif len(self._first) < FIRST:
            self._first[number] = told
            if len(self._first) == FIRST:
                self._begin_to_breed()

    def _begin_to_breed(self) -> None:
        """Start to breed if the first designs show that bounds are too loose."""
        if not self._bounds_tell_apart():
            self._bred = self._breeder()
            for number, genes in sorted(self._asked.items()):
                self._bred.take_over(number, genes)
                if number in self._first:
                    self._bred.tell(number, self._first[number])
        self._asked.clear()

    def _bounds_tell_apart(self) -> bool:
        """Return whether half of the first designs are nearer to their bounds than to any other of them."""
        known = [(self._bounds_of(self._asked[n]), told.values) for n, told in self._first.items() if told.values]
        if not known:
            return False
        losses = np.array([values for _, values in known], float) * self._signs
        loose = distance(losses, np.array([bounds for bounds, _ in known]))
        places = magnitude(losses)
        with np.errstate(invalid="ignore"):
            apart = np.abs(places[:, None] - places[None]).max(-1)
        np.fill_diagonal(apart, np.inf)
        return bool(2 * np.count_nonzero(loose < apart.min(1)) >= FIRST)

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        super().restore(history, told, next_number)
        self._asked = {record.number: record.genes for record in history[:FIRST]}
        self._first = {record.number: told(record) for record in history[:FIRST]}
        if len(self._first) == FIRST:
            if not self._bounds_tell_apart():
                self._bred = self._breeder()
                self._bred.restore(history, told, next_number)
            self._asked.clear()


SAMPLERS = ("auto", "exact", "evolution", "random", "nsga2", "tpe", "exhaustive")
LISTED = 20_000  # most designs for which "auto" uses bounds: at most ten seconds before the first trial
LISTED_BY_REGION = 100_000  # the same if regions have bounds: programs are compiled, but few designs are built
MOST_LISTED = 1_000_000  # designs that "exact" lists: more would not fit into memory
MOST_BY_REGION = 10_000_000  # the same if regions have bounds
COUNT_LIMIT = 5000  # largest space that is counted if the number of trials is not set
MAX_FRUITLESS = 20  # known or illegal proposals of an Optuna sampler in a row, before another design is taken


class ExhaustiveProposer:
    """Every design of the space, in order."""

    name = "exhaustive"

    def __init__(self, space: Space, screen: Screen) -> None:
        self._designs: Iterator[Candidate] = space.designs()
        self._screen = screen
        self._number = 0
        self.exhausted = False

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        proposals: list[Proposal] = []
        while len(proposals) < count:
            candidate = next(self._designs, None)
            if candidate is None:
                self.exhausted = True
                break
            if self._screen.judge(candidate) == "new":
                proposals.append(Proposal(self._number, candidate))
                self._number += 1
        return proposals

    def tell(self, number: int, told: Told) -> None:
        pass

    def learn(self, key: str, genes: dict[str, int], told: Told) -> int:
        self._number += 1
        return self._number - 1

    def revise(self, told: Mapping[int, Told]) -> None:
        pass

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        self._number = next_number


class OptunaProposer:
    """Optuna's ask/tell. Designs that are known or break a limit never become completed trials."""

    def __init__(
        self,
        space: Space,
        screen: Screen,
        objectives: Sequence[Objective],
        sampler: Any,
        name: str,
        *,
        seed: int,
        strict: bool,
    ) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self.name = name
        self.exhausted = False
        self.study: optuna.Study = optuna.create_study(directions=[o.direction for o in objectives], sampler=sampler)
        self._space = space
        self._screen = screen
        self._signs = [o.sign for o in objectives]
        self._strict = strict
        self._seed = seed
        self._trials: dict[int, optuna.trial.Trial] = {}
        self._told: dict[str, Told] = {}
        self._keys: dict[int, str] = {}
        self._next = 0

    def ask(self, count: int, outstanding: int) -> list[Proposal]:
        if self._strict:
            count = min(count, 0 if outstanding else 1)
        proposals: list[Proposal] = []
        while len(proposals) < count and not self.exhausted:
            try:
                proposal = self._ask_one()
            except ImportError as error:  # Optuna's samplers import what they need when they are first asked
                raise StudyError(
                    f"Optuna's sampler {self.name!r} needs a package that is not installed: {error}",
                    hint=f"pip install {error.name}" if error.name else "install it, or choose another sampler",
                ) from error
            if proposal is not None:
                proposals.append(proposal)
        return proposals

    def _ask_one(self) -> Proposal | None:
        import optuna

        from allo_dse.space.sampler.optuna_sampler import suggest_with

        for _ in range(MAX_FRUITLESS):
            trial = self.study.ask()
            candidate, verdict = self._screen.examine(suggest_with(trial))
            if candidate is not None and verdict == "new":
                return self._accept(trial, candidate)
            known = self._told.get(candidate.key) if candidate is not None else None
            if known is not None:
                self._tell(trial, known)
            else:
                self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
        return self._ask_other()

    def _ask_other(self) -> Proposal | None:
        """Propose any new design: a model that never learns of invalid designs may repeat them for ever."""
        from allo_dse.space.sampler.optuna_sampler import distribution

        candidate = self._screen.any_new(np.random.default_rng((self._seed, self._next)))
        if candidate is None:
            self.exhausted = True
            return None
        genes = self._space.learn(candidate.genes)
        self.study.enqueue_trial(dict(genes))
        trial = self.study.ask({name: distribution(self._space.genes[name]) for name in genes})
        return self._accept(trial, candidate)

    def _accept(self, trial: optuna.trial.Trial, candidate: Candidate) -> Proposal:
        number = self._next
        self._next += 1
        self._trials[number], self._keys[number] = trial, candidate.key
        return Proposal(number, candidate)

    def tell(self, number: int, told: Told) -> None:
        self._told[self._keys.pop(number)] = told
        self._tell(self._trials.pop(number), told)

    def _tell(self, trial: optuna.trial.Trial, told: Told) -> None:
        # Designs without values are reported as complete with a violated constraint: samplers ignore failed trials.
        for name, violation in told.constraints.items():
            trial.set_constraint(name, violation)
        self.study.tell(trial, list(told.values or self.worst))

    @property
    def worst(self) -> list[float]:
        """Values for designs that have none."""
        return [sign * math.inf for sign in self._signs]

    def learn(self, key: str, genes: dict[str, int], told: Told) -> int:
        import optuna

        from allo_dse.space.sampler.optuna_sampler import distribution

        self._told[key] = told
        trial = optuna.trial.create_trial(
            values=list(told.values or self.worst),
            params=dict(genes),
            distributions={name: distribution(self._space.genes[name]) for name in genes},
            constraints=dict(told.constraints),
        )
        self.study.add_trial(trial)
        self._next += 1
        return self._next - 1

    def revise(self, told: Mapping[int, Told]) -> None:
        """Do nothing: Optuna's trials are final until a run is resumed."""

    def restore(self, history: Sequence[Record], told: Callable[[Record], Told], next_number: int) -> None:
        for record in history:
            self.learn(record.key, self._space.learn(record.genes), told(record))
        self._next = next_number


def make_proposer(
    sampler: Any,
    screen: Screen,
    least: LeastLosses,
    *,
    seed: int,
    done: int,
    trials: int | None,
    strict: bool,
    sizes: Mapping[str, int],
) -> Proposer:
    """Return the proposer for a sampler given by name or as an Optuna sampler.

    "auto" uses bounds (`GuidedProposer`) if every objective has one and the space can be listed in seconds. Else it
    enumerates spaces with no more designs than trials, and breeds in larger ones.

    Args:
        least: the objectives, with their bounds before a design is evaluated.
        done: number of proposals of earlier runs. Optuna's samplers cannot resume their random numbers, and start from
            another seed then.
        strict: whether results must not depend on evaluation times.
        sizes: sizes of the sampler "evolution".

    Raises:
        StudyError: for an unknown name.
    """
    objectives, space = least.objectives, screen.space
    if not isinstance(sampler, str):
        from allo_dse.space.sampler.optuna_sampler import EvolutionSampler

        if isinstance(sampler, EvolutionSampler):
            return EvolutionProposer(screen, least, sampler, strict=strict)
        return OptunaProposer(space, screen, objectives, sampler, type(sampler).__name__, seed=seed, strict=strict)
    by_region = least.knows_regions and regions_of(space) is not None

    def breeder(*, alone: bool = False) -> EvolutionProposer:
        from allo_dse.space.sampler.optuna_sampler import EvolutionSampler

        return EvolutionProposer(screen, least, EvolutionSampler(seed, **sizes), strict=strict, alone=alone)

    if sampler == "auto":
        limit = COUNT_LIMIT if trials is None else min(trials, COUNT_LIMIT)
        at_once = LISTED_BY_REGION if by_region else LISTED  # more designs than either limit
        designs = space.count(limit if least.unbounded else at_once)
        if designs is not None and not least.unbounded:
            return GuidedProposer(space, screen, least, breeder, strict=strict)
        sampler = "evolution" if designs is None else "exhaustive"
    if sampler == "exact":
        most = MOST_BY_REGION if by_region else MOST_LISTED
        if space.count(most) is None:
            raise StudyError(
                f"the space has more than {most:,} designs, and sampler='exact' lists them all",
                hint='narrow the parameters, or take sampler="evolution"',
            )
        return ExactProposer(space, screen, least, strict=strict)
    if sampler == "exhaustive":
        return ExhaustiveProposer(space, screen)
    if sampler == "evolution":
        return breeder(alone=True)
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
        space, screen, objectives, optuna_samplers[sampler](seed=seed + done), sampler, seed=seed, strict=strict
    )
