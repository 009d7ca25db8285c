"""Models of objectives, constraints and failures, and the expected gain of a candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from ..genes import Gene
from .pareto import FAILED, Booleans, Floats, Individual, Integers, dominates, front_mask
from .surrogate import Features, Posterior, Surrogate, as_rows, fitted_scales, prior_scales

# `benchmarks/sampler_quality.py` and `benchmarks/study_quality.py` measure these settings together.
MOST_DEVIATIONS = 2.4  # within which a model's distribution counts: its tails are seldom right
DRAWS = 64  # samples of values and directions to average a candidate's improvement over
WORST_SHARE = 0.1  # share of the losses that count as equally bad, so that models attend to good ones
EXACT = 1e-9  # spans below are rounding
REFERENCE_MARGIN = 0.1  # distance of the hypervolume's reference point from the front, as a share of its span
LEAST_PREDICTED = 0.2  # share of an objective's variance that other designs must predict, or its model misleads
LIKELY = math.log(0.5)  # probability of candidates that show how far the front may reach, as a logarithm
GROWTH = 1.3  # factor on the number of designs between two fits of a model's scales
FEWEST = 4  # designs of the first fit
MOST_LABELS = 256  # designs, the latest ones, that the model of success learns from
MOST_FITTED = 128  # designs that scales are fitted to


class Target(Struct, frozen=True):
    """Training data of one model: an objective, a constraint, or success.

    Attributes:
        name: of the objective or constraint.
        rows: positions of the designs that it learns from.
        values: of these designs, of about mean 0.
        limit: for a constraint, the largest value that satisfies it.
        rate: for success, the share of designs that succeed.
    """

    name: str
    rows: Integers
    values: Floats
    limit: float = math.inf
    rate: float = 0.5


class Archive:
    """The designs that models learn from, and the scales fitted to the first of them.

    Scales depend on the designs only, not on the time of the request, so a resumed search continues with the same.

    Args:
        genes: ranges of genes.
    """

    def __init__(self, genes: Mapping[str, Gene], designs: Sequence[Individual] = ()) -> None:
        self.designs = sorted(designs, key=lambda i: i.number)
        self._genes = genes
        self._scales: dict[tuple[str, int, bool], dict[int, float]] = {}
        self._targets: dict[tuple[int, bool], tuple[list[Target], Integers]] = {}
        self._names: tuple[str, ...] = ()
        self._rows: Integers = np.empty((0, 0), np.int64)

    def add(self, designs: Sequence[Individual]) -> None:
        """Add designs that were proposed after those before."""
        self.designs += designs

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the genes that a design has, sorted."""
        self._update()
        return self._names

    @property
    def rows(self) -> Integers:
        """Genes of the designs, (designs, genes)."""
        self._update()
        return self._rows

    def _update(self) -> None:
        new = self.designs[len(self._rows) :]
        if any(name not in self._names for design in new for name in design.genes):
            self._names = tuple(sorted({name for design in self.designs for name in design.genes}))
            self._rows, new = np.empty((0, len(self._names)), np.int64), self.designs
            self._scales = {}  # of other columns
        if new:
            added = as_rows([design.genes for design in new], self._names, [self._genes[n] for n in self._names])
            self._rows = np.vstack((self._rows, added))

    def model(self, linear: bool = False) -> Model | None:
        """Return a model of all designs; None when there is nothing to learn.

        Args:
            linear: whether differences of objectives count, not ratios.
        """
        rows = self.rows
        features = Features.of(rows, [self._genes[name] for name in self.names])
        if not len(features.columns):
            return None
        coded, (targets, best) = features.encode(rows), self._targets_of(len(self.designs), linear)
        fits = [
            Surrogate(
                coded[target.rows],
                target.values,
                features.categorical,
                self._scales_of(features, self._fitted(target.name, _milestone(len(self.designs)), linear)),
                centred=target.name == FAILED,
            )
            for target in targets
        ]
        return Model(features, targets, fits, best, len(self.designs))

    def _targets_of(self, count: int, linear: bool) -> tuple[list[Target], Integers]:
        """Targets and front of the first designs."""
        if (count, linear) not in self._targets:
            self._targets = {
                (count, linear): targets_of(self.designs[:count], linear)
            }  # only the last are needed again
        return self._targets[count, linear]

    def _scales_of(self, features: Features, known: Mapping[int, float]) -> Floats:
        """Scales of features; `known` are those of genes by column, then the others as columns -2 and -1."""
        prior = prior_scales(len(features.columns))
        return np.array([known.get(n, of) for n, of in zip([*features.columns.tolist(), -2, -1], prior, strict=True)])

    def _fitted(self, name: str, count: int, linear: bool) -> dict[int, float]:
        """Scales of a target's model of the first designs, by column; none if there is nothing to fit."""
        linear &= name.startswith("objective ")
        key = name, count, linear
        if key not in self._scales:
            self._scales[key] = {}
            target = {t.name: t for t in self._targets_of(count, linear)[0]}.get(name)
            if target is not None and np.ptp(target.values) > 0:
                some = np.unique(np.linspace(0, len(target.rows) - 1, MOST_FITTED).astype(int))
                rows = self._rows[target.rows[some]]
                features = Features.of(rows, [self._genes[name] for name in self._names])
                known = self._fitted(name, _milestone(count - 1), linear) if count > FEWEST else {}
                start = self._scales_of(features, known) if known else None
                found = fitted_scales(features.encode(rows), target.values[some], features.categorical, start)
                self._scales[key] = dict(zip([*features.columns.tolist(), -2, -1], found.tolist(), strict=True))
        return self._scales[key]


def targets_of(designs: Sequence[Individual], linear: bool = False) -> tuple[list[Target], Integers]:
    """Return what models of these designs learn: objectives, then constraints that some design breaks, then success.

    Args:
        linear: whether differences of objectives count, not ratios.

    Returns:
        The targets, and the positions of the designs on the front.
    """
    losses, penalty = np.array([design.losses for design in designs]), np.array([design.penalty for design in designs])
    measured = np.isfinite(losses).all(1)
    works = measured & np.array([design.constraints.get(FAILED, 0.0) <= 0 for design in designs])
    rows, best, found = np.flatnonzero(measured), np.flatnonzero(measured & front_mask(losses, penalty)), []
    if len(rows):
        levels = [_leveled(column, np.isin(rows, best), linear) for column in losses[rows].T]
        found += [Target(f"objective {n}", rows, level) for n, level in enumerate(levels)]
        some = [designs[n].constraints for n in rows.tolist()]
        for name in sorted({name for of in some for name, value in of.items() if value > 0 and name != FAILED}):
            found.append(_of_constraint(name, rows, np.array([of.get(name, 0.0) for of in some], float)))
    if not works.all():
        latest = np.arange(len(works))[-MOST_LABELS:]
        rate = float(works.sum() + 1) / (len(works) + 2)
        found.append(Target(FAILED, latest, works[latest] - rate, rate=rate))
    return found, best


def _of_constraint(name: str, rows: Integers, values: Floats) -> Target:
    """Return the target for a constraint that is satisfied by values up to 0.

    Values are compressed on both sides of 0 (D. Eriksson and M. Poloczek, "Scalable constrained Bayesian optimization",
    AISTATS 2021). If they do not say by how much it is satisfied, it counts as satisfied by the mean violation.
    """
    values = np.clip(values, -1e300, 1e300)
    size = float(np.median(np.abs(values[values != 0])))
    values = np.sign(values) * np.log1p(np.abs(values / size))
    if values.min() == 0:
        values = np.where(values > 0, values, -values[values > 0].mean())
    mean, deviation = float(values.mean()), max(float(values.std()), 1e-12)
    return Target(name, rows, (values - mean) / deviation, limit=-mean / deviation)


def _milestone(count: int) -> int:
    """The largest number of designs up to `count` at which scales are fitted anew."""
    milestone = FEWEST
    while (following := max(milestone + 1, int(GROWTH * milestone))) <= count:
        milestone = following
    return min(milestone, count)


def magnitude(losses: Floats) -> int:
    """Return the power of two above all values; dividing by it keeps squares within the range of numbers."""
    return int(np.frexp(np.abs(losses).max(initial=0.0))[1])


def _leveled(losses: Floats, best: Booleans, linear: bool) -> Floats:
    """Return losses scaled so that the worst are alike, with mean 0 and variance 1.

    Args:
        best: mask of the designs on the front, none of which counts as bad.
        linear: whether differences count, not ratios.
    """
    # Logarithms of maximised values would tell bad designs apart, which are near 0, and not good ones.
    ratios = not linear and (losses > 0).all()
    losses = np.log(losses) if ratios else np.ldexp(losses, -magnitude(losses))
    losses = np.minimum(losses, max(np.quantile(losses, 1 - WORST_SHARE), losses[best].max(initial=-np.inf)))
    found: Floats = (losses - losses.mean()) / max(float(losses.std()), 1e-12)
    return found


class Model:
    """Prediction of objectives and feasibility.

    Args:
        fits: a model for each target.
        best: positions of the designs on the front.
        count: number of designs.
    """

    def __init__(
        self, features: Features, targets: Sequence[Target], fits: Sequence[Surrogate], best: Integers, count: int
    ) -> None:
        self._features, self._targets, self._fits = features, targets, fits
        self._count = count
        objectives = [t for t in targets if t.name.startswith("objective ")]
        self._objectives = len(objectives)
        known = [t.values[np.searchsorted(t.rows, best)] for t in objectives]
        self._front = np.stack(known, 1) if known else np.empty((0, 1))

    @property
    def informed(self) -> bool:
        """True if some design has worked."""
        return self._objectives > 0

    @property
    def predictive(self) -> bool:
        """True if each objective is predicted from the other designs."""
        return all(fit.predicted > LEAST_PREDICTED for fit in self._fits[: self._objectives])

    def candidates(self, rows: Integers) -> Candidates:
        """Predict designs, (designs, genes)."""
        coded = self._features.encode(rows)
        return Candidates(self, [fit.posterior(coded) for fit in self._fits])


class Candidates:
    """Predicted candidates for the next evaluations.

    They are ranked by expected hypervolume gain times the probability that they are feasible (J. Gardner et al.,
    "Bayesian optimization with inequality constraints", ICML 2014). The hypervolume is averaged over directions (D.
    Golovin and Q. Zhang, "Random hypervolume scalarizations for provable multi-objective black box optimization", ICML
    2020); with one objective that is the expected improvement. As long as nothing feasible is known, only the
    probability counts.
    """

    def __init__(self, model: Model, found: Sequence[Posterior]) -> None:
        self._model, self._found, self._front = model, found, model._front

    def probability(self) -> Floats:
        """Probability that each candidate is feasible, (candidates,)."""
        return np.exp(self._log_probability())

    def _log_probability(self) -> Floats:
        model, total = self._model, np.zeros(())
        for target, found in zip(model._targets[model._objectives :], self._found[model._objectives :], strict=True):
            if target.name == FAILED:
                # Nothing is impossible, or certain.
                rate, known = target.rate, model._count + 2
                total = total + np.log(np.clip(rate + found.mean, rate / known, 1 - (1 - rate) / known))
            else:
                total = total + log_normal((target.limit - found.mean) / found.deviation)
        return np.broadcast_to(total, (len(self._found[0].mean),)) if self._found else total

    def worth(self, rng: np.random.Generator) -> Floats:
        """Logarithm of the value of evaluating each candidate, up to a constant, (candidates,)."""
        probable = self._log_probability()
        if not len(self._front):
            return probable
        objectives = self._found[: self._model._objectives]
        means, deviations = (np.stack(of, 1) for of in zip(*((o.mean, o.deviation) for o in objectives), strict=True))
        return probable + log_gain(means, deviations, self._front, probable >= LIKELY, rng)

    def believe(self, position: int) -> None:
        """Count a candidate as evaluated with the result that is expected (D. Ginsbourger et al., "Kriging is
        well-suited to parallelize optimization", 2010)."""
        for found in self._found:
            found.believe(position)
        if len(self._front):
            point = np.array([[found.mean[position] for found in self._found[: self._model._objectives]]])
            self._front = np.vstack((self._front[~dominates(point, self._front)[0]], point))


def log_normal(x: Floats) -> Floats:
    """Logarithm of the standard normal distribution function."""
    from scipy.special import log_ndtr  # slow to import, and models need it only

    found: Floats = log_ndtr(x)
    return found


def log_gain(means: Floats, deviations: Floats, front: Floats, likely: Booleans, rng: np.random.Generator) -> Floats:
    """Logarithm of the hypervolume that each design is expected to add to a front, up to a constant, (designs,).

    With one objective that is the expected improvement. The nearest miss is preferred if nothing may be gained.

    Args:
        means, deviations: of the losses, (designs, objectives).
        front: (designs, objectives), of any number of designs.
        likely: mask of the designs that probably work; some, or the front is known.
    """
    # Fronts begin in a corner, so the box must hold the whole front as it is expected to become.
    reach = np.vstack((front, means[likely]))
    reach = reach[front_mask(reach, np.zeros(len(reach)))]
    low, span, count = reach.min(0), np.ptp(reach, 0), reach.shape[1]
    span = np.where(span > EXACT, span, 1.0)
    room, spread = 1 + REFERENCE_MARGIN - (means - low) / span, deviations / span
    known = 1 + REFERENCE_MARGIN - (front - low) / span
    if count == 1:
        missing, spread = (known.max() if len(front) else 0.0) - room[:, 0], np.maximum(spread[:, 0], 1e-12)
        gain = _improvement(-missing / spread) - _improvement(np.array(-MOST_DEVIATIONS))
        return _log_or_nearest(gain * spread, missing)
    directions = np.abs(rng.standard_normal((DRAWS, count))) + 1e-3
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    draws = rng.standard_normal((DRAWS, count))
    expected, reached = np.full((len(means), DRAWS), np.inf), np.full((len(means), DRAWS), np.inf)
    best = np.full((len(front), DRAWS), np.inf)
    for n in range(count):
        along = directions[:, n]
        expected = np.minimum(expected, room[:, n, None] / along)
        reached = np.minimum(reached, (room[:, n, None] - spread[:, n, None] * draws[:, n]) / along)
        best = np.minimum(best, known[:, n, None] / along)
    height = best.max(0, initial=0.0)
    volume = np.prod(np.broadcast_to(np.maximum(reached, height), (count, *reached.shape)), 0)  # powers are slow
    return _log_or_nearest((volume - height**count).mean(1), height - expected)


def _improvement(share: Floats) -> Floats:
    """Expected improvement in standard deviations, if the mean is better than the best value by `share` of them."""
    share = np.maximum(share, -MOST_DEVIATIONS)
    found: Floats = share * np.exp(log_normal(share)) + np.exp(-(share**2) / 2) / math.sqrt(2 * math.pi)
    return found


def _log_or_nearest(gain: Floats, missing: Floats) -> Floats:
    """Logarithm of gains; without any, the nearest miss counts most."""
    near = np.exp(-np.maximum(missing, 0))
    found: Floats = np.log(gain + 1e-6 * (near if near.ndim == 1 else near.mean(1)))
    return found
