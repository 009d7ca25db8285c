"""What may be done with one mesh axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

How = Literal["bundle", "chain"]


@dataclass(frozen=True)
class AxisRule:
    """What may be done with one mesh axis.

    Attributes:
        extent: tasks along the axis.
        how: the fold that is legal along it, or None when it must stay spatial.
        direction: +1 when streams run towards larger indices (or nowhere), -1 when towards smaller ones: the order in
            which a chain executes its tasks.
        streams: whether streams connect tasks at different places of the axis.
        partial: whether a chain may be cut into several nodes.
        reason: why the axis must stay spatial; empty when it need not.
        link: axes of different kernels with the same number are folded together, because task by task they exchange
            tokens with each other; None for an axis that is folded by itself.
        follows: whether a linked axis of another kernel is chained: then this one is bundled in blocks, innermost.
    """

    extent: int
    how: How | None
    direction: int = 1
    streams: bool = False
    partial: bool = True
    reason: str = ""
    link: int | None = None
    follows: bool = False


def spatial(extent: int, streams: bool, reason: str) -> AxisRule:
    """The rule of an axis that must stay spatial."""
    return AxisRule(extent, None, streams=streams, reason=reason)
