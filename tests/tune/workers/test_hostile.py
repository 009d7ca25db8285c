"""What evaluators, objectives and constraints may do on a bad day: it costs them one trial, and the run goes on."""

import asyncio
import json
import zlib
from pathlib import Path
from typing import Any

import pytest

from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.search.objectives import MetricError, maximize, minimize, require
from allo_dse.tune.store.log import Log, encode_line
from allo_dse.tune.store.record import Measurement, decode_entry
from allo_dse.tune.store.run_info import TEXT_LENGTH, error_text, valid_text
from allo_dse.tune.workers.evaluate_one import METRICS_LEVELS

from ..fakes import FakeEvaluator, fake_study

TRIALS = 24


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


class OwnBase(BaseException):
    pass


RAISED = {
    "surrogate": ValueError("half a pair \ud800"),
    "unspeakable": Unspeakable(),
    "cancelled": asyncio.CancelledError(),
    "generator": GeneratorExit("gone"),
    "own": OwnBase("mine"),
    "long": ValueError("x" * 20_000_000),
    "exit": SystemExit(3),
}


class Raising(FakeEvaluator):
    """Raises for every fifth design."""

    def __init__(self, kind: str) -> None:
        self.kind, self.calls = kind, 0

    def evaluate(self, design: Any) -> Metrics:
        self.calls += 1
        if self.calls % 5 == 0:
            raise RAISED[self.kind]
        return super().evaluate(design)


class Isolated(FakeEvaluator):
    """Raises something else each time: also what a person's Ctrl-C would raise, which does not arrive there."""

    isolate = True
    kinds = ("generator", "own", "unspeakable", "surrogate", "interrupt")

    def __init__(self) -> None:
        self.calls = 0

    def evaluate(self, design: Any) -> Metrics:
        self.calls += 1
        raise RAISED.get(self.kinds[self.calls - 1], KeyboardInterrupt("by itself"))


@pytest.mark.parametrize("kind", RAISED)
def test_whatever_is_raised_costs_one_trial(tmp_path: Path, kind: str) -> None:
    study = fake_study(evaluator=lambda: Raising(kind))
    result = study.run(TRIALS, run_dir=tmp_path / "run", progress="quiet")
    failed = [record.error or "" for record in result.records if record.status == "failed"]
    assert (len(result.records), len(failed)) == (TRIALS, 4)
    assert all(error.startswith(type(RAISED[kind]).__name__) for error in failed)
    assert (tmp_path / "run" / "log.jsonl").stat().st_size < 200_000
    again = study.run(TRIALS + 6, run_dir=tmp_path / "run", progress="quiet")
    assert len(again.records) == TRIALS + 6
    (tmp_path / "run" / "trials.csv").read_text(encoding="utf-8")


def test_an_isolated_evaluator_s_exception_is_named(tmp_path: Path) -> None:
    result = fake_study(evaluator=Isolated).run(5, run_dir=tmp_path / "run", progress="quiet", verify=False)
    names = ["GeneratorExit", "OwnBase", "Unspeakable", "ValueError", "KeyboardInterrupt"]
    assert [(record.error or "").partition(":")[0] for record in result.records] == names


class StoppedAt(FakeEvaluator):
    """Is interrupted by its user, as by a second Ctrl-C."""

    def __init__(self, at: int) -> None:
        self.at, self.calls = at, 0

    def evaluate(self, design: Any) -> Metrics:
        self.calls += 1
        if self.calls == self.at:
            raise KeyboardInterrupt
        return super().evaluate(design)


def test_an_interrupted_run_keeps_what_was_evaluated_in_its_batch(tmp_path: Path) -> None:
    study = fake_study(evaluator=lambda: StoppedAt(30))
    with pytest.raises(KeyboardInterrupt):
        study.run(60, run_dir=tmp_path / "run", progress="quiet", cache=False)
    entries = Log(tmp_path / "run" / "log.jsonl").entries
    assert sum(entry["type"] == "design" and entry["status"] != "violation" for entry in entries) == 29


class Texts(FakeEvaluator):
    def evaluate(self, design: Any) -> Metrics:
        found = dict(super().evaluate(design))
        return Metrics(**found, note="\udcff" * 3, many={"k\ud801": ["y" * 100_000]})


def test_texts_among_metrics_are_made_valid_and_bounded(tmp_path: Path) -> None:
    study = fake_study(evaluator=Texts)
    result = study.run(6, run_dir=tmp_path / "run", progress="quiet", verify=False)
    metrics = result.records[0].metrics or {}
    assert metrics["note"] == "\\udcff" * 3
    assert len(metrics["many"]["k\\ud801"][0]) < TEXT_LENGTH + 100
    assert len(study.run(8, run_dir=tmp_path / "run", progress="quiet", verify=False).records) == 8


class Nested(FakeEvaluator):
    def __init__(self, levels: int) -> None:
        self.levels = levels

    def evaluate(self, design: Any) -> Metrics:
        inner: Any = 1
        for level in range(self.levels - 1):
            inner = {"in": inner} if level % 2 else [inner]
        return Metrics(**super().evaluate(design), more=inner)


@pytest.mark.parametrize(
    ("levels", "status"), [(METRICS_LEVELS, "ok"), (METRICS_LEVELS + 1, "failed"), (800, "failed")]
)
def test_metrics_nested_without_end_cost_one_trial(tmp_path: Path, levels: int, status: str) -> None:
    study = fake_study(evaluator=lambda: Nested(levels))
    result = study.run(3, run_dir=tmp_path / "run", progress="quiet", verify=False)
    assert {record.status for record in result.records} == {status}
    assert len(study.run(4, run_dir=tmp_path / "run", progress="quiet", verify=False).records) == 4


class Huge(FakeEvaluator):
    def evaluate(self, design: Any) -> Metrics:
        return Metrics(**super().evaluate(design), trace=list(range(200_000)))


def test_metrics_that_would_fill_the_log_are_refused(tmp_path: Path) -> None:
    result = fake_study(evaluator=Huge).run(2, run_dir=tmp_path / "run", progress="quiet", verify=False)
    assert all("of metrics" in (record.error or "") for record in result.records)


def test_a_log_with_half_a_pair_is_read() -> None:
    line = b'{"type":"verify","ok":true,"message":"\\ud800","seconds":0.0,"key":"k"}'
    entry = decode_entry(encode_line(json.loads(line)).rstrip(b"\n"))
    assert entry is not None
    raw = line[:-1] + b',"crc":"'
    old = decode_entry(raw + b'%08x"}' % zlib.crc32(line[:-1]))
    assert old == entry
    assert getattr(old, "message", "") == "\\ud800"


def test_errors_in_words() -> None:
    assert error_text(Unspeakable()) == "Unspeakable: (its text cannot be had: RuntimeError)"
    assert error_text(ValueError()) == "ValueError"
    assert valid_text("a\ud800b😀") == "a\\ud800b😀"
    assert len(Measurement(error="x" * 10**6).error or "") < TEXT_LENGTH + 100


@pytest.mark.parametrize("value", ["12", True, b"12", None, [1.0]])
def test_objectives_are_numbers(value: Any) -> None:
    with pytest.raises(MetricError, match="not a number"):
        minimize("x").value(Metrics(x=value))
    with pytest.raises(MetricError, match="not a number"):
        require("x", at_most=3).violation(Metrics(x=value))


def test_a_function_of_metrics_may_raise_anything() -> None:
    for wrong in (IndexError("i"), RuntimeError("r"), OwnBase("b"), Unspeakable()):

        def measure(metrics: Metrics, wrong: BaseException = wrong) -> float:
            raise wrong

        with pytest.raises(MetricError, match=type(wrong).__name__):
            maximize(measure, name="bad").value(Metrics())
        with pytest.raises(MetricError, match=type(wrong).__name__):
            require(measure, name="bad").violation(Metrics())
