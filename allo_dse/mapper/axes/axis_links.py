"""Axes of different kernels that exchange tokens place by place, and whether they can be folded together."""

from __future__ import annotations

from typing import Literal

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from allo_dse.common.records import replace
from allo_dse.program.compiled import CompiledProgram

from ..model.disjoint_sets import DisjointSets

How = Literal["bundle", "chain"]


class AxisRule(Struct, frozen=True):
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


Place = tuple[int, int]
"""A kernel's position and one of its mesh axes."""

AxisPeers = dict[Place, set[Place]]
"""For axes whose tasks exchange tokens with the task at the same place of other kernels' axes: those axes."""


def closure(feeds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether a path of one or more streams leads from a kernel to another."""
    reach = feeds.copy()
    # Warshall 1962: after each round, paths through the kernels so far are known.
    for middle in range(len(reach)):
        reach |= np.outer(reach[:, middle], reach[middle])
    return reach


def link_axes(
    program: CompiledProgram, rules: list[list[AxisRule]], peers: AxisPeers, feeds: NDArray[np.bool_]
) -> None:
    """Number the sets of axes that have to be folded together; axes of sets that cannot be folded stay spatial."""
    for number, places in enumerate(_components(peers)):
        reason = _obstacle(program, rules, peers, feeds, places)
        chained = any(rules[kernel][axis].how == "chain" for kernel, axis in places)
        if all(rules[kernel][axis].how == "chain" for kernel, axis in places):
            continue
        for kernel, axis in places & peers.keys():
            rule = rules[kernel][axis]
            if not reason:
                rules[kernel][axis] = replace(rule, link=number, follows=chained and rule.how == "bundle")
            elif rule.how == "bundle":
                rules[kernel][axis] = spatial(rule.extent, rule.streams, reason)


def _components(peers: AxisPeers) -> list[set[Place]]:
    """Axes connected by the peer relation, in the order of their first axes."""
    sets = DisjointSets(sorted({*peers, *(other for others in peers.values() for other in others)}))
    for place, others in peers.items():
        for other in others:
            sets.join(place, other)
    return [set(found) for found in sets.groups()]


def _obstacle(
    program: CompiledProgram,
    rules: list[list[AxisRule]],
    peers: AxisPeers,
    feeds: NDArray[np.bool_],
    places: set[Place],
) -> str:
    """Why axes that exchange tokens task by task cannot be folded together; empty when they can."""
    kernels = [kernel for kernel, _ in places]
    names = ", ".join(program.kernels[kernel].name for kernel in sorted(set(kernels)))
    if len(set(kernels)) != len(kernels):
        return f"streams between {names} connect an axis with two axes of one kernel"
    if len({program.kernels[kernel].mesh[axis] for kernel, axis in places}) > 1:
        return f"streams between {names} connect axes of different lengths"
    for kernel, axis in sorted(places):
        rule = rules[kernel][axis]
        chained = rule.how == "chain" and rule.streams and rule.direction > 0
        if (kernel, axis) not in peers or not (rule.how == "bundle" or chained):
            why = rules[kernel][axis].reason or "it has a fold of its own"
            return f"streams lead to {program.kernels[kernel].name}, axis {axis}, which must stay spatial: {why}"
    chained_places = {(kernel, axis) for kernel, axis in places if rules[kernel][axis].how == "chain"}
    for kernel, axis in sorted(places - chained_places) if chained_places else ():
        for other, _ in sorted(peers[kernel, axis] - chained_places):
            return f"streams lead to {program.kernels[other].name}, which follows a chain of another kernel itself"
    inside = sorted(set(kernels))
    outside = [kernel for kernel in range(len(feeds)) if kernel not in inside]
    # A path out of the set and back, through any number of others: folded together, a node could wait for tokens that
    # its own later tasks cause.
    between = closure(feeds[np.ix_(outside, outside)]) | np.eye(len(outside), dtype=bool)
    if (feeds[np.ix_(inside, outside)] @ between @ feeds[np.ix_(outside, inside)]).any():
        return f"streams lead from {names} to another kernel and back"
    return ""
