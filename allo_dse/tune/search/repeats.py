"""Repeated measurement of designs by noisy evaluators."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import cache
from statistics import NormalDist, fmean
from typing import Any

import numpy as np

from allo_dse.eval.evaluator import Evaluator, Metrics
from allo_dse.space.design import Design

from .lower_bounds import Losses, metric_of
from .objectives import Constraint, MetricError, Objective
from .pareto_front import Points

WORTH = 0.02  # gain of a repeat below which it is left out, as a share of the standard deviation of the noise
MOST = 16  # measurements of a design
MOST_NOISE = 0.5  # relative noise above which nothing is expected of repeats


class Repeating:
    """Measures designs as often as is worth while, and reports mean values.

    The first design is measured twice, which shows whether there is noise at all. From then on a design is measured
    again as long as that may change whether it is better than the best so far: while the expected gain of the decision
    (the knowledge gradient of P. Frazier, W. Powell and S. Dayanik, "A knowledge-gradient policy for sequential
    information collection", SIAM J. Control Optim. 47(5), 2008) is worth a measurement. So designs that are clearly
    worse are measured once, and the winner often.

    The metrics of a design measured more than once have `repeats`, and the range of each metric that an objective reads
    as `NAME_min` and `NAME_max`.

    Args:
        evaluator: the evaluator; its other members are passed on.
    """

    def __init__(
        self, evaluator: Evaluator, objectives: Sequence[Objective], constraints: Sequence[Constraint]
    ) -> None:
        self._evaluator, self._objectives, self._constraints = evaluator, tuple(objectives), tuple(constraints)
        self._squares = np.zeros(len(self._objectives))  # of deviations, relative to the means
        self._freedom = 0
        self._front = np.empty((0, len(self._objectives)))  # mean losses of the best designs

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator that measures once."""
        return self._evaluator

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # also while it is unpickled
            raise AttributeError(name)
        return getattr(self._evaluator, name)

    def evaluate(self, design: Design) -> Metrics:
        """Measure one design."""
        began, limit = time.monotonic(), getattr(self._evaluator, "deadline_s", None) or math.inf
        found = [self._evaluator.evaluate(design)]
        if (losses := self._losses(found[0])) is None:  # infeasible, or without a value
            return found[0]
        known = [losses]
        while len(found) < MOST and self._is_worth_a_repeat(known):
            spent = time.monotonic() - began
            if spent + 2 * spent / len(found) > limit:  # all repeats share the time of the design
                break
            found.append(self._evaluator.evaluate(design))
            if (losses := self._losses(found[-1])) is not None:
                known.append(losses)
        self._squares, self._freedom = self._with(known)
        self._add_to_front(np.mean(known, 0))
        return found[0] if len(found) == 1 else self._together(found)

    def remember(self, metrics: Mapping[str, Any]) -> None:
        """Learn from a design of an earlier run; ranges of its metrics show the noise."""
        if (losses := self._losses(metrics)) is None:
            return
        count = metrics.get("repeats", 1)
        for n, name in enumerate(map(metric_of, self._objectives)):
            deviation = (metrics.get(f"{name}_max", 0.0) - metrics.get(f"{name}_min", 0.0)) / _expected_range(count)
            self._squares[n] += (count - 1) * (deviation / (abs(losses[n]) or 1.0)) ** 2
        self._freedom += count - 1
        self._add_to_front(np.array(losses))

    def _losses(self, found: Any) -> Losses | None:
        try:
            metrics = Metrics(**found)
            if any(constraint.violation(metrics) > 0 for constraint in self._constraints):
                return None
            return tuple(o.sign * o.value(metrics) for o in self._objectives)
        except (MetricError, TypeError):
            return None

    def _is_worth_a_repeat(self, known: Sequence[Losses]) -> bool:
        squares, freedom = self._with(known)
        count, noise, mean = len(known), np.sqrt(squares / max(freedom, 1)), np.mean(known, 0)
        if not self._freedom and count < 2:
            return True
        if not 0 < max(noise) <= MOST_NOISE:
            return False
        others = self._front[(self._front != mean).any(1)]
        if not len(others):
            return count < 3
        # By how many standard deviations the best of the others dominates it; negative if none does.
        with np.errstate(divide="ignore", invalid="ignore"):
            each = (mean - others) / (noise * _scale(others))
        apart = float(np.where(mean == others, 0, each).min(1).max())
        if apart < 0 and count < 2:  # the first noise estimate may be too small, and no winner is taken from one number
            return True
        step = math.sqrt(1 / (count * (count + 1)))  # standard deviation of the change of the mean by a repeat
        z = -abs(apart) / step
        normal = NormalDist()
        return z > -8 and step * (normal.pdf(z) + z * normal.cdf(z)) > WORTH

    def _with(self, known: Sequence[Losses]) -> tuple[Points, int]:
        """Return the squares of relative deviations of all repeats and these, and their degrees of freedom."""
        values, mean = np.array(known), np.mean(known, 0)
        return self._squares + (((values - mean) / _scale(mean)) ** 2).sum(0), self._freedom + len(known) - 1

    def _add_to_front(self, mean: Points) -> None:
        if not (self._front <= mean).all(1).any():
            self._front = np.vstack([self._front[(self._front < mean).any(1)], mean])

    def _together(self, found: Sequence[Any]) -> Metrics:
        """Mean metrics, with ranges where measurements differ."""
        metrics: dict[str, Any] = dict(found[0])
        read = set(map(metric_of, self._objectives))
        for name, first in found[0].items():
            values = [one.get(name) for one in found]
            if isinstance(first, int | float) and not isinstance(first, bool) and len(set(values)) > 1:
                metrics |= {name: fmean(values), "repeats": len(found)}
                if name in read:
                    metrics |= {f"{name}_min": min(values), f"{name}_max": max(values)}
        return Metrics(**metrics)


def _scale(losses: Points) -> Points:
    return np.where(losses, abs(losses), 1.0)


@cache
def _expected_range(count: int) -> float:
    """Return the mean range of normal samples in standard deviations (L. Tippett, Biometrika 17, 1925); 1 for one."""
    shares = [NormalDist().cdf(n / 20) for n in range(-160, 161)]
    return sum(1 - p**count - (1 - p) ** count for p in shares) / 20 or 1.0
