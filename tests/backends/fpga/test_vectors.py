"""Streams of vectors: a token of several elements moves in one cycle, as one word of the FIFO."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import allo_dse as dse
from allo_dse.backends.fpga.cost.memory import WORD_BITS, fifo_resources
from allo_dse.backends.fpga.hls import csim
from allo_dse.backends.fpga.hls.design_project import hls_project
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.device.device import FpgaDevice
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.space.design import Design

from .cost import programs

U280 = FpgaDevice.load("u280")
ROUNDS = 256


def design(lanes: int, order: str = "all") -> Design:
    """Tensors are copied in words as wide as a token, into as many banks as it has elements."""
    program = dse.load_program(programs.vectors(ROUNDS, lanes, order))
    schedule: list[Any] = []
    for name in "AB":
        schedule += [dse.memory(name, ["copied"]).directive("copied"), dse.pack(name, [512]).directive(512)]
        schedule.append(dse.partition(name, 2, [lanes]).directive(lanes))
    return Design(program, unfolded(program), dse.Buffering(), U280, tuple(schedule))


def interval(subject: Design, kernel: str) -> int:
    (task_class,) = (one for one in subject.program.task_classes if one.kernel == kernel)
    (loop,) = FpgaMapping.of(subject).cost(task_class).loops
    return loop.ii


@pytest.mark.parametrize("lanes", [2, 8])
def test_a_word_moves_in_a_cycle(lanes: int) -> None:
    subject = design(lanes)
    assert interval(subject, "source") == interval(subject, "sink") == 1
    metrics = dse.FpgaSimulator().evaluate(subject)
    assert ROUNDS <= metrics["interval_cycles"] < ROUNDS + 100, "a token per cycle, of any number of elements"
    depth = metrics["stream_depths"]["pipe"]
    assert FpgaMapping.of(subject).fifos_at({"pipe": depth}) == fifo_resources(U280, 32 * lanes, depth)
    given = np.random.default_rng(0).integers(-99, 99, (ROUNDS, lanes)).astype(np.int32)
    project = hls_project(subject)
    assert f"hls::vector<int32_t, {lanes}>, {depth}> pipe" in project.hls_code
    _, found = csim(project, given, np.zeros((ROUNDS, lanes), np.int32))
    assert (found == 3 * given + 1).all()


def test_elements_that_data_chooses_are_in_a_memory_with_two_ports() -> None:
    """Sixteen elements are stored, and sixteen that data chooses are loaded, in a round: 32 accesses at two ports."""
    assert interval(design(16, "data"), "sink") == 16


def test_larger_blocks_pass_element_by_element() -> None:
    lanes = WORD_BITS // 32 + 1
    subject = design(lanes)
    assert f"hls::stream<int32_t, {4 * lanes}> pipe" in hls_project(subject, {"pipe": 4}).hls_code
    assert dse.FpgaSimulator().evaluate(subject).latency_cycles > ROUNDS * lanes
