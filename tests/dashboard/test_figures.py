"""Figures and tables: thinning keeps the outline, rows sort and filter as asked, words say what differs."""

import json

import numpy as np
import pytest

from allo_dse.dashboard.data.board import Board, Ref
from allo_dse.dashboard.data.grid import Grid, Query, grid_columns
from allo_dse.dashboard.data.limits import is_fpga, uses
from allo_dse.dashboard.data.selection import Selection
from allo_dse.dashboard.data.units import label, text
from allo_dse.dashboard.exports import exported, table_csv
from allo_dse.dashboard.figures.parallel import parallel_figure
from allo_dse.dashboard.figures.scatter import View, front_figure, point_number, point_ref
from allo_dse.dashboard.figures.style import DARK, LIGHT
from allo_dse.dashboard.figures.thin import MOST, thin
from allo_dse.dashboard.figures.words import difference_lines
from allo_dse.dashboard.programs import Programs
from allo_dse.errors import StudyError

from .synthetic import write_run


@pytest.fixture(scope="module")
def board(tmp_path_factory):
    return Board.open([write_run(tmp_path_factory.mktemp("runs") / "made", 300)])


def drawn(board, **options):
    return {t["name"]: t for t in front_figure(board, View("latency_us", "bram18", **options), LIGHT).figure["data"]}


def test_thinning_keeps_every_occupied_spot_and_is_bounded():
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=50_000), rng.normal(size=50_000)
    kept = thin(x, y)
    assert len(kept) <= MOST
    assert x[kept].min() < np.quantile(x, 0.001)
    assert x[kept].max() > np.quantile(x, 0.999)
    few = thin(x, y, view=(np.array([0.0, 0.1]), np.array([0.0, 0.1])))
    inside = (x >= 0) & (x <= 0.1) & (y >= 0) & (y <= 0.1)
    assert len(few) == inside.sum()
    assert (np.diff(kept) > 0).all()


def test_points_carry_the_design_they_stand_for(board):
    traces = drawn(board)
    refs = [point_ref(number) for number in traces["Pareto front"]["customdata"]]
    assert refs == list(board.front())
    assert point_ref(point_number(Ref(3, 70_000))) == Ref(3, 70_000)


def test_selected_designs_are_drawn_on_top_and_the_rest_fades(board):
    selection = Selection((("bram18", ((0.0, 40.0),)),))
    traces = drawn(board, selection=selection)
    count = int((selection.rows(board.runs[0]) & board.runs[0].ok).sum())
    assert len(traces["selected"]["customdata"]) == count
    assert traces["dominated"]["marker"]["opacity"] < drawn(board)["dominated"]["marker"]["opacity"]


def test_infeasible_designs_are_drawn_by_reason_when_asked_for(board):
    assert "infeasible: bram18 <= 300" in drawn(board, infeasible=True)
    assert "infeasible: bram18 <= 300" not in drawn(board, infeasible=False)
    assert "dominated" not in drawn(board, dominated=False)


def test_a_logarithmic_axis_leaves_out_what_has_no_logarithm(board):
    figure = front_figure(board, View("latency_us", "bram18", log=frozenset("x")), DARK).figure
    assert figure["layout"]["xaxis"]["type"] == "log"
    assert figure["layout"]["xaxis"]["title"]["text"] == "latency (µs)"


def test_parallel_coordinates_have_an_axis_per_varying_column(board):
    figure = parallel_figure(board, LIGHT)
    names = [d["name"] for d in figure["data"][0]["dimensions"]]
    assert names == ["tile", "k.axis0.nodes", "k.axis0.pattern", "output_depth", "latency_us", "bram18"]


def test_words_name_only_what_differs(board):
    run = board.runs[0]
    lines = difference_lines(board, Ref(0, run.knee), Ref(0, 0))
    assert "knee" in lines[0]
    assert not any(line.startswith("size") for line in lines)
    assert any("→" in line for line in lines)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("latency_us", "latency (µs)"), ("bram18", "bram18 (blocks)"), ("Pm", "Pm"), ("dram_bytes", "dram (bytes)")],
)
def test_labels_have_units(name, expected):
    assert label(name) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "–"),
        (True, "yes"),
        (12345.6, "12,346"),
        (4659.19, "4,659"),
        (0.12345, "0.1235"),
        (3.0, "3"),
        (2e-9, "2.000e-09"),
    ],
)
def test_numbers_are_written_for_people(value, expected):
    assert text(value) == expected


def test_rows_are_sorted_filtered_and_cut_to_the_window(board):
    grid, run = Grid(board), board.runs[0]
    rows, count = grid.window(Query(sort=(("bram18", True),)), 0, 5)
    assert count == 300
    best = sorted((v for v in run.numbers("bram18").tolist() if v == v), reverse=True)[:5]
    assert [r["bram18"] for r in rows] == best
    model = json.dumps({"filterType": "number", "type": "inRange", "filter": 10, "filterTo": 20})
    _, count = grid.window(Query(filters=(("bram18", model),)), 0, 5)
    assert count == ((run.numbers("bram18") >= 10) & (run.numbers("bram18") <= 20)).sum()
    both = json.dumps(
        {
            "operator": "OR",
            "conditions": [
                {"filterType": "text", "type": "equals", "filter": "cyclic"},
                {"filterType": "text", "type": "contains", "filter": "BLO"},
            ],
        }
    )
    assert grid.window(Query(filters=(("k.axis0.pattern", both),)), 0, 1)[1] == 300
    blank = json.dumps({"filterType": "number", "type": "blank"})
    assert grid.window(Query(filters=(("latency_us", blank),)), 0, 1)[1] == 10


def test_the_table_begins_with_the_front(board):
    rows, _ = Grid(board).window(Query(), 0, len(board.runs[0].front))
    assert all(r["_mark"] for r in rows)
    assert [r["_mark"] for r in rows].count("knee") == 1


def test_equal_columns_can_be_hidden(board):
    assert "size" not in [name for name, _, _ in grid_columns(board, hide_equal=True)]
    assert "size" in [name for name, _, _ in grid_columns(board, hide_equal=False)]


def test_texts_that_spreadsheets_would_execute_are_quoted(board):
    run = board.runs[0]
    run.columns["bottleneck"].replace(0, "=HYPERLINK(1)")
    assert "'=HYPERLINK(1)" in table_csv(board, [Ref(0, 0)]).decode()


def test_limits_of_the_device_are_compared_with_what_is_used():
    found = {u.name: u for u in uses("npu1_4col", {"pe_count": 8, "local_memory_bytes": 32768})}
    assert found["pe_count"].share == 0.5
    assert found["local_memory_bytes"].limit == 65536
    assert uses("somebodys_board", {"pe_count": 8}) == []
    assert is_fpga("u280")
    assert not is_fpga("npu1_4col")


def test_what_needs_the_program_says_what_is_missing(board):
    with pytest.raises(StudyError, match="no file"):
        exported(board, Programs(board), Ref(0, 0), "primitives")
    name, content = exported(board, Programs(board), Ref(0, 0), "parameters")
    assert name.endswith(".json")
    assert json.loads(content)["size"] == 1024
