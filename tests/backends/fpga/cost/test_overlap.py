"""Nests that run at once: what `dataflow` and `to` make of times, memories and HLS code."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.fpga.cost.memory import Split, Storage
from allo_dse.backends.fpga.cost.plan import Planned
from allo_dse.backends.fpga.cost.task_cost import Process, TaskCost, overlapped, process_of, task_cost
from allo_dse.compiler.ir.affine import Linear, derive
from allo_dse.compiler.ir.nest import Access, Array, Op
from allo_dse.device.device import FpgaDevice
from allo_dse.lang.schedule import customize
from allo_dse.mapper.program import load_program
from tests.compiler.schedule import programs


def cost(schedule: Any) -> TaskCost:
    program = load_program(schedule)
    return task_cost(program, program.kernels[0].classes[0], FpgaDevice.load("u280"))


def test_buffers_are_handed_on_whole_and_fifos_as_they_fill() -> None:
    schedule = customize(programs.chain)
    alone = cost(schedule)
    schedule.dataflow("chain")
    buffers = cost(schedule)
    assert buffers.cycles == alone.cycles, "each nest waits for the one before it"
    assert [buffers.storages[name].buffers for name in "ABCD"] == [1, 2, 2, 1]
    schedule.to(schedule.B, "second")
    schedule.to(schedule.C, "third", depth=4)
    fifos = cost(schedule)
    assert alone.cycles / 3 < fifos.cycles < alone.cycles / 2
    assert [fifos.storages[name].fifo_depth for name in "ABCD"] == [0, 2, 4, 0]
    assert fifos.storages["B"].resources(FpgaDevice.load("u280")).bram18 == 0
    code = schedule.build("vhls").hls_code
    assert "#pragma HLS stream variable=C type=fifo depth=4" in code
    assert code.count("#pragma HLS dataflow") == 2, "of the kernel, and of what moves its arguments"


def test_independent_nests_run_side_by_side() -> None:
    schedule = customize(programs.fork)
    alone = cost(schedule)
    schedule.dataflow("fork")
    assert cost(schedule).cycles == pytest.approx(alone.cycles / 2, abs=8)
    assert cost(schedule).logic.dsp == 2 * alone.logic.dsp, "what runs at once shares no operators"


def test_a_process_uses_the_parts_that_its_indices_reach() -> None:
    """Also where these are not linear: of eight elements that are apart, `a[2 * (i // 4)]` is two."""
    index = derive("arith.floordivsi", Linear.variable(1), Linear((), 4)).scaled(2)
    load = Op("load", (), (2,), "", 32, (), Access("a", False, (index,)))
    loop = Planned(1, "i", 8, 0, 1, "pipeline", 1, (load,))
    storages = {"a": Storage(Array("a", (8,), 32), (Split("cyclic", 8),))}
    assert process_of([loop], 10, storages).reads == {"a[0]", "a[2]"}


def names(letters: str) -> st.SearchStrategy[frozenset[str]]:
    return st.frozensets(st.sampled_from(letters), max_size=2)


@given(
    st.lists(st.tuples(st.integers(1, 99), st.integers(1, 9), names("abc"), names("abc")), min_size=1, max_size=6),
    names("abc"),
)
def test_overlap_is_between_the_longest_process_and_all_in_turn(
    drawn: list[tuple[int, int, frozenset[str], frozenset[str]]], fifos: frozenset[str]
) -> None:
    chain = [Process(cycles, min(first, cycles), reads, writes) for cycles, first, reads, writes in drawn]
    taken, interval = overlapped(chain, fifos)
    assert max(process.cycles for process in chain) <= interval <= taken <= sum(process.cycles for process in chain)
    assert taken <= overlapped(chain, ())[0]
