"""A study that measures learns from it: what is predicted next is corrected, also when the run is resumed."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from allo_dse.dashboard.data.runs import Board
from allo_dse.eval.calibrate.correction import uncorrected
from allo_dse.eval.evaluator import Metrics, full_name
from allo_dse.tune.earlier_runs import replay_run
from allo_dse.tune.results.result import Result
from allo_dse.tune.run.restore import read_history
from allo_dse.tune.search.promotion import Rung
from allo_dse.tune.search.scoring import Scorer
from allo_dse.tune.search.screening import Screen
from allo_dse.tune.store.log import Log
from allo_dse.tune.study import load_studies

from ..fakes import FakeEvaluator, fake_study

ROOT = Path(__file__).parents[3]
TOP, TRIALS = 8, 24
BOARD = '''#!/usr/bin/env python3
"""A board on which everything takes 1.2 times as long as predicted, and what the host does much longer."""
import json, math, pathlib, sys

key = json.loads((pathlib.Path(sys.argv[1]) / "design.json").read_text())["key"]
for line in pathlib.Path(sys.argv[2]).read_text().splitlines():
    entry = json.loads(line)
    if entry.get("key") == key and entry["type"] == "design" and not entry.get("rung"):
        said = {**entry["metrics"], **entry["metrics"].get("predicted", {})}
share = said["bound"]["host"] / sum(said["bound"].values())
print(json.dumps({"latency_us": said["latency_us"] * 1.2 * math.exp(1.5 * share)}))
'''
STUDY = """
import allo_dse as dse
from gemm_npu import gemm

TILES = {"Pm": dse.choices([8, 16]), "Pn": 16, "Pk": 16}

def learning() -> dse.Study:
    return dse.Study(
        "learning", program=gemm, params={"M": 1024, "N": 1024, "K": 1024, **TILES},
        objectives=[dse.minimize("latency_us")],
        rungs=[dse.Command("FOLDER/board.py {design} RUN/log.jsonl", top=TOP, version="1")],
    )
"""


def search(folder: Path, trials: int) -> Result:
    """Run the study in a folder, with a board that looks up in its log what was predicted."""
    board = folder / "board.py"
    board.write_text(BOARD)
    board.chmod(0o755)
    shutil.copy(ROOT / "studies" / "gemm_npu.py", folder)
    text = STUDY.replace("TOP", str(TOP)).replace("FOLDER", str(folder)).replace("RUN", str(folder / "run"))
    (folder / "study.py").write_text(text)
    (study,) = load_studies(folder / "study.py")
    return study.run(trials=trials, seed=2, run_dir=folder / "run", progress="quiet", verify=False)


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    folder = tmp_path_factory.mktemp("learning")
    return folder, search(folder, TRIALS)


class FewCores(FakeEvaluator):
    """A higher rung that fails for designs on more than four cores."""

    name = "few cores"

    def evaluate(self, design: Any) -> Metrics:
        found = super().evaluate(design)
        if found["pe_count"] > 4:
            raise RuntimeError("no room")
        return found


def test_a_design_that_fails_at_a_higher_rung_is_told_as_failed(tmp_path: Path) -> None:
    study = fake_study(rungs=[Rung(FewCores, best=1.0)])
    result = study.run(20, run_dir=tmp_path, sampler="random", progress="quiet", verify=False)
    scorer = Scorer(study.objectives, study.constraints)
    names = [full_name(evaluator) for evaluator in study.make_evaluators()]
    history = read_history(Log(tmp_path / "log.jsonl"), scorer, Screen(study.space, study.check), names)
    outcome_of = history.outcome_of(scorer)
    failed = {record.key for record in history.designs.first if outcome_of(record).penalty}
    assert failed == {record.key for record in result.records if (record.metrics or {})["pe_count"] > 4} != set()
    assert all(outcome_of(record).values for record in history.designs.first)


def entries(run: Path) -> list[Any]:
    from allo_dse.tune.store.record import Record, decode_entry

    return [e for e in map(decode_entry, Log(run / "log.jsonl")) if isinstance(e, Record) and e.evaluated]


def test_what_the_board_does_is_learned(searched: Any) -> None:
    _, result = searched
    correction = result.correction
    assert len(correction.pairs) == correction.used == TOP
    assert correction.errors["predicted"][0] > 0.15
    assert correction.errors["corrected"][1] < 0.15
    for record in result.records:
        if not record.rungs:
            said = uncorrected(record.metrics)
            share = said["bound"]["host"] / sum(said["bound"].values())
            factor = 1.2 * math.exp(1.5 * share)
            assert record.metrics["latency_us"] == pytest.approx(said["latency_us"] * factor, rel=0.2)
            assert record.values["latency_us"] == record.metrics["latency_us"]
            assert record.metrics["latency_range"]["measurements"] == TOP
        else:
            assert "latency_range" not in record.metrics


def test_what_is_predicted_next_is_corrected_and_can_be_replayed(searched: Any, tmp_path: Path) -> None:
    shutil.copytree(searched[0] / "run", tmp_path / "run")
    result = search(tmp_path, 2 * TRIALS)
    assert result.correction.pairs[:TOP] == searched[1].correction.pairs
    found = entries(tmp_path / "run")
    before = searched[1].correction
    later = [r for r in found[TRIALS + TOP :] if not r.rung]
    assert len(later) == TRIALS
    for record in later:
        assert record.metrics == before.applied(uncorrected(record.metrics or {}))
        assert record.values is not None
        assert record.values["latency_us"] == (record.metrics or {})["latency_us"]
    replayed = replay_run(tmp_path / "run", study_file=tmp_path / "study.py")
    assert replayed.different == []
    assert replayed.proposals.difference == ""
    assert replayed.proposals.proposed == 2 * TRIALS


@pytest.mark.parametrize("measured", [1, 5])
def test_a_run_that_is_interrupted_while_it_measures_goes_on_as_if_it_had_not_been(
    searched: Any, tmp_path: Path, measured: int
) -> None:
    shutil.copytree(searched[0] / "run", tmp_path / "run")
    log = tmp_path / "run" / "log.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    rungs = [n for n, line in enumerate(lines) if b'"rung":1' in line]
    log.write_bytes(b"".join(lines[: rungs[measured - 1] + 1]))
    result = search(tmp_path, TRIALS)
    assert [r.key for r in entries(tmp_path / "run") if r.rung] == [
        r.key for r in entries(searched[0] / "run") if r.rung
    ]
    assert result.correction == searched[1].correction
    assert {r.key: r.values for r in result.records} == {r.key: r.values for r in searched[1].records}


@pytest.mark.parametrize("resumed", [False, True])
def test_readers_of_the_log_see_what_counts(searched: Any, tmp_path: Path, resumed: bool) -> None:
    """What was measured as measured, all else as corrected; the last correction is all that a resumed run can add."""
    shutil.copytree(searched[0] / "run", tmp_path / "run")
    result = search(tmp_path, TRIALS + 1) if resumed else searched[1]
    (table,) = Board.open([tmp_path / "run"]).runs
    shown = dict(zip(table.keys, table.numbers("latency_us").tolist(), strict=True))
    for record in result.records:
        assert record.values is not None
        assert shown[record.key] == pytest.approx(record.values["latency_us"])
