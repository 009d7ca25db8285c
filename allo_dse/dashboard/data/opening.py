"""Reading runs while the server is already up."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from allo_dse.common.errors import AlloDseError, StudyError
from allo_dse.common.garbage import rare_collections

from .board import Board

_SWITCH_SECONDS = 0.001


class Opening:
    """Reads the runs of a board, to where they ended when it began, in a thread of its own.

    Nothing of the board is to be looked at before `wait` has returned.

    Args:
        then: is done after that, in the same thread; an `AlloDseError` of it counts as one of reading.
        failed: is told an error.

    Attributes:
        error: why the runs could not be read; None while they are being read, and when they have been.
    """

    def __init__(
        self,
        board: Board,
        then: Callable[[], None] = lambda: None,
        failed: Callable[[AlloDseError], None] = lambda _: None,
    ) -> None:
        self.board = board
        self.error: AlloDseError | None = None
        self._then, self._failed = then, failed
        self._done = threading.Event()
        self._ends = [run.log.size for run in board.runs]

    def start(self) -> None:
        threading.Thread(target=self._run, daemon=True, name="reading").start()

    def wait(self) -> None:
        """Until everything has been read, or cannot be."""
        self._done.wait()

    @property
    def done(self) -> bool:
        return self._done.is_set()

    @property
    def share(self) -> float:
        """The share of bytes read so far, from 0 to 1."""
        read = sum(min(run.log.offset, end) for run, end in zip(self.board.runs, self._ends, strict=True))
        return read / sum(self._ends) if sum(self._ends) else 1.0

    def _run(self) -> None:
        try:
            with rare_collections(), _prompt_answers():
                while self.board.read_on() and self.share < 1:
                    pass
            self._then()
        except AlloDseError as error:
            self.error = error
        except Exception as error:
            self.error = StudyError(f"cannot open the runs: {type(error).__name__}: {error}")
            raise
        finally:
            self._done.set()
            if self.error is not None:
                self._failed(self.error)


@contextmanager
def _prompt_answers() -> Iterator[None]:
    """Other threads need not wait long while one computes: each file they send needs several turns."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
