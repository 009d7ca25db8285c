"""What a run keeps beside its records: results for other runs, what failed evaluations printed, running totals."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from allo_dse.common.records import replace
from allo_dse.space.space import Candidate

from ..search.screening import Screen
from ..store.certificate import Certificate
from ..store.record import Measurement, Tick
from ..store.rundir import LOGS, RunDirectory
from .cache import ResultCache

TICK_SECONDS = 2.0


class SideFiles:
    """Keeps them.

    Args:
        caches: one per rung, or none at all.
    """

    def __init__(self, directory: RunDirectory, screen: Screen, caches: Sequence[ResultCache]) -> None:
        self._directory, self._screen, self._caches = directory, screen, caches
        self._ticked, self._next = time.monotonic(), 0
        self._last: Tick | None = None

    def known(self, candidate: Candidate, rung: int) -> dict[str, Any] | None:
        """Metrics that an earlier run found."""
        return self._caches[rung].get(candidate) if self._caches else None

    def keep(self, candidate: Candidate, found: Measurement) -> str | None:
        """Keep what comes with a measurement; returns the file that has what was printed, if anything was."""
        if found.metrics is not None and not found.cached and self._caches:
            self._caches[found.rung].put(candidate, found.metrics, found.seconds)
        if found.metrics is not None or not found.printed:
            return None
        name = f"{LOGS}/{candidate.key}-{found.rung}.txt"
        self._directory.write(name, found.printed)
        return name

    def tick(
        self, at: float, evaluated: int, certificate: Callable[[], Certificate | None], *, last: bool
    ) -> Tick | None:
        """Running totals for the log, when they have changed: now and then, and with every tenth more designs.

        What is decided about the space is written where readers of the run look for it, too.
        """
        now = time.monotonic()
        if not last and now - self._ticked < TICK_SECONDS and evaluated < self._next:
            return None
        self._ticked, self._next = now, evaluated + max(1, evaluated // 10)
        decided = certificate()
        if decided is not None:
            self._directory.certify(decided)
        screen, hits = self._screen, sum(cache.hits for cache in self._caches)
        totals = Tick(
            at=0.0, repeats=screen.repeats, illegal=screen.illegal, invalid=screen.invalid, cache_hits=hits,
            bounds=decided.bounds if decided else {},
        )  # fmt: skip
        if totals == self._last:
            return None
        self._last = totals
        return replace(totals, at=at)
