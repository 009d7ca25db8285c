"""Every example of the dataflow manual, as it stands there: it is built, runs, and computes what NumPy computes."""

# Programs are written as users write them:
# ruff: noqa: B007, F841, F842

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import allo_dse
import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import ConstExpr, Stream, UInt, float32, int16, int32  # noqa: F401
from allo.memory import Layout

S = Layout.Shard  # Shorthand for sharding
R = Layout.Replicate  # Shorthand for replication

RNG = np.random.default_rng(0)


def random(*shape: int) -> Any:
    return RNG.random(shape, dtype=np.float32)


def zeros(*shape: int) -> Any:
    return np.zeros(shape, np.float32)


# -- getting started, kernels ----------------------------------------------------------------------------------------


def test_basic_structure() -> None:
    M, N = 4, 8

    @df.region()
    def top(A: float32[M, N], B: float32[M, N]):
        pipe: Stream[float32, 4]  # Stream with depth 4

        @df.kernel(mapping=[1], args=[A])
        def producer(local_A: float32[M, N]):
            # Kernel logic
            pass

        @df.kernel(mapping=[1], args=[B])
        def consumer(local_B: float32[M, N]):
            # Kernel logic
            pass

    mod = df.build(top)
    texts = [text.split("warning: ")[1] for text in mod.program.warnings]
    assert "stream `pipe` is never used" in texts
    a, b = random(M, N), random(M, N)
    before = b.copy()
    mod(a, b)
    np.testing.assert_array_equal(b, before)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_kernel_position(rank: int) -> None:
    P0, P1, P2 = 4, 3, 2

    @df.region()
    def one(A: int32[4]):
        @df.kernel(mapping=[P0], args=[A])
        def core(a: int32[4]):
            # For 1D mapping
            i = df.get_pid()
            a[i] = i

    @df.region()
    def two(A: int32[4, 3]):
        @df.kernel(mapping=[P0, P1], args=[A])
        def core(a: int32[4, 3]):
            # For 2D mapping
            pi, pj = df.get_pid()
            a[pi, pj] = 10 * pi + pj

    @df.region()
    def three(A: int32[4, 3, 2]):
        @df.kernel(mapping=[P0, P1, P2], args=[A])
        def core(a: int32[4, 3, 2]):
            # For 3D mapping
            pi, pj, pk = df.get_pid()
            a[pi, pj, pk] = 100 * pi + 10 * pj + pk

    a = np.zeros((P0, P1, P2)[:rank], np.int32)
    df.build({1: one, 2: two, 3: three}[rank])(a)
    weights = [1, 10, 100][:rank][::-1]
    np.testing.assert_array_equal(a, sum(w * i for w, i in zip(weights, np.indices(a.shape), strict=True)))


# -- streams ---------------------------------------------------------------------------------------------------------


def test_stream_declarations_and_operations() -> None:
    M, N, P0, P1 = 4, 4, 2, 2

    @df.region()
    def top(A: float32[2 * M, N], B: float32[2 * M, N], U: UInt(16)[M], V: UInt(16)[M]):
        # Basic scalar stream
        pipe: Stream[float32, 4]  # Stream of float32 with depth 4
        # Stream of unsigned integers
        stream: Stream[UInt(16), 4]
        # 2D array of streams for systolic array communication
        fifo_A: Stream[float32, 4][P0, P1]
        # Stream where each element is a 4x4 block
        blocks: Stream[float32[M, N], 4]

        @df.kernel(mapping=[1], args=[A, U])
        def send(local_A: float32[2 * M, N], u: UInt(16)[M]):
            # Send a scalar value
            value: float32 = local_A[0, 0]
            pipe.put(value)
            for i in range(M):
                stream.put(u[i])
            # Send to a specific stream in an array
            with allo.meta_for(P0) as i, allo.meta_for(P1 - 1) as j:
                a: float32 = local_A[i, j]
                fifo_A[i, j + 1].put(a)
            # Send a block
            for i in range(2):
                block: float32[M, N] = 0
                for m, n in allo.grid(M, N):
                    block[m, n] = local_A[i * M + m, n]
                blocks.put(block)

        @df.kernel(mapping=[1], args=[B, V])
        def receive(local_B: float32[2 * M, N], v: UInt(16)[M]):
            # Receive a scalar value
            data = pipe.get()
            for i in range(M):
                v[i] = stream.get() + 1
            # Receive from a specific stream in an array
            with allo.meta_for(P0) as i:
                a: float32 = fifo_A[i, 1].get()
                data += a
            for i in range(2):
                # Receive a block
                block: float32[M, N] = blocks.get()
                for m, n in allo.grid(M, N):
                    local_B[i * M + m, n] = block[m, n] + data

    a, b = random(2 * M, N), zeros(2 * M, N)
    u, v = RNG.integers(0, 2**16, M).astype(np.uint16), np.zeros(M, np.uint16)
    df.build(top, target="simulator")(a, b, u, v)
    np.testing.assert_allclose(b, a + (a[0, 0] + a[0, 0] + a[1, 0]), rtol=1e-6)
    np.testing.assert_array_equal(v, u + np.uint16(1))


def test_stream_of_int16_blocks_and_of_rows() -> None:
    M, N = 4, 4

    @df.region()
    def top(A: int16[M, N], B: int16[M, N]):
        pipe: Stream[int16[M, N], 4]
        # Stream of 1D blocks
        rows: Stream[int16[N], 4]

        @df.kernel(mapping=[1], args=[A])
        def send(local_A: int16[M, N]):
            pipe.put(local_A)

        @df.kernel(mapping=[1])
        def turn():
            block: int16[M, N] = pipe.get()
            for i in range(M):
                rows.put(block[i, :])

        @df.kernel(mapping=[1], args=[B])
        def receive(local_B: int16[M, N]):
            for i in range(M):
                local_B[i, :] = rows.get()

    a, b = RNG.integers(-99, 99, (M, N)).astype(np.int16), np.zeros((M, N), np.int16)
    df.build(top, target="simulator")(a, b)
    np.testing.assert_array_equal(b, a)


# -- systolic array, tiles -------------------------------------------------------------------------------------------


def test_systolic_array() -> None:
    M, N, K = 4, 3, 8
    P0, P1 = M + 2, N + 2

    @df.region()
    def top(A: float32[M, K], B: float32[K, N], C: float32[M, N]):
        fifo_A: Stream[float32, 4][P0, P1]
        fifo_B: Stream[float32, 4][P0, P1]

        @df.kernel(mapping=[P0, P1], args=[A, B, C])
        def gemm(local_A: float32[M, K], local_B: float32[K, N], local_C: float32[M, N]):
            i, j = df.get_pid()

            # Corner: skip
            with allo.meta_if(i in {0, M + 1} and j in {0, N + 1}):
                pass

            # Left edge: load A
            with allo.meta_elif(j == 0):
                for k in range(K):
                    fifo_A[i, j + 1].put(local_A[i - 1, k])

            # Top edge: load B
            with allo.meta_elif(i == 0):
                for k in range(K):
                    fifo_B[i + 1, j].put(local_B[k, j - 1])

            # Right edge: drain A
            with allo.meta_elif(j == N + 1 and i > 0):
                for k in range(K):
                    a: float32 = fifo_A[i, j].get()

            # Bottom edge: drain B
            with allo.meta_elif(i == M + 1 and j > 0):
                for k in range(K):
                    b: float32 = fifo_B[i, j].get()

            # Interior: compute and forward
            with allo.meta_else():
                c: float32 = 0
                for k in range(K):
                    a: float32 = fifo_A[i, j].get()
                    b: float32 = fifo_B[i, j].get()
                    c += a * b
                    fifo_A[i, j + 1].put(a)  # Forward to right neighbor
                    fifo_B[i + 1, j].put(b)  # Forward to bottom neighbor
                local_C[i - 1, j - 1] = c

    a, b, c = random(M, K), random(K, N), zeros(M, N)
    sim_mod = df.build(top, target="simulator")
    sim_mod(a, b, c)
    np.testing.assert_allclose(c, np.dot(a, b), atol=1e-5)


def test_tiled_computation() -> None:
    M, N, K = 32, 32, 32
    P0, P1 = 2, 2
    Mt, Nt = M // P0, N // P1

    @df.region()
    def top(A: float32[M, K], B: float32[K, N], C: float32[M, N]):
        @df.kernel(mapping=[P0, P1], args=[A, B, C])
        def gemm(local_A: float32[M, K], local_B: float32[K, N], local_C: float32[M, N]):
            pi, pj = df.get_pid()
            # Each kernel computes its tile
            for i in range(pi * Mt, (pi + 1) * Mt):
                for j in range(pj * Nt, (pj + 1) * Nt):
                    for k in range(K):
                        local_C[i, j] += local_A[i, k] * local_B[k, j]

    a, b, c = random(M, K), random(K, N), zeros(M, N)
    df.build(top)(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)


# -- hierarchical regions --------------------------------------------------------------------------------------------

M, N, K = 16, 16, 16

PARAMETERISED = """
@df.region()
def inner[P0, P1](A: float32[M, K], B: float32[K, N], C: float32[M, N]):
    @df.kernel(mapping=[P0, P1], args=[A, B, C])
    def gemm(local_A: float32[M, K], local_B: float32[K, N], local_C: float32[M, N]):
        pi, pj = df.get_pid()
        Mt: ConstExpr[int32] = M // P0
        Nt: ConstExpr[int32] = N // P1
        for i in range(pi * Mt, (pi + 1) * Mt):
            for j in range(pj * Nt, (pj + 1) * Nt):
                for k in range(K):
                    local_C[i, j] += local_A[i, k] * local_B[k, j]

@df.region()
def top(A: float32[M, K], B: float32[K, N], C1: float32[M, N], C2: float32[M, N]):
    @df.kernel(mapping=[2], args=[A, B, C1, C2])
    def wrapper(local_A: float32[M, K], local_B: float32[K, N],
               local_C1: float32[M, N], local_C2: float32[M, N]):
        i = df.get_pid()
        with allo.meta_if(i == 0):
            inner[2, 2](local_A, local_B, local_C1)  # 2x2 grid
        with allo.meta_if(i == 1):
            inner[4, 4](local_A, local_B, local_C2)  # 4x4 grid
"""

# Before Python 3.12, a region has type parameters by being made by a function of them.
BY_FUNCTION = PARAMETERISED.replace("[2, 2](", "(2, 2)(").replace("[4, 4](", "(4, 4)(")
BY_FUNCTION = re.sub(
    r"@df.region\(\)\ndef inner\[P0, P1\](.*?)\n\n",
    lambda found: (
        "def inner(P0, P1):\n    @df.region()\n    def inner"
        + found.group(1).replace("\n", "\n    ")
        + "\n    return inner\n\n"
    ),
    BY_FUNCTION,
    count=1,
    flags=re.DOTALL,
)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            PARAMETERISED,
            marks=pytest.mark.skipif(sys.version_info < (3, 12), reason="type parameters are Python 3.12 syntax"),
        ),
        BY_FUNCTION,
    ],
    ids=["type-parameters", "function"],
)
def test_hierarchical_regions(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hierarchical.py"
    path.write_text(text)
    names = dict(globals())
    exec(compile(text, str(path), "exec"), names)
    mod = df.build(names["top"], target="simulator")
    assert [k.mesh for k in mod.program.kernels] == [(2, 2), (4, 4)]
    a, b, c1, c2 = random(M, K), random(K, N), zeros(M, N), zeros(M, N)
    mod(a, b, c1, c2)
    np.testing.assert_allclose(c1, a @ b, rtol=1e-5)
    np.testing.assert_allclose(c2, a @ b, rtol=1e-5)


# -- building --------------------------------------------------------------------------------------------------------


@df.region()
def producer_consumer(A: float32[M, N], B: float32[M, N]):
    pipe: Stream[float32, 4]

    @df.kernel(mapping=[1], args=[A])
    def producer(local_A: float32[M, N]):
        for i, j in allo.grid(M, N):
            out: float32 = local_A[i, j]
            pipe.put(out)

    @df.kernel(mapping=[1], args=[B])
    def consumer(local_B: float32[M, N]):
        for i, j in allo.grid(M, N):
            data = pipe.get()
            local_B[i, j] = data + 1


@pytest.mark.parametrize("options", [{"target": "simulator"}, {}, {"target": "aie"}])
def test_build_and_run(options: dict[str, str]) -> None:
    a, b = random(M, N), zeros(M, N)
    sim_mod = df.build(producer_consumer, **options)
    sim_mod(a, b)
    np.testing.assert_allclose(b, a + 1)


def test_generate_hls_code() -> None:
    mod = df.build(producer_consumer, target="vhls")
    assert "#pragma HLS dataflow" in mod.hls_code


@pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")
def test_run_hls_simulation(tmp_path: Path) -> None:
    a, b = random(M, N), zeros(M, N)
    mod = df.build(producer_consumer, target="vitis_hls", mode="csim", project=str(tmp_path / "myproject.prj"))
    mod(a, b)
    np.testing.assert_allclose(b, a + 1)


@pytest.mark.skipif(shutil.which("vitis_hls") is not None, reason="would take hours")
def test_hardware_emulation_needs_the_tool(tmp_path: Path) -> None:
    mod = df.build(producer_consumer, target="vitis_hls", mode="hw_emu", project=str(tmp_path / "myproject.prj"))
    with pytest.raises(allo_dse.AlloDseError, match="needs AMD Vitis"):
        mod(random(M, N), zeros(M, N))
    assert (tmp_path / "myproject.prj" / "kernel.cpp").exists()


def test_customization(tmp_path: Path) -> None:
    @df.region()
    def top(A: float32[M, K], B: float32[K, N], C: float32[M, N]):
        @df.kernel(mapping=[2, 2], args=[A, B, C])
        def gemm(local_A: float32[M, K], local_B: float32[K, N], local_C: float32[M, N]):
            pi, pj = df.get_pid()
            for i in range(pi * M // 2, (pi + 1) * M // 2):
                for j in range(pj * N // 2, (pj + 1) * N // 2):
                    for k in range(K):
                        local_C[i, j] += local_A[i, k] * local_B[k, j]

    s = df.customize(top)
    s.partition("top:A", dim=1, factor=2)
    s.partition("top:B", dim=2, factor=2)
    s.partition("top:C", dim=0, factor=2)
    mod = s.build(target="simulator")
    assert [str(directive) for directive in mod.program.schedule] == [
        "partition(top:A, dim=1, factor=2, partition_type=complete)",
        "partition(top:B, dim=2, factor=2, partition_type=complete)",
        "partition(top:C, dim=0, factor=2, partition_type=complete)",
    ]
    a, b, c = random(M, K), random(K, N), zeros(M, N)
    mod(a, b, c)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5)
    mod = s.build(target="vitis_hls", mode="hw_emu", project=str(tmp_path / "myproject.prj"))
    assert "#pragma HLS array_partition variable=local_A dim=1 complete" in mod.hls_code


# -- layouts ---------------------------------------------------------------------------------------------------------

Ty = int32


def test_layout_of_a_vector() -> None:
    M = 16
    # Vector of size M, sharded across 4 PEs
    Ly = [S(0)]  # Shard on mesh axis 0

    @df.region()
    def top(A: int32[M], B: int32[M]):
        @df.kernel(mapping=[4], args=[A, B])
        def core(local_A: int32[M] @ Ly, local_B: int32[M] @ Ly):
            # Each PE gets M/4 elements
            local_B[:] = allo.add(local_A, 1)

    a, b = RNG.integers(-99, 99, M).astype(np.int32), np.zeros(M, np.int32)
    mod = df.build(top)
    mod(a, b)
    np.testing.assert_array_equal(b, a + 1)
    assert [p.tile_shape for p in mod.program.kernels[0].classes[0].tensor_ports] == [(4,), (4,)]


@pytest.mark.parametrize(("layout", "tile"), [([S(0), R], (4, 8)), ([R, S(0)], (16, 2))])
def test_layout_of_rows_and_columns(layout: Any, tile: tuple[int, int]) -> None:
    M, N = 16, 8

    @df.region()
    def top(A: Ty[M, N]):
        @df.kernel(mapping=[4], args=[A])
        def kernel(local_A: Ty[M, N] @ layout):
            p = df.get_pid()
            local_A[:, :] = p

    a = np.zeros((M, N), np.int32)
    mod = df.build(top)
    mod(a)
    expected = np.repeat(np.arange(4), tile[0] if tile[0] < M else tile[1])
    np.testing.assert_array_equal(a, np.broadcast_to(expected[:, None] if tile[0] < M else expected, (M, N)))
    assert mod.program.kernels[0].classes[0].tensor_ports[0].tile_shape == tile


def test_layout_of_a_gemm() -> None:
    M, N, K = 64, 64, 64
    P0, P1 = 2, 2  # 2x2 PE grid

    # A[M, K]: shard M on axis 1 (for row parallelism), replicate K
    LyA = [S(1), R]
    # B[K, N]: replicate K, shard N on axis 0 (for column parallelism)
    LyB = [R, S(0)]
    # C[M, N]: shard both dimensions
    LyC = [S(1), S(0)]

    @df.region()
    def top(A: Ty[M, K], B: Ty[K, N], C: Ty[M, N]):
        @df.kernel(mapping=[P0, P1], args=[A, B, C])
        def gemm(local_A: Ty[M, K] @ LyA, local_B: Ty[K, N] @ LyB, local_C: Ty[M, N] @ LyC):
            # Each PE computes a tile of C
            local_C[:, :] = allo.matmul(local_A, local_B)

    a, b = (RNG.integers(-9, 9, (64, 64)).astype(np.int32) for _ in range(2))
    c = np.zeros((64, 64), np.int32)
    df.build(top)(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_layout_of_a_split_k_gemm() -> None:
    M, N, K = 64, 64, 128
    Pk, Pm, Pn = 4, 2, 2  # 4x2x2 PE grid
    Mt, Nt = M // Pm, N // Pn

    # A[M, K]: shard M on axis 1, shard K on axis 0
    LyA = [S(1), S(0)]
    # B[K, N]: shard K on axis 0, shard N on axis 2
    LyB = [S(0), S(2)]
    # C[M, N]: shard M on axis 1, shard N on axis 2
    LyC = [S(1), S(2)]

    @df.region()
    def top(A: Ty[M, K], B: Ty[K, N], C: Ty[M, N]):
        pipe: Stream[Ty[Mt, Nt], 2][Pk - 1, Pm, Pn]

        @df.kernel(mapping=[Pk, Pm, Pn], args=[A, B, C])
        def gemm(local_A: Ty[M, K] @ LyA, local_B: Ty[K, N] @ LyB, local_C: Ty[M, N] @ LyC):
            pk, pm, pn = df.get_pid()
            # Each PE along the K dimension computes a partial sum
            total: Ty[Mt, Nt] = allo.matmul(local_A, local_B)
            with allo.meta_if(pk > 0):
                total[:, :] = allo.add(total, pipe[pk - 1, pm, pn].get())
            with allo.meta_if(pk < Pk - 1):
                pipe[pk, pm, pn].put(total)
            with allo.meta_else():
                local_C[:, :] = total

    a, b = RNG.integers(-9, 9, (M, K)).astype(np.int32), RNG.integers(-9, 9, (K, N)).astype(np.int32)
    c = np.zeros((M, N), np.int32)
    df.build(top)(a, b, c)
    np.testing.assert_array_equal(c, a @ b)


def test_local_shapes() -> None:
    @df.region()
    def top(A: float32[64, 64]):
        @df.kernel(mapping=[4, 2], args=[A])
        def core(a: float32[64, 64] @ [S(0), S(1)]):
            a[:, :] = 1

    port = df.build(top).program.kernels[0].classes[0].tensor_ports[0]
    assert port.tile_shape == (16, 32)  # [64 / 4, 64 / 2]


def test_nothing_else_stands_in_a_region() -> None:
    @df.region()
    def top(A: float32[M]):
        A[0] = 1

    with pytest.raises(allo_dse.ProgramError, match="a region contains only stream declarations and kernels"):
        df.build(top)
