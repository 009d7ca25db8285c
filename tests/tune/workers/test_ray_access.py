"""What comes before Ray, and around it."""

import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from allo_dse.tune.run import session
from allo_dse.tune.search.budget import SIGNALS, StepLeft, StopSignals
from allo_dse.tune.workers import ray_access
from allo_dse.tune.workers.ray_access import undisturbed
from tests.tune.fakes import fake_study


def start(number: signal.Signals, said: list[str]) -> None:
    """As Ray does, which takes signals for itself, and gets two meanwhile."""
    with undisturbed():
        signal.signal(number, lambda *_: sys.exit(1))
        signal.raise_signal(number)
        signal.raise_signal(number)
        said.append("started")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_waits_until_ray_has_started_or_ended(number: signal.Signals) -> None:
    said: list[str] = []
    with StopSignals(patience_seconds=60) as stop:
        handlers = {each: signal.getsignal(each) for each in SIGNALS}
        with pytest.raises(KeyboardInterrupt, match=SIGNALS[number]):
            start(number, said)
        assert said == ["started"]
        assert stop.requested == SIGNALS[number]
        assert {each: signal.getsignal(each) for each in SIGNALS} == handlers


def test_a_run_that_is_left_before_it_has_workers_writes_its_results(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recruit(*given: Any) -> None:
        raise StepLeft("SIGTERM")

    made = fake_study()
    made.run(5, run_dir=tmp_path, progress="quiet", verify=False)
    written = (tmp_path / "pareto.csv").read_text()
    (tmp_path / "pareto.csv").unlink()
    monkeypatch.setattr(session, "recruit", recruit)
    made.run(10, run_dir=tmp_path, progress="quiet", verify=False)
    assert (tmp_path / "pareto.csv").read_text() == written


def test_a_stop_does_not_wait_for_a_cluster_that_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_access, "PUT_OFF_SECONDS", -1.0)
    said: list[str] = []
    with StopSignals(patience_seconds=60), pytest.raises(KeyboardInterrupt):
        start(signal.SIGTERM, said)
    assert not said
