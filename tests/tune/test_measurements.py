"""Measurements are read from CSVs and runs; what is wrong with a line is said with its number."""

from pathlib import Path
from typing import Any

import pytest

from allo_dse.common.errors import StudyError
from allo_dse.device.device import NpuDevice
from allo_dse.eval.calibrate.calibration import Measurement
from allo_dse.tune.measurements import on_device, read_measurements
from allo_dse.tune.study import load_studies

from ..eval.designs import gemm_design

STUDY = """
from tests.tune.fakes import FakeEvaluator, fake_study

def study():
    return fake_study("fake", evaluator=FakeEvaluator)
"""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("measured")
    (folder / "study.py").write_text(STUDY)
    (study,) = load_studies(folder / "study.py")
    result = study.run(12, run_dir=folder / "run", progress="quiet", seed=3)
    return result


def csv_of(tmp_path: Path, text: Any) -> Any:
    path = tmp_path / "measured.csv"
    path.write_text(text)
    return path


def test_designs_are_named_by_key_the_beginning_of_it_or_number(run: Any, tmp_path: Path) -> None:
    a, b, c = run.records[:3]
    path = csv_of(tmp_path, f"latency_us , design\n1.5, {a.key}\n2,{b.key[:8]}\n3e2,{c.number}\n")
    found = read_measurements(path, run.run_dir)
    assert [m.design.key for m in found] == [a.key, b.key, c.key]
    assert [m.latency_us for m in found] == [1.5, 2.0, 300.0]
    assert found[1].label == f"{path}:3: {b.key[:8]}"


def test_a_file_may_begin_with_a_byte_order_mark(run: Any, tmp_path: Path) -> None:
    path = csv_of(tmp_path, f"\ufeffdesign,latency_us\n{run.records[0].key},1\n")
    assert read_measurements(path, run.run_dir)[0].design.key == run.records[0].key


def test_a_column_can_name_the_run(run: Any, tmp_path: Path) -> None:
    path = csv_of(tmp_path, f"design,latency_us,run\n{run.records[0].key},1,{run.run_dir}\n")
    assert read_measurements(path)[0].design.key == run.records[0].key


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("design,time\n", ":1: unknown column 'time'"),
        ("design\n", ":1: no column 'latency_us'"),
        ("design,run,design,latency_us,run\n0,a,1,3,b\n", ":1: more than one column 'design', 'run'"),
        ("design,latency_us\n0,1\n1,-4\n", ":3: latency_us: '-4' is no number between 0.001 and 1e\\+10 us"),
        *[
            (f"design,latency_us\n0,{time}\n", f":2: latency_us: '{time}' is no number between")
            for time in ("", "0", "nan", "inf", "1e-300", "1e300")
        ],
        ("design,latency_us\n0\n", ":2: the numbers of values and of columns differ"),
        ("design,latency_us\n,3\n", ":2: design: empty"),
        ("design,latency_us\n0,1\nffffffffff,3\n", ":3: .* has no design 'ffffffffff'"),
    ],
)
def test_a_mistake_is_named_by_its_line(run: Any, tmp_path: Path, text: Any, said: Any) -> None:
    with pytest.raises(StudyError, match=said):
        read_measurements(csv_of(tmp_path, text), run.run_dir)


def test_designs_of_a_run_that_something_else_than_the_simulator_timed(run: Any) -> None:
    found = read_measurements(run.run_dir)
    timed = {r.key for r in run.records if r.evaluated and "latency_us" in (r.metrics or {})}
    assert {m.design.key for m in found} == timed


def test_another_device_keeps_board_and_library_where_it_has_them() -> None:
    for name, board, library, kernels in (
        ("npu1_2col", "ph", "iron", "iron"),
        ("npu2", "default", "iron", "iron"),
        ("npu2", "default", "convolution", "allo"),
    ):
        known = NpuDevice.load("npu1_4col").with_options(board="ph", kernel_library=library)
        measured = [Measurement(gemm_design(device=known), 100.0)]
        (moved,) = on_device(measured, NpuDevice.load(name))
        device = NpuDevice.of(moved.design.device)
        assert (device.name, device.board_name, device.kernel_library) == (name, board, kernels)
