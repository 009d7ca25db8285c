"""What comes before Ray, and around it."""

import os
import signal
import socket
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import ray

from allo_dse.common.errors import StudyError
from allo_dse.eval.evaluator import needs
from allo_dse.tune.run import session
from allo_dse.tune.search.budget import SIGNALS, StepLeft, StopSignals
from allo_dse.tune.workers import ray_access
from allo_dse.tune.workers.ray_access import undisturbed
from allo_dse.tune.workers.ray_executor import RayExecutor

from ..fakes import fake_study


def start(number: signal.Signals, said: list[str], seconds: float = 60) -> None:
    """As Ray does, which takes signals for itself, and gets two meanwhile."""
    with undisturbed(seconds):
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
    def set_up_executor(*given: Any) -> None:
        raise StepLeft("SIGTERM")

    made = fake_study()
    made.run(5, run_dir=tmp_path, progress="quiet", verify=False)
    written = (tmp_path / "pareto.csv").read_text()
    (tmp_path / "pareto.csv").unlink()
    monkeypatch.setattr(session, "set_up_executor", set_up_executor)
    made.run(10, run_dir=tmp_path, progress="quiet", verify=False)
    assert (tmp_path / "pareto.csv").read_text() == written


def test_a_stop_does_not_wait_for_a_cluster_that_is_silent() -> None:
    said: list[str] = []
    with StopSignals(patience_seconds=60), pytest.raises(KeyboardInterrupt):
        start(signal.SIGTERM, said, seconds=-1)
    assert not said


@pytest.mark.parametrize("gets_far", [False, True])
def test_only_logs_of_what_failed_outlast_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gets_far: bool) -> None:
    def init(*, _temp_dir: str, **options: Any) -> None:
        if gets_far:
            (Path(_temp_dir) / "session_latest" / "logs").mkdir(parents=True)
        raise RuntimeError("no memory")

    monkeypatch.setattr(ray, "init", init)
    monkeypatch.setattr(ray_access, "LONGEST_TMPDIR", 1000)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / "new"))
    made = fake_study()
    with pytest.raises(StudyError, match="no memory") as caught:
        RayExecutor(made, [needs(made.make_evaluator())], 2, None)
    logs = list(tmp_path.glob("new/*/*/session_latest/logs"))
    assert [str(place) in str(caught.value) for place in logs] == [True] * gets_far
    assert len(list(tmp_path.glob("new/*"))) == gets_far


@pytest.mark.parametrize(
    ("answer", "says"), [(None, "no answer in 0 s"), (b"HTTP/1.1 400\r\n", "no Ray cluster"), (b"", "no Ray cluster")]
)
def test_what_is_no_cluster_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, answer: bytes | None, says: str) -> None:
    monkeypatch.setattr(ray_access, "KNOCK_SECONDS", 300.0 if answer is not None else 0.05)
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(64)
                if answer is not None:
                    connection.sendall(answer)
                else:
                    connection.recv(1)  # until it is given up

        with ThreadPoolExecutor(1) as pool:
            pool.submit(serve)
            with pytest.raises(StudyError, match=says):
                ray_access.reach(f"127.0.0.1:{server.getsockname()[1]}")


def test_a_folder_of_a_driver_that_was_killed_goes_when_the_next_one_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_access, "LONGEST_TMPDIR", 1000)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    alive, killed, failed = (ray_access.RayFolder() for _ in range(3))
    for folder in (alive, killed, failed):
        folder.make()
    (Path(failed.path) / "session_latest" / "logs").mkdir(parents=True)
    failed.with_logs("it failed")
    for folder in (killed, failed):
        os.close(folder._driver)
    (tmp_path / "ray-of-others").mkdir()
    (tmp_path / "ray-begun").mkdir()
    (tmp_path / "ray-begun" / ray_access.DRIVER).touch()
    ray_access.RayFolder().make()
    kept = {"ray-of-others", "ray-begun", Path(alive.path).parent.name, Path(failed.path).parent.name}
    assert {one.name for one in tmp_path.iterdir()} > kept
    assert not Path(killed.path).parent.exists()
    monkeypatch.setattr(os, "getuid", lambda: -1)  # somebody else
    os.close(alive._driver)
    ray_access.RayFolder().make()
    assert Path(alive.path).exists()


def test_sockets_of_ray_fit_below_the_longest_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path / ("long" * 10)))
    folder = ray_access.RayFolder()
    made = Path(folder.make())
    folder.remove()
    assert (made.parents[1], made.parent.exists()) == (Path("/tmp"), False)
    longest = made.relative_to("/tmp") / "session_2026-01-01_00-00-00_000000_4194304" / "sockets" / "plasma_store"
    assert ray_access.LONGEST_TMPDIR + len(f"/{longest}") <= 107
