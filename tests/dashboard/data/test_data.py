"""Runs as tables: read as they grow, with front, knee, hypervolume, differences, importance and rates."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allo_dse.cli.run_facts import run_status
from allo_dse.common.errors import StudyError
from allo_dse.dashboard.data.analysis import Sample, differences, importance, sample, status_text
from allo_dse.dashboard.data.columns import Column
from allo_dse.dashboard.data.progress import lost, statuses, timeline
from allo_dse.dashboard.data.runs import Board, Ref
from allo_dse.dashboard.data.selection import Selection
from allo_dse.dashboard.data.table import RunTable
from allo_dse.dashboard.figures.scatter import View, front_figure
from allo_dse.dashboard.figures.style import LIGHT
from allo_dse.space.sampler.pareto import pareto_positions
from allo_dse.tune.search.pareto_front import hypervolume
from allo_dse.tune.store.log import RunLog, encode_line
from allo_dse.tune.store.record import Verification
from allo_dse.tune.store.run_info import read_info

from ...support.values import present
from ..synthetic import append, design, verify, violation, write_run


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "made", 300)


@pytest.fixture
def table(made: Path) -> RunTable:
    run = RunTable(made)
    run.refresh()
    return run


def test_every_evaluated_design_is_a_row_with_flat_columns(table: RunTable) -> None:
    assert len(table) == 300
    record = design(7)
    row = table.row_of[record.key]
    assert table.columns["latency_us"].value(row) == present(record.metrics)["latency_us"]
    assert table.columns["k.axis0.nodes"].value(row) == record.fold["kernels"][0]["axes"][0]["spatial"]
    assert table.columns["bound.DRAM"].value(row) == present(record.metrics)["bound"]["DRAM"]
    assert table.record(row)["genes"] == record.genes


def test_kinds_tell_objectives_parameters_and_mapping_apart(table: RunTable) -> None:
    assert table.names("objective") == ["latency_us", "bram18"]
    assert table.names("parameter") == ["size", "tile"]
    assert table.names("parameter", "mapping", varying=True) == [
        "tile",
        "k.axis0.nodes",
        "k.axis0.pattern",
        "output_depth",
    ]


def test_front_and_knee_are_those_of_all_feasible_designs(table: RunTable) -> None:
    usable = np.flatnonzero(table.ok)
    expected = usable[pareto_positions(table.losses[usable])]
    assert sorted(table.front) == sorted(expected)
    assert table.knee in table.front
    assert (np.diff(table.losses[table.front][:, 0]) > 0).all()


def test_reading_in_pieces_gives_what_reading_at_once_gives(made: Path, tmp_path: Path) -> None:
    whole = RunTable(made)
    whole.refresh()
    data = (made / "log.jsonl").read_bytes()
    shutil.copytree(made, tmp_path / "run")
    log = tmp_path / "run" / "log.jsonl"
    log.write_bytes(b"")
    piecewise = RunTable(tmp_path / "run")
    for end in [*range(0, len(data), 40_001), len(data)]:
        log.write_bytes(data[:end]) if end == 0 else log.open("ab").write(data[log.stat().st_size : end])
        piecewise.refresh()
    assert piecewise.keys == whole.keys
    assert list(piecewise.front) == list(whole.front)
    for name in whole.columns:
        np.testing.assert_array_equal(piecewise.columns[name].numbers, whole.columns[name].numbers)


def test_a_line_being_written_is_read_when_it_is_complete(tmp_path: Path) -> None:
    run = RunTable(write_run(tmp_path / "run", 5))
    run.refresh()
    line = encode_line(design(9).to_dict())
    with (tmp_path / "run" / "log.jsonl").open("ab") as log:
        log.write(line[:50])
        log.flush()
        assert not run.refresh()
        log.write(line[50:])
    assert run.refresh()
    assert len(run) == 6


def test_damaged_lines_are_skipped(tmp_path: Path) -> None:
    run = RunTable(write_run(tmp_path / "run", 3))
    with (tmp_path / "run" / "log.jsonl").open("ab") as log:
        log.write(b'{"type":"design"}\n' + encode_line(design(9).to_dict()))
    run.refresh()
    assert (len(run), run.log.damaged) == (4, 1)


def test_a_run_begun_anew_replaces_what_was_read(tmp_path: Path) -> None:
    run = RunTable(write_run(tmp_path / "run", 50))
    run.refresh()
    (tmp_path / "run" / "log.jsonl").unlink()
    write_run(tmp_path / "run", 10)
    assert run.refresh()
    assert len(run) == 10


def test_a_design_that_computed_wrong_numbers_leaves_the_front(tmp_path: Path) -> None:
    run = RunTable(write_run(tmp_path / "run", 300))
    run.refresh()
    wrong = run.keys[run.front[0]]
    verify(tmp_path / "run", wrong, ok=False, message="C differs")
    run.refresh()
    assert wrong not in [run.keys[row] for row in run.front]
    assert run.verified[wrong].message == "C differs"
    (at_once,) = Board.open([tmp_path / "run"]).runs
    for table in (run, at_once):
        assert lost(table)["wrong numbers"] == timeline(table).failures["wrong numbers"].sum() == 1
    names = [t["name"] for t in front_figure(Board([run]), View("latency_us", "bram18"), LIGHT).figure["data"]]
    assert "infeasible: wrong numbers" in names
    verify(tmp_path / "run", wrong, ok=True)
    run.refresh()
    assert wrong in [run.keys[row] for row in run.front]
    assert "wrong numbers" not in lost(run)


def test_hypervolume_grows_and_ends_at_that_of_the_front(table: RunTable) -> None:
    history = np.array(table.hypervolume)
    known = history[~np.isnan(history)]
    assert (np.diff(known) >= -1e-12).all()
    reference = np.array(present(table._front.reference))
    assert known[-1] == pytest.approx(hypervolume(table.losses[table.front] / reference, np.ones(2)))


def test_differences_name_what_differs_and_say_which_is_better(table: RunTable) -> None:
    first, second = table.front[0], table.front[-1]
    found = {d.name: d for d in differences(table, first, table, second)}
    assert found["latency_us"].better is False
    assert found["bram18"].better is True
    assert "size" not in found
    values: Any = table.columns["bram18"].value(first), table.columns["bram18"].value(second)
    assert found["bram18"].change == pytest.approx(values[1] / values[0] - 1)


def test_importance_finds_the_parameter_that_decides(table: RunTable) -> None:
    shares = importance(sample(table, "latency_us"))
    assert next(iter(shares)) == "k.axis0.nodes"
    assert sum(shares.values()) == pytest.approx(1)
    few = sample(table, "latency_us")
    assert importance(Sample({name: codes[:9] for name, codes in few.choices.items()}, few.losses[:9])) == {}


def test_a_run_that_meets_nothing_but_limits_goes_on_all_the_same(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", 10)
    log = RunLog(path / "log.jsonl")
    log.append([violation(70).to_dict()])
    log.close()
    (run,) = Board.open([path]).runs
    assert run.seconds == timeline(run).edges[-1] == run_status(run, None)["seconds"] == violation(70).at


def test_what_was_lost_is_counted_by_reason_over_time(table: RunTable) -> None:
    counts = lost(table)
    assert counts["core_memory"] == 60
    assert counts["RuntimeError: the tool gave up"] == statuses(table)["failed"] == 10
    over_time = timeline(table, bins=10)
    assert {name: amount.sum() for name, amount in over_time.failures.items()} == counts
    assert over_time.feasible.sum() == statuses(table)["ok"]
    np.testing.assert_allclose(over_time.workers["all"][1:-1], 0.8, atol=0.05)


def test_a_missing_value_is_not_equal_to_zero() -> None:
    column = Column("x", "metric", missing=2)
    column.append(0)
    column.append(None)
    assert column.values(np.arange(4)) == [None, None, 0, None]
    assert column.varies


def test_a_column_that_turns_out_to_hold_texts_keeps_its_numbers() -> None:
    column = Column("x", "parameter")
    for value in (8, None, "auto", 8, 2.5, True):
        column.append(value)
        len(column.codes)
    assert column.values(np.arange(6)) == ["8", None, "auto", "8", "2.5", "yes"]


def test_selections_survive_the_browser_and_combine(table: RunTable) -> None:
    selection = Selection(
        (("latency_us", ((0.0, 9000.0),)), ("bram18", ((0.0, 99.0), (-2.0, -1.0)))),
        frozenset(f"0:{key}" for key in table.keys[:200]),
    )
    back = Selection.from_dict(json.loads(json.dumps(selection.to_dict())))
    assert back == selection
    expected = (table.numbers("latency_us") <= 9000) & (table.numbers("bram18") < 100) & (np.arange(300) < 200)
    np.testing.assert_array_equal(back.rows(table), expected)
    assert not Selection()
    assert not Selection().rows(table).any()
    assert not back.rows(table, run=1).any()  # where picked designs of the first run are not


def test_a_dearer_evaluators_numbers_replace_the_cheaper_ones(tmp_path: Path) -> None:
    run = RunTable(write_run(tmp_path / "run", 300))
    run.refresh()
    best, history = run.keys[run.front[0]], run.hypervolume
    worse = {**run.record(run.front[0])["metrics"], "latency_us": 1e9, "power_w": 3}
    again = {**run.record(run.front[0]), "rung": 1, "evaluator": "board 1", "metrics": worse, "values": {}}
    with (tmp_path / "run" / "log.jsonl").open("ab") as log:
        log.write(encode_line({**again, "values": {"latency_us": 1e9}}))
    run.refresh()
    row = run.row_of[best]
    assert len(run) == 300
    assert run.columns["latency_us"].value(row) == 1e9
    assert run.columns["power_w"].values(np.array([row, row - 1])) == [3, None]
    assert [rung.evaluator for rung in run.rungs(best)] == ["made-up 1", "board 1"]
    assert run.record(row, 0)["metrics"]["latency_us"] < 1e9
    assert list(run.front) == [row]  # only what the more expensive evaluator has measured can be compared
    assert np.array_equal(run.hypervolume, history, equal_nan=True)
    with (tmp_path / "run" / "log.jsonl").open("ab") as log:
        log.write(encode_line({**again, "status": "infeasible", "rung": 2, "values": {"latency_us": 1e9}}))
    run.refresh()
    assert len(run.front) > 1  # and when it has found nothing feasible, the front is that of the first
    assert row not in run.front


def promoted(run: RunTable, key: Any, **metrics: float) -> Any:
    """What the log says when a second evaluator has measured a design."""
    record = run.record(run.row_of[key])
    found = {**record["metrics"], **metrics}
    return encode_line({**record, "rung": 1, "evaluator": "board 1", "metrics": found, "values": {}})


def test_the_front_is_of_what_the_dearest_evaluator_has_measured(tmp_path: Path) -> None:
    run = RunTable(write_run(tmp_path / "run", 300))
    run.refresh()
    history, first = run.hypervolume, [run.keys[row] for row in run.front]
    with (tmp_path / "run" / "log.jsonl").open("ab") as log:
        log.write(promoted(run, first[0], latency_us=1e6))
        log.write(promoted(run, first[1], latency_us=2e6, bram18=1e6))
        log.write(promoted(run, first[2], latency_us=3e6, bram18=0))
        failed = {"status": "failed", "metrics": None, "error": "RuntimeError: no", "rung": 1, "evaluator": "board 1"}
        log.write(encode_line({**run.record(run.row_of[first[3]]), **failed}))
    run.refresh()
    assert [run.keys[row] for row in run.front] == [first[0], first[2]]
    assert run.knee in run.front
    assert np.array_equal(run.hypervolume, history, equal_nan=True)
    board = Board([run])
    words = [status_text(board, Ref(0, run.row_of[key])) for key in (first[1], first[3], first[4])]
    assert words == ["dominated", "failed: RuntimeError: no", "not measured by board 1"]
    verify(tmp_path / "run", first[0], ok=False)
    run.refresh()
    assert [run.keys[row] for row in run.front] == [first[1], first[2]]
    assert run.hypervolume[-1] <= history[-1]


def assert_history_is_of_present_values(run: RunTable) -> None:
    """The hypervolume's history is what a run would have that had found the present values at once."""
    history = run.hypervolume
    known = history[~np.isnan(history)]
    assert (np.diff(known) >= -1e-12).all()
    reference = np.array(present(run._front.reference))
    assert known[-1] == pytest.approx(hypervolume(run.losses[run.front] / reference, np.ones(2)))


@pytest.mark.parametrize(
    ("verdict", "status"),
    [
        (Verification(False, "C differs", 0.0), "wrong numbers"),
        (Verification(False, "deadlock: ...", 0.0), "deadlock"),
        (Verification(False, "out of memory", 0.0, kind="not run"), "could not be run"),
    ],
)
def test_the_status_of_a_design_is_its_verdict(tmp_path: Path, verdict: Verification, status: str) -> None:
    run = RunTable(write_run(tmp_path / "run", 20))
    run.refresh()
    run.verified[run.keys[0]] = verdict
    assert status_text(Board([run]), Ref(0, 0)) == status


def test_changed_objectives_replace_values_and_status(tmp_path: Path) -> None:
    run = RunTable(write_run(tmp_path / "run", 100))
    run.refresh()
    before = run.hypervolume[-1]
    key = run.keys[present(run.knee)]
    with (tmp_path / "run" / "log.jsonl").open("ab") as log:
        log.write(encode_line({"type": "values", "key": key, "rung": 0, "status": "infeasible", "values": {}}))
    run.refresh()
    assert key not in [run.keys[row] for row in run.front]
    assert run.hypervolume[-1] < before
    assert_history_is_of_present_values(run)


def test_boards_refer_to_designs_by_run_and_key(made: Path, tmp_path: Path) -> None:
    other = write_run(tmp_path / "made", 20)
    board = Board.open([made, other])
    assert board.names == ["made (1)", "made (2)"]
    ref = Ref(1, 3)
    assert board.reference(board.text(ref)) == ref
    for text in (None, "", "7:x", "1:nothing", "x:1"):
        assert board.reference(text) is None
    assert board.find(board.runs[0].keys[40][:9]) == Ref(0, 40)
    before = board.version
    append(other, range(20, 21))
    assert board.refresh()
    assert board.version != before


def test_a_directory_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="not a run directory"):
        Board.open([tmp_path])
    (tmp_path / "run.json").write_text("[]")
    with pytest.raises(StudyError, match="damaged"):
        Board.open([tmp_path])


def test_where_the_study_is_defined_is_read_from_the_command(tmp_path: Path) -> None:
    write_run(tmp_path, 0)
    info = json.loads((tmp_path / "run.json").read_text())
    info["command"] = ["allo-tune", "a b.py", "--set", "dtype=i8", "--set=size=64"]
    (tmp_path / "run.json").write_text(json.dumps(info))
    facts = read_info(tmp_path)
    assert (facts.study_file, facts.settings) == ("a b.py", {"dtype": "i8", "size": "64"})
    assert facts.command_line == "allo-tune 'a b.py' --set dtype=i8 --set=size=64"


def test_directives_of_a_schedule_become_columns(tmp_path: Path) -> None:
    run = RunTable(write_run(tmp_path / "run", 20))
    run.refresh()
    said = [
        "pipeline(mm:k, initiation_interval=2)",
        "partition(mm:A, dim=1, factor=4)",
        "partition(mm:A, dim=2, factor=8)",
    ]
    with (tmp_path / "run" / "log.jsonl").open("ab") as log:
        log.write(encode_line({**run.record(0), "key": "scheduled", "schedule": said}))
    run.refresh()
    row = run.row_of["scheduled"]
    assert run.columns["pipeline.mm.k"].value(row) == 2
    assert run.columns["partition.mm.A"].value(row) == "1, 4; 2, 8"
    assert run.columns["pipeline.mm.k"].value(0) is None
