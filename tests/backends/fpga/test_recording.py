"""Recorded runs of FPGA designs: names fit the network, times fit the evaluator's, long runs stop in time."""

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.evaluator import FpgaSimulator
from allo_dse.backends.fpga.network import FpgaLabels
from allo_dse.backends.fpga.recording import record_fpga
from allo_dse.device.device import Device
from allo_dse.eval.evaluator import Metrics
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.space.design import Design
from benchmarks import fpga_programs
from studies.systolic_fpga import plain


@pytest.fixture(scope="module")
def design() -> Design:
    loaded = dse.load_program(fpga_programs.rows())
    return Design(loaded, unfolded(loaded), dse.Buffering(), Device.load("u280"), ())


@pytest.fixture(scope="module")
def metrics(design: Design) -> Metrics:
    return FpgaSimulator().evaluate(design)


def test_the_run_takes_what_the_evaluator_says(design: Design, metrics: Metrics) -> None:
    recording = record_fpga(design, metrics.stream_depths, max_events=10_000_000)
    result = recording.part()
    assert result.finished
    assert result.cycles == recording.cycles == metrics.latency_cycles
    labels = recording.labels
    assert isinstance(labels, FpgaLabels)
    depths = {labels.array(n): int(recording.network.depth[n]) for n in range(labels.network.fifos)}
    assert depths == metrics.stream_depths
    assert record_fpga(design).cycles == metrics.latency_cycles
    path = result.explain().path
    assert path.start[0] == 0
    assert path.end[-1] == metrics.latency_cycles


def test_every_task_copy_and_stream_has_a_name(design: Design) -> None:
    result = record_fpga(design).part()
    labels, network = result.labels, result.network
    assert isinstance(labels, FpgaLabels)
    tasks = [labels.task(n) for n in range(network.task_count)]
    assert len(set(tasks)) == network.task_count
    program = design.program
    assert {program.task_name(n) for n in range(program.task_count)} < set(tasks)
    assert {"load A", "load B", "store D"} <= set(tasks)
    streams = [labels.stream(n) for n in range(network.stream_count)]
    assert len(set(streams)) == network.stream_count
    assert any(name.startswith("load A for ") for name in streams)
    assert any(name.startswith("store D from ") for name in streams)
    assert labels.resource(0) == "AXI port 0"


@pytest.fixture(scope="module")
def long_run() -> Design:
    loaded = dse.load_program(plain, M=8, N=8, K=512, P=4)
    return Design(loaded, unfolded(loaded), dse.Buffering(), Device.load("u280"), ())


def test_what_is_no_declared_stream_is_a_copy_with_a_name_of_its_own(design: Design) -> None:
    labels = record_fpga(design).part().labels
    assert isinstance(labels, FpgaLabels)
    copies = range(labels.network.fifos, len(labels.ends.producer))
    assert copies
    assert all(labels.array(stream) == labels.stream(stream) for stream in copies)


def test_any_part_of_a_long_run_is_what_the_whole_did_then(long_run: Design) -> None:
    depths = {"right": 2, "down": 2}
    short, long = (record_fpga(long_run, depths, max_events=n) for n in (5_000, 10_000_000))
    assert short.cycles == long.cycles
    assert record_fpga(long_run, {}).cycles == FpgaSimulator("declared").evaluate(long_run).latency_cycles
    assert short.length < long.length == long.cycles
    whole = long.part().timeline
    for start in (0, short.cycles // 2, short.cycles - short.length):
        line = short.part(start, start + short.length).timeline
        assert line.start == start
        assert len(line.events) <= 1.3 * 5_000
        own = whole.intervals
        inside = own[(own["end"] > line.start) & (own["start"] < line.end)]
        assert np.array_equal(line.intervals["node"], inside["node"])
        assert np.array_equal(line.intervals["start"], np.maximum(inside["start"], line.start))
        assert np.array_equal(line.intervals["end"], np.minimum(inside["end"], line.end))


def test_samples_of_the_whole_run_add_up_to_what_it_did(long_run: Design) -> None:
    recording = record_fpga(long_run, {"right": 2, "down": 2})
    whole, edges = recording.whole, np.linspace(0, recording.cycles, 50)
    cycles = (recording.samples.shares(edges) * np.diff(edges)[:, None]).sum(axis=1)
    np.testing.assert_allclose(cycles[:, 1], whole.stall_get)
    np.testing.assert_allclose(cycles[:, 2], whole.stall_put)
    np.testing.assert_allclose(cycles.sum(axis=1), whole.node_end)
