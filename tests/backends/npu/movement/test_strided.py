"""Tensors that lie in another order: channels bring the same words in the same turn as from one that is rearranged."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.movement.movement import WORD_BYTES, AccessPattern
from allo_dse.backends.npu.movement.strided import words_in_a_row
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.device.device import NpuDevice
from tests.support.programs import gemm_program

from .test_transport_plan import gemm

NPU = NpuDevice.load("npu1_4col")
PROGRAM = gemm_program(M=256, N=128, K=128, Pm=16, Pn=8, Pk=4)
A = next(tensor for tensor in PROGRAM.tensors if tensor.name == "A")
SIZE = A.dtype.bits // 8


def walk(pattern: AccessPattern) -> IntArray:
    """The words of a walk in turn, relative to the first."""
    loops = [*pattern.dims, (pattern.repeat, pattern.repeat_step)]
    for trips, step in zip(pattern.host_loops, pattern.host_steps, strict=True):
        assert step is not None
        loops.append((trips, step))
    found: IntArray = np.zeros(1, np.int64)
    for trips, step in loops:
        found = (step * np.arange(trips)[:, None] + found).reshape(-1)
    return found


def folded(m: int, n: int) -> NpuMapping:
    return NpuMapping(gemm(PROGRAM, 1, m, n), NPU)


@st.composite
def orders(draw: st.DrawFn) -> IntArray:
    """Blocks of a matrix, of a larger one sometimes, in another order; each is some elements in a row."""
    inside: int = draw(st.sampled_from([1, 2, 4, 32, 128]))
    rows, columns = A.shape
    more: int = draw(st.sampled_from([0, 0, inside]))
    split = (draw(st.sampled_from([1, 2, 16, rows])), columns // inside)
    shape = (split[0], rows // split[0], split[1])
    permutation = draw(st.permutations(range(3)))
    places = (inside + more) * np.arange(rows * split[1]).reshape([shape[p] for p in permutation])
    blocks = places.transpose(np.argsort(permutation)).reshape(-1)
    return (blocks[:, None] + np.arange(inside)).reshape(-1)


@given(orders(), st.sampled_from([(1, 4), (2, 2), (4, 1), (4, 4)]))
def test_what_arrives_is_what_would_arrive_of_a_rearranged_tensor(order: IntArray, fold: tuple[int, int]) -> None:
    mapping = folded(*fold)
    found = mapping.reading({"A": order})
    assume(not isinstance(found, str))
    assert not isinstance(found, str)
    for before, after in zip(mapping.transport.transfers, found.transfers, strict=True):
        if after.tensor != "A":
            assert after == before
            continue
        first = mapping.transport.flows[before.flows[0]].first_byte
        bytes_ = (first + WORD_BYTES * walk(before.pattern)) // SIZE
        lies = order[bytes_] * SIZE // WORD_BYTES
        assert np.array_equal(walk(after.pattern), lies - lies[0])
        assert after.dram_bytes == before.dram_bytes
        # Runs of contiguous words are as long as is told, in each tile.
        words = after.tile_bytes // WORD_BYTES
        jumps = np.flatnonzero(np.diff(lies[:words]) != 1) + 1
        assert after.run_bytes == WORD_BYTES * (int(np.gcd.reduce(jumps)) if len(jumps) else words)
        assert after.lies_in_bytes == (order.max() + 1) * SIZE


def test_a_tensor_that_lies_as_it_is_said_is_walked_as_before() -> None:
    mapping = folded(4, 4)
    found = mapping.reading({"A": np.arange(A.shape[0] * A.shape[1])})
    assert not isinstance(found, str)
    assert [(t.pattern, t.run_bytes) for t in found.transfers] == [
        (t.pattern, t.run_bytes) for t in mapping.transport.transfers
    ]
    assert found.flows == mapping.transport.flows


@pytest.mark.parametrize(
    ("order", "why"),
    [
        pytest.param(np.arange(256 * 128).reshape(128, 256).T.reshape(-1), "no words in DRAM", id="transposed"),
        pytest.param(np.arange(256 * 128) + 1, "no words in DRAM", id="between words"),
        pytest.param(np.where(np.arange(256 * 128) == 7, -1, np.arange(256 * 128)), "nowhere", id="padded"),
        pytest.param(
            np.arange(256 * 128).reshape(-1, 2)[np.random.default_rng(0).permutation(128 * 128)].reshape(-1),
            "do not all lie alike", id="shuffled",
        ),
    ],
)  # fmt: skip
def test_what_no_channel_can_walk_is_refused(order: IntArray, why: str) -> None:
    found = folded(4, 4).reading({"A": order})
    assert isinstance(found, str)
    assert why in found
    assert found.startswith("A: ")


def test_runs_end_where_a_walk_jumps() -> None:
    pattern = AccessPattern(((8, 1), (4, 8), (2, 64)), 1, 0, (), ())
    assert words_in_a_row(pattern, 1024) == 32
    assert words_in_a_row(pattern, 16) == 16
