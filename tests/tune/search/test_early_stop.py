"""A run in which nothing can count stops after a few designs, and says what is wrong and what may be meant."""

from pathlib import Path
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.tune.results.result import failure_words
from allo_dse.tune.search.early_stop import FAILED, MISSING, UNMET, EarlyStop
from allo_dse.tune.search.objectives import minimize, require
from allo_dse.tune.search.tally import Designs, Tally
from allo_dse.tune.store.log import Log
from allo_dse.tune.store.record import NOTHING, Record

from ..fakes import FakeEvaluator, add, fake_study


class Failing(FakeEvaluator):
    calls = 0

    def evaluate(self, design: Any) -> Any:
        Failing.calls += 1
        raise RuntimeError(f"no licence for process {Failing.calls}")


class OftenFailing(FakeEvaluator):
    def evaluate(self, design: Any) -> Any:
        if int(design.key, 16) % 3:
            raise RuntimeError("no licence" if int(design.key, 16) % 2 else "no board")
        return super().evaluate(design)


WRONG: list[tuple[dict[str, Any], str, int]] = [
    ({"objectives": [minimize("latncy_us")]}, "objective 'latncy_us': .*did you mean latency_us", MISSING),
    ({"objectives": [minimize(lambda m: m.pe_cuont, name="cores")]}, "'cores': .*did you mean pe_count", MISSING),
    ({"constraints": [require("dram_byte", at_most=3)]}, "constraint .*did you mean dram_bytes", MISSING),
    ({"evaluator": Failing}, f"first {FAILED} designs all failed in formula 1: RuntimeError: no licence", FAILED),
    ({"constraints": [require(lambda m: m.pe_count < 0, name="few")]}, "satisfies the constraint 'few'", UNMET),
]


@pytest.mark.parametrize(("changes", "text", "designs"), WRONG)
def test_a_run_in_which_nothing_counts_stops_early(tmp_path: Path, changes: Any, text: str, designs: int) -> None:
    with pytest.raises(StudyError, match=text):
        fake_study(**changes).run(2000, run_dir=tmp_path / "run", progress="quiet", modelled=0)
    entries = Log(tmp_path / "run" / "log.jsonl").entries
    evaluated = sum(entry["type"] == "design" and entry["status"] != "violation" for entry in entries)
    assert designs <= evaluated < designs + 300


def test_a_run_that_fails_now_and_then_goes_on_and_says_how_often(tmp_path: Path) -> None:
    result = fake_study(evaluator=OftenFailing).run(60, run_dir=tmp_path / "run", progress="quiet", verify=False)
    assert len(result.records) == 60
    failed = sum(record.status == "failed" for record in result.records)
    assert result.failures.total() == failed > 0
    assert f"{failed} of 60 designs failed (" in failure_words(result)
    assert "x RuntimeError: no licence" in failure_words(result)


def record(status: Any, error: str | None = None, **more: Any) -> Record:
    return Record(number=0, key=f"{status} {error}", status=status, genes_json=NOTHING, error=error, **more)


def earlier(*records: Record) -> Designs:
    tally = Tally([])
    for one in records:
        add(tally, one, None)
    return tally.records


@pytest.mark.parametrize(
    ("later", "count"),
    [
        (record("infeasible", constraints={"few": 1.0}), UNMET),
        (record("failed", "no licence for process 7"), FAILED),
    ],
)
def test_what_good_designs_came_beside_before_is_not_doubted(later: Record, count: int) -> None:
    before = [record("failed", "no licence for process 3"), record("ok")]
    EarlyStop(earlier(*before)).look([later] * count)
    with pytest.raises(StudyError):
        EarlyStop(earlier(before[0])).look([later] * count)


def test_designs_that_fail_as_none_did_before_are_doubted() -> None:
    met = earlier(record("failed", "no licence"), record("ok"))
    with pytest.raises(StudyError, match="all failed"):
        EarlyStop(met).look([record("failed", "no board")] * FAILED)


def test_what_no_design_satisfies_is_named(tmp_path: Path) -> None:
    study = fake_study(constraints=[require("latency_us", at_most=1e-9)])
    result = study.run(30, run_dir=tmp_path / "run", progress="quiet", verify=False)
    with pytest.raises(StudyError, match="30 break 'latency_us <= 1e-09'"):
        result.best()
