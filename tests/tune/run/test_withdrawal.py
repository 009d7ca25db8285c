"""A proof that is contradicted is taken back: by a measurement outside of its bounds, or by a design that is wrong."""

from __future__ import annotations

import importlib
import io
import math
import random
from functools import partial
from operator import le
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

import allo_dse as dse
from allo_dse.eval.evaluator import Bounds, Metrics
from allo_dse.lang import install
from allo_dse.tune.results.result import Result
from allo_dse.tune.search import proposals
from allo_dse.tune.show.output import print_result
from allo_dse.tune.store.log import Log
from allo_dse.tune.store.record import Verification

from ...support.values import present
from ..fakes import FakeEvaluator, Looseness
from ..search.test_exact import Bounded, front_of, order, run, small

install()

METRICS = ("latency_us", "pe_count", "local_memory_bytes")


def chance(*parts: Any) -> float:
    """The same number for the same parts, between 0 and 1."""
    return random.Random(":".join(map(str, parts))).random()


def surprise(metrics: Metrics, design: Any, seed: int, share: float) -> Metrics:
    """Another value of one metric, of a share of the designs."""
    if chance(seed, design.key) >= share:
        return metrics
    name = METRICS[int(3 * chance(seed, design.key, "name"))]
    return Metrics(**{**metrics, name: metrics[name] * 2 * chance(seed, design.key, "factor")})


class Surprising(FakeEvaluator):
    """A third of the designs is other than its bounds say, and most of them better."""

    def __init__(self, seed: int = 0, share: float = 0.3) -> None:
        self.seed, self.share = seed, share

    def evaluate(self, design: Any) -> Metrics:
        return surprise(super().evaluate(design), design, self.seed, self.share)

    def bounding(self) -> Looseness:
        return Looseness(1e-6)


class Inherits(Bounded):
    """Changes what its parent says, and states no bounds."""

    def __init__(self, seed: int = 0, share: float = 0.3) -> None:
        self.seed, self.share = seed, share

    def evaluate(self, design: Any) -> Metrics:
        return surprise(super().evaluate(design), design, self.seed, self.share)


class Wraps:
    """Changes what another evaluator says, and gives everything else of it as its own."""

    def __init__(self, seed: int = 0, share: float = 0.3) -> None:
        self.seed, self.share, self.wrapped = seed, share, Bounded()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.wrapped, name)

    def evaluate(self, design: Any) -> Metrics:
        return surprise(self.wrapped.evaluate(design), design, self.seed, self.share)


class Rounding(FakeEvaluator):
    """Bounds that are off by a rounding."""

    def bounding(self) -> Any:
        class OneUlp(Looseness):
            def __call__(self, design: Any, level: int) -> Bounds:
                metrics = FakeEvaluator().evaluate(design)
                return {name: (metrics[name] * (1 + 1e-15), metrics[name] * (1 + 1e-15)) for name in METRICS}

        return OneUlp(0)


def few(evaluator: Any, **options: Any) -> Any:
    """A study of 78 designs."""
    return small(**{"evaluator": evaluator, "size": 64, "max_nodes": 1, **options})


def withdrawals(run_dir: Path) -> list[dict[str, Any]]:
    return [e for e in Log(run_dir / "log.jsonl").entries if e["type"] == "withdrawal"]


def wrong_where(is_wrong: Any) -> Any:
    def verifier(design: Any) -> Verification:
        wrong = is_wrong(design)
        return Verification(ok=not wrong, message="C[0, 0] is 3, should be 4" if wrong else "", seconds=0.0)

    return verifier


@pytest.fixture(scope="module")
def all_of_small(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(small(), tmp_path_factory.mktemp("small") / "run", sampler="exhaustive")


@pytest.fixture(scope="module")
def all_surprising(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(small(evaluator=Surprising), tmp_path_factory.mktemp("surprising") / "run", sampler="exhaustive")


@pytest.fixture(scope="module")
def few_surprising(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(few(Surprising), tmp_path_factory.mktemp("few") / "run", sampler="exhaustive")


@pytest.mark.parametrize("sampler", ["exact", "auto"])
def test_the_first_contradiction_withdraws_all_bounds_and_the_front_is_that_of_the_space(
    tmp_path: Path, all_surprising: Result, sampler: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found = run(small(evaluator=Surprising), tmp_path / "found", sampler=sampler, progress="plain")
    (said,) = withdrawals(tmp_path / "found")
    assert said["evaluator"] == "formula 1"
    assert "was bounded by" in said["reason"]
    assert "BOUNDS WITHDRAWN" in capsys.readouterr().err
    assert front_of(found) == front_of(all_surprising)
    if sampler == "exact":
        assert present(found.certificate).complete
        assert present(found.certificate).bounded == 0


class FalseRegions:
    """Bounds of regions that are false where a design has several nodes; single designs have none."""

    levels, metrics = 1, frozenset({"latency_us"})

    def __call__(self, design: Any, level: int) -> Bounds:
        return {}

    def of_region(self, draft: Any, nodes: int, layout: Any = None) -> Bounds:
        return {"latency_us": (1e9, math.inf)} if nodes > 1 and (layout is not None) is self.of_parts else {}

    def __init__(self, of_parts: bool) -> None:
        self.of_parts = of_parts


class BoundsRegions:
    name, version = "bounds regions", "1"

    def __init__(self, of_parts: bool = False) -> None:
        self.of_parts = of_parts

    def evaluate(self, design: Any) -> Metrics:
        return dse.NpuSimulator().evaluate(design)

    def bounding(self) -> FalseRegions:
        return FalseRegions(self.of_parts)


@pytest.mark.parametrize("of_parts", [False, True])
def test_a_bound_of_a_region_is_compared_with_the_designs_in_it(tmp_path: Path, of_parts: bool) -> None:
    """The regions of all fast designs are ruled out; one of their designs is measured first."""
    study = dse.Study(
        "regions",
        program=importlib.import_module("studies.reduction_npu").column_sums,
        params={"M": 64, "N": 64, "Pm": dse.choices([4]), "Pn": dse.choices([2, 4])},
        device="npu1_4col",
        objectives=[dse.minimize("latency_us")],
        evaluator=partial(BoundsRegions, of_parts),
    )
    every = run(study, tmp_path / "every", sampler="exhaustive")
    study.enqueue(next(r.candidate.design for r in every.front if r.candidate.design.fold.node_count > 1))
    found = run(study, tmp_path / "found")
    (said,) = withdrawals(tmp_path / "found")
    assert "was bounded by 1e+09" in said["reason"]
    assert front_of(found) == front_of(every)


def test_bounds_that_earlier_measurements_contradict_are_withdrawn_when_a_run_goes_on(tmp_path: Path) -> None:
    run(few(FakeEvaluator), tmp_path, 20, sampler="evolution")
    assert not withdrawals(tmp_path)
    every = run(few(FakeEvaluator), tmp_path / "every", sampler="exhaustive")

    class Wrong(FakeEvaluator):  # the same name and version, with bounds
        def bounding(self) -> Looseness:
            class Too(Looseness):
                def __call__(self, design: Any, level: int) -> Bounds:
                    return {"latency_us": (1e9, math.inf)}

            return Too(0)

    found = run(few(Wrong), tmp_path)
    assert len(withdrawals(tmp_path)) == 1
    assert front_of(found) == front_of(every)
    assert present(found.certificate).bounded == 0


def front_without(result: Any, key: str) -> set[tuple[float, ...]]:
    """The values of the front of all designs but one."""
    left = {tuple(present(r.values).values()) for r in result.records if r.key != key}
    return {one for one in left if not any(other != one and all(map(le, other, one)) for other in left)}


def test_several_workers_withdraw_and_reopen_too(tmp_path: Path, few_surprising: Result) -> None:
    best = few_surprising.front[0].key
    study = few(Surprising, verifier=wrong_where(lambda d: d.key == best))
    found = run(study, tmp_path / "found", verify=True, workers=2)
    assert len(withdrawals(tmp_path / "found")) == 1
    assert found.wrong == [best]
    assert front_of(found) == front_without(few_surprising, best)


def test_with_rungs_nothing_is_bounded_and_a_wrong_design_leaves_the_front(tmp_path: Path) -> None:
    """Measurements of the second rung correct predictions, so no bound of the first holds for them."""
    options: dict[str, Any] = {"rungs": [dse.Rung(FakeEvaluator, at_most=4)], "max_nodes": 1}
    every = run(few(Surprising, **options), tmp_path / "every", sampler="exhaustive")
    best = every.front[0].key
    study = few(Surprising, **options, verifier=wrong_where(lambda d: d.key == best))
    found = run(study, tmp_path / "found", sampler="exhaustive", verify=True)
    assert not withdrawals(tmp_path / "found")
    assert best in found.wrong
    assert found.front
    assert best not in {design.key for design in found.front}


def test_a_space_in_which_every_design_is_wrong_proves_nothing(tmp_path: Path) -> None:
    found = run(few(Bounded, verifier=wrong_where(lambda design: True)), tmp_path, verify=True)
    assert found.front == []
    console = Console(file=io.StringIO(), width=140)
    print_result(found, console, [])
    said = cast(io.StringIO, console.file).getvalue().replace("\n", " ")
    assert "no right design among 78 evaluated" in said
    assert "78 failed verification, the last one: C[0, 0] is 3, should be 4" in said
    assert "correct the program, or the study's reference" in said
    assert "nothing is proven: of the space's 78 designs none is left: 78 that failed verification" in said
    assert "complete" not in said


def test_bounds_that_hold_up_to_a_rounding_are_not_withdrawn(tmp_path: Path) -> None:
    found = run(few(Rounding), tmp_path)
    assert not withdrawals(tmp_path)
    assert present(found.certificate).complete


def test_a_run_that_goes_on_after_a_withdrawal_counts_on_no_bounds(tmp_path: Path, few_surprising: Result) -> None:
    for trials in (2, 5, 9, 20, 10**6):
        found = run(few(Surprising), tmp_path / "parts", trials)
        assert present(found.certificate).complete is (trials > len(few_surprising.records))
    assert len(withdrawals(tmp_path / "parts")) == 1
    assert front_of(found) == front_of(few_surprising)
    assert present(found.certificate).bounded == 0


def test_a_log_that_ends_with_the_withdrawal_is_gone_on_with(tmp_path: Path, few_surprising: Result) -> None:
    run(few(Surprising), tmp_path / "cut")
    log = tmp_path / "cut" / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    end = next(n for n, line in enumerate(lines) if b'"withdrawal"' in line)
    log.write_bytes(b"".join(lines[: end + 1]))
    found = run(few(Surprising), tmp_path / "cut")
    assert front_of(found) == front_of(few_surprising)
    assert present(found.certificate).bounded == 0


@pytest.mark.parametrize("sampler", ["exact", "auto", "exhaustive"])
def test_a_wrong_design_of_the_front_reopens_the_search_in_the_same_run(
    tmp_path: Path, all_of_small: Result, sampler: str
) -> None:
    best = {design.key for design in all_of_small.front}
    found = run(small(verifier=wrong_where(lambda d: d.key in best)), tmp_path / "found", sampler=sampler, verify=True)
    right = {r.key: tuple(present(r.values).values()) for r in all_of_small.records if r.key not in best}
    front = {one for one in right.values() if not any(o != one and all(map(le, o, one)) for o in right.values())}
    assert set(found.wrong) <= best
    assert front_of(found) == front
    assert len(order(tmp_path / "found")) == len(set(order(tmp_path / "found")))
    if sampler != "exhaustive":
        certificate = present(found.certificate)
        assert certificate.complete
        assert certificate.wrong == len(found.wrong) > 0


def test_it_is_reopened_across_runs_too(tmp_path: Path) -> None:
    def is_wrong(design: Any) -> bool:
        return chance(design.key) < 0.5

    once = run(small(verifier=wrong_where(is_wrong)), tmp_path / "once", verify=True)
    before = 0
    for trials in (10, 30, 10**6):
        found = run(small(verifier=wrong_where(is_wrong)), tmp_path / "parts", trials, verify=True)
        assert len(found.wrong) >= before
        before = len(found.wrong)
        assert not {design.key for design in found.front} & set(found.wrong)
    assert front_of(found) == front_of(once)
    assert present(found.certificate).complete


def test_a_proof_that_fails_as_trials_end_is_no_proof(tmp_path: Path) -> None:
    run(small(), tmp_path / "once")
    total = len(order(tmp_path / "once"))
    found = run(small(verifier=wrong_where(lambda design: True)), tmp_path / "wrong", total, verify=True)
    assert found.front == []
    assert not present(found.certificate).complete


def test_exact_goes_on_where_a_space_is_too_large_to_list_without_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class LargeSoon(Surprising):
        def evaluate(self, design: Any) -> Metrics:
            monkeypatch.setattr(proposals, "MOST_LISTED", 10)
            return Surprising.evaluate(self, design)

        def bounding(self) -> Looseness:
            return Looseness(1e-6)

    for trials in (50, 60):
        found = run(few(LargeSoon), tmp_path, trials, progress="plain")
        assert "without bounds there is no proof" in capsys.readouterr().err
        assert len(found.records) == trials
        assert found.certificate is None or not found.certificate.complete


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("evaluator", [Surprising, Inherits, Wraps])
def test_no_proof_is_false_but_by_own_bounds_that_no_measured_design_contradicts(
    tmp_path: Path, evaluator: Any, seed: int
) -> None:
    made = partial(evaluator, seed, (0.02, 0.1, 0.5)[seed % 3])
    every = run(few(made()), tmp_path / "every", sampler="exhaustive")
    found = run(few(made()), tmp_path / "found", sampler="exact")
    counted_on = evaluator is Surprising and not withdrawals(tmp_path / "found")
    assert present(found.certificate).complete
    assert counted_on or front_of(found) == front_of(every)
    assert counted_on or present(found.certificate).bounded == 0
