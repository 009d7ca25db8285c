"""Workers and nodes of a cluster that die: no design is lost, doubled, or blamed for what it has not done."""

import contextlib
import os
import random
import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from _pytest.monkeypatch import MonkeyPatch

from allo_dse.tune.store.log import Log
from allo_dse.tune.workers import pool as pool_module
from allo_dse.tune.workers import ray_executor
from allo_dse.tune.workers.pool import Pool
from allo_dse.tune.workers.ray_executor import RayExecutor

from ...support.values import present
from ..hazards import own_processes, wait_until
from ..ray_evaluators import Gated, Noting, NotingAndBounded, noted
from .conftest import EXHAUSTIVE, study


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
        collect, lost = RayExecutor.collect, Pool.remove_worker

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
        monkeypatch.setattr(Pool, "remove_worker", counting)
        # On a busy machine batches grow, and all designs would be under way before the last kill.
        monkeypatch.setattr(pool_module, "MAX_BATCH", 8)

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
    entries = [e for e in Log(tmp_path / "run/log.jsonl").entries if e.get("status") in ("ok", "failed")]
    assert Counter(e["key"] for e in entries) == Counter(expected.keys())
    poisonous = {e["key"]: e for e in entries if e["status"] == "failed"}
    assert {n for n, hits in murderer.hits.items() if hits >= 2} >= {e["number"] for e in poisonous.values()}
    assert all("the worker process died twice" in e["error"] for e in poisonous.values())
    assert {r.key: r.metrics for r in result.records if r.status == "ok"} == {
        k: m for k, m in expected.items() if k not in poisonous
    }


def test_random_kills_under_evolution_lose_and_double_nothing(
    tmp_path: Path, cluster: Any, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many designs as were asked for, each once in the log, numbered as they were given out."""
    murderer = Murderer(monkeypatch, 240, kills=3)
    made = study(Noting(tmp_path / "notes", seconds=0.005), sizes={"modelled": 0})
    result = made.run(
        240, workers=2, ray_address=cluster.address, run_dir=tmp_path / "run", sampler="evolution",
        progress="quiet", verify=False,
    )  # fmt: skip
    assert not murderer.times
    entries = [e for e in Log(tmp_path / "run/log.jsonl").entries if e.get("status") in ("ok", "failed")]
    assert len(entries) == len(result.records) == 240
    assert set(Counter(e["key"] for e in entries).values()) == {1}
    assert sorted(e["number"] for e in entries) == list(range(240))
    assert all(expected[r.key] == r.metrics for r in result.records if r.status == "ok")
    again = made.run(10**6, run_dir=tmp_path / "run", sampler="evolution", progress="quiet", verify=False)
    assert Counter(r.key for r in again.records) == Counter(expected.keys())


def test_an_exact_search_whose_workers_are_killed_ends_with_the_same_proof(
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
    result = made.run(10**6, **{**ray, "workers": 1})
    found = present(result.certificate)
    assert (found.complete, found.designs) == (True, closed.designs)
    if not found.failed:  # a design that two of the killed workers had may be on the front
        assert found.gaps == closed.gaps
        assert {result.values[d.key] for d in result.front} == {once.values[d.key] for d in once.front}
    assert set(Counter(r.key for r in result.records).values()) == {1}


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


def are_at_work(workers: int, notes: Path, busy: Any) -> bool:
    """Return whether the free designs have been evaluated, and each of the workers has some for which it waits."""
    return len(noted(notes)) >= Gated.free and len(set(busy)) == workers


@contextlib.contextmanager
def meanwhile(act: Callable[[], Any], gate: Path, when: Callable[..., Any], *others: Path) -> Iterator[None]:
    """Do something as soon as a condition holds while the block runs, then open the gate, whatever happens; other gates
    too where it could not be done, so that nothing waits for what will not come."""

    def wait_and_act() -> None:
        try:
            wait_until(when)
            act()
            acted.append(True)
        finally:
            for one in (gate,) if acted else (gate, *others):
                one.touch()

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

    never = tmp_path / "never"
    rungs = [partial(OnTheProbe, tmp_path / "probe", gate=never)]
    kill = partial(cluster.remove_node, node, allow_graceful=False)
    with meanwhile(kill, gate, lambda: are_at_work(4, notes, busy), never):
        result = study(Gated(notes, gate=gate), rungs=rungs).run(
            10**6, workers=4, ray_address=cluster.address, run_dir=tmp_path / "run",
            **{**EXHAUSTIVE, "progress": "plain"},
        )  # fmt: skip
    assert {r.key: (r.error, r.metrics) for r in result.records} == {k: (None, m) for k, m in expected.items()}
    assert "the workers with 'probe' are lost" in capsys.readouterr().err


def test_a_node_that_falls_silent_has_killed_no_design(
    tmp_path: Path, cluster: Any, expected: Any, busy: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its scheduler hangs and its worker vanishes: nobody can say why, so that no design is to blame."""
    monkeypatch.setattr(ray_executor, "ANSWER_SECONDS", 1.0)
    node = cluster.add_node(num_cpus=1)
    notes, gate = tmp_path / "notes", tmp_path / "gate"

    def silence() -> None:
        (raylet,) = node.all_processes["raylet"]
        os.kill(raylet.process.pid, signal.SIGSTOP)
        for process in [place.process for place in busy if place.node == node.node_id]:
            os.kill(process, signal.SIGKILL)

    try:
        with meanwhile(silence, gate, lambda: are_at_work(3, notes, busy)):
            result = study(Gated(notes, gate=gate)).run(
                10**6, workers=3, ray_address=cluster.address, run_dir=tmp_path / "run", **EXHAUSTIVE
            )
    finally:
        cluster.remove_node(node, allow_graceful=False)
    assert {r.key: (r.error, r.metrics) for r in result.records} == {k: (None, m) for k, m in expected.items()}


def test_workers_are_gone_after_the_run(cluster: Any) -> None:
    child = b"allo_dse.tune.workers.isolated_child"
    wait_until(lambda: not own_processes(b"ray::RayWorker") and not own_processes(child))
