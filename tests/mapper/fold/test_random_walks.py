"""Random sequences of chains and bundles, nested as they come, on a program that runs."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.common.errors import IllegalFold
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import Repeat, Seq, Tree
from allo_dse.mapper.program import Program, load_program
from allo_dse.simulator.deadlock import DeadlockError

from ...eval.execute.test_folded_results import T, expected, pipeline, result_of

R, C = 4, 2


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(pipeline, R=R, C=C, sums=True, turned=True)


def depth(tree: Tree) -> int:
    if isinstance(tree, Seq):
        return 1 + max(map(depth, tree.children))
    return 1 + depth(tree.child) if isinstance(tree, Repeat) else 0


def walk(vmg: VMG, random: Random, steps: int) -> VMG:
    """Up to so many random primitives; those that are refused leave the graph as it was."""
    for _ in range(steps):
        nodes = list(vmg.nodes)
        width = random.choice([1, 1, 2, 3])
        if len(nodes) < 2 * width:
            break
        picked = random.sample(nodes, 2 * width)
        rows = [tuple(picked[:width]), tuple(picked[width:])]
        step = ("chain", picked[:2]) if random.random() < 0.4 else ("bundle", rows if width > 1 else picked)
        try:
            vmg = vmg.apply([step])
        except IllegalFold:
            continue
    return vmg


def rows_first(vmg: VMG, random: Random) -> VMG:
    """Chains within every row, the same for all of them, and then rows bundled as subgraphs: two by two, and again."""
    rows = [
        [f"scatter_{r}", *(f"grid_{r}_{c}" for c in range(C)), *(f"turn_{c}_{r}" for c in range(C)), f"gather_{r}"]
        for r in range(R)
    ]
    for _ in range(random.randint(0, 4)):
        a, b = random.sample(range(len(rows[0])), 2)
        try:
            vmg = vmg.apply([("chain", [row[a], row[b]]) for row in rows])
        except IllegalFold:
            continue
        rows = [[f"{row[a]}-{row[b]}", *(n for i, n in enumerate(row) if i not in (a, b))] for row in rows]
    while len(rows) > 1 and random.random() < 0.8:
        half = len(rows) // 2
        merged = []
        for first, second in zip(rows[:half], rows[half:], strict=True):
            vmg = vmg.bundle([tuple(first), tuple(second)])
            merged.append([f"{name}x2" for name in first])
        rows = merged
    return vmg


def check(program: Program, vmg: VMG) -> None:
    """Every task once; all at once is one by one; and where it runs, it computes what the program does."""
    tasks = np.concatenate([group.leaves.tasks().reshape(-1) for group in vmg.groups])
    assert sorted(tasks.tolist()) == list(range(program.task_count))
    again = program.vmg.apply(vmg.mapping_primitives)
    assert again.key == vmg.key
    assert sorted(again.nodes) == sorted(vmg.nodes)
    X = np.arange(R * C * T, dtype=np.int32).reshape(R, C * T)
    try:
        found = result_of(vmg, X)
    except DeadlockError:
        return
    assert (found == expected(X, C, True, True)).all()


@settings(max_examples=25, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_random_primitives(program: Program, random: Random) -> None:
    check(program, walk(program.vmg, random, 14))


@settings(max_examples=25, deadline=None)
@given(random=st.randoms(use_true_random=False))
def test_subgraphs_of_chains_in_nested_bundles(program: Program, random: Random) -> None:
    vmg = rows_first(program.vmg, random)
    check(program, vmg)
    assert vmg.node_count == program.task_count or max(depth(group.tree) for group in vmg.groups) > 0


def test_rows_of_chains_bundled_twice_are_one_repeat(program: Program) -> None:
    names = [[f"scatter_{r}", f"grid_{r}_0"] for r in range(R)]
    vmg = program.vmg.apply([("chain", row) for row in names])
    rows = [(f"scatter_{r}-grid_{r}_0", f"grid_{r}_1", f"turn_0_{r}", f"turn_1_{r}", f"gather_{r}") for r in range(R)]
    twice = vmg.bundle([rows[0], rows[1]]).bundle([rows[2], rows[3]])
    halves = [tuple(f"{name}x2" for name in rows[r]) for r in (0, 2)]
    assert twice.bundle(halves).key == vmg.bundle(rows).key
    X = np.arange(R * C * T, dtype=np.int32).reshape(R, C * T)
    assert (result_of(twice.bundle(halves), X) == expected(X, C, True, True)).all()
