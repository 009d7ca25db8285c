"""A design's placement is solved once per run; export, page, report and resume read it from the run directory."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.backends.npu import mapping
from allo_dse.backends.npu.limits import movement_violations
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.place.placed_design import Infeasible
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.programs import Programs
from allo_dse.dashboard.report import write_report
from allo_dse.mapper.violation import Violation
from allo_dse.space.space import Space
from allo_dse.tune.results.best import PLACEMENTS, placement_of
from allo_dse.tune.results.result import Result
from allo_dse.tune.show.reporters import QuietReporter
from allo_dse.tune.study import load_studies

from ...support.values import present

STUDY = Path(__file__).parents[3] / "studies" / "gemm_npu.py"
SETTINGS = {"size": "128", "device": "npu1_2col"}


def tuned(directory: Path) -> Result:
    study = load_studies(STUDY, SETTINGS)[0]
    command = ["allo-tune", str(STUDY), *(f"--set={name}={value}" for name, value in SETTINGS.items())]
    return study.run(trials=6, seed=0, run_dir=directory, progress=QuietReporter(), command=command)


class Work:
    """What a run has done: graphs that the solver was asked to place, keys of designs that were built again from their
    genes, and graphs that were checked; in turn."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.solved: list[str] = []
        self.rebuilt: list[str] = []
        self.checked: list[str] = []
        place, decode, check = NpuMapping.place, Space.decode_genes, movement_violations

        def placed(mapped: NpuMapping, time_limit_s: float) -> Any:
            self.solved.append(mapped.vmg.key + str(mapped.buffering))
            return place(mapped, time_limit_s)

        def decoded(space: Space, genes: dict[str, int]) -> Any:
            found = decode(space, genes)
            self.rebuilt.append(present(found).key)
            return found

        def violations(view: Any, *others: Any) -> Any:
            self.checked.append(view.vmg.key)
            return check(view, *others)

        monkeypatch.setattr(NpuMapping, "place", placed)
        monkeypatch.setattr(Space, "decode_genes", decoded)
        monkeypatch.setattr(mapping, "movement_violations", violations)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Result, Work]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        work = Work(monkeypatch)
        return tuned(tmp_path_factory.mktemp("placements") / "run"), work


def test_every_design_of_the_front_is_solved_once(
    tmp_path: Path, done: tuple[Result, Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    result, work = done
    keys = {best.key for best in result.front}
    assert len(work.solved) == len(set(work.solved)) == len(keys) > 0
    assert {file.stem for file in (result.run_dir / PLACEMENTS).iterdir()} == keys

    run = tmp_path / "run"
    shutil.copytree(result.run_dir, run)
    later = Work(monkeypatch)
    result.best().export(tmp_path / "exported")  # export
    board = Board.open([run])
    programs = Programs(board)
    programs.load(0)
    assert programs.placement(present(board.knee)) == present(result.knee).placement  # page
    write_report(board, programs, tmp_path / "report.html")  # report
    assert "Placement on the array" in (tmp_path / "report.html").read_text(encoding="utf-8")
    again = tuned(run)  # resume
    assert [best.placement for best in again.front] == [best.placement for best in result.front]
    assert later.solved == []

    shutil.rmtree(run / PLACEMENTS)  # a run of an older version
    assert tuned(run).best().placement == result.best().placement
    assert later.solved != []


DESIGN: Any = SimpleNamespace(key="a1", device=dse.Device.load("npu1_4col"))


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


def test_a_front_is_rebuilt_and_checked_once_by_verification_placement_and_export(done: tuple[Result, Work]) -> None:
    result, work = done
    assert sorted(work.rebuilt) == sorted(best.key for best in result.front)
    # Once when they were proposed, and those of the front once more: proposals are not kept for the length of a run.
    proposed = work.checked[: len(work.checked) - len(result.front)]
    assert len(result.records) <= len(proposed)
    assert set(work.checked[len(proposed) :]) == {best.design.vmg.key for best in result.front}
