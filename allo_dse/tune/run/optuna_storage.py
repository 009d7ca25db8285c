"""Finished designs as trials in an Optuna storage, for Optuna's own tools.

The log of a run stays the truth. A thread copies designs to the storage, so that a slow database does not slow the
search. Designs that a killed run had not copied are copied when it resumes.
"""

from __future__ import annotations

import itertools
import queue
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import optuna
from msgspec import Struct
from optuna.trial import TrialState

from allo_dse.common.errors import StudyError

from ..declare.spec import StudySpec
from ..results.optuna_trials import Trials, name_metrics, states_of
from ..results.result import Result
from ..search.scoring import Scorer
from ..store.log import stored
from ..store.record import Record
from ..store.run_info import first_line

R = TypeVar("R")

OPEN_TRIAL_SECONDS = 60.0  # for a better design to replace one of the front, and for the last copies
OPEN_ATTEMPTS, OPEN_SECONDS = 3, 0.5
MAKING_SECONDS = 60.0  # for another run to create the tables; a remote database is slow at each
JOURNAL = "journal"
_IDENTITY = "allo_dse"
_KINDS = "postgresql://..., sqlite:///file.db, mysql://..., journal or journal:FILE"


class StorageCopy:
    """A copy of a run's designs in an Optuna storage.

    A finished trial cannot be changed. So trials of designs that may still leave the front, or wait for a higher
    evaluator, are RUNNING until the run ends, or for `OPEN_TRIAL_SECONDS` if there are no higher evaluators.

    Args:
        identity: program, device, evaluator and space; must match those of existing trials.

    Attributes:
        problem: why some designs could not be copied; empty if there are none.

    Raises:
        StudyError: when the storage cannot be opened, or holds another study of that name.
    """

    def __init__(self, url: str, study: StudySpec, run_dir: Path, identity: dict[str, Any]) -> None:
        self._trials, self._scorer = Trials(study), Scorer(study.objectives, study.constraints)
        self._signs = [objective.sign for objective in study.objectives]
        self._climbs = bool(study.rungs)
        self._storage = reach_storage(url, run_dir)
        directions = [objective.direction for objective in study.objectives]
        opened = _patiently(
            url,
            lambda: optuna.create_study(
                study_name=study.name, storage=self._storage, directions=directions, load_if_exists=True
            ),
        )
        self._check_identity(url, opened, identity)
        name_metrics(opened, [objective.name for objective in study.objectives])
        self._study_id = self._storage.get_study_id_from_name(study.name)
        there = self._storage.get_all_trials(self._study_id, deepcopy=False)
        self._ids = {trial.user_attrs.get("key"): trial._trial_id for trial in there}
        self._open = {trial.user_attrs.get("key") for trial in there if not trial.state.is_finished()}
        self._front: dict[str, _OnFront] = {}
        self._waiting: queue.SimpleQueue[Record | Result | None] = queue.SimpleQueue()
        self.problem = ""
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    @staticmethod
    def _check_identity(url: str, study: optuna.Study, identity: dict[str, Any]) -> None:
        identity = stored(identity)
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
        """Copy a design soon, unless it is there already. Results of higher evaluators follow at the end."""
        if record.evaluated and not record.rung:
            self._waiting.put(record)

    def finish(self, result: Result) -> None:
        """Finish all trials of a run, so that Optuna's `best_trials` are its front."""
        self._waiting.put(result)

    def _work(self) -> None:
        try:
            while True:
                try:
                    given = self._waiting.get(timeout=OPEN_TRIAL_SECONDS if self._front else None)
                except queue.Empty:
                    self._finish_old()
                    continue
                if given is None:
                    return
                if isinstance(given, Record):
                    self._copy(given)
                else:
                    state = states_of(given.values, given.wrong, given.front_keys)
                    for record in given.records:
                        self._add(record, state(record))
                self._finish_old()
        except Exception as error:  # each database has its own errors; the log has everything
            first = _cause(error)
            self.problem = f"{type(first).__name__}: {first_line(first)}"

    def _copy(self, record: Record) -> None:
        if record.status == "ok":
            settled = not self._climbs and self._is_beaten(record)
            self._add(record, TrialState.COMPLETE if settled else TrialState.RUNNING)
        else:
            self._add(record, TrialState.FAIL if record.status == "failed" else TrialState.COMPLETE)

    def _add(self, record: Record, state: TrialState) -> None:
        if record.key not in self._ids:
            trial = self._trials.trial(record, state)
            self._ids[record.key] = self._storage.create_new_trial(self._study_id, template_trial=trial)
            if state == TrialState.RUNNING:
                self._open.add(record.key)
        elif state != TrialState.RUNNING and record.key in self._open:
            number = self._ids[record.key]
            if record.rung:
                self._storage.set_trial_user_attr(number, "metrics", record.metrics)
                self._storage.set_trial_user_attr(number, "evaluator", record.measured_by)
            if record.status == "infeasible":  # at a higher evaluator: the trial's constraints are the first one's
                state = TrialState.PRUNED
            values = self._scorer.outcome(record).values if state == TrialState.COMPLETE else None
            self._storage.set_trial_state_values(number, state, values)
            self._open.discard(record.key)

    def _is_beaten(self, record: Record) -> bool:
        """Return whether a design is dominated; finish the trials of those that it dominates."""
        values = self._scorer.values(record) or ()
        losses = tuple(sign * value for sign, value in zip(self._signs, values, strict=True))
        if any(_dominates(other.losses, losses) for other in self._front.values()):
            return True
        for key, other in list(self._front.items()):
            if _dominates(losses, other.losses):
                self._add(other.record, TrialState.COMPLETE)
                del self._front[key]
        self._front[record.key] = _OnFront(record, losses, time.monotonic())
        return False

    def _finish_old(self) -> None:
        old = time.monotonic() - OPEN_TRIAL_SECONDS
        for one in self._front.values():
            if one.since < old:
                self._add(one.record, TrialState.COMPLETE)

    def close(self) -> None:
        """Copy the remaining designs."""
        self._waiting.put(None)
        self._thread.join(OPEN_TRIAL_SECONDS)
        if self._thread.is_alive():
            self.problem = self.problem or "the storage is too slow: the rest is copied when the run is resumed"


class _OnFront(Struct, frozen=True):
    """A design that no other dominates so far."""

    record: Record
    losses: tuple[float, ...]
    since: float


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))


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


def _storage(url: str, run_dir: Path) -> optuna.storages.BaseStorage:
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
            from sqlalchemy.exc import IntegrityError

            # Another run may be creating the same tables or study.
            is_being_made = isinstance(error, IntegrityError) or "already exists" in str(error)
            being_made = is_being_made and time.monotonic() < until
            if "://" not in url or (attempt >= OPEN_ATTEMPTS and not being_made):
                raise StudyError(
                    f"cannot use the storage {without_password(url)}: {first_line(error)}",
                    hint=f"one of {_KINDS}; PostgreSQL needs `pip install allo-dse[postgresql]`",
                ) from error
            time.sleep(OPEN_SECONDS)
    raise AssertionError


def _cause(error: BaseException) -> BaseException:
    """Return the first of a chain of errors: Optuna guesses at a reason and hides the database's."""
    return error if error.__cause__ is None else _cause(error.__cause__)
