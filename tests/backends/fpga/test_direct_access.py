"""Tensors that tasks access in DRAM themselves, because one writes what another reads."""

from __future__ import annotations

import math
from typing import Any

import pytest

import allo_dse as dse
from allo_dse.backends.fpga.cost.memory import OUTSTANDING
from allo_dse.backends.fpga.mapping import FpgaMapping
from allo_dse.device.device import FpgaDevice
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.space.design import Design

from ...support.operator_tables import region

U280 = FpgaDevice.load("u280")
LATENCY = U280.external.latency_cycles
SIDE = 128
APART = math.ceil(LATENCY / OUTSTANDING)
TEXT = """
import allo.dataflow as df
from allo.ir.types import Stream, int32

S = {side}

@df.region()
def top(A: int32[S, 2 * S], B: int32[S]):
    ready: Stream[int32, 4]

    @df.kernel(mapping=[1], args=[A])
    def write(a: int32[S, 2 * S]):
        for i in range(S):
            for j in range(2 * S):
                a[i, j] = i
        ready.put(1)

    @df.kernel(mapping=[1], args=[A, B])
    def use(a: int32[S, 2 * S], b: int32[S]):
        t: int32 = ready.get()
        for p in range(S):
            s: int32 = 0
            for q in range({trips}):
                {body}
            b[p] = s
"""


def loop(body: str, path: Any, trips: str = "S", side: int = SIDE) -> Any:
    """The pipelined loop of the reading task, and the cycles of that task and of the design."""
    program = dse.load_program(region(TEXT.format(body=body, trips=trips, side=side), path / "program.py"))
    design = Design(program, unfolded(program), dse.Buffering(), U280, ())
    (use,) = (one for one in program.task_classes if one.kernel == "use")
    cost = FpgaMapping.of(design).cost(use)
    return cost.loops[0], cost.cycles, dse.FpgaSimulator(depths="declared").evaluate(design).latency_cycles


@pytest.mark.parametrize(
    ("body", "side", "names", "interval"),
    [
        ("s += a[p, q]", SIDE, ("q",), 1),  # a burst per row, which the outer loop requests
        ("s += a[q, p]", SIDE, ("p", "q"), APART),  # a request per element
        ("s += a[p, q] + a[q, p]", SIDE, ("p", "q"), 2 * APART),
        ("a[p, 0] = a[p, 0] + q", SIDE, ("p", "q"), 2 * LATENCY),  # each round reads what the last one wrote
        ("s += a[p, q]", 16, ("p",), APART),  # the copies of an unrolled loop are a burst
        ("s += a[q, p]", 16, ("p",), 16 * APART),
    ],
)
def test_accesses_that_are_not_consecutive_are_requests_of_their_own(
    body: str, side: int, names: tuple[str, ...], interval: int, tmp_path: Any
) -> None:
    found, cycles, design = loop(body, tmp_path, side=side)
    assert found.names == names
    assert interval <= found.ii <= interval + 4 * (interval == 2 * LATENCY)
    assert found.depth > LATENCY
    assert design > cycles


def test_each_burst_waits_for_the_memory(tmp_path: Any) -> None:
    """Rows of half a tensor are bursts that follow each other; whole rows are one burst."""
    half, whole = (loop("s += a[p, q]", tmp_path, trips)[1] for trips in ("S", "2 * S"))
    assert half > SIDE * (LATENCY + SIDE)
    assert whole < 2 * SIDE * SIDE + 2 * LATENCY
