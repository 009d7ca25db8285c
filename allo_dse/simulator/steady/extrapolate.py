"""Exact times of long regular networks: what repeats is executed until that shows, the rest is arithmetic.

A network of table processes is a machine whose state is where each process stands in its table, how many tokens each
stream holds, and times: clocks, when tokens were put, when slots were freed, when servers are free. What it does next
depends on differences of times only, by maxima and sums. So if two states are equal but for a common shift of all
times, and for counters of repeats that have gone on, what lies between them happens again and again, each time later
by that shift, until one of these repeats ends. The run is moved on by as many of these periods as all the repeats
have left, and continues from there: through the end of the repetition, into the next loop, or into the next round of
an outer loop, whose rounds are compared in the same way (docs/timing.md, T15).

The execution order of the run loop does not matter: states are taken when a certain node, the anchor, has begun a round
of a certain repeat, and what follows from a state does not depend on who runs first. So who waited for a token runs
next: the first tokens reach the far end of a network before others are made, all nodes soon are in step, and the work
grows with the number of nodes. In the order of waking, nodes at the front would have gone through as many rounds as
there are nodes on the way to the far end. What cannot be left out is the time until the FIFOs before the slowest
node are full: it grows with their depth and with the nodes on the way, so that a square array takes more work per
element the larger it is. Networks that do not come to repeat themselves are executed in full, at little extra cost: the
looks at their state become rare. What ends before a look would have paid for itself is not looked at (`is_long`).
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from allo_dse.common.records import replace

from ..codegen.run_time.record_fields import Code, Header, Op
from ..network.arena import NO_ANCHOR, Arena
from ..network.network import Network, Processes
from .independent_parts import Part, parts_of
from .periods import State, find_period, jump
from .snapshots import snapshot

KEPT_BYTES = 1 << 26
"""Memory for states that later ones are compared with."""
PATIENCE = 8
"""Looks without success after which they become half as frequent."""
LOOK_TURNS, LOOK_TURNS_PER_ENTRY = 130_000, 45
"""Rounds of repeats that take as long as what finding a period takes, and more for each node and token. Measured on
systolic arrays of 4 x 4 to 32 x 32 elements."""
FIRST_TURNS = 30_000
"""Turns, and repetitions of table sections, before the first look."""
FIRST_GAP, GAP_PER_ENTRY = 6_000, 8
"""Turns and repetitions between looks that make the cost of a look small, and more for each node and token."""
WORTHWHILE = 8
"""Repeats of fewer rounds are executed."""
WITHOUT_LOOKS = 1 << 20
"""Turns between two returns to Python when there is nothing to look for."""


def can_repeat(network: Network) -> bool:
    """Return whether a network consists of table processes."""
    return bool(network.groups) and all(isinstance(g, Processes) for g in network.groups) and bool(network.rows.size)


def is_long(network: Network, rounds: float) -> bool:
    """Return whether so many rounds of repeats take longer than finding out what repeats."""
    return rounds > LOOK_TURNS + LOOK_TURNS_PER_ENTRY * (network.node_count + int(network.depth.sum()))


def rounds_of(network: Network) -> float:
    """Rounds of repeats that the processes of a network of tables go through, about."""
    rows = network.rows.reshape(-1, Op.SIZE)
    repeats = np.flatnonzero(rows[:, Op.CODE] == Code.REPEAT)
    count = np.maximum(rows[repeats, Op.VALUE], 1)
    # How often a row is executed is the product of the counts around it: a sum of logarithms that begin and end.
    logarithms, around = np.zeros(len(rows) + 1), np.log(count)
    np.add.at(logarithms, repeats - rows[repeats, Op.MARK], around)
    np.subtract.at(logarithms, repeats, around)
    own = np.zeros(len(rows) + 1)
    own[repeats + 1] = count * np.exp(np.cumsum(logarithms)[repeats])
    total, ends = np.cumsum(own), np.flatnonzero(rows[:, Op.CODE] == Code.HALT)
    firsts = np.concatenate([group.first_row for group in network.groups if isinstance(group, Processes)])
    return float((total[ends[np.searchsorted(ends, firsts)]] - total[firsts]).sum())


def without_logs(network: Network) -> Network:
    """The same network; its processes note no clocks, of which extrapolation would leave some out."""
    groups = [replace(g, log_limit=np.zeros_like(g.log_limit)) for g in network.groups if isinstance(g, Processes)]
    return replace(network, groups=tuple(groups))


class Extrapolator:
    """Looks at a run now and then, and moves it on by whole periods.

    Args:
        until: a clock that no node is moved past.

    Attributes:
        skipped: stream operations that were not executed. jumps: how often the run was moved on.
    """

    def __init__(self, network: Network, arena: Arena, until: int | None = None) -> None:
        self._network, self._arena, self._until = network, arena, until
        arena.header[Header.TOKENS_FIRST] = 1
        self._turn = 0
        self._waiting = False
        self.skipped = 0
        self.jumps = 0

    @cached_property
    def _searches(self) -> list[_Search]:
        parts = parts_of(self._network, self._arena)
        size = self._network.node_count + int(self._network.depth.sum())
        return [_Search(part, 20_000 + 64 * size, self._until) for part in parts if part.longest >= WORTHWHILE]

    @property
    def is_waiting(self) -> bool:
        """True if to look at the state when compiled code returns."""
        return self._waiting

    def first_budget(self) -> int:
        """Turns before the first look: networks that need no more are not looked at at all."""
        return FIRST_TURNS + 8 * self._network.node_count

    def look(self) -> int:
        """Called when compiled code has returned; gives it the next anchor and returns the next budget."""
        if not self._searches:
            return self._run_on()
        search = self._searches[self._turn % len(self._searches)]
        if self._waiting:
            skipped = search.look(self._arena)
            self.jumps += skipped > 0
            self.skipped += skipped
            if search.is_over:
                self._searches.remove(search)
            self._turn += 1
        self._waiting = bool(self._searches)
        if not self._searches:
            return self._run_on()
        return self._searches[self._turn % len(self._searches)].wait(self._arena)

    def _run_on(self) -> int:
        """There is nothing left to look for."""
        self._arena.header[Header.ANCHOR] = NO_ANCHOR
        self._arena.header[Header.TOKENS_FIRST] = 0
        return WITHOUT_LOOKS


class _Search:
    """The search for periods in one part of a network.

    Looks are taken when a certain node has begun another round of a certain repeat, the outermost that it comes to in
    good time, or as many rounds as make the cost of a look small beside that of getting there.
    """

    def __init__(self, part: Part, limit: int, until: int | None = None) -> None:
        self.part = part
        self._until = until
        self._gap = FIRST_GAP + GAP_PER_ENTRY * (len(part.nodes) + len(part.place))
        self._limit = limit
        self.is_over = False
        self._anchor: tuple[int, int] | None = None
        self._rounds = 1
        self._per_round = 0
        self._tried: set[tuple[int, int]] = set()
        self._known: dict[bytes, list[State]] = {}
        self._kept = 0
        self._failures = 0

    def wait(self, arena: Arena) -> int:
        """Set the anchor; returns the budget for getting there."""
        if self._anchor is None:
            self._anchor = self.part.anchor(arena, self._tried)
            self._rounds, self._per_round = 1, 0
            if self._anchor is None:
                self._tried.clear()
        arena.header[Header.ANCHOR] = NO_ANCHOR if self._anchor is None else sum(self._anchor)
        arena.header[Header.ROUNDS] = self._rounds
        return self._limit

    def look(self, arena: Arena) -> int:
        """Compare the state with earlier ones; returns the operations skipped."""
        header = arena.header
        if header[Header.ANCHOR]:
            self._has_not_come(arena)
            return 0
        per_round = (self._limit - int(header[Header.BUDGET])) // self._rounds + 1
        last, self._per_round = self._per_round or per_round, per_round
        # While a network fills, ever more nodes take part in a round: the next ones take as much more again.
        per_round *= min(4, max(1, per_round // last))
        rounds = max(self._rounds, min(4 * self._rounds, self._gap // per_round, self._limit // (4 * per_round)))
        self._rounds = 1 << (rounds.bit_length() - 1)  # few periods of few rounds end between looks then
        state = snapshot(self.part, arena)
        known = self._known.setdefault(state.key, [])
        period = find_period(known, state, self._until)
        known.append(state)
        self._forget(state)
        self._failures += 1
        self.is_over = self._until is not None and int(state.clock.max()) >= self._until
        if period is not None:
            self._failures, self._anchor = 0, None
            self._tried.clear()
            return jump(self.part, arena, state, period)
        if self._failures >= PATIENCE:
            self._failures = 0
            self._gap, self._limit = 2 * self._gap, max(self._limit, 8 * self._gap)
        return 0

    def _has_not_come(self, arena: Arena) -> None:
        """The anchor's next round is far off: another node, or a repeat further inside, will do."""
        if self._rounds > 1:
            self._rounds = max(1, self._rounds // 8)
            return
        if self._anchor is not None:
            self._tried.add(self._anchor)
        self._anchor = None
        self.is_over = self.part.is_over(arena)

    def _forget(self, newest: State) -> None:
        """Keep the newest states only, as many as there is memory for."""
        self._kept += newest.size
        while self._kept > KEPT_BYTES and len(self._known) > 1:
            oldest = next(iter(self._known))
            self._kept -= sum(state.size for state in self._known.pop(oldest))
