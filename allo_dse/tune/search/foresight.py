"""What an expensive evaluator is expected to say of designs that it has not measured, from what it said of others.

What a cheaper one says of a design is taken for true up to a factor that depends on the design: a Gaussian process over
its genes and the cheaper evaluator's values (two fidelities, as in M. Kennedy and A. O'Hagan, "Predicting the output
from a complex computer code when fast approximations are available", Biometrika 87(1), 2000). Another is of what fails.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np
from msgspec import Struct

from allo_dse.space.gene import Gene, Genes
from allo_dse.space.sampler.features import Features, Numbers
from allo_dse.space.sampler.one_thread import one_thread
from allo_dse.space.sampler.prospects import REFERENCE_MARGIN, expected_gain, magnitude
from allo_dse.space.sampler.selection import Floats, Integers
from allo_dse.space.sampler.surrogate import Surrogate, fitted_scales

from .front import pareto_positions

FEWEST = 3  # measured designs to learn from
MOST = 128  # the same, so that a fit takes a tenth of a second: its time grows with their cube
EXACT = 1e-9  # standard deviation up to which what is left unexplained is rounding

Losses = tuple[float, ...]


class Foresight:
    """What a rung is expected to say of designs. It depends on no order of theirs.

    Args:
        genes: of the designs, by key.
        ranges: of all these genes.
        below: losses by the rung below, of all these designs.
        measured: losses by the rung, of some; None for those that failed or do not hold.
    """

    def __init__(
        self,
        genes: Mapping[str, Genes],
        ranges: Mapping[str, Gene],
        below: Mapping[str, Losses],
        measured: Mapping[str, Losses | None],
    ) -> None:
        self.keys = sorted(below)
        self._row = {key: n for n, key in enumerate(self.keys)}
        known = sorted(key for key in measured if key in self._row)
        values = {key: losses for key in known if (losses := measured[key]) is not None}
        predicted = np.array([below[key] for key in self.keys], float)
        found = np.array(list(values.values()), float).reshape(len(values), predicted.shape[1])
        self._scales = [_Scale.of(np.concatenate(both)) for both in zip(predicted.T, found.T, strict=True)]
        self._prior, self._measured = self._evened(predicted), self._evened(found)
        self._known, self._held = self._rows(known), self._rows(list(values))
        designs = [genes[key] for key in self.keys]
        features, numbers = Features.of(designs, ranges), Numbers.of(self._prior)
        self._coded = np.hstack((features.encode(designs), numbers.encode(self._prior)))
        first = int(features.groups.max(initial=-1)) + 1
        self._groups = np.append(features.groups, first + np.arange(numbers.count))
        excess = self._measured - self._prior[self._held]
        mean = excess.mean(0) if len(excess) else np.zeros(excess.shape[1])
        with one_thread():
            rows = self._telling(self._held)
            self._excess = [self._process(self._held[rows], *of) for of in zip(excess[rows].T, mean, strict=True)]
            self.means = self._prior + self._expected(self._coded)[0]
            self.probability = self._holding()

    def _process(self, rows: Integers, values: Floats, mean: float) -> _Process:
        return _Process(self._coded[rows], self._groups, values, mean)

    def _rows(self, keys: Sequence[str]) -> Integers:
        return np.array([self._row[key] for key in keys], np.int64)

    def _evened(self, losses: Floats) -> Floats:
        return np.stack([scale.to(column) for scale, column in zip(self._scales, losses.T, strict=True)], 1)

    def _telling(self, measured: Integers) -> Integers:
        """Which of these designs are learnt from: where there are many, the best by the rung below."""
        prior = self._prior[measured]
        total = ((prior - prior.mean(0)) / np.maximum(prior.std(0), EXACT)).sum(1) if len(prior) else np.zeros(0)
        return np.sort(np.argsort(np.round(total, 7), kind="stable")[:MOST])

    def _holding(self) -> Floats:
        """Probability that each design neither fails nor breaks a constraint."""
        holds = np.isin(self._known, self._held)
        if holds.all():
            return np.ones(len(self.keys))
        rest = 1 / (len(holds) + 2)  # nothing is impossible, or certain
        mean = rest + (1 - 2 * rest) * holds.mean()
        rows = self._telling(self._known)
        said, _ = self._process(self._known[rows], holds[rows].astype(float), mean).predict(self._coded)
        probability: Floats = np.clip(said, rest, 1 - rest)
        return probability

    def _expected(self, coded: Floats, believed: Floats | None = None) -> tuple[Floats, Floats]:
        """Means and standard deviations of what designs measure beyond what is predicted, (designs, objectives), when
        some are believed to be as expected."""
        found = [process.predict(coded, believed) for process in self._excess]
        means, deviations = (np.stack(of, 1) for of in zip(*found, strict=True))
        return means, deviations

    def best(self, count: int, among: Collection[str], under_way: Collection[str] = ()) -> list[str]:
        """Designs to measure next: those that are expected to add most hypervolume to what was measured, times the
        probability that they do not fail. Each is chosen as if those before it, and those that are being measured, were
        found to be as expected (D. Ginsbourger et al., "Kriging is well-suited to parallelize optimization", 2010).

        Args:
            among: keys of designs.
            under_way: keys of those that are being measured.
        """
        left, believed = self._rows(sorted(among)), self._rows(sorted(k for k in under_way if k in self._row))
        chosen: list[str] = []
        with one_thread():
            while len(chosen) < count and len(left):
                worth = self._worth(left, believed)
                row = left[int(np.round(worth / worth.max(), 7).argmax())]  # equal ones also where rounding differs
                chosen.append(self.keys[row])
                left, believed = left[left != row], np.append(believed, row)
        return chosen

    def _worth(self, left: Integers, believed: Integers) -> Floats:
        excess, deviations = self._expected(self._coded[left], self._coded[believed])
        means = self._prior[left] + excess
        front = np.concatenate((self._measured, self.means[believed[self.probability[believed] >= 0.5]]))
        front = front[pareto_positions(front)]
        # Measured fronts begin in a corner: what counts is how far the whole one is expected to reach.
        reach = np.concatenate((front, means))
        reach = reach[pareto_positions(reach)]
        low, span = reach.min(0), np.ptp(reach, 0)
        span = np.where(span > EXACT, span, 1.0)
        reference = np.maximum(reach.max(0), front.max(0, initial=-np.inf)) + REFERENCE_MARGIN * span
        rng = np.random.default_rng((len(self._known), len(believed)))
        gain = expected_gain(
            (means - low) / span, deviations / span, (front - low) / span, (reference - low) / span, rng
        )
        worth: Floats = gain * self.probability[left]
        return worth


class _Scale(Struct, frozen=True):
    """Losses whose ratios count where they all have one sign, and differences in parts of a power of two elsewhere."""

    sign: int
    magnitude: int

    @classmethod
    def of(cls, losses: Floats) -> _Scale:
        return cls(1 if (losses > 0).all() else -1 if (losses < 0).all() else 0, magnitude(losses))

    def to(self, losses: Floats) -> Floats:
        return self.sign * np.log(self.sign * losses) if self.sign else np.ldexp(losses, -self.magnitude)


class _Process:
    """A Gaussian process around a mean.

    Args:
        coded: features of the designs that something is known of, (designs, features).
        groups: of each feature.
        values: what is known, (designs,).
    """

    def __init__(self, coded: Floats, groups: Integers, values: Floats, mean: float) -> None:
        self._coded, self._groups, self._mean = coded, groups, mean
        self._deviation = float(np.sqrt(((values - mean) ** 2).mean())) if len(values) else 0.0
        self._model: Surrogate | None = None
        if len(values) >= FEWEST and self._deviation > EXACT and coded.shape[1]:
            self._values = (values - mean) / self._deviation
            self._scales = fitted_scales(coded, self._values, groups)
            self._model = Surrogate(coded, self._values, groups, self._scales)

    def predict(self, coded: Floats, believed: Floats | None = None) -> tuple[Floats, Floats]:
        """Mean and standard deviation of designs, when others are believed to be as expected."""
        model = self._model
        if model is None:
            return np.full(len(coded), self._mean), np.zeros(len(coded))
        if believed is not None and len(believed):
            values = np.append(self._values, model.predict(believed)[0])
            model = Surrogate(np.vstack((self._coded, believed)), values, self._groups, self._scales)
        mean, deviation = model.predict(coded)
        return self._mean + self._deviation * mean, self._deviation * deviation
