"""The text of generated kernels."""

from __future__ import annotations

from collections.abc import Callable

import allo_dse as dse
from allo_dse.backends.fpga.hls import emit_project
from allo_dse.compiler.program.compiled import Directive
from tests.compiler import samples

from ..cost import programs as cost_programs
from . import programs

Golden = Callable[[str, str], None]


def test_blocks_tables_and_scalars(golden: Golden) -> None:
    golden("scaled_rows.cpp", emit_project(dse.load_program(programs.scaled_rows)).hls_code)


def test_systolic_array(golden: Golden) -> None:
    golden("systolic.cpp", emit_project(dse.load_program(samples.systolic)).hls_code)


def test_schedule_and_depths(golden: Golden) -> None:
    schedule = (
        Directive("pipeline", "taps", "i", {"initiation_interval": 2, "rewind": False}),
        Directive("unroll", "taps", "t", {"factor": 0}),
        Directive("partition", "taps", "window", {"dim": 1, "factor": 0, "partition_type": "complete"}),
        Directive("partition", "fir", "X", {"dim": 1, "factor": 4, "partition_type": "cyclic"}),
    )
    golden("fir.cpp", emit_project(dse.load_program(programs.fir), schedule=schedule, depths={"samples": 16}).hls_code)


def test_ports_of_streams(golden: Golden) -> None:
    """One tensor through an AXI adapter with given bursts, the other through an AXI-Stream."""
    ports = (
        Directive("interface", "top", "A", {"mode": "m_axi", "burst": 64, "outstanding": 4}),
        Directive("interface", "top", "B", {"mode": "axis"}),
    )
    golden("stream_ports.cpp", emit_project(dse.load_program(cost_programs.blur(6, 8)), schedule=ports).hls_code)


def test_code_grows_with_classes_not_with_tasks() -> None:
    small = emit_project(dse.load_program(samples.systolic, M=4, N=4, K=8))
    large = emit_project(dse.load_program(samples.systolic, M=32, N=32, K=8))
    assert len(large.hls_code.splitlines()) == len(small.hls_code.splitlines())


def test_bits_of_wide_integers_are_ranges() -> None:
    copied = [Directive("place", "widths", name, {"memory": "copied"}) for name in "AB"]
    code = emit_project(dse.load_program(programs.widths), schedule=copied).hls_code
    assert "x.range(23, 8) = " in code
    assert "x.range(200, 200) = " in code
