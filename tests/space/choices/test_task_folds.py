"""A study that folds task by task."""

import itertools
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from allo_dse import Study, minimize
from allo_dse.common.errors import IllegalFold, StudyError
from allo_dse.mapper.program import Program
from allo_dse.space.choices.folds import TaskFolds
from allo_dse.space.choices.kernel_folds import KernelFolds
from allo_dse.space.genes import random_suggest
from allo_dse.tune.show.reporters import QuietReporter

from ...support.programs import graph_program, vector_add_program
from ...support.values import present
from ..support import NPU, MadePrograms, folded_space


@pytest.mark.parametrize("tasks", [4, 20])
def test_every_fold_has_genes(tasks: int) -> None:
    names = [f"n{i}" for i in range(tasks)]
    program = Program.of(graph_program(list(itertools.pairwise(names)), names))
    space = folded_space(lambda: program, TaskFolds(NPU))
    designs = list(space.designs())
    assert len(designs) == space.count(10**6) == len({candidate.key for candidate in designs})
    for candidate in designs[::5]:
        assert present(space.decode_genes(candidate.genes)).key == candidate.key
    rng = np.random.default_rng(0)
    found = [space.decode(random_suggest(rng)) for _ in range(20)]
    assert all(candidate is None or candidate.design.vmg.node_count <= 16 for candidate in found)
    assert any(found)


def test_a_study_of_single_tasks(tmp_path: Path) -> None:
    program = Program.of(vector_add_program(5, 1280))
    study = Study(
        "tasks", program=None, params={}, device=NPU, objectives=[minimize("latency_us"), minimize("pe_count")],
        folds="tasks", programs=MadePrograms(lambda: program),
    )  # fmt: skip
    result = study.run(trials=100, seed=0, run_dir=tmp_path, verify=False, progress=QuietReporter())
    best = result.best("latency_us")
    assert best.metrics.pe_count == 4
    assert "core_0, core_1 share their cores" in best.explain()
    assert best.mapping_primitives == [("chain", ["core_0", "core_1"])]


def test_folds_of_kernels_and_of_tasks_are_not_mixed_up() -> None:
    program = Program.of(vector_add_program(5, 1280))
    kernels, tasks = (folded_space(lambda: program, kind(NPU)) for kind in (KernelFolds, TaskFolds))
    assert kernels.fingerprint != tasks.fingerprint
    with pytest.raises(IllegalFold, match="single tasks"):
        kernels.encode(next(tasks.designs()).design)
    with pytest.raises(IllegalFold, match="whole kernels"):
        tasks.encode(next(kernels.designs()).design)
    with pytest.raises(StudyError, match="folds='meshes'"):
        Study("s", program=None, device=NPU, objectives=[minimize("latency_us")], folds=cast(Any, "meshes")).space  # noqa: B018
