"""Ranking of candidates for evaluation, by models of the objectives and of feasibility."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from ..choice import Gene, Genes
from .pareto import Booleans, Floats, Individual, Integers, dominates
from .surrogate import LENGTH, NOISE, Features, Scales, Surrogate, fitted_scales

DRAWS = 64  # samples of values and directions to average a candidate's improvement over
WORST_SHARE = 0.1  # share of the losses that count as equally bad, so that models attend to good ones
REFERENCE_MARGIN = 0.1  # distance of the hypervolume's reference point from the front, as a share of its span
GROWTH = 1.2  # factor on the number of designs between two fits of a model's scales
FEWEST = 3  # least number of designs with losses to learn from


class Memory:
    """The designs that models learn from, and the scales found for the first of them.

    Scales depend on the designs only, not on the time of the request, so a resumed search continues with the same.
    """

    def __init__(self, genes: Mapping[str, Gene], designs: Sequence[Individual] = ()) -> None:
        self.designs = list(designs)
        self._genes = genes
        self._scales: dict[tuple[int, int], tuple[dict[str, float], float]] = {}

    def models(self) -> Prospects | None:
        """Return models of all designs; None when there is nothing to learn."""
        lessons = _Lessons.of(sorted(self.designs, key=lambda i: i.number), self._genes)
        if lessons is None:
            return None
        features = lessons.features
        fits = []
        for position, (known, values) in enumerate(lessons.subjects):
            alike = [n for n, (others, _) in enumerate(lessons.subjects) if others is known]
            scales = self._found_scales(position, alike, [lessons.designs[n] for n in known.tolist()], features)
            fits.append(Surrogate(lessons.coded[known], values, features.groups, scales))
        return Prospects(lessons, fits)

    def _found_scales(
        self, position: int, alike: Sequence[int], designs: Sequence[Individual], features: Features
    ) -> Scales:
        """The scales of the first designs, as many as at the last milestone; those at positions alike are of the same
        designs, and are found with them."""
        count = _milestone(len(designs))
        if (position, count) not in self._scales:
            first = _Lessons.of(designs[:count], self._genes)
            for other in alike:
                lengths, noise = {}, NOISE
                if first is not None and other < len(first.subjects):
                    known, values = first.subjects[other]
                    found = fitted_scales(first.coded[known], values, first.features.groups)
                    lengths, noise = dict(zip(first.features.names, found.lengths.tolist(), strict=True)), found.noise
                self._scales[other, count] = lengths, noise
        lengths, noise = self._scales[position, count]
        return Scales(np.array([lengths.get(name, LENGTH) for name in features.names]), noise)


class _Lessons(Struct, frozen=True):
    """Training data of the models.

    Attributes:
        coded: features of the designs, (designs, features).
        subjects: per model, the positions of its designs and their targets. There is one model of the losses of each
            objective, and one of feasibility when some designs are infeasible. Targets have mean 0 and variance 1.
        measured: positions of designs with losses; `feasible`: mask of designs that satisfy everything.
    """

    designs: Sequence[Individual]
    features: Features
    coded: Floats
    subjects: Sequence[tuple[Integers, Floats]]
    measured: Integers
    feasible: Booleans

    @classmethod
    def of(cls, designs: Sequence[Individual], genes: Mapping[str, Gene]) -> _Lessons | None:
        """Return the training data of these designs; None when there is nothing to learn."""
        features = Features.of([design.genes for design in designs], genes)
        losses = np.array([design.losses for design in designs], float)
        measured = np.flatnonzero(np.isfinite(losses).all(1)) if len(designs) else np.zeros(0, np.int64)
        if not features.names or len(measured) < FEWEST:
            return None
        feasible = np.array([design.penalty <= 0 for design in designs])
        feasible &= np.isfinite(losses).all(1)
        subjects = [(measured, _leveled(column[measured])) for column in losses.T]
        if feasible.any() and not feasible.all():
            subjects.append((np.arange(len(designs)), (feasible - feasible.mean()) / feasible.std()))
        coded = features.encode([design.genes for design in designs])
        return cls(designs, features, coded, subjects, measured, feasible)


def _milestone(count: int) -> int:
    """The largest number of designs up to `count` at which scales are found anew."""
    milestone = 4
    while (following := max(milestone + 1, int(GROWTH * milestone))) <= count:
        milestone = following
    return min(milestone, count)


def magnitude(losses: Floats) -> int:
    """Return the power of two above all values; dividing by it keeps squares within the range of numbers."""
    return int(np.frexp(np.abs(losses).max(initial=0.0))[1])


def _leveled(losses: Floats) -> Floats:
    """Return losses scaled so that ratios count and the worst are alike, with mean 0 and variance 1."""
    if (losses > 0).all():
        losses = np.log(losses)
    elif (losses < 0).all():
        losses = -np.log(-losses)
    else:
        losses = np.ldexp(losses, -magnitude(losses))
    losses = np.minimum(losses, np.quantile(losses, 1 - WORST_SHARE))
    found: Floats = (losses - losses.mean()) / max(float(losses.std()), 1e-12)
    return found


class Prospects:
    """Ranks candidates by their expected hypervolume gain times the probability that they are feasible.

    The hypervolume is averaged over directions (D. Golovin and Q. Zhang, "Random hypervolume scalarizations for
    provable multi-objective black box optimization", ICML 2020); with one objective that is the expected improvement.

    Args:
        fits: a model for each of the subjects.
    """

    def __init__(self, lessons: _Lessons, fits: Sequence[Surrogate]) -> None:
        self._features, self._fits, self._feasible = lessons.features, fits, lessons.feasible
        self._objectives = len(lessons.designs[0].losses)
        known = np.stack([values for _, values in lessons.subjects[: self._objectives]], 1)
        good = known[lessons.feasible[lessons.measured]]
        good = good if len(good) else known
        self._front = good[~dominates(good, good).any(0)]
        self._reference = self._front.max(0) + REFERENCE_MARGIN * np.maximum(np.ptp(self._front, 0), 1.0)

    def feasibility(self, designs: Sequence[Mapping[str, int]]) -> Floats:
        """Return the probability that each design is feasible."""
        if len(self._fits) == self._objectives:
            return np.ones(len(designs))
        return self._probability(self._features.encode(designs))

    def _probability(self, coded: Floats) -> Floats:
        known = self._feasible
        mean = known.mean() + known.std() * self._fits[-1].predict(coded)[0]
        rest = 1 / (len(known) + 2)  # nothing is impossible, or certain
        probability: Floats = np.clip(mean, rest, 1 - rest)
        return probability

    def ranked(self, candidates: Sequence[Genes], rng: np.random.Generator) -> list[Genes]:
        """Return the candidates, most promising first."""
        coded = self._features.encode(candidates)
        worth = self._gain(coded, rng)
        if len(self._fits) > self._objectives:
            worth = worth * self._probability(coded)
        # Round, so that equally good candidates stay in order on every machine.
        order = np.argsort(-np.round(worth / worth.max(), 7), kind="stable")
        return [candidates[n] for n in order.tolist()]

    def _gain(self, coded: Floats, rng: np.random.Generator) -> Floats:
        predicted = [fit.predict(coded) for fit in self._fits[: self._objectives]]
        means, deviations = (np.stack(of, 1) for of in zip(*predicted, strict=True))
        return expected_gain(means, deviations, self._front, self._reference, rng)


def expected_gain(
    means: Floats, deviations: Floats, front: Floats, reference: Floats, rng: np.random.Generator
) -> Floats:
    """The hypervolume that each design is expected to add to a front, up to a factor, (designs,).

    Args:
        means, deviations: of the losses, (designs, objectives).
        front: (designs, objectives), of any number of designs.
        reference: (objectives,).
    """
    count = len(reference)
    directions = np.abs(rng.standard_normal((DRAWS, count))) + 1e-3
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    draws = rng.standard_normal((DRAWS, count)) if count > 1 else QUANTILES[:, None]
    expected, reached = np.full((len(means), DRAWS), np.inf), np.full((len(means), DRAWS), np.inf)
    known = np.full((len(front), DRAWS), np.inf)
    for n in range(count):
        along, room = directions[:, n], (reference[n] - means[:, n])[:, None]
        expected = np.minimum(expected, room / along)
        reached = np.minimum(reached, (room - deviations[:, n, None] * draws[:, n]) / along)
        known = np.minimum(known, (reference[n] - front[:, n, None]) / along)
    best = known.max(0, initial=0.0)
    gain: Floats = (np.maximum(reached, best) ** count - best**count).mean(1)
    # If no draw is an improvement, prefer the nearest miss.
    gain += 1e-6 * np.exp(np.minimum(expected - best, 0)).mean(1)
    return gain


def _quantiles() -> Floats:
    """Return quantiles of the standard normal distribution: the middles of `DRAWS` equally probable parts."""
    grid = np.linspace(-4, 4, 8001)
    share = np.cumsum(np.exp(-(grid**2) / 2))
    return np.interp((np.arange(DRAWS) + 0.5) / DRAWS, share / share[-1], grid)


QUANTILES = _quantiles()
