"""Bounds never say more than the simulator: on whole spaces, and on random designs of larger ones."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.eval.fpga.bounds import FpgaBounds
from allo_dse.eval.fpga.evaluator import FpgaSimulator
from allo_dse.lang import install
from allo_dse.space.design import Design
from allo_dse.space.gene import random_suggest
from allo_dse.tune.study import Study

install()

from studies import gemm_zcu102, polybench_fpga, scheduled_fpga, systolic_fpga

ROUNDING = 1e-12
LARGE: dict[str, Any] = {
    "systolic": lambda: systolic_fpga.study(size=16, depth=8),
    "daisy chain": lambda: systolic_fpga.study("daisy", size=16, depth=16),
    "gemm": lambda: gemm_zcu102.study(),
    "polybench": lambda: polybench_fpga.study(),
}


@cache
def large(name: str) -> Study:
    found: Study = LARGE[name]()
    return found


def assert_bounded(design: Design, simulator: FpgaSimulator) -> float:
    """What every level says holds for what the simulator says; returns the share of the latency that bounds explain."""
    bounding, metrics = simulator.bounding(), simulator.evaluate(design)
    latencies = []
    for level in range(bounding.levels):
        found = bounding(design, level)
        assert found.keys() <= bounding.metrics
        for name, (least, most) in found.items():
            value = metrics[name]
            assert least <= value + ROUNDING * abs(value), (level, name)
            assert most >= value - ROUNDING * abs(value), (level, name)
        latencies.append(found["latency_us"][0])
    assert latencies == sorted(latencies)
    return float(latencies[-1] / metrics.latency_us)


def test_bounds_hold_for_every_design_of_a_space_and_explain_almost_all() -> None:
    study, simulator = scheduled_fpga.study(), FpgaSimulator()
    legal = [c.design for c in study.space.designs() if not study.check(c.design)]
    assert len(legal) > 30
    assert min(assert_bounded(design, simulator) for design in legal) > 0.99


@settings(max_examples=12, deadline=None)
@given(name=st.sampled_from(sorted(LARGE)), seed=st.integers(0, 2**32 - 1))
def test_bounds_hold_for_designs_of_larger_spaces(name: str, seed: int) -> None:
    study, rng = large(name), np.random.default_rng(seed)
    drawn = (study.space.decode(random_suggest(rng)) for _ in range(20))
    found = next((c.design for c in drawn if c is not None and not study.check(c.design)), None)
    if found is not None:
        assert_bounded(found, FpgaSimulator())


def test_resources_are_exact_where_depths_are_known() -> None:
    study = systolic_fpga.study(size=16, depth=16)
    design = next(c.design for c in study.space.designs() if not study.check(c.design))
    metrics, found = FpgaSimulator("declared").evaluate(design), FpgaBounds(solves=False)(design, 1)
    for name in ("lut", "ff", "dsp", "bram18", "uram", "pe_count", "dram_bytes", "utilization"):
        assert found[name] == (metrics[name], metrics[name]), name
