"""What lives around a call: results, state from call to call, types of arguments, vendor kernels, schedules."""


# Programs are written as users write them:
# ruff: noqa: F841

from __future__ import annotations

import math
import re
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.backend.aie import ExternalModule
from allo.ir.types import (
    Fixed,
    Int,
    Stateful,
    Stream,
    UFixed,
    UInt,
    float32,
    int4,
    int8,
    int16,
    int32,
)
from allo.ir.types import bool as bool_
from allo.utils import get_np_struct_type

from allo_dse.common.errors import ProgramWarning, SimulationError
from allo_dse.compiler import compile_region
from allo_dse.lang import ProgramError, define_external
from allo_dse.lang.storage import numpy_dtype

from .execute import simulate, verify_bodies

M, N = 8, 4
RNG = np.random.default_rng(0)


# -- results ---------------------------------------------------------------------------------------------------------


def scaled_sum(A: int32[M, N], k: int32) -> (int32[M, N], int32):
    """Two results."""
    B: int32[M, N] = 0
    total: int32 = 0
    for i, j in allo.grid(M, N):
        B[i, j] = A[i, j] * k
        total += B[i, j]
    return B, total


def product(A: float32[M, N], B: float32[N, M]) -> float32[M, M]:
    """One result, as an expression."""
    return allo.matmul(A, B)


def shifted(A: int32[M]) -> None:
    """No result."""
    for i in range(M):
        A[i] += 1


def test_functions_return_what_they_compute() -> None:
    a = RNG.integers(-9, 9, (M, N)).astype(np.int32)
    b, total = df.build(scaled_sum)(a, 3)
    np.testing.assert_array_equal(b, a * 3)
    assert total == a.sum() * 3
    assert isinstance(total, int)
    x, y = RNG.random((M, N), dtype=np.float32), RNG.random((N, M), dtype=np.float32)
    np.testing.assert_allclose(allo.customize(product).build()(x, y), x @ y, rtol=1e-6)
    out = np.zeros((M, M), np.float32)
    assert allo.customize(product).build()(x, y, out) is None
    np.testing.assert_allclose(out, x @ y, rtol=1e-6)
    v = np.arange(M, dtype=np.int32)
    assert df.build(shifted)(v) is None
    np.testing.assert_array_equal(v, np.arange(M) + 1)


# -- state -----------------------------------------------------------------------------------------------------------


def counter(x: int32) -> int32:
    """A function with a state of its own, wherever it is called."""
    calls: int32 @ Stateful = 0
    calls += 1
    return x + calls


@df.region()
def stateful(A: int32[N], B: int32[N, N]):
    @df.kernel(mapping=[N], args=[A, B])
    def core(a: int32[N], b: int32[N, N]):
        p = df.get_pid()
        total: Stateful[int32] = 100
        last: int32[N] @ Stateful = [1, 2, 3, 4]
        with allo.meta_if(p == 1):
            extra: int32 @ Stateful = p
            extra *= 2
            total += extra
        total += a[p]
        last[0] = last[0] + p
        for k in range(N):
            b[p, k] = total + last[k]
        b[p, 3] = counter(counter(0))


def test_state_lives_from_call_to_call_and_per_task() -> None:
    mod = df.build(stateful)
    a = np.array([1, 2, 3, 4], np.int32)
    for call in range(1, 4):
        b = np.zeros((N, N), np.int32)
        mod(a, b)
        total = 100 + call * a
        total[1] += sum(2**k for k in range(1, call + 1))
        expected = total[:, None] + np.array([1, 2, 3, 4])
        expected[:, 0] += call * np.arange(N)
        expected[:, 3] = 2 * call
        np.testing.assert_array_equal(b, expected)
    again = np.zeros((N, N), np.int32)
    df.build(stateful)(a, again)
    assert again[0, 1] == 100 + 1 + 2


def test_state_belongs_to_the_class() -> None:
    program = compile_region(stateful)
    assert [[(v.name, v.shape) for v in c.state] for c in program.kernels[0].classes] == [
        [("total", ()), ("last", (N,)), ("calls", ()), ("calls", ())],
        [("total", ()), ("last", (N,)), ("extra", ()), ("calls", ()), ("calls", ())],
    ]
    verify_bodies(program)


# -- types of arguments ----------------------------------------------------------------------------------------------


def wide_region(bits: int, signed: bool) -> Any:
    T = Int(bits) if signed else UInt(bits)

    @df.region()
    def top(A: T[M], B: T[M], C: T[M]):
        pipe: Stream[T, 2]

        @df.kernel(mapping=[1], args=[A, B])
        def send(a: T[M], b: T[M]):
            for i in range(M):
                pipe.put(a[i] * b[i] - 1)

        @df.kernel(mapping=[1], args=[C])
        def receive(c: T[M]):
            for i in range(M):
                c[i] = pipe.get()

    return compile_region(top)


def to_struct(values: list[int], bits: int) -> Any:
    size = math.ceil(bits / 8)
    raw = b"".join((v % (1 << (8 * size))).to_bytes(size, "little") for v in values)
    return np.frombuffer(bytearray(raw), get_np_struct_type(bits))


def from_struct(array: Any, signed: bool) -> list[int]:
    size = array.dtype.itemsize
    raw = array.tobytes()
    return [int.from_bytes(raw[i : i + size], "little", signed=signed) for i in range(0, len(raw), size)]


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("bits", [65, 96, 128, 200, 256, 512, 1024])
def test_wide_integers_as_structures_and_as_objects(bits: int, signed: bool) -> None:
    program = wide_region(bits, signed)
    rng = np.random.default_rng(bits)
    low = -(1 << (bits - 1)) if signed else 0
    a, b = ([low + int.from_bytes(rng.bytes(bits // 8 + 1), "little") % (1 << bits) for _ in range(M)] for _ in "ab")
    wrapped = [(x * y - 1 - low) % (1 << bits) + low for x, y in zip(a, b, strict=True)]
    c = to_struct([0] * M, bits)
    simulate(program, to_struct(a, bits), to_struct(b, bits), c)
    assert from_struct(c, signed) == wrapped
    objects = np.zeros(M, object)
    simulate(program, np.array(a, object), np.array(b, object), objects)
    assert objects.tolist() == wrapped


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(-8, 7), min_size=M, max_size=M), st.lists(st.integers(-8, 7), min_size=M, max_size=M))
def test_int4_arrays(a: list[int], b: list[int]) -> None:
    c, d = np.zeros(M, ml_dtypes.int4), np.zeros(M, np.int32)
    simulate(INT4, np.array(a, ml_dtypes.int4), np.array(b, ml_dtypes.int4), c, d)
    total = [x + y for x, y in zip(a, b, strict=True)]
    assert c.astype(int).tolist() == [(t + 8) % 16 - 8 for t in total]
    assert d.tolist() == [x * y for x, y in zip(a, b, strict=True)]


@df.region()
def int4_region(A: int4[M], B: int4[M], C: int4[M], D: int32[M]):
    @df.kernel(mapping=[1], args=[A, B, C, D])
    def core(a: int4[M], b: int4[M], c: int4[M], d: int32[M]):
        for i in range(M):
            c[i] = a[i] + b[i]
            d[i] = a[i] * b[i]


INT4 = compile_region(int4_region)


@pytest.mark.parametrize(
    ("bits", "signed"), [(1, False), (3, True), (5, True), (7, False), (12, True), (33, True), (48, False)]
)
def test_odd_widths_as_arguments(bits: int, signed: bool) -> None:
    T = Int(bits) if signed else UInt(bits)

    @df.region()
    def top(A: T[M], B: T[M], C: Int(64)[M]):
        @df.kernel(mapping=[1], args=[A, B, C])
        def core(a: T[M], b: T[M], c: Int(64)[M]):
            for i in range(M):
                b[i] = a[i] + 1
                c[i] = a[i] if a[i] < b[i] else -1 - a[i]

    width = next(w for w in (8, 16, 32, 64) if bits <= w)
    kind = np.dtype(f"{'i' if signed else 'u'}{width // 8}")
    low, high = (-(1 << (bits - 1)), 1 << (bits - 1)) if signed else (0, 1 << bits)
    a = np.array([low, high - 1, 0, *RNG.integers(low, high, M - 3)]).astype(kind)
    b, c = np.zeros(M, kind), np.zeros(M, np.int64)
    simulate(compile_region(top), a, b, c)
    expected = [(int(x) + 1 - low) % (1 << bits) + low for x in a]
    assert b.tolist() == expected
    assert c.tolist() == [int(x) if x < y else -1 - int(x) for x, y in zip(a.tolist(), expected, strict=True)]


def test_bool_and_fixed_arguments() -> None:
    @df.region()
    def top(A: bool_[M], X: Fixed(16, 8)[M], Y: Fixed(16, 8)[M], U: UFixed(12, 4)[M]):
        @df.kernel(mapping=[1], args=[A, X, Y, U])
        def core(a: bool_[M], x: Fixed(16, 8)[M], y: Fixed(16, 8)[M], u: UFixed(12, 4)[M]):
            for i in range(M):
                y[i] = x[i] * u[i] if a[i] else -x[i]
                a[i] = not a[i]

    a = np.arange(M) % 3 == 0
    before = a.copy()
    x, u = RNG.random(M) * 8 - 4, RNG.random(M).astype(np.float32) * 8
    y = np.zeros(M, np.float32)
    simulate(compile_region(top), a, x, y, u)
    fixed, ufixed = np.floor(x * 256) / 256, np.floor(u * 16) / 16
    np.testing.assert_array_equal(y, np.where(before, np.floor(fixed * ufixed * 256) / 256, -fixed).astype(np.float32))
    np.testing.assert_array_equal(a, ~before)
    raw = np.zeros(M, np.int16)
    simulate(compile_region(top), before, (fixed * 256).astype(np.int16), raw, (ufixed * 16).astype(np.uint16))
    np.testing.assert_array_equal(raw, (y * 256).astype(np.int16))


def test_packed_arguments() -> None:
    """Four 8-bit numbers in each 32-bit one, and 32 of them in a structure."""

    @df.region()
    def top(A: Int(32)[M], P: UInt(256)[2], B: int8[M, 4], C: int16[2, 32]):
        @df.kernel(mapping=[1], args=[A, P, B, C])
        def core(a: Int(32)[M], p: UInt(256)[2], b: int8[M, 4], c: int16[2, 32]):
            for i, j in allo.grid(M, 4):
                b[i, j] = a[i][j * 8 : (j + 1) * 8]
            for i in range(2):
                word: UInt(256) = p[i]
                for j in range(32):
                    x: int8 = word[j * 8 : (j + 1) * 8]
                    c[i, j] = x * 3
                p[i][0:8] = 255

    bytes_ = RNG.integers(-128, 128, (M, 4)).astype(np.int8)
    packed = RNG.integers(-128, 128, (2, 32)).astype(np.int8)
    p = packed.view(get_np_struct_type(256)).reshape(2)
    b, c = np.zeros((M, 4), np.int8), np.zeros((2, 32), np.int16)
    simulate(compile_region(top), bytes_.view(np.int32).reshape(M), p, b, c)
    np.testing.assert_array_equal(b, bytes_)
    np.testing.assert_array_equal(c[:, 1:], packed[:, 1:].astype(np.int16) * 3)
    assert (packed[:, 0] == -1).all()


@pytest.mark.parametrize("bits", [1, 5, 8, 13, 32, 64, 100])
def test_reversed_bits(bits: int) -> None:
    @df.region()
    def top(A: UInt(bits)[M], B: UInt(bits)[M]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: UInt(bits)[M], b: UInt(bits)[M]):
            for i in range(M):
                b[i] = a[i].reverse()

    values = [int.from_bytes(np.random.default_rng(i).bytes(16), "little") % (1 << bits) for i in range(M)]
    a, b = np.array(values, object), np.zeros(M, object)
    if bits <= 64:
        width = next(w for w in (8, 16, 32, 64) if bits <= w)
        a, b = a.astype(f"u{width // 8}"), np.zeros(M, f"u{width // 8}")
    simulate(compile_region(top), a, b)
    assert [int(v) for v in b] == [int(f"{v:0{bits}b}"[::-1], 2) for v in values]


def test_wrong_wide_arguments() -> None:
    program = wide_region(256, True)
    with pytest.raises(SimulationError, match=r"argument A: expected bytes of int256 of shape \(8,\), got int64"):
        simulate(program, *(np.zeros(M, np.int64) for _ in range(3)))


def test_rows_that_are_too_many_are_not_used_and_it_is_said() -> None:
    @df.region()
    def top(A: int32[M, N], B: int32[M, N]):
        @df.kernel(mapping=[1], args=[A, B])
        def core(a: int32[M, N], b: int32[M, N]):
            for i, j in allo.grid(M, N):
                b[i, j] = a[i, j] + 1

    program, a = compile_region(top), np.arange((M + 3) * N, dtype=np.int32).reshape(M + 3, N)
    b = np.zeros((M, N), np.int32)
    with pytest.warns(ProgramWarning, match=f"argument A: only the first {M} of {M + 3} rows are used"):
        simulate(program, a, b)
    assert (b == a[:M] + 1).all()
    for wrong in ((M - 1, N), (M + 3, N + 1)):
        with pytest.raises(SimulationError, match="argument A: expected int32 of shape"):
            simulate(program, np.zeros(wrong, np.int32), b)


# -- vendor kernels --------------------------------------------------------------------------------------------------

norm = ExternalModule(top="layer_norm", impl_path="norm.cc", input_idx=[0, 1], output_idx=[2])
both = ExternalModule(top="sum_and_sort", impl_path="sort.cc", input_idx=[0], output_idx=[0, 1])


def external_region(vendor: Any) -> Any:
    @df.region()
    def top(A: float32[M, N], W: float32[N], B: float32[M, N]):
        pipe: Stream[float32[N], 2][2]

        @df.kernel(mapping=[2], args=[A, W])
        def core(a: float32[M, N] @ [allo.memory.Layout.Shard(0), allo.memory.Layout.Replicate], w: float32[N]):
            p = df.get_pid()
            out: float32[M // 2, N] = 0
            vendor(a, w, out)
            for i in range(M // 2):
                pipe[p].put(out[i, :])

        @df.kernel(mapping=[2], args=[B])
        def store(b: float32[M, N] @ [allo.memory.Layout.Shard(0), allo.memory.Layout.Replicate]):
            p = df.get_pid()
            for i in range(M // 2):
                b[i, :] = pipe[p].get()

    return top


def test_vendor_kernels_mean_what_the_study_says() -> None:
    def layer_norm(x: Any, weight: Any) -> Any:
        return (x - x.mean(1, keepdims=True)) / x.std(1, keepdims=True) * weight

    mod = df.build(external_region(norm))
    a, w, b = RNG.random((M, N), dtype=np.float32), RNG.random(N, dtype=np.float32), np.zeros((M, N), np.float32)
    define_external("layer_norm", layer_norm, cycles=1)
    mod(a, w, b)
    np.testing.assert_allclose(b, layer_norm(a, w), rtol=1e-5)
    quick = mod.result.cycles
    define_external("layer_norm", layer_norm, cycles=lambda x, weight, out: 10 * math.prod(x))
    mod(a, w, b)
    assert mod.result.cycles - quick == 10 * M // 2 * N - 1


def test_vendor_kernels_with_several_outputs_parts_and_scalars() -> None:
    scale = ExternalModule(top="scale_rows", impl_path="s.cc", input_idx=[0, 1], output_idx=[2])

    @df.region()
    def top(A: int32[M, N], T: int32[1], B: int32[M, N]):
        @df.kernel(mapping=[1], args=[A, T, B])
        def core(a: int32[M, N], t: int32[1], b: int32[M, N]):
            both(a[2:6, :], t)
            for i in range(2):
                scale(a[4 * i : 4 * (i + 1), :] + 1, i + 3, b[4 * i : 4 * (i + 1), :])

    define_external("sum_and_sort", lambda x: (np.sort(x, axis=None).reshape(x.shape), x.sum().reshape(1)))
    define_external("scale_rows", lambda x, k: x * k)
    a = RNG.integers(-99, 99, (M, N)).astype(np.int32)
    t, b, expected = np.zeros(1, np.int32), np.zeros((M, N), np.int32), a.copy()
    expected[2:6] = np.sort(a[2:6], axis=None).reshape(4, N)
    total = a[2:6].sum()
    program = compile_region(top)
    verify_bodies(program)
    simulate(program, a, t, b)
    np.testing.assert_array_equal(a, expected)
    assert t[0] == total
    np.testing.assert_array_equal(b, (expected + 1) * np.repeat([3, 4], 4)[:, None])
    ops = [op for op in program.kernels[0].classes[0].work if op.kind == "external"]
    assert [(op.name, op.shape) for op in ops] == [("sum_and_sort", (4, N)), ("scale_rows", (4, N))]


def test_errors_of_vendor_kernels() -> None:
    unknown = ExternalModule(top="never_defined", impl_path="n.cc", input_idx=[0, 1], output_idx=[2])
    arrays = RNG.random((M, N), dtype=np.float32), RNG.random(N, dtype=np.float32), np.zeros((M, N), np.float32)
    mod = df.build(external_region(unknown))
    with pytest.raises(SimulationError, match="external kernel `never_defined` has no meaning here") as caught:
        mod(*arrays)
    assert f"{__file__}:" in str(caught.value)
    define_external("never_defined", lambda x, w: x[0])
    with pytest.raises(SimulationError, match=re.escape("argument 2 has shape (4, 4), but (4,) is returned")):
        mod(*arrays)
    define_external("never_defined", lambda x, w: 1 // 0)
    with pytest.raises(SimulationError, match="the meaning of external kernel `never_defined` failed: ZeroDivision"):
        mod(*arrays)
    with pytest.raises(ProgramError, match="called with 3 arguments, but reads"):
        df.build(external_region(ExternalModule(top="x", impl_path="x.cc", input_idx=[0], output_idx=[2])))


# -- asking streams how full they are --------------------------------------------------------------------------------


def test_operations_that_do_not_wait() -> None:
    @df.region()
    def top(A: int32[M], B: int32[M]):
        pipe: Stream[int32, 2]
        rows: Stream[int32[N], 2]

        @df.kernel(mapping=[1], args=[A])
        def send(a: int32[M]):
            i: int32 = 0
            while i < M:
                if pipe.try_put(a[i]):
                    i += 1
            row: int32[N] = 7
            while rows.full():
                pass
            sent = rows.try_put(row)

        @df.kernel(mapping=[1], args=[B])
        def receive(b: int32[M]):
            i: int32 = 0
            while i < M:
                value, ok = pipe.try_get()
                if ok:
                    b[i] = value
                    i += 1
            while rows.empty():
                pass
            row, ok = rows.try_get()
            b[0] += row[0]

    program = compile_region(top)
    verify_bodies(program)
    assert all(c.polls for k in program.kernels for c in k.classes)
    assert {p.tokens for k in program.kernels for p in k.classes[0].stream_ports} == {None}
    text = "".join(c.body.mlir for k in program.kernels for c in k.classes)
    for name in ("try_get", "try_put", "empty", "full", "try_get_block", "try_put_block"):
        assert f'"df.{name}"' in text
    from allo_dse.common.mlir import dialect

    a, b = np.arange(M, dtype=np.int32), np.zeros(M, np.int32)
    if hasattr(dialect, "TryGet"):
        simulate(program, a, b)
        assert b.tolist() == [7, *range(1, M)]
    else:
        with pytest.raises(SimulationError, match="is asked how many tokens it holds") as caught:
            simulate(program, a, b)
        assert f"{__file__}:" in str(caught.value)


# -- schedules -------------------------------------------------------------------------------------------------------


@df.region()
def scheduled(A: int32[M, N], B: int32[M, N]):
    pipe: Stream[int32[N], 2]

    @df.kernel(mapping=[1], args=[A])
    def send(a: int32[M, N]):
        for i in range(M):
            pipe.put(a[i, :])

    @df.kernel(mapping=[1], args=[B])
    def receive(b: int32[M, N]):
        buffer: int32[N]
        for i, j in allo.grid(M, N, name="all"):
            if j == 0:
                buffer[:] = pipe.get()
            b[i, j] = buffer[j]


def test_schedules_become_attributes() -> None:
    s = df.customize(scheduled)
    s.partition("scheduled:A", dim=2, factor=2)
    s.partition("receive:buffer")
    s.partition("receive_0:b", dim=1, factor=4, partition_type="cyclic")
    s.pipeline("receive:j", initiation_interval=2)
    s.unroll("send:i", factor=2)
    s.pipeline("receive:all")
    mod = s.build()
    assert [(d.kind, d.scope, d.name) for d in mod.program.schedule] == [
        ("partition", "scheduled", "A"),
        ("partition", "receive", "buffer"),
        ("partition", "receive_0", "b"),
        ("pipeline", "receive", "j"),
        ("unroll", "send", "i"),
        ("pipeline", "receive", "all"),
    ]
    assert mod.program.schedule[2].options["partition_type"] == "cyclic"
    a, b = RNG.integers(-9, 9, (M, N)).astype(np.int32), np.zeros((M, N), np.int32)
    mod(a, b)
    np.testing.assert_array_equal(b, a)


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (lambda s: s.partition("scheduled:Q"), "partition: `scheduled` has no array `Q`\n  hint: known: A, B, pipe"),
        (lambda s: s.partition("recieve:b"), "has no region or kernel `recieve`\n  hint: did you mean `receive`?"),
        (lambda s: s.partition("scheduled:A", dim=3), "there is no dimension 3; `scheduled:A` has 2 dimensions"),
        (lambda s: s.partition("scheduled:A", dim=1, factor=9), "9 banks for 8 elements"),
        (lambda s: s.partition("scheduled:A", factor=-1), "factor must be an integer of at least 0, not -1"),
        (lambda s: s.partition("scheduled:A", partition_type="odd"), "unknown partition_type 'odd'"),
        (lambda s: s.pipeline("receive:jj"), "pipeline: `receive` has no loop `jj`\n  hint: did you mean `j`?"),
        (
            lambda s: s.pipeline("receive:j", initiation_interval=0),
            "initiation_interval must be an integer of at least 1",
        ),
        (lambda s: s.unroll("send:k"), "unroll: `send` has no loop `k`"),
        (
            lambda s: s.blocking("send:k"),
            "`scheduled` has no array `blocking`, and there is no schedule primitive of that name",
        ),
    ],
)
def test_wrong_schedules(apply: Any, message: str) -> None:
    def build() -> None:
        s = df.customize(scheduled)
        apply(s)
        s.build()

    with pytest.raises(ProgramError) as caught:
        build()
    assert message in f"{caught.value.message}\n  hint: {caught.value.hint}"
    assert caught.value.file == __file__
    assert "s.build()" not in caught.value.source_line


# -- arrays of other types ---------------------------------------------------------------------------------------------


@df.region()
def increments(A: int8[2, 4], B: float32[2, 4]):
    @df.kernel(mapping=[1], args=[A, B])
    def core(a: int8[2, 4], b: float32[2, 4]):
        for i, j in allo.grid(2, 4):
            a[i, j] = a[i, j] + 1
            b[i, j] = b[i, j] + 0.5


@pytest.mark.parametrize("integers", [np.int8, np.uint8, np.int16, np.int64])
@pytest.mark.parametrize("floats", [np.float32, np.float64])
@pytest.mark.parametrize("flat", [False, True])
def test_wider_and_flat_arrays_are_converted_there_and_back(integers: Any, floats: Any, flat: bool) -> None:
    shape = (8,) if flat else (2, 4)
    a, b = np.arange(8).astype(integers).reshape(shape), np.arange(8).astype(floats).reshape(shape)
    simulate(compile_region(increments), a, b)
    assert a.ravel().tolist() == list(range(1, 9))
    assert b.ravel().tolist() == [i + 0.5 for i in range(8)]
    assert (a.dtype, b.dtype) == (np.dtype(integers), np.dtype(floats))


def test_values_are_never_cut_off() -> None:
    a, b = np.full((2, 4), 128), np.zeros((2, 4), np.float32)
    with pytest.raises(SimulationError, match="argument A: 128 does not fit int8") as error:
        simulate(compile_region(increments), a, b)
    assert "-128 to 127" in error.value.hint


# -- functions ---------------------------------------------------------------------------------------------------------


def test_functions_without_parameters_and_without_results() -> None:
    limit = 3

    def count() -> int32[4]:
        result: int32[4] = [0, 1, limit, 0]
        result[3], result[0] = limit * 2, 9
        return result

    def nothing(A: int32[4]) -> None:
        A[0] = 5
        return None

    a = np.zeros(4, np.int32)
    assert allo.customize(count).build()().tolist() == [9, 1, 3, 6]
    assert allo.customize(nothing).build()(a) is None
    assert a[0] == 5


def test_steps_that_data_gives() -> None:
    def sieve(A: int32[32], first: int32) -> None:
        for i in range(first, 32, first):
            A[i] += 1

    a = np.zeros(32, np.int32)
    module = allo.customize(sieve).build()
    for step in (2, 3, 40):
        module(a, step)
    assert a.tolist() == [(i > 0 and i % 2 == 0) + (i > 0 and i % 3 == 0) for i in range(32)]


@pytest.mark.parametrize("dtype", [int8, int32, UInt(8), UInt(64), Int(100)])
def test_divisions_that_trap_in_processors_give_the_dividend(dtype: Any) -> None:
    def divide(A: dtype[2], B: dtype[2]) -> (dtype[2], dtype[2]):
        floor: dtype[2]
        whole: dtype[2] = allo.div(A, B)
        for i in range(2):
            floor[i] = A[i] // B[i]
        return floor, whole

    smallest = -(1 << dtype.bits - 1) if dtype.is_signed else 7
    kind = object if dtype.bits > 64 else None
    a, b = np.array([9, smallest], kind), np.array([0, -1 if dtype.is_signed else 0], kind)
    numpy_type = kind or numpy_dtype(dtype)
    results = [np.zeros(2, numpy_type), np.zeros(2, numpy_type)]
    allo.customize(divide).build()(a.astype(numpy_type), b.astype(numpy_type), *results)
    assert results[0].tolist()[0] == results[1].tolist()[0] == 9
    assert results[1].tolist()[1] == smallest


def test_odd_programs_are_warned_about_where_they_are_written() -> None:
    @df.region()
    def top(A: int32[4], Unused: int32[4]):
        @df.kernel(mapping=[1], args=[A])
        def core(a: int32[4]):
            a[0] = 1

    with pytest.warns(ProgramWarning, match="argument `Unused` of region `top` is never used") as caught:
        df.build(top, target="simulator")
    assert caught[0].filename == __file__


def test_arguments_are_named_by_the_schedule() -> None:
    def scaled(A: int32[8]) -> int32[8]:
        B: int32[8] = 0
        for i in range(8):
            B[i] = A[i] * 2
        return B

    s = allo.customize(scaled)
    s.partition(s.A, dim=1, factor=2)
    (array,) = s.primitives[0].args
    assert (array.function, array.name) == ("scaled", "A")
    assert s.build()(np.arange(8, dtype=np.int32)).tolist() == list(range(0, 16, 2))
    with pytest.raises(ProgramError, match="there is no schedule primitive of that name"):
        s.rotate("i")


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([40, 65, 100, 128, 129, 300]), st.data())
def test_divisions_of_any_width_are_pythons(bits: int, data: st.DataObject) -> None:
    dtype = Int(bits)

    def divide(A: dtype[1], B: dtype[1]) -> (dtype[1], dtype[1]):
        floor: dtype[1]
        rest: dtype[1]
        floor[0] = A[0] // B[0]
        rest[0] = A[0] % B[0]
        return floor, rest

    numbers = st.integers(-(1 << bits - 1) + 1, (1 << bits - 1) - 1)
    a, b = data.draw(numbers), data.draw(numbers.filter(bool))
    kind = object if bits > 64 else np.int64
    floor, rest = np.zeros(1, kind), np.zeros(1, kind)
    allo.customize(divide).build()(np.array([a], kind), np.array([b], kind), floor, rest)
    assert (floor[0], rest[0]) == divmod(a, b)
