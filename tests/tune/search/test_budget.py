import os
import signal
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.common.errors import StudyError
from allo_dse.tune.search.budget import SIGNALS, Budget, StepLeft, StopSignals, parse_duration, parse_share
from allo_dse.tune.search.objectives import maximize, minimize
from allo_dse.tune.search.pareto_front import ParetoFront, hypervolume
from allo_dse.tune.search.promotion import Rung

from ...support.values import present
from ..fakes import FakeEvaluator, fake_study
from .test_exact import Bounded, run, small


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("90s", 90),
        ("5m", 300),
        ("1h30m", 5400),
        ("250ms", 0.25),
        ("1.5 min", 90),
        ("2d", 172800),
        ("42", 42),
        (7, 7),
        (0.5, 0.5),
    ],
)
def test_durations(text: int | str, seconds: int) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "fast", "5x", "-3s", "0", "1h 2", "nan", "inf"])
def test_what_is_no_duration(text: str) -> None:
    with pytest.raises(StudyError):
        parse_duration(text)


@given(st.integers(1, 10**6))
def test_seconds_are_read_back(n: Any) -> None:
    assert parse_duration(f"{n}s") == n


def test_budget_counts_earlier_trials() -> None:
    budget = Budget(trials=10, seconds=None)
    assert [budget.trials_left(n) for n in (0, 9, 10, 12)] == [10, 1, 0, 0]
    spent = Budget(trials=None, seconds=1e-9)
    assert [spent.trials_left(n) for n in (0, 1, 9)] == [1, 0, 0]  # a run always has a result


def test_first_signal_asks_second_interrupts_and_handlers_return() -> None:
    before = signal.getsignal(signal.SIGINT)
    with StopSignals() as stop:
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.requested == "Ctrl-C"
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before
    for number, name in SIGNALS.items():
        with StopSignals() as stop:
            os.kill(os.getpid(), number)
            assert stop.requested == name
            with pytest.raises(KeyboardInterrupt, match=name):
                os.kill(os.getpid(), number)


def test_a_run_goes_on_without_its_terminal_where_that_was_wanted() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stop.requested
    finally:
        signal.signal(signal.SIGHUP, before)


def for_ever() -> None:
    while True:
        pass


def test_a_step_that_does_not_end_is_left_where_that_is_allowed() -> None:
    with StopSignals(patience_seconds=0.01) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        while not stop.insisted:  # nothing is left outside
            pass
        with pytest.raises(StepLeft, match="SIGTERM"), stop.leaving():
            for_ever()
        with pytest.raises(StepLeft), stop.leaving():
            os.read(os.pipe()[0], 1)  # waits in the operating system


def test_no_signal_is_sent_once_the_handlers_are_others(monkeypatch: pytest.MonkeyPatch) -> None:
    left, ended, sent = threading.Event(), threading.Event(), list[object]()
    answers = iter([False, True])

    class Over(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            left.wait()
            if answer := next(answers):
                ended.set()
            return answer

    monkeypatch.setattr(signal, "pthread_kill", lambda *given: sent.append(given))
    with StopSignals() as stop:
        stop._over = Over()
        os.kill(os.getpid(), signal.SIGTERM)
    left.set()
    assert ended.wait(60)
    assert not sent


def like_a_library(makes: BaseException) -> None:
    try:
        for_ever()
    except KeyboardInterrupt:
        raise makes from None


@pytest.mark.parametrize("makes", [ImportError("a module could not be initialised"), KeyboardInterrupt()])
def test_a_library_that_makes_an_error_of_the_interrupt_is_left_too(makes: BaseException) -> None:
    """As imports of C libraries do, and callbacks from them, and Ray where it waits."""
    with StopSignals(patience_seconds=0.01) as stop:
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(StepLeft, match="SIGTERM"), stop.leaving():
            like_a_library(makes)


def test_errors_of_a_step_that_is_not_left_stay_what_they_are() -> None:
    with StopSignals(patience_seconds=60) as stop, pytest.raises(ImportError), stop.leaving():
        raise ImportError("no such module")


# -- results that end a run --


@pytest.mark.parametrize(("text", "share"), [("5%", 0.05), (0.2, 0.2), ("0", 0.0), (" 2.5 % ", 0.025)])
def test_shares(text: Any, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["", "five", "120%", "-1%", 1.0])
def test_what_is_no_share(text: Any) -> None:
    with pytest.raises(StudyError, match="is not a share"):
        parse_share(text)


def evolved(path: Path, **options: Any) -> Any:
    return fake_study(objectives=[minimize("latency_us")], **options.pop("study", {})).run(
        run_dir=path, sampler="evolution", verify=False, export=False, progress="quiet", **options
    )


def test_a_run_ends_at_its_target(tmp_path: Path) -> None:
    whole = evolved(tmp_path / "whole", trials=60, children=1)
    values = [whole.values[r.key][0] for r in whole.records if r.key in whole.values]
    goal = sorted(values)[len(values) // 4]
    ended = evolved(tmp_path / "ended", trials=60, children=1, target={"latency_us": goal})
    assert ended.stopped == "target"
    assert [r.key for r in ended.records] == [r.key for r in whole.records][: len(ended.records)]
    assert ended.best("latency_us").values["latency_us"] <= goal
    assert sum(ended.values[r.key][0] <= goal for r in ended.records if r.key in ended.values) == 1
    assert (
        evolved(tmp_path / "ended", trials=60, children=1, target={"latency_us": goal}).records[:] == ended.records[:]
    )
    with pytest.raises(StudyError, match="'power' is no objective"):
        evolved(tmp_path / "other", target={"power": 1.0})


def test_a_target_is_met_by_the_last_evaluator(tmp_path: Path) -> None:
    class Slow(FakeEvaluator):
        name = "slow"

        def evaluate(self, design: Any) -> Any:
            found = super().evaluate(design)
            return type(found)(**{**dict(found), "latency_us": 2 * found.latency_us})

    rungs = {"rungs": [Rung(Slow, best=0.2)]}
    cheap = evolved(tmp_path / "cheap", trials=20)
    best = cheap.best("latency_us").values["latency_us"]
    ended = evolved(tmp_path / "ended", trials=20, target={"latency_us": 1.5 * best}, study=rungs)
    assert ended.stopped == "trials"
    ended = evolved(tmp_path / "met", trials=20, target={"latency_us": 2 * best}, study=rungs)
    assert ended.stopped == "target"


def test_a_search_ends_when_its_patience_is_spent(tmp_path: Path) -> None:
    ended = evolved(tmp_path / "run", trials=500, patience=12)
    losses = np.array([ended.values.get(r.key, (np.inf,))[0] for r in ended.records])
    assert ended.stopped == "patience"
    assert 12 < len(losses) - losses.argmin() <= 16  # designs of a generation that are under way are still evaluated


def test_a_search_ends_when_its_gap_is_proven(tmp_path: Path) -> None:
    loose = run(small(evaluator=Bounded), tmp_path / "loose", gap="50%")
    closed = run(small(evaluator=Bounded), tmp_path / "closed")
    assert loose.stopped == "gap"
    assert len(loose.records) < len(closed.records)
    assert loose.certificate is not None
    assert all(gap.share is not None and gap.share <= 0.5 for gap in loose.certificate.gaps)
    with pytest.raises(StudyError, match="gap= needs bounds"):
        run(small(evaluator=FakeEvaluator), tmp_path / "none", gap=0.1)


def test_thresholds_bound_the_front_and_its_hypervolume() -> None:
    front, rng = ParetoFront(2, [0.5, np.inf]), np.random.default_rng(0)
    points = rng.random((60, 2)) + np.array((0.6, 0.0))
    for n, point in enumerate(points[:30]):
        front.add(f"out {n}", point)
    assert front.keys  # better than nothing
    inside = rng.random((60, 2)) / [2, 1]
    for n, point in enumerate((*inside, *points[30:])):
        front.add(f"in {n}", point)
    kept = np.array(front.losses)
    assert (kept[:, 0] <= 0.5).all()
    assert present(front.reference)[0] == 0.5
    assert front.hypervolume == pytest.approx(hypervolume(front._scale(inside), np.ones(2)))


def test_designs_beyond_a_threshold_are_not_on_the_front(tmp_path: Path) -> None:
    plain = fake_study(objectives=[minimize("latency_us"), minimize("pe_count")])
    whole = plain.run(40, run_dir=tmp_path / "run", verify=False, export=False, progress="quiet")
    worst = sorted(design.values["latency_us"] for design in whole.front)[len(whole.front) // 2]
    cut = fake_study(objectives=[minimize("latency_us", threshold=worst), minimize("pe_count")])
    some = cut.run(40, run_dir=tmp_path / "run", verify=False, export=False, progress="quiet")
    assert some.front_keys == [d.key for d in whole.front if d.values["latency_us"] <= worst]
    assert maximize("pe_count", threshold=3.0).most_loss == -3.0
    with pytest.raises(StudyError, match="the threshold nan is no number"):
        minimize("latency_us", threshold=float("nan"))
