"""How a task's work is cut into steps by the tokens it exchanges."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse import Buffering, Design, Device, NpuSimulator
from allo_dse.backends.npu.movement.streams import leaf_steps
from allo_dse.mapper.fold.every_fold import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.program import Program
from tests.support.programs import attention_program

from .programs import line

USES = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=24)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1000), USES)
def test_steps_add_up(ticks: Any, uses: Any) -> None:
    steps = leaf_steps(ticks, uses)
    assert sum(step.ticks for step in steps) == ticks
    order = list(dict.fromkeys(uses))
    found = [[(is_put, c) for part in step.parts for is_put in (False, True) for c in part[is_put]] for step in steps]
    assert Counter(use for own in found for use in own) == Counter(uses)
    assert all(own == sorted(own, key=order.index) for own in found)
    assert len(steps) == max(Counter(uses).values(), default=1)


def test_a_token_each_is_one_step() -> None:
    (step,) = leaf_steps(10, [(False, 0), (True, 1)])
    assert (step.parts, step.ticks) == ((((0,), (1,)),), 10)


def test_a_loop_gets_and_puts_once_per_step() -> None:
    steps = leaf_steps(9, [*[(False, 0)] * 3, *[(True, 1)] * 3, (True, 2)])
    assert [(s.parts, s.ticks) for s in steps] == [((((0,), puts),), 3) for puts in ((1,), (1,), (1, 2))]


def test_what_comes_before_the_loop_is_in_its_first_step() -> None:
    steps = leaf_steps(4, [(False, 2), *[(False, 0)] * 2])
    assert [s.parts for s in steps] == [(((2, 0), ()),), (((0,), ()),)]


@pytest.mark.parametrize("up_and_down", [False, True])
def test_tasks_may_put_before_they_get(up_and_down: bool, tmp_path: Path) -> None:
    """What neighbours exchange has the order of the program: none gets all of its tokens before it puts any."""
    study = dse.Study(
        "line",
        program=line(4, up_and_down=up_and_down),
        device="npu1_4col",
        objectives=[dse.minimize("latency_us")],
        target="model",
    )
    result = study.run(4, run_dir=tmp_path / "run", progress="quiet")
    assert result.front
    assert all(checked.ok for checked in result.verified.values())


def test_long_rows_pass_through_shallow_streams() -> None:
    """A softmax that takes all scores of a row before it gives a weight would hang: its streams hold two tokens."""
    row, every = AxisFold(2), AxisFold(1)
    axes = {
        "send_q": (row,),
        "cal_attn_score": (row, every),
        "cal_softmax": (row,),
        "attn": (row, every),
        "acc": (row,),
    }
    fold = MeshFold(tuple(KernelFold(n, own) for n, own in axes.items()), (("send_q", "cal_attn_score"),))
    device, times = Device.load("npu1_4col").with_options(launch_us=0.0), []
    for chunks in (8, 16):
        program = Program.of(attention_program(4, chunks))
        design = Design(program, fold.normalised(ProgramGraph(program)), Buffering(), device)
        times.append(NpuSimulator().evaluate(design).latency_us)
    assert 1.6 < times[1] / times[0] < 2.1
