"""Recorded runs of NPU designs: names fit the network, times fit the simulator's."""

import pytest

from allo_dse.backends.npu.costs import TICKS_PER_CYCLE
from allo_dse.backends.npu.evaluator import NpuSimulator
from allo_dse.backends.npu.recording import NpuLabels, NpuRecording, record_npu, short_name

from ...eval.designs import gemm_design


@pytest.fixture(scope="module")
def recording() -> NpuRecording:
    return record_npu(gemm_design())


def test_every_process_and_buffer_has_a_name(recording: NpuRecording) -> None:
    network, labels = recording.network, recording.labels
    assert isinstance(labels, NpuLabels)
    assert len(labels.processes) == network.task_count
    assert 2 * len(labels.buffers) == network.stream_count
    cores = [name.startswith("core ") for name in labels.processes]
    assert cores == sorted(cores)
    assert sum(cores) == gemm_design().vmg.node_count


def test_all_blocks_take_what_the_evaluator_says(recording: NpuRecording) -> None:
    blocks = recording.of // recording.periods
    assert blocks * recording.periods == recording.of
    run_us = blocks * recording.cycles / TICKS_PER_CYCLE / 1e3
    metrics = NpuSimulator().evaluate(gemm_design())
    assert run_us == pytest.approx(metrics.latency_us * (1 - metrics.bound["host"]), rel=1e-3)


def test_the_critical_path_covers_the_run(recording: NpuRecording) -> None:
    path = recording.part().explain().path
    assert path.start[0] == 0
    assert path.end[-1] == recording.cycles


def test_chains_are_called_by_their_first_task() -> None:
    assert short_name("a_0-a_1-a_2x8") == "a_0-…x8"
    assert short_name("a_0-a_1") == "a_0-…"
    assert short_name("a_0x4") == "a_0x4"
