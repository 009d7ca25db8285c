"""A design's placement is solved once per run; export, page, report and resume read it from the run directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from allo_dse.dashboard.data.board import Board
from allo_dse.dashboard.programs import Programs
from allo_dse.dashboard.report import write_report
from allo_dse.mapper import mapping
from allo_dse.mapper.limits.npu_limits import movement_violations
from allo_dse.mapper.mapping import DeviceMapping
from allo_dse.mapper.model.violation import Violation
from allo_dse.mapper.place.placed_design import Infeasible
from allo_dse.space.space import Space
from allo_dse.tune.results.study_result import Result
from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.store.placements import PLACEMENTS, placement_of
from allo_dse.tune.study_file import load_studies
from tests.support.values import present

STUDY = Path(__file__).parents[3] / "studies" / "gemm_npu.py"
SETTINGS = {"size": "128", "device": "npu1_2col"}


def tuned(directory: Path) -> Result:
    study = load_studies(STUDY, SETTINGS)[0]
    command = ["allo-tune", str(STUDY), *(f"--set={name}={value}" for name, value in SETTINGS.items())]
    return study.run(trials=12, seed=0, run_dir=directory, progress=QuietReporter(), command=command)


@pytest.fixture
def solved(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The graphs that the solver was asked to place, in turn."""
    found: list[str] = []
    place = DeviceMapping.place

    def counted(self: DeviceMapping, time_limit_s: float) -> Any:
        found.append(self.vmg.key + str(self.buffering))
        return place(self, time_limit_s)

    monkeypatch.setattr(DeviceMapping, "place", counted)
    return found


def test_every_design_of_the_front_is_solved_once(tmp_path: Path, solved: list[str]) -> None:
    run = tmp_path / "run"
    result = tuned(run)
    keys = {best.key for best in result.front}
    assert len(solved) == len(set(solved)) == len(keys) > 0
    assert {file.stem for file in (run / PLACEMENTS).iterdir()} == keys

    result.best().export(tmp_path / "exported")  # export
    board = Board.open([run])
    programs = Programs(board)
    programs.load(0)
    assert programs.placement(present(board.knee)) == present(result.knee).placement  # page
    write_report(board, programs, tmp_path / "report.html")  # report
    assert "Placement on the array" in (tmp_path / "report.html").read_text(encoding="utf-8")
    again = tuned(run)  # resume
    assert [best.placement for best in again.front] == [best.placement for best in result.front]
    assert len(solved) == len(keys)

    shutil.rmtree(run / PLACEMENTS)  # a run of an older version
    assert tuned(run).best().placement == result.best().placement
    assert len(solved) > len(keys)


DESIGN: Any = SimpleNamespace(key="a1")


REASON = Infeasible((Violation("switch_ports", "core(0,2) towards south", 5, 4),))


def test_what_cannot_be_placed_is_kept_with_its_reasons(tmp_path: Path) -> None:
    assert placement_of(tmp_path, DESIGN, lambda _: REASON) == REASON
    assert placement_of(tmp_path, DESIGN, lambda _: pytest.fail("solved again")) == REASON


def test_what_was_not_decided_in_time_is_not_kept(tmp_path: Path) -> None:
    assert placement_of(tmp_path, DESIGN, lambda _: Infeasible((), proven=False)) == Infeasible((), proven=False)
    assert placement_of(tmp_path, DESIGN, lambda _: REASON) == REASON


@pytest.mark.parametrize("damage", ["", "{}", '{"version": 1}', '{"version": 0, "placement": {}}', "[1]"])
def test_a_file_that_this_version_did_not_write_is_solved_again(tmp_path: Path, damage: str) -> None:
    placement_of(tmp_path, DESIGN, lambda _: REASON)
    (file,) = (tmp_path / PLACEMENTS).iterdir()
    file.write_text(damage)
    assert placement_of(tmp_path, DESIGN, lambda _: REASON) == REASON
    assert json.loads(file.read_text())["placement"]["proven"] is True


def test_a_directory_that_cannot_be_written_is_no_obstacle(tmp_path: Path) -> None:
    (tmp_path / PLACEMENTS).write_text("a file in its place")
    assert placement_of(tmp_path, DESIGN, lambda _: REASON) == REASON


def test_a_front_is_rebuilt_and_checked_once_by_verification_placement_and_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rebuilt: list[str] = []
    checked: list[str] = []
    decode, check = Space.decode_genes, movement_violations

    def decoded(self: Space, genes: dict[str, int]) -> Any:
        found = decode(self, genes)
        rebuilt.append(present(found).key)
        return found

    def violations(view: Any, *others: Any) -> Any:
        checked.append(view.vmg.key)
        return check(view, *others)

    monkeypatch.setattr(Space, "decode_genes", decoded)
    monkeypatch.setattr(mapping, "movement_violations", violations)
    result = tuned(tmp_path / "run")
    assert sorted(rebuilt) == sorted(best.key for best in result.front)
    # Once when they were proposed, and those of the front once more: proposals are not kept for the length of a run.
    proposed = checked[: len(checked) - len(result.front)]
    assert len(result.records) <= len(proposed)
    assert set(checked[len(proposed) :]) == {best.design.vmg.key for best in result.front}
