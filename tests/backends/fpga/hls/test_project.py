"""The files of a project, folded designs, and the targets of `df.build`."""

from __future__ import annotations

import itertools
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.hls import emit_project
from allo_dse.backends.fpga.hls.build_modes import load_results, save_arguments
from allo_dse.common.errors import AlloDseError
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import FpgaDevice
from allo_dse.eval.execute.run import folding_of
from allo_dse.lang.schedule import build
from allo_dse.mapper.fold.fold_space import fold_choices
from allo_dse.mapper.fold.vmg import VMG
from tests.compiler import samples

from . import programs
from .batch import Batch
from .test_csim import assert_equal, needs_gcc, own_runs, random_run

GEMM = {"M": 8, "N": 8, "K": 16, "Pm": 2, "Pn": 2, "Pk": 4}

COLUMNS = [("bundle", [tuple(f"gemm_{k}_{i}_{j}" for k in range(4)) for i in range(2) for j in range(2)])]


def test_files_of_a_project(tmp_path: Path) -> None:
    project = emit_project(dse.load_program(samples.gemm, **GEMM), device=FpgaDevice.load("zcu102"))
    written = {path.relative_to(tmp_path).as_posix() for path in project.write(tmp_path)}
    assert written == {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert {"kernel.cpp", "kernel.h", "allo_hls.h", "testbench.cpp", "host.cpp", "run_hls.tcl", "Makefile"} <= written
    script = (tmp_path / "run_hls.tcl").read_text()
    device = FpgaDevice.load("zcu102")
    assert f"set_part {{{device.part}}}" in script
    assert f"create_clock -period {device.clock.period_ns:.3f}" in script
    assert "set_top gemm" in script
    assert "config_op" not in script


def test_the_script_asks_for_sums_without_dsps() -> None:
    asked = Directive("adders", "top", "sums", {"impl": "fabric"})
    script = emit_project(dse.load_program(samples.gemm, **GEMM), schedule=(asked,)).files["run_hls.tcl"]
    assert "foreach operation {fadd fsub} { config_op $operation -impl fabric }" in script


@needs_gcc
@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_a_written_project_runs_by_itself(tmp_path: Path) -> None:
    run = random_run("numbers", dse.load_program(programs.scaled_rows))
    project = emit_project(run.program)
    project.write(tmp_path)
    (tmp_path / "data").mkdir()
    copies = [array.copy() for array in run.before]
    arguments = save_arguments(project, copies, tmp_path / "data")
    done = subprocess.run(["make", "csim"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    load_results(project, arguments, tmp_path / "data")
    np.testing.assert_array_equal(copies[1], run.after[1])
    done = subprocess.run(["make", "csim", "DATA=elsewhere"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "elsewhere/A.bin: No such file or directory" in done.stderr


def test_tensors_beyond_the_ports_share_them_in_turn(tmp_path: Path) -> None:
    program = dse.load_program(samples.gemm, **GEMM)
    banks = {}
    for device in ("u280", "zcu102", "u250"):
        board = FpgaDevice.load(device)
        text = emit_project(program, device=board).files["connectivity.cfg"]
        banks[device] = re.findall(r"^sp=gemm_1\.(\w+):(.*)$", text, re.MULTILINE)
    names = [argument for argument, _ in banks["u280"]]
    assert [bank for _, bank in banks["u280"]] == [f"HBM[{'ABC'.index(name[0])}]" for name in names]
    assert [bank for _, bank in banks["zcu102"]] == [f"HP{'ABC'.index(name[0])}" for name in names]
    external = FpgaDevice.load("u250").external
    assert [external.bank_of(n) for n in range(6)] == ["DDR[0]", "DDR[1]", "DDR[2]", "DDR[3]", "DDR[0]", "DDR[1]"]


def test_the_makefile_takes_either_tool(tmp_path: Path) -> None:
    emit_project(dse.load_program(programs.fir)).write(tmp_path)
    for tool, command in (
        ("vitis_hls", "vitis_hls -f run_hls.tcl"),
        ("vitis-run", "vitis-run --mode hls --tcl run_hls.tcl"),
    ):
        place = tmp_path / tool
        place.mkdir()
        (place / tool).write_text("#!/bin/sh\n")
        (place / tool).chmod(0o755)
        path = {"PATH": f"{place}:/usr/bin:/bin"}
        done = subprocess.run(
            ["make", "-n", "csynth"], cwd=tmp_path, env=path, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == f"STEPS=csynth {command}"
    link = ["make", "-n", "fir.xclbin", "PLATFORM=p"]
    done = subprocess.run(link, cwd=tmp_path, env=path, capture_output=True, text=True, check=True)
    assert "--config connectivity.cfg" in done.stdout


@needs_gcc
def test_the_host_program_compiles_against_xrt(tmp_path: Path) -> None:
    headers = Path(os.environ.get("XRT_INCLUDE", "/usr/include/xrt"))
    if not (headers / "xrt" / "xrt_bo.h").exists():
        pytest.skip("needs the headers of XRT: apt-get install libxrt-dev, or XRT_INCLUDE=<directory>")
    parts: list[str] = []
    for make_program in (programs.scaled_rows, programs.widths, programs.fir):
        emit_project(dse.load_program(make_program)).write(tmp_path / make_program.__name__)
        part = f'#include "{make_program.__name__}/host.cpp"\n'
        # The first has all headers, in which most of the time goes.
        parts.append(f"namespace {make_program.__name__} {{\n{part}}}\n" if parts else part)
    (tmp_path / "all.cpp").write_text("".join(parts))
    include = [f"-I{headers}", f"-I{headers.parent}"]
    command = ["g++", "-std=c++17", "-Wall", "-Wextra", "-Werror", "-fsyntax-only", *include, "all.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@needs_gcc
def test_folds_compute_the_same(tmp_path: Path) -> None:
    program = dse.load_program(samples.gemm, **GEMM)
    run = random_run("gemm", program)
    folds = list(itertools.islice(fold_choices(run.program), 0, None, 7))[:6]
    graphs = [program.vmg.fold(fold) for fold in folds]
    graphs.append(program.vmg.apply([("chain", ["gemm_0_0_0", "gemm_1_0_0"])]))
    graphs.append(program.vmg.apply(COLUMNS))
    projects = {f"k{n}": emit_project(run.program, folding=folding_of(graph)) for n, graph in enumerate(graphs)}
    batch = Batch(projects, "g++", tmp_path)
    for name in projects:
        np.testing.assert_array_equal(batch.run(name, *run.before)[2], run.after[2], err_msg=name)


FOLDED = (
    "layouts", "tiled", "systolic_plain", "scaled_rows", "some_blocks", "numbers", "tile", "borrowed", "twice",
)  # fmt: skip


@needs_gcc
def test_folded_programs_compute_the_same(tmp_path: Path) -> None:
    """Tiles of single elements, of fixed-point numbers, that tasks have in common, written in part, and others."""
    runs = [run for run in own_runs() if run.name in FOLDED]
    projects = {}
    for number, run in enumerate(runs):
        unfolded = VMG.of(run.program)
        folded = (unfolded.fold(fold) for fold in fold_choices(run.program))
        graph = next((one for one in folded if one.node_count < run.program.task_count), unfolded)
        projects[f"k{number}"] = emit_project(run.program, folding=folding_of(graph))
    batch = Batch(projects, "g++", tmp_path)
    for name, run in zip(projects, runs, strict=True):
        for got, wanted in zip(batch.run(name, *run.before), run.after, strict=True):
            if isinstance(wanted, np.ndarray):
                assert_equal(got, wanted, run.name)


@needs_gcc
def test_folded_build() -> None:
    mod = build(
        samples.gemm(**GEMM),
        target="vhls",
        mapping_primitives=[("chain", ["gemm_0_1_1", "gemm_1_1_1"])],
    )
    rng = np.random.default_rng(1)
    a, b = (rng.integers(-9, 9, shape).astype(np.int16) for shape in ((8, 16), (16, 8)))
    c = np.zeros((8, 8), np.int16)
    mod(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_equal_calls_of_a_node_become_a_loop() -> None:
    program = dse.load_program(samples.tiled, M=8, N=8, K=8, P0=1, P1=4)
    bundled = program.vmg.apply([("bundle", [f"tile_0_{j}" for j in range(4)])])
    code = emit_project(program, folding=folding_of(bundled)).hls_code
    assert "for (int t = 0; t < 4; t++) {\n    tile_all(A, B[t], C[t]);" in code
    assert "#pragma HLS allocation function instances=tile_all limit=1" in code


def test_labels_of_loops_lead_to_the_source() -> None:
    project = emit_project(dse.load_program(programs.fir))
    source = project.loops[project.functions["taps_all"]]["i_0"].location
    assert source is not None
    assert "for i in range(N):" in Path(source.file).read_text().splitlines()[source.line - 1]


def test_directives_of_a_design() -> None:
    schedule = [
        Directive("place", "fir", "X", {"memory": "uram"}),
        Directive("place", "taps", "window", {"memory": "register"}),
        Directive("unroll", "taps", "t", {"factor": 3}),
        Directive("partition", "taps", "window", {"dim": 1, "factor": 1, "partition_type": "cyclic"}),
    ]
    code = emit_project(dse.load_program(programs.fir), schedule=schedule).hls_code
    assert "bind_storage variable=x type=ram_2p impl=uram" in code
    assert "array_partition variable=window dim=0 complete" in code
    assert "unroll factor=3" in code
    assert "cyclic" not in code


def test_words_are_no_wider_than_rows_of_tiles() -> None:
    """Also where nodes keep their tiles, and without banks of which the schedule says nothing."""
    program = dse.load_program(programs.scaled_rows)
    wide = Directive("pack", "scaled_rows", "A", {"bits": 512})
    code = emit_project(program, schedule=[wide]).hls_code
    assert "hls::vector<int16_t, 8> word = words.read();" in code
    assert "array_partition" not in code
    bundled = program.vmg.bundle([("send_0", "scale_0"), ("send_1", "scale_1")])
    banks = Directive("partition", "scaled_rows", "A", {"dim": 2, "factor": 4, "partition_type": "cyclic"})
    code = emit_project(program, schedule=[wide, banks], folding=folding_of(bundled)).hls_code
    assert "int16_t A[2][2][8];\n#pragma HLS array_partition variable=A dim=3 cyclic factor=4" in code
    assert "hls::vector<int16_t, 8> word = A_in.read();" in code


def test_unknown_streams_and_modes_are_errors() -> None:
    with pytest.raises(AlloDseError, match="no stream 'sample'"):
        emit_project(dse.load_program(programs.fir), depths={"sample": 3})
    with pytest.raises(AlloDseError, match="stream 'samples' cannot hold 0 tokens"):
        emit_project(dse.load_program(programs.fir), depths={"samples": 0})
    with pytest.raises(AlloDseError, match="unknown mode 'simulate'"):
        build(programs.fir(), target="vitis_hls", mode="simulate")


@needs_gcc
def test_functions_return_what_they_compute() -> None:
    def halves(x: programs.int32) -> programs.int32:  # type: ignore[name-defined]
        return x // 2

    assert build(halves, target="vhls")(9) == 4


def test_a_tensor_has_one_port_as_wide_as_the_devices() -> None:
    """One process reads it and another one writes it; two readers would each have a port of their own."""

    for name, bits in (("u280", 512), ("z7020", 64), ("zcu102", 128)):
        code = emit_project(dse.load_program(programs.added_in_place()), device=FpgaDevice.load(name)).hls_code
        pragmas = re.findall(r"interface m_axi port=(\w+) bundle=(\w+) .*max_widen_bitwidth=(\d+)", code)
        assert {(port, bundle) for port, bundle, _ in pragmas} == {
            ("A_in", "gmem_A"),
            ("A", "gmem_A"),
            ("B", "gmem_B"),
        }
        assert {int(width) for *_, width in pragmas} == {bits}
