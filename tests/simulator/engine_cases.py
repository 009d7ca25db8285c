"""Random networks of table processes, for property tests against the reference semantics."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any

from hypothesis import strategies as st

from allo_dse.simulator.network.network import Network, NetworkBuilder
from allo_dse.simulator.network.tables import Table

from .engine_reference import Script

Tree = list[Any]  # of operations, and of (count, Tree) for repeats


@dataclass
class Case:
    """A random network: per process a tree of operations, per stream (depth, latency, initial)."""

    trees: list[Tree]
    streams: list[tuple[int, int, int]]
    resources: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    processes, count, resources = draw(st.integers(1, 6)), draw(st.integers(0, 8)), draw(st.integers(0, 2))
    ends = [(draw(st.integers(0, processes - 1)), draw(st.integers(0, processes - 1))) for _ in range(count)]
    streams = []
    for _ in range(count):
        depth = draw(st.integers(1, 5))
        streams.append((depth, draw(st.integers(0, 3)), draw(st.integers(0, depth))))
    trees = []
    for process in range(processes):
        choices = [("wait", 0)] + [("request", r) for r in range(resources)]
        choices += [("put", s) for s, (a, _) in enumerate(ends) if a == process]
        choices += [("get", s) for s, (_, b) in enumerate(ends) if b == process]
        trees.append(_chosen(draw(_trees_over(len(choices))), choices))
    return Case(trees, streams, resources)


def _chosen(tree: Tree, choices: list[tuple[str, int]]) -> Tree:
    """The tree with what its leaves choose."""
    return [(*choices[item[0]], item[1]) if len(item) == 3 else (item[0], _chosen(item[1], choices)) for item in tree]


@cache
def _trees_over(choices: int) -> st.SearchStrategy:
    """Trees whose leaves are (number of the choice, number, None)."""
    leaf = st.tuples(st.integers(0, choices - 1), st.integers(0, 7), st.none())
    return st.recursive(
        st.lists(leaf, min_size=1, max_size=4),
        lambda inner: st.lists(st.one_of(leaf, st.tuples(st.integers(0, 4), inner)), min_size=1, max_size=4),
        max_leaves=4,
    )


def flatten(tree: Tree) -> Script:
    result: Script = []
    for item in tree:
        result += flatten(item[1]) * item[0] if len(item) == 2 else [item]
    return result


def fill(table: Table, tree: Tree) -> None:
    for item in tree:
        if len(item) == 2:
            with table.repeat(item[0]):
                fill(table, item[1])
        elif item[0] == "wait":
            table.wait(item[2], mark=True)
        elif item[0] == "request":
            table.request(item[1], item[2], mark=True)
        else:
            getattr(table, item[0])(item[1], mark=True)


def columns(case: Case) -> tuple[list[int], list[int], list[int]]:
    """Depth, latency and initial tokens of all streams."""
    depth, latency, initial = (list(c) for c in zip(*case.streams, strict=True)) if case.streams else ([], [], [])
    return depth, latency, initial


def network(case: Case) -> Network:
    depth, latency, initial = columns(case)
    b = NetworkBuilder()
    b.streams(depth, latency=latency, initial=initial)
    resources = [b.resource() for _ in range(case.resources)]
    for tree in case.trees:
        table = Table()
        fill(table, tree)
        b.process(table, range(len(depth)), resources)
    return b.build()
