"""Exported projects: random inputs, golden outputs, what the model predicts, a smaller instance where there is one."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.hls.design_project import board_project, hls_project
from allo_dse.backends.fpga.hls.project import HlsProject, PredictedLoop, Prediction
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.eval.design_folder import design_files
from allo_dse.eval.golden_data import golden_data, remembered
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.space.design import Design
from tests.compiler import samples

from . import programs

needs_tools = pytest.mark.skipif(
    shutil.which("g++") is None or shutil.which("make") is None, reason="needs g++ and make"
)
GEMM: dict[str, Any] = {"M": 8, "N": 8, "K": 16, "Pm": 2, "Pn": 2, "Pk": 4}


def design(make: Any = programs.scaled_rows, device: str = "u280", **params: object) -> Design:
    program = dse.load_program(make, **params)
    return Design(program, unfolded(program), dse.Buffering(), dse.Device.load(device))


def csim(project: HlsProject, directory: Path) -> subprocess.CompletedProcess[str]:
    project.write(directory)
    return subprocess.run(["make", "csim"], cwd=directory, capture_output=True, text=True, check=False)


@needs_tools
@pytest.mark.parametrize("make", [programs.scaled_rows, programs.widths, programs.fir])
def test_csim_compares_with_golden_outputs(tmp_path: Path, make: Any) -> None:
    done = csim(board_project(design(make)), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "results are as they should be" in done.stdout


@needs_tools
def test_a_wrong_result_fails_with_the_first_difference(tmp_path: Path) -> None:
    project = board_project(design())
    project.write(tmp_path)
    golden = np.fromfile(tmp_path / "data" / "golden" / "B.bin", np.int32)
    right = int(golden[10])
    golden[10] += 1
    golden[20] -= 7
    golden.tofile(tmp_path / "data" / "golden" / "B.bin")
    done = subprocess.run(["make", "csim"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"first difference: B[1, 2] is {right}, should be {right + 1}\n" in done.stderr
    assert "B: 2 of 32 elements differ" in done.stderr


@needs_tools
def test_csim_runs_the_smaller_instance(tmp_path: Path) -> None:
    big = {**GEMM, "M": 64, "N": 64, "K": 64}
    project = board_project(
        design(samples.gemm, **big), verify_with=lambda p: {"M": 8, "N": 8, "K": 16}, reference=np.matmul
    )
    done = csim(project, tmp_path)
    assert done.returncode == 0, done.stderr
    assert "-C small" in done.stdout
    assert len(project.data["small/data/A.bin"]) == 2 * 8 * 16
    assert len(project.data["data/A.bin"]) == 2 * 64 * 64
    a, b = (np.frombuffer(project.data[f"data/{name}.bin"], np.int16).reshape(64, 64) for name in "AB")
    np.testing.assert_array_equal(np.frombuffer(project.data["data/golden/C.bin"], np.int16).reshape(64, 64), a @ b)


def test_references_and_runs_agree_on_golden_outputs() -> None:
    program = dse.load_program(samples.gemm, **GEMM)
    assert golden_data(program, np.matmul) == golden_data(program) == golden_data(program)


def test_random_numbers_complete_a_set_of_inputs() -> None:
    program = dse.load_program(samples.gemm, **GEMM)
    own = golden_data(program)
    name = program.tensors[0].name
    given = np.frombuffer(own[f"data/{name}.bin"], np.float32 if program.tensors[0].dtype.is_float else np.int16)
    assert golden_data(program, None, [{name: given.reshape(program.tensors[0].shape)}]) == own


def test_a_reference_may_write_to_what_it_is_given() -> None:
    def in_place(a: Any, b: Any) -> Any:
        product = a @ b
        a += 1
        return product

    program = dse.load_program(samples.gemm, **GEMM)
    assert golden_data(program, in_place) == golden_data(program, np.matmul)


def test_results_may_be_as_far_off_as_the_analysis_of_the_program_lets_them() -> None:
    """Of sums of floats: more for longer ones, and never so much that a tenth is within."""

    def tolerance(length: int) -> tuple[float, float]:
        project = hls_project(design(samples.systolic, M=2, N=2, K=length))
        return max(buffer.tolerance for buffer in project.buffers)

    short, long = tolerance(16), tolerance(1024)
    assert 0 < short[1] <= long[1] < 1e-4
    assert short[0] < long[0] < 1e-3


@needs_tools
def test_each_element_is_as_near_as_the_roundings_behind_it_allow(tmp_path: Path) -> None:
    """A small element far off is refused, although that is little beside the largest ones."""
    program = dse.load_program(samples.systolic, M=2, N=2, K=8)
    a, b = np.ones((2, 8), np.float32) / 3, np.ones((8, 2), np.float32) / 7
    a[0] *= 1e-4
    inputs = {tensor.name: one for tensor, one in zip(program.tensors, (a, b), strict=False)}
    project = board_project(design(samples.systolic, M=2, N=2, K=8), inputs=lambda _: [inputs])
    assert csim(project, tmp_path).returncode == 0
    name = program.tensors[-1].name
    golden, limits = (
        np.fromfile(tmp_path / "data" / kind / f"{name}.bin", np.float32) for kind in ("golden", "limits")
    )
    (buffer,) = (one for one in project.buffers if one.writes)
    changed = golden.copy()
    changed[0] += 0.5 * buffer.tolerance[0] * np.sqrt(np.mean(golden**2))
    assert abs(changed[0] - golden[0]) > 4 * limits[0]
    changed.tofile(tmp_path / "data" / "golden" / f"{name}.bin")
    done = subprocess.run(["make", "csim"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert f"{name}: 1 of 4 elements differ" in done.stderr
    limits[:2].tofile(tmp_path / "data" / "limits" / f"{name}.bin")
    done = subprocess.run(["make", "csim"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"limits/{name}.bin is shorter than 4 numbers" in done.stderr


def test_commands_get_the_project_that_the_hls_flow_runs() -> None:
    subject = design(samples.systolic, M=2, N=2, K=8)
    depths = dict(subject.as_built.depths)
    assert depths != {stream.name: stream.depth for stream in subject.program.streams}
    written = {name: text for name, text in design_files(subject).items() if name.startswith("hls/")}
    assert written == {f"hls/{name}": text for name, text in hls_project(subject, depths).files.items()}


def test_tensors_are_in_the_memory_that_the_model_times() -> None:
    subject = design(samples.gemm, "zcu102", **GEMM)
    ports = [name for name in hls_project(subject).files["connectivity.cfg"].splitlines() if name.startswith("sp=")]
    tensors = [use.tensor.name for use in FpgaMapping.of(subject).tensors if not use.onchip]
    for line in ports:
        argument, bank = line.removeprefix("sp=gemm_1.").split(":")
        assert bank == f"HP{tensors.index(argument.removesuffix('_in'))}"


def test_the_readme_says_what_to_compare(golden: Callable[[str, str], None]) -> None:
    amounts = {"lut": 7303, "ff": 5945, "dsp": 2, "bram18": 120, "uram": 0}
    loop = PredictedLoop("taps_all", "fill_0", trips=4000, ii=1, depth=2, cycles=4002)
    project = hls_project(design(programs.fir)).with_prediction(Prediction("model 1", 84600, 300.0, amounts, (loop,)))
    readme = project.files["README.md"]
    golden("fir_prediction.md", readme[readme.index("## What the tools should find") :])


def test_predictions_are_those_of_the_model() -> None:
    subject = design(programs.fir)
    readme = board_project(subject).files["README.md"]
    metrics = dse.FpgaSimulator(depths="declared").evaluate(subject)
    assert f"| cycles | {metrics.latency_cycles:,} |" in readme
    assert f"| lut | {metrics.lut:,} |" in readme
    labels = {label for own in hls_project(subject).loops.values() for label in own}
    unrolled = {"t_1", "t_2"}  # which are short, in a loop that is pipelined
    assert set(re.findall(r"_all` \| `(\w+)` \|", readme)) == labels - unrolled


@needs_tools
def test_the_host_program_checks_and_times(tmp_path: Path) -> None:
    """With a stand-in for XRT whose kernel is the C++ itself."""
    project = board_project(design())
    project.write(tmp_path)
    (tmp_path / "xrt").mkdir()
    for name in ("xrt_bo.h", "xrt_device.h", "xrt_kernel.h"):
        shutil.copy(Path(__file__).parent / "xrt_stand_in.h", tmp_path / "xrt" / name)
    build = ["g++", "-std=c++17", "-O0", "-I.", "-Icsim", "-w", "-o", "host", "host.cpp", "kernel.cpp"]
    subprocess.run(build, cwd=tmp_path, check=True)
    done = subprocess.run(["./host", "x", "data", "5", "2"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["kernel"], found["repetitions"], found["correct"]) == ("scaled_rows", 5, True)
    assert 0 < found["fastest_us"] <= found["latency_us"] <= found["slowest_us"]
    golden = np.fromfile(tmp_path / "data" / "golden" / "B.bin", np.int32)
    (golden + 1).tofile(tmp_path / "data" / "golden" / "B.bin")
    done = subprocess.run(["./host", "x", "data", "1", "1"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "first difference: B[0, 0]" in done.stderr


def test_a_reference_is_asked_once_for_the_same_numbers() -> None:
    asked: list[int] = []

    def reference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        asked.append(len(a))
        product: np.ndarray = a @ b
        return product

    program, other = dse.load_program(samples.gemm, **GEMM), dse.load_program(samples.gemm, **{**GEMM, "K": 64})
    cached = remembered(reference)
    for one in (program, other, program, other):
        assert golden_data(one, cached) == golden_data(one, reference)
    assert len(asked) == 4 + 2
    for factor in range(6):
        np.testing.assert_array_equal(cached(np.eye(2) * factor, np.eye(2)), np.eye(2) * factor)
    assert golden_data(program, cached) == golden_data(program, reference)
    assert len(asked) == 4 + 2 + 6 + 2  # it had forgotten
