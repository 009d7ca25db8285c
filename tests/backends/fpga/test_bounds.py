"""Bounds never say more than the simulator: on whole spaces, and on random designs of larger ones."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.cost.memory import fifo_resources
from allo_dse.backends.fpga.cost.task_cost import task_cost
from allo_dse.backends.fpga.evaluator import FpgaBounds, FpgaSimulator, _least_fifo
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.device.device import FpgaDevice
from allo_dse.device.fpga_model import RESOURCES
from allo_dse.lang import install
from allo_dse.networks.operators import attention_work, element_type
from allo_dse.space.design import Design
from allo_dse.space.genes import random_suggest
from allo_dse.tune.study import Study

install()

from studies import gemm_zcu102, polybench_fpga, scheduled_fpga, systolic_fpga
from tests.support.values import present

from .cost import programs

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
    for name in ("lut", "ff", "dsp", "bram18", "uram", "pe_count", "dram_bytes", "fifo_bits", "utilization"):
        assert found[name] == (metrics[name], metrics[name]), name


@pytest.mark.parametrize("bits", [1, 8, 16, 32, 64, 512])
def test_the_least_memory_of_a_stream_is_that_of_the_best_depth(bits: int) -> None:
    device = FpgaDevice.load("u280")
    deepest = max(device.fifo.lutram_bits // bits, device.fifo.register_depth) + 2
    every = [fifo_resources(device, bits, depth) for depth in range(1, deepest + 1)]
    for least in {1, 2, 3, device.fifo.shift_bits // bits + 1, deepest}:
        expected = {r: min(getattr(one, r) for one in every[least - 1 :]) for r in RESOURCES}
        assert _least_fifo(device, bits, least) == expected


def test_tasks_that_cost_the_same_are_all_tasks_once() -> None:
    """Also where each task of a class costs something else."""
    loaded = dse.load_program(programs.later_tasks_do_less())
    mapping = FpgaMapping(loaded.vmg, FpgaDevice.load("u280"))
    assert any(pid for _, pid, *_ in mapping.shared.alike(0))
    tasks = [int(task) for _, _, group, _ in mapping.shared.alike(0) for task in group]
    assert sorted(tasks) == list(range(loaded.task_count))


def test_only_ids_that_decide_make_tasks_differ() -> None:
    """Which head attention is of decides on nothing, and rows only on whether the mask hides all keys."""
    work = attention_work(4, 4, 64, 8, 1.0, True, element_type("f32"))
    loaded = dse.load_program(work.program, **(work.smallest | {"Pq": 4, "Pk": 4}))
    mapping = FpgaMapping(loaded.vmg, FpgaDevice.load("u280"))
    groups = list(mapping.shared.alike(0))
    sizes = sorted((cls.name, len(tasks)) for cls, _, tasks, _ in groups)
    assert sizes == [("t0100", 16), ("t1100", 12), ("t1100", 20), ("t1101", 4), ("t1101", 12)]
    program = loaded.vmg.program
    for cls, pid, tasks, pids in groups:
        each = [task_cost(program, cls, mapping.device, (), tuple(own.tolist())) for own in pids]
        assert [one.parts for one in each] == [mapping.cost(cls, pid).parts] * len(tasks)


def test_a_space_with_strips_has_the_front_of_all_its_designs(tmp_path: Path) -> None:
    packs = [dse.pack(tensor, [32]) for tensor in "XVY"]
    objectives = [dse.minimize("latency_cycles"), dse.minimize("dsp")]
    study = Study(
        "turned",
        program=programs.products_of_columns(8),
        device="u280",
        schedules=["auto", *packs],
        objectives=objectives,
    )
    every = study.run(run_dir=tmp_path / "all", sampler="exhaustive", progress="quiet", verify=False)
    some = study.run(run_dir=tmp_path / "some", sampler="exact", progress="quiet", verify=False)
    fronts = [sorted(r.pareto[["latency_cycles", "dsp"]].itertuples(index=False, name=None)) for r in (every, some)]
    assert fronts[0] == fronts[1]
    assert any(one.design.program.rewrites for one in map(some.best, ("latency_cycles", "dsp")))
    assert present(some.certificate).evaluated < len(every.trials) / 5
    simulator = FpgaSimulator()
    assert min(assert_bounded(c.design, simulator) for c in study.space.designs() if not study.check(c.design)) > 0.99
