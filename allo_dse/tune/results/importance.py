"""Importance of choices, for a run's summary, the page and the report."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

MOST_WEIGHED = 1000  # designs; enough for a stable order
LEAST_WEIGHED = 20
BEST = 0.1  # share of the designs whose choices are compared with those of all


def weighed(count: int) -> NDArray[np.int64]:
    """Positions of the designs that are looked at: all, or of many an even sample."""
    return np.linspace(0, count - 1, min(count, MOST_WEIGHED)).astype(np.int64)


def importances(choices: Mapping[str, Sequence[Hashable]], losses: Sequence[float]) -> dict[str, float]:
    """Return how much each choice decides whether losses are small; largest first, with sum 1.

    PED-ANOVA (S. Watanabe, A. Bansal and F. Hutter, 2023) as Optuna computes it, for values without an order: the
    Pearson divergence of the best tenth's values from those of all designs. Empty if there are fewer than
    `LEAST_WEIGHED` designs, or nothing varies.

    Args:
        choices: for each choice, its value in every design; None in a design that does not make the choice.
    """
    varying = {name: numbers for name, values in choices.items() if (numbers := _numbered(values)).any()}
    if len(losses) < LEAST_WEIGHED or not varying:
        return {}
    best = np.array(losses) <= sorted(losses)[math.ceil(BEST * len(losses)) - 1]
    found = {name: _divergence(numbers[best], numbers) for name, numbers in varying.items()}
    total = sum(found.values())
    shares = {name: one / total if total else 1 / len(found) for name, one in found.items()}
    return dict(sorted(shares.items(), key=lambda item: -item[1]))


def _divergence(best: NDArray[np.int64], every: NDArray[np.int64]) -> float:
    """Return the Pearson divergence of the densities of the best designs' values and of all."""
    near, far = (_density(numbers, every.max() + 1) for numbers in (best, every))
    return float(far @ (near / far - 1) ** 2)


def _density(numbers: NDArray[np.int64], count: int) -> NDArray[np.float64]:
    """Return Optuna's Parzen estimate of the probabilities of `count` values, with one uniform kernel as the prior."""
    found = np.bincount(numbers, minlength=count)
    prior = 1 / (np.count_nonzero(found) + 1)
    kernels = (found + prior * len(numbers)) / (1 + prior * count)
    density: NDArray[np.float64] = (kernels + 1 / count) / (len(numbers) + 1) + 1e-12
    return density


def _numbered(values: Sequence[Hashable]) -> NDArray[np.int64]:
    """Number values by first occurrence."""
    numbers: dict[Hashable, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values])
