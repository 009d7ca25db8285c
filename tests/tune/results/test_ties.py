"""Designs with equal objective values: the one with less of everything else is on the front, best, and exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from allo_dse.dashboard.data.table import RunTable
from allo_dse.eval.evaluator import Metrics, total_cost
from allo_dse.tune.search.objectives import minimize

from ..fakes import FakeEvaluator, fake_study


class Coarse(FakeEvaluator):
    """Few latencies, so that many designs are equal; they differ in memory and DSPs."""

    def evaluate(self, design: Any) -> Metrics:
        found = super().evaluate(design)
        number = int(design.key, 16)
        return Metrics(latency_us=float(number % 3), local_memory_bytes=found["local_memory_bytes"], dsp=number % 7)


def test_the_design_with_less_of_everything_else_wins(tmp_path: Path) -> None:
    study = fake_study(evaluator=Coarse, objectives=[minimize("latency_us")])
    result = study.run(80, run_dir=tmp_path / "run", progress="quiet", verify=False, sampler="random")
    (found,) = result.front
    measured = [record.metrics for record in result.records if record.metrics]
    equal = [metrics for metrics in measured if metrics["latency_us"] == found.metrics["latency_us"]]
    assert len(equal) > 5
    for metrics in equal:
        less = [metrics[name] <= found.metrics[name] for name in ("local_memory_bytes", "dsp")]
        assert not all(less) or metrics == dict(found.metrics)
    assert result.best().key == found.key
    table = RunTable(tmp_path / "run")
    table.refresh()
    assert [table.keys[row] for row in table.front] == [found.key]
    exported = json.loads((tmp_path / "run/best/latency_us/design.json").read_text())
    assert exported["key"] == found.key


def test_a_cost_is_a_time_or_a_resource() -> None:
    base = {"latency_us": 3.0, "throughput_gops": 5.0, "dsp": 4, "bottleneck": "DRAM", "ok": True}
    assert total_cost({**base, "dsp": 5}) > total_cost(base)
    assert total_cost({**base, "throughput_gops": 9.0, "utilization": 0.1, "ok": False}) == total_cost(base)
    assert total_cost({**base, "dsp": 1 << 5000}) > total_cost({**base, "dsp": 1 << 1000})  # more than a float holds
