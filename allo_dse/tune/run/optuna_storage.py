"""The same trials in an Optuna storage: for Optuna's own tools, and for several drivers that share a study.

The log of a run stays the truth; a thread copies finished designs to the storage and looks there for those of other
drivers, so that the storage never sets the pace. What a killed driver had not copied is copied when it resumes.
What rungs above the first measure is in a study each, named after the rung, and the claims of drivers in another one.
"""

from __future__ import annotations

import hashlib
import itertools
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from allo_dse.common.errors import StudyError
from allo_dse.space.gene import Gene

from ..results.optuna_trials import Trials
from ..search.judge import Judge
from ..store.log import stored
from ..store.record import Measurement, Record
from .claims import Claims, Wanted

if TYPE_CHECKING:
    import optuna

R = TypeVar("R")

LOOK_SECONDS = 1.0  # between looks for the designs of others
CLOSE_SECONDS = 60.0  # for the last designs to be copied
OPEN_ATTEMPTS, OPEN_SECONDS = 3, 0.5
MAKING_SECONDS = 60.0  # for another driver to make the tables; a remote database takes a while for each of them
JOURNAL = "journal"
_IDENTITY = "allo_dse"
_KINDS = "postgresql://..., sqlite:///file.db, mysql://..., journal or journal:FILE"


class Foreign(NamedTuple):
    """A design that another driver has evaluated."""

    key: str
    genes: dict[str, int]
    measured: Measurement


class SharedStudy:
    """A study in an Optuna storage, which this driver writes to and learns from.

    Args:
        identity: what must be the same for drivers to share the study.
        evaluators: names of those of all rungs.
        genes: range of every gene met so far; kept up to date by others.

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
        self._evaluators, self._trials = evaluators, Trials(judge, genes)
        self.driver = f"{socket.gethostname()}:{hashlib.sha256(bytes(run_dir.resolve())).hexdigest()[:8]}"
        directions = [objective.direction for objective in judge.objectives]
        names = [name, *(f"{name} rung {rung}" for rung in range(1, len(evaluators)))]
        storage = reach_storage(url, run_dir)
        self._studies = [_open(url, storage, each, directions) for each in names]
        self._same(url, identity)
        self._seen = [0] * len(names)  # trials looked at: Optuna numbers them without gaps
        self._keys: set[Wanted] = set()
        self._foreign: dict[Wanted, optuna.trial.FrozenTrial] = {}
        self._looking = threading.Lock()
        self._outbox: queue.SimpleQueue[Record | int | None] = queue.SimpleQueue()
        self._inbox: queue.SimpleQueue[Foreign] = queue.SimpleQueue()
        self.problem = ""
        # No other driver uses the journal of a run directory.
        claims = None if url == JOURNAL else _open(url, storage, f"{name} claims", ["minimize"])
        self._claims = claims and Claims(claims, self.driver)
        self._look()
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
        """Copy a design of this driver's log, soon."""
        if not record.evaluated or record.rung >= len(self._studies):
            return
        self._outbox.put(record)
        if self._claims:
            for number in self._claims.finished((record.rung, record.key)):
                self._outbox.put(number)

    def news(self) -> list[Foreign]:
        """Designs of other drivers since it was last asked."""
        found = []
        while not self._inbox.empty():
            found.append(self._inbox.get())
        return found

    def claim(self, wanted: Sequence[Wanted]) -> set[Wanted]:
        """Claim designs; returns those that this driver is to evaluate: others neither do nor have done so."""
        try:
            won = self._claims.claim(wanted) if self._claims and not self.problem else set(wanted)
            self._look()
        except Exception as error:  # each database has its own
            self._fails(error)
            return set(wanted)
        return {one for one in won if one not in self._foreign}

    def claimed_by_others(self, wanted: Sequence[Wanted]) -> set[Wanted]:
        """Which designs others are evaluating. Their results so far are there afterwards."""
        try:
            claimed = self._claims.held_by_others(wanted) if self._claims and not self.problem else set()
            self._look()
        except Exception as error:
            self._fails(error)
            return set()
        return claimed

    def result(self, rung: int, key: str) -> Foreign | None:
        """What another driver has found out about a design, as far as it is known here."""
        trial = self._foreign.get((rung, key))
        return None if trial is None else _foreign(rung, trial)

    def _fails(self, error: Exception) -> None:
        """Go on without the storage: the log has everything."""
        first = _cause(error)
        self.problem = self.problem or f"{type(first).__name__}: {_first_line(first)}"

    def _work(self) -> None:
        looked = time.monotonic()
        try:
            while True:
                if time.monotonic() - looked >= LOOK_SECONDS:
                    self._look()
                    looked = time.monotonic()
                if self._claims:
                    self._claims.beat()
                try:
                    item = self._outbox.get(timeout=LOOK_SECONDS)
                except queue.Empty:
                    continue
                if item is None:
                    break
                if isinstance(item, Record):
                    self._copy(item)
                elif self._claims:
                    self._claims.release(item)
            if self._claims:
                self._claims.close()
        except Exception as error:
            self._fails(error)

    def _copy(self, record: Record) -> None:
        wanted = record.rung, record.key
        if wanted not in self._keys:
            self._keys.add(wanted)
            self._studies[record.rung].add_trial(self._trials.trial(record, driver=self.driver))

    def _look(self) -> None:
        """Take in what is new in the storage."""
        with self._looking:
            for rung in range(len(self._studies)):
                self._look_at(rung)

    def _look_at(self, rung: int) -> None:
        for trial in self._studies[rung].get_trials(deepcopy=False)[self._seen[rung] :]:
            if not trial.state.is_finished():
                break  # a trial of Optuna's own tools: look again
            self._seen[rung] += 1
            attributes = trial.user_attrs
            key = attributes.get("key")
            if key is None or (rung, key) in self._keys or attributes.get("evaluator") != self._evaluators[rung]:
                continue
            self._keys.add((rung, key))
            self._foreign[rung, key] = trial
            self._inbox.put(_foreign(rung, trial))

    def close(self) -> None:
        """Copy what is left."""
        self._outbox.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self.problem = self.problem or "the storage is too slow: the rest is copied when the run is resumed"


def _foreign(rung: int, trial: optuna.trial.FrozenTrial) -> Foreign:
    told = trial.user_attrs
    measured = Measurement(
        rung=rung, evaluator=told["evaluator"], worker=str(told.get("driver")), metrics=told.get("metrics"),
        error=told.get("error"), cached=True,
    )  # fmt: skip
    return Foreign(told["key"], dict(trial.params), measured)


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
    """The study, made where there is none."""
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
    """What an action on a storage gives. Drivers that start together may make a study, and its tables, at once: the
    later ones try again until the first one has made them."""
    until = time.monotonic() + MAKING_SECONDS
    for attempt in itertools.count(1):
        try:
            return action()
        except Exception as error:  # each database has its own
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
    """The first of a chain of errors: Optuna guesses at a reason instead of the one that the database gave."""
    return error if error.__cause__ is None else _cause(error.__cause__)


def _is_being_made(error: Exception) -> bool:
    """Whether the tables or the study were not there a moment ago, and are now."""
    from sqlalchemy.exc import IntegrityError

    return isinstance(error, IntegrityError) or "already exists" in str(error)
