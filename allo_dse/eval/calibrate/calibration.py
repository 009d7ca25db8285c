"""Calibration: fits a device's numbers to measured designs, and reports how well each number is known.

found = calibrate([Measurement(design, latency_us=412.0), ...])
found.device, found.parameters, found.cross_validated
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import comb

import numpy as np

from allo_dse.common.errors import DeviceError
from allo_dse.common.records import Frozen, JsonObject
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.device.device import Device
from allo_dse.space.design import Design

from ..backend import backend_of
from ..evaluator import Metrics
from ..parameters import Parameter, Tunable, with_values
from .robust_fit import FEW, FOLDS, LEAST_PERCENT, Fit, Problem, Vector, error_of, error_quantiles, fit, grow, moving

FEWEST = 4
SURPRISING = 0.1
"""Probability of the errors outside the 90 % ranges, or of one sign; below it a few measurements are fitted."""
FARTHEST = float(np.log(1000))
UNEXPLAINED = 4.0  # scales from zero
UNEXPLAINED_AT_LEAST = 0.1


@dataclass(frozen=True)
class Measurement:
    """The measured latency of a design.

    Attributes:
        label: its origin, for people: "line 12: 9f3c2a".
    """

    design: Design
    latency_us: float
    label: str = ""


class Judged(Frozen):
    """A measurement with the model's predictions: by the original device, by the fitted one, and by a fit without it.

    Attributes:
        unexplained: whether it is too far from the fitted model to be noise.
    """

    measurement: Measurement
    before_us: float
    after_us: float
    held_out_us: float
    unexplained: bool

    def to_dict(self) -> JsonObject:
        """Return plain data for JSON."""
        return {
            "label": self.measurement.label,
            "measured_us": self.measurement.latency_us,
            "before_us": self.before_us,
            "after_us": self.after_us,
            "held_out_us": self.held_out_us,
            "unexplained": self.unexplained,
        }


class FittedParameter(Frozen):
    """A number of the device before and after the fit.

    Attributes:
        deviation: its standard deviation; None if it was left alone.
        alike: numbers it cannot be told from.
        hidden: whether a change by a factor of five moves a prediction. If not, no measurement depends on it.
    """

    name: str
    before: float
    after: float
    deviation: float | None
    alike: tuple[str, ...] = ()
    hidden: bool = False

    @property
    def words(self) -> str:
        """The reason why the parameter was left alone; empty if it was fitted."""
        if self.deviation is not None:
            return ""
        if self.alike:
            return f"left alone: these measurements do not tell it from {', '.join(self.alike)}"
        if self.hidden:
            return "left alone: other numbers explain these measurements better"
        return "left alone: no measurement depends on it"

    def to_dict(self) -> JsonObject:
        """Return plain data for JSON."""
        return {
            "name": self.name,
            "before": self.before,
            "after": self.after,
            "standard_deviation": self.deviation,
            "alike": list(self.alike),
        }


class Calibration(Frozen, dict=True):
    """The result of a fit.

    Attributes:
        device: the device with the fitted numbers, unchanged when nothing was learned.
        named: names of the device and its board.
        learned: whether the fit predicts held-out designs better than the original device.
        scale: standard deviation of the logarithm of predicted over measured, without outliers.
        lacking: the property of the designs that large errors go with, which no number of the device explains.
        expected: why the numbers of the device stay, where few measurements are as far off as it states.
    """

    device: Device
    named: dict[str, str]
    parameters: tuple[FittedParameter, ...]
    judged: tuple[Judged, ...]
    learned: bool
    scale: float
    lacking: str = ""
    expected: str = ""

    @property
    def unexplained(self) -> list[Judged]:
        """Measurements that the fitted model does not explain."""
        return [one for one in self.judged if one.unexplained]

    @cached_property
    def errors(self) -> dict[str, tuple[float, float]]:
        """Median and 90th percentile of the absolute relative error: before, after, and by cross-validation."""
        measured = [one.measurement.latency_us for one in self.judged]
        kinds = {"before": "before_us", "after": "after_us", "cross_validated": "held_out_us"}
        predicted = {kind: [getattr(one, name) for one in self.judged] for kind, name in kinds.items()}
        return {kind: error_quantiles(own, measured) for kind, own in predicted.items()}

    def to_dict(self) -> JsonObject:
        """Return plain data for JSON."""
        return {
            **self.named,
            "learned": self.learned,
            "expected": self.expected,
            "lacking": self.lacking,
            "parameters": [parameter.to_dict() for parameter in self.parameters],
            "measurements": [one.to_dict() for one in self.judged],
            "errors": {kind: {"median": a, "quantile_90": b} for kind, (a, b) in self.errors.items()},
        }


def predicted(design: Design, device: Device) -> Metrics:
    """Return the metrics of a design on a device, by the device's own evaluator."""
    return backend_of(device).evaluator(device).evaluate(design.on(device))


def predicted_us(design: Design, device: Device) -> float:
    """Return the latency of a design on a device, in microseconds, by the device's own evaluator."""
    return float(predicted(design, device).latency_us)


def calibrate(measurements: Sequence[Measurement]) -> Calibration:
    """Fit the numbers of the measurements' device to them.

    Raises:
        DeviceError: for measurements of too few designs, or of different boards, or of a device without numbers to
            fit.
    """
    devices = _devices(measurements)
    tunable = tunable_of(devices[0])
    parameters = tunable.parameters((m.design for m in measurements), devices[0])
    measured = np.log([m.latency_us for m in measurements])

    def residuals_at(at: Vector) -> Vector:
        values = {p: p.value(float(z)) for p, z in zip(parameters, at, strict=True)}
        changed = {device: with_values(device, values) for device in dict.fromkeys(devices)}
        pairs = zip(measurements, devices, strict=True)
        return np.log([predicted_us(m.design, changed[device]) for m, device in pairs]) - measured

    start = np.array([p.coordinate(p.of(devices[0])) for p in parameters])
    low, high = np.array([p.limits for p in parameters]).T
    low, high = np.maximum(low, start - FARTHEST), np.minimum(high, start + FARTHEST)
    whole = frozenset(i for i, p in enumerate(parameters) if p.scale.whole)
    problem = Problem(residuals_at, low, high, whole).remembering()
    before, folds = problem.residuals_at(start), _folds(measurements)
    expected = _expected(measurements, before) if len(measurements) <= FEW else ""
    found = Fit.unchanged(problem, start, before) if expected else grow(problem, start, folds)
    if len(measurements) > FEW:
        found = min(found, fit(problem, start), key=lambda one: one.error(folds))
    held_out, learned = found.held_out(folds), found.error(folds) < error_of(before) - LEAST_PERCENT / 100
    moved = {p: p.value(float(found.at[i])) for i, p in enumerate(parameters) if learned and i in found.selection.free}
    return Calibration(
        with_values(devices[0], moved),
        tunable.named(devices[0]),
        _described(parameters, devices[0], found, moving(problem, found.at)),
        _judged(measurements, before, found, held_out),
        learned,
        found.scale,
        "" if expected else _lacking(measurements, found.residuals if learned else before, learned),
        expected,
    )


def _expected(measurements: Sequence[Measurement], residuals: Vector) -> str:
    """Return why the numbers stay: errors within the stated ranges are what others show that the numbers rest on."""
    ranges = [predicted(m.design, m.design.device).get("latency_range") or {} for m in measurements]
    percent = np.array([own["percent"] if own.get("measurements") else 0.0 for own in ranges])
    outside, count = int(np.count_nonzero(100 * np.abs(np.exp(residuals) - 1) > percent)), len(ranges)
    fewer = int(min(np.count_nonzero(residuals > 0), np.count_nonzero(residuals < 0)))
    one_sided = 2 * sum(_binomial(count, k, 0.5) for k in range(fewer + 1))
    chance = min(one_sided, sum(_binomial(count, k, 0.1) for k in range(outside, count + 1)))
    if not percent.all() or chance < SURPRISING:
        return ""
    least, most = (f"{end:g}" for end in (percent.min(), percent.max()))
    stated = least if least == most else f"{least} to {most}"
    return (
        f"{count - outside} of {count} measurements are within the range of +-{stated} % that the device states, "
        f"which holds for nine of ten, and on both sides: its numbers rest on more. Measure more than {FEW} designs to "
        "fit them"
    )


def _binomial(count: int, hits: int, share: float) -> float:
    return comb(count, hits) * share**hits * (1 - share) ** (count - hits)


def _lacking(measurements: Sequence[Measurement], residuals: Vector, learned: bool) -> str:
    """Return the property of the designs that goes with the errors most, which no number of the device explains."""
    few = len(measurements) <= FEW and not learned
    if float(np.median(np.abs(residuals))) < UNEXPLAINED_AT_LEAST and not few:
        return ""
    designs = [m.design for m in measurements]
    properties = {
        "cores": [d.fold.node_count for d in designs],
        "tasks": [d.program.task_count for d in designs],
        "bytes of tensors": [sum(t.bytes for t in d.program.tensors) for d in designs],
        "measured time": [m.latency_us for m in measurements],
    }
    related = dict.fromkeys(properties, 0.0)
    for name, own in properties.items():
        values = np.array(own, float)
        if np.ptp(values):
            ranks = [np.argsort(np.argsort(one)) for one in (values, residuals)]
            related[name] = float(np.corrcoef(ranks[0], ranks[1])[0, 1])
    name = max(related, key=lambda one: abs(related[one]))
    return f"errors {'grow' if related[name] > 0 else 'fall'} with the {name} (rank correlation {related[name]:+.2f})"


def tunable_of(device: Device) -> Tunable:
    """Return the numbers of a device that can be fitted.

    Raises:
        DeviceError: if there are none.
    """
    found = backend_of(device).tunable(device)
    if found is None:
        raise DeviceError(f"{device.name} has no numbers to fit to measured latencies")
    return found


def _devices(measurements: Sequence[Measurement]) -> list[Device]:
    devices = [m.design.device for m in measurements]
    for measurement, device in zip(measurements, devices, strict=True):
        if _settings(device) != _settings(devices[0]):
            raise DeviceError(
                f"{measurement.label or measurement.design.key}: measured on {_words(device)}, "
                f"the first one on {_words(devices[0])}",
                hint="calibrate boards one by one",
            )
    designs = len({m.design.key for m in measurements})
    if designs < FEWEST:
        raise DeviceError(
            f"measurements of {designs} design{'s' * (designs != 1)} are too few to fit a device to",
            hint=f"measure {FEWEST} designs at least, which differ in size and in tiles",
        )
    return devices


def _settings(device: Device) -> object:
    return type(device), tunable_of(device).settings(device)


def _words(device: Device) -> str:
    name, *others = tunable_of(device).named(device).items()
    return ", ".join([name[1], *(f"{kind} {own!r}" for kind, own in others)])


def _described(
    parameters: Sequence[Parameter], device: Device, found: Fit, seen: Sequence[int]
) -> tuple[FittedParameter, ...]:
    deviations = dict(zip(found.selection.free, found.deviations, strict=True))
    described = []
    for i, parameter in enumerate(parameters):
        before = parameter.of(device)
        alike = tuple(str(parameters[j]) for j in found.selection.alike.get(i, ()))
        if i in deviations:
            after = parameter.value(float(found.at[i]))
            deviation = parameter.spread(after, float(deviations[i]))
            described.append(FittedParameter(str(parameter), before, after, deviation))
        else:
            described.append(FittedParameter(str(parameter), before, before, None, alike, i in seen))
    return tuple(described)


def _folds(measurements: Sequence[Measurement]) -> IntArray:
    """Return the cross-validation fold of each measurement; all measurements of a design share one."""
    distinct = {key: i for i, key in enumerate(dict.fromkeys(m.design.key for m in measurements))}
    return np.array([distinct[m.design.key] % FOLDS for m in measurements])


def _judged(measurements: Sequence[Measurement], before: Vector, found: Fit, held_out: Vector) -> tuple[Judged, ...]:
    limit = max(UNEXPLAINED * found.scale, UNEXPLAINED_AT_LEAST)
    judged = []
    for m, *errors in zip(measurements, before, found.residuals, held_out, strict=True):
        before_us, after_us, held_out_us = (m.latency_us * float(np.exp(error)) for error in errors)
        judged.append(Judged(m, before_us, after_us, held_out_us, bool(abs(errors[1]) > limit)))
    return tuple(judged)
