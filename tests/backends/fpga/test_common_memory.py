"""Memory on the chip that two kernels use: one partition, and no bank is used more than it has ports, in any cycle."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from functools import cache

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse.backends.fpga.choices.auto_schedules import AutoSchedules
from allo_dse.backends.fpga.hls import emit_project
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.backends.fpga.recording import record_fpga
from allo_dse.compiler.program.compiled import Directive
from allo_dse.device.device import FpgaDevice
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.mapper.program import Program
from allo_dse.simulator.run_time.records import State
from allo_dse.space.design import Design

from .cost.programs import SIDE as N
from .cost.programs import rows_and_columns, written_and_read

U280 = FpgaDevice.load("u280")
ONCHIP = Directive("place", "top", "X", {"memory": "onchip"})
ROUNDS = [
    Directive("pipeline", kernel, loop, {"initiation_interval": 1}) for kernel, loop in (("fill", "j"), ("use", "m"))
]


@cache
def program(U: int, V: int, column: bool) -> Program:
    return dse.load_program(written_and_read, U=U, V=V, column=column)


def partition(scope: str, name: str, dim: int, factor: int, kind: str = "cyclic") -> Directive:
    return Directive("partition", scope, name, {"dim": dim, "factor": factor, "partition_type": kind})


def rounds(design: Design, name: str) -> list[int]:
    """When the rounds begin that put a token into a stream, up to a constant."""
    part = record_fpga(design, {"stores": N * N, "loads": N * N}).part()
    events = part.timeline.events
    number = design.program.first_stream[name]
    return sorted(events.requested[(events.on == number) & (events.state == State.PUT)].tolist())


def elements(count: int, column: bool) -> Iterator[list[tuple[int, int]]]:
    """What each round touches, `count` neighbours along a row or a column."""
    for line in range(N):
        for first in range(0, N, count):
            along = range(first, first + count)
            yield [(n, line) if column else (line, n) for n in along]


def bank(index: tuple[int, int], splits: list[tuple[str, int]]) -> tuple[int, ...]:
    sizes = (math.ceil(N / factor) for _, factor in splits)
    pairs = zip(index, splits, sizes, strict=True)
    return tuple(n // size if kind == "block" else n % factor for n, (kind, factor), size in pairs)


split = st.tuples(st.sampled_from(["cyclic", "block"]), st.sampled_from([1, 2, 4, 8]))


@settings(max_examples=12, deadline=None)
@given(st.sampled_from([2, 8]), st.sampled_from([2, 8]), st.booleans(), st.lists(split, min_size=2, max_size=2))
def test_no_bank_is_used_more_than_it_has_ports_in_any_cycle(
    stored: int, loaded: int, column: bool, splits: list[tuple[str, int]]
) -> None:
    """Accesses of a round are spread over the cycles until the next one begins."""
    schedule = [*ROUNDS, ONCHIP, *(partition("top", "X", dim + 1, n, kind) for dim, (kind, n) in enumerate(splits))]
    loaded_program = program(stored, loaded, column)
    design = Design(loaded_program, unfolded(loaded_program), dse.Buffering(), U280, tuple(schedule))
    used: Counter[tuple[int, tuple[int, ...]]] = Counter()
    for stream, touched in (("stores", elements(stored, False)), ("loads", elements(loaded, column))):
        begins = rounds(design, stream)
        interval = int(np.diff(begins).min())
        for begin, indices in zip(begins, touched, strict=True):
            asked = Counter(bank(index, splits) for index in indices)
            for place, count in asked.items():
                used.update((begin + n * interval // count, place) for n in range(count))
    assert max(used.values()) <= U280.arrays.ports


def test_a_kernel_that_is_alone_at_a_memory_has_all_its_ports() -> None:
    found = program(8, 8, False)
    for schedule, interval in (((), 1), ((ONCHIP,), 8)):  # eight neighbours in DRAM are a word of its port
        costs = FpgaMapping(found.vmg, U280, (*ROUNDS, *schedule))
        fill = found.kernels[0].classes[0]
        assert [loop.ii for loop in costs.cost(fill).loops] == [interval]


def test_what_is_said_of_one_kernels_argument_holds_for_both_and_in_the_code() -> None:
    found = program(8, 8, False)
    schedule = (*ROUNDS, ONCHIP, partition("fill", "x", 2, 8))
    costs = FpgaMapping(found.vmg, U280, schedule)
    assert [loop.ii for loop in costs.cost(found.kernels[1].classes[0]).loops] == [1]
    code = emit_project(found, schedule=schedule).hls_code
    for variable in ("x", "a", "X"):
        assert f"#pragma HLS array_partition variable={variable} dim=2 cyclic factor=8" in code
    assert code.count("interface ap_memory") == 1
    assert "ALLO_PROCESS(fill_all, X, stores);" in code
    assert ", X, loads);" in code
    assert "#pragma HLS stream variable=X type=unsync" in code


def test_the_partition_of_a_derived_schedule_serves_both_kernels() -> None:
    """Rows for one and columns for the other: banks along both dimensions."""
    found = dse.load_program(rows_and_columns)
    wanted: dict[str, int | str] = {"schedule.fill.copies": 8, "schedule.use.copies": 4}
    choice = AutoSchedules(U280)
    answers = choice.asked(found, lambda question: wanted.get(question.name, question.values[0]))
    derived, _ = choice.decided(found, answers)
    banks = {d.options["dim"]: d.options["factor"] for d in derived if (d.kind, d.name) == ("partition", "X")}
    assert banks == {1: 4, 2: 8}
    costs = FpgaMapping(found.vmg, U280, (*derived, ONCHIP))
    limits = [loop.limit for kernel in found.kernels for c in kernel.classes for loop in costs.cost(c).loops]
    assert limits
    assert "ports of x" not in limits
