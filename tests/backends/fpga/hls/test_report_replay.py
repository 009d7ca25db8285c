"""Replay with what HLS reports say: within 1 % of RTL where the reports themselves are off by half."""

from __future__ import annotations

import pytest

import allo_dse as dse
from allo_dse.backends.fpga.hls.retime import _function, timed_by_report
from allo_dse.backends.fpga.report.report import Cycles, HlsLoop, HlsReport, Module
from allo_dse.common.errors import SimulationError
from allo_dse.common.records import replace
from allo_dse.simulator.replay.trace_build import Get, Loop, Put
from benchmarks.report_replay import without_times
from tests.support.others_data import SHARED, require


@pytest.mark.parametrize(("name", "rtl", "claimed"), [("atax", 2180, 1141), ("gemm", 24051, 24051)])
def test_replay_with_a_real_report_gives_the_cycles_of_rtl(name: str, rtl: int, claimed: int) -> None:
    file = SHARED / "csynth" / f"streamhls_{name}_opt5_csynth.xml"
    require(file)
    report = dse.read_hls_report(file)
    assert report.latency.exact == claimed
    trace = without_times(dse.Trace.load(SHARED / "traces" / f"2560_DSPs_opt5_{name}.npz"))
    assert timed_by_report(trace, report).replay().cycles == pytest.approx(rtl, rel=0.01)
    cosim = dse.read_hls_report(SHARED / "csynth" / f"streamhls_{name}_opt5_forward_cosim.rpt").cosim
    assert cosim is not None
    assert cosim.latency.exact == rtl


def report(*loops: tuple[str, int, int, int]) -> HlsReport:
    modules = tuple(
        Module(name, loops=(HlsLoop("l", name, Cycles(trips, trips, trips), ii=ii, depth=depth, kind="yes"),))
        for name, trips, ii, depth in loops
    )
    return HlsReport(("csynth.xml",), modules=modules)


def trace() -> dse.Trace:
    load, store = Loop(trip=100, ops=[Put("s")]), Loop(trip=100, depth=3, ops=[Get("s")])
    return dse.Trace.build({"s": 2}, {"load": [load], "store": [store]})


def test_loops_take_the_times_of_their_processes() -> None:
    timed = timed_by_report(trace(), report(("load", 100, 2, 9), ("store_Pipeline_l", 100, 1, 30)))
    expected = dse.Trace.build(
        {"s": 2},
        {"load": [Loop(trip=100, ii=2, depth=9, ops=[Put("s")])], "store": [Loop(trip=100, depth=30, ops=[Get("s")])]},
    )
    assert timed.replay().cycles == expected.replay().cycles
    assert without_times(timed).replay().cycles < timed.replay().cycles


def test_reports_of_other_designs_are_refused() -> None:
    with pytest.raises(SimulationError, match="0 pipelined loops of `store`"):
        timed_by_report(trace(), report(("load", 100, 1, 2)))
    with pytest.raises(SimulationError, match="99 iterations"):
        timed_by_report(trace(), report(("load", 99, 1, 2), ("store", 100, 1, 2)))
    staged = dse.Trace.build({"s": 99}, {"load": [Loop(9, depth=9, ops=[Put("s", stage=7)])]})
    with pytest.raises(SimulationError, match="stage 7 of a pipeline that is 3 deep"):
        timed_by_report(staged, report(("load", 9, 1, 3)))
    unknown = report(("load", 100, 1, 2), ("store", 100, 1, 2))
    module = unknown.modules[0]
    open_ended = replace(module, loops=(replace(module.loops[0], trip_count=Cycles()),))
    assert timed_by_report(trace(), replace(unknown, modules=(open_ended, unknown.modules[1]))).replay().finished


def test_a_loop_that_the_tool_moved_is_of_the_function_that_has_its_label() -> None:
    variables = {"read": {"l_i_0": 4}, "write": {"l_j_0": 7}}
    moved = HlsLoop("l_j_0", "top_Pipeline_1")
    assert _function(moved, variables) == "write"
    assert _function(moved, variables | {"other": {"l_j_0": 1}}) is None
    assert _function(HlsLoop("l_j_0", "read_Pipeline_1"), variables) == "read"
