"""Calibration recovers the numbers of a board that the simulator was run with, and names what it cannot know."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from allo_dse.backends.npu.calibration import accuracy_of, parameters_of
from allo_dse.common.errors import DeviceError
from allo_dse.device.device import Device, NpuDevice
from allo_dse.device.writing import device_text, write_device
from allo_dse.eval.calibrate.calibration import Measurement, calibrate, predicted_us
from allo_dse.eval.parameters import Parameter, Scale, with_values
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.program import load_program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design

from ..designs import gemm_design, gemm_fold

install()

LAUNCH = Parameter(("board", "launch_us"))
EFFICIENCY = Parameter(("kernels", "allo", "i16", "efficiency"))
SHAPES = [
    ((64, 64, 64), (2, 2, 2)),
    ((128, 128, 128), (2, 4, 4)),
    ((256, 256, 256), (8, 8, 8)),
    ((256, 512, 256), (8, 4, 4)),
    ((512, 256, 256), (4, 8, 8)),
    ((512, 512, 512), (8, 8, 8)),
    ((256, 256, 512), (4, 8, 8)),
    ((128, 512, 128), (8, 4, 4)),
]
OUTLIER = 3


@pytest.fixture(scope="module")
def device() -> Any:
    return NpuDevice.load("npu1_4col")


@pytest.fixture(scope="module")
def found(device: Any) -> Any:
    true = with_values(device, {LAUNCH: 260.0, EFFICIENCY: 0.5})
    noise = np.random.default_rng(1).normal(0, 0.01, len(SHAPES))
    noise[OUTLIER] = np.log(1.5)
    designs = [gemm_design(size, mesh, gemm_fold(1, 2, 2), device=device) for size, mesh in SHAPES]
    times = [predicted_us(design, true) * float(np.exp(n)) for design, n in zip(designs, noise, strict=True)]
    return calibrate([Measurement(d, t, str(i)) for i, (d, t) in enumerate(zip(designs, times, strict=True))])


def test_the_numbers_that_made_the_times_are_found_again(found: Any) -> None:
    by_name = {p.name: p for p in found.parameters}
    launch = by_name[str(LAUNCH)]
    assert launch.after == pytest.approx(260.0, abs=4 * launch.deviation + 5)
    assert found.learned
    assert found.errors["before"][0] > 0.1
    assert found.errors["after"][0] < 0.02
    assert found.errors["cross_validated"][0] < 0.04


@pytest.mark.parametrize(("off", "percent"), [(lambda n: 1.0, 0.1), (lambda n: 1.5 ** (-1) ** n, 50.0)])
def test_a_fit_that_does_not_hold_for_other_designs_changes_no_number(device: Any, off: Any, percent: float) -> None:
    """And what is said of predictions is how far they were off as they were."""
    designs = [gemm_design(size, mesh, gemm_fold(1, 2, 2), device=device) for size, mesh in SHAPES]
    times = [predicted_us(design, device) * off(n) for n, design in enumerate(designs)]
    found = calibrate([Measurement(d, t) for d, t in zip(designs, times, strict=True)])
    assert not found.learned
    assert found.device == device
    assert [(one.percent, one.measurements) for one in accuracy_of(found)] == [(percent, len(SHAPES))]


def test_an_outlier_is_named_and_does_not_bend_the_fit(found: Any) -> None:
    assert [one.measurement.label for one in found.unexplained] == [str(OUTLIER)]


def test_what_is_not_determined_keeps_its_value_and_says_why(found: Any, device: Any) -> None:
    left = [p for p in found.parameters if p.deviation is None]
    assert "board.page_slowdown" in {p.name for p in left}
    for p in left:
        assert p.after == p.before
        assert p.words.startswith("left alone")
    same = {p.name: p for p in found.parameters}["board.page_slowdown"]
    assert found.device.board.page_slowdown == device.board.page_slowdown == same.after


def test_the_written_file_is_the_calibrated_device(found: Any, device: Any, tmp_path: Path) -> None:
    path = tmp_path / "my_npu.toml"
    write_device(path, device_text(found.device, device, "npu1_4col", {"board.launch_us": "said"}))
    loaded = NpuDevice.load(path)
    assert loaded.board == found.device.board
    assert (loaded.kernels, loaded.elementwise) == (found.device.kernels, found.device.elementwise)
    assert "# said" in path.read_text()


def test_how_good_the_fitted_numbers_are_is_written_with_them(found: Any, device: Any, tmp_path: Path) -> None:
    (known,) = accuracy_of(found)
    assert (known.operations, known.element, known.measurements) == (("matmul",), "i16", len(SHAPES))
    fitted = found.device.model_copy(update={"accuracy": accuracy_of(found)})
    path = tmp_path / "my_npu.toml"
    write_device(path, device_text(fitted, device, "npu1_4col", {}))
    assert NpuDevice.load(path).accuracy_of(("matmul",), "i16", 100.0) == known
    assert NpuDevice.load(path).accuracy_of(("matmul",), "i8", 100.0) is None


def test_a_description_may_have_any_characters(device: Any, tmp_path: Path) -> None:
    named = device.model_copy(update={"description": 'board \U0001f600 "ü" \x7f'})
    write_device(tmp_path / "my_npu.toml", device_text(named, device, "npu1_4col", {}))
    assert NpuDevice.load(tmp_path / "my_npu.toml").description == named.description + ", calibrated"


@pytest.mark.parametrize("board", ["default", "ph", "sb"])
def test_any_board_becomes_the_default_of_its_file(board: Any, device: Any, tmp_path: Path) -> None:
    changed = with_values(device.with_options(board=board), {Parameter(("board", "launch_us")): 99.0})
    path = tmp_path / "my_npu.toml"
    write_device(path, device_text(changed, device, "npu1_4col", {}))
    loaded = NpuDevice.load(path)
    assert loaded.board == changed.board


def test_a_changed_number_is_the_only_change_and_has_a_key_of_its_own(device: Any) -> None:
    for parameter in parameters_of([gemm_design(device=device)], device):
        value = parameter.value(parameter.coordinate(parameter.of(device)) - 0.1)
        changed = with_values(device, {parameter: value})
        assert parameter.of(changed) == value
        if value != parameter.of(device):
            assert changed.key != device.key
        assert with_values(changed, {parameter: parameter.of(device)}) == device


def test_measurements_of_too_few_designs_and_of_two_boards_are_refused(device: Any) -> None:
    design = gemm_design(device=device)
    with pytest.raises(DeviceError, match="measurements of 1 design are too few"):
        calibrate([Measurement(design, time_us) for time_us in (90.0, 100.0, 110.0, 120.0)])
    other = gemm_design(device=Device.load("npu1_4col").with_options(board="ph"))
    with pytest.raises(DeviceError, match="line 5: measured on npu1_4col, board 'ph'"):
        calibrate([*[Measurement(design, 100.0)] * 3, Measurement(other, 90.0, "line 5")])


def test_an_operand_over_two_channels_is_found_from_five_measurements() -> None:
    """What a column brings limits the times: no efficiency explains them with one channel."""
    from studies.gemv_npu import gemv_kernel

    device = NpuDevice.load("npu2").with_options(board="host")
    entry = ("kernels", "allo", "vector")
    channels = Parameter((*entry, "operand_channels"), Scale(low=1.0, high=2.0, whole=True))
    true = with_values(device, {Parameter((*entry, "efficiency")): 0.015, channels: 2})
    designs = []
    for size, cores in ((1024, 1), (1024, 2), (512, 4), (2048, 2), (128, 1)):
        program = load_program(gemv_kernel, M=size, K=1024, P=64)
        fold = MeshFold((KernelFold("core", (AxisFold(cores, "cyclic"),)),)).normalised(program.vmg.graph)
        designs.append(Design(program, fold, Buffering(), device))
    *fitted, other = designs
    found = calibrate([Measurement(design, predicted_us(design, true)) for design in fitted])
    assert found.learned
    assert found.errors["before"][0] > 0.3
    assert found.errors["after"][1] < 0.05
    assert predicted_us(other, found.device) == pytest.approx(predicted_us(other, true), rel=0.05)


@pytest.mark.parametrize("count", [4, 8])
def test_few_measurements_within_the_stated_range_change_nothing(count: int, device: Any) -> None:
    designs = [gemm_design(size, mesh, gemm_fold(1, 2, 2), device=device) for size, mesh in SHAPES[:count]]
    times = [predicted_us(design, device) * 1.1 ** (-1) ** (n // 2) for n, design in enumerate(designs)]
    found = calibrate([Measurement(design, us) for design, us in zip(designs, times, strict=True)])
    assert found.device == device
    assert not found.learned
    assert found.expected.startswith(f"{count} of {count} measurements are within the range of +-")
    assert found.to_dict()["expected"] == found.expected


def test_four_measurements_move_one_number(device: Any) -> None:
    """Two numbers explain four measurements whatever they are."""
    unmeasured = device.with_options(dram_gb_s=40.0)
    true = with_values(unmeasured, {LAUNCH: 400.0, EFFICIENCY: 0.3})
    designs = [gemm_design(size, mesh, gemm_fold(1, 2, 2), device=unmeasured) for size, mesh in SHAPES[2:6]]
    found = calibrate([Measurement(design, predicted_us(design, true)) for design in designs])
    assert sum(p.deviation is not None for p in found.parameters) == 1
    assert found.errors["after"][0] < found.errors["before"][0]
    assert not found.expected
