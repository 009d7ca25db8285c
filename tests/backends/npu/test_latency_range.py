"""How good a predicted latency is comes from the device file, for the board and the programs it was found for only."""

from pathlib import Path
from typing import Any

from allo_dse.backends.npu.evaluator import NpuSimulator, accuracy_of, operations_of, overdue
from allo_dse.device.device import NpuDevice
from allo_dse.tune.results.explain import explain, latency_range_words, near_words

from ...eval.designs import gemm_design
from ...support.values import present

FILE = """
extends = "npu1_4col"
[[accuracy]]
board = "default"
kernels = "allo"
operations = ["matmul"]
element = "i16"
percent = 12.3
measurements = 64
[[accuracy]]
board = "default"
kernels = "allo"
operations = ["matmul"]
element = "i16"
least_us = 500.0
percent = 4.5
measurements = 61
"""


def device(tmp_path: Path) -> Any:
    path = tmp_path / "known.toml"
    path.write_text(FILE)
    return NpuDevice.load(path)


def test_a_product_is_known_by_its_board_its_library_and_its_numbers(tmp_path: Path) -> None:
    known = device(tmp_path)
    design = gemm_design(device=known)
    assert operations_of(design.program) == ("matmul",)
    assert present(accuracy_of(design, 499.0)).percent == 12.3
    assert present(accuracy_of(design, 500.0)).percent == 4.5
    for other in (known.with_options(board="ph"), known.with_options(kernel_library="tuned"),
                  known.with_options(dram_gb_s=12.0)):  # fmt: skip
        assert accuracy_of(gemm_design(device=other), 100.0) is None


def test_measured_loops_say_nothing_of_another_programs_loops() -> None:
    for name in ("npu1_4col", "npu2"):
        assert all(set(known.operations) != {"loop"} for known in NpuDevice.load(name).accuracy)


def test_the_metrics_and_the_words_of_a_design_say_it(tmp_path: Path) -> None:
    known = gemm_design(device=device(tmp_path))
    metrics = NpuSimulator().evaluate(known)
    assert metrics.latency_range == {"percent": 12.3, "measurements": 64}
    assert explain(known, metrics).endswith("latency +-12 %, 64 measurements")
    unknown = gemm_design(device=NpuDevice.load("npu1_4col").with_options(dram_gb_s=12.0))
    wide = NpuSimulator().evaluate(unknown)
    assert wide.latency_range == {"percent": 100.0, "measurements": 0}
    assert explain(unknown, wide).endswith("latency not measured for this board, kernel library and program: +-100 %")
    assert latency_range_words({"latency_us": 3.0}) == ""


def test_how_good_predictions_are_changes_no_result(tmp_path: Path) -> None:
    known = device(tmp_path)
    assert known.key == NpuDevice.load("npu1_4col").key


def test_what_predictions_cannot_tell_from_the_fastest_design_is_said() -> None:
    fastest = {"latency_us": 100.0, "latency_range": {"percent": 10.0, "measurements": 20}}
    assert near_words(fastest, [100.0, 105.0, 109.0, 111.0]).startswith(
        "2 other evaluated designs are predicted to be slower by less"
    )
    assert near_words(fastest, [100.0, 105.0]).startswith("1 other evaluated design is")
    assert near_words(fastest, [100.0, 111.0]) == ""
    assert near_words({"latency_us": 100.0}, [100.0, 101.0]) == ""
    unknown = {"latency_us": 100.0, "latency_range": {"measurements": 0}}
    assert "is not known" in near_words(unknown, [100.0, 101.0])


def test_a_call_that_the_driver_aborts_is_named_with_the_limit() -> None:
    design = gemm_design()
    device, metrics = NpuDevice.of(design.device), NpuSimulator().evaluate(design)
    assert device.host.call_timeout_s == 2.0
    assert overdue(device, 1.9e6) == overdue(device, 1.9e6, 5.0) == ""
    assert overdue(device, 1.9e6, 10.0).startswith("a call may take longer than the 2 s after which the driver aborts")
    words = explain(design, {**metrics, "latency_us": 2.1e6})
    assert "a call takes longer than the 2 s after which the driver aborts it" in words
    assert "driver" not in explain(design, metrics)
