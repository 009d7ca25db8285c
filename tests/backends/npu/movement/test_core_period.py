"""How a task's work is cut into steps by the tokens it exchanges."""

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import allo_dse as dse
from allo_dse import Buffering, Design, Device, NpuSimulator
from allo_dse.backends.npu.movement.streams import Step, Use, leaf_steps
from allo_dse.mapper.fold.fold import unfolded
from allo_dse.mapper.fold.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.program import Program
from tests.support.programs import attention_program

from .programs import line, relay

USES = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=24)


def every_step(ticks: int, uses: Iterable[Use]) -> list[Step]:
    """The steps one after the other."""
    found = leaf_steps(ticks, tuple((use, 1) for use in uses))
    return [step for steps, times in found for _ in range(times) for step, alike in steps for _ in range(alike)]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1000), USES)
def test_steps_add_up(ticks: Any, uses: Any) -> None:
    steps = every_step(ticks, uses)
    assert sum(step.ticks for step in steps) == ticks
    order = list(dict.fromkeys(uses))
    found = [[(is_put, c) for part in step.parts for is_put in (False, True) for c in part[is_put]] for step in steps]
    assert Counter(use for own in found for use in own) == Counter(uses)
    assert all(own == sorted(own, key=order.index) for own in found)
    assert len(steps) == max(Counter(uses).values(), default=1)


def test_a_token_each_is_one_step() -> None:
    (step,) = every_step(10, [(False, 0), (True, 1)])
    assert (step.parts, step.ticks) == ((((0,), (1,)),), 10)


def test_a_loop_gets_and_puts_once_per_step() -> None:
    steps = every_step(9, [*[(False, 0)] * 3, *[(True, 1)] * 3, (True, 2)])
    assert [(s.parts, s.ticks) for s in steps] == [((((0,), puts),), 3) for puts in ((1,), (1,), (1, 2))]


def test_what_comes_before_the_loop_is_in_its_first_step() -> None:
    steps = every_step(4, [(False, 2), *[(False, 0)] * 2])
    assert [s.parts for s in steps] == [(((2, 0), ()),), (((0,), ()),)]


def test_however_many_tokens_are_steps_of_their_own() -> None:
    """And no more rows of a table than few are."""
    for count in (6, 600_000):
        (get, put), single = ((False, 0), (True, 1)), (False, 2)
        found = leaf_steps(2 * count + 5, ((single, 1), (get, count), (put, count // 3)))
        assert len(found) <= 3
        steps = [(step, times * alike) for own, times in found for step, alike in own]
        assert sum(times for _, times in steps) == count
        assert sum(times * step.ticks for step, times in steps) == 2 * count + 5
        assert sum(times for step, times in steps if step.parts[0][1] == (1,)) == count // 3


def test_a_chain_fills_with_a_token_however_many_follow() -> None:
    """A core begins when the one before it has put its first token, not a share of its work."""
    device, times = Device.load("npu1_4col").with_options(launch_us=0.0), []
    for cores in (4, 8):
        for tokens in (256, 4096):
            program = dse.load_program(relay, P=cores, N=tokens)
            design = Design(program, unfolded(program), Buffering(), device)
            times.append(NpuSimulator().evaluate(design).latency_us)
    assert times[3] - times[1] == pytest.approx(times[2] - times[0], abs=2e-3)


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
