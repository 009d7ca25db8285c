"""`auto` follows tight bounds; if they are loose, evolution proposes every other design."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.run.reproposal import propose_again
from allo_dse.tune.search.proposals import FIRST
from allo_dse.tune.store.log import Log

from ...support.values import present
from .test_exact import Bounded, front_of, order, run, small


class Tight(Bounded):
    bounding = Bounded.bounding
    loose = 1e-6


class Loose(Bounded):
    bounding = Bounded.bounding
    loose = 30.0


class Failing(Tight):
    bounding = Bounded.bounding

    def evaluate(self, design: Any) -> Metrics:
        if int(design.key, 16) % 4:
            raise RuntimeError("no licence")
        return super().evaluate(design)


def few(evaluator: Any) -> Any:
    """A study of 78 designs, all of which are evaluated in some tests."""
    return small(evaluator=evaluator, size=64, max_nodes=1)


def test_bounds_that_say_something_are_all_it_goes_by(tmp_path: Path) -> None:
    for name in ("auto", "exact"):
        run(small(evaluator=Tight), tmp_path / name, sampler=name)
    assert order(tmp_path / "auto") == order(tmp_path / "exact")


@pytest.mark.parametrize("evaluator", [Loose, Failing])
def test_with_loose_bounds_evolution_takes_turns_and_the_run_ends_with_a_proof(tmp_path: Path, evaluator: Any) -> None:
    found = {name: run(few(evaluator), tmp_path / name, sampler=name) for name in ("auto", "exact")}
    assert present(found["auto"].certificate).complete
    assert front_of(found["auto"]) == front_of(found["exact"])
    one, other = order(tmp_path / "auto"), order(tmp_path / "exact")
    assert len(other) > FIRST + 8
    assert one[:FIRST] == other[:FIRST]
    assert one[FIRST : FIRST + 8] != other[FIRST : FIRST + 8]
    assert len(one) <= 2 * len(other)


def test_interrupted_it_goes_on_as_if_it_had_not_been(tmp_path: Path) -> None:
    run(few(Loose), tmp_path / "once", sampler="auto")
    total = len(order(tmp_path / "once"))
    for trials in (FIRST - 1, FIRST + 5, 10**6, 10**6):
        result = run(few(Loose), tmp_path / "parts", trials, sampler="auto")
        assert present(result.certificate).complete is (trials >= total)
    assert order(tmp_path / "parts") == order(tmp_path / "once")
    again = propose_again(few(Loose), Log(tmp_path / "parts" / "log.jsonl"), lambda: "")
    assert (again.difference, again.proposed, again.skipped) == ("", total, {})
