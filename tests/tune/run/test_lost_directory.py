"""A run directory that is deleted or replaced during a run: it is said, and nothing that was evaluated is lost."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from allo_dse.dashboard.data.table import RunTable
from allo_dse.tune.run import ledger
from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.store.log import Log
from allo_dse.tune.store.run_info import read_info

from ..fakes import FakeEvaluator, fake_study

TRIALS = 40


class Notes(QuietReporter):
    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def note(self, text: str, *, alarm: bool = False) -> None:
        self.said.append(text)


def deleted(run_dir: Path) -> None:
    shutil.rmtree(run_dir)


def replaced(run_dir: Path) -> None:
    run_dir.rename(run_dir.with_name("moved"))
    run_dir.mkdir()
    (run_dir / "thesis.tex").write_text("precious")


def deleted_with_its_parent(run_dir: Path) -> None:
    shutil.rmtree(run_dir.parent)


def without_log(run_dir: Path) -> None:
    (run_dir / "log.jsonl").unlink()


@pytest.mark.parametrize("harm", [deleted, replaced, deleted_with_its_parent, without_log])
def test_a_run_whose_directory_goes_keeps_everything_elsewhere(
    tmp_path: Path, harm: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "LOOK_SECONDS", 0.0)
    run_dir = tmp_path / "runs" / "run"

    class Harmful(FakeEvaluator):
        calls = 0

        def evaluate(self, design: Any) -> Any:
            Harmful.calls += 1
            if Harmful.calls == 20:
                harm(run_dir)
            return super().evaluate(design)

    notes = Notes()
    result = fake_study(evaluator=Harmful).run(TRIALS, run_dir=run_dir, progress=notes, verify=False)
    assert (len(result.records), result.run_dir) == (TRIALS, tmp_path / "runs" / "run.kept1")
    (said,) = notes.said
    assert f"{run_dir} was deleted or replaced" in said
    assert str(result.run_dir) in said
    assert read_info(result.run_dir).study == "fake"
    entries = Log(result.run_dir / "log.jsonl").entries
    assert sum(entry["type"] == "design" and entry["status"] != "violation" for entry in entries) == TRIALS
    assert (result.run_dir / "pareto.csv").exists()
    if harm is replaced:
        assert [path.name for path in run_dir.iterdir()] == ["thesis.tex"]
    again = fake_study(evaluator=FakeEvaluator).run(TRIALS + 5, run_dir=result.run_dir, progress="quiet", verify=False)
    assert len(again.records) == TRIALS + 5


def test_lines_that_are_there_twice_count_once(tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    fake_study().run(20, run_dir=run_dir, progress="quiet", verify=False)
    log = run_dir / "log.jsonl"
    log.write_bytes(log.read_bytes() * 2)
    table = RunTable(run_dir)
    table.refresh()
    assert (len(table), {len(table.rungs(key)) for key in table.keys}) == (20, {1})
    again = fake_study().run(20, run_dir=run_dir, progress="quiet", verify=False)
    assert len(again.records) == 20
    assert len(again.trials) == len(set(again.trials["key"])) == 20
