"""Noisy evaluators: designs near the best are measured again, others once."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from allo_dse.eval.command import Command
from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.search.objectives import maximize, minimize, require
from allo_dse.tune.search.repeats import MOST, Repeating, _expected_range

from ..fakes import FakeEvaluator, fake_study


class Noisy:
    """Latency is the design's true value times noise."""

    name, version, noisy = "noisy", "1", True

    def __init__(self, noise: float, seed: int = 0) -> None:
        self._noise, self._rng = noise, np.random.default_rng(seed)
        self.calls = Counter[float]()

    def evaluate(self, design: Any) -> Metrics:
        self.calls[design.true] += 1
        return Metrics(us=design.true * (1 + self._noise * self._rng.standard_normal()), area=1 / design.true)


def measured(evaluator: Noisy, truth: list[float], **options: Any) -> list[Metrics]:
    objectives = options.get("objectives", [minimize("us")])
    repeating = Repeating(evaluator, objectives, options.get("constraints", ()))
    return [repeating.evaluate(SimpleNamespace(true=value)) for value in truth]  # type: ignore[arg-type]


def test_without_noise_all_but_the_first_are_measured_once() -> None:
    evaluator = Noisy(0.0)
    found = measured(evaluator, [3.0, 2.0, 2.5, 1.0])
    assert evaluator.calls == {3.0: 2, 2.0: 1, 2.5: 1, 1.0: 1}
    assert all(set(metrics) == {"us", "area"} for metrics in found)


def test_the_chosen_design_is_the_best_more_often_than_by_single_measurements() -> None:
    """With 15 % noise, as in runs on boards; repeats go to designs near the best."""
    losses: dict[str, list[float]] = {"once": [], "repeated": []}
    near, far = 0, 0
    for seed in range(20):
        truth = np.random.default_rng(seed).permutation(np.linspace(1, 3, 41)).tolist()
        once = Noisy(0.15, seed)
        single = [once.evaluate(SimpleNamespace(true=value))["us"] for value in truth]
        evaluator = Noisy(0.15, seed)
        several = [metrics["us"] for metrics in measured(evaluator, truth)]
        losses["once"].append(truth[int(np.argmin(single))])
        losses["repeated"].append(truth[int(np.argmin(several))])
        near += sum(count for value, count in evaluator.calls.items() if value < 1.3)
        far += sum(count for value, count in evaluator.calls.items() if value >= 2.4)
        assert max(evaluator.calls.values()) <= MOST
    assert np.mean(losses["repeated"]) - 1 < 0.7 * (np.mean(losses["once"]) - 1)
    assert near / 6 > 1.3 * far / 13


def test_ranges_and_means_are_reported() -> None:
    (found,) = measured(Noisy(0.1), [2.0], objectives=[minimize("us"), maximize("area")])
    assert found["repeats"] >= 2
    assert found["us_min"] < found["us"] < found["us_max"]
    assert "area_min" not in found  # it is the same each time


def test_a_resumed_run_knows_the_noise_and_the_best_of_the_earlier_one() -> None:
    truth = np.random.default_rng(0).permutation(np.linspace(1, 3, 41)).tolist()
    before = Repeating(Noisy(0.05), [minimize("us")], ())
    records = [before.evaluate(SimpleNamespace(true=value)) for value in truth]  # type: ignore[arg-type]
    after = Repeating(evaluator := Noisy(0.05), [minimize("us")], ())
    for metrics in records:
        after.remember(metrics)
    variance = before._squares / before._freedom
    assert (after._squares / after._freedom) ** 0.5 == pytest.approx(variance**0.5, rel=0.3)
    assert after._front == pytest.approx(before._front)
    for value in (3.0, 2.5):
        after.evaluate(SimpleNamespace(true=value))  # type: ignore[arg-type]
    assert set(evaluator.calls.values()) == {1}
    assert _expected_range(2) == pytest.approx(2 / np.pi**0.5, rel=1e-3)
    assert _expected_range(10) == pytest.approx(3.078, rel=1e-3)


def test_infeasible_designs_are_measured_once() -> None:
    evaluator = Noisy(0.1)
    measured(evaluator, [9.0, 2.0, 8.0], constraints=[require("us", at_most=4)])
    assert evaluator.calls[9.0] == evaluator.calls[8.0] == 1


@pytest.mark.parametrize(("noise", "repeats"), [("auto", True), (False, False), (True, True)])
def test_a_study_repeats_what_is_noisy(tmp_path: Path, noise: Any, repeats: bool) -> None:
    class Board(FakeEvaluator):
        noisy = True

    plain, noisy = (fake_study(evaluator=of, noise=noise).make_evaluators()[0] for of in (FakeEvaluator, Board))
    assert isinstance(noisy, Repeating) == repeats
    assert isinstance(plain, Repeating) == (noise is True)
    assert noisy.name == Board.name
    assert Command.noisy
    if repeats:
        result = fake_study(evaluator=Board, noise=noise).run(
            8, run_dir=tmp_path, verify=False, export=False, progress="quiet"
        )
        assert len(result.records) == 8


def test_it_can_be_sent_to_another_process() -> None:
    again = pickle.loads(pickle.dumps(Repeating(FakeEvaluator(), [minimize("latency_us", name="t")], ())))
    assert (again.name, again.version) == (FakeEvaluator.name, FakeEvaluator.version)
