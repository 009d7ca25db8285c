"""Routes and channels of a placement, the quick way."""

from __future__ import annotations

from collections import Counter

from .dma_channels import nets_of, numbered
from .placed_design import PlacedDesign
from .problem import Placement, Problem
from .router import route


def routed(problem: Problem, placement: Placement) -> PlacedDesign | None:
    """Routes and channels for a placement, when its memory and shim tiles hold and the quick router finds routes."""
    if not _columns_hold(problem, placement):
        return None
    trees = route(nets_of(problem, placement), problem.limits.links)
    return None if trees is None else numbered(problem, placement, trees)


def _columns_hold(problem: Problem, placement: Placement) -> bool:
    """Return whether the shim channels, bytes and locks of every column suffice; numbering channels checks the
    banks."""
    limits = problem.limits
    transfers = list(zip(problem.transfers, placement.columns, strict=True))
    used = Counter((column, t.direction) for t, column in transfers)
    if any(n > (limits.shim.dma_out if d == "in" else limits.shim.dma_in) for (_, d), n in used.items()):
        return False
    for column in set(placement.columns):
        own = [t for t, c in transfers if c == column]
        locks = sum(t.locks for t in own)
        staged = sum(t.staged_bytes for t in own)
        if len(own) > limits.shim.descriptors or locks > limits.memory.locks or staged > limits.memory.bytes:
            return False
    return True
