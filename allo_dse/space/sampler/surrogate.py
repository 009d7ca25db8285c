"""A surrogate model of losses: Gaussian-process regression with an automatically fitted length per feature.

Covariance is Matern with smoothness 5/2 (C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning", MIT
Press 2006, chapters 2, 4 and 5). Lengths and noise maximise the marginal likelihood times a prior; the scale of the
covariance has its best value in closed form. It is fitted to a few hundred designs at most: time grows with their cube.
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

from ..choice import Gene
from .pareto import Floats, Integers

STEPS = 25  # of gradient ascent, each of at most RATE in the logarithms of lengths and noise
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
    """Gaussian process: mean and standard deviation of an unmeasured loss.

    Args:
        features: of the measured designs, (designs, features).
        losses: (designs,), of about mean 0 and variance 1.
        groups: the group of each feature; those of a group (the categories of one parameter) share a length.
        scales: from `fitted_scales`.
    """

    def __init__(self, features: Floats, losses: Floats, groups: Integers, scales: Scales) -> None:
        self._weights = np.exp(-scales.lengths)[groups]
        self._features = features * self._weights
        covariance = _matern(_squares(self._features, self._features))[0]
        covariance.flat[:: len(losses) + 1] += math.exp(2 * scales.noise) + JITTER
        self._inverse = np.linalg.inv(covariance)
        self._dual = self._inverse @ losses
        self._variance = max(float(losses @ self._dual) / len(losses), JITTER)

    def predict(self, features: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of each design, (designs,) both."""
        shared = _matern(_squares(features * self._weights, self._features))[0]
        left = np.maximum(JITTER, 1 - np.einsum("ij,ij->i", shared @ self._inverse, shared))
        return shared @ self._dual, np.sqrt(self._variance * left)


def fitted_scales(features: Floats, losses: Floats, groups: Integers) -> Scales:
    """The most probable scales, by gradient ascent from the centre of the prior (D. Kingma and J. Ba, "Adam", 2015).

    Args:
        features: (designs, features).
        losses: (designs,).
        groups: of each feature.
    """
    count, size = int(groups.max()) + 1, len(losses)
    apart = np.stack([_squares(of, of) for of in (features[:, groups == group] for group in range(count))])
    apart = apart.reshape(count, size * size)
    centre = np.append(np.full(count, LENGTH), NOISE)
    theta = centre.copy()
    mean, power = np.zeros_like(theta), np.zeros_like(theta)
    for step in range(1, STEPS + 1):
        slope = _slope(theta, apart, losses) - (theta - centre) / SPREAD**2
        mean, power = 0.9 * mean + 0.1 * slope, 0.9 * power + 0.1 * slope**2
        theta += RATE * (mean / (1 - 0.9**step)) / (np.sqrt(power / (1 - 0.9**step)) + 1e-9)
        theta = np.minimum(np.maximum(theta, SHORTEST), LONGEST)
    return Scales(theta[:-1], float(theta[-1]))


def _slope(theta: Floats, apart: Floats, losses: Floats) -> Floats:
    """Gradient of the logarithm of the marginal likelihood, in the logarithms of lengths and noise."""
    size = len(losses)
    weights = np.exp(-2 * theta[:-1])
    covariance, slope = _matern((weights @ apart).reshape(size, size))
    noise = math.exp(2 * theta[-1])
    covariance.flat[:: size + 1] += noise + JITTER
    inverse = np.linalg.inv(covariance)
    dual = inverse @ losses
    unexplained = dual[:, None] * dual / max(float(losses @ dual) / size, JITTER) - inverse
    lengths = 0.5 * (apart @ (unexplained * slope).ravel()) * weights
    return np.append(lengths, np.trace(unexplained) * noise)


def _squares(left: Floats, right: Floats) -> Floats:
    """Squared distances between rows, (left, right)."""
    squares = (left**2).sum(1)[:, None] + (right**2).sum(1) - 2 * left @ right.T
    found: Floats = np.maximum(squares, 0.0)
    return found


def _matern(squares: Floats) -> tuple[Floats, Floats]:
    """Covariance at squared distances, and minus twice its derivative by them."""
    distances = np.sqrt(5 * squares)
    decay = np.exp(-distances)
    return (1 + distances + 5 / 3 * squares) * decay, 5 / 3 * (1 + distances) * decay


ABSENT = -0.5  # feature of an absent gene; present ones range from 0 to 1


class Features(Struct, frozen=True):
    """Genes as numbers: positions in their ranges from 0 to 1, and one number per category that was met.

    Attributes:
        names: names of the genes.
        met: the categories of each categorical gene that designs have.
        groups: the position in `names` of the gene that each feature belongs to, (features,).
    """

    names: tuple[str, ...]
    ranges: tuple[Gene, ...]
    met: tuple[tuple[int, ...], ...]
    groups: Integers

    @classmethod
    def of(cls, designs: Sequence[Mapping[str, int]], genes: Mapping[str, Gene]) -> Features:
        """For everything that differs between designs."""
        known = sorted({name for design in designs for name in design})
        names = tuple(name for name in known if len({design.get(name) for design in designs}) > 1)
        ranges = tuple(genes[name] for name in names)
        met = tuple(
            tuple(sorted({design[name] for design in designs if name in design})) if gene.kind == "categorical" else ()
            for name, gene in zip(names, ranges, strict=True)
        )
        return cls(names, ranges, met, np.repeat(np.arange(len(names)), [len(categories) + 1 for categories in met]))

    def encode(self, designs: Sequence[Mapping[str, int]]) -> Floats:
        """(designs, features)."""
        columns: list[Floats] = []
        for name, gene, met in zip(self.names, self.ranges, self.met, strict=True):
            values = np.array([design.get(name, gene.low - 1) for design in designs], float)
            if gene.kind == "categorical":
                # Each met category is at distance 1 from the others. Unmet ones share a number, at the same distance.
                others = (values >= gene.low) & ~np.isin(values, met)
                columns += [which * 0.5**0.5 for which in (*(values == value for value in met), others)]
            else:
                columns.append(np.where(values < gene.low, ABSENT, _position(values, gene)))
        return np.stack(columns, 1) if columns else np.empty((len(designs), 0))


def _position(values: Floats, gene: Gene) -> Floats:
    low, high = float(gene.low), float(gene.high)
    if gene.kind == "log":
        values, low, high = np.log(np.maximum(values, low)), np.log(low), np.log(high)
    found: Floats = (values - low) / max(1e-9, high - low)
    return found


class Numbers(Struct, frozen=True):
    """Numbers that are features themselves, scaled from 0 to 1 over the first designs.

    Attributes:
        low, span: of each number, (numbers,); a span of 0 for a constant one.
    """

    low: Floats
    span: Floats

    @classmethod
    def of(cls, numbers: Floats) -> Numbers:
        """For these, (designs, numbers), of one design at least."""
        return cls(numbers.min(0), np.ptp(numbers, 0))

    @property
    def count(self) -> int:
        """Number of features that vary."""
        return int((self.span > 0).sum())

    def encode(self, numbers: Floats) -> Floats:
        """(designs, features)."""
        differ = self.span > 0
        coded: Floats = ((numbers - self.low) / np.where(differ, self.span, 1.0))[:, differ]
        return coded


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
