"""Figures and tables: thinning keeps the outline, rows sort and filter as asked, words say what differs."""

import base64
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.common.errors import StudyError
from allo_dse.common.records import Array
from allo_dse.dashboard.app.front_plots import drawn_note
from allo_dse.dashboard.data.analysis import difference_lines, project_folder, uses
from allo_dse.dashboard.data.grid import Grid, Query, grid_columns
from allo_dse.dashboard.data.progress import timeline, why_none
from allo_dse.dashboard.data.runs import Board, Ref
from allo_dse.dashboard.data.selection import Selection, label, text
from allo_dse.dashboard.exports import exported, table_csv
from allo_dse.dashboard.figures import scatter
from allo_dse.dashboard.figures.parallel import MAX_LINES, TICK_GAP, apart, pairs_figure, parallel_figure
from allo_dse.dashboard.figures.progress import designs_figure, history_figure, lost_figure
from allo_dse.dashboard.figures.scatter import MAX_POINTS, Drawn, View, front_figure, point_number, point_ref
from allo_dse.dashboard.figures.style import DARK, LIGHT, LINE, NAME, NO_VALUE, ORANGE, scale
from allo_dse.dashboard.figures.thinning import spots, thin, visible, window
from allo_dse.dashboard.programs import Programs
from allo_dse.tune.store.log import RunLog

from ..support.values import present
from .synthetic import design, violation, write_run


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Board:
    return Board.open([write_run(tmp_path_factory.mktemp("runs") / "made", 300)])


def drawn(board: Board, **options: Any) -> Any:
    return {t["name"]: t for t in front_figure(board, View("latency_us", "bram18", **options), LIGHT).figure["data"]}


POINTS = st.tuples(*[st.floats(-1e6, 1e6).map(float)] * 2)
CLOUDS: st.SearchStrategy[Array] = st.lists(POINTS, min_size=1, max_size=300).map(np.array)


@given(CLOUDS, st.integers(8, 60))
def test_thinning_is_bounded_and_keeps_the_outermost_points(cloud: Array, most: Any) -> None:
    x, y = cloud.T
    kept = thin(x, y, most)
    assert len(kept) <= most
    assert (np.diff(kept) > 0).all()
    for values in (x, y):
        assert values[kept].min() == values.min()
        assert values[kept].max() == values.max()


@given(CLOUDS)
def test_every_point_is_counted_in_the_spot_where_it_lies(cloud: Array) -> None:
    x, y = cloud.T
    found = spots(x, y, window(x, y), columns=7, rows=5).cropped()
    assert found.counts.sum() == len(x)
    assert found.counts.shape == (len(found.y) - 1, len(found.x) - 1)
    assert ((found.first >= 0) == (found.counts > 0)).all()
    for row, column in np.argwhere(found.counts):
        design = found.first[row, column]
        slack = 1e-9 * max(1.0, abs(cloud).max())
        assert found.x[column] - slack <= x[design] <= found.x[column + 1] + slack
        assert found.y[row] - slack <= y[design] <= found.y[row + 1] + slack


def test_only_points_with_both_coordinates_in_the_window_are_visible() -> None:
    x, y = np.array([0.0, 1.0, 2.0, np.nan, 1.0]), np.array([0.0, 1.0, 2.0, 1.0, np.inf])
    assert visible(x, y, None).tolist() == [0, 1, 2]
    assert visible(x, y, ((0.5, 3.0), (0.0, 1.5))).tolist() == [1]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Board:
    return Board.open([write_run(tmp_path_factory.mktemp("runs") / "crowd", 3 * MAX_POINTS)])


def unpacked(array: Any) -> Array:
    values = np.frombuffer(base64.b64decode(array["bdata"]), f"<{array['dtype']}")
    return values.reshape([int(n) for n in array.get("shape", str(len(values))).split(",")])


def test_a_crowd_is_drawn_as_spots_and_what_matters_as_points(crowd: Board) -> None:
    run, selection = crowd.runs[0], Selection((("latency_us", ((0.0, 30_000.0),)),))
    view = View("latency_us", "bram18", log=frozenset("x"), infeasible=False, selection=selection, reference=Ref(0, 5))
    figure = front_figure(crowd, view, LIGHT)
    traces = {t["name"]: t for t in figure.figure["data"]}
    assert [point_ref(n) for n in traces["Pareto front"]["customdata"]] == list(crowd.front())
    assert {"knee", "reference"} <= set(traces)
    assert all(re.fullmatch(r"[\w-]+", t["uid"]) for t in traces.values())  # becomes part of a CSS selector
    dominated = run.ok.copy()
    dominated[run.front] = False
    for name, rows in (("dominated", dominated), ("selected", selection.rows(run) & run.ok)):
        spot = traces[name]
        counts, designs = unpacked(spot["z"]), unpacked(spot["customdata"])
        assert spot["type"] == "heatmap"
        assert np.nansum(counts) == rows.sum()
        for row, column in np.argwhere(counts > 0):
            design = point_ref(designs[row, column]).row
            low, high = 10 ** unpacked(spot["x"])[[column, column + 1]]  # on the axis underneath
            assert rows[design]
            assert low * 0.999 <= run.numbers("latency_us")[design] <= high * 1.001
        assert (spot["xaxis"], "yaxis" in spot) == ("x2", False)
    assert figure.designs == run.ok.sum()
    both = [figure.figure["layout"][axis]["autorangeoptions"]["include"] for axis in ("xaxis", "xaxis2")]
    assert np.log10(both[0]).tolist() == pytest.approx(both[1])


def test_a_crowd_is_parted_by_zooming_in(crowd: Board) -> None:
    latency, bram = crowd.runs[0].numbers("latency_us"), crowd.runs[0].numbers("bram18")
    zoom = ((0.0, 5_000.0), (0.0, 70.0))
    figure = front_figure(crowd, View("latency_us", "bram18", infeasible=False, zoom=zoom), LIGHT)
    traces = {t["name"]: t for t in figure.figure["data"]}
    inside = crowd.runs[0].ok & (latency <= 5_000) & (bram <= 70)
    assert figure.designs == figure.marks == inside.sum()
    inside[crowd.runs[0].front] = False
    assert traces["dominated"]["type"] == "scatter"
    assert len(traces["dominated"]["customdata"]) == inside.sum()


def test_a_run_without_designs_says_so(tmp_path: Path) -> None:
    empty = Board.open([write_run(tmp_path / "empty", 0)])
    figure = front_figure(empty, View("number", "at"), LIGHT).figure
    assert figure["layout"]["annotations"][0]["text"].startswith("No design has been evaluated yet")


def test_what_several_runs_have_is_once_in_the_legend(board: Board, tmp_path: Path) -> None:
    both = Board.open([board.runs[0].path, write_run(tmp_path / "other", 100)])
    named = [t["name"] for t in front_figure(both, View("latency_us", "bram18"), LIGHT).figure["data"]]
    shown = [
        t["name"] for t in front_figure(both, View("latency_us", "bram18"), LIGHT).figure["data"] if t["showlegend"]
    ]
    assert named.count("knee") == 2
    assert sorted(shown) == sorted(set(named))


def test_points_carry_the_design_they_stand_for(board: Board) -> None:
    traces = drawn(board)
    refs = [point_ref(number) for number in traces["Pareto front"]["customdata"]]
    assert refs == list(board.front())
    assert point_ref(point_number(Ref(3, 70_000))) == Ref(3, 70_000)


def test_selected_designs_are_drawn_on_top_and_the_rest_fades(board: Board) -> None:
    selection = Selection((("bram18", ((0.0, 40.0),)),))
    traces = drawn(board, selection=selection)
    count = int((selection.rows(board.runs[0]) & board.runs[0].ok).sum())
    assert len(traces["selected"]["customdata"]) == count
    assert traces["dominated"]["marker"]["opacity"] < drawn(board)["dominated"]["marker"]["opacity"]


def test_infeasible_designs_are_drawn_by_reason_when_asked_for(board: Board) -> None:
    assert "infeasible: bram18 <= 300" in drawn(board, infeasible=True)
    assert "infeasible: bram18 <= 300" not in drawn(board, infeasible=False)
    assert "dominated" not in drawn(board, dominated=False)
    assert {"Pareto front", "knee"} <= drawn(board, dominated=False, infeasible=False).keys()


REASONS = [f"RuntimeError: no answer of the computer in the laboratory: {letter}" for letter in "abcdefgh"]


@pytest.fixture(scope="module")
def failing(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """A run of which a second evaluator fails for many reasons, each rarer than the one before."""
    path = write_run(tmp_path_factory.mktemp("runs") / "failing", 0)
    log = RunLog(path / "log.jsonl")
    later = {"rung": 1, "evaluator": "board 1", "status": "failed", "metrics": None}
    failures = [reason for place, reason in enumerate(REASONS) for _ in range(len(REASONS) - place)]
    for number, reason in enumerate(failures):
        made = {**design(number).to_dict(), "status": "ok", "metrics": {"latency_us": 100.0 + number, "bram18": number}}
        log.append([made, {**made, **later, "error": reason}])
    log.close()
    return Board.open([path])


def test_there_are_no_more_kinds_of_failures_than_symbols(failing: Board) -> None:
    figure = front_figure(failing, View("latency_us", "bram18"), LIGHT).figure
    traces = [t for t in figure["data"] if t["name"].startswith("failed: ")]
    assert [len(t["customdata"]) for t in traces] == [8, 7, 6, 5, 4, 3 + 2 + 1]
    assert traces[0]["name"] == f"failed: {REASONS[0]}"[: LINE - 1] + "…"
    assert traces[-1]["name"] == "failed: 3 other reasons"
    for own in ({t["uid"] for t in traces}, {t["marker"]["symbol"] for t in traces}):
        assert len(own) == len(traces)


def test_bars_whose_names_are_too_long_for_the_plot_stay_apart(failing: Board) -> None:
    figure = lost_figure(failing.runs[0], LIGHT)
    (bars,), names = figure["data"], figure["layout"]["yaxis"]["ticktext"]
    assert bars["customdata"] == REASONS[::-1]
    assert len(set(bars["y"])) == len(names) == len(REASONS)
    assert max(map(len, names)) == NAME
    over_time = designs_figure(timeline(failing.runs[0]), LIGHT)
    assert over_time["layout"]["showlegend"]  # Plotly leaves out the name of one kind alone
    assert max(len(trace["name"]) for trace in over_time["data"]) == NAME


def test_a_logarithmic_axis_leaves_out_what_has_no_logarithm(board: Board) -> None:
    figure = front_figure(board, View("latency_us", "bram18", log=frozenset("x")), DARK).figure
    assert figure["layout"]["xaxis"]["type"] == "log"
    assert figure["layout"]["xaxis"]["minorloglabels"] == "complete"
    assert figure["layout"]["xaxis"]["title"]["text"] == "latency (µs)"


def test_parallel_coordinates_have_an_axis_per_varying_column(board: Board) -> None:
    figure = parallel_figure(board, LIGHT)
    names = [d["name"] for d in figure["data"][0]["dimensions"]]
    assert names == ["tile", "k.axis0.nodes", "k.axis0.pattern", "output_depth", "latency_us", "bram18"]


def test_an_axis_has_its_whole_length_where_designs_that_are_shown_are_alike(board: Board) -> None:
    figure = parallel_figure(board, LIGHT, source="k.axis0.pattern == 'cyclic' and tile == 8")
    shown = {d["name"]: d for d in figure["data"][0]["dimensions"]}
    for name, words in (("k.axis0.pattern", ["block", "cyclic"]), ("tile", ["", "8", ""])):
        ticks = shown[name]["tickvals"]
        assert (shown[name]["range"], shown[name]["ticktext"]) == ([ticks[0], ticks[-1]], words)
        assert ticks[0] < ticks[-1]


def test_designs_without_a_value_stand_below_its_axis(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", 0)
    log = RunLog(path / "log.jsonl")
    for number in range(24):
        depths = (
            {"few": 2 << number % 3, "many": number / 7, "alike": 7, "word": "ab"[number % 2]} if number % 4 else {}
        )
        log.append([{**design(number).to_dict(), "status": "ok", "params": {"tile": number, **depths}}])
    log.close()
    board = Board.open([path])
    shown = {d["name"]: d for d in parallel_figure(board, LIGHT)["data"][0]["dimensions"]}
    assert NO_VALUE not in shown["latency_us"].get("ticktext", ())
    for name in ("few", "many", "alike", "word"):
        ticks, values = shown[name]["tickvals"], unpacked(shown[name]["values"])
        assert shown[name]["ticktext"].index(NO_VALUE) == 0
        assert (values == ticks[0]).sum() == 6
        assert np.sort(values)[6] >= ticks[1] > ticks[0]
        assert shown[name]["range"] == [ticks[0], ticks[-1]]
        line = parallel_figure(board, LIGHT, color=name)["data"][0]["line"]
        assert (unpacked(line["color"]) == line["cmin"]).sum() == 6
        lowest = (np.sort(unpacked(line["color"]))[6] - line["cmin"]) / (line["cmax"] - line["cmin"])
        assert 0 < line["colorscale"][1][0] < lowest


@pytest.mark.parametrize("most", [8, MAX_POINTS])
def test_designs_without_a_value_of_the_colour_are_hollow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr(scatter, "MAX_POINTS", most)
    path = write_run(tmp_path / "run", 0)
    log = RunLog(path / "log.jsonl")
    for number in range(24):
        log.append([{**design(number).to_dict(), "status": "ok", "params": {"few": number} if number % 4 else {}}])
    log.close()
    board = Board.open([path])
    traces = front_figure(board, View("latency_us", "bram18", color="few"), LIGHT).figure["data"]
    hollow = [t for t in traces if t["name"] == NO_VALUE]
    assert sorted(n for t in hollow for n in t["customdata"]) == list(range(0, 24, 4))
    assert {(t["marker"]["color"], t["marker"]["symbol"]) for t in hollow} == {(LIGHT.muted, "circle-open")}
    assert [t["showlegend"] for t in hollow] == [True, False]  # of those on the front and the others
    assert len({t["uid"] for t in traces}) == len(traces)
    scaled = [t["marker"]["color"] for t in traces if "coloraxis" in t.get("marker", ())]
    assert all(np.isfinite(unpacked(colors)).all() for colors in scaled)
    assert ("heatmap" in {t["type"] for t in traces}) == (most == 8)


@pytest.fixture(scope="module")
def trade_off(tmp_path_factory: pytest.TempPathFactory) -> Board:
    """A run of which every design is on the front."""
    path = write_run(tmp_path_factory.mktemp("runs") / "all", 0)
    log = RunLog(path / "log.jsonl")
    for number in np.random.default_rng(0).permutation(3 * MAX_POINTS).tolist():
        metrics = {"latency_us": 100.0 + number, "bram18": 5_000 - number}
        log.append([{**design(number).to_dict(), "status": "ok", "metrics": metrics}])
    log.close()
    return Board.open([path])


def test_a_front_that_is_a_crowd_is_drawn_as_one_point_per_spot_with_knee_and_reference(trade_off: Board) -> None:
    run = trade_off.runs[0]
    assert len(run.front) == 3 * MAX_POINTS
    selection = Selection((("latency_us", ((100.0, 400.0),)),))
    view = View("latency_us", "bram18", infeasible=False, reference=Ref(0, 5), selection=selection)
    figure = front_figure(trade_off, view, LIGHT)
    traces = {t["name"]: t for t in figure.figure["data"]}
    shown = [point_ref(n).row for n in traces["Pareto front"]["customdata"]]
    assert MAX_POINTS / 4 < len(shown) <= MAX_POINTS
    assert {run.front[0], run.front[-1]} <= set(shown)
    assert (np.diff(run.losses[shown][:, 0]) > 0).all()
    orange = [color == ORANGE for color in traces["Pareto front"]["marker"]["line"]["color"]]
    assert orange == selection.rows(run)[shown].tolist()
    assert traces["knee"]["customdata"] == [run.knee]
    assert traces["reference"]["customdata"] == [5]
    assert (figure.designs, figure.marks) == (3 * MAX_POINTS, len(shown))
    zoom = ((150.0, 300.0), (4_000.0, 5_000.0))
    near = front_figure(trade_off, View("latency_us", "bram18", infeasible=False, zoom=zoom), LIGHT)
    assert near.designs == near.marks == 151


def test_parallel_coordinates_of_a_large_front_have_a_sample_with_its_knee(trade_off: Board) -> None:
    run = trade_off.runs[0]

    def latencies(**options: Any) -> Array:
        dimensions = parallel_figure(trade_off, LIGHT, **options)["data"][0]["dimensions"]
        return unpacked(next(d for d in dimensions if d["name"] == "latency_us")["values"])

    assert len(latencies()) <= MAX_LINES + 1
    assert {run.numbers("latency_us")[row] for row in (run.front[0], run.front[-1], run.knee)} <= set(latencies())
    selected = latencies(selection=Selection((("latency_us", ((100.0, 149.0),)),)))
    assert (selected < 149.5).sum() == 50


def test_pictures_of_designs_say_why_there_is_nothing(tmp_path: Path, board: Board) -> None:
    def said(board: Board, **options: Any) -> Any:
        return parallel_figure(board, LIGHT, **options)["layout"]["annotations"][0]["text"]

    empty = Board.open([write_run(tmp_path / "empty", 0)])
    assert said(empty).startswith("No design has been evaluated yet")
    assert said(board, source="bram18 < 0").startswith("No feasible design is left")
    none = front_figure(board, View("latency_us", "bram18", filter="bram18 < 0"), LIGHT)
    assert none.figure["layout"]["annotations"][0]["text"].startswith("No feasible design is left")
    assert none.designs == 0
    elsewhere = front_figure(board, View("latency_us", "bram18", zoom=((0.0, 1e-3), (0.0, 1e-3))), LIGHT)
    assert (elsewhere.designs, "annotations" in elsewhere.figure["layout"]) == (0, False)


def test_where_nothing_is_feasible_the_limit_that_ruled_most_out_is_named(tmp_path: Path) -> None:
    path = write_run(tmp_path / "none", 0)
    log = RunLog(path / "log.jsonl")
    log.append(violation(number).to_dict() for number in range(50))
    log.close()
    words = why_none(Board.open([path]))
    assert words.startswith("No feasible design among 50: core_memory rules out 100 %. docs/troubleshooting.md")


def test_designs_are_coloured_by_a_column_in_points_spots_and_lines(board: Board, crowd: Board) -> None:
    for column in ("dsp", "bottleneck"):
        figure = front_figure(board, View("latency_us", "bram18", color=column), LIGHT).figure
        assert figure["layout"]["coloraxis"]["colorbar"]["title"]["text"].startswith(column)
        colored = {t["name"] for t in figure["data"] if t.get("marker", {}).get("coloraxis") == "coloraxis"}
        assert {"Pareto front", "dominated"} <= colored
        entries = [t for t in figure["data"] if t["showlegend"]]
        assert len({t["name"] for t in entries}) == len(entries)
        assert all("coloraxis" not in t["marker"] for t in entries)  # whose entries Plotly draws black
        lines = parallel_figure(board, LIGHT, color=column)["data"][0]["line"]
        assert lines["showscale"]
    spotted = drawn(crowd, color="dsp")["dominated"]
    assert (spotted["type"], spotted["coloraxis"]) == ("heatmap", "coloraxis")
    assert "colorscale" not in spotted
    assert "in the colour of one of its designs" in drawn_note(Drawn({}, 2, 1), View("x", "y", color="dsp"))
    assert "darker where there are more" in drawn_note(Drawn({}, 2, 1), View("x", "y"))


def test_every_colour_of_the_scale_can_be_told_from_what_is_behind_it_in_the_dark() -> None:
    def luminance(color: str) -> float:
        parts = (int(color[i : i + 2], 16) / 255 for i in (1, 3, 5))
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return float(np.dot([0.2126, 0.7152, 0.0722], linear))

    behind = luminance(DARK.panel)
    assert min((luminance(color) + 0.05) / (behind + 0.05) for _, color in scale(DARK)) > 2.4
    assert [place for place, _ in scale(DARK, 0.2)][:: len(scale(DARK)) - 1] == [0.2, 1]


def test_long_names_and_large_numbers_leave_room_for_what_they_belong_to(tmp_path: Path) -> None:
    name = "an_objective_whose_name_is_much_longer_than_what_plots_have_room_for"
    objectives = [{"name": n, "direction": "minimize"} for n in ("latency_us", "bram18", name)]
    path = write_run(tmp_path / "run", 0, objectives=objectives)
    log = RunLog(path / "log.jsonl")
    for number, latency in enumerate((1e300, 12.5)):
        metrics = {"latency_us": latency, "bram18": 4, name: 1.0}
        log.append([{**design(number).to_dict(), "status": "ok", "metrics": metrics}])
    log.close()
    board = Board.open([path])
    assert board.axis("latency_us").ticks is None  # numbers, however large
    lines = parallel_figure(board, LIGHT)
    assert lines["layout"]["margin"]["r"] > 96
    titles = [v["title"]["text"] for k, v in pairs_figure(board.runs[0], LIGHT)["layout"].items() if "axis" in k]
    assert max(title.count("<br>") for title in titles) <= 2


def lines_of(figure: Any) -> dict[str, list[list[float]]]:
    """Across and up of each line, by the start of its name."""
    return {
        trace["name"].split(":")[0]: [
            np.frombuffer(base64.b64decode(trace[axis]["bdata"]), trace[axis]["dtype"]).tolist() for axis in "xy"
        ]
        for trace in figure["data"]
        if "name" in trace
    }


def test_the_best_so_far_of_one_design_is_a_point(tmp_path: Path) -> None:
    board = Board.open([write_run(tmp_path / "run", 1)])
    assert {trace["mode"] for trace in history_figure(board, "latency_us", LIGHT)["data"]} == {"markers"}


def test_the_history_has_all_feasible_designs_and_the_best_so_far(board: Board) -> None:
    run, figure = board.runs[0], history_figure(board, "latency_us", LIGHT)
    dots = figure["data"][0]
    assert len(dots["text"]) == run.ok.sum()
    (_, best) = lines_of(figure)["best so far"]
    assert best[-1] == run.numbers("latency_us")[run.ok].min()
    assert (np.diff(best) <= 0).all()


def test_runs_are_drawn_together_and_what_is_hidden_is_left_out(tmp_path: Path) -> None:
    board = Board.open([write_run(tmp_path / name, 20) for name in ("one", "two")])
    assert set(lines_of(history_figure(board, "latency_us", LIGHT))) == {"one", "two"}
    assert set(lines_of(history_figure(board, "latency_us", LIGHT, hidden=[0]))) == {"best so far"}
    assert not lines_of(history_figure(board, "latency_us", LIGHT, hidden=[0, 1]))


def test_the_best_so_far_is_the_best_of_the_front_where_a_second_evaluator_has_measured(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", 20)
    log = RunLog(path / "log.jsonl")
    log.append([{**design(0).to_dict(), "rung": 1, "evaluator": "board 1", "metrics": {"latency_us": 123_456.0}}])
    log.close()
    names = [trace.get("name") for trace in history_figure(Board.open([path]), "latency_us", LIGHT)["data"]]
    assert "best so far: 123,456" in names


@pytest.mark.parametrize(("against", "ends"), [("designs", [10.0, 20.0]), ("time", [0.095, 0.195])])
def test_below_the_best_so_far_is_what_no_design_can_be_better_than(
    tmp_path: Path, against: str, ends: list[float]
) -> None:
    path = write_run(tmp_path / "run", 20)
    log = RunLog(path / "log.jsonl")
    for at, bound in ((0.095, 1_000.0), (0.195, 1_500.0)):
        log.append([{"type": "tick", "at": at, "bounds": {"latency_us": bound}}])
    log.close()
    lines = lines_of(history_figure(Board.open([path]), "latency_us", LIGHT, against=against))
    across, bounds = lines["no design is better"]
    assert across == pytest.approx(ends)
    assert bounds == [1_000.0, 1_500.0]
    assert max(bounds) < min(lines["best so far"][1])


@given(st.lists(st.integers(0, 5_000), min_size=1, max_size=12, unique=True).map(sorted))
def test_texts_on_an_axis_do_not_cover_each_other(values: Any) -> None:
    marked = apart(values)
    assert marked[0] == values[0]
    assert marked[-1] == values[-1]
    assert set(marked) <= set(values)
    if len(values) > 1:
        assert min(np.diff(marked)) >= min(TICK_GAP * (values[-1] - values[0]), values[-1] - values[0])


def test_words_name_only_what_differs_and_objectives(board: Board, tmp_path: Path) -> None:
    run = board.runs[0]
    lines = difference_lines(board, Ref(0, present(run.knee)), Ref(0, 0))
    assert "knee" in lines[0]
    assert not any(line.startswith("size") for line in lines)
    assert any("→" in line for line in lines)
    alone = difference_lines(Board.open([write_run(tmp_path / "one", 1)]), Ref(0, 0), Ref(0, 0))
    assert [line.split(":")[0] for line in alone[1:]] == ["latency (µs)", "bram18 (blocks)"]


def test_texts_on_hovering_are_html_with_a_bold_title(tmp_path: Path) -> None:
    board = Board.open([write_run(tmp_path / name, 20) for name in ("<i>", "&")])
    figure = front_figure(board, View("latency_us", "bram18", hover=True), LIGHT).figure
    texts = [line for trace in figure["data"] for line in trace.get("text", ())]
    assert texts
    assert all(re.match(r"<b>(&lt;i&gt;|&amp;) · \w{1,8}</b> · \w", line) for line in texts)
    assert not any("<i>" in line for line in texts)


@pytest.mark.parametrize(
    ("name", "expected"),
    [("latency_us", "latency (µs)"), ("bram18", "bram18 (blocks)"), ("Pm", "Pm"), ("dram_bytes", "dram (bytes)")],
)
def test_labels_have_units(name: str, expected: str) -> None:
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
def test_numbers_are_written_for_people(value: bool | None, expected: str) -> None:
    assert text(value) == expected


def test_rows_are_sorted_filtered_and_cut_to_the_window(board: Board) -> None:
    grid, run = Grid(board), board.runs[0]
    rows, count = grid.window(Query(sort=(("bram18", True),)), 0, 5)
    assert count == 300
    best = sorted((v for v in run.numbers("bram18").tolist() if v == v), reverse=True)[:5]
    assert [r["bram18"] for r in rows] == best


def test_the_table_begins_with_the_front(board: Board) -> None:
    rows, _ = Grid(board).window(Query(), 0, len(board.runs[0].front))
    assert all(r["_mark"] for r in rows)
    assert [r["_mark"] for r in rows].count("knee") == 1


def test_equal_columns_can_be_hidden(board: Board) -> None:
    assert "size" not in [name for name, _, _ in grid_columns(board, hide_equal=True)]
    assert "size" in [name for name, _, _ in grid_columns(board, hide_equal=False)]


def test_texts_that_spreadsheets_would_execute_are_quoted(board: Board) -> None:
    run = board.runs[0]
    run.columns["bottleneck"].replace(0, "=HYPERLINK(1)")
    assert "'=HYPERLINK(1)" in table_csv(board, [Ref(0, 0)]).decode()


def test_limits_of_the_device_are_compared_with_what_is_used() -> None:
    found = {u.name: u for u in uses("npu1_4col", {"pe_count": 8, "local_memory_bytes": 32768})}
    assert found["pe_count"].share == 0.5
    assert found["local_memory_bytes"].limit == 65536
    assert uses("somebodys_board", {"pe_count": 8}) == []
    assert project_folder("u280") == "hls"
    assert not project_folder("npu1_4col")


def test_what_needs_the_program_says_what_is_missing(board: Board) -> None:
    with pytest.raises(StudyError, match="no file"):
        exported(board, Programs(board), Ref(0, 0), "primitives")
    name, content = exported(board, Programs(board), Ref(0, 0), "json")
    assert name.endswith(".json")
    assert json.loads(content)["records"][0]["params"]["size"] == 1024


def test_a_front_of_two_objectives_has_an_edge_and_ranges(tmp_path: Path) -> None:
    board = Board.open([write_run(tmp_path / "run", 120)])
    run = board.runs[0]
    x, y = run.objectives[:2]
    data = front_figure(board, View(x=x, y=y), LIGHT).figure["data"]
    (edge,) = [trace for trace in data if trace.get("mode") == "lines"]
    assert edge["line"]["shape"] == "hv"
    assert edge["hoverinfo"] == "skip"
    assert not any(
        trace.get("mode") == "lines" for trace in front_figure(board, View(x=x, y="at"), LIGHT).figure["data"]
    )
    (front,) = [trace for trace in data if trace["name"] == "Pareto front"]
    assert "error_x" not in front  # nothing is said about how good these latencies are


def test_error_bars_are_the_ranges_of_predictions(tmp_path: Path) -> None:
    path = write_run(tmp_path / "run", 0)
    log = RunLog(path / "log.jsonl")
    for record in map(design, range(40)):
        metrics = {**(record.metrics or {}), "latency_range": {"percent": 10.0, "measurements": 5}}
        log.append([{**record.to_dict(), "metrics": metrics}])
    log.close()
    board = Board.open([path])
    data = front_figure(board, View(x="latency_us", y=board.runs[0].objectives[1]), LIGHT).figure["data"]
    (front,) = [trace for trace in data if trace["name"] == "Pareto front"]
    latencies = board.runs[0].numbers("latency_us")[[number % 100_000_000 for number in front["customdata"]]]
    assert front["error_x"]["array"] == pytest.approx((0.1 * latencies).tolist())
    assert "error_y" not in front
