"""Lower bounds of a design's objectives, derived from bounds of its metrics."""

from __future__ import annotations

import dis
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from allo_dse.common.errors import AlloDseError
from allo_dse.eval.evaluator import Bounding, Bounds, Metrics, RegionBounding, no_metric

from .objectives import Constraint, Excess, MetricValue, Objective

if TYPE_CHECKING:
    from allo_dse.space.design import Design
    from allo_dse.space.regions import Region

Losses = tuple[float, ...]
ROUNDING = 1e-9  # relative; a metric and its bound add the same numbers in different orders


def metric_of(objective: Objective) -> str | None:
    """Return the metric that an objective merely reads, as in `lambda m: m.pe_count`; None if it computes.

    Nothing is executed: the function's instructions must be those of reading one entry of its only argument. Anything
    else (a call, a condition, an exception handler, an outside name) is not known before an evaluation.
    """
    if type(objective) is not Objective:
        return None
    measure = objective.measure
    if type(measure) is MetricValue:
        return measure.metric
    if type(measure) is not FunctionType:
        return None
    does, names = _instructions(measure)
    if does not in _READS or measure.__code__.co_argcount != 1 or len(names) != 1:
        return None
    return None if names[0].startswith("_") or hasattr(Metrics, names[0]) else names[0]


def _instructions(measure: FunctionType) -> tuple[list[str], list[str]]:
    """Return a function's instructions, and the names in them but its first argument's."""
    code = measure.__code__
    does = [one for one in dis.get_instructions(code) if one.opname not in ("RESUME", "NOP")]
    values = (one.argval for one in does if isinstance(one.argval, str))
    return [one.opname for one in does], [one for one in values if one != code.co_varnames[0]]


_READS = [_instructions(cast(FunctionType, read))[0] for read in (lambda m: m.x, lambda m: m["x"])]


class LowerBounds(Struct, frozen=True, dict=True):
    """Lower bounds of the losses of designs that have not been evaluated.

    Args:
        bounding: None when nothing is known of an evaluator's metrics.
    """

    objectives: Sequence[Objective]
    constraints: Sequence[Constraint] = ()
    bounding: Bounding | None = None

    @cached_property
    def _metrics(self) -> list[str | None]:
        return [metric_of(objective) for objective in self.objectives]

    @cached_property
    def unbounded(self) -> list[str]:
        """Objectives without bounds before a design is evaluated."""
        known = self.bounding.metrics if self.bounding else frozenset()
        return [o.name for o, metric in zip(self.objectives, self._metrics, strict=True) if metric not in known]

    @property
    def levels(self) -> int:
        """Number of bounds per design; each is tighter and more expensive than the one before."""
        return self.bounding.levels if self.bounding else 0

    def __call__(self, design: Design, level: int) -> Losses | None:
        """Return lower bounds of the losses; None for a design that cannot satisfy the constraints."""
        return self._losses(None if self.bounding is None else partial(self.bounding, design, level))

    @property
    def knows_regions(self) -> bool:
        """True if there are bounds for regions of a space."""
        return hasattr(self.bounding, "of_region")

    def of_region(self, region: Region) -> Losses | None:
        """Return lower bounds of the losses in a region; None if no design in it can satisfy the constraints."""
        return self._losses(self._region_bounds(region))

    def _region_bounds(self, region: Region) -> Callable[[], Bounds]:
        bounding = cast(RegionBounding, self.bounding)
        return partial(bounding.of_region, region.draft, region.nodes, region.layout)

    def _losses(self, bound: Callable[[], Bounds] | None) -> Losses | None:
        if bound is None:
            return self.nothing
        try:
            bounds = bound()
        except AlloDseError:  # its evaluation reports the error
            return self.nothing
        if any(_is_violated(constraint, bounds) for constraint in self.constraints):
            return None
        return tuple(_lower_bound(o, m, bounds) for o, m in zip(self.objectives, self._metrics, strict=True))

    def contradiction(
        self, design: Design, metrics: Mapping[str, Any], regions: Iterable[Region] = (), *, levels: int | None = None
    ) -> str:
        """Describe how a measurement contradicts a bound of the design, or of its regions; empty if it does not.

        Args:
            levels: number of levels to compare with; all by default.
        """
        assert self.bounding is not None
        count = self.levels if levels is None else levels
        ask: list[Callable[[], Bounds]] = [partial(self.bounding, design, level) for level in range(count)]
        if self.knows_regions:
            ask += map(self._region_bounds, regions)
        for bounds_of in ask:
            try:
                bounds = bounds_of()
            except AlloDseError:
                continue
            for metric, (low, high) in bounds.items():
                if metric not in metrics:
                    if metric in self._used:
                        return no_metric(metric, metrics)
                    continue
                found = metrics[metric]
                if not isinstance(found, int | float) or not low - _slack(low) <= found <= high + _slack(high):
                    return f"{metric} is {found}, and was bounded by {low:,.6g} and {high:,.6g}"
        return ""

    @cached_property
    def _used(self) -> set[str | None]:
        """Metrics that decide about designs."""
        bounded = (c.measure.metric for c in self.constraints if isinstance(c.measure, Excess))
        return {*self._metrics, *bounded}

    @property
    def nothing(self) -> Losses:
        """Bounds of a design about which nothing is known."""
        return (-math.inf,) * len(self.objectives)


def _slack(bound: float) -> float:
    """Rounding of a bound."""
    return ROUNDING * abs(bound) if math.isfinite(bound) else 0.0


def _lower_bound(objective: Objective, metric: str | None, bounds: Bounds) -> float:
    if metric is None or metric not in bounds:
        return -math.inf
    low, high = bounds[metric]
    return low if objective.direction == "minimize" else -high


def _is_violated(constraint: Constraint, bounds: Bounds) -> bool:
    """Return whether the bounds of a metric already violate a constraint."""
    of = constraint.measure
    if type(constraint) is not Constraint or type(of) is not Excess or of.metric not in bounds:
        return False
    low, high = bounds[of.metric]
    return (of.at_most is not None and low > of.at_most) or (of.at_least is not None and high < of.at_least)
