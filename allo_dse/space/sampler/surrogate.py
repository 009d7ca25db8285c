"""A model of what designs are worth: Gaussian-process regression with an automatically found length per feature.

Covariance is Matern with smoothness 5/2 (C. Rasmussen and C. Williams, "Gaussian Processes for Machine Learning", MIT
Press 2006, chapters 2, 4 and 5). Lengths and noise maximise the marginal likelihood times a prior; the scale of the
covariance has its best value in closed form. It is fitted to a few hundred designs at most: time grows with their cube.
"""

from __future__ import annotations

import math

import numpy as np
from msgspec import Struct

from .selection import Floats, Integers

STEPS = 25  # of gradient ascent, each of at most RATE in the logarithms of lengths and noise
RATE = 0.2
LENGTH, NOISE = math.log(0.8), math.log(0.15)  # centre of the prior: a feature spans 0 to 1, losses have variance 1
SHORTEST, LONGEST = math.log(0.02), math.log(50)
SPREAD = 1.0  # standard deviation of the prior, of the logarithms
JITTER = 1e-6


class Scales(Struct, frozen=True):
    """Over which distances features make a difference, and how much they do not explain.

    Attributes:
        lengths: logarithms of the distances, (groups of features,).
        noise: logarithm of the standard deviation of what features do not explain, as a share of what they do.
    """

    lengths: Floats
    noise: float = NOISE


class Surrogate:
    """Mean and standard deviation of a loss where it was not measured.

    Args:
        features: of the measured designs, (designs, features).
        losses: (designs,), of about mean 0 and variance 1.
        groups: the group of each feature; those of a group (the categories of one parameter) share a length.
        scales: as `fitted_scales` found them.
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
