"""Worker processes: one slow test, because starting Ray takes seconds."""

import os

import pytest

from tests.tune.fakes import FakeEvaluator, fake_study

PARAMS = {"size": 512, "Pm": 8, "Pn": 8, "Pk": 8}


def is_deadly(key):
    return int(key, 16) % 50 == 0


class Deadly(FakeEvaluator):
    """Kills its process for some designs."""

    def evaluate(self, design):
        if is_deadly(design.key):
            os._exit(1)
        return super().evaluate(design)


@pytest.fixture
def two_workers():
    import ray

    os.environ.setdefault("PYTHONPATH", os.getcwd())
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def test_workers_find_the_same_and_a_crash_costs_one_trial(tmp_path, two_workers):
    study = fake_study(evaluator=Deadly, params=PARAMS)
    result = study.run(10**6, sampler="exhaustive", workers=2, run_dir=tmp_path / "ray", progress="quiet")
    expected = fake_study(params=PARAMS).run(10**6, sampler="exhaustive", run_dir=tmp_path / "inline", progress="quiet")
    assert {r.key for r in result.records} == {r.key for r in expected.records}
    deadly = {r.key for r in expected.records if is_deadly(r.key)}
    failed = {r.key: r.error for r in result.records if r.status == "failed"}
    assert failed.keys() == deadly
    assert deadly
    assert all("worker process died" in error for error in failed.values())
    metrics = {r.key: r.metrics for r in result.records if r.status == "ok"}
    assert metrics == {r.key: r.metrics for r in expected.records if r.key in metrics}
