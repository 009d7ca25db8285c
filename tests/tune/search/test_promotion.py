"""Expensive evaluators for the best designs: what is promoted, what is recorded, what happens when one cannot run."""

import json
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import numpy as np
import optuna
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.common.errors import StudyError
from allo_dse.eval.evaluator import Metrics
from allo_dse.lang import install
from allo_dse.space.genes import Gene, Genes
from allo_dse.space.params import divisors
from allo_dse.space.sampler.pareto import pareto_positions
from allo_dse.tune.search import budget
from allo_dse.tune.search.objectives import minimize
from allo_dse.tune.search.promotion import FEWEST, Promotion, Rung, promoted
from allo_dse.tune.search.tally import Tally
from allo_dse.tune.store.log import Log
from allo_dse.tune.store.record import Record, json_text
from allo_dse.tune.study import Study

from ..fakes import FakeEvaluator, add, fake_study

install()

from studies.vector_add_npu import vector_add


class Measured(FakeEvaluator):
    """What the formula leaves out: each design is slower by a share of its own. Says only the latency."""

    name = "measured"

    def evaluate(self, design: Any) -> Metrics:
        slower = 1 + int(design.key, 16) % 100 / 100
        return Metrics(latency_us=super().evaluate(design).latency_us * slower, luts=7)


class Missing(Measured):
    name = "board"
    resource = "board"

    def unavailable(self) -> str:
        return "no board: apt install board"


class FailsForSome(Measured):
    def evaluate(self, design: Any) -> Metrics:
        if int(design.key, 16) % 2:
            raise RuntimeError("routing failed")
        return super().evaluate(design)


class Interrupted(Measured):
    """Stops the driver, as it were, after some designs."""

    left = 5

    def evaluate(self, design: Any) -> Metrics:
        Interrupted.left -= 1
        if Interrupted.left < 0:
            raise KeyboardInterrupt
        return super().evaluate(design)


def run(study: Study, run_dir: Path, trials: int = 80, **options: Any) -> Any:
    return study.run(trials, run_dir=run_dir, progress="quiet", **options)


def designs(run_dir: Path, rung: int) -> Any:
    entries = Log(run_dir / "log.jsonl").entries
    return [e for e in entries if e["type"] == "design" and e["status"] != "violation" and e.get("rung", 0) == rung]


POINTS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=30)


@given(POINTS, st.floats(0, 1), st.booleans(), st.integers(1, 40))
def test_the_front_and_the_best_share_go_up_and_never_more_than_allowed(
    points: Any, best: Any, front: Any, at_most: Any
) -> None:
    values = {str(n): (float(a), float(-b)) for n, (a, b) in enumerate(points)}
    chosen = promoted(Rung(FakeEvaluator, front=front, best=best, at_most=at_most), values, (1.0, -1.0))
    assert len(set(chosen)) == len(chosen) <= at_most
    losses = np.array([[a, b] for a, b in points], float)
    on_front = {str(p) for p in pareto_positions(losses)}
    if front and at_most >= len(on_front):
        assert on_front <= set(chosen)
    if at_most >= len(points):
        assert len(chosen) >= best * len(points) or front
        assert len(chosen) <= max(np.ceil(best * len(points)), len(on_front) if front else 0)
    if len(chosen) > len(on_front):
        assert on_front <= set(chosen)  # layers in order


def test_promoted_designs_have_the_metrics_of_every_rung(tmp_path: Path) -> None:
    result = run(fake_study(rungs=[Rung(Measured, best=0.1)]), tmp_path / "run")
    cheap, expensive = designs(tmp_path / "run", 0), designs(tmp_path / "run", 1)
    assert len(cheap) == 80
    by_key = {e["key"]: e for e in cheap}
    losses = np.array([list(e["values"].values()) for e in cheap])
    front = {cheap[p]["key"] for p in pareto_positions(losses)}
    assert front >= {e["key"] for e in expensive[:FEWEST]}
    assert len(expensive) == len({e["key"] for e in expensive}) == max(8, len(front))
    for entry in expensive:
        below = by_key[entry["key"]]
        assert entry["evaluator"] == "measured 1"
        assert set(entry["metrics"]) == {"latency_us", "luts"}
        assert entry["values"]["pe_count"] == below["values"]["pe_count"]
        assert entry["values"]["latency_us"] == entry["metrics"]["latency_us"] >= below["values"]["latency_us"]
    assert {d.key for d in result.front} <= {e["key"] for e in expensive}
    best = result.best("latency_us")
    assert best.values["latency_us"] == min(e["values"]["latency_us"] for e in expensive)
    assert best.metrics.luts == 7
    assert best.metrics.dram_bytes > 0
    predicted, measured = best.record.measurements
    assert (predicted.evaluator, measured.evaluator) == (cheap[0]["evaluator"], "measured 1")
    assert predicted.metrics == by_key[best.key]["metrics"]
    assert set(measured.metrics) == {"latency_us", "luts"}
    assert "rungs" not in {name for entry in expensive for name in entry}
    assert len(result.trials) == 80


def true(genes: Genes) -> tuple[float, float] | None:
    """What the cheap evaluator, for which b counts nothing, does not know."""
    a, b = genes["a"], genes["b"]
    return None if a == b else (10.0 / (1 + a) * (1 + b), 1.0 + a)


def met(designs: list[tuple[int, int]]) -> Tally:
    """What is known when a search by the cheap evaluator has met these."""
    tally = Tally([minimize("time"), minimize("area")])
    for number, (a, b) in enumerate(designs):
        genes = json_text({"a": a, "b": b})
        record = Record(number=number, key=f"{a} {b}", status="ok", genes_json=genes)
        add(tally, record, (10.0 / (1 + a), 1.0 + a))
    return tally


def climbed(tally: Tally, rung: Rung, workers: int = 1, most: int = 1000, order: list[str] | None = None) -> list[str]:
    """Keys in the order in which they go up, when so many are measured at a time; at most so many more."""
    promotion = Promotion([rung], tally, (1.0, 1.0), {"a": Gene(0, 9), "b": Gene(0, 9)})
    order, under_way = [] if order is None else order, list[Record]()
    for _ in range(most):
        under_way += promotion.next(1, workers - len(under_way), over=True)
        if not under_way:
            break
        record = under_way.pop(0)
        order.append(record.key)
        measured = Record(number=0, key=record.key, status="ok", rung=1, genes_json=record.genes_json)
        tally.add_higher(measured, true(record.genes))
    return order


DESIGNS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=25, unique=True)


@given(DESIGNS, st.floats(0, 1), st.booleans(), st.integers(1, 12), st.integers(1, 4))
def test_none_goes_up_twice_and_as_many_as_by_the_order_of_the_cheap_evaluator(
    found: Any, best: Any, front: Any, at_most: Any, workers: Any
) -> None:
    rung, tally = Rung(FakeEvaluator, front=front, best=best, at_most=at_most), met(found)
    by_cheap = promoted(rung, tally.values, (1.0, 1.0))
    order = climbed(tally, rung, workers)
    assert len(order) == len(set(order)) == len(by_cheap) <= at_most
    assert order[:1] == by_cheap[:1]  # before anything is known


@given(DESIGNS, st.integers(1, 10), st.randoms(use_true_random=False))
def test_a_ladder_that_is_resumed_goes_on_the_same_way(found: Any, done: int, rng: Any) -> None:
    rung = Rung(FakeEvaluator, best=1.0, at_most=12)
    whole = climbed(met(found), rung)
    tally = met(found)
    order = climbed(tally, rung, most=done)
    known = list(tally.rungs.get(1, {}).items())
    rng.shuffle(known)  # in whatever order they are read
    tally.rungs = {1: dict(known)} if known else {}
    assert climbed(tally, rung, order=order) == whole


def test_what_was_measured_decides_what_is_measured_next() -> None:
    """Of 100 designs ten are on the true front, one of each `a`, of ten that look the same to the cheap evaluator."""
    everything = [(a, b) for a in range(10) for b in range(10)]
    rung = Rung(FakeEvaluator, best=1.0, at_most=25)
    tally = met(everything[::-1])  # the worst of those that look the same are known first
    best = {f"{a} {b}" for a in range(10) for b in [0 if a else 1]}
    assert len(best & set(promoted(rung, tally.values, (1.0, 1.0)))) <= 3
    assert len(best & set(climbed(tally, rung))) >= 9


def test_the_first_fronts_of_a_search_are_not_worth_much() -> None:
    rung = Rung(FakeEvaluator, best=1.0, at_most=10)
    promotion = Promotion([rung], met([(a, 5) for a in range(10)]), (1.0, 1.0), {"a": Gene(0, 9), "b": Gene(0, 9)})
    assert promotion.next(1, 10, over=False) == []
    promotion = Promotion([rung], met([(a, b) for a in range(10) for b in range(2)]), (1.0, 1.0), {})
    assert len(promotion.next(1, 10, over=False)) == 5
    assert promotion.next(1, 10, over=False) == []
    assert len(promotion.next(1, 10, over=True)) == 5


def nodes(design: Any) -> Any:
    return design.vmg.node_count


@pytest.mark.parametrize("sampler", ["exhaustive", "exact"])
def test_designs_of_a_space_that_is_listed_go_up(tmp_path: Path, sampler: str) -> None:
    """Those that are best, on one core, lack a gene that others have."""
    study = Study(
        "lanes", program=vector_add, params={"N": 64, "P": divisors(64)}, objectives=[minimize("nodes")],
        evaluator=nodes, rungs=[Rung(nodes, best=0.5)], target="model",
    )  # fmt: skip
    run(study, tmp_path / "run", 10, sampler=sampler, verify=False, export=False)
    assert len(designs(tmp_path / "run", 1)) == 5


def test_a_pruner_of_optuna_keeps_designs_from_going_up(tmp_path: Path) -> None:
    pruner = optuna.pruners.PercentilePruner(25.0, n_startup_trials=4)
    run(fake_study(rungs=[Rung(Measured, best=1.0)]), tmp_path / "all")
    run(fake_study(rungs=[Rung(Measured, best=1.0, pruner=pruner)]), tmp_path / "pruned")
    assert designs(tmp_path / "all", 0) != []
    assert len(designs(tmp_path / "all", 1)) == 80
    cheap = {e["key"]: e["values"]["latency_us"] for e in designs(tmp_path / "pruned", 0)}
    measured = [cheap[e["key"]] for e in designs(tmp_path / "pruned", 1)]
    assert 4 <= len(measured) < 40
    # Of those that were measured, the later ones are among the best quarter as predicted of those before them.
    assert all(value <= np.percentile(measured[:n], 25) for n, value in enumerate(measured) if n > 16)


def test_the_best_so_far_is_that_of_the_highest_rung() -> None:
    def record(rung: int, latency: float) -> Record:
        metrics = {"latency_us": latency}
        return Record(number=0, key="one", status="ok", rung=rung, metrics=metrics, genes_json=json_text({}))

    objective = minimize("latency_us")
    tally = Tally([objective])
    assert tally.best_value(objective) is None
    add(tally, record(0, 1.0), (1.0,))
    assert tally.best_value(objective) == 1.0
    tally.add_higher(record(1, 3.0), (3.0,))
    assert tally.best_value(objective) == 3.0


def test_the_model_learns_from_the_cheap_evaluator_only(tmp_path: Path) -> None:
    run(fake_study(), tmp_path / "plain")
    run(fake_study(rungs=[Measured]), tmp_path / "ladder")
    assert [e["key"] for e in designs(tmp_path / "plain", 0)] == [e["key"] for e in designs(tmp_path / "ladder", 0)]


def test_a_rung_that_cannot_run_is_reported_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = fake_study(rungs=[Missing, Rung(Measured, at_most=4)])
    study.run(40, run_dir=tmp_path / "run", progress="plain")
    assert "rung 1 (board 1) is left out: no board: apt install board; the other rungs go on" in capsys.readouterr().err
    assert designs(tmp_path / "run", 1) == []
    assert len(designs(tmp_path / "run", 2)) == 4


def test_without_the_first_evaluator_there_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match=r"board 1 cannot run: no board: apt install board"):
        run(fake_study(evaluator=Missing), tmp_path / "run")


class Cyclic(FakeEvaluator):
    """A board on which tasks that are dealt out cyclically take twice as long, and chains of partial sums fail."""

    name = "cyclic"

    def evaluate(self, design: Any) -> Metrics:
        chain, *axes = design.fold.kernels[0].axes
        if chain.spatial > 1:
            raise RuntimeError("deadlock")
        return Metrics(latency_us=super().evaluate(design).latency_us * (1 + sum(a.pattern == "cyclic" for a in axes)))


def test_a_study_learns_what_its_board_does(tmp_path: Path) -> None:
    """More of what it measures holds, and is as fast as predicted, than of what it would measure by predictions."""
    result = run(fake_study(rungs=[Rung(Cyclic, best=0.3, at_most=24)]), tmp_path / "run", 120, seed=2)
    tally = Tally(result.study.objectives)
    cheap = designs(tmp_path / "run", 0)
    for entry in cheap:
        record = Record(number=entry["number"], key=entry["key"], status="ok", genes_json=json_text(entry["genes"]))
        add(tally, record, tuple(entry["values"].values()))
    by_cheap = promoted(Rung(Cyclic, best=0.3, at_most=24), tally.values, (1.0, 1.0, 1.0))
    measured = designs(tmp_path / "run", 1)
    assert len(measured) == len(by_cheap) == 24
    latency = {e["key"]: e["values"]["latency_us"] for e in cheap}

    def good(keys: list[str]) -> int:
        found = {key: result.study.space.decode_genes(tally.records.by_key(key).genes) for key in keys}
        return sum(c.design.fold.kernels[0].axes[0].spatial == 1 for c in found.values())

    assert good([e["key"] for e in measured]) > good(by_cheap)
    assert all(e["metrics"]["latency_us"] >= latency[e["key"]] for e in measured if e["status"] == "ok")


def test_designs_that_fail_higher_up_leave_the_front(tmp_path: Path) -> None:
    result = run(fake_study(rungs=[FailsForSome]), tmp_path / "run")
    assert all(int(d.key, 16) % 2 == 0 for d in result.front)
    failed = [r for r in result.records if r.rung == 1 and r.status == "failed"]
    assert failed
    assert all("routing failed" in r.error for r in failed)
    (said,) = result.rung_failures
    promoted = [r for r in result.records if r.rung == 1]
    assert (said.failed, said.promoted) == (len(failed), len(promoted))
    assert dict(said.errors) == {"RuntimeError: routing failed": len(failed)}
    assert not said.measured_nothing
    assert {r.measured_by for r in promoted if r.status == "ok"} == {"measured 1"}
    assert {r.measured_by for r in failed} == {failed[0].measurements[0].evaluator}
    assert "routing failed" in str(said)


class FailsForAll(Measured):
    def evaluate(self, design: Any) -> NoReturn:
        raise RuntimeError(f"crashed after {int(design.key, 16) % 7}.5 s: no licence")


def test_where_everything_fails_higher_up_no_failed_design_is_left(tmp_path: Path) -> None:
    result = run(fake_study(rungs=[Rung(FailsForAll, at_most=6)]), tmp_path / "run")
    failed = {r.key for r in result.records if r.rung == 1}
    assert len(failed) == 6
    assert not failed & {d.key for d in result.front}
    assert not failed & set(result.values)
    (said,) = result.rung_failures
    assert said.measured_nothing
    ((error, count),) = said.errors.items()
    assert (count, error.endswith("s: no licence")) == (6, True)  # however long each took
    assert {d.record.measured_by for d in result.front} == {result.records[0].measurements[0].evaluator}
    again = run(fake_study(rungs=[Rung(FailsForAll, at_most=6)]), tmp_path / "run")
    assert {d.key for d in again.front} == {d.key for d in result.front}
    assert [str(one) for one in again.rung_failures] == [str(said)]


def test_an_interrupted_ladder_goes_on_where_it_stopped(tmp_path: Path) -> None:
    study = fake_study(rungs=[Interrupted])
    Interrupted.left = 5
    with pytest.raises(KeyboardInterrupt):
        run(study, tmp_path / "run")
    before = [e["key"] for e in designs(tmp_path / "run", 1)]
    Interrupted.left = 1000
    result = run(study, tmp_path / "run")
    Interrupted.left = 1000
    whole = run(fake_study(rungs=[Interrupted]), tmp_path / "whole")
    after = [e["key"] for e in designs(tmp_path / "run", 1)]
    assert after[: len(before)] == before
    assert len(after) == len(set(after))
    assert set(after) == {e["key"] for e in designs(tmp_path / "whole", 1)}
    assert [d.key for d in result.front] == [d.key for d in whole.front]


def test_a_time_budget_leaves_time_for_the_ladder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by 20 ms with each design, however long the machine takes."""
    evaluated: list[str] = []
    began = time.monotonic()
    monkeypatch.setattr(budget, "time", SimpleNamespace(monotonic=lambda: began + 0.02 * len(evaluated)))

    class Counted(FakeEvaluator):
        def evaluate(self, design: Any) -> Metrics:
            evaluated.append(design.key)
            return super().evaluate(design)

    result = fake_study(evaluator=Counted, rungs=[Rung(Measured, at_most=3)]).run(
        time=4, run_dir=tmp_path / "run", progress="quiet", verify=False
    )
    assert result.stopped == "time"
    assert len(designs(tmp_path / "run", 1)) == 3


def test_the_run_says_which_evaluators_it_has(tmp_path: Path) -> None:
    run(fake_study(rungs=[Missing]), tmp_path / "run", 10)
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["evaluators"] == [
        {"name": "formula", "version": "1", "resource": None},
        {"name": "board", "version": "1", "resource": "board"},
    ]


@pytest.mark.parametrize("options", [{"best": 2}, {"at_most": 0}])
def test_wrong_rungs_are_explained(options: Any) -> None:
    with pytest.raises(StudyError) as caught:
        Rung(Measured, **options)
    assert caught.value.hint
