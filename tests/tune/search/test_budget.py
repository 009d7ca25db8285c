import os
import signal
import threading
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.common.errors import StudyError
from allo_dse.tune.search.budget import SIGNALS, Budget, StepLeft, StopSignals, parse_duration


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
