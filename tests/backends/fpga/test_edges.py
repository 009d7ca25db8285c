"""Tensors that stream at the region's edge: which, how long they take, and that the C++ computes the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.cost.loops import rounds
from allo_dse.backends.fpga.cost.loops.events import Again, Part, Pipe, cycles_of
from allo_dse.backends.fpga.cost.loops.rounds import interval_parts
from allo_dse.backends.fpga.depths import solver
from allo_dse.backends.fpga.hls import csim
from allo_dse.backends.fpga.hls.design_project import hls_project
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.backends.fpga.network import fpga_network
from allo_dse.common.errors import StudyError
from allo_dse.common.records import replace
from allo_dse.compiler.program.compiled import Directive
from allo_dse.compiler.schedule.edges import edge_tensors
from allo_dse.device.device import FpgaDevice
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.simulator.engine.engine import table_engine
from allo_dse.simulator.engine.frames import repeated
from allo_dse.space.design import Design
from allo_dse.space.genes import random_suggest

from .cost import programs

U280 = FpgaDevice.load("u280")


def design(region: Any, *schedule: Directive) -> Design:
    program = dse.load_program(region)
    return Design(program, unfolded(program), dse.Buffering(), U280, schedule)


def interface(tensor: str, mode: str, **options: int) -> Directive:
    return Directive("interface", "top", tensor, {"mode": mode, **options})


@pytest.mark.parametrize(
    ("kind", "streams"),
    [
        ("in order", {"X", "Y"}),
        ("twice in a round", {"X", "Y"}),
        ("backwards", {"Y"}),
        ("in two sweeps", {"Y"}),
        ("every fourth is written", {"X"}),
        ("written and read", {"X"}),
        ("as the data says", {"X"}),
    ],
)
def test_tensors_stream_that_are_accessed_once_in_order(kind: str, streams: set[str]) -> None:
    assert set(edge_tensors(dse.load_program(programs.sweep(kind)))) == streams


@pytest.mark.parametrize("port", ["m_axi", "axis"])
def test_a_frame_passes_once_and_is_not_copied(port: str) -> None:
    side = 64
    schedule = [dse.pipeline("conv:x").directive(1)]
    schedule += [dse.partition(f"conv:{a}", d, [3]).directive(3) for a, d in (("lines", 1), ("win", 1), ("win", 2))]
    found = design(programs.blur(side, side), *schedule, *(interface(name, port) for name in "AB"))
    metrics = dse.FpgaSimulator().evaluate(found)
    copied = design(programs.blur(side, side), *schedule, *(dse.memory(n, ["bram"]).directive("bram") for n in "AB"))
    assert side * side < metrics.latency_cycles < side * side + 800  # lines and window are cleared first
    assert dse.FpgaSimulator().evaluate(copied).latency_cycles > 2.5 * side * side
    assert metrics["dram_bytes"] == (0 if port == "axis" else side**2 + (side - 2) ** 2)


def test_unrolled_loops_have_a_copy_and_banks() -> None:
    unrolled = design(programs.scale(), Directive("unroll", "k", "i", {"factor": 4}))
    assert not FpgaMapping.of(unrolled).scheduled.edged.streams
    assert set(FpgaMapping.of(design(programs.scale())).scheduled.edged.streams) == {"X", "Y"}


@pytest.mark.parametrize("burst", [1, 16, 48])
def test_a_stream_waits_for_the_memory_once_at_each_end(burst: int) -> None:
    """For the first element that is read, and for the last burst that is written."""
    given = (interface(name, "m_axi", burst=burst, outstanding=256) for name in "XY")
    metrics = dse.FpgaSimulator().evaluate(design(programs.scale(), *given))
    waits = 2 * U280.external.latency_cycles + (programs.N % burst or burst)
    assert 0 < metrics.latency_cycles - programs.N - waits < 16  # stages of the task and the FIFOs
    assert 0 < metrics["interval_cycles"] - programs.N < waits


def test_few_requests_under_way_slow_a_stream_down() -> None:
    """With one request of 16 elements under way, each burst waits for the memory's latency."""
    slow, fast = (
        dse.FpgaSimulator().evaluate(design(programs.scale(), interface("X", "m_axi", outstanding=n))).latency_cycles
        for n in (1, 16)
    )
    assert slow - fast >= (programs.N // 16 - 2) * (U280.external.latency_cycles - 16)


@pytest.mark.parametrize("port", ["m_axi", "axis"])
def test_c_simulation_of_streams_computes_the_same(port: str) -> None:
    height, width = 7, 9
    frame = np.random.default_rng(0).integers(0, 255, (height, width)).astype(np.uint8)
    project = hls_project(design(programs.blur(height, width), interface("A", port, burst=4), interface("B", port)))
    assert f"interface {port} port=A" in project.hls_code
    _, blurred = csim(project, frame, np.zeros((height - 2, width - 2), np.uint8))
    windows = np.lib.stride_tricks.sliding_window_view(frame.astype(int), (3, 3))
    assert (blurred == windows.sum(axis=(2, 3)) // 16).all()


def test_folded_tasks_stream_as_well() -> None:
    space = dse.Study(
        "s", program=programs.blur(7, 9), device="u280", objectives=[dse.minimize("latency_cycles")], schedules="auto"
    ).space
    drawn = (space.decode(random_suggest(np.random.default_rng(seed))) for seed in range(1_000))
    folded = next(c.design for c in drawn if c is not None and c.design.vmg.node_count == 1)
    found = replace(next(space.designs()).design, fold=folded.fold)
    assert set(FpgaMapping.of(found).scheduled.edged.streams) == {"A", "B"}
    frame = np.arange(63).reshape(7, 9).astype(np.uint8)
    _, blurred = csim(hls_project(found), frame, np.zeros((5, 7), np.uint8))
    assert (blurred == np.lib.stride_tricks.sliding_window_view(frame.astype(int), (3, 3)).sum(axis=(2, 3)) // 16).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: dse.interface("X", ["pcie"]), "known: m_axi, axis"),
        (lambda: dse.interface("X", burst=1000), "up to 256 beats"),
        (lambda: dse.interface("X", outstanding=0), "integers of at least 1"),
    ],
)
def test_wrong_interfaces(make: Any, message: str) -> None:
    with pytest.raises(StudyError, match=f"(?s){message}"):
        make()


def test_a_tensor_that_is_read_in_another_order_has_no_stream_port() -> None:
    study = dse.Study(
        "s",
        program=programs.sweep("backwards"),
        device="u280",
        objectives=[dse.minimize("latency_cycles")],
        schedules=[dse.interface("X", ["axis"])],
    )
    with pytest.raises(StudyError, match=r"(?s)interface.X.*once, in row-major order"):
        next(study.space.designs())


# Rounds that differ, as repetitions


def expanded(parts: Iterable[Part], clock: int = 0) -> tuple[list[tuple[int, str, int]], int]:
    found = []
    for part in parts:
        if isinstance(part, Again):
            for _ in range(part.count):
                inner, clock = expanded(part.parts, clock)
                found += inner
            continue
        if isinstance(part, Pipe):
            starts = range(clock, clock + part.rounds * part.ii, part.ii)
            found += [(start + stage, kind, port) for start in starts for stage, kind, port in part.ops]
        clock += cycles_of([part])
    return found, clock


@given(
    st.integers(1, 3),
    st.lists(st.tuples(st.integers(0, 7), st.sampled_from(["get", "put"])), min_size=1, max_size=3),
    st.lists(st.tuples(st.integers(1, 5), st.integers(0, 7)), min_size=1, max_size=6),
)
def test_repetitions_are_the_rounds_that_they_stand_for(
    interval: int, stages: list[tuple[int, str]], runs: list[tuple[int, int]]
) -> None:
    """Runs of rounds with one pattern of operations, several times over."""
    patterns = [pattern for count, pattern in runs for _ in range(count)] * 3
    ops = tuple((stage, kind, port) for port, (stage, kind) in enumerate(stages))
    happens = [np.array([bool(pattern >> number & 1) for pattern in patterns]) for number in range(len(ops))]
    depth = 1 + max(stage for stage, *_ in ops)
    cycles = (len(patterns) - 1) * interval + depth
    parts = interval_parts(happens, ops, interval, cycles)
    assert parts is not None
    wanted = [(n * interval + s, kind, port) for n in range(len(patterns)) for s, kind, port in ops if happens[port][n]]
    found, end = expanded(parts)
    assert sorted(found) == sorted(wanted)
    assert [time for time, *_ in found] == sorted(time for time, *_ in wanted)
    assert end == cycles


def test_long_loops_take_as_long_as_listed_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    def latency() -> int:
        found = design(programs.blur(12, 16), dse.pipeline("conv:x").directive(1))
        return int(dse.FpgaSimulator(depths="declared").evaluate(found).latency_cycles)

    listed = latency()
    monkeypatch.setattr(rounds, "MOST_OPERATIONS", 16)
    assert latency() == listed


# Frames in a row


@pytest.mark.parametrize("rest", [0, 1])
def test_the_interval_is_that_of_frames_in_a_row(rest: int) -> None:
    """Of a producer and a consumer; tokens that each frame leaves over fill the stream in the end."""
    metrics = dse.FpgaSimulator().evaluate(design(programs.hand_over(rest)))
    assert metrics["sustained"] == (rest == 0)
    if rest == 0:
        assert programs.N <= metrics["interval_cycles"] < metrics.latency_cycles
    else:
        assert "interval_cycles" not in metrics


def test_an_interval_that_takes_too_long_to_simulate_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(solver, "_MOST_TURNS", 2)
    metrics = dse.FpgaSimulator().evaluate(design(programs.hand_over(0)))
    assert metrics["sustained"]
    assert "interval_cycles" not in metrics


def test_solved_depths_hold_for_frames_in_a_row() -> None:
    found = design(programs.skewed())
    depths = dse.FpgaSimulator().evaluate(found).stream_depths
    network = fpga_network(FpgaMapping.of(found), depths).network
    assert table_engine().run(repeated(network, 20)).finished
