"""Drivers that share a study do not evaluate the same design twice, and take over from one that has died."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Barrier
from typing import Any, cast

import optuna
import pytest

from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.run import claims, sharing
from allo_dse.tune.run.claims import Claims
from allo_dse.tune.run.optuna_storage import SharedStudy
from allo_dse.tune.run.sharing import SharingExecutor
from allo_dse.tune.search.ladder import Rung
from allo_dse.tune.store.log import read_log
from allo_dse.tune.store.record import Measurement
from allo_dse.tune.study import Study
from allo_dse.tune.workers.executor import Job
from tests.tune.fakes import fake_study
from tests.tune.ray_evaluators import Noting, noted

from .test_optuna_storage import postgresql, server  # noqa: F401 (fixtures)

PARAMS = {"size": 256, "Pm": 4, "Pn": 4, "Pk": 4}
OPTIONS: dict[str, Any] = {"sampler": "exhaustive", "progress": "quiet", "verify": False}


class Expensive(Noting):
    name = "expensive"


class Together(Noting):
    """Two of them begin at the same time."""

    barrier = None

    def evaluate(self, design: Any) -> Metrics:
        if self.barrier is not None:
            self.barrier.wait()
            self.barrier = None
        return super().evaluate(design)


def study(notes: Path, rungs: Sequence[Rung] = (), barrier: Barrier | None = None) -> Study:
    return fake_study(
        evaluator=Together(notes, seconds=0.01, barrier=barrier), rungs=list(rungs), params=PARAMS, max_nodes=2
    )


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims whatever they cost: how long they take depends on what else the machine does."""
    monkeypatch.setattr(SharingExecutor, "_worth_claiming", lambda executor, rung: True)


@pytest.fixture
def claimed(tmp_path: str) -> Callable[..., Any]:
    made = optuna.create_study(study_name="claims", storage=f"sqlite:///{tmp_path}/claims.db")
    return lambda driver: Claims(optuna.load_study(study_name="claims", storage=made._storage), driver)


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "postgresql":
        return request.getfixturevalue("postgresql")
    return f"sqlite:///{tmp_path}/trials.db"


def run_together(
    tmp_path: Path, url: Any, made: Callable[..., Any], drivers: int = 2, barrier: Barrier | None = None
) -> Any:
    def drive(name: Path | str) -> None:
        try:
            made(name).run(10**6, run_dir=tmp_path / name, storage=url, **OPTIONS)
        except BaseException:
            if barrier is not None:  # who waits for this one would wait for ever
                barrier.abort()
            raise

    threads = [threading.Thread(target=drive, args=(f"driver{n}",)) for n in range(drivers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [read_log(tmp_path / f"driver{n}" / "log.jsonl").entries for n in range(drivers)]


def measured(entries: Any, rung: int = 0) -> Any:
    return [e for e in entries if e["type"] == "design" and e.get("rung", 0) == rung and e["status"] != "violation"]


def test_two_drivers_enumerate_a_space_and_evaluate_every_design_once(tmp_path: Path, url: Any, always: Any) -> None:
    expected = study(tmp_path / "alone").run(10**6, run_dir=tmp_path / "run", **OPTIONS).records
    notes = tmp_path / "notes"
    rungs = [Rung(partial(Expensive, tmp_path / "expensive", seconds=0.01), best=0.2)]
    barrier = threading.Barrier(2)
    logs = run_together(tmp_path, url, lambda name: study(notes, rungs, barrier), barrier=barrier)
    assert Counter(key for key, _ in noted(notes)) == Counter(r.key for r in expected)
    assert max(Counter(key for key, _ in noted(tmp_path / "expensive")).values()) == 1
    for entries in logs:
        assert {e["key"]: e["metrics"] for e in measured(entries)} == {r.key: r.metrics for r in expected}
        numbers = [e["number"] for e in measured(entries)]
        assert len(set(numbers)) == len(numbers) == len(expected)
        assert 0 < sum(not e.get("cached") for e in measured(entries)) < len(expected)
    higher = [e for entries in logs for e in measured(entries, 1)]
    assert {e["key"] for e in higher} == {key for key, _ in noted(tmp_path / "expensive")}
    assert sum(not e.get("cached") for e in higher) == len({e["key"] for e in higher})
    assert any(e.get("cached") for e in higher)
    metrics = {e["key"]: e["metrics"] for e in higher}
    assert all(e["metrics"] == metrics[e["key"]] for e in higher)
    storage = url.replace("postgresql://", "postgresql+psycopg://")
    for name in ("fake", "fake rung 1", "fake claims"):
        trials = optuna.load_study(study_name=name, storage=storage).get_trials()
        assert all(trial.state.is_finished() for trial in trials)
        keys = [trial.user_attrs.get("key") for trial in trials]
        assert name == "fake claims" or len(set(keys)) == len(keys)
        optuna.delete_study(study_name=name, storage=storage)


def test_the_designs_of_a_driver_that_died_are_taken_over(
    tmp_path: Path, always: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "STALE_SECONDS", 1.0)
    monkeypatch.setattr(sharing, "LOOK_SECONDS", 0.2)
    url, notes = f"sqlite:///{tmp_path}/trials.db", tmp_path / "notes"
    keys = [r.key for r in study(tmp_path / "alone").run(10**6, run_dir=tmp_path / "run", **OPTIONS).records]
    ghost = Claims(optuna.create_study(study_name="fake claims", storage=url), "ghost")
    assert ghost.claim([(0, key) for key in keys[:5]]) == {(0, key) for key in keys[:5]}
    (entries,) = run_together(tmp_path, url, lambda name: study(notes), drivers=1)
    begun = [key for key, _ in noted(notes)]
    assert Counter(begun) == Counter(keys)
    assert begun[0] not in keys[:5]
    assert len(measured(entries)) == len(keys)


def test_the_first_claim_holds_until_it_is_given_back(claimed: Any) -> None:
    a, b = claimed("a"), claimed("b")
    one, two, three = (0, "k1"), (0, "k2"), (1, "k1")
    assert a.claim([one, two]) == {one, two}
    assert b.claim([two, three]) == {three}
    assert b.held_by_others([one, two, three]) == {one, two}
    assert a.finished(one) == []
    (number,) = a.finished(two)
    a.release(number)
    assert b.held_by_others([one, two]) == set()
    assert b.claim([two]) == {two}
    again = claimed("b")  # restarted: what it held before is nobody's
    assert a.held_by_others([two, three]) == set()
    assert a.claim([three]) == {three}
    a.close()
    assert again.claim([three]) == {three}


def test_a_driver_is_alive_as_long_as_it_gives_signs_of_life(claimed: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    a, b = claimed("a"), claimed("b")
    a.claim([(0, "k")])
    for step in range(10):
        now[0] += claims.STALE_SECONDS / 4
        if step < 5:
            a.beat()
            assert b.held_by_others([(0, "k")])
    assert not b.held_by_others([(0, "k")])


def test_many_drivers_at_once_never_win_the_same_design(tmp_path: Path) -> None:
    url = f"journal:{tmp_path}/claims.journal"
    backend = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(url.partition(":")[2]))
    optuna.create_study(study_name="claims", storage=backend)
    won = {}

    def compete(driver: Any) -> None:
        own = Claims(optuna.load_study(study_name="claims", storage=backend), driver)
        won[driver] = [one for n in range(0, 40, 4) for one in own.claim([(0, str(k)) for k in range(n, n + 4)])]

    threads = [threading.Thread(target=compete, args=(f"d{n}",)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert Counter(one for each in won.values() for one in each) == Counter((0, str(k)) for k in range(40))


def test_cheap_evaluations_are_not_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def slowly(shared: Any, wanted: Any) -> Any:
        asked.append(wanted)
        time.sleep(0.5)
        return set(wanted)

    monkeypatch.setattr(SharedStudy, "claim", slowly)
    url = f"sqlite:///{tmp_path}/trials.db"
    fake_study(params=PARAMS).run(40, run_dir=tmp_path / "run", storage=url, **OPTIONS)
    assert len(asked) == 1


class Breaking:
    """A storage that is gone after the first claim, which somebody else holds."""

    def __init__(self) -> None:
        self.broken = False

    def claim(self, wanted: Any) -> Any:
        return set(wanted) if self.broken else set()

    def claimed_by_others(self, wanted: Any) -> Any:
        self.broken = True
        return set()

    def result(self, rung: Any, key: Any) -> None:
        return None


def test_what_was_left_to_others_is_evaluated_when_the_storage_breaks(monkeypatch: pytest.MonkeyPatch) -> None:
    class Inner:
        def news(self) -> Any:
            return []

        def __init__(self) -> None:
            self.jobs: list[Any] = []

        def outstanding(self, rung: int | None = None) -> Any:
            return len(self.jobs)

        def submit(self, jobs: Any) -> None:
            self.jobs += jobs

        def collect(self) -> Any:
            done, self.jobs = self.jobs, []
            return [Measurement(number=job.number, rung=job.rung, metrics={}, seconds=0.1) for job in done]

        def finished(self) -> Any:
            return []

    monkeypatch.setattr(sharing, "LOOK_SECONDS", 0.2)
    executor = SharingExecutor(cast(Any, Inner()), cast(Any, Breaking()))
    candidate = type("Candidate", (), {"key": "k"})()
    executor.submit([Job(7, 0, candidate)])
    assert executor.outstanding() == executor.outstanding(0) == 1
    assert executor.collect() == executor.collect() == []
    (said,) = executor.news()
    assert "waiting for 1 design(s) that other drivers are evaluating" in said
    end = time.monotonic() + 60
    found: list[Any] = []
    while not found and time.monotonic() < end:
        found = executor.collect()
    assert [measured.number for measured in found] == [7]
    assert executor.outstanding() == 0
