"""The front of a run is placed on the array: the table says so, and the exported designs come with their placement."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.backends.npu.place.placed_design import Infeasible, PlacedDesign
from allo_dse.lang import install
from allo_dse.mapper.violation import Violation
from allo_dse.tune.declare.spec import StudySpec
from allo_dse.tune.results.result import Result
from allo_dse.tune.show.reporters import QuietReporter

from ...backends.npu.place.independent_check import verify_placement
from ..fakes import fake_study

install()

from studies.gemm_npu import study

from ...backends.npu.movement.layout_programs import a_bt


def tuned(directory: Any, trials: int = 12) -> Result:
    searched = study(size=128, device="npu1_2col")
    return searched.run(trials=trials, seed=0, run_dir=directory, progress=QuietReporter())


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return tuned(tmp_path_factory.mktemp("run"))


def test_every_design_of_the_front_is_placed(result: Result) -> None:
    assert list(result.pareto["placed"]) == ["yes"] * len(result.front)
    assert {best.key for best in result.front} <= set(result.placed)
    assert all(note.reason for note in result.placed.values())


def test_exports_hold_the_placement(result: Result) -> None:
    directory = result.run_dir / "best" / "latency_us"
    placed = PlacedDesign.from_dict(json.loads((directory / "placement.json").read_text()))
    assert placed == result.best("latency_us").placement
    assert verify_placement(placed) == []
    assert (directory / "placement.svg").read_text().startswith("<svg")


def test_a_resumed_run_does_not_place_again(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StudySpec, "place", lambda *_: pytest.fail("placed again"))
    assert tuned(result.run_dir).placed == result.placed


def test_what_cannot_be_placed_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reason = Violation("switch_ports", "core(0,2) towards south", 5, 4)
    monkeypatch.setattr(StudySpec, "place", lambda *_: Infeasible((reason,)))
    found = tuned(tmp_path, 3)
    assert set(found.pareto["placed"]) == {f"no: {reason}"}
    exported = {path.name for path in (tmp_path / "best" / "latency_us").iterdir()}
    assert "mapping.py" in exported
    assert not exported & {"placement.json", "placement.svg"}


def test_devices_without_an_array_are_left_alone(tmp_path: Path) -> None:
    found = fake_study().run(5, run_dir=tmp_path, progress="quiet")
    assert found.placed == {}
    assert set(found.pareto["placed"]) == {None}


def test_the_placement_of_a_result_can_be_drawn(result: Result, tmp_path: Path) -> None:
    best = result.best("latency_us")
    assert isinstance(best.placement, PlacedDesign)
    assert "nodes on npu1_2col" in dse.draw(best.placement, tmp_path / "array.svg")
    assert (tmp_path / "array.svg").read_text() == dse.draw(best.placement)
    assert dse.draw(best.design) == dse.draw(best.design.vmg) != dse.draw(best.design.program)


def test_the_design_says_where_layouts_change(tmp_path: Path) -> None:
    searched = dse.Study("abt", program=a_bt, device="npu1_1col", objectives=[dse.minimize("latency_us")])
    best = searched.run(trials=4, run_dir=tmp_path, progress=QuietReporter()).best()
    assert "; B transposed by the memory tile's DMA; " in best.explain()
    (layout,) = json.loads((tmp_path / "best" / "latency_us" / "design.json").read_text())["layouts"]
    assert (layout["tensor"], layout["where"], len(layout["descriptor"])) == ("B", "memory tile", 2)
