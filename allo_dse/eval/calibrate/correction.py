"""Correction of predicted latencies by the designs that a run has measured, depending on their bottlenecks.

    correction = Correction.of([Pair(predicted_metrics, measured_us=412.0), ...])
    correction.applied(metrics)             # metrics of the next prediction

Unlike a calibration it changes no number of the device and simulates nothing, so a search can afford it after every
measurement. It models the logarithm of measured over predicted latency as a constant plus a weighted sum of the busy
shares of the resources. All of these start at zero, and outliers count little.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from allo_dse.common.records import Frozen

from .robust_fit import (
    FEWEST_TO_JUDGE,
    FOLDS,
    LEAST_PERCENT,
    ROUNDS,
    SELECTION_SCALE,
    Vector,
    error_quantiles,
    scale_of,
    weights_of,
)

Metrics = Mapping[str, Any]

LATENCY, RANGE, PREDICTED, BOUND = "latency_us", "latency_range", "predicted", "bound"
LEAST_US, MOST_US = 1e-3, 1e10
"""Plausible latencies in microseconds: from one clock cycle to three hours. Anything else is a mistake."""
STEP_SHARE = 8  # refit after used / STEP_SHARE more measurements
TRUST_ALL, TRUST_SHARE = 0.5, 0.25  # prior standard deviations of the constant and the weights
_FOLLOWS = {LATENCY: 1, "latency_cycles": 1, "throughput_gops": -1, "utilization": -1}
"""Metrics in proportion to the latency, or to its inverse."""


def merged_metrics(below: dict[str, Any] | None, above: dict[str, Any] | None) -> dict[str, Any]:
    """Return the metrics of two rungs; the higher one wins where both have them."""
    metrics = {**(below or {}), **(above or {})}
    if LATENCY in (above or {}) and RANGE not in (above or {}):
        metrics.pop(RANGE, None)  # it belongs to a prediction
    return metrics


class Pair(Frozen):
    """A design that was predicted and measured.

    Attributes:
        predicted: the evaluator's metrics, without correction.
        key: the design's.
    """

    predicted: Metrics
    measured_us: float
    key: str = ""

    @staticmethod
    def of(predicted: Metrics | None, measured: Metrics | None, key: str = "") -> Pair | None:
        """Pair the metrics of two evaluators of a design, if one predicts its latency and the other measures it."""
        latency_us = measured_us(measured)
        if not predicted or RANGE not in predicted or latency_us is None:
            return None
        return Pair(uncorrected(predicted), latency_us, key)

    @property
    def predicted_us(self) -> float:
        return float(self.predicted[LATENCY])

    @property
    def shares(self) -> dict[str, float]:
        """Share of the work that each resource does; "" stands for all of it."""
        bound = self.predicted.get(BOUND) or {}
        total = sum(bound.values())
        return {"": 1.0, **({name: share / total for name, share in bound.items()} if total > 0 else {})}


class Correction(Frozen, dict=True):
    """A fit to the pairs of a run.

    Attributes:
        pairs: all pairs, in the order of the measurements.
        used: number of pairs used in the fit.
        weights: logarithm of measured over predicted for work of each resource; "" for all.
    """

    pairs: tuple[Pair, ...] = ()
    used: int = 0
    weights: Mapping[str, float] | None = None

    @staticmethod
    def of(pairs: Iterable[Pair]) -> Correction:
        """Fit a correction to these measurements: after each one while there are few, later in steps."""
        found = tuple(pairs)
        used = 0
        while used + _step(used) <= len(found):
            used += _step(used)
        return Correction(found, used, _fitted(found[:used]))

    @property
    def unused(self) -> int:
        """Number of measurements since the last fit."""
        return len(self.pairs) - self.used

    @property
    def step(self) -> int:
        """Number of further measurements before the next fit; it grows, so that all fits of a run cost little."""
        return _step(self.used)

    def factor(self, predicted: Metrics) -> float:
        """Return the factor that corrects a predicted latency."""
        return _factor(self.weights or {}, Pair(predicted, 0.0))

    def applied(self, metrics: Metrics) -> dict[str, Any]:
        """Return predicted metrics with the latency corrected, and the metrics that follow from it.

        `predicted` keeps the evaluator's own values.
        """
        plain = uncorrected(metrics)
        if not self.used or RANGE not in plain or LATENCY not in plain:
            return plain
        factor = self.factor(plain)
        changed = {name: plain[name] * factor**power for name, power in _FOLLOWS.items() if name in plain}
        if "latency_cycles" in changed:
            changed["latency_cycles"] = round(changed["latency_cycles"])
        if self.used >= FEWEST_TO_JUDGE:
            percent = max(LEAST_PERCENT, round(100 * self.errors["corrected"][1], 1))
            changed[RANGE] = {"percent": percent, "measurements": self.used, "of": "this run"}
        return {**plain, **changed, PREDICTED: {name: plain[name] for name in changed}}

    @cached_property
    def corrected_us(self) -> list[float]:
        """Predicted latency of each pair, corrected by a fit to the other pairs."""
        found = [pair.predicted_us * _factor(self.weights or {}, pair) for pair in self.pairs]
        for fold in range(min(FOLDS, self.used)):
            out = range(fold, self.used, FOLDS)
            weights = _fitted([pair for n, pair in enumerate(self.pairs[: self.used]) if n not in out])
            for n in out:
                found[n] = self.pairs[n].predicted_us * _factor(weights, self.pairs[n])
        return found

    @property
    def errors(self) -> dict[str, tuple[float, float]]:
        """Median and 90th percentile of the absolute relative error; undefined without pairs.

        "predicted": of the evaluator's predictions; "corrected": of each prediction, corrected by a fit to the others.
        """
        measured = [pair.measured_us for pair in self.pairs]
        kinds = {"predicted": [pair.predicted_us for pair in self.pairs], "corrected": self.corrected_us}
        return {kind: error_quantiles(values, measured) for kind, values in kinds.items()}

    @property
    def words(self) -> str:
        """Summary of the errors, such as "12 designs: predicted 14 % off (median; 90th percentile 21 %), ..."."""
        if not self.pairs:
            return ""
        (before, before_90), (after, after_90) = self.errors["predicted"], self.errors["corrected"]
        count = f"{len(self.pairs)} design{'s' if len(self.pairs) > 1 else ''}"
        return (
            f"{count}: predicted {before:.1%} off (median; 90th percentile {before_90:.1%}), "
            f"corrected by the others {after:.1%} ({after_90:.1%})"
        )

    def to_dict(self) -> dict[str, Any] | None:
        """For machines; None without pairs."""
        if not self.pairs:
            return None
        errors = {kind: {"median": a, "quantile_90": b} for kind, (a, b) in self.errors.items()}
        return {"measured": len(self.pairs), "errors": errors}


def measured_us(metrics: Metrics | None) -> float | None:
    """Return the latency of measured metrics; None for predictions, which have a `latency_range`."""
    latency_us = (metrics or {}).get(LATENCY)
    if RANGE in (metrics or {}) or not isinstance(latency_us, int | float) or not LEAST_US <= latency_us <= MOST_US:
        return None
    return float(latency_us)


def uncorrected(metrics: Metrics) -> dict[str, Any]:
    """Return the metrics as the evaluator reported them."""
    plain = {name: value for name, value in metrics.items() if name != PREDICTED}
    return {**plain, **(metrics.get(PREDICTED) or {})}


def _step(used: int) -> int:
    return max(1, used // STEP_SHARE)


def _factor(weights: Mapping[str, float], pair: Pair) -> float:
    return math.exp(sum(weights.get(name, 0.0) * share for name, share in pair.shares.items()))


def _fitted(pairs: Iterable[Pair]) -> dict[str, float]:
    """Fit the weights by ridge regression with Cauchy's weights.

    Pairs are sorted first, so that the numbers do not depend on the order of measurements.
    """
    known = sorted(pairs, key=lambda pair: (pair.predicted_us, pair.measured_us, sorted(pair.shares.items())))
    names = sorted({name for pair in known for name in pair.shares})
    if not known:
        return {}
    shares = np.array([[pair.shares.get(name, 0.0) for name in names] for pair in known])
    wanted = np.log([pair.measured_us / pair.predicted_us for pair in known])
    prior = np.array([TRUST_SHARE if name else TRUST_ALL for name in names])
    found: Vector = np.zeros(len(names))
    counts: Vector = np.ones(len(known))
    for _ in range(ROUNDS):
        normal = shares.T @ (counts[:, None] * shares) + np.diag((SELECTION_SCALE / prior) ** 2)
        found = np.linalg.solve(normal, shares.T @ (counts * wanted))
        left = wanted - shares @ found
        counts = weights_of(left, max(SELECTION_SCALE, scale_of(left)))
    return dict(zip(names, found.tolist(), strict=True))


def correction_of(measured: Iterable[tuple[str, int, Metrics | None, Metrics | None]]) -> Correction:
    """Fit the correction of the first rung to the measurements of higher rungs.

    Args:
        measured: key of a design, a rung above the first that has measured it, and its metrics by the first rung and by
            that one, in the order of the higher results. The highest rung counts.
    """
    pairs: dict[str, Pair] = {}
    for key, _, first, higher in sorted(measured, key=lambda one: one[1]):
        pair = Pair.of(first, higher, key)
        pairs.update({key: pair} if pair else {})
    return Correction.of(pairs.values())
