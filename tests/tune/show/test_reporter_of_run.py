import io
import json
from pathlib import Path
from typing import Any, cast

import pytest
from rich.console import Console

import allo_dse as dse
from allo_dse.common.errors import StudyError
from allo_dse.tune.search.objectives import require
from allo_dse.tune.show.output import print_result
from allo_dse.tune.show.reporter_of_run import LiveReporter, make_reporter
from allo_dse.tune.show.reporters import JsonReporter, PlainReporter
from allo_dse.tune.show.run_view import format_duration, format_value

from ...backends.fpga.cost.programs import fixed_sums
from ..fakes import fake_study


@pytest.mark.parametrize("width", [80, 120])
def test_live_view_shows_what_matters(tmp_path: Path, width: int) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=width)
    study = fake_study(constraints=[require(lambda m: m.pe_count <= 8, name="few [cores]")])
    study.run(60, run_dir=tmp_path / "run", progress=LiveReporter(console))
    text = cast(io.StringIO, console.file).getvalue()
    for part in (
        "60 of 60",
        "/s",
        "feasible",
        "core data memory",
        "few [cores]",
        "latency_us",
        "hypervolume",
        "reference point",
    ):
        assert part in strip(text), part
    assert max(map(len, strip(text).splitlines())) <= width


def strip(text: Any) -> Any:
    import re

    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text)


def test_names_do_nothing_to_a_terminal(tmp_path: Path) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    study = fake_study()
    study.name = "a\u202eb\x1b[2Jc\ud800"
    study.run(3, run_dir=tmp_path / "run", progress=PlainReporter(stream), verify=False)
    stream.seek(0)
    assert stream.readline().startswith(r"a\u202eb\x1b[2Jc\ud800: ")


def test_plain_lines(tmp_path: Path) -> None:
    stream = io.StringIO()
    fake_study().run(30, run_dir=tmp_path / "run", progress=PlainReporter(stream))
    lines = stream.getvalue().splitlines()
    assert lines[0].startswith("fake: evolution search on fake_npu, log in ")
    assert lines[1].startswith("1/30 designs")
    assert lines[2].startswith("30/30 designs")
    assert "hypervolume 0." in lines[2]


def test_the_front_is_shown_before_it_is_verified(tmp_path: Path) -> None:
    stream, console = io.StringIO(), Console(file=io.StringIO(), force_terminal=True, width=120)
    fake_study().run(30, run_dir=tmp_path / "plain", progress=PlainReporter(stream))
    fake_study().run(30, run_dir=tmp_path / "live", progress=LiveReporter(console))
    for text in (stream.getvalue(), strip(cast(io.StringIO, console.file).getvalue())):
        front, unverified, verifying = (text.index(part) for part in ("Pareto front", "not yet verified", "verifying"))
        assert front < unverified < verifying
        live = text.index("30 of 30") if "30 of 30" in text else len(text)
        assert live == len(text) or front < live  # a terminal shows it during the search
        assert "yes" in text[verifying:] or live == len(text)  # and verdicts as they come
    again = io.StringIO()
    fake_study().run(30, run_dir=tmp_path / "plain", progress=PlainReporter(again))
    assert "not yet verified" not in again.getvalue()


def test_json_events_are_one_object_per_line(tmp_path: Path) -> None:
    stream = io.StringIO()
    result = fake_study().run(30, run_dir=tmp_path / "run", progress=JsonReporter(stream))
    events = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [e["event"] for e in events][:2] == ["start", "progress"]
    final = events[-1]
    assert final["event"] == "result"
    (front,) = (e["front"] for e in events if e["event"] == "front")
    assert [design["key"] for design in front] == [design["key"] for design in final["front"]]
    assert {design["verified"] for design in front} == {None}
    assert len(final["front"]) == len(result.front)
    assert final["best"]["latency_us"]["values"]["latency_us"] == result.best().metrics.latency_us
    last = [e for e in events if e["event"] == "progress"][-1]  # the first may come before any design
    assert last["hypervolume_reference"].keys() == {"latency_us", "pe_count", "local_memory_bytes"}


def test_the_result_for_a_person(tmp_path: Path) -> None:
    result = fake_study().run(60, run_dir=tmp_path / "run", progress="quiet")
    console = Console(file=io.StringIO(), width=140)
    print_result(result, console, ["allo-tune", "x.py"])
    text = cast(io.StringIO, console.file).getvalue()
    assert "Pareto front" in text
    assert "knee" in text
    assert "best latency_us: chained" in text
    assert "pareto.csv" in text


def test_a_study_for_an_fpga_without_schedules_is_told_of_them(tmp_path: Path) -> None:
    study = dse.Study("sums", program=fixed_sums, device="u280", objectives=[dse.minimize("latency_us")])
    result = study.run(1, run_dir=tmp_path / "run", progress="quiet", verify=False)
    for study.schedules, hints in (((), 1), ("auto", 0)):
        console = Console(file=io.StringIO(), width=140)
        print_result(result, console, [])
        assert cast(io.StringIO, console.file).getvalue().count('`schedules="auto"` in the study') == hints


def test_no_feasible_design_is_said(tmp_path: Path) -> None:
    result = fake_study(constraints=[require(lambda m: False, name="never")]).run(
        10, run_dir=tmp_path / "run", progress="quiet"
    )
    console = Console(file=io.StringIO(), width=140)
    print_result(result, console, [])
    assert "no feasible design among 10" in cast(io.StringIO, console.file).getvalue()


def test_numbers_and_durations() -> None:
    assert [format_value(v) for v in (None, 3.0, 123456.0, 0.123456, 8120.46, 12345.6)] == [
        "-", "3", "123,456", "0.1235", "8,120", "12,346",
    ]  # fmt: skip
    assert [format_duration(s) for s in (3.2, 75, 3700)] == ["3 s", "1 min 15 s", "1 h 1 min"]


def test_unknown_progress() -> None:
    with pytest.raises(StudyError, match="unknown progress"):
        make_reporter("loud")


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_result_fits_the_terminal_and_paths_are_not_broken(tmp_path: Path, width: int) -> None:
    run_dir = tmp_path / ("a rather long name of a directory " * 3).strip()
    result = fake_study().run(60, run_dir=run_dir, progress="quiet", verify=False)
    console = Console(file=io.StringIO(), width=width)
    print_result(result, console, ["allo-tune", "x.py"])
    lines = cast(io.StringIO, console.file).getvalue().splitlines()
    table = [line for line in lines if line[:1] in "┏┃┡│└"]
    assert max(map(len, table)) <= width
    assert len({len(line) for line in table}) == 1
    assert any(result.front[0].key[:8] in line for line in table)
    for name in ("pareto.csv", "trials.csv", "best/"):
        assert any(line.endswith(f"{run_dir}/{name}") for line in lines)
    assert all(len(line) <= width for line in lines if str(run_dir) not in line)
    assert any("not verified:" in line for line in lines)
    assert ("parameter" in "".join(lines)) == (width < 90)
