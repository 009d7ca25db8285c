"""Programs that one process has compiled, in others."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

from allo_dse.eval.evaluator import needs
from allo_dse.lang import install
from allo_dse.space.choices import parameters
from allo_dse.space.choices.parameters import SharedPrograms, learn, meanings
from allo_dse.space.genes import Genes, random_suggest
from allo_dse.space.space import Space
from allo_dse.tune.declare.pickled_study import PickledStudy
from allo_dse.tune.study import load_studies
from allo_dse.tune.workers.pool import Task
from allo_dse.tune.workers.ray_executor import RayWorker
from benchmarks.search_overhead import HERE, Instant, gemm_study

from ..tune.fakes import fake_study

install()

STUDIES = ("gemm_npu", "attention_npu", "systolic_fpga")


def made(name: str) -> Any:
    return load_studies(HERE.parent / "studies" / f"{name}.py", {})[0]


def some_genes(space: Space, count: int) -> list[Genes]:
    drawn = (space.decode(random_suggest(np.random.default_rng(seed))) for seed in range(count))
    return [candidate.genes for candidate in drawn if candidate is not None]


def refuse(*_: object, **__: object) -> Any:
    raise AssertionError("compiled again")


@pytest.mark.parametrize("name", STUDIES)
def test_what_was_compiled_elsewhere_is_the_same_program(name: str, monkeypatch: Any) -> None:
    first, second = made(name), made(name)
    designs = some_genes(first.space, 12)
    assert designs
    found = meanings(first.space)
    assert found
    assert not meanings(first.space)
    learn(second.space, pickle.loads(pickle.dumps(found)))
    monkeypatch.setattr(parameters, "load_watched", refuse)
    for genes in designs:
        one, other = first.space.decode_genes(genes), second.space.decode_genes(genes)
        assert one is not None
        assert other is not None
        assert one.design.program is not other.design.program
        assert one.key == other.key
        assert one.design.program.digest == other.design.program.digest
        assert [str(v) for v in first.check(one.design)] == [str(v) for v in second.check(other.design)]
    assert not meanings(second.space)  # it was told


def test_what_a_space_lists_is_handed_on_too() -> None:
    first = made("systolic_fpga")
    listed = next(first.space.designs())
    (found,) = meanings(first.space)
    assert found.wanted == found.found
    second = made("systolic_fpga")
    learn(second.space, [found])
    other = second.space.decode_genes(listed.genes)
    assert other is not None
    assert other.key == listed.key


def test_a_worker_compiles_nothing_that_another_has_compiled(monkeypatch: Any) -> None:
    study = gemm_study()
    study._evaluator = Instant
    designs = some_genes(study.space, 20)
    tasks = [Task(number, 0, genes) for number, genes in enumerate(designs)]
    told = meanings(study.space)
    workers = [gemm_study() for _ in range(2)]
    for worker in workers:
        worker._evaluator, worker.reload = Instant, None
    asked = [needs(study.make_evaluator())]
    alone = RayWorker(PickledStudy.of(workers[0]), asked).run(tasks)
    monkeypatch.setattr(parameters, "load_watched", refuse)
    found = RayWorker(PickledStudy.of(workers[1]), asked).run(tasks, told)
    assert [one.metrics for one in found] == [one.metrics for one in alone]
    assert not any(one.error for one in found)


def test_a_worker_is_sent_a_program_once_and_none_that_it_has() -> None:
    space = gemm_study().space
    shared = SharedPrograms(space)
    designs = some_genes(space, 30)
    first, second = designs[:15], designs
    wanted = list(dict.fromkeys(_wanted(space, genes) for genes in designs))
    sent = [one.wanted for one in shared.needed("a", first)]
    assert sent == list(dict.fromkeys(_wanted(space, genes) for genes in first))
    assert [one.wanted for one in shared.needed("a", second)] == [one for one in wanted if one not in sent]
    assert not shared.needed("a", second)
    assert [one.wanted for one in shared.needed("b", second)] == wanted
    shared.forget("b")
    assert [one.wanted for one in shared.needed("b", second)] == wanted


def test_a_worker_is_sent_what_this_process_has_compiled() -> None:
    space = gemm_study().space
    designs = some_genes(space, 10)
    found = SharedPrograms(space).needed("a", designs[:1])
    assert [one.wanted for one in found] == [_wanted(space, designs[0])]


def _wanted(space: Space, genes: Genes) -> tuple[int, ...]:
    choice: Any = space.choices[0]
    return tuple(choice.wanted(genes))


def test_programs_that_cannot_be_sent_are_left_out() -> None:
    study = fake_study()
    some_genes(study.space, 3)
    assert not meanings(study.space)  # those are formulas
