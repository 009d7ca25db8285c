"""One worker and one seed: proposing again gives what the log has, bit for bit; what differs is found and named."""

from pathlib import Path
from typing import Any

import optuna
import pytest

from allo_dse.eval.evaluator import Metrics
from allo_dse.tune.run.reproposal import Reproposal, propose_again
from allo_dse.tune.store.log import Log, encode_line
from allo_dse.tune.store.record import Record
from allo_dse.tune.study import Study

from ..fakes import FakeEvaluator, fake_study

QUIET: dict[str, Any] = {"progress": "quiet", "verify": False}


class Fails(FakeEvaluator):
    def evaluate(self, design: Any) -> Metrics:
        if int(design.key, 16) % 5 == 0:
            raise RuntimeError("no licence")
        return super().evaluate(design)


def again(run_dir: Path, made: Study | None = None) -> Reproposal:
    return propose_again(made or fake_study(evaluator=Fails), Log(run_dir / "log.jsonl"), lambda: "")


def counts(run_dir: Path) -> Any:
    entries = [e for e in Log(run_dir / "log.jsonl").entries if e["type"] == "design"]
    return len([e for e in entries if e["status"] != "violation"]), len(entries)


@pytest.mark.parametrize(
    ("sampler", "trials"), [("auto", 70), ("exhaustive", 40), ("random", 24), ("nsga2", 24), ("tpe", 12)]
)
def test_a_run_is_proposed_again_across_its_resumptions(tmp_path: Path, sampler: str, trials: int) -> None:
    # In order of the larger space, thousands of designs that break a limit come first.
    size: dict[str, Any] = {"size": 128, "at_most": 4} if sampler == "exhaustive" else {}
    for count in (trials // 4, trials // 2, trials):
        study = fake_study(evaluator=Fails, **size)
        study.run(count, run_dir=tmp_path / "run", seed=3, sampler=sampler, **QUIET)
    found = again(tmp_path / "run", fake_study(evaluator=Fails, **size))
    designs, records = counts(tmp_path / "run")
    assert (found.difference, found.skipped) == ("", {})
    assert found.proposed == designs == trials
    assert 0 < found.violations <= records - designs


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    fake_study(evaluator=Fails).run(60, run_dir=tmp_path / "run", seed=3, **QUIET)
    path = tmp_path / "run" / "log.jsonl"
    entries = Log(path).entries
    position = next(n for n, e in enumerate(entries) if e.get("number") == 41)
    swapped = {**entries[position], "key": "0123456789abcdef"}
    path.write_bytes(b"".join(encode_line(e) for e in [*entries[:position], swapped, *entries[position + 1 :]]))
    found = again(tmp_path / "run")
    assert found.proposed == 41
    assert "proposal 41: the log has 0123456789abcdef (size=" in found.difference
    assert f"now it is {entries[position]['key']}" in found.difference
    assert Record.from_dict(entries[position]).key in found.difference


def test_another_seed_a_forged_result_and_another_limit_are_differences(tmp_path: Path) -> None:
    fake_study(evaluator=Fails).run(60, run_dir=tmp_path / "run", seed=3, **QUIET)
    path = tmp_path / "run" / "log.jsonl"
    intact = Log(path).entries
    path.write_bytes(b"".join(encode_line({**e, **({"seed": 4} if e["type"] == "session" else {})}) for e in intact))
    assert "proposal 0: the log has" in again(tmp_path / "run").difference
    path.write_bytes(b"".join(encode_line(e) for e in intact))
    assert again(tmp_path / "run").difference == ""
    lenient = fake_study(evaluator=Fails, check=lambda design: [])
    assert again(tmp_path / "run", lenient).difference


def test_what_cannot_be_proposed_again_is_counted_with_its_reason(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    fake_study().run(9, run_dir=run_dir, sampler=optuna.samplers.RandomSampler(seed=1), **QUIET)
    fake_study().run(12, run_dir=run_dir, storage=f"sqlite:///{tmp_path}/x.db", **QUIET)
    fake_study().run(20, run_dir=run_dir, **QUIET)
    found = again(run_dir, fake_study())
    assert found.skipped == {"the sampler RandomSampler was given as an object": 9}
    assert (found.proposed, found.difference) == (11, "")
    path = run_dir / "log.jsonl"
    path.write_bytes(b"".join(line + b"\n" for line in Log(path) if b'"session"' not in line))
    assert propose_again(fake_study(), Log(path), lambda: "").skipped == {
        "the log does not say how they were proposed": 20
    }
