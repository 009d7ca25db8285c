"""Results across runs: found again, and only for what decides them."""

import itertools
import time
from pathlib import Path
from typing import Any

import pytest

from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.run.cache import ResultCache
from allo_dse.tune.study import Study
from tests.tune.fakes import FakeEvaluator, check, fake_study


class Slowish(FakeEvaluator):
    count = 0

    def evaluate(self, design: Any) -> Metrics:
        Slowish.count += 1
        time.sleep(0.0005)
        return super().evaluate(design)


class Newer(Slowish):
    version = "2"


def run(study: Study, folder: Path, name: str, trials: int = 40, **options: Any) -> Any:
    return study.run(trials, run_dir=folder / name, cache=folder / "cache", progress="quiet", verify=False, **options)


def candidates(count: int) -> Any:
    study = fake_study()
    return study.programs, list(itertools.islice((c for c in study.space.designs() if not check(c.design)), count))


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
    programs, (a, b, c) = candidates(3)
    one, two = (ResultCache(tmp_path, Slowish(), programs) for _ in range(2))
    one.put(a, {"x": 1.5}, 1.0)
    two.put(b, {"x": 2}, 1.0)
    assert two.get(a) == {"x": 1.5}
    one.path.write_bytes(one.path.read_bytes()[:-4])
    three = ResultCache(tmp_path, Slowish(), programs)
    assert three.get(a) == {"x": 1.5}
    assert three.get(b) is None
    three.put(c, {"x": 3}, 1.0)
    four = ResultCache(tmp_path, Slowish(), programs)
    assert [four.get(d) for d in (a, b, c)] == [{"x": 1.5}, None, {"x": 3}]
    assert four.hits == 2
    for cache in (one, two, three, four):
        cache.close()


def test_fast_and_damaged_results_are_not_used(tmp_path: Path) -> None:
    programs, (a, b) = candidates(2)
    cache = ResultCache(tmp_path, Slowish(), programs)
    cache.put(a, {"x": 1}, 1e-6)
    assert cache.get(a) is None
    cache.put(b, {"x": 1}, 1.0)
    cache.path.write_bytes(cache.path.read_bytes().replace(b'"x":1', b'"x":7'))
    assert cache.get(b) is None
    cache.close()
