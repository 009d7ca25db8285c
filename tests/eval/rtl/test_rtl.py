"""The open RTL flow: programs as circuits compute NumPy's numbers, and hang where the simulator says so."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.rtl import tools
from allo_dse.backends.rtl.circuit import build_circuit
from allo_dse.backends.rtl.evaluator import RtlEvaluator, _counted, rtl_resources, rtl_simulate
from allo_dse.backends.rtl.tools import RtlError
from allo_dse.common.records import Array, replace
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import unfolded

install()

import allo
import allo.dataflow as df
from allo.ir.types import ConstExpr, Int, Stream, int8, int16, int32, uint16

from benchmarks import rtl_depths

from ...compiler.samples import gemm, producer_consumer, systolic
from ...tune.hazards import wait_until
from .programs import random_program

int80 = Int(80)
MISSING = tools.unavailable()
runs = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))
YOSYS_CODE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "YoWASP"
"""Machine code of PyPI's Yosys, which takes a minute to make."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def own_cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setenv("YOWASP_CACHE_DIR", str(YOSYS_CODE))


def integers(shape: int | tuple[int, int], dtype: Any = np.int16, seed: Any = 0) -> Array:
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


@runs
def test_a_systolic_array_as_a_circuit_takes_less_time_where_stream_operations_overlap() -> None:
    program = dse.load_program(systolic, M=2, N=3, K=4, T=int16)
    a, b, c = integers((2, 4)), integers((4, 3), seed=1), np.zeros((2, 3), np.int16)
    cycles = {}
    for overlap in (False, True):
        c[:] = 0
        result = rtl_simulate(program, a, b, c, overlap=overlap)
        assert result.finished
        assert np.array_equal(c, a @ b)
        assert result.outputs["C"] is c
        assert max(result.peak.values()) <= 4
        cycles[overlap] = result.cycles
    assert cycles[True] < cycles[False]


TABLE = np.array([3, -1, 4, 1], np.int32)


@runs
def test_folded_designs_run_their_tasks_in_turn() -> None:
    """Of a tiled product whose partial sums go from task to task in blocks."""
    program = dse.load_program(gemm, M=2, N=4, K=4, Pm=1, Pn=2, Pk=2)
    chained = program.vmg.chain("gemm_0_0_0", "gemm_1_0_0").chain("gemm_0_0_1", "gemm_1_0_1")
    cycles = []
    for folded in (program.vmg, chained, chained.bundle(["gemm_0_0_0-gemm_1_0_0", "gemm_0_0_1-gemm_1_0_1"])):
        a, b, c = integers((2, 4)), integers((4, 4), seed=1), np.zeros((2, 4), np.int16)
        result = rtl_simulate(folded, a, b, c)
        assert np.array_equal(c, a @ b)
        assert result.finished
        cycles.append(result.cycles)
    assert cycles[0] < cycles[1] < cycles[2]
    assert cycles[2] == pytest.approx(2 * cycles[1], abs=10)


def decisions(N: int = 6) -> Any:
    """Signed arithmetic and branches of all shapes, one kernel each; every kernel has its own column."""

    @df.region()
    def top(A: int32[N], B: int16[N], C: int32[N, 6], n: int32):
        pipe: Stream[int16, 3]

        @df.kernel(mapping=[1], args=[A, C])
        def quotients(a: int32[N], c: int32[N, 6]):
            for i in range(N):
                x: int32 = a[i]
                c[i, 0] = x * 3 if x > 2 else x // 3 - x % 7

        @df.kernel(mapping=[1], args=[A, C])
        def three_ways(a: int32[N], c: int32[N, 6]):
            for i in range(N):
                if a[i] % 2 == 0:
                    c[i, 1] = min(a[i], 5) << 2
                elif a[i] == 1:
                    c[i, 1] = TABLE[i % 4]
                else:
                    y: int32 = a[i]
                    if y < -2:
                        y = -2
                    elif y > 2:
                        y = 2
                    c[i, 1] = y

        @df.kernel(mapping=[1], args=[A, C, n])
        def loops(a: int32[N], c: int32[N, 6], m: int32):
            for i in range(N):
                x: int32 = a[i]
                y: int32 = 0
                while x > 3 and y < m:
                    z: int32 = x
                    while z > 1:
                        z -= 2
                        y += 1
                    x = x - 1
                c[i, 2] = x + y
                c[i, 3] = i * 3 - 40

        @df.kernel(mapping=[1], args=[B])
        def until(b: int16[N]):
            for i in range(N):
                if b[i] == 99:
                    break
                pipe.put(b[i])
            pipe.put(-1)

        @df.kernel(mapping=[1], args=[C])
        def reader(c: int32[N, 6]):
            k: int32 = 0
            x: int16 = pipe.get()
            while x != -1:
                c[k, 4] = x // 5 if x & 1 == 0 else -x
                c[k, 5] = (x >> 2) ^ 85
                k += 1
                x = pipe.get()

    return top


@runs
def test_arithmetic_control_flow_and_signs() -> None:
    program = dse.load_program(decisions)
    a, b = np.array([5, -3, 8, 1, 0, -8], np.int32), np.array([-32768, 77, -12, 99, 4, 5], np.int16)
    expected, c = np.zeros((6, 6), np.int32), np.zeros((6, 6), np.int32)
    dse.simulate(program, a, b, expected, 6)
    result = rtl_simulate(program, a, b, c, 6)
    assert result.finished
    assert np.array_equal(c, expected)
    assert c[:, 0].tolist() == [15, -1 - 4, 24, -1, 0, -3 - 6]


def divisions(N: int = 6) -> Any:
    """Quotients of more bits than a machine has, also by zero; constants as wide; a value's operations with itself."""

    @df.region()
    def top(A: int80[N], B: int80[N], U: uint16[N], V: uint16[N], C: int80[N, 5], D: int32[N, 3]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def wide(a: int80[N], b: int80[N], c: int80[N, 5]):
            for i in range(N):
                c[i, 0] = a[i] // b[i]
                c[i, 1] = a[i] % b[i]
                c[i, 2] = a[i] / b[i]
                c[i, 3] = a[i] // 3
                c[i, 4] = a[i] + 2361183241434822606847

        @df.kernel(mapping=[1], args=[U, V, D])
        def short(u: uint16[N], v: uint16[N], d: int32[N, 3]):
            for i in range(N):
                d[i, 0] = u[i] // v[i] if u[i] % v[i] > 0 else u[i] % v[i] - 1
                x: uint16 = u[i]
                d[i, 1] = x - x
                d[i, 2] = (x ^ x) + (x <= x)

    return top


@runs
def test_divisions_are_those_of_the_simulator() -> None:
    program = dse.load_program(divisions)
    a = np.array([-(1 << 70), (1 << 79) - 1, -(1 << 79), -7, 7, 0], object)
    b = np.array([3, -(1 << 40), -1, 0, -2, 5], object)
    u, v = np.array([7, 0, 65535, 9, 8, 1], np.uint16), np.array([2, 0, 0, 10, 4, 1], np.uint16)
    found, expected = ([np.zeros((6, 5), object), np.zeros((6, 3), np.int32)] for _ in range(2))
    dse.simulate(program, a, b, u, v, *expected)
    assert rtl_simulate(program, a, b, u, v, *found).finished
    for mine, theirs in zip(found, expected, strict=True):
        assert np.array_equal(mine, theirs)
    assert [row[0] for row in found[0]] == [-(1 << 70) // 3, -(1 << 39), -(1 << 79), -7, -4, 0]
    assert found[0][:, 3].tolist() == [n // 3 for n in a.tolist()]


def halves(N: int = 4) -> Any:
    """Blocks that are slices of a tensor."""

    @df.region()
    def top(A: int16[N, N], C: int16[N, N]):
        pipe: Stream[int16[2, N], 2]

        @df.kernel(mapping=[1], args=[A])
        def source(a: int16[N, N]):
            for i in range(N // 2):
                pipe.put(a[i * 2 : (i + 1) * 2, :])

        @df.kernel(mapping=[1], args=[C])
        def sink(c: int16[N, N]):
            for i in range(N // 2):
                t: int16[2, N] = pipe.get()
                c[i * 2 : (i + 1) * 2, :] = t + t * 2

    return top


@runs
def test_slices_travel_as_blocks() -> None:
    a, c = integers((4, 4)), np.zeros((4, 4), np.int16)
    result = rtl_simulate(dse.load_program(halves), a, c)
    assert np.array_equal(c, 3 * a)
    assert result.peak["pipe"] <= 2 * 8


def tiled(M: int = 4, P: int = 2) -> Any:
    """Every task computes a tile of an argument that all have whole, by ranges over its pid."""

    @df.region()
    def top(A: int16[M, M], B: int16[M, M], C: int16[M, M]):
        @df.kernel(mapping=[P, P], args=[A, B, C])
        def gemm(a: int16[M, M], b: int16[M, M], c: int16[M, M]):
            pi, pj = df.get_pid()
            T: ConstExpr[int32] = M // P
            for i in range(pi * T, (pi + 1) * T):
                for j in range(pj * T, (pj + 1) * T):
                    for k in range(M):
                        c[i, j] += a[i, k] * b[k, j]

    return top


@runs
def test_a_tiled_product_by_ranges_over_the_pid() -> None:
    a, b, c = integers((4, 4)), integers((4, 4), seed=1), np.zeros((4, 4), np.int16)
    rtl_simulate(dse.load_program(tiled), a, b, c)
    assert np.array_equal(c, a @ b)


def in_order(N: int = 6) -> Any:
    """Loads and stores that must not overtake each other, of an argument and of a local array."""

    @df.region()
    def top(A: int32[N], B: int32[N]):
        @df.kernel(mapping=[2], args=[A, B])
        def core(a: int32[N], b: int32[N]):
            p = df.get_pid()
            with allo.meta_if(p == 0):
                held: int32[N]
                for i in range(N):
                    held[i] = a[i]
                for i in range(N - 1):
                    held[i + 1] = held[i] + 1
                    held[i] = held[i + 1] * 2
                    a[i] = held[i]
                    a[i + 1] = a[i] + held[i]
            with allo.meta_else():
                for i in range(N):
                    b[i] = i
                    b[N - 1 - i] = b[i] + b[N - 1 - i]

    return top


@runs
def test_accesses_of_an_array_keep_their_order() -> None:
    program = dse.load_program(in_order)
    a, b = np.arange(6, dtype=np.int32), np.full(6, 100, np.int32)
    expected = a.copy(), b.copy()
    dse.simulate(program, *expected)
    rtl_simulate(program, a, b)
    assert np.array_equal(a, expected[0])
    assert np.array_equal(b, expected[1])


@runs
@pytest.mark.parametrize(("left", "ends"), [(62, False), (63, True)])
def test_the_circuit_hangs_where_the_simulator_says_so(left: int, ends: bool) -> None:
    program = dse.load_program(rtl_depths.skewed)
    depths = {"left": left}
    assert rtl_depths.simulator_ends(program, depths) == ends
    values, out = integers(64, np.int32) // 4, np.zeros(64, np.int32)
    result = rtl_simulate(program, values, out, depths=depths, patience=300)
    assert result.finished == ends
    assert result.peak["left"] == left
    if ends:
        assert np.array_equal(out, 2 * values)
    else:
        assert {(w.task, w.kind, w.stream) for w in result.deadlock} == {
            ("split_0", "put", "left"),
            ("merge_0", "get", "right"),
        }
        assert "split_0 waits to put to left (full)" in result.explain()


@runs
@pytest.mark.parametrize(("seed", "ends"), [(7, True), (11, True), (9, False), (13, False)])
def test_random_networks_end_or_hang_as_in_the_simulator(seed: int, ends: bool, tmp_path: Path) -> None:
    program = dse.load_program(random_program(seed, tmp_path))
    assert rtl_depths.simulator_ends(program, {}) == ends
    expected, values = (np.zeros(program.tensors[0].shape, np.int32) for _ in range(2))
    result = rtl_simulate(program, values, patience=200)
    assert result.finished == ends
    if ends:
        dse.simulate(program, expected)
        assert np.array_equal(values, expected)


@runs
def test_smallest_depths_of_the_simulator_are_those_of_the_circuit() -> None:
    program = dse.load_program(rtl_depths.reconvergent, N=12, window=3)
    depths = rtl_depths.smallest(program, rtl_depths.simulator_ends)
    assert depths == {"direct": 3, "inward": 1, "outward": 1}
    assert rtl_depths.circuit_ends(program, depths)
    assert not rtl_depths.circuit_ends(program, {**depths, "direct": 2})


@runs
def test_the_evaluator_measures_designs_at_the_depths_that_the_simulator_finds() -> None:
    program = dse.load_program(rtl_depths.skewed, N=12, lead=8)
    design = dse.Design(program, unfolded(program), dse.Buffering(), dse.Device.load("u280"))
    metrics = RtlEvaluator().evaluate(design)
    assert metrics.stream_depths["left"] >= 8
    assert metrics.latency_cycles > 12
    assert (metrics.pe_count, metrics.evaluator) == (2, "rtl-circuit 1")
    with pytest.raises(RtlError, match="waits to put to left"):
        RtlEvaluator().evaluate(replace(design, depths=(("left", 7),)))


def test_what_the_flow_cannot_do_is_said() -> None:
    with pytest.raises(RtlError, match="float32") as caught:
        rtl_simulate(dse.load_program(producer_consumer))
    assert "integers" in caught.value.hint
    program = dse.load_program(systolic, M=2, N=2, K=4, T=int16)
    with pytest.raises(RtlError, match="no stream 'pipe'"):
        build_circuit(program, {"pipe": 2})
    with pytest.raises(RtlError, match="cannot hold 0"):
        build_circuit(program, {"east": 0})


def test_missing_tools_are_named_with_how_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    reason = RtlEvaluator().unavailable()
    assert reason is not None
    assert "iverilog" in reason
    assert "apt-get install" in reason
    with pytest.raises(RtlError, match="iverilog"):
        rtl_simulate(dse.load_program(systolic, M=1, N=1, K=2, T=int8))


def test_a_tool_that_fails_or_hangs_is_reported_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(RtlError, match="kernel broken"):
        tools.run_tool([sys.executable, "-c", "import sys; sys.exit('kernel broken')"])
    with pytest.raises(RtlError, match=r"more than 0\.2 s"):
        tools.run_tool([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.2)
    started = tmp_path / "started"
    command = f"sleep 47.25 & echo $! > {shlex.quote(str(started))}; wait"
    for seconds in (0.5, 5, 50):  # until it has started one
        with pytest.raises(RtlError, match="took more than"):
            tools.run_tool(["sh", "-c", command], seconds=seconds)
        if started.exists() and started.read_text():
            break
    wait_until(lambda: not Path(f"/proc/{started.read_text().strip()}").exists())


def squares(N: int = 4) -> Any:
    @df.region()
    def top(A: int16[N]):
        @df.kernel(mapping=[2], args=[A])
        def task(a: int16[N]):
            held: int16[600]
            for i in range(N):
                held[i] = a[i]
            for i in range(N):
                a[i] = held[i] * held[i]

    return top


@pytest.mark.skipif(
    tools.unavailable(synthesis=True) is not None or not (shutil.which("yosys") or YOSYS_CODE.exists()),
    reason="no Yosys, or PyPI's, which would first be compiled for a minute: run it once",
)
def test_resources_of_a_circuit(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = rtl_resources(dse.load_program(squares))
    assert parts["kernels"].dsp == parts["total"].dsp == 2  # in each task a multiplier of 16 x 16 bits
    assert parts["arrays"].bram18 == parts["total"].bram18 == 2  # in each 600 words of 16 bits
    assert parts["total"].lut == parts["kernels"].lut > 0
    with monkeypatch.context() as known:
        known.setattr("allo_dse.backends.rtl.evaluator.run_tool", None)
        assert rtl_resources(dse.load_program(squares)) == parts
    # Cells that one version counts are not another's.
    monkeypatch.setattr("allo_dse.backends.rtl.evaluator.yosys", lambda: (("no-yosys",), "another version"))
    with pytest.raises(RtlError, match="no-yosys is not installed"):
        rtl_resources(dse.load_program(squares))


def test_cells_are_counted_as_resources() -> None:
    cells = {"LUT1": 1, "LUT6": 2, "SRL16E": 3, "RAM32M": 1, "FDRE": 5, "FDSE": 1, "DSP48E2": 2, "RAMB18E2": 1}
    counted = _counted({**cells, "RAMB36E2": 1, "CARRY4": 9, "$scopeinfo": 7})
    assert (counted.lut, counted.ff, counted.dsp, counted.bram18) == (10, 6, 2, 3)
