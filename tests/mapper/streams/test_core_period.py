"""How a task's work is cut into steps by the tokens it exchanges."""

from collections import Counter
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse import Buffering, Design, Device, NpuSimulator
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.program import Program
from allo_dse.mapper.search.fold_space import AxisFold, KernelFold, MeshFold
from allo_dse.mapper.streams.leaf_steps import leaf_steps
from tests.support.programs import attention_program

USES = st.lists(st.tuples(st.booleans(), st.integers(0, 3)), max_size=24)


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 1000), USES)
def test_steps_add_up(ticks: Any, uses: Any) -> None:
    steps = leaf_steps(ticks, uses)
    assert sum(step.ticks for step in steps) == ticks
    found = Counter(
        (is_put, link) for step in steps for is_put in (False, True) for link in (step.puts if is_put else step.gets)
    )
    assert found == Counter(uses)
    assert len(steps) == max(Counter(uses).values(), default=1)


def test_a_token_each_is_one_step() -> None:
    (step,) = leaf_steps(10, [(False, 0), (True, 1)])
    assert (step.gets, step.puts, step.ticks) == ((0,), (1,), 10)


def test_a_loop_gets_and_puts_once_per_step() -> None:
    steps = leaf_steps(9, [*[(False, 0)] * 3, *[(True, 1)] * 3, (True, 2)])
    assert [(s.gets, s.puts, s.ticks) for s in steps] == [((0,), (1,), 3), ((0,), (1,), 3), ((0,), (1, 2), 3)]


def test_what_comes_before_the_loop_is_in_its_first_step() -> None:
    steps = leaf_steps(4, [(False, 2), *[(False, 0)] * 2])
    assert [s.gets for s in steps] == [(2, 0), (0,)]


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
