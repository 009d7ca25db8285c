"""Gaussian-process regression with a length scale per parameter, fitted automatically.

Covariance is Matern with smoothness 5/2 (C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning", MIT
Press 2006, chapters 2, 4 and 5). Length scales and noise maximise the marginal likelihood times a prior; the scale of
the covariance has its best value in closed form. Time grows with the cube of the number of designs, a few hundred at
most.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import numpy as np
from msgspec import Struct

from ..genes import Gene
from .pareto import Booleans, Floats, Integers

# `benchmarks/sampler_quality.py` measures these settings together.
STEPS = 25  # of gradient ascent, each of at most RATE in the logarithms of lengths and noise
WARM_STEPS = 8  # the same from the scales of fewer designs
RATE = 0.2
LENGTH, NOISE = math.log(0.8), math.log(0.15)  # centre of the prior: a feature spans 0 to 1, losses have variance 1
SHORTEST, LONGEST = math.log(0.02), math.log(50)
SPREAD = 1.0  # standard deviation of the prior, in logarithms
JITTER = 1e-6


class Scales(Struct, frozen=True):
    """Length scales of features, and the noise that they leave unexplained.

    Attributes:
        lengths: logarithms of the length scales, (groups of features,).
        noise: logarithm of the standard deviation that features do not explain, as a share of what they do.
    """

    lengths: Floats
    noise: float = NOISE


class Surrogate:
    """Gaussian process: mean and standard deviation of an unmeasured value.

    Args:
        features: of the measured designs, (designs, features).
        values: (designs,), of about mean 0 and variance 1.
        groups: the group of each feature; those of a group (the categories of one parameter) share a length.
        scales: from `fitted_scales`.
        centred: expect 0 where nothing is known. By default this mean is fitted by generalised least squares (ordinary
            kriging), in which designs close together count less.
    """

    def __init__(
        self, features: Floats, values: Floats, groups: Integers, scales: Scales, centred: bool = False
    ) -> None:
        self._weights = np.exp(-scales.lengths)[groups]
        self._features = features * self._weights
        covariance = _covariance(self._features, self._features)
        self._noise = math.exp(2 * scales.noise) + JITTER
        covariance.flat[:: len(values) + 1] += self._noise
        self._inverse = np.linalg.inv(covariance)
        weights = self._inverse.sum(0)
        self._mean = 0.0 if centred else float(weights @ values) / float(weights.sum())
        self._dual = self._inverse @ (values - self._mean)
        self._variance = max(float((values - self._mean) @ self._dual) / len(values), JITTER)

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each design, (designs,) both."""
        found = self.posterior(features)
        return found.mean, found.deviation

    def posterior(self, features: Floats) -> Posterior:
        """Joint prediction of some designs, (designs, features)."""
        return Posterior(self, features * self._weights)


class Posterior:
    """Prediction of some designs.

    Attributes:
        mean: (designs,).
    """

    def __init__(self, model: Surrogate, scaled: Floats) -> None:
        self._model, self._scaled = model, scaled
        self._shared = _covariance(scaled, model._features)
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
        column = _covariance(self._scaled, self._scaled[position : position + 1])[:, 0]
        column = column - self._explained @ self._shared[position]
        for other in self._known:
            column = column - other * other[position]
        self._known.append(column / math.sqrt(max(float(column[position]), JITTER) + self._model._noise))
        self._left = np.maximum(JITTER, self._left - self._known[-1] ** 2)


def fitted_scales(features: Floats, values: Floats, groups: Integers, start: Scales | None = None) -> Scales:
    """The most probable scales, by gradient ascent (D. Kingma and J. Ba, "Adam", 2015).

    Args:
        features: (designs, features).
        values: (designs,).
        groups: of each feature.
        start: scales of some of the designs; by default, the centre of the prior.
    """
    count, size = int(groups.max()) + 1, len(values)
    apart = (features.T[:, :, None] - features.T[:, None, :]) ** 2
    if len(apart) > count:
        apart = np.add.reduceat(apart, np.searchsorted(groups, np.arange(count)))
    apart = apart.reshape(count, size * size)
    centre = np.append(np.full(count, LENGTH), NOISE)
    theta = centre.copy() if start is None else np.append(start.lengths, start.noise)
    mean, power = np.zeros_like(theta), np.zeros_like(theta)
    for step in range(1, (WARM_STEPS if start else STEPS) + 1):
        slope = _slope(theta, apart, values) - (theta - centre) / SPREAD**2
        mean, power = 0.9 * mean + 0.1 * slope, 0.9 * power + 0.1 * slope**2
        theta += RATE * (mean / (1 - 0.9**step)) / (np.sqrt(power / (1 - 0.9**step)) + 1e-9)
        theta = np.minimum(np.maximum(theta, SHORTEST), LONGEST)
    return Scales(theta[:-1], float(theta[-1]))


def _slope(theta: Floats, apart: Floats, values: Floats) -> Floats:
    """Gradient of the logarithm of the marginal likelihood, in the logarithms of lengths and noise."""
    size = len(values)
    weights = np.exp(-2 * theta[:-1])
    covariance, slope = _matern((weights @ apart).reshape(size, size))
    noise = math.exp(2 * theta[-1])
    covariance.flat[:: size + 1] += noise + JITTER
    inverse = np.linalg.inv(covariance)
    dual = inverse @ values
    unexplained = dual[:, None] * dual / max(float(values @ dual) / size, JITTER) - inverse
    lengths = 0.5 * (apart @ (unexplained * slope).ravel()) * weights
    return np.append(lengths, np.trace(unexplained) * noise)


def _squares(left: Floats, right: Floats) -> Floats:
    """Squared distances between rows, (left, right)."""
    squares = (-2 * left) @ right.T
    squares += np.einsum("ij,ij->i", left, left)[:, None]
    squares += np.einsum("ij,ij->i", right, right)
    return np.maximum(squares, 0.0, out=squares)


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Covariance at squared distances, and minus twice its derivative by them."""
    distances = np.sqrt(5 * squares)
    decay = np.exp(-distances)
    return (1 + distances + 5 / 3 * squares) * decay, 5 / 3 * (1 + distances) * decay


def _covariance(left: Floats, right: Floats) -> Floats:
    """Covariance between rows, (left, right)."""
    squares = _squares(left, right)
    squares *= 5
    distances = np.sqrt(squares)
    squares /= 3
    squares += distances
    squares += 1
    np.negative(distances, out=distances)
    squares *= np.exp(distances, out=distances)
    return squares


ABSENT = -0.5  # feature of an absent gene; present ones range from 0 to 1


class Features(Struct, frozen=True):
    """Genes as numbers: positions in their ranges from 0 to 1, and one number per category that was met.

    Attributes:
        columns: positions of the genes that differ between designs.
        groups: the position in `columns` of the gene that each feature belongs to, (features,).
        low, high: range of that gene, as its logarithms if it is logarithmic, (features,).
        logarithmic: mask of the features of logarithmic genes.
        category: the category that a feature stands for; -1 for all that were not met, -2 for a number, (features,).
    """

    columns: Integers
    groups: Integers
    low: Floats
    high: Floats
    logarithmic: Booleans
    category: Integers

    @classmethod
    def of(cls, rows: Integers, ranges: Sequence[Gene]) -> Features:
        """For everything that differs between designs.

        Args:
            rows: values of genes, (designs, genes), below the range for an absent one.
            ranges: of each gene.
        """
        columns = np.flatnonzero((rows != rows[:1]).any(0))
        features = [
            (group, gene, category)
            for group, (column, gene) in enumerate((n, ranges[n]) for n in columns.tolist())
            for category in (
                [*(v for v in sorted(set(rows[:, column].tolist())) if v >= gene.low), -1]
                if gene.kind == "categorical"
                else [-2]
            )
        ]
        groups = np.array([group for group, _, _ in features], np.int64)
        low, high = np.array([(gene.low, gene.high) for _, gene, _ in features], float).reshape(-1, 2).T
        logarithmic = np.array([gene.kind == "log" for _, gene, _ in features], bool)
        low[logarithmic], high[logarithmic] = np.log(low[logarithmic]), np.log(high[logarithmic])
        return cls(columns, groups, low, high, logarithmic, np.array([of for _, _, of in features], np.int64))

    def encode(self, rows: Integers) -> Floats:
        """Features of designs, (designs, features)."""
        values = rows[:, self.columns[self.groups]]
        found = values.astype(float)
        found[:, self.logarithmic] = np.log(np.maximum(found[:, self.logarithmic], 0.5))
        present = found >= self.low
        found = np.where(present, (found - self.low) / np.maximum(1e-9, self.high - self.low), ABSENT)
        met = self.category >= 0
        if met.any():
            # Each met category is at distance 1 from the others. Unmet ones share a number, at the same distance.
            same = values[:, met] == self.category[met]
            first = np.flatnonzero(np.append(True, ~met[:-1])[met])
            unmet = present[:, self.category == -1] & ~np.logical_or.reduceat(same, first, axis=1)
            found[:, met], found[:, self.category == -1] = same * 0.5**0.5, unmet * 0.5**0.5
        return found


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
