"""Search over single tasks."""

import json
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.backends.npu.evaluator import NpuSimulator
from allo_dse.backends.npu.fold_bounds import NpuFoldBounds
from allo_dse.backends.npu.mapping import NpuMapping
from allo_dse.common.errors import AlloDseError, IllegalFold
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.fold_space import fold_choices
from allo_dse.mapper.fold.node_fold_search import anything_fits, beam_folds, node_folds
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.program_graph import ProgramGraph
from allo_dse.mapper.program import Program
from allo_dse.mapper.violation import Buffering
from allo_dse.space.design import Design

from ...support.programs import (
    attention_program,
    gemm_program,
    graph_program,
    producer_consumer,
    stages_program,
    vector_add_program,
)

NPU = NpuDevice.load("npu1_4col")
EDGES = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)).filter(lambda e: e[0] < e[1]), max_size=6)


def bell(n: int) -> int:
    row = [1]
    for _ in range(n - 1):
        new = [row[-1]]
        for value in row:
            new.append(new[-1] + value)
        row = new
    return row[-1]


def test_unlike_tasks_have_as_many_folds_as_sets_have_partitions() -> None:
    program = graph_program([("a", "b"), ("b", "c"), ("a", "d"), ("d", "e")])
    folds = list(node_folds(ProgramGraph(program), 5))
    assert len(folds) == len(set(folds)) == bell(5) == 52
    assert max(fold.node_count for fold in node_folds(ProgramGraph(program), 3)) == 3


def test_alike_tasks_are_not_told_apart() -> None:
    """Four equal tasks can be shared out in as many ways as 4 is a sum: 4, 3+1, 2+2, 2+1+1, 1+1+1+1."""
    program = vector_add_program(4)
    sizes = {tuple(sorted(len(own) for own in fold.nodes)) for fold in node_folds(ProgramGraph(program), 4)}
    assert sizes == {(4,), (3,), (2, 2), (2,), ()}
    assert len(list(node_folds(ProgramGraph(program), 4))) < bell(4)


@settings(max_examples=40, deadline=None)
@given(EDGES)
def test_every_fold_is_legal_and_exports(edges: Any) -> None:
    program = graph_program([(f"n{a}", f"n{b}") for a, b in dict.fromkeys(edges)], [f"n{i}" for i in range(5)])
    unfolded = VMG.of(program)
    keys = set()
    folds = list(node_folds(ProgramGraph(program), 5))
    for fold in folds:
        vmg = unfolded.fold(fold)
        assert vmg.node_count == fold.node_count
        assert vmg.schedulable
        assert json.loads(json.dumps(fold.to_dict()))["nodes"] == [list(own) for own in fold.nodes]
        keys.add(vmg.key)
    assert len(keys) == len(folds)


def latency(program: Program, device: NpuDevice) -> Callable[..., Any]:
    """Latency of a fold in microseconds; infinite where it does not fit or hangs."""

    def cost(fold: Any) -> float:
        design = Design(program, fold, Buffering(), device)
        try:
            if NpuMapping(design.vmg, device, design.buffering).violations:
                return math.inf
            return float(NpuSimulator().evaluate(design).latency_us)
        except AlloDseError:
            return math.inf

    return cost


BETTER_BY_TASK = {("vector add", 2), ("vector add", 4), ("attention", 2), ("attention", 4), ("gemm", 4)}
"""Where folds of whole kernels leave something out: five tasks on two nodes are three and two, six on four are two each
on three, and the chunks of one kernel can share nodes with different other kernels."""

SMALL = {
    "gemm": lambda: gemm_program(128, 64, 96, Pm=2, Pn=1, Pk=3),
    "vector add": lambda: vector_add_program(5, 1280),
    "attention": lambda: attention_program(1, 2),
    "producer and consumer": lambda: producer_consumer(8),
    "two rows": lambda: stages_program((2, 2), ("row", "row", "row")),
}


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("max_nodes", [2, 4])
def test_small_programs_have_the_optimum_of_whole_kernel_folds_or_a_better_one(name: Any, max_nodes: int) -> None:
    program = Program.of(SMALL[name]())
    cost, graph = latency(program, NPU), ProgramGraph(program)
    regular = min((cost(fold) for fold in fold_choices(program, max_nodes)), default=math.inf)
    found = min(map(cost, node_folds(graph, max_nodes, fits=NpuFoldBounds(graph, NPU).tasks_fit)))
    assert found <= regular * (1 + 1e-9)
    assert (found < regular * (1 - 1e-9)) == ((name, max_nodes) in BETTER_BY_TASK)


def test_tasks_that_cannot_share_a_core_are_never_put_together() -> None:
    program = attention_program(1, 2)
    bounds = NpuFoldBounds(ProgramGraph(program), NPU)
    every, kept = (
        list(node_folds(ProgramGraph(program), 7)),
        list(node_folds(ProgramGraph(program), 7, fits=bounds.tasks_fit)),
    )
    assert 0 < len(kept) < len(every)
    for fold in set(every) - set(kept):
        assert NpuMapping(VMG.of(program).fold(fold), NPU, Buffering(output_depth=1)).violations


def test_larger_programs_are_searched_by_beam() -> None:
    names = [f"n{i}" for i in range(30)]
    program = graph_program([(names[i], names[i // 2 - 1]) for i in range(29, 1, -1)], names)
    folds = beam_folds(ProgramGraph(program), 8, load=lambda cls: 1.0)
    assert {fold.node_count for fold in folds} == set(range(1, 9))
    eight = next(fold for fold in folds if fold.node_count == 8)
    assert max(map(len, eight.nodes)) == 4
    assert VMG.of(program).fold(eight).node_count == 8


def test_a_beam_gets_stuck_where_nothing_fits_together() -> None:
    graph = ProgramGraph(vector_add_program(4))
    assert {f.node_count for f in beam_folds(graph, 4, fits=lambda tasks: len(tasks) < 3)} == {4, 3, 2}
    assert anything_fits([1, 2, 3])


def test_tasks_that_wait_in_circles_have_no_order() -> None:
    with pytest.raises(IllegalFold, match="circles"):
        beam_folds(ProgramGraph(graph_program([("a", "b"), ("b", "a")])), 2)
