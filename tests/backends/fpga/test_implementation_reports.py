"""Reports of synthesis and of place and route, as export and as text."""

from __future__ import annotations

from pathlib import Path

import pytest

import allo_dse as dse

EXPORT = """<profile>
<RunData><RUN_TYPE>{kind}</RUN_TYPE></RunData>
<TimingReport>
<TargetClockPeriod>5.000</TargetClockPeriod><AchievedClockPeriod>{achieved}</AchievedClockPeriod>
</TimingReport>
<AreaReport>
<Resources><BRAM>6</BRAM><DSP>9</DSP><FF>800</FF><LUT>{lut}</LUT><SLICE>200</SLICE><URAM>0</URAM></Resources>
<AvailableResources><BRAM>280</BRAM><DSP>220</DSP><FF>106400</FF><LUT>53200</LUT></AvailableResources>
</AreaReport>
</profile>
"""
UTILIZATION = """
| Design       : top
Utilization Design Information

+----------------+------+-------+------------+-----------+-------+
|    Site Type   | Used | Fixed | Prohibited | Available | Util% |
+----------------+------+-------+------------+-----------+-------+
| CLB LUTs*      |  512 |     0 |          0 |    274080 |  0.19 |
| CLB Registers  |  900 |     0 |          0 |    548160 |  0.16 |
| Block RAM Tile |  2.5 |     0 |          0 |       912 |  0.27 |
| URAM           |    1 |     0 |          0 |        96 |  1.04 |
| DSPs           |   12 |     0 |          0 |      2520 |  0.48 |
"""


def test_a_directory_has_the_routed_design(tmp_path: Path) -> None:
    folder = tmp_path / "impl" / "report" / "verilog"
    folder.mkdir(parents=True)
    (folder / "top_export.xml").write_text(EXPORT.format(kind="impl", achieved="5.250", lut=640))
    (folder / "export_syn.xml").write_text(EXPORT.format(kind="synth", achieved="4.100", lut=700))
    (folder / "top_utilization_routed.rpt").write_text(UTILIZATION)
    report = dse.read_hls_report(tmp_path)
    assert sorted(one.kind for one in report.implementations) == ["impl", "impl", "synth"]
    routed = report.implementation
    assert routed is not None
    assert (routed.resources.lut, routed.resources.bram18, routed.resources.dsp) == (640, 6, 9)
    assert (routed.clock_ns, routed.achieved_ns, routed.timing_met) == (5.0, 5.25, False)
    assert "impl: bram18 6, dsp 9, ff 800, lut 640, uram 0, 5.25 ns, timing not met" in str(report)


def test_tables_of_used_resources_count_half_tiles(tmp_path: Path) -> None:
    path = tmp_path / "top_utilization_placed.rpt"
    path.write_text(UTILIZATION)
    found = dse.read_hls_report(path).implementation
    assert found is not None
    assert found.kind == "impl"
    assert (found.resources.bram18, found.available.bram18) == (5, 1824)
    assert (found.resources.lut, found.resources.ff, found.resources.uram) == (512, 900, 1)


@pytest.mark.parametrize(
    "text",
    ["<profile><AreaReport></AreaReport></profile>", "| Site Type | Used |\n| CLB", EXPORT[:120]],
    ids=["no timing", "no rows", "truncated"],
)
def test_damaged_files_are_errors(tmp_path: Path, text: str) -> None:
    path = tmp_path / "top_export.xml"
    path.write_text(text)
    with pytest.raises(dse.HlsReportError):
        dse.read_hls_report(path)
