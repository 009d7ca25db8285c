"""HLS reports: real ones of several versions, small ones of every kind, and damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.report.report import Cycles, HlsFifo, HlsReport, HlsReportError
from allo_dse.backends.fpga.report.report_files import read_hls_report

from ..support.others_data import SHARED, require

REAL = SHARED / "csynth"
DATA = Path(__file__).resolve().parents[1] / "data" / "hls"
SOLUTION = DATA / "project" / "solution1"
KINDS = [
    DATA / "vivado_2018_csynth.rpt",
    DATA / "old_cosim.rpt",
    SOLUTION / "syn" / "report" / "csynth.xml",
    SOLUTION / "syn" / "report" / "csynth.rpt",
    SOLUTION / "syn" / "report" / "top_csynth.rpt",
    SOLUTION / "sim" / "report" / "top_cosim.rpt",
]


def real(name: str) -> HlsReport:
    require(REAL / name)
    return dse.read_hls_report(REAL / name)


@pytest.mark.parametrize(
    ("name", "titles", "clock", "latency", "interval", "resources", "loops", "fifos"),
    [
        ("streamhls_gemm_opt5", "2023.2 forward xcu280", 3.33, 24051, 24038, (176, 2552, 288381, 150848, 0), 3, 88),
        ("streamhls_atax_opt5", "2023.2 forward xcu280", 3.33, 1141, 1110, (150, 1502, 183301, 105642, 0), 4, 175),
        ("streamhls_ResidualBlock_opt3", "2023.2 forward xcu280", 3.33, 6348219, 6322198,
         (630, 84, 24486, 24865, 14), 9, 64),
        ("allo_2mm", "2023.2 kernel_2mm xcu280", 3.33, 194001, 154095, (870, 328, 167320, 120742, 0), 14, 2),
        ("mnist_2022_1", "2022.1 MNIST xck26", 10.0, 1735, 1297, (30, 156, 30761, 28240, 0), 52, 7),
        ("igcn_undef", "2022.1 IGCN xc7z045", 10.0, None, None, (2, 0, 96, 320, 0), 4, 0),
        ("autobridge_pagerank_2019_2", "2019.2 VertexRouterR2 xcu280", 4.0, None, None, (0, 0, 4358, 4845, 0), 2, 0),
        ("hls_sobel_2018_3", "2018.3 hls_sobel xa7a12t", 10.0, 2089114, 2089113, (9, 0, 1680, 4546, None), 0, 0),
        ("gemv_2024_1", "2024.1 axis_gemv_fixed xc7z010", 10.0, 262669, 262670, (1, 2, 439, 521, 0), 2, 0),
    ],
)  # fmt: skip
def test_real_reports(
    name: str,
    titles: str,
    clock: Any,
    latency: int | None,
    interval: int,
    resources: tuple[int, int, int, int, None] | tuple[int, int, int, int, int],
    loops: int,
    fifos: int,
) -> None:
    report = real(f"{name}_csynth.xml")
    tool, top, part = titles.split()
    assert (report.tool, report.top, report.clock_ns) == (tool, top, clock)
    assert report.part.startswith(part)
    assert (report.latency.max, report.interval.max) == (latency, interval)
    used = report.resources
    assert (used.bram18, used.dsp, used.ff, used.lut, used.uram) == resources
    assert len(list(report.all_loops())) == loops == len(report.by_loop())
    assert len(report.fifos) == fifos == len(report.by_fifo())
    assert json.loads(report.to_json())["top"] == top
    assert top in str(report)


def test_loops_and_fifos_of_a_real_dataflow_design() -> None:
    report = real("streamhls_gemm_opt5_csynth.xml")
    loop = next(loop for loop in report.all_loops() if loop.module == "node2")
    assert (loop.name, loop.trip_count.exact, loop.ii, loop.depth) == ("loop8_loop9_loop10", 24000, 1, 37)
    assert loop.latency.exact == 24035
    assert loop.pipelined
    assert loop.source == "src/gemm.cpp:86"
    assert {(f.depth, f.width, f.implementation) for f in report.fifos if f.name.startswith("v44")} == {
        (1000, 32, "memory")
    }
    assert {i.module for i in report.module("forward").instances} >= {"node0", "node1", "node2"}
    assert report.available.dsp == 9024
    assert report.utilization()["dsp"] == pytest.approx(2552 / 9024)


def test_violated_intervals_and_their_reasons() -> None:
    found = real("streamhls_ResidualBlock_opt3_csynth.xml").ii_violations
    assert [(v.module, v.reason, v.distance, v.source) for v in found] == [
        ("Loop_loop12_proc1", "Memory Dependency", 1, "src/ResidualBlock.cpp:70"),
        ("Loop_loop42_proc4", "Memory Dependency", 1, "src/ResidualBlock.cpp:169"),
        ("Loop_loop54_proc5", "Resource Limitation", None, "src/ResidualBlock.cpp:206"),
    ]


def test_what_the_tool_does_not_know_is_none() -> None:
    report = real("igcn_undef_csynth.xml")
    assert not report.latency.known
    by_name = {loop.name: loop for loop in report.all_loops()}
    assert by_name["VITIS_LOOP_12_1"].trip_count == Cycles()
    assert by_name["VITIS_LOOP_19_2"].trip_count == Cycles(min=0, max=63)
    outer = by_name["IGCN_label0"]
    assert [inner.name for inner in outer.loops] == ["t_label1"]
    assert not outer.pipelined
    assert (outer.ii, outer.depth) == (None, 12)
    endless = {loop.name: loop for loop in real("autobridge_pagerank_2019_2_csynth.xml").all_loops()}["vertex_router"]
    assert (endless.trip_count, endless.ii, endless.pipelined) == (Cycles(), 1, True)


def test_loops_of_one_name_stay_apart() -> None:
    report = real("mnist_2022_1_csynth.xml")
    modules = [loop.module for loop in report.all_loops() if loop.name == "VITIS_LOOP_50_2"]
    assert len(modules) == len(set(modules)) == 10


@pytest.mark.parametrize(
    ("name", "passed", "cycles"),
    [
        ("streamhls_gemm_opt5_forward_cosim.rpt", True, 24051),
        ("streamhls_atax_opt5_forward_cosim.rpt", True, 2180),
        ("allo_2mm_cosim.rpt", True, 268436),
        ("gemv_2024_1_cosim.rpt", False, None),
    ],
)
def test_real_cosimulations(name: str, passed: bool, cycles: int | None) -> None:
    cosim = real(name).cosim
    assert cosim is not None
    assert (cosim.language, cosim.passed, cosim.latency.exact) == ("Verilog", passed, cycles)
    assert cosim.total_cycles == cycles


def test_every_real_report_is_read() -> None:
    files = sorted(REAL.glob("*.xml")) + sorted(REAL.glob("*.rpt"))
    require(REAL)
    for file in files:
        report = read_hls_report(file)
        assert report.modules or report.cosim is not None, file


def test_text_report_of_2018() -> None:
    report = read_hls_report(DATA / "vivado_2018_csynth.rpt")
    assert (report.tool, report.top, report.part, report.clock_ns) == ("2018.3", "blur", "xc7z020clg400-1", 10.0)
    assert (report.latency, report.interval) == (Cycles(min=2145), Cycles(min=2146))
    assert (report.resources.dsp, report.resources.uram, report.available.lut) == (3, None, 53200)
    rows, drain = report.loops
    assert [inner.name for inner in rows.loops] == ["taps", "cols"]
    cols = rows.loops[1]
    assert (cols.ii, cols.ii_target, cols.depth, cols.trip_count) == (2, 1, 5, Cycles())
    assert [inner.name for inner in cols.loops] == ["inner"]
    assert (drain.ii, drain.trip_count.exact, drain.pipelined) == (1, 15, True)
    assert [(f.name, f.depth, f.width, f.resources.bram18) for f in report.fifos] == [
        ("lines_U", 1024, 16, 1),
        ("taps_U", 2, 8, 0),
    ]


def test_operators_of_a_real_report() -> None:
    table = real("allo_2mm_csynth.xml").by_operator()
    sums = table[table.operation == "fadd"].groupby("implementation").first()
    assert sums.latency.to_dict() == {"fabric": 4, "fulldsp": 6}
    assert sums.dsp.to_dict() == {"fabric": 0, "fulldsp": 2}


_UNITS = """
+ Detail: 
    * Instance: 
    +---------------------------------+------------------------------+---------+----+----+----+-----+
    |             Instance            |            Module            | BRAM_18K| DSP| FF | LUT| URAM|
    +---------------------------------+------------------------------+---------+----+----+----+-----+
    |fmul_32ns_32ns_32_4_max_dsp_1_U3 |fmul_32ns_32ns_32_4_max_dsp_1 |        0|   3| 143|  78|    0|
    |mul_8s_8s_8_1_1_U4               |mul_8s_8s_8_1_1               |        0|   0|   0|  40|    0|
    +---------------------------------+------------------------------+---------+----+----+----+-----+
    |Total                            |                              |        0|   3| 143| 118|    0|
    +---------------------------------+------------------------------+---------+----+----+----+-----+

================================================================
== Interface
"""


def text_project(folder: Path) -> Path:
    """The project's text reports without its XML, and a multiplier in one of them."""
    for file in (SOLUTION / "syn" / "report").glob("*.rpt"):
        before, rule, after = file.read_text().partition(f"\n{'=' * 64}\n== Interface\n")
        (folder / file.name).write_text(before + (_UNITS if file.name == "scale_csynth.rpt" else rule) + after)
    return folder


def test_text_reports_say_what_operators_take(tmp_path: Path) -> None:
    (unit,) = read_hls_report(text_project(tmp_path) / "scale_csynth.rpt").operators
    assert (unit.operation, unit.implementation, unit.latency) == ("fmul", "maxdsp", 3)
    assert (unit.resources.dsp, unit.resources.ff, unit.resources.lut) == (3, 143, 78)


def test_text_reports_alone_have_the_clock(tmp_path: Path) -> None:
    report = read_hls_report(text_project(tmp_path))
    assert (report.clock_ns, report.uncertainty_ns, report.estimated_ns) == (3.33, 0.9, 2.43)
    assert report.module("scale").estimated_ns == 2.43


def test_a_project_is_read_as_one() -> None:
    report = read_hls_report(DATA / "project")
    assert (report.tool, report.top, report.latency.exact, report.kind) == ("2025.1", "top", 205, "dataflow")
    assert report.cosim is not None
    assert report.cosim.latency.exact == 208
    scale = report.module("scale").loops[0]  # II and source of XML, target of the text report
    assert (scale.ii, scale.ii_target, scale.depth, scale.source) == (2, 1, 7, "kernel.cpp:20")
    (pipe,) = report.fifos  # depth of XML, registers of the text report
    assert (pipe.depth, pipe.width, pipe.resources.bram18, pipe.resources.ff) == (512, 32, 1, 119)
    assert [f.name for f in report.tool_fifos] == ["n_c_U"]
    assert len(report.files) == 4
    assert "II Violation of l_S_i_0 in scale: Memory Dependency at distance 1" in str(report)


def test_each_instance_of_a_module_has_its_fifos(tmp_path: Path) -> None:
    text = (SOLUTION / "syn" / "report" / "csynth.xml").read_text().replace("<Name>top</Name>", "<Name>twice</Name>")
    for name in ("load", "scale"):
        text = text.replace(f"<ModuleName>{name}</ModuleName>", "<ModuleName>twice</ModuleName>")
    line = next(line for line in text.splitlines() if "<FIFOInst>" in line)
    both = (line.replace("<ParentInst/>", f"<ParentInst>{name}_U0</ParentInst>") for name in ("load", "scale"))
    (tmp_path / "load_csynth.rpt").write_text((SOLUTION / "syn" / "report" / "scale_csynth.rpt").read_text())
    file = tmp_path / "csynth.xml"
    file.write_text(text.replace(line, "\n".join(both)))
    for report in (read_hls_report(file), read_hls_report(tmp_path)):
        assert [(fifo.module, fifo.width, fifo.resources.bram18) for fifo in report.fifos] == [("twice", 32, 1)] * 2
        assert [fifo.name for fifo in report.tool_fifos] == ["n_c_U"]


def test_a_depth_that_is_not_stated_is_not_known() -> None:
    assert "FIFOs: 1, deepest pipe (? words)" in str(HlsReport(files=(), fifos=(HlsFifo("pipe", "top"),)))


def test_the_summary_alone_has_all_modules() -> None:
    report = read_hls_report(SOLUTION / "syn" / "report" / "csynth.rpt")
    assert [(m.name, m.latency.exact) for m in report.modules] == [("top", 205), ("load", 70), ("scale", 134)]
    loop = report.module("scale").loops[0]
    assert (loop.ii, loop.depth, loop.trip_count.exact) == (2, 7, 64)
    assert [(v.module, v.loop) for v in report.ii_violations] == [("scale", "l_S_i_0")]
    assert (report.resources.dsp, report.resources.ff) == (3, 379)
    assert [i.module for i in report.module("top").instances] == ["load", "scale"]


def test_text_reports_alone_tell_the_top_from_its_parts(tmp_path: Path) -> None:
    for file in (SOLUTION / "syn" / "report").glob("*_csynth.rpt"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    report = read_hls_report(tmp_path)
    assert report.top == "top"
    assert {m.name for m in report.modules} == {"top", "scale"}


def test_two_solutions_in_one_directory_are_not_mixed(tmp_path: Path) -> None:
    source = (SOLUTION / "syn" / "report" / "csynth.xml").read_bytes()
    for name in ("solution1", "solution2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "csynth.xml").write_bytes(source)
    with pytest.raises(HlsReportError, match="2 designs") as caught:
        read_hls_report(tmp_path)
    assert "one solution" in caught.value.hint


def test_old_and_failed_cosimulations() -> None:
    old = read_hls_report(DATA / "old_cosim.rpt").cosim
    assert old is not None
    assert (old.passed, old.latency.exact, old.interval.exact, old.total_cycles) == (True, 2150, 2150, None)
    failed = read_hls_report(DATA / "failed_cosim.rpt").cosim
    assert failed is not None
    assert (failed.passed, failed.latency) == (False, Cycles())


@pytest.mark.parametrize(
    "content", [b"", b"\x00\x01", b"hello", b"<a/>", b"<html><body>404</body></html>", b"<profile/>"]
)
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "csynth.xml"
    file.write_bytes(content)
    with pytest.raises(HlsReportError) as caught:
        read_hls_report(file)
    assert "csynth" in caught.value.hint
    assert "csynth.xml" in caught.value.message


def test_missing_files_and_empty_directories_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "none.xml"):
        with pytest.raises(HlsReportError):
            read_hls_report(path)


def test_entities_are_not_expanded(tmp_path: Path) -> None:
    file = tmp_path / "csynth.xml"
    file.write_text('<!DOCTYPE p [<!ENTITY a "xxxxxxxxxx"><!ENTITY b "&a;&a;">]><profile>&b;</profile>')
    with pytest.raises(HlsReportError, match="entities"):
        read_hls_report(file)
    file.write_text("<profile>" + "<a>" * 100_000)
    with pytest.raises(HlsReportError, match="nested"):
        read_hls_report(file)


@pytest.mark.parametrize("file", KINDS, ids=lambda f: f.name)
def test_a_truncated_report_is_never_taken_for_a_whole_one(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes().rstrip()
    cut = tmp_path / file.name
    for end in [*range(0, len(whole) - 1, max(1, len(whole) // 150)), len(whole) - 1]:
        cut.write_bytes(whole[:end])
        with pytest.raises(HlsReportError):
            read_hls_report(cut)


def _summary() -> str:
    return next(f for f in KINDS if f.name == "csynth.rpt").read_text()


def test_summaries_of_2020_have_no_interfaces(tmp_path: Path) -> None:
    old = tmp_path / "csynth.rpt"
    old.write_text(_summary().split("== HW Interfaces")[0].replace("2025.1 (", "2020.2 ("))
    assert read_hls_report(old).module("scale").resources.dsp == 3


def test_amounts_that_a_summary_does_not_state_are_none(tmp_path: Path) -> None:
    damaged = tmp_path / "csynth.rpt"
    damaged.write_text(_summary().replace("|  379 (~0%)", "| -379 (~0%)").replace("|   DSP   |", "|   XXX   |"))
    found = read_hls_report(damaged).resources
    assert (found.ff, found.dsp, found.bram18, found.uram) == (None, None, 1, 0)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data(), file=st.sampled_from(KINDS))
def test_damaged_reports_give_a_report_or_our_error(scratch: Path, data: st.DataObject, file: Path) -> None:
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 8))):
        at = data.draw(st.integers(0, len(content) - 1))
        if data.draw(st.booleans()):
            content[at] = data.draw(st.integers(0, 255))
        else:
            del content[at : at + data.draw(st.integers(1, 40))]
    damaged = scratch / file.name
    damaged.write_bytes(bytes(content))
    try:
        report = read_hls_report(damaged)
    except HlsReportError:
        return
    json.loads(report.to_json())
    assert str(report)
    report.by_loop()
