"""What can be said of a design's metrics before it is evaluated, for searches that prove that nothing better exists."""

from __future__ import annotations

from collections.abc import Mapping
from types import FunctionType
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
    """Bounds that an evaluator states of itself: what its member `bounding()` returns; None where it states none.

    Bounds describe what `evaluate` returns, so they hold for the class that states both and for nothing derived from
    it. A subclass, a wrapper, an instance whose members were replaced and a class whose functions were replaced after
    it was written all have none, unless their own class defines `bounding`.
    """
    kind = type(evaluator)
    stated = vars(kind)
    own = getattr(evaluator, "__dict__", {})
    if "bounding" not in stated or any(callable(getattr(kind, name, None)) for name in own):
        return None
    if any(_is_replaced(kind, name, member) for name, member in stated.items()):
        return None
    found: Bounding | None = evaluator.bounding()
    return found


def _is_replaced(kind: type, name: str, member: Any) -> bool:
    """Whether a function of a class is not the one that the body of the class defines. Its code keeps the name that it
    was compiled with, also where a decorator copies names."""
    if name == "bounding" or (name.startswith("__") and name != "__init__"):
        return False
    return isinstance(member, FunctionType) and (
        member.__code__.co_qualname != f"{kind.__qualname__}.{name}" or member.__module__ != kind.__module__
    )
