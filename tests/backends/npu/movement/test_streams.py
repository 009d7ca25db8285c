"""Both ends of a stream move the same number of tokens on an NPU."""

from __future__ import annotations

from typing import Any

import pytest

import allo_dse as dse
import allo_dse.lang

allo_dse.lang.install()

import allo
import allo.dataflow as df
from allo.ir.types import Stream, int32

from allo_dse.mapper.fold.fold import unfolded

N = 12


def handed_on(how: str) -> Any:
    """All elements, or every third, go through a stream; how the loops around the puts are written differs."""
    count = N if how == "tiles" else N // 3

    @df.region()
    def top(A: int32[N], B: int32[count]):
        pipe: Stream[int32, 3]

        @df.kernel(mapping=[1], args=[A])
        def give(a: int32[N]):
            with allo.meta_if(how == "tiles"):
                for t in range(3):
                    for i in range(t * 5, min(t * 5 + 5, N)):
                        pipe.put(a[i])
            with allo.meta_elif(how == "condition"):
                for i in range(N):
                    if i % 3 == 1:
                        pipe.put(a[i])
            with allo.meta_else():
                for i in range(1, N, 3):
                    pipe.put(a[i])

        @df.kernel(mapping=[1], args=[B])
        def take(b: int32[count]):
            for i in range(count):
                b[i] = pipe.get()

    return top


@pytest.mark.parametrize("how", ["tiles", "condition", "strides"])
def test_an_end_whose_tokens_no_constant_says_moves_those_of_the_other(how: str) -> None:
    program = dse.load_program(handed_on(how))
    device = dse.Device.load("npu1_4col")
    design = dse.Design(program, unfolded(program), dse.Buffering(), device)
    counts = {port.direction: port.tokens for k in program.kernels for c in k.classes for port in c.stream_ports}
    assert (counts["put"] is None) == (how != "strides")
    assert not dse.check(design, device)
    assert dse.NpuSimulator().evaluate(design).latency_us > 0
