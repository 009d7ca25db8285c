"""What a run keeps beside its records: results for other runs, what failed evaluations printed, running totals."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from allo_dse.space.space import Candidate

from ..search.screening import Screen
from ..store.certificate import Certificate
from ..store.record import Measurement, Tick
from ..store.rundir import LOGS, RunDirectory
from .cache import ResultCache

TICK_SECONDS = 2.0


class Keeper:
    """Keeps them.

    Args:
        caches: one per rung, or none at all.
    """

    def __init__(self, directory: RunDirectory, screen: Screen, caches: Sequence[ResultCache]) -> None:
        self._directory, self._screen, self._caches = directory, screen, caches
        self._ticked = self._certified = time.monotonic()
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

    def tick(self, at: float) -> Tick | None:
        """Running totals for the log, now and then, when they have changed."""
        now = time.monotonic()
        if now - self._ticked < TICK_SECONDS:
            return None
        self._ticked = now
        screen, hits = self._screen, sum(cache.hits for cache in self._caches)
        totals = Tick(at=0.0, repeats=screen.repeats, illegal=screen.illegal, invalid=screen.invalid, cache_hits=hits)
        if totals == self._last:
            return None
        self._last = totals
        return structs.replace(totals, at=at)

    def certify(self, certificate: Callable[[], Certificate | None]) -> None:
        """Write down what is decided about the space, now and then, where readers of the run look for it."""
        now = time.monotonic()
        if now - self._certified >= TICK_SECONDS and (found := certificate()) is not None:
            self._certified = now
            self._directory.certify(found)
