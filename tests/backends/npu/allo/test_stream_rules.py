"""Chains of tasks that exchange tokens, and the FIFOs that bundles leave."""

from __future__ import annotations

from functools import lru_cache

from allo_dse.backends.npu.allo.interfaces import fifo_counts
from allo_dse.backends.npu.allo.target import ALLO
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.program import Program, load_program
from studies.attention_npu import attention

ALL = AxisFold(1)


@lru_cache
def program() -> Program:
    return load_program(attention, L=256)


def mapping(rows: int, scores: AxisFold = ALL, chains: tuple[tuple[str, ...], ...] = ()) -> NpuMapping:
    row = AxisFold(rows, "cyclic")
    axes = {"send_q": (row,), "cal_attn_score": (row, scores), "cal_softmax": (row,), "attn": (row, ALL), "acc": (row,)}
    fold = MeshFold(tuple(KernelFold(name, own) for name, own in axes.items()), chains)
    return NpuMapping(program().vmg.fold(fold.normalised(program().vmg.graph)), NpuDevice.load("npu1_4col"))


def refused(found: NpuMapping) -> list[tuple[str, str]]:
    return [(v.constraint, str(v)) for v in ALLO.check(found)]


def test_streams_that_a_bundle_merges_at_one_end_are_one_fifo() -> None:
    """The softmax's loop reads `scores` chunk by chunk; the scores of a row come from one node, which is a bundle."""
    found = mapping(2, chains=(("send_q", "cal_attn_score"),))
    between = found.view.links.between
    assert max(flow.count for flow in between) == 8
    assert set(fifo_counts(found.vmg, between).values()) == {1}
    assert refused(found) == []


def test_a_loop_that_only_hands_on_a_tile_may_be_chained_to_one_that_takes_it() -> None:
    assert refused(mapping(4, chains=(("send_q", "cal_attn_score"),))) == []


def test_tokens_that_one_loop_puts_and_another_gets_are_refused() -> None:
    ((constraint, text),) = refused(mapping(2, chains=(("cal_attn_score", "cal_softmax"),)))
    assert constraint == "allo_chained_loops"
    assert "does not build scores: chained tasks put and get it in different loops" in text


def test_a_loop_that_picks_fifos_of_several_nodes_is_refused_in_a_chain() -> None:
    ((constraint, text),) = refused(mapping(1, AxisFold(2, "cyclic"), (("cal_softmax", "acc"),)))
    assert constraint == "allo_rolled_streams"
    assert "does not build scores: a loop picks it" in text


def test_tensors_of_tasks_beside_a_loop_of_their_chain_are_refused() -> None:
    ((constraint, text),) = refused(mapping(1, chains=(("cal_attn_score", "acc"),)))
    assert constraint == "allo_chained_loops"
    assert "does not build Out: its task is in a chain with a loop" in text
