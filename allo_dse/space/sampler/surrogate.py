"""Gaussian-process regression with a length scale per parameter, fitted automatically.

Covariance is Matern with smoothness 5/2 (C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning", MIT
Press 2006, chapters 2, 4 and 5), mixed with the mean of a rational-quadratic covariance in each parameter: effects of
single parameters are learnt from designs that differ in others (D. Duvenaud et al., "Additive Gaussian processes",
NIPS 2011). Length scales, noise and the share of the mixture maximise the marginal likelihood times a prior; the scale
of the covariance has its best value in closed form. Time grows with the cube of the number of designs, a few hundred at
most.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache, partial
from pathlib import Path

import numpy as np
from msgspec import Struct

from allo_dse.common.numba_kernels import compiled

from ..genes import Gene
from .pareto import Booleans, Floats, Integers

_PAIRS = lru_cache(maxsize=4)(partial(np.triu_indices, k=1))  # asked for in every step of a fit
# `benchmarks/sampler_quality.py` measures these settings together.
STEPS = 25  # of gradient ascent, each of at most RATE in the logarithms of lengths and noise
WARM_STEPS = 8  # the same from the scales of fewer designs
RATE = 0.2
LENGTH, NOISE = math.log(0.8), math.log(0.15)  # centre of the prior: a feature spans 0 to 1, losses have variance 1
SHORTEST, LONGEST = math.log(0.02), math.log(50)
MOST_MIXED = 6.0  # largest logit of a share of the mixture
SPREAD = 1.0  # standard deviation of the prior, in logarithms
JITTER = 1e-6


def prior_scales(count: int, additive: float = -MOST_MIXED) -> Floats:
    """Scales of features as long as nothing is known of them, (features + 2,).

    Scales are the logarithms of the length scales; the logarithm of the standard deviation that features do not
    explain, as a share of what they do; and the logit of the share of the covariance that is a mean over features.
    """
    return np.array([*[LENGTH] * count, NOISE, additive])


class Surrogate:
    """Gaussian process: mean and standard deviation of an unmeasured value.

    Args:
        features: of the measured designs, (designs, features).
        values: (designs,), of about mean 0.
        categorical: mask of the features whose values are equally far from each other, (features,).
        scales: from `fitted_scales`.
        centred: expect 0 where nothing is known. By default this mean is fitted by generalised least squares (ordinary
            kriging), in which designs close together count less.
    """

    def __init__(
        self, features: Floats, values: Floats, categorical: Booleans, scales: Floats, centred: bool = False
    ) -> None:
        self._kernel = np.exp(-scales[:-2]), categorical, 1 / (1 + math.exp(-scales[-1]))
        # Numba compiles `covariances` for each layout in memory.
        self._features, self._values = np.ascontiguousarray(features), values
        covariance = self.covariance(self._features)
        self._noise = math.exp(2 * scales[-2]) + JITTER
        covariance.flat[:: len(values) + 1] += self._noise
        self._inverse = np.linalg.inv(covariance)
        weights = self._inverse.sum(0)
        self._mean = 0.0 if centred else float(weights @ values) / float(weights.sum())
        self._dual = self._inverse @ (values - self._mean)
        self._variance = max(float((values - self._mean) @ self._dual) / len(values), JITTER)

    @property
    def predicted(self) -> float:
        """Share of the variance that leave-one-out predictions explain (Rasmussen and Williams, section 5.4.2)."""
        errors = self._dual / np.diag(self._inverse)
        return 1 - float((errors**2).mean()) / max(float(self._values.var()), JITTER)

    def covariance(self, features: Floats) -> Floats:
        """Covariance of some designs, (designs, features), with the measured ones."""
        return covariances(features, self._features, *self._kernel)

    def posterior(self, features: Floats) -> Posterior:
        """Joint prediction of some designs, (designs, features)."""
        return Posterior(self, features)


class Posterior:
    """Prediction of some designs.

    Attributes:
        mean: (designs,).
    """

    def __init__(self, model: Surrogate, features: Floats) -> None:
        self._model, self._features = model, np.ascontiguousarray(features)
        self._shared = model.covariance(self._features)
        self._explained = self._shared @ model._inverse
        self._left = np.maximum(JITTER, 1 - np.einsum("ij,ij->i", self._explained, self._shared))
        self._known: list[Floats] = []
        self.mean: Floats = model._mean + self._shared @ model._dual

    @property
    def deviation(self) -> Floats:
        """Standard deviation, (designs,)."""
        found: Floats = np.sqrt(self._model._variance * self._left)
        return found

    def believe(self, position: int) -> None:
        """Count a design as measured with its mean, which makes others near it less uncertain."""
        column = covariances(self._features, self._features[position : position + 1], *self._model._kernel)[:, 0]
        column = column - self._explained @ self._shared[position]
        for other in self._known:
            column = column - other * other[position]
        self._known.append(column / math.sqrt(max(float(column[position]), JITTER) + self._model._noise))
        self._left = np.maximum(JITTER, self._left - self._known[-1] ** 2)


def fitted_scales(features: Floats, values: Floats, categorical: Booleans, start: Floats | None = None) -> Floats:
    """The most probable scales, by gradient ascent (D. Kingma and J. Ba, "Adam", 2015).

    Args:
        features: (designs, features).
        values: (designs,).
        categorical: mask of features.
        start: scales of some of the designs; by default, the centre of the prior.
    """
    apart = squares_apart(features, categorical)
    centre = prior_scales(len(apart), additive=0.0)
    theta = (centre if start is None else start).copy()
    mean, power = np.zeros_like(theta), np.zeros_like(theta)
    for step in range(1, (STEPS if start is None else WARM_STEPS) + 1):
        slope = _slope(theta, apart, values) - (theta - centre) / SPREAD**2
        mean, power = 0.9 * mean + 0.1 * slope, 0.9 * power + 0.1 * slope**2
        theta += RATE * (mean / (1 - 0.9**step)) / (np.sqrt(power / (1 - 0.9**step)) + 1e-9)
        theta[:-1] = np.minimum(np.maximum(theta[:-1], SHORTEST), LONGEST)
        theta[-1] = min(max(theta[-1], -MOST_MIXED), MOST_MIXED)
    return theta


def squares_apart(features: Floats, categorical: Booleans) -> Floats:
    """Squared differences of pairs of designs, (features, pairs); 1 between categories."""
    one, other = _PAIRS(len(features))
    apart = (features[one] - features[other]).T
    apart[categorical] = apart[categorical] != 0
    return apart**2


def _slope(theta: Floats, apart: Floats, values: Floats) -> Floats:
    """Gradient of the logarithm of the marginal likelihood, in the logarithms of lengths and noise and the logit."""
    size, weights, share = len(values), np.exp(-2 * theta[:-2])[:, None], 1 / (1 + math.exp(-theta[-1]))
    scaled = weights * apart
    squares, near = scaled.sum(0), 1 / (1 + scaled)
    distances = np.sqrt(5 * squares)
    decay = np.exp(-distances)
    matern, additive = (1 + distances + 5 / 3 * squares) * decay, near.mean(0)
    covariance, upper = np.eye(size), _PAIRS(size)
    covariance[upper] = covariance.T[upper] = share * additive + (1 - share) * matern
    noise = math.exp(2 * theta[-2])
    covariance.flat[:: size + 1] += noise + JITTER
    inverse = np.linalg.inv(covariance)
    dual = inverse @ values
    unexplained = dual[:, None] * dual / max(float(values @ dual) / size, JITTER) - inverse
    pairs = unexplained[upper]
    lengths = (1 - share) * (scaled @ (pairs * 5 / 3 * (1 + distances) * decay))
    lengths += 2 * share / len(apart) * ((scaled * near**2) @ pairs)
    mixture = share * (1 - share) * (pairs @ (additive - matern))
    return np.append(lengths, (np.trace(unexplained) * noise, mixture))


@compiled
def covariances(left: Floats, right: Floats, weights: Floats, categorical: Booleans, share: float) -> Floats:
    """Covariance between designs, (left, right).

    Args:
        left, right: (designs, features).
        weights: inverse length scales, (features,).
        categorical: mask of features.
        share: weight of the mean over features.
    """
    columns = right.T.copy()
    found = np.empty((len(left), len(right)))
    squares, near = np.empty(len(right)), np.empty(len(right))
    for row in range(len(left)):
        squares[:] = 0.0
        near[:] = 0.0
        for feature in range(len(weights)):
            value, column, weight = left[row, feature], columns[feature], weights[feature]
            if categorical[feature]:
                for n in range(len(column)):
                    apart = weight * weight * (column[n] != value)
                    squares[n] += apart
                    near[n] += 1 / (1 + apart)
            else:
                for n in range(len(column)):
                    apart = weight * (column[n] - value)
                    apart *= apart
                    squares[n] += apart
                    near[n] += 1 / (1 + apart)
        for n in range(len(squares)):
            distance = math.sqrt(5 * squares[n])
            matern = (1 + distance + 5 / 3 * squares[n]) * math.exp(-distance)
            found[row, n] = share * near[n] / len(weights) + (1 - share) * matern
    return found


ABSENT = -0.5  # feature of an absent gene; present ones range from 0 to 1


class Features(Struct, frozen=True):
    """Genes as numbers: positions in their ranges from 0 to 1, and categories as they are.

    Attributes:
        columns: positions of the genes that differ between designs.
        low, high: their ranges, as logarithms if they are logarithmic, (features,).
        logarithmic, categorical: masks of features.
    """

    columns: Integers
    low: Floats
    high: Floats
    logarithmic: Booleans
    categorical: Booleans

    @classmethod
    def of(cls, rows: Integers, ranges: Sequence[Gene]) -> Features:
        """For everything that differs between designs.

        Args:
            rows: values of genes, (designs, genes), below the range for an absent one.
            ranges: of each gene.
        """
        columns = np.flatnonzero((rows != rows[:1]).any(0))
        genes = [ranges[n] for n in columns.tolist()]
        bounds = np.array([(gene.low, gene.high) for gene in genes], float).reshape(-1, 2).T
        kinds = np.array([gene.kind for gene in genes], str)
        logarithmic = kinds == "log"
        bounds[:, logarithmic] = np.log(bounds[:, logarithmic])
        return cls(columns, bounds[0], bounds[1], logarithmic, kinds == "categorical")

    def encode(self, rows: Integers) -> Floats:
        """Features of designs, (designs, features)."""
        found = rows[:, self.columns].astype(float)
        found[:, self.logarithmic] = np.log(np.maximum(found[:, self.logarithmic], 0.5))
        scaled = np.where(found >= self.low, (found - self.low) / np.maximum(1e-9, self.high - self.low), ABSENT)
        return np.where(self.categorical, found, scaled)


def as_rows(designs: Sequence[Mapping[str, int]], names: Sequence[str], ranges: Sequence[Gene]) -> Integers:
    """Values of genes, (designs, genes), below the range for an absent one."""
    missing = [(name, gene.low - 1) for name, gene in zip(names, ranges, strict=True)]
    rows = [[design.get(name, low) for name, low in missing] for design in designs]
    return np.array(rows, np.int64).reshape(len(designs), len(names))


# Linear algebra on one thread: on a busy machine, threads that wait for each other take twenty times as long as one for
# a few hundred rows. Results would also depend on the number of threads.


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict NumPy's linear algebra to one thread within the context.

    It changes nothing unless NumPy uses the OpenBLAS of its wheels.
    """
    library = _openblas()
    if library is None:
        yield
        return
    before = library.scipy_openblas_get_num_threads64_()
    library.scipy_openblas_set_num_threads64_(1)
    try:
        yield
    finally:
        library.scipy_openblas_set_num_threads64_(before)


@cache
def _openblas() -> ctypes.CDLL | None:
    """The library that NumPy has loaded already."""
    package = Path(np.__file__).parent
    for path in (
        *package.parent.glob("numpy.libs/libscipy_openblas64_*"),
        *package.glob(".dylibs/libscipy_openblas64_*"),
    ):
        try:
            library = ctypes.CDLL(str(path))
        except OSError:
            continue
        if hasattr(library, "scipy_openblas_set_num_threads64_"):
            return library
    return None
