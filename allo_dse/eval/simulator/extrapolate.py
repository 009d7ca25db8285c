"""Exact times of long regular networks: what repeats is executed until that shows, the rest is arithmetic.

A network of table processes is a machine whose state is where each process stands in its table, how many tokens each
stream holds, and times: clocks, when tokens were put, when slots were freed, when servers are free. What it does next
depends on differences of times only, by maxima and sums. So if two states are equal but for a common shift of all
times, and for counters of repeats that have gone on, what lies between them happens again and again, each time later
by that shift, until one of these repeats ends. The run is moved on by as many of these periods as all the repeats
have left, and continues from there: through the end of the repetition, into the next loop, or into the next round of
an outer loop, whose rounds are compared in the same way.

The execution order of the run loop does not matter: states are taken whenever a certain node, the anchor, has had a
turn, and what follows from a state does not depend on who runs first. Networks that do not come to repeat themselves
are executed in full, at little extra cost: the looks at their state become rare.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from ...ir.layout import Header
from .arena import Arena
from .network import IntArray, Network, Processes
from .periods import Period, State, find_period, jump
from .regions import Part, parts_of
from .snapshots import snapshot

if TYPE_CHECKING:
    pass

KEPT_BYTES = 1 << 26
"""Memory for states that later ones are compared with."""
PATIENCE = 32
"""Looks without success after which they become half as frequent."""


def can_repeat(network: Network) -> bool:
    """Whether a network consists of table processes."""
    return bool(network.groups) and all(isinstance(g, Processes) for g in network.groups) and bool(network.rows.size)


def without_logs(network: Network) -> Network:
    """The same network; its processes note no clocks, of which extrapolation would leave some out."""
    groups = [replace(g, log_limit=np.zeros_like(g.log_limit)) for g in network.groups if isinstance(g, Processes)]
    return replace(network, groups=tuple(groups))


class Extrapolator:
    """Looks at a run now and then, and moves it on by whole periods.

    Attributes:
        skipped: stream operations that were not executed. jumps: how often the run was moved on.
    """

    def __init__(self, network: Network, arena: Arena) -> None:
        self._arena = arena
        self._searches = [_Search(part) for part in parts_of(network, arena) if part.longest > 1]
        self._turn = 0
        self._away = True
        self._limit = 20_000 + 64 * network.node_count
        self.skipped = 0
        self.jumps = 0

    def first_budget(self) -> int:
        """Turns before the first look."""
        return self._arena.nodes.shape[0]

    def look(self, status: int) -> int:
        """Called when compiled code has returned: 2 after a turn of the anchor, else 1. Returns the next budget."""
        header = self._arena.header
        self._searches = [s for s in self._searches if not s.part.is_over(self._arena)]
        if not self._searches:
            header[Header.ANCHOR] = 0
            return 1 << 30
        search = self._searches[self._turn % len(self._searches)]
        if self._away:
            return self._wait_for(search.anchor_of(self._arena, anew=search.anchor is None))
        if status != 2:
            return self._wait_for(search.anchor_of(self._arena, anew=True))
        skipped = search.look(self._arena)
        if skipped:
            self.jumps += 1
            self.skipped += skipped
        self._turn += 1
        following = self._searches[self._turn % len(self._searches)]
        if following.gap:
            header[Header.ANCHOR], self._away = 0, True
            return following.gap
        return self._wait_for(following.anchor_of(self._arena, anew=following.anchor is None))

    def _wait_for(self, anchor: int) -> int:
        self._arena.header[Header.ANCHOR] = self._arena.node_address(anchor)
        self._away = False
        return self._limit


class _Search:
    """The search for periods in one part of a network."""

    def __init__(self, part: Part) -> None:
        self.part = part
        self.anchor: int | None = None
        self.gap = 0
        self._known: dict[bytes, list[State]] = {}
        self._kept = 0
        self._failures = 0
        self._before: IntArray | None = None

    def anchor_of(self, arena: Arena, *, anew: bool) -> int:
        """The node whose turns the looks follow: of those that move, the one with most repetitions left."""
        if anew or self.anchor is None or self.part.has_finished(arena, self.anchor):
            position, left = self.part.progress(arena)
            moved = np.ones(len(left), bool) if self._before is None else (position != self._before).any(axis=1)
            self._before = position
            self.anchor = int(self.part.nodes[np.argmax(np.where(moved, left, -1))])
        return self.anchor

    def look(self, arena: Arena) -> int:
        """Compare the state with earlier ones; returns the operations skipped."""
        state = snapshot(self.part, arena)
        known = self._known.setdefault(state.key, [])
        period = find_period(self.part, known, state)
        skipped = 0
        if period is not None:
            skipped = self._move(arena, state, period)
            state = snapshot(self.part, arena)
        known = self._known.setdefault(state.key, [])
        known.append(state)
        self._forget(state)
        self._failures = 0 if skipped else self._failures + 1
        if self._failures >= PATIENCE:
            self._failures, self.gap = 0, max(64, 2 * self.gap)
        return skipped

    def _move(self, arena: Arena, state: State, period: Period) -> int:
        self.anchor = None
        self.gap = 0
        return jump(self.part, arena, state, period)

    def _forget(self, newest: State) -> None:
        """Keep the newest states only, as many as there is memory for."""
        self._kept += newest.size
        while self._kept > KEPT_BYTES and len(self._known) > 1:
            oldest = next(iter(self._known))
            self._kept -= sum(state.size for state in self._known.pop(oldest))
