"""Worker processes on a cluster: the same is found there, and what goes wrong is explained."""

import os
import signal
import socket
import subprocess
import sys
import uuid
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.tune.search.promotion import Rung
from allo_dse.tune.workers.pool import AHEAD, MAX_BATCH, MAX_WORKER_FAILURES, Pool, Task

from ...support.values import present
from ..hazards import Hazard, own_processes, wait_until
from ..ray_evaluators import Deadly, HangsInAWorker, OnNothing, OnTheBoard, hurried_study, is_deadly, noted
from .conftest import EXHAUSTIVE, ray_files, study


def test_workers_find_the_same_and_a_crash_costs_one_trial(tmp_path: Path, cluster: Any, expected: Any) -> None:
    notes = tmp_path / "notes"
    result = study(Deadly(notes)).run(
        10**6, workers=2, ray_address=cluster.address, run_dir=tmp_path / "ray", **EXHAUSTIVE
    )
    assert [r.key for r in result.records if r.key not in expected] == []
    assert Counter(r.key for r in result.records) == Counter(expected.keys())
    deadly = {key for key in expected if is_deadly(key)}
    failed = {r.key: r.error for r in result.records if r.status == "failed"}
    assert failed.keys() == deadly
    assert deadly
    assert all("given up: the worker process died twice" in present(error) for error in failed.values())
    assert {r.key: r.metrics for r in result.records if r.status == "ok"} == {
        key: metrics for key, metrics in expected.items() if key not in deadly
    }
    # Nobody but us tries again: twice for what kills, and never more for what was beside it.
    begun = Counter(key for key, _ in noted(notes))
    assert max(begun.values()) == 2
    assert {begun[key] for key in deadly} <= {1, 2}  # 1 for one that was behind another in the first batch
    assert len({r.worker for r in result.records if r.worker}) >= 2


def test_rungs_go_to_the_nodes_that_have_the_resource(
    tmp_path: Path, cluster: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    notes = tmp_path / "notes"
    made = study(rungs=[Rung(partial(OnNothing, notes)), Rung(partial(OnTheBoard, notes), at_most=6)])
    result = made.run(
        60, workers=2, ray_address=cluster.address, run_dir=tmp_path / "run", **{**EXHAUSTIVE, "progress": "plain"}
    )
    said = capsys.readouterr().err
    assert "rung 1 (nothing 1) is left out: no node has the resource 'nothing'" in said
    assert "--resources='{\"nothing\": 1}'" in said
    board = [r for r in result.records if r.rung == 2]
    assert len(board) == 6
    assert {r.worker for r in board}.isdisjoint(r.worker for r in result.records if r.rung == 0)
    assert len({r.worker for r in board}) == 1


def test_isolated_evaluators_cost_one_trial_in_workers_too(tmp_path: Path, cluster: Any, expected: Any) -> None:
    made = study(HangsInAWorker)
    made.reload = partial(hurried_study, HangsInAWorker, tmp_path)
    result = made.run(12, workers=2, ray_address=cluster.address, run_dir=tmp_path / "run", **EXHAUSTIVE)
    for record in result.records:
        if int(record.key, 16) % Hazard.one_in == 0:
            assert "longer than its deadline" in present(record.error)
            assert "tripping over" in (tmp_path / "run" / present(record.log)).read_text()
        else:
            assert record.metrics == expected[record.key]


def test_a_study_that_workers_cannot_load_is_explained(tmp_path: Path, cluster: Any) -> None:
    made = study()
    made.reload = cast(Any, partial(int, "x"))
    with pytest.raises(StudyError, match="cannot load the study") as caught:
        made.run(3, workers=1, ray_address=cluster.address, run_dir=tmp_path / "run", **EXHAUSTIVE)
    assert "each node needs the study file" in caught.value.hint


def test_a_cluster_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"cannot reach Ray at 127\.0\.0\.1:1"):
        study().run(3, ray_address="127.0.0.1:1", run_dir=tmp_path / "run", **EXHAUSTIVE)


def test_a_cluster_that_wants_a_token_gets_it(tmp_path: Path) -> None:
    ports = range(20_000 + os.getpid() % 10_000, 32_000)  # none of which anything is given that asks for any port
    address = next(address for port in ports if not listens(address := f"127.0.0.1:{port}"))
    (tmp_path / "study.py").write_text("from tests.tune.fakes import fake_study\nstudy = fake_study('guarded')\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"PYTHONPATH": os.getcwd(), "RAY_AUTH_TOKEN": uuid.uuid4().hex}
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    head = subprocess.Popen(
        [*ray, "start", "--head", "--block", f"--port={address.rpartition(':')[2]}", "--num-cpus=1",
         "--include-dashboard=false", "--no-monitor", "--include-log-monitor=false"],
        env={**environment, "RAY_AUTH_MODE": "token", "RAY_prestart_worker_first_driver": "0"},
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: listens(address))
        command = [sys.executable, "-m", "allo_dse", "study.py", "--ray", address, "--trials", "8", "-q"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    finally:
        head.terminate()
        head.wait(300)
    assert "8 trials done" in done.stdout, done.stderr


def listens(address: Any) -> Any:
    host, _, port = address.partition(":")
    with socket.socket() as tried:
        return tried.connect_ex((host, int(port))) == 0


def test_batches_follow_the_measured_cost_and_little_is_in_flight() -> None:
    pool = Pool(2)
    for worker in range(2):
        pool.add_worker(worker, None)
    assert pool.room(0) == AHEAD * 2
    for seconds, size in ((1e-5, MAX_BATCH), (0.01, 10), (5.0, 1)):
        pool.seconds[0] = seconds
        assert pool.batch_size(0) == size
        assert pool.room(0) == AHEAD * 2 * size
    pool.seconds[0] = 0.01
    for n in range(100):
        pool.add(Task(n, 0, {}))
    batches: list[Any] = []
    while (batch := pool.next_batch()) is not None:
        pool.start(len(batches), batch)
        batches.append(batch)
    assert [b.worker for b in batches] == [0, 1, 0, 1]
    assert pool.outstanding() == 100
    assert pool.room(0) == 0


@pytest.mark.parametrize("moment", ["Ray starts", "it runs"])
def test_sigterm_ends_a_run_with_workers_as_it_ends_others(tmp_path: Path, moment: str) -> None:
    """Ray has handlers of its own for it, while it starts and when it ends, and here no home for a token."""
    (tmp_path / "study.py").write_text("from tests.tune.fakes import fake_study\nstudy = fake_study()\n")
    options = ["--trials", "100000", "-q", "--workers", "2", "--modelled", "0"]
    command = [sys.executable, "-m", "allo_dse", "study.py", *options]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[3]), "HOME": "/dev/null"}
    with subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        log = tmp_path / "runs" / "fake" / "log.jsonl"
        come: dict[str, Callable[[], Any]] = {
            "Ray starts": lambda: list(ray_files(process.pid, "logs/python-core-driver-*")),
            "it runs": lambda: log.exists() and log.read_text().count('"status":"ok"') > 5,
        }
        wait_until(lambda: come[moment]() or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        said, complained = process.communicate()
    assert (process.returncode, complained, "go on with" in said) == (143, "", True)
    assert (tmp_path / "runs" / "fake" / "pareto.csv").exists()
    assert not list(ray_files(process.pid))


def test_tasks_are_lost_only_so_often() -> None:
    pool = Pool(1)
    task = Task(1, 0, {})
    assert pool.requeue((task,), may_be_cause=False) == []
    assert pool.requeue((pool.suspects.pop(),), may_be_cause=True) == []
    (given_up,) = pool.requeue((pool.suspects.pop(),), may_be_cause=False)
    assert (given_up.worker_failures, given_up.crashes) == (MAX_WORKER_FAILURES, 1)
    assert given_up.fault("gone") == "given up: its workers or their nodes were lost 3 times: gone"
    assert pool.requeue((task,), may_be_cause=True) == []
    (poisonous,) = pool.requeue((pool.suspects.pop(),), may_be_cause=True)
    assert present(poisonous.fault("gone")).startswith("given up: the worker process died twice with this design")
    assert not pool.suspects


def test_workers_are_gone_after_the_run(cluster: Any) -> None:
    child = b"allo_dse.tune.workers.isolated_child"
    wait_until(lambda: not own_processes(b"ray::RayWorker") and not own_processes(child))
