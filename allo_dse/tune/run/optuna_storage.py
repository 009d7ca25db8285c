"""Finished designs as trials in an Optuna storage, for Optuna's own tools.

The log of a run stays the truth. A thread copies designs to the storage, so that a slow database does not slow the
search. Designs that a killed run had not copied are copied when it resumes. Each rung above the first has a study of
its own.
"""

from __future__ import annotations

import itertools
import queue
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from allo_dse.common.errors import StudyError
from allo_dse.space.choice import Gene

from ..results.result import Trials
from ..search.judge import Judge
from ..store.log import stored
from ..store.record import Record

if TYPE_CHECKING:
    import optuna

R = TypeVar("R")

CLOSE_SECONDS = 60.0  # for the last designs to be copied
OPEN_ATTEMPTS, OPEN_SECONDS = 3, 0.5
MAKING_SECONDS = 60.0  # for another run to create the tables; a remote database is slow at each
JOURNAL = "journal"
_IDENTITY = "allo_dse"
_KINDS = "postgresql://..., sqlite:///file.db, mysql://..., journal or journal:FILE"


class StorageCopy:
    """A copy of a run's designs in an Optuna storage.

    Args:
        identity: program, device, evaluator and space; must match those of existing trials.
        evaluators: names of the evaluators of all rungs.
        genes: range of every gene seen so far (a live view).

    Attributes:
        problem: why some designs could not be copied; empty if there are none.

    Raises:
        StudyError: when the storage cannot be opened, or holds another study of that name.
    """

    def __init__(
        self,
        url: str,
        name: str,
        run_dir: Path,
        identity: dict[str, Any],
        judge: Judge,
        genes: Mapping[str, Gene],
        evaluators: Sequence[str],
    ) -> None:
        self._trials = Trials(judge, genes)
        directions = [objective.direction for objective in judge.objectives]
        names = [name, *(f"{name} rung {rung}" for rung in range(1, len(evaluators)))]
        storage = reach_storage(url, run_dir)
        self._studies = [_open(url, storage, each, directions) for each in names]
        self._same(url, identity)
        self._copied = [
            {trial.user_attrs.get("key") for trial in study.get_trials(deepcopy=False)} for study in self._studies
        ]
        self._waiting: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self.problem = ""
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _same(self, url: str, identity: dict[str, Any]) -> None:
        identity = stored(identity)
        study = self._studies[0]
        there = study.user_attrs.get(_IDENTITY)
        if there is None and not study.get_trials(deepcopy=False):
            study.set_user_attr(_IDENTITY, identity)
        elif there != identity:
            differences = [n for n in identity if (there or {}).get(n) != identity[n]]
            raise StudyError(
                f"{without_password(url)} holds another study named {study.study_name!r}: "
                f"{', '.join(differences)} differ",
                hint="give the study another name, or use another storage",
            )

    def put(self, record: Record) -> None:
        """Copy a design soon, unless it is there already."""
        if record.evaluated and record.rung < len(self._studies):
            self._waiting.put(record)

    def _work(self) -> None:
        try:
            while (record := self._waiting.get()) is not None:
                if record.key not in self._copied[record.rung]:
                    self._copied[record.rung].add(record.key)
                    self._studies[record.rung].add_trial(self._trials.trial(record))
        except Exception as error:  # each database has its own errors; the log has everything
            first = _cause(error)
            self.problem = f"{type(first).__name__}: {_first_line(first)}"

    def close(self) -> None:
        """Copy the remaining designs."""
        self._waiting.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self.problem = self.problem or "the storage is too slow: the rest is copied when the run is resumed"


def check_address(url: str) -> None:
    """See whether a text can be the address of a storage.

    Raises:
        StudyError: when it cannot.
    """
    if "://" not in url and url.partition(":")[0] != JOURNAL:
        raise StudyError(f"{url!r} is not a storage", hint=f"one of {_KINDS}")


def without_password(url: str) -> str:
    """A storage's address as it may be shown and written down."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", url)


def reach_storage(url: str, run_dir: Path) -> optuna.storages.BaseStorage:
    """The storage of an address.

    Raises:
        StudyError: when it cannot be used.
    """
    return _patiently(url, lambda: _storage(url, run_dir))


def _open(url: str, storage: optuna.storages.BaseStorage, name: str, directions: Sequence[str]) -> optuna.Study:
    """Open the study; create it if there is none."""
    import optuna

    ways = [optuna.study.StudyDirection[direction.upper()] for direction in directions]
    return _patiently(
        url,
        lambda: optuna.create_study(study_name=name, storage=storage, directions=ways, load_if_exists=True),
    )


def _storage(url: str, run_dir: Path) -> optuna.storages.BaseStorage:
    import optuna
    from optuna.storages.journal import JournalFileBackend

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    if "://" not in url:
        return optuna.storages.JournalStorage(
            JournalFileBackend(url.partition(":")[2] or str(run_dir / "optuna.journal"))
        )
    return optuna.storages.get_storage(url.replace("postgresql://", "postgresql+psycopg://", 1))


def _patiently(url: str, action: Callable[[], R]) -> R:
    """Return the result of an action on a storage. Runs that start together may make the tables at once: the later ones
    try again until the first one has made them."""
    until = time.monotonic() + MAKING_SECONDS
    for attempt in itertools.count(1):
        try:
            return action()
        except Exception as error:  # each database has its own errors
            being_made = _is_being_made(error) and time.monotonic() < until
            if "://" not in url or (attempt >= OPEN_ATTEMPTS and not being_made):
                raise StudyError(
                    f"cannot use the storage {without_password(url)}: {_first_line(error)}",
                    hint=f"one of {_KINDS}; PostgreSQL needs `pip install allo-dse[postgresql]`",
                ) from error
            time.sleep(OPEN_SECONDS)
    raise AssertionError


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "")


def _cause(error: BaseException) -> BaseException:
    """Return the first of a chain of errors: Optuna guesses at a reason and hides the database's."""
    return error if error.__cause__ is None else _cause(error.__cause__)


def _is_being_made(error: Exception) -> bool:
    """Return whether an error means that another run is creating the same tables or study."""
    from sqlalchemy.exc import IntegrityError

    return isinstance(error, IntegrityError) or "already exists" in str(error)
