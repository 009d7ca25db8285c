"""Worker processes and a cluster of two nodes on this machine. Ray is started once: that takes seconds."""

import contextlib
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from _pytest.monkeypatch import MonkeyPatch

from allo_dse.common.errors import StudyError
from allo_dse.eval.evaluator import needs
from allo_dse.tune.run import islands
from allo_dse.tune.search.ladder import Rung
from allo_dse.tune.store.log import read_log
from allo_dse.tune.study import Study
from allo_dse.tune.workers import ray_executor
from allo_dse.tune.workers.executor import Job
from allo_dse.tune.workers.pool import AHEAD, MAX_BATCH, MAX_LOSSES, Pool, Task
from allo_dse.tune.workers.ray_executor import RayExecutor
from allo_dse.tune.workers.surveyor import Lease
from tests.support.values import present
from tests.tune.fakes import FakeEvaluator, fake_study
from tests.tune.hazards import Hazard, own_processes, wait_until
from tests.tune.ray_evaluators import Deadly, Gated, HangsInAWorker, Noting, OnNothing, OnTheBoard, is_deadly, noted
from tests.tune.search.exact.test_by_bounds import Looseness

PARAMS = {"size": 512, "Pm": 8, "Pn": 8, "Pk": 8}
EXHAUSTIVE: dict[str, Any] = {"sampler": "exhaustive", "progress": "quiet", "verify": False}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.getcwd()
    # A node that is gone is noticed in 5 s instead of 15.
    made = Cluster(
        initialize_head=True,
        head_node_args={
            "num_cpus": 2, "include_dashboard": False, "_system_config": {"health_check_period_ms": 1000},
        },
    )  # fmt: skip
    made.add_node(num_cpus=1, resources={"board": 1})
    yield made
    made.shutdown()  # type: ignore[no-untyped-call]
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def study(evaluator: Any = FakeEvaluator, **changes: Any) -> Study:
    return fake_study(evaluator=evaluator, params=PARAMS, **changes)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    result = study().run(10**6, run_dir=tmp_path_factory.mktemp("inline") / "run", **EXHAUSTIVE)
    return {r.key: r.metrics for r in result.records}


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
    assert all("poisonous: the worker process died twice" in present(error) for error in failed.values())
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
    result = study(HangsInAWorker).run(
        12, workers=2, ray_address=cluster.address, run_dir=tmp_path / "run", **EXHAUSTIVE
    )
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
        made.run(3, workers=2, ray_address=cluster.address, run_dir=tmp_path / "run", **EXHAUSTIVE)
    assert "each node needs the study file" in caught.value.hint


def test_a_cluster_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"cannot reach Ray at 127\.0\.0\.1:1"):
        study().run(3, ray_address="127.0.0.1:1", run_dir=tmp_path / "run", **EXHAUSTIVE)


def test_a_cluster_that_wants_a_token_gets_it(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    (tmp_path / "study.py").write_text("from tests.tune.fakes import fake_study\nstudy = fake_study('guarded')\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    environment |= {"PYTHONPATH": os.getcwd(), "RAY_AUTH_TOKEN": uuid.uuid4().hex}
    ray = [sys.executable, "-m", "ray.scripts.scripts"]
    head = subprocess.Popen(
        [*ray, "start", "--head", "--block", f"--port={address.rpartition(':')[2]}", "--num-cpus=1",
         "--include-dashboard=false"],
        env={**environment, "RAY_AUTH_MODE": "token"}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        wait_until(lambda: listens(address))
        command = [sys.executable, "-m", "allo_dse", "study.py", "--ray", address, "--trials", "8", "-q"]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
    finally:
        head.terminate()
        head.wait(30)
    assert "8 trials done" in done.stdout, done.stderr


def listens(address: Any) -> Any:
    host, _, port = address.partition(":")
    with socket.socket() as tried:
        return tried.connect_ex((host, int(port))) == 0


def test_batches_follow_the_measured_cost_and_little_is_in_flight() -> None:
    pool = Pool(2)
    for worker in range(2):
        pool.welcome(worker, None)
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


class Murderer:
    """Kills a worker's process at random numbers of finished designs, from the driver's own thread and between two
    looks at the workers, so that it knows what each had been given.

    Attributes:
        hits: by number of a design how many killed workers had it, also of those that were given it before anybody
            noticed their death.
    """

    def __init__(self, monkeypatch: MonkeyPatch, designs: Any, kills: int, seed: int = 7) -> None:
        self.rng = random.Random(seed)
        self.times = sorted(self.rng.sample(range(10, designs * 3 // 4), kills), reverse=True)
        self.hits: Counter[int] = Counter()
        self.finished = 0
        self.killed: set[int] = set()
        collect, lost = RayExecutor.collect, Pool.lost

        def wrapped(executor: Any) -> Any:
            if self.times and self.finished >= self.times[-1]:
                self.kill(*executor._pools.values())
            outcomes = collect(executor)
            self.finished += len(outcomes)
            return outcomes

        def counting(pool: Any, worker: int) -> Any:
            tasks = lost(pool, worker)
            if pool.places[worker].process in self.killed:
                self.hits.update(task.number for task in tasks)
            return tasks

        monkeypatch.setattr(RayExecutor, "collect", wrapped)
        monkeypatch.setattr(Pool, "lost", counting)

    def kill(self, pool: Any) -> None:
        busy = sorted(worker for worker in pool.ready if pool.busy(worker))
        if not busy:
            return
        victim = self.rng.choice(busy)
        try:
            os.kill(pool.places[victim].process, signal.SIGKILL)
        except ProcessLookupError:  # killed before, and nobody has noticed yet
            return
        self.killed.add(pool.places[victim].process)
        self.times.pop()


def test_random_kills_of_workers_lose_and_double_nothing(
    tmp_path: Path, cluster: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every design once in the log, with the undisturbed metrics. What may be called poisonous, and seldom is: a design
    that two of the killed workers had been given."""
    murderer = Murderer(monkeypatch, len(expected), kills=3)
    result = study(Noting(tmp_path / "notes", seconds=0.005)).run(
        10**6, workers=2, ray_address=cluster.address, run_dir=tmp_path / "run", **EXHAUSTIVE
    )
    assert not murderer.times
    entries = [e for e in read_log(tmp_path / "run/log.jsonl").entries if e.get("status") in ("ok", "failed")]
    assert Counter(e["key"] for e in entries) == Counter(expected.keys())
    poisonous = {e["key"]: e for e in entries if e["status"] == "failed"}
    assert {n for n, hits in murderer.hits.items() if hits >= 2} >= {e["number"] for e in poisonous.values()}
    assert all("the worker process died twice" in e["error"] for e in poisonous.values())
    assert {r.key: r.metrics for r in result.records if r.status == "ok"} == {
        k: m for k, m in expected.items() if k not in poisonous
    }


def test_random_kills_of_workers_that_breed_lose_and_double_nothing(
    tmp_path: Path, cluster: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many designs as were asked for, each once in the log, numbered as they were given out."""
    monkeypatch.setattr(islands, "LATE", 0.0)
    murderer = Murderer(monkeypatch, 240, kills=3)
    made = study(Noting(tmp_path / "notes", seconds=0.005), sizes={"modelled": 0})
    result = made.run(
        240, workers=2, ray_address=cluster.address, run_dir=tmp_path / "run", sampler="evolution",
        progress="quiet", verify=False,
    )  # fmt: skip
    assert not murderer.times
    entries = [e for e in read_log(tmp_path / "run/log.jsonl").entries if e.get("status") in ("ok", "failed")]
    assert len(entries) == len(result.records) == 240
    assert set(Counter(e["key"] for e in entries).values()) == {1}
    assert sorted(e["number"] for e in entries) == list(range(240))
    assert all(expected[r.key] == r.metrics for r in result.records if r.status == "ok")
    again = made.run(10**6, run_dir=tmp_path / "run", sampler="evolution", progress="quiet", verify=False)
    assert Counter(r.key for r in again.records) == Counter(expected.keys())


class NotingAndBounded(Noting):
    def bounding(self) -> Looseness:
        return Looseness(0.2)


def test_a_space_leased_to_workers_that_are_killed_is_closed_with_the_same_proof(
    tmp_path: Path, cluster: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped by its budget, with workers killed, and gone on with by other numbers of workers."""
    made = study(NotingAndBounded(tmp_path / "notes", seconds=0.005))
    exact: dict[str, Any] = {"sampler": "exact", "progress": "quiet", "verify": False}
    once = made.run(10**6, run_dir=tmp_path / "once", **exact)
    total = len(once.records)
    (tmp_path / "notes").unlink()
    murderer = Murderer(monkeypatch, total // 2, kills=2)
    ray: dict[str, Any] = {"workers": 2, "ray_address": cluster.address, "run_dir": tmp_path / "run", **exact}
    part = made.run(total // 2, **ray)
    assert not murderer.times
    assert len(part.records) == total // 2
    stopped, closed = present(part.certificate), present(once.certificate)
    assert stopped.listed
    assert not stopped.complete
    for gap, best in zip(stopped.gaps, closed.gaps, strict=True):
        assert present(gap.bound) <= present(best.bound)
    result = made.run(10**6, **ray)
    found = present(result.certificate)
    assert (found.complete, found.designs) == (True, closed.designs)
    if not found.failed:  # a design that two of the killed workers had may be on the front
        assert found.gaps == closed.gaps
        assert {result.values[d.key] for d in result.front} == {once.values[d.key] for d in once.front}
    assert set(Counter(r.key for r in result.records).values()) == {1}


class GatedAndWaits(Gated):
    waits = True
    free = 0

    def bounding(self) -> Looseness:
        return Looseness(0.2)


def test_a_worker_looks_for_designs_while_its_evaluator_waits(tmp_path: Path, cluster: Any) -> None:
    notes, gate = tmp_path / "notes", tmp_path / "gate"
    made = study(GatedAndWaits(notes, gate=gate))
    executor = RayExecutor(made, [needs(made.make_evaluator())], 1, cluster.address)
    try:
        executor.submit([Job(0, 0, next(made.space.designs()))])
        executor.order(0, Lease(0, 1, 0, 4, 100, np.empty((0, 3)), []))
        wait_until(lambda: not executor.collect() and executor.idle())
        ((_, survey),) = executor.litters()
        assert survey.designs
        assert not noted(notes)
        gate.touch()
        wait_until(lambda: executor.collect())
    finally:
        executor.close()


@pytest.fixture
def busy(monkeypatch: Any) -> Any:
    """The places of the workers for every design that have been given something, when the driver last gave."""
    places: list[Any] = []
    dispatch = RayExecutor._dispatch

    def noting(executor: Any) -> None:
        dispatch(executor)
        pool = executor._pools[None]
        places[:] = [pool.places[worker] for worker in sorted(pool.ready) if pool.busy(worker)]

    monkeypatch.setattr(RayExecutor, "_dispatch", noting)
    return places


def is_at_work(node: Any, notes: Path, busy: Any) -> Any:
    """Whether the free designs have been evaluated, so that all wait, and a node has workers that do."""
    return len(noted(notes)) >= Gated.free and node.node_id in {place.node for place in busy}


@contextlib.contextmanager
def meanwhile(act: partial[Any], gate: Path, when: Callable[..., Any]) -> Iterator[None]:
    """Do something as soon as a condition holds while the block runs, then open the gate, whatever happens."""

    def wait_and_act() -> None:
        try:
            wait_until(when)
            act()
            acted.append(True)
        finally:
            gate.touch()

    acted: list[Any] = []
    thread = threading.Thread(target=wait_and_act)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    assert acted


def test_a_node_that_dies_has_its_designs_evaluated_elsewhere(
    tmp_path: Path,
    cluster: Any,
    expected: Any,
    busy: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The node has two workers and the only probe when it dies, each of them waiting at a design."""
    monkeypatch.setattr(ray_executor, "PATIENCE_SECONDS", 1.0)
    node = cluster.add_node(num_cpus=2, resources={"probe": 1})
    notes, gate = tmp_path / "notes", tmp_path / "gate"

    class OnTheProbe(Gated):
        """Never comes to an end."""

        name = resource = "probe"
        free = 0

    rungs = [partial(OnTheProbe, tmp_path / "probe", gate=tmp_path / "never")]
    kill = partial(cluster.remove_node, node, allow_graceful=False)
    with meanwhile(kill, gate, lambda: is_at_work(node, notes, busy)):
        result = study(Gated(notes, gate=gate), rungs=rungs).run(
            10**6, workers=5, ray_address=cluster.address, run_dir=tmp_path / "run",
            **{**EXHAUSTIVE, "progress": "plain"},
        )  # fmt: skip
    assert {r.key: (r.error, r.metrics) for r in result.records} == {k: (None, m) for k, m in expected.items()}
    assert "the workers with 'probe' are lost" in capsys.readouterr().err


def test_a_node_that_falls_silent_has_killed_no_design(
    tmp_path: Path, cluster: Any, expected: Any, busy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scheduler hangs and its workers vanish: nobody can say why, so that no design is to blame."""
    monkeypatch.setattr(ray_executor, "AUTOPSY_SECONDS", 1.0)
    node = cluster.add_node(num_cpus=2)
    notes, gate = tmp_path / "notes", tmp_path / "gate"

    def silence() -> None:
        wait_until(lambda: len(noted(notes)) >= Gated.free and node.node_id in {place.node for place in busy})
        (raylet,) = node.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGSTOP)
        for process in [place.process for place in busy if place.node == node.node_id]:
            os.kill(process, signal.SIGKILL)
        gate.touch()

    silencer = threading.Thread(target=silence)
    silencer.start()
    try:
        result = study(Gated(notes, gate=gate)).run(
            10**6, workers=5, ray_address=cluster.address, run_dir=tmp_path / "run", **EXHAUSTIVE
        )
    finally:
        silencer.join()
        cluster.remove_node(node, allow_graceful=False)
    assert {r.key: (r.error, r.metrics) for r in result.records} == {k: (None, m) for k, m in expected.items()}


def test_tasks_are_lost_only_so_often() -> None:
    pool = Pool(1)
    task = Task(1, 0, {})
    assert pool.again((task,), guilty=False) == []
    assert pool.again((pool.suspects.pop(),), guilty=True) == []
    (given_up,) = pool.again((pool.suspects.pop(),), guilty=False)
    assert (given_up.losses, given_up.deaths) == (MAX_LOSSES, 1)
    assert given_up.fault("gone") == "given up: its workers or their nodes were lost 3 times: gone"
    assert pool.again((task,), guilty=True) == []
    (poisonous,) = pool.again((pool.suspects.pop(),), guilty=True)
    assert present(poisonous.fault("gone")).startswith("poisonous: the worker process died twice with this design")
    assert not pool.suspects


def test_workers_are_gone_after_the_run(cluster: Any) -> None:
    child = b"allo_dse.tune.workers.isolated_child"
    wait_until(lambda: not own_processes(b"ray::Workbench") and not own_processes(child), seconds=20)
