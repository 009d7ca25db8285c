"""Streams that do the same at the same times, of which replay takes one for all.

An array that is cut into banks becomes as many streams between the same two processes, and an unrolled loop uses all of
them in one cycle. Streams are *alike* if at both ends their n-th operations are due in the same cycle and follow each
other with no other operation in between, in the same order every time. With equal depths all times of one are those of
the other (by induction over the tokens: the first of them waits as long as any would, and the process is then as late
for the others), and only the first of them ever waits.
"""

from __future__ import annotations

from collections import OrderedDict
from functools import cached_property

import numpy as np
from msgspec import Struct

from allo_dse.common.records import replace

from ..trace.data import IntArray
from .replay_plan import Plan, ends_of

WORTH_MERGING = 1.5
"""A plan is merged where that leaves this many times fewer operations: merging reads all of them."""
KEPT = 8
"""Merged plans that are kept for other depths of one trace."""


class Merged(Struct, frozen=True, eq=False):
    """A plan with one stream for several.

    Attributes:
        plan: the operations of those streams that stand for others or for themselves alone.
        leader: per stream the one that stands for it.
        operation: per operation of the plan, and for their end, which it is of all operations.
    """

    plan: Plan
    leader: IntArray
    operation: IntArray


class AlikeStreams:
    """The plan of a trace, and what is left of it where depths are equal."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._kept: OrderedDict[bytes, Merged] = OrderedDict()

    @cached_property
    def _order(self) -> tuple[IntArray, IntArray]:
        """Streams so that those alike follow each other; and for each whether it is alike to the one before."""
        plan = self.plan
        get, put = plan.operation_of
        found = []
        number: dict[object, int] = {}
        for s in range(plan.streams):
            begin = plan.offset[s]
            gets, puts = get[begin : begin + plan.gets[s]], put[begin : begin + plan.puts[s]]
            shape: object = s
            first = -1, -1
            if len(gets) and len(puts):
                first = int(puts[0]), int(gets[0])
                ends = plan.producer[s], plan.consumer[s], plan.latency[s]
                shape = *ends, *(array.tobytes() for own in (gets, puts) for array in (own - own[0], plan.due[own]))
            found.append((number.setdefault(shape, len(number)), *first, s))
        # Those of one shape in the order of their first operations: alike are those that are one further at both ends.
        ordered = np.array(sorted(found), np.int64).reshape(-1, 4)
        alike = np.zeros(plan.streams, bool)
        alike[1:] = (np.diff(ordered[:, :3], axis=0) == (0, 1, 1)).all(axis=1)
        return ordered[:, 3], alike

    def at(self, depths: IntArray) -> Merged:
        """Return the plan to replay, with one stream for several alike ones.

        Args:
            depths: clipped, int64[streams] or several such vectors, for all of which it holds.
        """
        order, alike = self._order
        ordered = depths[..., order]
        equal = ordered[..., 1:] == ordered[..., :-1]
        same = alike.copy()
        same[1:] &= equal if equal.ndim == 1 else equal.all(axis=0)
        key = same.tobytes()
        merged = self._kept.get(key)
        if merged is None:  # two concurrent threads may both compute it
            merged = self._kept[key] = self._merged(same)
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        return merged

    @cached_property
    def _unmerged(self) -> Merged:
        return Merged(self.plan, np.arange(self.plan.streams), np.arange(len(self.plan.port) + 1))

    def _merged(self, same: IntArray) -> Merged:
        plan, (order, _) = self.plan, self._order
        leader = np.arange(plan.streams)
        # The last stream before that is not alike to its own predecessor leads.
        leader[order] = order[np.maximum.accumulate(np.where(same, 0, np.arange(len(order))))]
        leads = leader == np.arange(plan.streams)
        if int((plan.puts + plan.gets)[leads].sum()) * WORTH_MERGING >= len(plan.port):
            return self._unmerged
        kept = np.flatnonzero(np.tile(leads, 2)[plan.port])
        tokens = np.where(leads, np.diff(plan.offset), 0)
        offset = ends_of(tokens)
        port = plan.port[kept]
        moved = (plan.offset - offset)[:-1]
        return Merged(
            replace(
                plan,
                first=np.searchsorted(kept, plan.first),
                due=plan.due[kept],
                port=port,
                slot=(plan.slot[kept] - moved[port % plan.streams]).astype(np.uint32),
                event=plan.event[kept],
                offset=offset,
                puts=np.where(leads, plan.puts, 0),
                gets=np.where(leads, plan.gets, 0),
            ),
            leader,
            np.append(kept, len(plan.port)),
        )
