"""Recorded runs of FPGA designs: names fit the network, times fit the evaluator's, long runs stop in time."""

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.device import Device
from allo_dse.eval.fpga import FpgaSimulator
from allo_dse.eval.fpga_recording import record_fpga
from allo_dse.mapper.fold import unfolded
from allo_dse.space.design import Design
from benchmarks import fpga_programs
from studies.systolic_fpga import plain


@pytest.fixture(scope="module")
def design():
    loaded = dse.load_program(fpga_programs.rows())
    return Design(loaded, unfolded(loaded), dse.Buffering(), Device.load("u280"), ())


@pytest.fixture(scope="module")
def metrics(design):
    return FpgaSimulator().evaluate(design)


def test_the_run_takes_what_the_evaluator_says(design, metrics):
    recording = record_fpga(design, metrics.stream_depths, max_events=10_000_000)
    assert recording.is_whole
    assert recording.result.cycles == metrics.latency_cycles
    assert recording.depths == metrics.stream_depths
    assert record_fpga(design).whole.cycles == metrics.latency_cycles
    path = recording.result.explain().path
    assert path.start[0] == 0
    assert path.end[-1] == metrics.latency_cycles


def test_every_task_copy_and_stream_has_a_name(design):
    result = record_fpga(design).result
    labels, network = result.labels, result.network
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


def test_a_long_run_is_recorded_from_its_beginning():
    loaded = dse.load_program(plain, M=8, N=8, K=512, P=4)
    design = Design(loaded, unfolded(loaded), dse.Buffering(), Device.load("u280"), ())
    short, whole = (record_fpga(design, {"right": 2, "down": 2}, max_events=n) for n in (20_000, 10_000_000))
    assert not short.is_whole
    assert short.whole.cycles == whole.result.cycles
    declared = FpgaSimulator("declared").evaluate(design)
    assert record_fpga(design, declared.stream_depths, max_events=20_000).whole.cycles == declared.latency_cycles
    kept = short.result.timeline.events
    assert kept.is_complete
    assert 20_000 <= len(kept) < len(whole.result.timeline.events)
    # What was kept is what the whole run did, element for element.
    for node in range(whole.result.network.node_count):
        mine, all_ = (
            t.events.completed[t.slot_node[t.events.slot] == node]
            for t in (short.result.timeline, whole.result.timeline)
        )
        assert np.array_equal(mine, all_[: len(mine)])
    explanation = short.result.explain()
    assert explanation.path.end[-1] == short.result.cycles
