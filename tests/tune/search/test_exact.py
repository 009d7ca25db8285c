"""The exact search finds the front of the whole space, whatever the bounds are worth and whenever results come."""

from __future__ import annotations

import io
import math
import random
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from allo_dse.common.errors import StudyError
from allo_dse.eval.evaluator import Metrics
from allo_dse.space.genes import suggest_from
from allo_dse.tune.declare.spec import StudySpec
from allo_dse.tune.results.result import Result
from allo_dse.tune.run.reproposal import propose_again
from allo_dse.tune.search import exact
from allo_dse.tune.search.exact import ExactProposer, OpenDesigns
from allo_dse.tune.search.objectives import minimize, require
from allo_dse.tune.search.proposer import Outcome
from allo_dse.tune.search.screening import Screen
from allo_dse.tune.show.reporter_of_run import LiveReporter
from allo_dse.tune.show.reporters import PlainReporter
from allo_dse.tune.store.log import Log
from allo_dse.tune.store.record import Verification
from allo_dse.tune.store.run_info import read_info

from ...support.values import present
from ..fakes import FakeEvaluator, FakeViolation, Looseness, check, fake_study

OPTIONS: dict[str, Any] = {"sampler": "exact", "progress": "quiet"}


class Bounded(FakeEvaluator):
    loose = 0.2

    def bounding(self) -> Looseness:
        return Looseness(self.loose)


class BoundedAndFails(Bounded):
    bounding = Bounded.bounding

    def evaluate(self, design: Any) -> Metrics:
        if int(design.key, 16) % 5 == 0:
            raise RuntimeError("no licence")
        return super().evaluate(design)


def small(**options: Any) -> Any:
    defaults: dict[str, Any] = {"size": 128, "at_most": 4, "max_nodes": 4, "evaluator": Bounded}
    return fake_study(**(defaults | options))


def run(study: Any, run_dir: Path, trials: int = 10**6, **options: Any) -> Result:
    result: Result = study.run(trials, run_dir=run_dir, **(OPTIONS | {"verify": False} | options))
    return result


def front_of(result: Result) -> set[tuple[float, ...]]:
    return {result.values[design.key] for design in result.front}


def order(run_dir: Path) -> list[str]:
    entries = Log(run_dir / "log.jsonl").entries
    return [e["key"] for e in entries if e["type"] == "design" and e["status"] != "violation"]


@pytest.fixture(scope="module")
def every(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """All designs."""
    return run(small(), tmp_path_factory.mktemp("every") / "run", sampler="exhaustive")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """The search by bounds to its end."""
    return run(small(), tmp_path_factory.mktemp("whole") / "run")


@pytest.mark.parametrize(("loose", "fewer"), [(0.0, 10), (0.1, 1.25), (2.0, 1)])
def test_the_front_is_that_of_the_whole_space_with_fewer_evaluations(
    tmp_path: Path, every: Result, loose: float, fewer: float
) -> None:
    class Evaluator(Bounded):
        bounding = Bounded.bounding
        pass

    Evaluator.loose = loose
    found = run(small(evaluator=Evaluator), tmp_path / "exact")
    assert front_of(found) == front_of(every)
    certificate = present(found.certificate)
    assert certificate.complete
    assert certificate.designs == present(small().space.count(10**6))
    assert certificate.evaluated == len(found.records)
    assert certificate.evaluated + certificate.refused + certificate.bounded == certificate.designs
    assert len(found.records) <= len(every.records) / fewer
    assert str(certificate).startswith(f"complete: none of the space's {certificate.designs:,} designs is better")
    assert read_info(tmp_path / "exact").certificate == certificate


@pytest.mark.parametrize(("trials", "shown"), [(10, "from it)"), (10**6, "(reached)")])
def test_while_it_runs_it_says_what_is_decided_and_what_bounds_say(tmp_path: Path, trials: int, shown: str) -> None:
    console, plain = Console(file=io.StringIO(), force_terminal=True, width=200), io.StringIO()
    run(small(), tmp_path / "live", trials, progress=LiveReporter(console))
    result = run(small(), tmp_path / "plain", trials, progress=PlainReporter(plain))
    text, certificate = cast(io.StringIO, console.file).getvalue(), present(result.certificate)
    decided = f"{certificate.designs - certificate.open:,} of {certificate.designs:,} decided"
    for part in (decided, "of the space listed so far", "cannot be better", shown):
        assert part in text, part
    assert decided in plain.getvalue()
    assert "/s" not in plain.getvalue().splitlines()[-1]
    for gap in certificate.gaps:
        assert present(gap.bound) <= result.best(gap.objective).metrics[gap.objective]


def test_few_designs_are_near_to_all(tmp_path: Path, whole: Result) -> None:
    """What is proposed next is what the front is furthest from, so that the front spreads before it is refined."""
    best = front_of(whole)
    found = front_of(run(small(), tmp_path / "some", 15))
    far = [min(max(a / b for a, b in zip(near, one, strict=True)) for near in found) for one in best]
    assert max(far) < 1.5


def test_an_interrupted_search_goes_on_as_if_it_had_not_been(tmp_path: Path, whole: Result) -> None:
    once = order(whole.run_dir)
    total = len(once)
    for trials in (3, 4, total // 2, 10**6):
        result = run(small(), tmp_path / "parts", trials)
        assert present(result.certificate).complete is (trials == 10**6)
    assert order(tmp_path / "parts") == once
    again = propose_again(small(), Log(tmp_path / "parts" / "log.jsonl"), lambda: "")
    assert (again.difference, again.proposed, again.skipped) == ("", total, {})
    result = run(small(), tmp_path / "parts")
    assert present(result.certificate).complete
    assert len(result.records) == total


def test_few_trials_bound_a_sample_resume_with_the_same_designs_and_the_proof_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exact, "ALL_BOUNDED", 10)
    monkeypatch.setattr(exact, "PER_TRIAL", 3)
    bounding = Looseness(0.2)

    class Shared(Bounded):
        def bounding(self) -> Looseness:
            return bounding

    def go_on(part: str, trials: int, **options: Any) -> Result:
        return run(small(evaluator=Shared, max_nodes=3), tmp_path / part, trials, sampler="auto", **options)

    few = go_on("few", 5)
    designs = present(few.certificate).designs
    # Measured designs are compared with their bounds, too.
    assert len(few.records) <= bounding.asked[1] < designs / 4
    assert len(go_on("parts", 12, patience=1).records) < 12
    go_on("parts", 12)
    go_on("once", 12)
    assert len(order(tmp_path / "once")) == 12
    assert order(tmp_path / "parts") == order(tmp_path / "once")
    assert (
        propose_again(
            small(evaluator=Shared, max_nodes=3), Log(tmp_path / "parts" / "log.jsonl"), lambda: ""
        ).difference
        == ""
    )
    found = go_on("few", designs)
    assert present(found.certificate).complete
    every = run(small(max_nodes=3), tmp_path / "every")
    assert front_of(found) == front_of(every)


def test_what_is_left_is_never_better_than_the_gap_says(tmp_path: Path, whole: Result) -> None:
    best = front_of(whole)
    for trials in (1, 5, 20):
        result = run(small(), tmp_path / "run", trials)
        found = [min(values) for values in zip(*front_of(result), strict=True)]
        true = [min(values) for values in zip(*best, strict=True)]
        for gap, now, least in zip(present(result.certificate).gaps, found, true, strict=True):
            assert gap.share is None or least >= now * (1 - gap.share) - 1e-9


@settings(max_examples=8, deadline=None)
@given(seed=st.integers(0, 2**32), batch=st.integers(1, 9))
def test_results_may_come_in_any_order(seed: int, batch: int) -> None:
    study, rng = small(), random.Random(seed)
    screen = Screen(study.space, check)
    proposer = ExactProposer(screen, study.lower_bounds(Bounded()), strict=False)
    outstanding: list[tuple[int, Any]] = []
    values = set()
    while not proposer.exhausted or outstanding:
        outstanding += [(p.number, p.candidate) for p in proposer.ask(rng.randint(1, batch), len(outstanding))]
        for _ in range(rng.randint(0, len(outstanding))):
            number, candidate = outstanding.pop(rng.randrange(len(outstanding)))
            metrics = dict(FakeEvaluator().evaluate(candidate.design))
            found = tuple(float(o.measure(Metrics(**metrics))) for o in study.objectives)
            values.add(found)
            proposer.tell(number, Outcome(found, {}))
    assert proposer.certificate().complete
    beaten = {a for a in values for b in values if a != b and all(y <= x for x, y in zip(a, b, strict=True))}
    assert values - beaten == _true_front(study)


def _true_front(study: Any, _known: dict[str, set[Any]] = {}) -> set[Any]:  # noqa: B006 (the same for every example)
    if not _known:
        designs = [c.design for c in study.space.designs() if not check(c.design)]
        metrics = [FakeEvaluator().evaluate(design) for design in designs]
        values = {tuple(float(o.measure(m)) for o in study.objectives) for m in metrics}
        beaten = {a for a in values for b in values if a != b and all(y <= x for x, y in zip(a, b, strict=True))}
        _known["front"] = values - beaten
    return _known["front"]


def test_without_bounds_every_design_is_evaluated_and_the_sentence_says_so(tmp_path: Path, every: Result) -> None:
    objectives = [minimize("latency_us"), minimize(lambda m: m.pe_count + 1, name="cost")]
    found = run(small(objectives=objectives), tmp_path / "cost")
    assert len(found.records) == len(every.records)
    assert "(no bounds for cost)" in str(found.certificate)
    plain = run(small(evaluator=FakeEvaluator), tmp_path / "plain")
    assert len(plain.records) == len(every.records)
    assert "no bounds for latency_us" in str(plain.certificate)
    assert "nothing bounds latency_us" in str(run(small(evaluator=FakeEvaluator), tmp_path / "some", 5).certificate)


def test_the_log_has_the_curve_of_the_bounds(whole: Result) -> None:
    """They rise to the best values, which they reach when every design is decided."""
    log = Log(whole.run_dir / "log.jsonl")
    curve = [e["bounds"] for e in log.entries if e["type"] == "tick"]
    assert len(curve) > 5
    for number, objective in enumerate(small().objectives):
        values = [bounds.get(objective.name, -math.inf) for bounds in curve]
        assert values == sorted(values)
        assert values[-1] == min(values_of[number] for values_of in front_of(whole))


def test_bounds_are_known_where_no_design_is_feasible(tmp_path: Path, whole: Result) -> None:
    hopeless = small(constraints=[require(lambda m: m.pe_count < 0, name="hopeless")])
    found = present(run(hopeless, tmp_path / "run", 5).certificate)
    least = min(values[0] for values in front_of(whole))
    assert found.gaps[0].share is None
    assert 0 < present(found.gaps[0].bound) <= least
    assert f"latency_us cannot be lower than {found.gaps[0].bound:,.6g}" in str(found)


def test_designs_that_cannot_satisfy_a_constraint_are_not_built(tmp_path: Path, every: Result) -> None:
    moved = [r.metrics["dram_bytes"] for r in every.records if r.metrics]
    narrow = {"constraints": [require("dram_bytes", at_most=sorted(moved)[len(moved) // 3])]}
    listed = run(small(**narrow), tmp_path / "every", sampler="exhaustive")
    found = run(small(**narrow), tmp_path / "exact")
    assert front_of(found) == front_of(listed) != set()
    assert sum(r.status == "infeasible" for r in found.records) < sum(r.status == "infeasible" for r in listed.records)


@pytest.mark.parametrize("sampler", ["exact", "auto"])
def test_where_bounds_say_that_a_constraint_cannot_be_met_the_run_says_so(tmp_path: Path, sampler: str) -> None:
    result = run(small(constraints=[require("latency_us", at_most=1)]), tmp_path, sampler=sampler)
    designs = present(result.certificate).designs
    assert str(result.certificate) == (
        f"complete: none of the space's {designs} designs is feasible; 1 evaluated, {designs - 1} ruled out by bounds"
    )


def test_a_space_that_cannot_be_listed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allo_dse.tune.search.proposals.MOST_LISTED", 100)
    with pytest.raises(StudyError, match="more than 100 designs"):
        run(small(), tmp_path / "run")


def test_auto_goes_by_bounds_where_all_objectives_have_them(tmp_path: Path) -> None:
    assert run(small(), tmp_path / "exact", 5, sampler="auto").certificate is not None
    for number, other in enumerate((small(evaluator=FakeEvaluator), small(rungs=[FakeEvaluator]))):
        assert run(other, tmp_path / str(number), 5, sampler="auto").certificate is None


def test_failures_and_wrong_designs_are_named(tmp_path: Path, every: Result) -> None:
    failing = run(small(evaluator=BoundedAndFails), tmp_path / "fails")
    assert " that could not be evaluated" in str(failing.certificate)

    def verifier(design: Any) -> Verification:
        return Verification(ok=design.fold.node_count > 2, message="C[0, 0] is 3, should be 4", seconds=0.0)

    first = run(small(verifier=verifier), tmp_path / "wrong", verify=True)
    assert "that failed verification" in str(first.certificate)
    for _ in range(20):  # what only wrong designs were better than comes next
        more = run(small(verifier=verifier), tmp_path / "wrong", verify=True)
        if len(more.records) == len(first.records):
            break
        first = more
    right = {r.key for r in every.records}
    assert all(d.metrics.pe_count > 2 for d in more.front)
    assert more.front
    assert {d.key for d in more.front} <= right


def test_when_time_is_up_the_first_design_is_proposed_without_bounds(tmp_path: Path) -> None:
    bounding = Looseness(0.2)

    class Shared(Bounded):
        def bounding(self) -> Looseness:
            return bounding

    result = run(small(evaluator=Shared), tmp_path, time=1e-6)
    assert (result.stopped, len(result.records)) == ("time", 1)
    # The one design that was measured is compared with its bound.
    assert bounding.asked[0] == bounding.asked[1] == 1
    assert not present(result.certificate).complete


def test_limits_that_refuse_most_designs_are_asked_before_better_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those that are known sooner than the bounds are; what is found is the same."""

    def narrow(design: Any) -> list[Any]:
        return check(design) or [FakeViolation("luck", 1, 0)] * (int(design.key, 16) % 5 > 0)

    bounding = Looseness(2.0)

    class Shared(Bounded):
        def bounding(self) -> Looseness:
            return bounding

    every = run(small(check=narrow), tmp_path / "every", sampler="exhaustive")
    run(small(check=narrow, evaluator=Shared), tmp_path / "late")
    late = bounding.asked[1]
    monkeypatch.setattr(StudySpec, "check_soon", lambda study, design: narrow(design))
    found = run(small(check=narrow, evaluator=Shared), tmp_path / "exact")
    assert front_of(found) == front_of(every)
    certificate = present(found.certificate)
    assert certificate.refused > 3 * certificate.evaluated
    # Measured designs are compared with their bounds, which are all that is asked for the first one.
    assert late == certificate.designs + certificate.evaluated - 1
    # Those that keep the limits have both bounds, and those that were looked at before any had been judged.
    assert bounding.asked[1] - late - certificate.evaluated < certificate.designs / 2
    study = small(check=narrow, evaluator=Shared)
    again = propose_again(study, Log(tmp_path / "exact" / "log.jsonl"), lambda: "")
    assert (again.difference, again.proposed) == ("", len(found.records))


def test_designs_that_were_enqueued_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that limits refuse, which the listing meets again."""

    def narrow(design: Any) -> list[Any]:
        return check(design) or [FakeViolation("luck", 1, 0)] * (int(design.key, 16) % 5 > 0)

    monkeypatch.setattr(StudySpec, "check_soon", lambda study, design: narrow(design))
    study = small(check=narrow)
    study.enqueued = [candidate.genes for candidate in study.space.designs()][5:25]
    certificate = present(run(study, tmp_path).certificate)
    assert certificate.evaluated + certificate.refused + certificate.bounded == certificate.designs


def test_designs_proposed_by_evolution_are_not_left() -> None:
    """An interrupted run knows them from its log: one that was not interrupted knows as much."""
    study = small()
    screen = Screen(study.space, lambda design: [])
    for candidate in study.space.designs():
        screen.decode_and_admit(suggest_from(candidate.genes))
    open_designs = OpenDesigns(screen, study.lower_bounds(Bounded()))
    assert not open_designs.left()
    assert open_designs.queue.open == 0


def test_what_is_to_be_done_meanwhile_is_done_however_few_designs_keep_the_limits() -> None:
    study, calls = small(), iter(range(10**6))
    screen = Screen(study.space, check, soon=lambda design: [FakeViolation("luck", 1, 0)])
    open_designs = OpenDesigns(screen, study.lower_bounds(Bounded()))
    screen.meanwhile = lambda: next(calls) < 0  # time is not up
    assert open_designs.next() is None
    assert screen.invalid == open_designs.designs
    assert next(calls) >= 2 * screen.invalid - 1  # when it is listed, and before it is decided
