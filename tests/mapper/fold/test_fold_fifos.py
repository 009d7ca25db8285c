"""The FIFOs of folded graphs: their depths by executing schedules, and the memory that limits count for them."""

from __future__ import annotations

import re
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.backends.fpga.hls import emit_project
from allo_dse.eval.execute.run import folding_of
from allo_dse.mapper.fold.node_edges import tokens_of
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.program import Program, load_program

from ...eval.execute.test_folded_results import pipeline
from .test_random_walks import C, R, walk

_BETWEEN = re.compile(r"^\s+hls::stream<.*, \d+> (\w+)\[(\d+)\];", re.MULTILINE)
_INSIDE = re.compile(r"^\s+hls::stream<.*, (\d+)> \w+\(\"(\w+)\"\);", re.MULTILINE)


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(pipeline, R=R, C=C, sums=True, turned=True)


def most_held(vmg: VMG) -> dict[int, int]:
    """Per FIFO inside a node the most tokens in it, task after task of the node's schedule."""
    edges, tokens, fifo = vmg.graph.edges, tokens_of(vmg.program), vmg.uses.fifos.fifo
    arriving: dict[int, list[int]] = {}
    leaving: dict[int, list[int]] = {}
    for source, target, stream in zip(edges.source, edges.target, edges.stream, strict=True):
        if vmg.node_of_task[source] == vmg.node_of_task[target]:
            leaving.setdefault(int(source), []).append(int(stream))
            arriving.setdefault(int(target), []).append(int(stream))
    held: Counter[int] = Counter()
    most: dict[int, int] = {}
    for group in vmg.groups:
        for row in group.leaves.tasks().tolist():
            for task in row:
                held.subtract({int(fifo[s]): 0 for s in arriving.get(task, ())})
                for stream in arriving.get(task, ()):
                    held[int(fifo[stream])] -= int(tokens[stream])
                for stream in leaving.get(task, ()):
                    held[int(fifo[stream])] += int(tokens[stream])
                    most[int(fifo[stream])] = max(most.get(int(fifo[stream]), 1), held[int(fifo[stream])])
    return most


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(1, 10))
def test_a_buffer_holds_what_its_schedule_leaves_in_it(program: Program, seed: int, steps: int) -> None:
    vmg = walk(program.vmg, Random(seed), steps)
    fifos = vmg.uses.fifos
    inside = {number: int(held) for number, held in enumerate(fifos.held) if held}
    assert inside == (most_held(vmg) if vmg.node_count < vmg.task_count else {})


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), steps=st.integers(2, 10))
def test_what_is_counted_is_what_hls_code_declares(program: Program, seed: int, steps: int) -> None:
    vmg = walk(program.vmg, Random(seed), steps)
    folding = folding_of(vmg)
    if folding is None:
        return
    code = emit_project(program, folding=folding).files["kernel.cpp"]
    arrays = {stream.name for stream in program.streams}
    between = {(name, int(count)) for name, count in _BETWEEN.findall(code) if name in arrays}
    inside = {(re.sub(r"_\d+$", "", name), int(depth)) for depth, name in _INSIDE.findall(code)}
    assert between == set(vmg.uses.connections)
    assert inside == {(buffer.array, buffer.tokens) for buffer in vmg.uses.buffers}
