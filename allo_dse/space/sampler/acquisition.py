"""Models of objectives, constraints and failures, and the expected gain of a candidate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct

from ..genes import Gene
from .pareto import FAILED, Booleans, Floats, Individual, Integers, dominates
from .surrogate import LENGTH, NOISE, Features, Posterior, Scales, Surrogate, as_rows, fitted_scales

# `benchmarks/sampler_quality.py` and `benchmarks/study_quality.py` measure these settings together.
MOST_DEVIATIONS = 2.4  # within which a model's distribution counts: its tails are seldom right
DRAWS = 64  # samples of values and directions to average a candidate's improvement over
WORST_SHARE = 0.1  # share of the losses that count as equally bad, so that models attend to good ones
REFERENCE_MARGIN = 0.1  # distance of the hypervolume's reference point from the front, as a share of its span
GROWTH = 1.3  # factor on the number of designs between two fits of a model's scales
FEWEST = 4  # designs of the first fit
MOST_LABELS = 256  # designs, the latest ones, that the model of success learns from
MOST_FITTED = 128  # designs that scales are fitted to


class Target(Struct, frozen=True):
    """Training data of one model: an objective, a constraint, or success.

    Attributes:
        name: of the objective or constraint.
        rows: positions of the designs that it learns from.
        values: of these designs, of about mean 0 and variance 1.
        limit: for a constraint, the largest value that satisfies it.
        rate: for success, the share of designs that succeed.
    """

    name: str
    rows: Integers
    values: Floats
    limit: float = math.inf
    rate: float = 0.5

    @property
    def deviation(self) -> float:
        """Standard deviation of labels, which are 1 for success."""
        return math.sqrt(self.rate * (1 - self.rate))


class Archive:
    """The designs that models learn from, and the scales fitted to the first of them.

    Scales depend on the designs only, not on the time of the request, so a resumed search continues with the same.

    Args:
        genes: ranges of genes.
    """

    def __init__(self, genes: Mapping[str, Gene], designs: Sequence[Individual] = ()) -> None:
        self.designs = sorted(designs, key=lambda i: i.number)
        self._genes = genes
        self._scales: dict[tuple[str, int, bool], tuple[dict[str, float], float]] = {}
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
        coded, targets = features.encode(rows), targets_of(self.designs, linear)
        fits = []
        for target in targets:
            scales = self._scales_of(features, *self._fitted(target.name, _milestone(len(self.designs)), linear))
            known, centred = coded[target.rows], target.name == FAILED
            fits.append(Surrogate(known, target.values, features.groups, scales, centred=centred))
        return Model(features, targets, fits, self.designs)

    def _scales_of(self, features: Features, lengths: Mapping[str, float], noise: float) -> Scales:
        return Scales(np.array([lengths.get(self._names[n], LENGTH) for n in features.columns.tolist()]), noise)

    def _fitted(self, name: str, count: int, linear: bool) -> tuple[dict[str, float], float]:
        """Length scales by gene, and noise, of a target's model of the first designs."""
        linear &= name.startswith("objective ")
        key = name, count, linear
        if key not in self._scales:
            self._scales[key] = {}, NOISE
            target = {t.name: t for t in targets_of(self.designs[:count], linear)}.get(name)
            if target is not None and np.ptp(target.values) > 0:
                some = np.unique(np.linspace(0, len(target.rows) - 1, MOST_FITTED).astype(int))
                rows = self._rows[target.rows[some]]
                features = Features.of(rows, [self._genes[name] for name in self._names])
                known = self._fitted(name, _milestone(count - 1), linear) if count > FEWEST else ({}, NOISE)
                start = self._scales_of(features, *known) if known[0] else None
                found = fitted_scales(features.encode(rows), target.values[some], features.groups, start)
                names = [self._names[n] for n in features.columns.tolist()]
                self._scales[key] = dict(zip(names, found.lengths.tolist(), strict=True)), found.noise
        return self._scales[key]


def targets_of(designs: Sequence[Individual], linear: bool = False) -> list[Target]:
    """Return what models of these designs learn: objectives, then constraints that some design breaks, then success.

    Args:
        linear: whether differences of objectives count, not ratios.
    """
    if not designs:
        return []
    losses = np.array([design.losses for design in designs], float)
    measured = np.isfinite(losses).all(1)
    works = measured & np.array([design.constraints.get(FAILED, 0.0) <= 0 for design in designs])
    rows, found = np.flatnonzero(measured), []
    if len(rows):
        feasible = np.array([designs[n].penalty <= 0 for n in rows.tolist()])
        best = feasible & ~dominates(losses[rows[feasible]], losses[rows]).any(0)
        levels = [_leveled(column, best, linear) for column in losses[rows].T]
        found += [Target(f"objective {n}", rows, level) for n, level in enumerate(levels)]
        some = [designs[n].constraints for n in rows.tolist()]
        for name in sorted({name for of in some for name, value in of.items() if value > 0 and name != FAILED}):
            found.append(_of_constraint(name, rows, np.array([of.get(name, 0.0) for of in some], float)))
    if not works.all():
        latest = np.arange(len(works))[-MOST_LABELS:]
        rate = float(works.sum() + 1) / (len(works) + 2)
        found.append(Target(FAILED, latest, (works[latest] - rate) / math.sqrt(rate * (1 - rate)), rate=rate))
    return found


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

    Attributes:
        parameters: number of genes that differ between designs.
        stalled: number of designs since the last one of the front.
    """

    def __init__(
        self, features: Features, targets: Sequence[Target], fits: Sequence[Surrogate], designs: Sequence[Individual]
    ) -> None:
        self._features, self._targets, self._fits = features, targets, fits
        self._count = len(designs)
        objectives = [t.values for t in targets if t.name.startswith("objective ")]
        self._objectives = len(objectives)
        self._known = np.stack(objectives, 1) if objectives else np.empty((0, len(designs[0].losses)))
        feasible = np.array([design.penalty <= 0 for design in designs])
        good = self._known[feasible[targets[0].rows]] if objectives else self._known
        best = ~dominates(good, good).any(0)
        self._front, self.parameters = good[best], len(features.columns)
        positions = targets[0].rows[feasible[targets[0].rows]] if objectives else np.zeros(0, np.int64)
        self.stalled = len(designs) - 1 - int(positions[best].max(initial=-1))

    @property
    def informed(self) -> bool:
        """True if some design has worked."""
        return len(self._targets) > 1 or self._targets[0].name != FAILED

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
                total = total + np.log(
                    np.clip(rate + target.deviation * found.mean, rate / known, 1 - (1 - rate) / known)
                )
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
        reference = self._front.max(0) + REFERENCE_MARGIN * np.maximum(np.ptp(self._front, 0), 1.0)
        return probable + log_gain(means, deviations, self._front, reference, rng)

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


def log_gain(means: Floats, deviations: Floats, front: Floats, reference: Floats, rng: np.random.Generator) -> Floats:
    """Logarithm of the hypervolume that each design is expected to add to a front, up to a constant, (designs,).

    With one objective that is the expected improvement. The nearest miss is preferred if nothing may be gained.

    Args:
        means, deviations: of the losses, (designs, objectives).
        front: (designs, objectives), of any number of designs.
        reference: (objectives,).
    """
    count = len(reference)
    if count == 1:
        missing = means[:, 0] - min(reference[0], *front[:, 0])
        spread = np.maximum(deviations[:, 0], 1e-12)
        gain = _improvement(-missing / spread) - _improvement(np.array(-MOST_DEVIATIONS))
        return _log_or_nearest(gain * spread, missing)
    directions = np.abs(rng.standard_normal((DRAWS, count))) + 1e-3
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    draws = rng.standard_normal((DRAWS, count))
    expected, reached = np.full((len(means), DRAWS), np.inf), np.full((len(means), DRAWS), np.inf)
    known = np.full((len(front), DRAWS), np.inf)
    for n in range(count):
        along, room = directions[:, n], (reference[n] - means[:, n])[:, None]
        expected = np.minimum(expected, room / along)
        reached = np.minimum(reached, (room - deviations[:, n, None] * draws[:, n]) / along)
        known = np.minimum(known, (reference[n] - front[:, n, None]) / along)
    best = known.max(0, initial=0.0)
    return _log_or_nearest((np.maximum(reached, best) ** count - best**count).mean(1), best - expected)


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
