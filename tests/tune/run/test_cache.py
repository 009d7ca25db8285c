"""Results across runs: found again, and only for what decides them."""

import itertools
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.fpga.hls.evaluator import HlsTool
from allo_dse.backends.rtl.evaluator import RtlEvaluator
from allo_dse.eval.evaluator import Evaluator, FunctionEvaluator, Metrics
from allo_dse.tune.run.cache import ResultCache, evaluator_key
from allo_dse.tune.search.repeats import Repeating
from allo_dse.tune.study import Study

from ..fakes import FakeEvaluator, check, fake_study


class Slowish(FakeEvaluator):
    count = 0

    def evaluate(self, design: Any) -> Metrics:
        Slowish.count += 1
        time.sleep(0.0005)
        return super().evaluate(design)


class Newer(Slowish):
    version = "2"


class Scaled(FakeEvaluator):
    def __init__(self, by: float) -> None:
        self.by = by
        self._seen: list[object] = [object()]


def scaled(by: Any) -> Any:
    def cost(design: Any) -> Any:
        return design.key, by

    return cost


def repeated(evaluator: Evaluator) -> Repeating:
    return Repeating(evaluator, (), ())


def run(study: Study, folder: Path, name: str, trials: int = 40, **options: Any) -> Any:
    return study.run(trials, run_dir=folder / name, cache=folder / "cache", progress="quiet", verify=False, **options)


def candidates(count: int) -> Any:
    study = fake_study()
    return list(itertools.islice((c for c in study.space.designs() if not check(c.design)), count))


def test_a_second_run_evaluates_only_what_is_new(tmp_path: Path) -> None:
    Slowish.count = 0
    first = run(fake_study(evaluator=Slowish), tmp_path, "a")
    assert Slowish.count == 40
    second = run(fake_study(evaluator=Slowish), tmp_path, "b", 60)
    assert Slowish.count == 60
    assert [r.key for r in second.records[:40]] == [r.key for r in first.records]
    assert [r.metrics for r in second.records[:40]] == [r.metrics for r in first.records]
    assert [r.cached for r in second.records] == [True] * 40 + [False] * 20


@pytest.mark.parametrize("changes", [{"evaluator": Newer}, {"salt": "x"}])
def test_another_version_or_program_finds_nothing(tmp_path: Path, changes: Any) -> None:
    run(fake_study(evaluator=Slowish), tmp_path, "a", 10)
    result = run(fake_study(**{"evaluator": Slowish, **changes}), tmp_path, "b", 10)
    assert not any(r.cached for r in result.records)


@pytest.mark.parametrize(
    ("one", "other"),
    [(HlsTool(), HlsTool(cosim=True)), (RtlEvaluator(), RtlEvaluator(synthesize=True)),
     (FpgaSimulator(), FpgaSimulator("declared")), (Scaled(1), Scaled(2)),
     (FunctionEvaluator(scaled(1)), FunctionEvaluator(scaled(2))),
     (FunctionEvaluator(scaled(np.zeros(2))), FunctionEvaluator(scaled(np.ones(2)))),
     (FunctionEvaluator(scaled(lambda d: d)), FunctionEvaluator(scaled(lambda d, k=2: d))),
     (repeated(Scaled(1)), repeated(Scaled(2))), (Scaled(1), repeated(Scaled(1)))],
)  # fmt: skip
def test_what_an_evaluator_was_made_with_is_part_of_what_it_is_known_by(one: Evaluator, other: Evaluator) -> None:
    assert evaluator_key(one) != evaluator_key(other)


def test_an_evaluator_that_is_made_again_is_known() -> None:
    assert evaluator_key(HlsTool(seconds=1)) == evaluator_key(HlsTool(seconds=2))
    assert evaluator_key(Scaled(1)) == evaluator_key(Scaled(1))
    assert evaluator_key(repeated(Scaled(1))) == evaluator_key(repeated(Scaled(1)))
    assert evaluator_key(FunctionEvaluator(scaled(3))) == evaluator_key(FunctionEvaluator(scaled(3)))


FUNCTION = """
def cost(design):
    return max([1, 2], key=lambda x: x in {1, 5, LIMIT, helper(x)})
"""
CLASS = """
class Evaluator:
    name, version = "mine", "1"

    def evaluate(self, design):
        return sorted([1, 2], key=lambda x: x in {1, 5, LIMIT, helper(x)})
"""
AROUND = """
LIMIT = 7

def helper(x):
    return x + 3 if x else cost(x)
"""


@pytest.mark.parametrize("text", [FUNCTION, CLASS])
def test_what_is_typed_in_again_is_known_by_what_it_does(text: str) -> None:
    """As in a notebook: it has no file, and a lambda within it is another object each time."""

    def key(text: str, around: str = AROUND) -> str:
        values: dict[str, Any] = {"__name__": "notebook"}
        exec(compile(text, "<cell>", "exec"), values)
        exec(compile(around, "<another cell>", "exec"), values)
        return evaluator_key(FunctionEvaluator(values["cost"]) if "cost" in values else values["Evaluator"]())

    changed = [key(text.replace("5", "6")), key(text, AROUND.replace("7", "8")), key(text, AROUND.replace("3", "4"))]
    assert key(text) == key(text)
    assert len({key(text), *changed}) == 4


def test_a_run_elsewhere_shares_nothing_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    study = fake_study(evaluator=Slowish)
    study.run(10, progress="quiet", verify=False)
    assert list((tmp_path / "runs" / ".results").iterdir())
    assert all(r.cached for r in fake_study("twin", evaluator=Slowish).run(10, progress="quiet", verify=False).records)
    assert not any(
        r.cached
        for r in fake_study("other", evaluator=Slowish).run(10, progress="quiet", verify=False, cache=False).records
    )
    elsewhere = fake_study(evaluator=Slowish).run(10, run_dir=tmp_path / "x", progress="quiet", verify=False)
    assert not any(r.cached for r in elsewhere.records)


def test_two_processes_may_write_and_a_torn_line_costs_one_result(tmp_path: Path) -> None:
    a, b, c = candidates(3)
    one, two = (ResultCache(tmp_path, Slowish()) for _ in range(2))
    one.put(a, {"x": 1.5}, 1.0)
    two.put(b, {"x": 2}, 1.0)
    assert two.get(a) == {"x": 1.5}
    one.path.write_bytes(one.path.read_bytes()[:-4])
    three = ResultCache(tmp_path, Slowish())
    assert three.get(a) == {"x": 1.5}
    assert three.get(b) is None
    three.put(c, {"x": 3}, 1.0)
    four = ResultCache(tmp_path, Slowish())
    assert [four.get(d) for d in (a, b, c)] == [{"x": 1.5}, None, {"x": 3}]
    assert four.hits == 2
    for cache in (one, two, three, four):
        cache.close()


def test_fast_and_damaged_results_are_not_used(tmp_path: Path) -> None:
    a, b = candidates(2)
    cache = ResultCache(tmp_path, Slowish())
    cache.put(a, {"x": 1}, 1e-6)
    assert cache.get(a) is None
    cache.put(b, {"x": 1}, 1.0)
    cache.path.write_bytes(cache.path.read_bytes().replace(b'"x":1', b'"x":7'))
    assert cache.get(b) is None
    cache.close()
