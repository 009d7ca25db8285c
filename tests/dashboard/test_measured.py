"""A run whose designs were measured: what the page says of predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from msgspec import structs

from allo_dse.dashboard.app.pages.progress import decided, learned
from allo_dse.dashboard.data.analysis import known
from allo_dse.dashboard.data.progress import measured
from allo_dse.dashboard.data.runs import Board
from allo_dse.dashboard.figures.design import measured_figure
from allo_dse.dashboard.figures.style import DARK, LIGHT
from allo_dse.dashboard.report import progress_plots
from allo_dse.tune.store.certificate import Certificate, Gap
from allo_dse.tune.store.log import RunLog

from .conftest import wait_text
from .synthetic import design, write_run

MEASURED = 12


def measured_run(path: Path) -> Path:
    """A run whose first designs took 1.3 times as long as predicted."""
    write_run(path, 0)
    predicted = []
    for number in range(40):
        record = design(number)
        metrics = {**record.metrics, "latency_range": {"measurements": 0}} if record.metrics else None
        predicted.append(structs.replace(record, metrics=metrics))
    higher = [
        structs.replace(r, rung=1, evaluator="board 1", metrics={"latency_us": 1.3 * r.metrics["latency_us"]})
        for r in predicted[:MEASURED]
        if r.metrics
    ]
    log = RunLog(path / "log.jsonl")
    log.append(record.to_dict() for record in [*predicted, *reversed(higher)])
    log.close()
    return path


def test_measured_designs_are_shown_as_predicted_and_as_the_others_correct_them(tmp_path: Path) -> None:
    board = Board.open([measured_run(tmp_path / "run")])
    correction = measured(board.runs[0])
    assert [pair.key for pair in correction.pairs] == [design(n).key for n in reversed(range(MEASURED))]
    figure = measured_figure(correction, LIGHT)
    line, predicted, corrected = figure["data"]
    assert predicted["customdata"][0] == [design(MEASURED - 1).key[:8], "-23.1 %"]
    assert all(abs(float(off.rstrip(" %"))) < 2 for _, off in corrected["customdata"])
    assert line["x"] == line["y"]
    assert figure["layout"]["xaxis"]["range"] == figure["layout"]["yaxis"]["range"]
    assert progress_plots(board)[0].title == "Predicted against measured"
    said: list[Any] = learned(correction)
    assert [number.children[0].children for number in said][:2] == [str(MEASURED), "23.1 %"]


def test_of_a_measured_design_all_that_is_known_is_shown(tmp_path: Path) -> None:
    """A board says how long it took; what the design uses, only the simulator has said."""
    (table,) = Board.open([measured_run(tmp_path / "run")]).runs
    predicted = design(0).metrics or {}
    found = known(table, table.row_of[design(0).key])
    assert found == {**predicted, "latency_us": 1.3 * predicted["latency_us"]}
    assert "latency_range" in known(table, table.row_of[design(MEASURED).key])


def test_a_run_without_measurements_says_nothing_of_them(tmp_path: Path) -> None:
    board = Board.open([write_run(tmp_path / "run", 30)])
    correction = measured(board.runs[0])
    assert measured_figure(correction, DARK)["layout"]["annotations"][0]["text"] == "no design has been measured yet"
    assert learned(correction) == []
    assert all(plot.title != "Predicted against measured" for plot in progress_plots(board))


def test_the_page_has_the_figure_where_something_was_measured(tmp_path: Path, visit: Any, serve: Any) -> None:
    drawn = "() => document.querySelector('#measured .js-plotly-plot')?.data?.length === 3"
    page = visit(serve(measured_run(tmp_path / "run"))[0]).open("progress")
    page.wait_for_function(drawn)
    page.locator("#measured-card").wait_for()
    wait_text(page, "#numbers", "corrected, off (median)")


def test_the_page_says_what_is_decided_about_the_space() -> None:
    assert decided(None) == []
    gaps = (Gap("latency_us", "minimize", 0.018), Gap("pe_count", "minimize", 0.0), Gap("cost", "minimize", None))
    found = Certificate(
        designs=904, listed=True, evaluated=3, failed=0, refused=1, bounded=500, open=400, gaps=gaps, wrong=2
    )  # fmt: skip
    for certificate in (found, structs.replace(found, open=0, bounded=900)):
        (number,) = decided(certificate)
        assert f"{904 - certificate.open} of 904" in str(number)
        assert str(certificate) in str(number)
