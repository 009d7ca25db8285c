"""Which driver of a shared study evaluates which design: none begins what another one has begun.

A claim is a running trial of an Optuna study beside the shared one. It names the designs of one batch. Optuna numbers
trials in the order in which they were made, whoever made them: of two claims to a design the first one holds.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optuna

STALE_SECONDS = 60.0  # without a sign of life, before a driver's claims are void
BEAT_SECONDS = 5.0  # between signs of life

Wanted = tuple[int, str]  # a rung, and the key of a design


class Claims:
    """The claims to the designs of a shared study.

    Args:
        study: for nothing else.
        driver: who claims; the same after a restart in the same run directory, whose own old claims are void.
    """

    def __init__(self, study: optuna.Study, driver: str) -> None:
        self._study, self._driver = study, driver
        self._tickets = itertools.count()
        self._open: dict[int, set[Wanted]] = {}  # own claims by number, and what of them is not finished
        self._lock = threading.Lock()
        self._seen: dict[str, tuple[Any, float]] = {}  # signs of life, and when they were new
        self._beats, self._beaten = itertools.count(time.time_ns()), 0.0
        for trial in self._running():
            if trial.user_attrs["driver"] == driver:
                self._end(trial.number, "FAIL")
        self.beat()

    def beat(self) -> None:
        """Give a sign of life, when it is time to."""
        if time.monotonic() - self._beaten >= BEAT_SECONDS:
            self._study.set_user_attr(self._driver, next(self._beats))
            self._beaten = time.monotonic()

    def claim(self, wanted: Sequence[Wanted]) -> set[Wanted]:
        """Claim designs; returns those that are now this driver's to evaluate."""
        import optuna

        ticket = next(self._tickets)
        attributes = {"driver": self._driver, "ticket": ticket, "designs": [list(one) for one in wanted]}
        state = optuna.trial.TrialState.RUNNING
        self._study.add_trial(optuna.trial.create_trial(state=state, user_attrs=attributes))
        running = self._running()
        holders = _holders(running)
        won = {one for one in wanted if holders.get(one, self._driver) == self._driver}
        number = next(
            t.number for t in reversed(running)
            if t.user_attrs["driver"] == self._driver and t.user_attrs["ticket"] == ticket
        )  # fmt: skip
        if won:
            with self._lock:
                self._open[number] = won
        else:
            self._end(number, "FAIL")
        return won

    def held_by_others(self, wanted: Iterable[Wanted]) -> set[Wanted]:
        """Which designs other drivers, who are alive, have claimed."""
        others = [trial for trial in self._running() if trial.user_attrs["driver"] != self._driver]
        dead = {driver for driver in {trial.user_attrs["driver"] for trial in others} if not self._alive(driver)}
        for trial in others:
            if trial.user_attrs["driver"] in dead:
                self._end(trial.number, "FAIL")
        holders = _holders(trial for trial in others if trial.user_attrs["driver"] not in dead)
        return {one for one in wanted if one in holders}

    def finished(self, one: Wanted) -> list[int]:
        """Note that a design is finished; returns the own claims of which nothing is left."""
        with self._lock:
            over = [number for number, left in self._open.items() if left == {one}]
            for left in self._open.values():
                left.discard(one)
            for number in over:
                del self._open[number]
        return over

    def release(self, number: int) -> None:
        """End an own claim of which nothing is left."""
        self._end(number, "COMPLETE")

    def close(self) -> None:
        """Leave what is not finished to others."""
        for number in list(self._open):
            self._end(number, "FAIL")
        self._open.clear()

    def _alive(self, driver: str) -> bool:
        """Whether a driver has given a sign of life lately, by the clock of this machine."""
        beat, now = self._study.user_attrs.get(driver), time.monotonic()
        if driver not in self._seen or self._seen[driver][0] != beat:
            self._seen[driver] = beat, now
        return now - self._seen[driver][1] < STALE_SECONDS

    def _running(self) -> list[optuna.trial.FrozenTrial]:
        import optuna

        found: list[optuna.trial.FrozenTrial] = self._study.get_trials(
            deepcopy=False, states=(optuna.trial.TrialState.RUNNING,)
        )
        return found

    def _end(self, number: int, state: str) -> None:
        import optuna

        values = [0.0] if state == "COMPLETE" else None
        self._study.tell(number, values, state=optuna.trial.TrialState[state], skip_if_finished=True)


def _holders(running: Iterable[optuna.trial.FrozenTrial]) -> dict[Wanted, str]:
    """Who holds what, by claims in the order of their numbers."""
    holders: dict[Wanted, str] = {}
    for trial in sorted(running, key=lambda t: t.number):
        for rung, key in trial.user_attrs["designs"]:
            holders.setdefault((rung, key), trial.user_attrs["driver"])
    return holders
