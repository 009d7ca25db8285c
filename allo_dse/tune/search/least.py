"""What a design's objectives cannot be better than, from bounds of its metrics."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from allo_dse.common.errors import AlloDseError
from allo_dse.eval.bounding import Bounding, Bounds, RegionBounding

from .objectives import Constraint, Measure, Objective

if TYPE_CHECKING:
    from allo_dse.space.design import Design
    from allo_dse.space.regions import Region

Losses = tuple[float, ...]


class _Probe(Mapping[str, Any]):
    """Metrics of which each is an object that can only be handed on."""

    def __init__(self) -> None:
        self.asked: dict[int, str] = {}
        self._given: list[object] = []

    def __getitem__(self, name: str) -> Any:
        class Value:
            __slots__ = ()
            __hash__ = None  # type: ignore[assignment]

            def __bool__(self) -> bool:
                raise TypeError("it is not known yet")

            def __eq__(self, other: object) -> bool:
                raise TypeError("it is not known yet")

        value = Value()
        self._given.append(value)
        self.asked[id(value)] = name
        return value

    def __getattr__(self, name: str) -> Any:
        return self[name]

    def __contains__(self, name: object) -> bool:
        raise TypeError("they are not known yet")

    def __iter__(self) -> Iterator[str]:
        raise TypeError("they are not known yet")

    def __len__(self) -> int:
        raise TypeError("they are not known yet")


def metric_of(measure: Measure) -> str | None:
    """The metric that an objective is as it stands, such as that of `lambda m: m.pe_count`; None where it computes."""
    probe = _Probe()
    try:
        return probe.asked.get(id(measure(probe)))  # type: ignore[arg-type]
    except Exception:  # whatever a function raises that wants to compute
        return None


class LeastLosses(Struct, frozen=True, dict=True):
    """Lower bounds of the losses of designs that have not been evaluated.

    Args:
        bounding: None when nothing is known of an evaluator's metrics.
    """

    objectives: Sequence[Objective]
    constraints: Sequence[Constraint] = ()
    bounding: Bounding | None = None

    @cached_property
    def _metrics(self) -> list[str | None]:
        return [metric_of(objective.measure) for objective in self.objectives]

    @cached_property
    def unbounded(self) -> list[str]:
        """Objectives of which nothing is known before a design is evaluated."""
        known = self.bounding.metrics if self.bounding else frozenset()
        return [o.name for o, metric in zip(self.objectives, self._metrics, strict=True) if metric not in known]

    @property
    def levels(self) -> int:
        """How many bounds there are, each tighter than the one before, and dearer."""
        return self.bounding.levels if self.bounding else 0

    def __call__(self, design: Design, level: int) -> Losses | None:
        """The least that each objective's loss can be; None for a design that cannot satisfy the constraints."""
        return self._losses(None if self.bounding is None else partial(self.bounding, design, level))

    @property
    def knows_regions(self) -> bool:
        """Whether something is known of regions of a space."""
        return hasattr(self.bounding, "of_region")

    def of_region(self, region: Region) -> Losses | None:
        """The least that each objective's loss can be in a region; None where none of its designs can satisfy the
        constraints."""
        bounding = cast(RegionBounding, self.bounding)
        return self._losses(partial(bounding.of_region, region.draft, region.nodes, region.layout))

    def _losses(self, bound: Callable[[], Bounds] | None) -> Losses | None:
        if bound is None:
            return self.nothing
        try:
            bounds = bound()
        except AlloDseError:  # its evaluation says why
            return self.nothing
        if any(_is_violated(constraint, bounds) for constraint in self.constraints):
            return None
        return tuple(_least(o, m, bounds) for o, m in zip(self.objectives, self._metrics, strict=True))

    @property
    def nothing(self) -> Losses:
        """What is known of a design of which nothing is known."""
        return (-math.inf,) * len(self.objectives)


def _least(objective: Objective, metric: str | None, bounds: Bounds) -> float:
    if metric is None or metric not in bounds:
        return -math.inf
    low, high = bounds[metric]
    return low if objective.direction == "minimize" else -high


def _is_violated(constraint: Constraint, bounds: Bounds) -> bool:
    """Whether a bound on a metric is exceeded whatever the evaluation says."""
    if constraint.metric is None or constraint.metric not in bounds:
        return False
    low, high = bounds[constraint.metric]
    too_much = constraint.at_most is not None and low > constraint.at_most
    return too_much or (constraint.at_least is not None and high < constraint.at_least)
