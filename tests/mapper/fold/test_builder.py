"""Legality of chain and bundle, node by node."""

import random
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allo_dse.common.errors import IllegalFold
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import text

from ...support.programs import (
    attention_program,
    gemm_program,
    graph_program,
    producer_consumer,
    ring_program,
    systolic_program,
    vector_add_program,
)


def graph(*edges: str, nodes: str = "") -> VMG:
    """A graph from edges like "a>b"; tasks are called a_0, b_0, ..."""
    return VMG.of(graph_program([(e[0], e[2]) for e in edges], list(nodes)))


def trees(vmg: VMG) -> dict[str, str]:
    """Schedule tree of each node, with task class names spelled kernel by kernel."""
    names = [kernel.name for kernel in vmg.program.kernels]
    found, first = {}, 0
    for group in vmg.groups:
        for node in vmg.nodes[first : first + group.count]:
            tree = text(group.tree)
            for number, name in enumerate(names):
                tree = tree.replace(f"{number}.0", name)
            found[node] = tree
        first += group.count
    return found


class TestChain:
    def test_producer_then_consumer(self) -> None:
        vmg = VMG.of(producer_consumer()).chain("producer_0", "consumer_0")
        assert trees(vmg) == {"producer_0-consumer_0": "[producer; consumer]"}
        assert len(vmg.edges) == 0

    def test_independent_nodes(self) -> None:
        assert trees(graph(nodes="ab").chain("b_0", "a_0")) == {"b_0-a_0": "[b; a]"}

    def test_consumer_before_producer_is_refused(self) -> None:
        with pytest.raises(IllegalFold, match=r"chain of b_0 and a_0: a_0 feeds b_0[\s\S]*chain\('a_0', 'b_0'\)"):
            graph("a>b").chain("b_0", "a_0")

    @pytest.mark.parametrize("pair", ["ab", "ba"])
    def test_nodes_that_feed_each_other_are_not_to_be_chained_the_other_way_round(self, pair: str) -> None:
        with pytest.raises(IllegalFold, match="the second would wait for the first, and the first for the second"):
            graph("a>b", "b>c", "c>a", "b>a").chain(f"{pair[0]}_0", f"{pair[1]}_0")

    def test_transitive_cycle_is_refused_with_the_path_that_closes_it(self) -> None:
        with pytest.raises(IllegalFold, match=r"chain of b_0 and a_0: .*: a_0 -> c_0 -> b_0"):
            graph("a>c", "c>b").chain("b_0", "a_0")

    def test_a_path_from_first_to_second_is_no_obstacle(self) -> None:
        vmg = graph("a>c", "c>b").chain("a_0", "b_0")
        assert vmg.schedulable
        assert len(vmg.edges) == 2

    def test_cycles_through_folded_nodes_are_seen(self) -> None:
        vmg = graph("a>d", "c>b").chain("a_0", "b_0")
        # d waits for a, b waits for c: [c after d] would have both nodes wait for each other.
        with pytest.raises(IllegalFold, match="c_0 -> a_0-b_0 -> d_0"):
            vmg.chain("d_0", "c_0")

    def test_long_paths_are_shortened_in_the_message(self) -> None:
        edges = [(f"n{i}", f"n{i + 1}") for i in range(30)]
        with pytest.raises(IllegalFold, match=r"n0_0 -> n1_0 -> .* 23 more … -> n30_0"):
            VMG.of(graph_program(edges)).chain("n30_0", "n0_0")

    def test_with_itself(self) -> None:
        with pytest.raises(IllegalFold, match="with itself"):
            graph("a>b").chain("a_0", "a_0")

    def test_takes_two_nodes(self) -> None:
        with pytest.raises(IllegalFold, match="takes two nodes, not 3"):
            graph(nodes="abc").apply([("chain", ["a_0", "b_0", "c_0"])])

    def test_leaves_are_in_order_however_the_chain_grows(self) -> None:
        program = gemm_program(64, 64, 64, Pm=1, Pn=1, Pk=6)
        tasks = [f"gemm_{k}_0_0" for k in range(6)]
        rng = random.Random(1)
        keys = set()
        for _ in range(10):
            vmg, nodes = VMG.of(program), list(tasks)
            while len(nodes) > 1:
                i = rng.randrange(len(nodes) - 1)
                vmg = vmg.chain(nodes[i], nodes[i + 1])
                nodes[i : i + 2] = [f"{nodes[i]}-{nodes[i + 1]}"]
            assert vmg.groups[0].leaves.tasks().tolist() == [[0, 1, 2, 3, 4, 5]]
            keys.add(vmg.key)
        assert len(keys) == 1


class TestBundle:
    def test_independent_tasks(self) -> None:
        vmg = VMG.of(vector_add_program(4)).bundle(["core_0", "core_2"])
        assert vmg.nodes == ("core_0x2", "core_1", "core_3")
        assert [text(g.tree) for g in vmg.groups] == ["2x[0.0]", "0.0"]

    def test_same_peers(self) -> None:
        vmg = VMG.of(attention_program(1, 4)).bundle([f"cal_attn_score_0_{c}" for c in range(4)])
        assert "cal_attn_score_0_0x4" in vmg.nodes

    def test_different_peers_are_refused(self) -> None:
        with pytest.raises(IllegalFold, match=r"different nodes, \(from send_q_0.*\) and \(from send_q_1"):
            VMG.of(attention_program(2, 2)).bundle(["cal_attn_score_0_0", "cal_attn_score_1_0"])

    def test_different_classes_are_refused(self) -> None:
        vmg = VMG.of(systolic_program(2, 4))
        with pytest.raises(IllegalFold, match="different tasks, gemm:left and gemm:top"):
            vmg.bundle(["gemm_1_0", "gemm_0_1"])

    def test_trees_of_different_length_are_refused(self) -> None:
        vmg = VMG.of(vector_add_program(3)).bundle(["core_0", "core_1"])
        with pytest.raises(IllegalFold, match="2 times core:all and core:all"):
            vmg.bundle(["core_0x2", "core_2"])

    def test_nodes_that_feed_each_other_are_refused_with_the_path(self) -> None:
        vmg = VMG.of(gemm_program(64, 64, 64, Pm=1, Pn=1, Pk=6))
        with pytest.raises(IllegalFold, match="gemm_1_0_0 -> gemm_2_0_0 -> gemm_3_0_0"):
            vmg.bundle(["gemm_3_0_0", "gemm_1_0_0"])

    def test_subgraphs_bundle_position_by_position(self) -> None:
        vmg = VMG.of(gemm_program(64, 64, 64, Pm=1, Pn=2, Pk=2))
        folded = vmg.bundle([("gemm_0_0_0", "gemm_1_0_0"), ("gemm_0_0_1", "gemm_1_0_1")])
        assert folded.nodes == ("gemm_0_0_0x2", "gemm_1_0_0x2")
        assert folded.edges.count.tolist() == [2]

    def test_half_of_a_subgraph_is_refused(self) -> None:
        vmg = VMG.of(gemm_program(64, 64, 64, Pm=1, Pn=2, Pk=2))
        with pytest.raises(IllegalFold, match="bundle whole subgraphs"):
            vmg.bundle(["gemm_0_0_0", "gemm_0_0_1"])

    def test_crossed_subgraphs_are_refused(self) -> None:
        vmg = VMG.of(gemm_program(64, 64, 64, Pm=1, Pn=2, Pk=2))
        with pytest.raises(IllegalFold, match="tokens flow from one to the other"):
            vmg.bundle([("gemm_0_0_0", "gemm_1_0_1"), ("gemm_0_0_1", "gemm_1_0_0")])

    def test_subgraphs_wired_differently_are_refused(self) -> None:
        program = ring_program(4, [(0, 1), (3, 2)])
        with pytest.raises(IllegalFold, match="different tasks"):
            VMG.of(program).bundle([("node_0", "node_1"), ("node_2", "node_3")])

    @pytest.mark.parametrize(
        ("operands", "message"),
        [
            ([], "bundle of 0 nodes"),
            (["core_0"], "bundle of 1 node"),
            (["core_0", "core_0"], "names core_0 twice"),
            ([("core_0", "core_1"), ("core_1", "core_2")], "names core_1 twice"),
            ([("core_0", "core_1"), ("core_2",)], "differ in length"),
            ([(), ()], "differ in length"),
        ],
    )
    def test_malformed(self, operands: Any, message: str) -> None:
        with pytest.raises(IllegalFold, match=message):
            VMG.of(vector_add_program(4)).bundle(operands)

    def test_unknown_primitive(self) -> None:
        with pytest.raises(IllegalFold, match="unknown mapping primitive 'fuse'"):
            graph(nodes="ab").apply([("fuse", ["a_0", "b_0"])])


def test_attention_as_mapped_by_hand() -> None:
    rows, chunks, columns = 8, 4, 4
    vmg = VMG.of(attention_program(rows, chunks))
    subgraphs = []
    for r in range(rows):
        vmg = vmg.bundle([f"cal_attn_score_{r}_{c}" for c in range(chunks)])
        vmg = vmg.bundle([f"attn_{r}_{c}" for c in range(chunks)])
        vmg = vmg.chain(f"send_q_{r}", f"cal_attn_score_{r}_0x{chunks}")
        first = f"send_q_{r}-cal_attn_score_{r}_0x{chunks}"
        subgraphs.append((first, f"cal_softmax_{r}", f"attn_{r}_0x{chunks}", f"acc_{r}"))
    for column in range(columns):
        vmg = vmg.bundle(subgraphs[column::columns])
    assert vmg.node_count == 16
    assert trees(vmg)["send_q_1-cal_attn_score_1_0x4x2"] == "2x[send_q; 4x[cal_attn_score]]"
    assert trees(vmg)["attn_2_0x4x2"] == "8x[attn]"
    assert vmg.schedulable
    assert VMG.of(vmg.program).apply(vmg.mapping_primitives).key == vmg.key


EDGES = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)).filter(lambda e: e[0] != e[1]), max_size=10)


@settings(max_examples=150, deadline=None)
@given(EDGES, st.integers(0, 6), st.integers(0, 6))
def test_chain_is_refused_exactly_when_a_path_leads_back(edges: Any, first: Any, second: Any) -> None:
    edges = list(dict.fromkeys(edges))
    names = [f"n{i}" for i in range(7)]
    vmg = VMG.of(graph_program([(names[a], names[b]) for a, b in edges], names))
    reached, todo = set(), [second]
    while todo:
        node = todo.pop()
        for a, b in edges:
            if a == node and b not in reached:
                reached.add(b)
                todo.append(b)
    illegal = first == second or first in reached
    if illegal:
        with pytest.raises(IllegalFold):
            vmg.chain(f"n{first}_0", f"n{second}_0")
    else:
        assert vmg.chain(f"n{first}_0", f"n{second}_0").node_count == 6


def leads_back(vmg: VMG, first: str, second: str) -> bool:
    """Whether a path leads from `second` to `first` in the folded graph, by brute force."""
    edges = list(zip(vmg.edges.source.tolist(), vmg.edges.target.tolist(), strict=True))
    goal, todo = vmg.nodes.index(first), [vmg.nodes.index(second)]
    reached: set[int] = set()
    while todo:
        node = todo.pop()
        found = {b for a, b in edges if a == node} - reached
        reached |= found
        todo += found
    return goal in reached


@settings(max_examples=120, deadline=None)
@given(EDGES, st.booleans(), st.randoms())
def test_sequences_of_chains(edges: Any, acyclic: Any, random: Random) -> None:
    """Legal exactly where no path leads back; one by one or all at once; and what is legal can be scheduled."""
    names = [f"n{i}" for i in range(7)]
    edges = dict.fromkeys((min(e), max(e)) if acyclic else e for e in edges)
    unfolded = vmg = VMG.of(graph_program([(names[a], names[b]) for a, b in edges], names))
    done: list[Any] = []
    for _ in range(8):
        if vmg.node_count < 2:
            break
        step = ("chain", random.sample(vmg.nodes, 2))
        if leads_back(vmg, *step[1]):
            with pytest.raises(IllegalFold):
                vmg.apply([step])
            with pytest.raises(IllegalFold):
                unfolded.apply([*done, step])
        else:
            vmg = vmg.apply([step])
            done.append(step)
            assert unfolded.apply(done).key == vmg.key
            assert vmg.mapping_primitives == done
            if acyclic:
                assert vmg.schedulable
                assert vmg.precedence_cycle() is None
