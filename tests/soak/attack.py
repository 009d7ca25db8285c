"""What an attack is, and how a list of edits that fails is made shorter."""

from __future__ import annotations

import random
import signal
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Protocol, TypeVar

from allo_dse.common.errors import AlloDseError

Edit = TypeVar("Edit")
PACKAGE = "/allo_dse/"


class Found(Exception):
    """An attack has found something: what is wrong, and what shows it."""


class Attack(Protocol):
    """One way to break something."""

    @property
    def name(self) -> str: ...

    def attempt(self, rng: random.Random, folder: Path) -> None:
        """Try once, in a folder of its own.

        Raises:
            Found: when something breaks.
        """


class Endless(BaseException):
    """Raised in what takes too long; not an `Exception`, so that nothing that is attacked takes it for its own."""


@contextmanager
def limited(seconds: int) -> Iterator[None]:
    """Leave what computes longer than this, whatever else the machine does: no attempt may stop the others."""

    def leave(_number: int, _frame: FrameType | None) -> None:
        raise Endless(f"not done after computing for {seconds} s")

    before = signal.signal(signal.SIGPROF, leave)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def outcome(action: Callable[[], object], own: Path, seconds: int) -> str:
    """Empty where an action ends, or with an error that is meant for people; else what it ended with.

    Args:
        own: the attacked file: what Python itself raises while it executes that is the file's own matter.
    """
    try:
        with limited(seconds):
            action()
    except Endless as error:
        return str(error)
    except (AlloDseError, SyntaxError):
        return ""
    except BaseException as error:
        frames = traceback.extract_tb(error.__traceback__)
        if frames and frames[-1].filename == str(own) and not isinstance(error, KeyboardInterrupt):
            return ""
        places = [f"{frame.filename}:{frame.lineno}" for frame in frames if PACKAGE in frame.filename]
        return f"{type(error).__name__}: {error} at {places[-1] if places else frames[-1]}"
    return ""


def smallest(edits: Sequence[Edit], fails: Callable[[Sequence[Edit]], bool]) -> Sequence[Edit]:
    """As few of the edits as still fail: halves are left out first, then one after the other."""
    size = max(1, len(edits) // 2)
    while True:
        for start in range(0, len(edits), size):
            fewer = [*edits[:start], *edits[start + size :]]
            if len(fewer) < len(edits) and fails(fewer):
                edits = fewer
                break
        else:
            if size == 1:
                return edits
            size //= 2
