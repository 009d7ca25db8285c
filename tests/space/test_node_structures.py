"""A study that folds task by task."""

import itertools

import numpy as np
import pytest

from allo_dse import Study, minimize
from allo_dse.device.device import Device
from allo_dse.mapper.program import Program
from allo_dse.space.node_structures import NodeStructures
from allo_dse.space.params import ParameterSpace
from allo_dse.space.samplers import random_suggest
from allo_dse.space.space import Space
from allo_dse.tune.show.reporters import QuietReporter
from tests.support.programs import graph_program, vector_add_program

NPU = Device.load("npu1_4col")


@pytest.fixture
def load(monkeypatch):
    def use(program):
        loaded = Program.of(program)
        monkeypatch.setattr("allo_dse.space.structures.load_program", lambda source: loaded)
        return NodeStructures(None, NPU)

    return use


@pytest.mark.parametrize("tasks", [4, 20])
def test_every_fold_has_genes(load, tasks):
    names = [f"n{i}" for i in range(tasks)]
    space = Space(ParameterSpace({}), load(graph_program(list(itertools.pairwise(names)), names)))
    designs = list(space.designs())
    assert len(designs) == space.count(10**6) == len({candidate.key for candidate in designs})
    for candidate in designs[::5]:
        assert space.decode_genes(candidate.genes).key == candidate.key
    rng = np.random.default_rng(0)
    found = [space.decode(random_suggest(rng)) for _ in range(20)]
    assert all(candidate is None or candidate.design.vmg.node_count <= 16 for candidate in found)
    assert any(found)


def test_a_study_of_single_tasks(load, tmp_path):
    study = Study(
        "tasks", program=None, params={}, device=NPU, objectives=[minimize("latency_us"), minimize("pe_count")],
        structures=load(vector_add_program(5, 1280)),
    )  # fmt: skip
    result = study.run(trials=100, seed=0, run_dir=tmp_path, verify=False, progress=QuietReporter())
    best = result.best("latency_us")
    assert best.metrics.pe_count == 4
    assert "core_0, core_1 share their cores" in best.explain()
    assert best.mapping_primitives == [("chain", ["core_0", "core_1"])]
