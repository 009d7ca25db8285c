"""What can be said of a design's metrics before it is evaluated, for searches that prove that nothing better exists."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from allo_dse.mapper.search.fold_space import Layout
    from allo_dse.space.design import Design
    from allo_dse.space.draft import Draft

Interval = tuple[float, float]
"""The least and the most that a metric can be."""

Bounds = Mapping[str, Interval]
"""By metric; nothing is known of those that are missing."""


class Bounding(Protocol):
    """Bounds metrics of designs that have not been evaluated.

    Attributes:
        levels: how many ways there are, each tighter than the one before, and dearer.
        metrics: those that it says something of.
    """

    levels: int
    metrics: frozenset[str]

    def __call__(self, design: Design, level: int) -> Bounds:
        """Bounds that hold for what the evaluator will say of a design.

        Raises:
            AlloDseError: where a design is such that nothing can be said of it.
        """
        ...


class RegionBounding(Bounding, Protocol):
    """Bounds metrics of many designs at once, too."""

    def of_region(self, draft: Draft, nodes: int, layout: Layout | None) -> Bounds:
        """Bounds that hold for every design that a draft without a fold becomes, folded onto so many nodes.

        Args:
            layout: how many of them there are along each axis; None for any.
        """
        ...


def bounding_of(evaluator: Any) -> Bounding | None:
    """What bounds an evaluator's metrics: what its member `bounding()` returns; None where it has none."""
    make = getattr(evaluator, "bounding", None)
    found: Bounding | None = make() if callable(make) else None
    return found
