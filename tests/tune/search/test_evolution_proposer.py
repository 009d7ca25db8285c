"""Evolution skips children whose bounds are no better than a parent, and nothing else changes."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path
from typing import Any

from allo_dse.space.sampler.optuna_sampler import EvolutionSampler
from allo_dse.tune.run.reproposal import propose_again
from allo_dse.tune.search.objectives import require
from allo_dse.tune.search.proposals import EvolutionProposer
from allo_dse.tune.search.screening import Screen
from allo_dse.tune.store.log import Log

from ..fakes import FakeEvaluator, Looseness, check
from .test_exact import Bounded, front_of, order, run, small

EVOLUTION: dict[str, Any] = {"sampler": "evolution", "modelled": 0}


class Tight(Bounded):
    bounding = Bounded.bounding
    loose = 0.01


def legal_and_fast(evaluator: Any) -> Any:
    return small(evaluator=evaluator, max_nodes=2, constraints=[require("latency_us", at_most=220)])


def test_all_that_was_passed_over_comes_last_and_the_front_is_the_same(tmp_path: Path) -> None:
    names = {"bounds": Tight, "none": FakeEvaluator}
    found = {name: run(legal_and_fast(evaluator), tmp_path / name, **EVOLUTION) for name, evaluator in names.items()}
    assert front_of(found["bounds"]) == front_of(found["none"])
    assert set(order(tmp_path / "bounds")) == set(order(tmp_path / "none"))


def test_more_of_the_front_is_found_with_as_many_designs(tmp_path: Path) -> None:
    front = front_of(run(small(evaluator=Tight), tmp_path / "exact"))
    found = dict.fromkeys(("bounds", "none"), 0)
    for (name, evaluator), seed in itertools.product({"bounds": Tight, "none": FakeEvaluator}.items(), range(3)):
        some = run(small(evaluator=evaluator), tmp_path / f"{name}{seed}", 60, seed=seed, **EVOLUTION)
        found[name] += len(front & set(some.values.values()))
    assert found["bounds"] > found["none"]


def test_interrupted_it_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    run(small(evaluator=Tight), tmp_path / "once", 150, **EVOLUTION)
    for trials in (7, 50, 51, 150):
        run(small(evaluator=Tight), tmp_path / "parts", trials, **EVOLUTION)
    assert order(tmp_path / "parts") == order(tmp_path / "once")
    again = propose_again(small(evaluator=Tight), Log(tmp_path / "parts" / "log.jsonl"), lambda: "")
    assert (again.difference, again.proposed) == ("", 150)


def test_time_ends_a_proposal_and_not_the_search() -> None:
    study = small(evaluator=Tight)
    screen = Screen(study.space, check)
    proposer = EvolutionProposer(screen, study.lower_bounds(Tight()), EvolutionSampler(0), strict=True)
    screen.meanwhile = lambda: True
    assert len(proposer.ask(1, 0)) == 1  # a run ends with a result, if late
    assert proposer.ask(1, 1) == []
    assert not proposer.exhausted
    screen.meanwhile = lambda: False
    assert len(proposer.ask(1, 1)) == 1


def test_a_design_is_told_to_be_outdone_once(tmp_path: Path) -> None:
    asked = Counter[str]()

    class Counting(Looseness):
        def __call__(self, design: Any, level: int) -> Any:
            asked[design.key] += level == 0
            return super().__call__(design, level)

    class Counted(Tight):
        def bounding(self) -> Looseness:
            return Counting(self.loose)

    found = run(small(evaluator=Counted, max_nodes=2), tmp_path / "run", 200, **EVOLUTION)
    assert len(asked) > 200  # more than were evaluated
    # Measured designs are compared with their bounds.
    assert set(asked.values()) <= {1, 2}
    assert {key for key, times in asked.items() if times == 2} <= {record.key for record in found.records}
