"""Objectives to minimise or maximise, and constraints that a design must satisfy."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal, cast

from msgspec import Struct

from allo_dse.common.errors import StudyError
from allo_dse.eval.evaluator import Metrics, no_metric

from ..store.run_info import error_text, valid_text

Measure = Callable[[Metrics], Any]
_NUMBERS = (float, int)
_NO_NUMBERS = (str, bytes, bytearray, bool)


class MetricValue(Struct, frozen=True):
    """A metric as it is."""

    metric: str

    def __call__(self, metrics: Metrics) -> Any:
        return metrics[self.metric]


class Excess(Struct, frozen=True):
    """Excess of a metric over a bound, as a share of the bound."""

    metric: str
    at_most: float | None
    at_least: float | None

    def __call__(self, metrics: Metrics) -> float:
        value, bounds = _number(metrics[self.metric]), ((1, self.at_most), (-1, self.at_least))
        over = [sign * (value - bound) / (abs(bound) or 1.0) for sign, bound in bounds if bound is not None]
        return value if math.isnan(value) else max(0.0, *over)


class MetricError(ValueError):
    """An objective or constraint that could not be computed from a design's metrics."""


class Objective(Struct, frozen=True):
    """One objective: a name, a direction and how to get its value from the metrics.

    Attributes:
        threshold: worst value of interest. Worse designs are not on the front unless all are, and hypervolume is
            measured from there.
    """

    name: str
    direction: Literal["minimize", "maximize"]
    measure: Measure
    threshold: float | None = None

    def value(self, metrics: Metrics) -> float:
        """The design's value.

        Raises:
            MetricError: when the metric is missing or not a finite number.
        """
        try:
            value = _number(self.measure(metrics))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # user code may raise anything
            raise MetricError(f"objective {self.name!r}: {_words(error, metrics)}") from error
        if not math.isfinite(value):
            raise MetricError(f"objective {self.name!r} is {value}")
        return value

    @property
    def sign(self) -> float:
        """Factor that turns a value into a loss."""
        return 1.0 if self.direction == "minimize" else -1.0

    @property
    def most_loss(self) -> float:
        """The threshold as a loss; infinite without one."""
        return math.inf if self.threshold is None else self.sign * self.threshold


class Constraint(Struct, frozen=True):
    """Something a design's metrics must satisfy."""

    name: str
    measure: Measure

    def violation(self, metrics: Metrics) -> float:
        """Return the amount of the violation: 0 if satisfied, 1 for a condition that is simply false.

        A function that returns a number is satisfied up to 0; its violation is the excess.
        """
        try:
            value = self.measure(metrics)
            if isinstance(value, bool) or type(value).__name__ == "bool_":
                return 0.0 if value else 1.0
            number = _number(value)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # as above
            raise MetricError(f"constraint {self.name!r}: {_words(error, metrics)}") from error
        if math.isnan(number):
            raise MetricError(f"constraint {self.name!r} is not a number")
        return max(0.0, number)


def minimize(metric: str | Measure, *, name: str | None = None, threshold: float | None = None) -> Objective:
    """Prefer designs with a smaller value of a metric, given by name or as a function of the metrics.

    Args:
        threshold: worst value of interest, for the front and its hypervolume.
    """
    return _objective(metric, name, "minimize", threshold)


def maximize(metric: str | Measure, *, name: str | None = None, threshold: float | None = None) -> Objective:
    """Prefer designs with a larger value of a metric, given by name or as a function of the metrics.

    Args:
        threshold: worst value of interest, for the front and its hypervolume.
    """
    return _objective(metric, name, "maximize", threshold)


def as_objective(given: Objective | Measure) -> Objective:
    """An objective as it is; a function of the metrics is one to be minimised."""
    return given if isinstance(given, Objective) or not inspect.isfunction(given) else minimize(given)  # type: ignore[return-value]


def as_constraint(given: Constraint | Measure) -> Constraint:
    """A constraint as it is; a function of the metrics is a condition."""
    return given if isinstance(given, Constraint) or not inspect.isfunction(given) else require(given)  # type: ignore[return-value]


def require(
    condition: str | Measure, *, at_most: float | None = None, at_least: float | None = None, name: str | None = None
) -> Constraint:
    """A condition on the metrics: `require(lambda m: m.dram_bytes < 64e6)` or `require("dram_bytes", at_most=64e6)`.

    A named metric with a bound tells the search *how far* a design is from satisfying it, which guides it better than
    true or false.
    """
    if callable(condition):
        if at_most is not None or at_least is not None:
            raise StudyError("require(): give a metric's name together with at_most= or at_least=, or a function alone")
        return Constraint(name or _lambda_text(condition) or "constraint", condition)
    if at_most is None and at_least is None:
        raise StudyError(f"require({condition!r}): needs at_most= or at_least=")
    for bound in (at_most, at_least):
        if bound is not None and (type(bound) not in _NUMBERS or math.isnan(bound)):
            raise StudyError(f"require({condition!r}): the bound {bound!r} is no number")
    bounds = [f"<= {at_most:g}"] if at_most is not None else []
    bounds += [f">= {at_least:g}"] if at_least is not None else []
    return Constraint(name or f"{condition} {' and '.join(bounds)}", Excess(condition, at_most, at_least))


def _number(value: Any) -> float:
    """A value as the number that it is: texts of digits and truth values are none.

    Raises:
        TypeError: for anything else.
    """
    if type(value) in _NUMBERS:  # nearly always
        return float(value)
    if not isinstance(value, _NO_NUMBERS) and type(value).__name__ != "bool_":
        with suppress(TypeError, ValueError):
            return float(value)
    raise TypeError(f"{valid_text(repr(value), 60)} is not a number")


def _words(error: BaseException, metrics: Metrics) -> str:
    """Describe an error; for a metric that does not exist, suggest the name that may be meant."""
    if isinstance(error, KeyError) and error.args and error.args[0] not in metrics:
        return no_metric(str(error.args[0]), metrics)
    text = error_text(error)
    return text.removeprefix("AttributeError: ") if "no metric" in text else text


def _objective(
    metric: str | Measure, name: str | None, direction: Literal["minimize", "maximize"], threshold: float | None
) -> Objective:
    if threshold is not None and (type(threshold) not in _NUMBERS or not math.isfinite(threshold)):
        raise StudyError(f"{direction}({metric!r}): the threshold {threshold!r} is no number")
    if callable(metric):
        text = name or _lambda_text(metric)
        if not text:
            raise StudyError(f"{direction}(function): needs name=", hint=f'for example {direction}(f, name="cores")')
        return Objective(text, direction, metric, threshold)
    if not isinstance(metric, str):
        raise StudyError(f"{direction}({metric!r}): expected a metric's name or a function of the metrics")
    return Objective(name or metric, direction, MetricValue(metric), threshold)


def _lambda_text(function: Callable[..., Any]) -> str:
    """The body of a lambda as its author wrote it; the function's name for others; empty when unknown."""
    name: str = getattr(function, "__name__", "")
    if name != "<lambda>":
        return name
    try:
        lines = [line.encode() for line in inspect.findsource(function)[0]]
        places = [place for place in function.__code__.co_positions() if None not in place]
        # The first instruction has an empty place before the body.
        spans = [((a, c), (b, d)) for a, b, c, d in cast(list[tuple[int, ...]], places) if (a, c) != (b, d)]
        (first, start), (last, end) = min(begin for begin, _ in spans), max(end for _, end in spans)
        lines[last - 1] = lines[last - 1][:end]
        lines[first - 1] = lines[first - 1][start:]
    except (OSError, TypeError, ValueError, IndexError):
        return ""
    return " ".join(b"".join(lines[first - 1 : last]).decode().split())
