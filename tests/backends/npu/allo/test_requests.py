"""Requests that the host queues for the transfers of one iteration."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.allo.interfaces import Places
from allo_dse.backends.npu.allo.rule import Subject
from allo_dse.backends.npu.allo.target import ALLO
from allo_dse.backends.npu.allo.transfers import (
    Queue,
    TransferRun,
    full_queues,
    longest_group,
    request_count,
    unanswered,
)
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.common.records import replace
from allo_dse.device.device import NpuDevice
from allo_dse.lang import install
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import load_program
from tests.support.programs import gemm_program

install()

from studies.vector_add_npu import vector_add

NPU = NpuDevice.of(NpuDevice.load("npu1_4col"))
TILE = (1, 1, 64, 64)


def runs(pk: int) -> tuple[TransferRun, ...]:
    program = gemm_program(Pm=4, Pn=4, Pk=pk)
    axes = (AxisFold(1, "block", "chain"), AxisFold(4), AxisFold(4))
    fold = MeshFold((KernelFold("gemm", axes),))
    found = Subject(NpuMapping(VMG.of(program).fold(fold), NPU)).transfers
    assert isinstance(found, tuple)
    return found


def test_tiles_in_a_row_are_one_request() -> None:
    assert request_count([(0, column, 0, 0) for column in range(8)], TILE) == 1


def test_a_tile_that_is_needed_again_is_requested_again() -> None:
    assert request_count([(0, 0, 0, 0)] * 5, TILE) == 5


def test_rows_of_requests_are_joined_as_well() -> None:
    assert request_count([(row, column, 0, 0) for row in range(4) for column in range(4)], TILE) == 1


def test_one_request_covers_64_rows_of_tiles_at_most() -> None:
    assert request_count([(row, 0, 0, 0) for row in range(64)], TILE) == 1
    assert request_count([(row, 0, 0, 0) for row in range(65)], TILE) == 2


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20))
def test_joining_never_adds_requests(places: list[tuple[int, int]]) -> None:
    assert 1 <= request_count([(a, b, 0, 0) for a, b in places], TILE) <= len(places)


def test_a_chain_asks_for_its_tiles_in_one_request_per_channel() -> None:
    assert {longest_group(run) for run in runs(pk=8)} == {1}
    assert list(full_queues(runs(pk=8))) == []
    assert unanswered(runs(pk=8)) is None


def changed(run: TransferRun, tiles: Places) -> TransferRun:
    """A transfer of one interface with other tiles."""
    return TransferRun(run.shim, run.memory_tile, ((replace(run.sample, tiles=tiles),),), (1, 1, 1, 1))


def test_a_channel_queues_four_requests() -> None:
    first = runs(pk=1)[0]
    tile = first.sample.tiles[:, :1]
    assert list(full_queues([changed(first, tile.repeat(4, axis=1))])) == []
    assert list(full_queues([changed(first, tile.repeat(5, axis=1))])) == [Queue("tensor A", 5, 4)]


def test_the_host_waits_only_while_a_result_is_on_its_way() -> None:
    """Inputs of eight iterations fill the queue twice; a result of the first iteration can be waited for once."""
    first, last = runs(pk=1)[0], runs(pk=1)[-1]
    inputs = changed(first, first.sample.tiles.repeat(8, axis=0))
    assert unanswered([inputs, last]) == 8
    assert unanswered([inputs, changed(last, last.sample.tiles.repeat(8, axis=0))]) is None


def test_nodes_with_more_rounds_than_allo_compares_in_minutes() -> None:
    """Three tensors of eight nodes are 21 pairs: 1,024 rounds take a minute, 2,048 take ten; one node has no pairs."""

    def refused(nodes: int, rounds: int) -> list[str]:
        program = load_program(vector_add, N=nodes * rounds * 4, P=nodes * rounds)
        fold = MeshFold((KernelFold("core", (AxisFold(nodes, "cyclic"),)),))
        mapping = NpuMapping(program.vmg.fold(fold), NPU)
        return [str(violation) for violation in ALLO.check(mapping)]

    assert refused(8, 1024) == []
    (reason,) = refused(8, 2048)
    assert reason.startswith("time that Allo takes to compare nodes on tensors: needs 542 s, has 120 s")
    assert "up to 2,048" in reason
    assert refused(1, 8192) == []
