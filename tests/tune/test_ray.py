"""Worker processes and a cluster of two nodes on this machine. Ray is started once: that takes seconds."""

import os
import signal
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from allo_dse.errors import StudyError
from allo_dse.tune import ray_executor
from allo_dse.tune.ladder import Rung
from allo_dse.tune.log import read_log
from tests.tune.fakes import FakeEvaluator, fake_study
from tests.tune.hazards import Hazard
from tests.tune.ray_evaluators import Deadly, HangsInAWorker, Noting, OnNothing, OnTheBoard, is_deadly, noted

PARAMS = {"size": 512, "Pm": 8, "Pn": 8, "Pk": 8}
EXHAUSTIVE = {"sampler": "exhaustive", "progress": "quiet", "verify": False}


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.getcwd()
    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False})
    made.add_node(num_cpus=1, resources={"board": 1})
    yield made
    made.shutdown()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def study(evaluator=FakeEvaluator, **changes):
    return fake_study(evaluator=evaluator, params=PARAMS, **changes)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    result = study().run(10**6, run_dir=tmp_path_factory.mktemp("inline") / "run", **EXHAUSTIVE)
    return {r.key: r.metrics for r in result.records}


def test_workers_find_the_same_and_a_crash_costs_one_trial(tmp_path, cluster, expected):
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
    assert all("poisonous: the worker process died twice" in error for error in failed.values())
    assert {r.key: r.metrics for r in result.records if r.status == "ok"} == {
        key: metrics for key, metrics in expected.items() if key not in deadly
    }
    # Nobody but us tries again: twice for what kills, and never more for what was beside it.
    begun = Counter(key for key, _ in noted(notes))
    assert max(begun.values()) == 2
    assert {begun[key] for key in deadly} <= {1, 2}  # 1 for one that was behind another in the first batch
    assert len({r.worker for r in result.records if r.worker}) >= 2


def test_rungs_go_to_the_nodes_that_have_the_resource(tmp_path, cluster, capsys):
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


def test_isolated_evaluators_cost_one_trial_in_workers_too(tmp_path, cluster, expected):
    result = study(HangsInAWorker).run(
        12, workers=2, ray_address=cluster.address, run_dir=tmp_path / "run", **EXHAUSTIVE
    )
    for record in result.records:
        if int(record.key, 16) % Hazard.one_in == 0:
            assert "longer than its deadline" in record.error
            assert "tripping over" in (tmp_path / "run" / record.log).read_text()
        else:
            assert record.metrics == expected[record.key]


def test_a_study_that_workers_cannot_load_is_explained(tmp_path, cluster):
    made = study()
    made.reload = partial(int, "x")
    with pytest.raises(StudyError, match="cannot load the study") as caught:
        made.run(3, workers=2, ray_address=cluster.address, run_dir=tmp_path / "run", **EXHAUSTIVE)
    assert "each node needs the study file" in caught.value.hint


def test_a_cluster_that_is_not_there_is_explained(tmp_path):
    with pytest.raises(StudyError, match=r"cannot reach Ray at 127\.0\.0\.1:1"):
        study().run(3, ray_address="127.0.0.1:1", run_dir=tmp_path / "run", **EXHAUSTIVE)


def test_batches_follow_the_measured_cost_and_little_is_in_flight():
    from allo_dse.tune.pool import AHEAD, MAX_BATCH, Pool, Task

    pool = Pool([object(), object()], ready={0, 1})
    assert pool.room(0) == AHEAD * 2
    for seconds, size in ((1e-5, MAX_BATCH), (0.01, 10), (5.0, 1)):
        pool.seconds[0] = seconds
        assert pool.batch_size(0) == size
        assert pool.room(0) == AHEAD * 2 * size
    pool.seconds[0] = 0.01
    pool.waiting.extend(Task(n, 0, {}) for n in range(100))
    batches = []
    while (batch := pool.next_batch()) is not None:
        pool.running[len(batches)] = batch
        batches.append(batch)
    assert [b.worker for b in batches] == [0, 1, 0, 1]
    assert pool.outstanding() == 100
    assert pool.room(0) == 0


def test_random_kills_of_workers_lose_and_double_nothing(tmp_path, cluster, expected):
    soak(tmp_path, cluster, expected, kills=3)


def soak(tmp_path, cluster, expected, kills):
    """Kill workers at random while they evaluate: every design once in the log, with the undisturbed metrics."""
    notes, stop = tmp_path / "notes", threading.Event()
    killed = []

    def kill():
        while len(killed) < kills and not stop.wait(0.7):
            begun = noted(notes)
            if begun and (pid := int(begun[-1][1])) not in killed:
                killed.append(pid)
                os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        result = study(Noting(notes, seconds=0.01)).run(
            10**6, workers=2, ray_address=cluster.address, run_dir=tmp_path / "run", **EXHAUSTIVE
        )
    finally:
        stop.set()
        killer.join()
    assert len(killed) == kills
    entries = [e for e in read_log(tmp_path / "run/log.jsonl").entries if e.get("status") in ("ok", "failed")]
    assert Counter(e["key"] for e in entries) == Counter(expected.keys())
    poisonous = {e["key"] for e in entries if e["status"] == "failed"}
    assert {r.key: r.metrics for r in result.records if r.status == "ok"} == {
        k: m for k, m in expected.items() if k not in poisonous
    }
    assert poisonous == set()


def test_a_node_that_dies_has_its_designs_evaluated_elsewhere(tmp_path, cluster, expected, monkeypatch, capsys):
    monkeypatch.setattr(ray_executor, "PATIENCE_SECONDS", 1.0)
    node = cluster.add_node(num_cpus=2, resources={"probe": 1})
    notes = tmp_path / "notes"

    class OnTheProbe(OnTheBoard):
        resource = "probe"

    def kill():
        deadline = time.monotonic() + 60
        while len(noted(notes)) < 60 and time.monotonic() < deadline:
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)

    killer = threading.Thread(target=kill)
    killer.start()
    made = study(Noting(notes, seconds=0.01), rungs=[partial(OnTheProbe, notes)])
    result = made.run(
        10**6, workers=5, ray_address=cluster.address, run_dir=tmp_path / "run", **{**EXHAUSTIVE, "progress": "plain"}
    )
    killer.join()
    assert {r.key: r.metrics for r in result.records} == expected
    assert "the workers with 'probe' are lost" in capsys.readouterr().err


def test_workers_are_gone_after_the_run(cluster):
    def left():
        found = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    text = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if b"ray::Workbench" in text or b"allo_dse.tune.cell" in text:
                    found.append(entry.name)
        return found

    end = time.monotonic() + 10
    while left() and time.monotonic() < end:
        time.sleep(0.1)
    assert left() == []
