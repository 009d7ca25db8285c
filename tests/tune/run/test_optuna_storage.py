"""A copy of the trials in an Optuna storage."""

import getpass
import os
import re
import shutil
import sqlite3
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy.exc import IntegrityError, OperationalError, ProgrammingError

from allo_dse.common.errors import StudyError
from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.run import optuna_storage
from allo_dse.tune.run.optuna_storage import without_password
from allo_dse.tune.search.promotion import Rung
from allo_dse.tune.study import Study

from ..fakes import FakeEvaluator, fake_study


class Breaks(FakeEvaluator):
    def evaluate(self, design: Any) -> Metrics:
        if int(design.key, 16) % 4 == 0:
            raise RuntimeError("no licence")
        return super().evaluate(design)


def run(study: Study, run_dir: Path, storage: Any, trials: int = 30, **options: Any) -> Any:
    """Run without the model of the search, which takes longer than all the rest and knows no storage."""
    options = {"modelled": 0, "progress": "quiet", "verify": False, **options}
    return study.run(trials, run_dir=run_dir, storage=storage, **options)


def opened(url: Any) -> Any:
    """Open a storage anew, as another process does. Its tables are there: a run has made and compared them."""
    storage: Any
    if url.startswith("journal:"):
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(url.partition(":")[2]))
    else:
        url = url.replace("postgresql://", "postgresql+psycopg://")
        storage = optuna.storages.RDBStorage(url, skip_compatibility_check=True, skip_table_creation=True)
    return optuna.load_study(study_name="fake", storage=storage)


class Postgresql:
    """A server of its own, which can be stopped and started."""

    def __init__(self, folder: Path, tools: Path, prefix: list[str]) -> None:
        self.url = f"postgresql://tuner@/postgres?host={folder}"
        self._folder, self._tools, self._prefix = folder, tools, prefix
        self._call("initdb", "-D", folder / "data", "-A", "trust", "-U", "tuner", "--no-sync")

    def start(self) -> None:
        settings = f"-c listen_addresses='' -c unix_socket_directories={self._folder} -c fsync=off"
        self._call("pg_ctl", "-D", self._folder / "data", "-o", settings, "-l", self._folder / "log", "-w", "start")

    def stop(self) -> None:
        self._call("pg_ctl", "-D", self._folder / "data", "-m", "immediate", "stop")

    def _call(self, tool: str, *arguments: Path | str) -> None:
        command = [*self._prefix, str(self._tools / tool), *map(str, arguments)]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def server() -> Iterator[Postgresql]:
    """A server of its own: Debian's package, as the user postgres, in a directory, on a socket."""
    pytest.importorskip("psycopg")
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")) if Path("/usr/lib/postgresql").exists() else []
    if not found:
        pytest.skip("PostgreSQL is not installed: apt install postgresql")
    if os.geteuid() == 0 and not shutil.which("runuser"):
        pytest.skip("PostgreSQL does not run as root, and there is no runuser")
    folder = Path(f"/tmp/allo-dse-postgresql-{os.getpid()}")
    folder.mkdir()
    user = "postgres" if os.geteuid() == 0 else getpass.getuser()
    if os.geteuid() == 0:
        shutil.chown(folder, user)
    prefix = ["runuser", "-u", user, "--"] if os.geteuid() == 0 else []
    made = Postgresql(folder, found[-1].parent, prefix)
    made.start()
    try:
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def postgresql(server: Postgresql) -> str:
    return server.url


@pytest.fixture(params=["sqlite", "journal", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql")
    return f"sqlite:///{tmp_path}/trials.db" if request.param == "sqlite" else f"journal:{tmp_path}/trials.journal"


def test_the_storage_has_the_trials_of_the_log_and_resuming_adds_what_is_missing(tmp_path: Path, url: Any) -> None:
    study = fake_study(evaluator=Breaks)
    result = run(study, tmp_path / "run", url, 12)
    loaded = opened(url)
    trials = loaded.get_trials()
    assert [t.user_attrs["key"] for t in trials] == [r.key for r in result.records]
    for trial, record in zip(trials, result.records, strict=True):
        if record.status == "ok":
            assert trial.state == TrialState.PRUNED or trial.values == list(record.values.values())
            assert trial.user_attrs["metrics"] == record.metrics
        else:
            assert trial.state == TrialState.FAIL
            assert trial.user_attrs["error"] == "RuntimeError: no licence"
        assert {name: trial.params[name] for name in study.parameters.free} == {
            name: record.params[name] for name in study.parameters.free
        }
    assert {t.user_attrs["key"] for t in loaded.best_trials} == {design.key for design in result.front}
    assert loaded.metric_names == [objective.name for objective in study.objectives]
    assert [summary.study_name for summary in optuna.get_all_study_summaries(loaded._storage)] == ["fake"]
    run(study, tmp_path / "run", None, 15)
    result = run(fake_study(evaluator=Breaks), tmp_path / "run", url, 18)
    loaded = opened(url)
    assert Counter(t.user_attrs["key"] for t in loaded.get_trials()) == Counter(r.key for r in result.records)
    optuna.delete_study(study_name="fake", storage=loaded._storage)


def test_runs_of_one_study_copy_what_is_not_in_the_storage_yet(tmp_path: Path, url: Any) -> None:
    run(fake_study(), tmp_path / "first", url, 12, seed=1)
    second = run(fake_study(), tmp_path / "second", url, 24, seed=1)
    loaded = opened(url)
    assert [trial.user_attrs["key"] for trial in loaded.get_trials()] == [record.key for record in second.records]
    optuna.delete_study(study_name="fake", storage=loaded._storage)


def test_runs_that_share_a_storage_do_not_affect_each_other(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    alone = run(fake_study(), tmp_path / "alone", None, 24, seed=2, modelled=None)
    run(fake_study(), tmp_path / "first", url, 24, seed=1, modelled=None)
    second = run(fake_study(), tmp_path / "second", url, 24, seed=2, modelled=None)
    assert [record.key for record in second.records] == [record.key for record in alone.records]


class Precise(FakeEvaluator):
    """Like the first evaluator, except that it rejects some designs and reverses the order of others."""

    name = "precise"

    def evaluate(self, design: Any) -> Metrics:
        if int(design.key, 16) % 3 == 0:
            raise RuntimeError("rejected")
        found = dict(super().evaluate(design))
        return Metrics(**{**found, "latency_us": 1e6 / found["latency_us"]})


def test_the_best_trials_of_a_study_with_rungs_are_its_front(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    study = fake_study(rungs=[Rung(Precise, best=0.5)])
    run(study, tmp_path / "run", url, 12)
    result = run(study, tmp_path / "run", url, 24)
    assert any(record.rung for record in result.records)
    loaded = opened(url)
    assert optuna.get_all_study_names(loaded._storage) == ["fake"]
    assert {t.user_attrs["key"] for t in loaded.best_trials} >= {design.key for design in result.front}
    assert {t.state for t in loaded.trials} == {TrialState.COMPLETE, TrialState.PRUNED, TrialState.FAIL}
    assert {t.user_attrs["key"] for t in result.optuna_study.best_trials} == {design.key for design in result.front}


def test_another_study_of_the_name_is_refused(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    run(fake_study(), tmp_path / "a", url, 3)
    with pytest.raises(StudyError, match="program differ"):
        run(fake_study(salt="x"), tmp_path / "b", url, 3)


@pytest.mark.parametrize("url", ["trials.db", "sqlite:////nowhere/x.db", "oracle://x"])
def test_storages_that_cannot_be_used_are_explained(tmp_path: Path, url: str) -> None:
    with pytest.raises(StudyError, match="storage") as caught:
        run(fake_study(), tmp_path / "run", url, 3)
    assert "sqlite:///" in caught.value.hint


ADDRESS = "sqlite:///shared.db"


class Meets:
    """An action on a storage that meets an error some times."""

    def __init__(self, error: Exception, times: int) -> None:
        self.error, self.times, self.tried = error, times, 0

    def __call__(self) -> str:
        self.tried += 1
        if self.tried <= self.times:
            raise self.error
        return "open"


@pytest.mark.parametrize(
    "error",
    [
        IntegrityError("INSERT", {}, Exception("UNIQUE constraint failed: alembic_version.version_num")),
        ProgrammingError("CREATE", {}, Exception('relation "studies" already exists')),
    ],
)
def test_tables_that_another_run_makes_are_waited_for(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optuna_storage, "OPEN_SECONDS", 0.0)
    assert optuna_storage._patiently(ADDRESS, Meets(error, 20)) == "open"
    monkeypatch.setattr(optuna_storage, "MAKING_SECONDS", 0.0)
    with pytest.raises(StudyError, match=r"cannot use the storage sqlite:///shared\.db"):
        optuna_storage._patiently(ADDRESS, Meets(error, 20))


def test_a_storage_that_is_not_there_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optuna_storage, "OPEN_SECONDS", 0.0)
    action = Meets(OperationalError("SELECT 1", {}, Exception("connection refused")), 20)
    with pytest.raises(StudyError, match="connection refused"):
        optuna_storage._patiently(ADDRESS, action)
    assert action.tried == optuna_storage.OPEN_ATTEMPTS


def test_passwords_are_not_written_down(tmp_path: Path) -> None:
    assert without_password("postgresql://me:secret@host/db") == "postgresql://me:***@host/db"
    assert without_password("sqlite:///x.db") == "sqlite:///x.db"


def test_a_server_that_is_lost_during_a_run_gets_what_it_missed(tmp_path: Path, server: Postgresql) -> None:
    class Stops(FakeEvaluator):
        evaluated = 0

        def evaluate(self, design: Any) -> Metrics:
            Stops.evaluated += 1
            if Stops.evaluated == 6:
                server.stop()
            return super().evaluate(design)

    try:
        result = run(fake_study(evaluator=Stops), tmp_path / "run", server.url, 20)
    finally:
        server.start()
    assert [record.status for record in result.records] == ["ok"] * 20
    result = run(fake_study(), tmp_path / "run", server.url, 24)
    loaded = opened(server.url)
    keys = [trial.user_attrs["key"] for trial in loaded.get_trials()]
    assert Counter(keys) == Counter(record.key for record in result.records)
    assert len(keys) == 24
    optuna.delete_study(study_name="fake", storage=loaded._storage)


def test_a_storage_that_breaks_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: Any, *arguments: Any) -> None:
        raise OSError("connection lost")

    monkeypatch.setattr(optuna_storage.StorageCopy, "_add", broken)
    result = run(fake_study(), tmp_path / "run", f"sqlite:///{tmp_path}/x.db", 20, progress="plain")
    assert len(result.records) == 20
    assert "not every design is in the storage: OSError: connection lost" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["locked", "deleted", "overwritten"])
def test_a_database_that_is_lost_during_a_run_costs_no_design(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "trials.db"
    seconds, held = 0.2 if what == "locked" else 60, []  # SQLite waits so long for a lock
    url = f"sqlite:///{file}?timeout={seconds}"
    monkeypatch.setattr(optuna_storage, "OPEN_SECONDS", 0.0)

    class Loses(FakeEvaluator):
        evaluated = 0

        def evaluate(self, design: Any) -> Metrics:
            Loses.evaluated += 1
            if Loses.evaluated == 6 and what == "locked":
                held.append(sqlite3.connect(file, timeout=60, check_same_thread=False))
                held[0].execute("BEGIN EXCLUSIVE")
            elif Loses.evaluated == 6 and what == "deleted":
                file.unlink()
            elif Loses.evaluated == 6:
                file.write_bytes(b"no database " * 999)
            return super().evaluate(design)

    result = run(fake_study(evaluator=Loses), tmp_path / "run", url, 12, progress="plain")
    assert [record.status for record in result.records] == ["ok"] * 12
    said = capsys.readouterr().err
    reasons = {
        "locked": "database is locked",
        "deleted": "readonly database",
        "overwritten": "not a database|malformed",
    }
    assert re.search(f"not every design is in the storage: .*({reasons[what]})", said), said
    for connection in held:
        connection.close()
    url = f"sqlite:///{file}?timeout=60"
    if what == "overwritten":
        with pytest.raises(StudyError, match=r"cannot use the storage sqlite:///.*not a database"):
            run(fake_study(), tmp_path / "run", url, 14)
        file.unlink()
    result = run(fake_study(), tmp_path / "run", url, 14)
    keys = [trial.user_attrs["key"] for trial in opened(url).get_trials()]
    assert Counter(keys) == Counter(record.key for record in result.records)
    assert len(keys) == 14
