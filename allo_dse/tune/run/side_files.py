"""What a run keeps beside its records: results for other runs, what failed evaluations printed, running totals."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from allo_dse.space.space import Candidate

from ..search.screening import Screen
from ..store.log import RunLog
from ..store.rundir import LOGS, RunDirectory
from ..workers.executor import Outcome
from .cache import ResultCache

TICK_SECONDS = 2.0


class Keeper:
    """Keeps them.

    Args:
        caches: one per rung, or none at all.
    """

    def __init__(self, directory: RunDirectory, log: RunLog, screen: Screen, caches: Sequence[ResultCache]) -> None:
        self._directory, self._log, self._screen, self._caches = directory, log, screen, caches
        self._ticked = time.monotonic()
        self._last: dict[str, int] = {}

    def known(self, candidate: Candidate, rung: int) -> dict[str, Any] | None:
        """Metrics that an earlier run found."""
        return self._caches[rung].get(candidate) if self._caches else None

    def keep(self, candidate: Candidate, outcome: Outcome) -> dict[str, Any]:
        """Keep what comes with an outcome; returns fields of its record."""
        if outcome.metrics is not None and not outcome.cached and self._caches:
            self._caches[outcome.rung].put(candidate, outcome.metrics, outcome.seconds)
        if outcome.metrics is not None or not outcome.printed:
            return {}
        name = f"{LOGS}/{candidate.key}-{outcome.rung}.txt"
        self._directory.write(name, outcome.printed)
        return {"log": name}

    def tick(self, at: float) -> None:
        """Write running totals to the log, now and then."""
        now = time.monotonic()
        if now - self._ticked >= TICK_SECONDS:
            self._ticked = now
            self._write(at)

    def _write(self, at: float) -> None:
        totals = {
            "repeats": self._screen.repeats,
            "illegal": self._screen.illegal,
            "invalid": self._screen.invalid,
            "cache_hits": sum(cache.hits for cache in self._caches),
        }
        if totals != self._last:
            self._last = totals
            self._log.append([{"type": "tick", "at": round(at, 4), **totals}])

    def close(self) -> None:
        for cache in self._caches:
            cache.close()
