"""Designs whose networks have one key have equal networks, so that one run tells what all of them take."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from msgspec import structs

from allo_dse.backends.npu.evaluator import network_key
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.backends.npu.network import build_npu_network
from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.device.device import NpuDevice
from allo_dse.device.npu_model import HOST_NUMBERS, Board
from allo_dse.mapper.fold.fold import MeshFold
from allo_dse.mapper.fold.fold_space import fold_choices
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.violation import Buffering
from allo_dse.simulator.network.network import Processes

from ...mapper.laws import programs
from ...support.programs import attention_program, gemm_program
from ...support.values import present

NPU = NpuDevice.of(NpuDevice.load("npu1_4col"))


def key_and_network(vmg: VMG, buffering: Buffering, npu: NpuDevice = NPU) -> tuple[bytes, Any] | None:
    """The key of a mapping's network, and the network of three periods as plain values; None where it does not fit."""
    mapping = NpuMapping(vmg, npu, buffering)
    if mapping.violations:
        return None
    parts = mapping.view.periods, mapping.view.channels, mapping.transport, npu
    built = build_npu_network(*parts, 3)
    network = built.network
    (processes,) = network.groups
    assert isinstance(processes, Processes)
    values = (
        network.rows.tolist(), network.depth.tolist(), network.initial.tolist(),
        [column.tolist() if hasattr(column, "tolist") else column for column in structs.asdict(processes).values()],
        built.core_ticks, built.dram_ticks, built.channel_ticks,
    )  # fmt: skip
    return network_key(vmg.program, *parts), values


@st.composite
def several_folds(draw: st.DrawFn) -> tuple[CompiledProgram, list[MeshFold]]:
    program = draw(programs())
    every = list(fold_choices(program, 16))
    assume(every)
    return program, [draw(st.sampled_from(every)) for _ in range(8)]


@given(several_folds(), st.integers(1, 2))
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_networks_of_one_key_are_equal(case: tuple[CompiledProgram, list[MeshFold]], depth: int) -> None:
    program, folds = case
    unfolded, known = VMG.of(program), dict[bytes, Any]()
    for fold in folds:
        found = key_and_network(unfolded.fold(fold), Buffering(2, depth))
        if found is not None:
            assert known.setdefault(*found) == found[1]


@pytest.mark.parametrize("program", [gemm_program(256, 256, 256, Pm=4, Pn=4, Pk=4), attention_program(4, 4)])
def test_folds_that_differ_in_their_tiles_only_share_a_network(program: CompiledProgram) -> None:
    unfolded, known = VMG.of(program), dict[bytes, Any]()
    fitting = 0
    for fold in fold_choices(program, 8):
        found = key_and_network(unfolded.fold(fold), Buffering())
        if found is not None:
            fitting += 1
            assert known.setdefault(*found) == found[1]
    assert len(known) < fitting


@pytest.mark.parametrize("number", [name for name in Board.model_fields if name != "clock_ghz"])
def test_a_number_of_the_host_alone_changes_no_network(number: str) -> None:
    program = gemm_program(64, 64, 64, Pm=2, Pn=2, Pk=2)
    mine = NPU.with_options(**{number: getattr(NPU.board, number) * 2})
    (key, network), (other_key, other) = (
        present(key_and_network(VMG.of(program), Buffering(), npu)) for npu in (NPU, mine)
    )
    assert (key == other_key) == (number in HOST_NUMBERS)
    assert key != other_key or network == other
