"""Tensors that stream from kernel to kernel: in which order, what must have come when, and what code computes."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.bound_times import passages
from allo_dse.backends.fpga.hls.dataflow.movers import Arrival, KernelStreams
from allo_dse.backends.fpga.hls.design_project import hls_project
from allo_dse.backends.fpga.hls.project import HlsProject
from allo_dse.common.errors import AlloDseError
from allo_dse.common.records import replace
from allo_dse.lang import install
from allo_dse.space.design import Design

from ...compiler import samples

install()

from allo.ir.types import float32

from .test_tensors_in_dram import SPATIAL, design

FIRST = dse.load_program(samples.gemm, M=16, N=24, K=32, Pm=2, Pn=3, Pk=4, TyI=float32, TyO=float32)
SECOND = dse.load_program(samples.gemm, M=16, N=16, K=24, Pm=4, Pn=4, Pk=2, TyI=float32, TyO=float32)
FOLDED = [spatial for spatial in SPATIAL if spatial != (4, 2, 3)]


def of(program: dse.Program, spatial: tuple[int, int, int], bits: int = 64) -> Design:
    return replace(design(spatial, bits=bits), program=program)


def sent(source: Design) -> Arrival:
    (arrival,) = [b.stream for b in hls_project(source, streams=KernelStreams(frozenset("C"))).buffers if b.stream]
    return arrival


@pytest.mark.parametrize("spatial", FOLDED)
def test_tiles_are_sent_as_the_model_writes_them(spatial: tuple[int, int, int]) -> None:
    source = of(FIRST, spatial)
    arrival, written = sent(source), passages(source, {})["C"]
    cycles = written.by_element[arrival.elements]  # of all elements, as they come
    assert (np.diff(cycles, axis=1) == 0).all()
    assert (np.diff(cycles[:, 0]) > 0).all()
    assert arrival.extents == written.tile_shape


def test_what_is_needed_first_and_how_often_it_comes() -> None:
    """Of two columns of nodes each reads all of A; what several tasks read counts when the first asks for it."""
    read = passages(of(FIRST, (1, 1, 1)), {})["A"]
    assert (read.cycles.shape, read.tile_shape, read.lanes) == ((2, 4), (8, 8), 2)
    assert read.moved == 3 * read.cycles.size
    assert (np.diff(read.cycles, axis=0) > 0).all()
    assert passages(of(FIRST, (4, 2, 3)), {}) == {}  # nodes of one task have processes of their own


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_tile_is_there_when_all_of_its_elements_are(data: st.DataObject) -> None:
    shape = (8, 12)
    came, asked = ((data.draw(st.sampled_from([2, 4, 8])), data.draw(st.sampled_from([2, 4, 12]))) for _ in range(2))
    numbers = np.arange(96).reshape(shape)
    places = data.draw(st.permutations(numbers[:: came[0], :: came[1]].ravel().tolist()))
    arrival = Arrival(tuple(places), came, (12, 1), "float", 32, 1)
    moves = [(asked, place) for place in data.draw(st.permutations(numbers[:: asked[0], :: asked[1]].ravel().tolist()))]
    most, first = 0, arrival.asked(moves, (12, 1))
    for number, (_, place) in enumerate(moves):
        tile = {int(numbers[place // 12 + i, place % 12 + j]) for i, j in product(range(asked[0]), range(asked[1]))}
        most = max(most, min(n for n in range(97) if tile <= set(arrival.elements[:n].ravel().tolist())))
        assert sum(one <= number for one in first) == most


def test_what_cannot_stream_is_refused() -> None:
    other = replace(sent(of(FIRST, (1, 1, 1))), word="float")
    with pytest.raises(AlloDseError, match="words of another size"):
        hls_project(of(SECOND, (1, 1, 1)), streams=KernelStreams(received={"A": other}))


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
@pytest.mark.parametrize(
    ("one", "other", "bits", "flags"), [((1, 1, 3), (1, 2, 2), 64, "-O1"), ((2, 1, 1), (2, 1, 1), 32, "-O0")]
)
def test_two_products_in_a_row(
    one: tuple[int, int, int],
    other: tuple[int, int, int],
    bits: int,
    flags: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the first sends is what the second computes with, however both are folded."""
    monkeypatch.setenv("CXXFLAGS", flags)
    source, target = of(FIRST, one, bits), of(SECOND, other, bits)
    received = KernelStreams(received={"A": sent(source)}, memory="uram")
    rng = np.random.default_rng(0)
    a, b, d = (rng.standard_normal(shape).astype(np.float32) for shape in ((16, 32), (32, 24), (24, 16)))
    middle = _run(hls_project(source, streams=KernelStreams(frozenset("C"))), tmp_path / "one", {"A": a, "B": b})
    assert not np.allclose(middle.reshape(16, 24), a @ b)  # in another order
    found = _run(hls_project(target, streams=received), tmp_path / "two", {"A": middle, "B": d})
    np.testing.assert_allclose(found.reshape(16, 16), a @ b @ d, rtol=1e-3, atol=1e-3)


def _run(project: HlsProject, folder: Path, given: dict[str, np.ndarray]) -> np.ndarray:
    """What a kernel writes or sends, through its test bench."""
    project.write(folder)
    subprocess.run(["make", "-s", "testbench"], cwd=folder, check=True, capture_output=True)
    for name, array in {**given, "C": np.zeros(384, np.float32)}.items():
        array.tofile(folder / f"{name}.bin")
    subprocess.run(["./testbench", "."], cwd=folder, check=True, capture_output=True, timeout=300)
    return np.fromfile(folder / "C.bin", np.float32)


def between() -> HlsProject:
    """A kernel that receives and sends."""
    streams = KernelStreams(frozenset("C"), {"A": sent(of(FIRST, (1, 1, 3)))}, "uram")
    return hls_project(of(SECOND, (1, 2, 2)), streams=streams)


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_host_programs_compile_without_results(tmp_path: Path) -> None:
    between().write(tmp_path)
    (tmp_path / "xrt").mkdir()
    for name in ("xrt_bo.h", "xrt_device.h", "xrt_kernel.h"):
        shutil.copy(Path(__file__).parent / "hls/xrt_stand_in.h", tmp_path / "xrt" / name)
    build = ["g++", "-std=c++17", "-I.", "-w", "-fsyntax-only", "host.cpp"]
    subprocess.run(build, cwd=tmp_path, check=True)


def test_text_of_a_kernel_between_two_others(golden: Callable[[str, str], None]) -> None:
    project = between()
    golden("gemm_streamed.cpp", project.hls_code)
    assert "set_arg(1, B_buffer)" in project.files["host.cpp"]
    assert "A_buffer" not in project.files["host.cpp"]
    assert [line for line in project.files["connectivity.cfg"].splitlines() if line.startswith("sp=")] == [
        "sp=gemm_1.B:HBM[0]"
    ]
