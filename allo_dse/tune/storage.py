"""The same trials in an Optuna storage: for Optuna's own tools, and for several drivers that share a study.

The log of a run stays the truth; a thread copies finished designs to the storage and looks there for those of other
drivers, so that the storage never sets the pace. What a killed driver had not copied is copied when it resumes.
"""

from __future__ import annotations

import queue
import re
import socket
import threading
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import StudyError
from ..space.encoding import Gene
from .driver import Judge
from .log import stored
from .objectives import Objective
from .record import Record

if TYPE_CHECKING:
    import optuna

LOOK_SECONDS = 1.0  # between looks for the designs of others
CLOSE_SECONDS = 60.0  # for the last designs to be copied
OPEN_ATTEMPTS, OPEN_SECONDS = 3, 0.5
JOURNAL = "journal"
_IDENTITY = "allo_dse"
_KINDS = "postgresql://..., sqlite:///file.db, mysql://..., journal or journal:FILE"


@dataclass(frozen=True)
class Foreign:
    """A design that another driver has evaluated."""

    key: str
    genes: dict[str, int]
    metrics: dict[str, Any] | None
    error: str | None
    driver: str


class SharedStudy:
    """A study in an Optuna storage, which this driver writes to and learns from.

    Args:
        identity: what must be the same for drivers to share the study.
        genes: range of every gene met so far; kept up to date by others.

    Raises:
        StudyError: when the storage cannot be opened, or holds another study of that name.
    """

    def __init__(
        self, url: str, name: str, run_dir: Path, identity: dict[str, Any], judge: Judge, genes: Mapping[str, Gene]
    ) -> None:
        self._judge, self._genes = judge, genes
        self.driver = f"{socket.gethostname()}:{uuid.uuid4().hex[:8]}"
        self._study = _open(url, name, run_dir, judge.objectives)
        self._same(url, identity)
        self._seen = 0  # trials looked at: Optuna numbers them without gaps
        self._keys: set[str] = set()
        self._outbox: queue.SimpleQueue[Record | None] = queue.SimpleQueue()
        self._inbox: queue.SimpleQueue[Foreign] = queue.SimpleQueue()
        self.problem = ""
        self._look()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _same(self, url: str, identity: dict[str, Any]) -> None:
        identity = stored(identity)
        there = self._study.user_attrs.get(_IDENTITY)
        if there is None and not self._study.get_trials(deepcopy=False):
            self._study.set_user_attr(_IDENTITY, identity)
        elif there != identity:
            differences = [n for n in identity if (there or {}).get(n) != identity[n]]
            raise StudyError(
                f"{without_password(url)} holds another study named {self._study.study_name!r}: "
                f"{', '.join(differences)} differ",
                hint="give the study another name, or use another storage",
            )

    def put(self, record: Record) -> None:
        """Copy a design of this driver's log, soon."""
        if record.evaluated and not record.rung:
            self._outbox.put(record)

    def news(self) -> list[Foreign]:
        """Designs of other drivers since it was last asked."""
        found = []
        while not self._inbox.empty():
            found.append(self._inbox.get())
        return found

    def _work(self) -> None:
        looked = time.monotonic()
        try:
            while True:
                if time.monotonic() - looked >= LOOK_SECONDS:
                    self._look()
                    looked = time.monotonic()
                try:
                    record = self._outbox.get(timeout=LOOK_SECONDS)
                except queue.Empty:
                    continue
                if record is None:
                    return
                self._copy(record)
        except Exception as error:  # the run goes on: its log has everything
            self.problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"

    def _copy(self, record: Record) -> None:
        if record.key in self._keys:
            return
        self._keys.add(record.key)
        self._study.add_trial(self._trial(record))

    def _trial(self, record: Record) -> optuna.trial.FrozenTrial:
        import optuna

        from ..space.samplers import distribution

        told = self._judge.told(record)
        state = optuna.trial.TrialState.COMPLETE if told.values else optuna.trial.TrialState.FAIL
        return optuna.trial.create_trial(
            state=state,
            values=list(told.values) if told.values else None,
            params=dict(record.genes),
            distributions={name: distribution(self._genes[name]) for name in record.genes},
            constraints=dict(told.constraints),
            user_attrs={
                "key": record.key, "driver": self.driver, "params": record.params, "evaluator": record.evaluator,
                "metrics": record.metrics, "error": record.error, "seconds": record.seconds,
            },
        )  # fmt: skip

    def _look(self) -> None:
        """Take in what is new in the storage."""
        trials = self._study.get_trials(deepcopy=False)
        for trial in trials[self._seen :]:
            if not trial.state.is_finished():
                break  # somebody else's, by Optuna's own tools: look again
            self._seen += 1
            attributes = trial.user_attrs
            key = attributes.get("key")
            if key is None or key in self._keys:
                continue
            self._keys.add(key)
            self._inbox.put(
                Foreign(key, dict(trial.params), attributes.get("metrics"), attributes.get("error"),
                        str(attributes.get("driver")))
            )  # fmt: skip

    def close(self) -> None:
        """Copy what is left."""
        self._outbox.put(None)
        self._thread.join(CLOSE_SECONDS)
        if self._thread.is_alive():
            self.problem = self.problem or "the storage is too slow: the rest is copied when the run is resumed"


def without_password(url: str) -> str:
    """A storage's address as it may be shown and written down."""
    return re.sub(r"(://[^/@:]*):[^/@]*@", r"\1:***@", url)


def _open(url: str, name: str, run_dir: Path, objectives: Sequence[Objective]) -> optuna.Study:
    """The study, made where there is none. Drivers that start together may make it, and its tables, at once."""
    for attempt in range(OPEN_ATTEMPTS):
        try:
            return _open_once(url, name, run_dir, objectives)
        except StudyError:
            if attempt == OPEN_ATTEMPTS - 1 or "://" not in url:
                raise
            time.sleep(OPEN_SECONDS)
    raise AssertionError


def _open_once(url: str, name: str, run_dir: Path, objectives: Sequence[Objective]) -> optuna.Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        storage: Any = url
        if url == JOURNAL or url.startswith(f"{JOURNAL}:"):
            file = url.partition(":")[2] or str(run_dir / "optuna.journal")
            storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(file))
        elif "://" not in url:
            raise StudyError(f"{url!r} is not a storage", hint=f"one of {_KINDS}")
        elif url.startswith("postgresql://"):
            storage = url.replace("postgresql://", "postgresql+psycopg://", 1)
        return optuna.create_study(
            study_name=name, storage=storage, directions=[o.direction for o in objectives], load_if_exists=True
        )
    except StudyError:
        raise
    except Exception as error:  # each database has its own
        raise StudyError(
            f"cannot use the storage {without_password(url)}: {str(error).strip().splitlines()[0]}",
            hint=f"one of {_KINDS}; PostgreSQL needs `pip install allo-dse[postgresql]`",
        ) from error
