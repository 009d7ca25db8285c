"""Budgets of trials, time and results, and requests to stop."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Any

from allo_dse.common.errors import StudyError

from ..store.certificate import Certificate

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|min|[smhd])")


def parse_duration(text: str | float, what: str = "a time budget") -> float:
    """Seconds of "90s", "5m", "1h30m", "250ms", or a number of seconds.

    Args:
        what: name of the duration, for messages.

    Raises:
        StudyError: for anything else, or when it is not positive.
    """
    compact = str(text).strip().lower()
    parts, rest = _PART.findall(compact), _PART.sub("", compact).strip()
    try:
        seconds = sum(float(n) * _UNITS[unit] for n, unit in parts) if parts and not rest else float(compact)
    except ValueError:
        raise StudyError(f"{text!r} is not a duration", hint='write for example "90s", "5m" or "1h30m"') from None
    if not 0 < seconds < float("inf"):
        raise StudyError(f"{what} of {text!r} leaves no time")
    return seconds


def parse_share(text: str | float) -> float:
    """Return "5%" or 0.05 as a share.

    Raises:
        StudyError: for anything else.
    """
    try:
        written = str(text).strip()
        share = float(written.removesuffix("%")) / (100 if written.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise StudyError(f"gap={text!r} is not a share", hint='write for example "5%" or 0.05')
    return share


@dataclass
class Budget:
    """Limits on the trials and time of a run, and results that end it.

    Attributes:
        trials: evaluated designs in the study in all, those of earlier runs included; None for no limit.
        seconds: duration of this run; None for no limit.
        search_share: share of the time for evaluating every design; the rest is for the rungs above.
        target: largest losses that one design must have, by position of the objective; None to search for the best.
        patience: trials without a better design after which the search ends.
        gap: share of each objective's best value within which its proven bound must be.
        reached: the result that ended the search, "target", "patience" or "gap"; empty as long as none has.
    """

    trials: int | None
    seconds: float | None
    search_share: float = 1.0
    target: Sequence[float] | None = None
    patience: int | None = None
    gap: float | None = None
    reached: str = ""
    _started: float = field(default_factory=time.monotonic)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._started

    @property
    def time_is_up(self) -> bool:
        return self.seconds is not None and self.elapsed >= self.seconds

    @property
    def search_time_is_up(self) -> bool:
        return self.seconds is not None and self.elapsed >= self.search_share * self.seconds

    def look(
        self, losses: Iterable[Sequence[float]], stalled: int, certificate: Callable[[], Certificate | None]
    ) -> None:
        """Set `reached` if results end the search.

        Args:
            losses: designs that may meet the target.
            stalled: trials since a design was better than others.
            certificate: returns the decisions about the space.
        """
        target = self.target
        if target is not None and any(all(v <= t for v, t in zip(of, target, strict=True)) for of in losses):
            self.reached = "target"
        elif self.patience is not None and stalled >= self.patience:
            self.reached = "patience"
        elif self.gap is not None and (decided := certificate()) is not None and decided.feasible:
            near = [gap.share is not None and gap.share <= self.gap for gap in decided.gaps]
            self.reached = "gap" if near and all(near) else ""

    def trials_left(self, done: int) -> int:
        """Return how many more designs may be started.

        If time is up before the first one, one may still be started, so that there is a result.
        """
        if self.reached:
            return 0
        if self.search_time_is_up:
            return 0 if done else 1
        return 1 << 30 if self.trials is None else max(0, self.trials - done)

    def remaining_seconds(self, done_now: int, done: int) -> float | None:
        """Estimated time to the end of the run, from the pace so far; None when there is nothing to go by."""
        estimates = []
        if self.seconds is not None:
            estimates.append(max(0.0, self.seconds - self.elapsed))
        if self.trials is not None and done_now:
            estimates.append(max(0, self.trials - done) * self.elapsed / done_now)
        return min(estimates) if estimates else None


SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM", signal.SIGHUP: "SIGHUP"}
"""Signals with which a user stops a run; the last one is sent when the terminal is closed."""


class StepLeft(KeyboardInterrupt):
    """Abandons a step that did not end after a stop request; its argument names the source."""


class StopSignals:
    """Turns signals into a request to stop; a second one interrupts at once. An ignored SIGHUP (`nohup`) stays ignored.

    `StepLeft` is raised in a `leaving` block that runs for longer than `patience_seconds` after the request. `insisted`
    counts the attempts. Nothing changes outside the main thread, where handlers cannot be installed.
    """

    def __init__(self, patience_seconds: float = 1.0) -> None:
        self.requested = ""
        self._patience = patience_seconds
        self._before: dict[int, Any] = {}
        self.insisted = 0
        self._over = threading.Event()
        self._signalling = threading.Lock()
        self._insists = False
        self._leavable = False

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            for number in SIGNALS:
                if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN:
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._signalling:  # no signal may be sent once the old handlers are back
            self._over.set()
        for number, handler in self._before.items():
            signal.signal(number, handler)

    @contextmanager
    def leaving(self) -> Iterator[None]:
        """Let a step that does not end after a stop request be abandoned: `StepLeft` is raised in it.

        The signal may interrupt an import or a callback of a C library, which raises an error of its own instead. Ray
        raises a `KeyboardInterrupt` without a message. Both are turned into `StepLeft` again.
        """
        before, self._leavable = self._leavable, True
        insisted = self.insisted
        try:
            yield
        except (Exception, KeyboardInterrupt) as error:
            if self.insisted > insisted and (isinstance(error, Exception) or not error.args):
                raise StepLeft(self.requested) from error
            raise
        finally:
            self._leavable = before

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._insists:
            self._insists = False
            self.insisted += 1
            if self._leavable:
                raise StepLeft(self.requested)
        elif self.requested:
            raise KeyboardInterrupt(self.requested)
        else:
            self.requested = SIGNALS[signal.Signals(number)]
            threading.Thread(target=self._insist, daemon=True).start()

    def _insist(self) -> None:
        """Signal again until the run has ended, as signals also interrupt system calls.

        Always use SIGINT: while Ray shuts down, a SIGTERM would end the process.
        """
        main = threading.main_thread().ident
        assert main is not None
        while not self._over.wait(self._patience):
            with self._signalling:
                if not self._over.is_set():
                    self._insists = True
                    signal.pthread_kill(main, signal.SIGINT)
