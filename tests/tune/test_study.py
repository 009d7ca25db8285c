import itertools
import json
import subprocess
import sys
import threading
import time
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import optuna
import pytest

from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.eval.evaluator import Metrics
from allo_dse.space.params import choices, divisors
from allo_dse.space.sampler.pareto import pareto_positions
from allo_dse.tune.earlier_runs import open_run
from allo_dse.tune.results.result import Result
from allo_dse.tune.search.objectives import maximize, minimize, require
from allo_dse.tune.store.log import Log
from allo_dse.tune.store.record import Record, Verification, described, json_text
from allo_dse.tune.study import Study

from ..support.values import present
from .fakes import SIZE, FakeEvaluator, fake_study


def run(study: Study, run_dir: Path, trials: int = 60, **options: Any) -> Result:
    return study.run(trials, run_dir=run_dir, progress="quiet", **options)


def trials_of(run_dir: Path) -> Any:
    """The evaluated designs in the log, without what depends on the clock."""
    entries = [e for e in Log(Path(run_dir) / "log.jsonl").entries if e["type"] == "design"]
    return [{k: v for k, v in e.items() if k not in ("at", "seconds")} for e in entries]


class Breaks(FakeEvaluator):
    """Fails for some designs, and gives nonsense for others."""

    def evaluate(self, design: Any) -> Metrics:
        if int(design.key, 16) % 5 == 0:
            raise RuntimeError(f"no licence for {design.key}")
        metrics = dict(super().evaluate(design))
        if int(design.key, 16) % 5 == 1:
            metrics["latency_us"] = float("nan")
        return Metrics(**metrics)


class StopsAfter(FakeEvaluator):
    """Interrupts the process from the keyboard, as it were, after some designs."""

    def __init__(self, count: int, how: type[BaseException] = KeyboardInterrupt) -> None:
        self.count, self.how = count, how

    def evaluate(self, design: Any) -> Metrics:
        self.count -= 1
        if self.count < 0:
            raise self.how
        return super().evaluate(design)


def test_a_run_finds_the_front_of_what_it_evaluated(tmp_path: Path) -> None:
    study = fake_study()
    result = run(study, tmp_path / "run", 80)
    assert len(result.trials) == 80
    assert result.stopped == "trials"
    values = np.array([result.values[r.key] for r in result.records])
    front = [result.values[key] for key in result.pareto["key"]]  # of equal designs the cheapest is on it
    assert sorted(front) == sorted(map(tuple, values[pareto_positions(values)].tolist()))
    assert list(result.pareto["latency_us"]) == sorted(result.pareto["latency_us"])
    best = result.best("latency_us")
    assert best.metrics.latency_us == values[:, 0].min()
    assert best.mapping_primitives[0][0] == "chain"
    assert best.params["size"] == 2048
    assert "bound by the nodes" in best.explain()


def test_the_files_of_a_run(tmp_path: Path) -> None:
    import pandas

    result = run(fake_study(), tmp_path / "run")
    pareto = pandas.read_csv(tmp_path / "run" / "pareto.csv")
    assert list(pareto["key"]) == list(result.pareto["key"])
    assert set(pareto["verified"]) == {"yes"}
    assert len(pandas.read_csv(tmp_path / "run" / "trials.csv")) == 60
    best = tmp_path / "run" / "best" / "latency_us"
    assert json.loads((best / "parameters.json").read_text()) == result.best().params
    assert (best / "explanation.txt").read_text().strip() == result.best().explain()
    for script in ("mapping.py",):
        compile((best / script).read_text(), script, "exec")
    info = json.loads((tmp_path / "run" / "run.json").read_text())
    assert info["seed"] == 0
    assert info["versions"]["optuna"] == optuna.__version__


def test_one_seed_and_one_worker_give_the_same_trials(tmp_path: Path) -> None:
    run(fake_study(), tmp_path / "a", seed=5)
    run(fake_study(), tmp_path / "b", seed=5)
    run(fake_study(), tmp_path / "c", seed=6)
    assert trials_of(tmp_path / "a") == trials_of(tmp_path / "b") != trials_of(tmp_path / "c")


def test_another_process_gives_the_same_trials(tmp_path: Path) -> None:
    code = (
        "from tests.tune.fakes import fake_study\n"
        f"fake_study().run(40, run_dir={str(tmp_path / 'b')!r}, progress='quiet', seed=5)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ".", "PYTHONHASHSEED": "77"})
    run(fake_study(), tmp_path / "a", 40, seed=5)
    assert trials_of(tmp_path / "a") == trials_of(tmp_path / "b")


@pytest.mark.parametrize("stop_after", [1, 7, 8, 9, 24, 39])
def test_a_resumed_run_equals_the_uninterrupted_one(tmp_path: Path, stop_after: int) -> None:
    run(fake_study(), tmp_path / "whole", 50, verify=False)
    with pytest.raises(KeyboardInterrupt):
        run(fake_study(evaluator=StopsAfter(stop_after)), tmp_path / "cut", 50)
    result = run(fake_study(), tmp_path / "cut", 50, verify=False)
    evaluated = [t for t in trials_of(tmp_path / "cut") if t["status"] != "violation"]
    assert evaluated == [t for t in trials_of(tmp_path / "whole") if t["status"] != "violation"]
    assert len(result.records) == 50


def test_resuming_never_evaluates_a_design_twice(tmp_path: Path) -> None:
    run(fake_study(), tmp_path / "run", 30)
    result = run(fake_study(), tmp_path / "run", 90)
    assert len({r.key for r in result.records}) == 90
    again = run(fake_study(evaluator=StopsAfter(0)), tmp_path / "run", 90)
    assert list(again.trials["key"]) == list(result.trials["key"])


def test_a_clock_that_is_set_back_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = itertools.count(2e9, -3600.0)
    monkeypatch.setattr(time, "time", lambda: next(times))
    run(fake_study(), tmp_path / "run", 12)
    result = run(fake_study(), tmp_path / "run", 30)
    monkeypatch.undo()
    assert list(result.trials["key"]) == list(run(fake_study(), tmp_path / "other", 30).trials["key"])


def test_a_changed_program_is_refused(tmp_path: Path) -> None:
    run(fake_study(), tmp_path / "run", 5)
    with pytest.raises(StudyError, match=r"program: was gemm (\w+), is gemm2 \1\n"):
        run(fake_study(salt="2"), tmp_path / "run", 5)
    assert len(run(fake_study(salt="2"), tmp_path / "run", 5, fresh=True).records) == 5


def test_a_program_that_is_changed_for_other_parameters_is_refused(tmp_path: Path) -> None:
    """Whatever its first ones make of it."""
    run(fake_study(program=lambda P=0: None if P < 8 else 1), tmp_path / "run", 5)
    run(fake_study(program=lambda P=0: None if P < 8 else 1), tmp_path / "run", 6)
    with pytest.raises(StudyError, match=r"program: was gemm \w+, is gemm \w+\n"):
        run(fake_study(program=lambda P=0: None if P < 8 else 2), tmp_path / "run", 6)


def test_a_program_may_remember_what_it_has_made(tmp_path: Path) -> None:
    made: list[int] = []
    study = fake_study(program=lambda: made)
    run(study, tmp_path / "run", 5)
    made.append(1)
    assert len(run(study, tmp_path / "run", 6).records) == 6


def small(p: Any) -> bool:
    return bool(p["Pm"] <= 32)


def with_mode(**changes: Any) -> Study:
    """It has a parameter more."""
    tiles = divisors(SIZE, at_least=8, at_most=64)
    params = {
        "size": SIZE,
        "Pm": tiles,
        "Pn": tiles,
        "Pk": tiles,
        "mode": choices([0, 1], when=changes.pop("when", None)),
    }
    return fake_study(params=params, **changes)


@pytest.mark.parametrize(
    ("changes", "holds"),
    [({"where": small}, lambda p: p["Pm"] <= 32), ({"when": small}, lambda p: ("mode" in p) == (p["Pm"] <= 32))],
)
def test_conditions_may_change_between_runs(tmp_path: Path, changes: Any, holds: Any) -> None:
    """Designs that they do not allow count no more, and count again once they do."""
    first = run(with_mode(), tmp_path / "run", 20)
    allowed = [r.key for r in first.records if holds(r.params)]
    assert 0 < len(allowed) < 20
    second = run(with_mode(**changes), tmp_path / "run", 30)
    assert [r.key for r in second.records[: len(allowed)]] == allowed
    assert all(holds(r.params) for r in second.records)
    assert len({r.number for r in (*first.records, *second.records)}) == 50 - len(allowed)
    stated = {e["key"]: e["status"] for e in Log(tmp_path / "run" / "log.jsonl").entries if "status" in e}
    assert {stated[r.key] for r in first.records if r.key not in allowed} == {"infeasible"}
    assert len(open_run(tmp_path / "run", study=with_mode(**changes)).records) == 30
    third = run(with_mode(), tmp_path / "run", 20)
    assert {r.key for r in first.records} <= {r.key for r in third.records}
    assert third.best().values["latency_us"] == min(v[0] for v in third.values.values())


def test_a_design_that_its_genes_meant_only_by_earlier_conditions_is_rebuilt() -> None:
    """Genes of what could not be had meant the nearest that could."""
    study = fake_study()
    design = next(study.space.designs())
    genes = {**design.genes, "param.Pm": design.genes["param.Pm"] + 1}
    record = Record(number=0, status="ok", **{**described(design), "genes_json": json_text(genes)})
    assert present(study.space.decode_genes(genes)).key != study.candidate(record).key == design.key
    with pytest.raises(StudyError, match="not in the study's space"):
        study.candidate(replace(record, key="0"))


def test_objectives_may_change_between_runs(tmp_path: Path) -> None:
    run(fake_study(), tmp_path / "run", 40)
    study = fake_study(objectives=[maximize("dram_bytes")], constraints=[require("pe_count", at_most=4)])
    result = run(study, tmp_path / "run", 40)
    allowed = [r for r in result.records if present(r.metrics)["pe_count"] <= 4]
    assert result.best().metrics.dram_bytes == max(present(r.metrics)["dram_bytes"] for r in allowed)
    assert len(result.values) == len(allowed) < 40


def test_readers_of_the_log_learn_of_changed_objectives_once(tmp_path: Path) -> None:
    run(fake_study(), tmp_path / "run", 20)
    changed = fake_study(objectives=[maximize("pe_count"), minimize("dram_bytes")])
    for _ in range(2):
        run(changed, tmp_path / "run", 20)
        entries = [e for e in Log(tmp_path / "run" / "log.jsonl").entries if e["type"] == "values"]
        assert len(entries) == 20
        assert all(set(e["values"]) == {"pe_count", "dram_bytes"} for e in entries)
    run(fake_study(), tmp_path / "run", 20)
    entries = [e for e in Log(tmp_path / "run" / "log.jsonl").entries if e["type"] == "values"]
    assert len(entries) == 40
    assert "latency_us" in entries[-1]["values"]


def test_an_evaluator_that_fails_costs_its_trials_only(tmp_path: Path) -> None:
    result = run(fake_study(evaluator=Breaks), tmp_path / "run", 100)
    failed = [r for r in result.records if r.status == "failed"]
    assert 10 < len(failed) < 90
    assert {present(r.error).split(" for")[0] for r in failed} == {
        "RuntimeError: no licence",
        "objective 'latency_us' is nan",
    }
    assert all(r.key not in result.values for r in failed)
    assert len(result.records) == 100


def test_constraints_keep_designs_off_the_front(tmp_path: Path) -> None:
    study = fake_study(constraints=[require(lambda m: m.pe_count <= 2, name="few cores")])
    result = run(study, tmp_path / "run", 80)
    assert (result.pareto["pe_count"] <= 2).all()
    assert any(r.status == "infeasible" and r.constraints == {"few cores": 1.0} for r in result.records)


def test_a_small_space_is_enumerated(tmp_path: Path) -> None:
    study = fake_study(size=128, at_most=2, max_nodes=4)
    count = present(study.space.count(10**6))
    result = run(study, tmp_path / "run", count)
    assert result.stopped == "exhausted"
    legal = [t for t in trials_of(tmp_path / "run") if t["status"] != "violation"]
    assert len(result.records) == len(legal) <= count
    assert "exhausted" not in run(study, tmp_path / "other", 5).stopped


@pytest.mark.parametrize(
    ("sampler", "trials"),
    [
        ("random", (15, 25)),
        ("nsga2", (15, 25)),
        ("tpe", (11, 13)),  # from the eleventh on it has a model, and a trial takes as long as ten of others
        ("evolution", (15, 25)),
        (optuna.samplers.NSGAIIISampler(seed=1), (15, 25)),
    ],
)
def test_every_sampler_runs_and_resumes(tmp_path: Path, sampler: Any, trials: tuple[int, int]) -> None:
    for count in trials:
        result = run(fake_study(), tmp_path / "run", count, sampler=sampler)
    assert len({r.key for r in result.records}) == trials[-1]


def test_optuna_samplers_notice_an_exhausted_space(tmp_path: Path) -> None:
    study = fake_study(size=128, at_most=2, max_nodes=4)
    result = run(study, tmp_path / "run", 10**6, sampler="random")
    assert result.stopped == "exhausted"
    assert len(result.records) == len(run(study, tmp_path / "all", 10**6, sampler="exhaustive").records)


def test_time_budget(tmp_path: Path) -> None:
    result = fake_study().run(time="1s", run_dir=tmp_path / "run", progress="quiet")
    assert result.stopped == "time"
    assert result.records


def test_a_wrong_design_leaves_the_front_and_what_it_hid_is_verified(tmp_path: Path) -> None:
    checked = deque[str]()  # a list's contents would make it another verifier

    def verifier(design: Any) -> Verification:
        checked.append(design.key)
        wrong = design.fold.node_count > 4
        return Verification(ok=not wrong, message="C[0, 0] is 3, should be 4" if wrong else "", seconds=0.0)

    result = run(fake_study(verifier=verifier), tmp_path / "run", 80)
    assert result.wrong
    assert (result.pareto["pe_count"] <= 4).all()
    assert set(result.pareto["verified"]) == {"yes"}
    assert len(checked) == len(set(checked))
    again = run(fake_study(verifier=verifier), tmp_path / "run", 80)
    assert list(again.pareto["key"]) == list(result.pareto["key"])
    assert len(checked) == len(set(checked))


def test_verdicts_hold_for_the_functions_that_decided(tmp_path: Path) -> None:
    def verifier(most: int) -> Any:
        return lambda design: Verification(design.fold.node_count <= most, "", 0.0)

    def verified(most: int) -> Any:
        return run(fake_study(verifier=verifier(most)), tmp_path / "run", 80)

    first, corrected, same = (verified(most) for most in (4, 100, 100))
    assert first.wrong
    assert not corrected.wrong
    assert set(corrected.pareto["verified"]) == {"yes"}
    assert list(same.pareto["key"]) == list(corrected.pareto["key"]) != list(first.pareto["key"])


def test_a_verifier_that_breaks_has_not_shown_anything_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def verifier(design: Any) -> None:
        raise ValueError("shape mismatch")

    result = run(fake_study(verifier=verifier), tmp_path / "run", 10)
    assert result.front == []
    assert "ValueError: shape mismatch" in result.verified[result.wrong[0]].message
    assert "COULD NOT BE RUN: design" in capsys.readouterr().err
    with pytest.raises(StudyError, match="no design"):
        result.best()


def test_runs_outside_the_main_thread(tmp_path: Path) -> None:
    found = []
    thread = threading.Thread(target=lambda: found.append(run(fake_study(), tmp_path / "run", 10)))
    thread.start()
    thread.join()
    assert len(found[0].records) == 10


def test_log_records_rebuild_their_designs(tmp_path: Path) -> None:
    study = fake_study()
    run(study, tmp_path / "run", 30)
    for entry in trials_of(tmp_path / "run"):
        record = Record.from_dict({**entry, "at": 0.0})
        assert present(fake_study().space.decode_genes(record.genes)).key == record.key


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"objectives": []}, "has no objective"),
        ({"objectives": ["latency_us"]}, "objectives: .* is none"),
        ({"objectives": [minimize("a"), minimize("a")]}, "two objectives are named 'a'"),
        ({"constraints": ["dsp"]}, "constraints: .* is none"),
    ],
)
def test_wrong_declarations_are_explained(changes: Any, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        fake_study(**changes)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"workers": 0}, "0 workers"),
        ({"trials": 0}, "leaves nothing to do"),
        ({"sampler": "magic"}, "unknown sampler 'magic'"),
    ],
)
def test_wrong_options_are_explained(tmp_path: Path, options: Any, message: str) -> None:
    with pytest.raises(StudyError, match=message):
        fake_study().run(run_dir=tmp_path / "run", progress="quiet", **options)


def test_a_condition_nothing_satisfies_is_explained(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no parameters satisfy"):
        run(fake_study(where=lambda p: p.Pm < 0), tmp_path / "run")


def test_a_space_without_a_legal_design_is_explained(tmp_path: Path) -> None:
    broken = [SimpleNamespace(constraint="core_memory")]
    with pytest.raises(StudyError, match=r"designs tried break a limit of the device: core_memory \(\d+\)"):
        run(fake_study(size=128, at_most=2, max_nodes=4, check=lambda design: broken), tmp_path / "run", 10**6)


def test_unknown_objective(tmp_path: Path) -> None:
    result = run(fake_study(), tmp_path / "run", 10)
    with pytest.raises(StudyError, match="no objective 'speed'"):
        result.best("speed")
