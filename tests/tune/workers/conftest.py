"""A cluster of two nodes on this machine, and what a study finds on it. Started once: that takes seconds."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from allo_dse.tune.study import Study

from ..fakes import FakeEvaluator, fake_study

PARAMS = {"size": 512, "Pm": 8, "Pn": 8, "Pk": 8}
EXHAUSTIVE: dict[str, Any] = {"sampler": "exhaustive", "progress": "quiet", "verify": False}


@pytest.fixture(scope="package")
def cluster() -> Iterator[Any]:
    from ray._private.node import Node
    from ray.cluster_utils import Cluster

    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.getcwd()
    # A node that is gone is noticed in 5 s instead of 15. Without processes that nobody asks anything: one that grows
    # the cluster, one that copies logs to drivers, one that serves the dashboard, and workers for drivers that may want
    # some. A worker process without work is kept for the next one that is wanted: to start one takes most of a second.
    # For that two workers, and those who look after them, are on one node.
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Node, "start_api_server", lambda *_, **__: None)
        made = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 0, "no_monitor": True, "include_log_monitor": False,
                "_system_config": {
                    "health_check_period_ms": 1000, "prestart_worker_first_driver": False, "num_workers_soft_limit": 8,
                },
            },
        )  # fmt: skip
    made.add_node(num_cpus=2, resources={"board": 1})
    yield made
    made.shutdown()  # type: ignore[no-untyped-call]
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


def study(evaluator: Any = FakeEvaluator, **changes: Any) -> Study:
    return fake_study(evaluator=evaluator, params=PARAMS, **changes)


@pytest.fixture(scope="package")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Any:
    result = study().run(10**6, run_dir=tmp_path_factory.mktemp("inline") / "run", **EXHAUSTIVE)
    return {r.key: r.metrics for r in result.records}


def ray_files(driver: int, pattern: str = "") -> Iterator[Path]:
    """Files of a Ray that a driver has started on this machine."""
    for place in {tempfile.gettempdir(), "/tmp"}:
        yield from Path(place).glob(f"ray-*/*/session_*_{driver}/{pattern}")
