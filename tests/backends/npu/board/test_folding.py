"""What makes Allo's folding faster changes nothing but the time: compared on a graph that works as Allo's does."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from allo_dse.backends.npu.board.folding import known_tile, nearby_chain, noted_bundle


@dataclass
class Stream:
    name: str
    src: str
    dst: str


@dataclass
class Graph:
    """Nodes in a row of columns, each node putting to the next one of its column; chains look at everything."""

    edges: dict[str, Stream] = field(default_factory=dict)
    nodes: dict[str, SimpleNamespace] = field(default_factory=dict)
    dependencies: dict[str, dict[str, int]] = field(default_factory=dict)
    looked_at: int = 0

    @staticmethod
    def of(columns: int, rows: int) -> Graph:
        graph = Graph()
        for c in range(columns):
            for r in range(rows):
                graph.nodes[f"{c}.{r}"] = SimpleNamespace(
                    meta_data=SimpleNamespace(input_streams=[], output_streams=[])
                )
                graph.dependencies[f"{c}.{r}"] = defaultdict(int)
            for r in range(rows - 1):
                stream = Stream(f"s{c}.{r}", f"{c}.{r}", f"{c}.{r + 1}")
                graph.edges[stream.name] = stream
                graph.nodes[stream.src].meta_data.output_streams.append(stream)
                graph.nodes[stream.dst].meta_data.input_streams.append(stream)
        last = f"{columns - 1}.{rows - 1}"  # as Allo does: all streams are noted at the last node
        for stream in graph.edges.values():
            graph.dependencies[last][stream.src] += 1
        return graph

    def state(self) -> object:
        streams = [(s.name, s.src, s.dst) for s in self.edges.values()]
        return streams, list(self.nodes), {name: dict(own) for name, own in self.dependencies.items()}


def chain(graph: Graph, a: str, b: str) -> str:
    graph.looked_at += len(graph.edges) + len(graph.dependencies)
    one, other = graph.nodes.pop(a).meta_data, graph.nodes.pop(b).meta_data
    name = f"{a}-{b}"
    graph.dependencies[name] = defaultdict(int)
    inner = {s.name for s in other.input_streams if s.src == a}
    for stream in inner:
        graph.edges.pop(stream)
    merged = graph.dependencies.pop(a)
    for key, count in graph.dependencies.pop(b).items():
        merged[key] += count
    graph.dependencies[name] = merged
    for own in graph.dependencies.values():
        for old in (a, b):
            if old in own:
                own[name] = own.pop(old)
    for stream in graph.edges.values():
        stream.src = name if stream.src in (a, b) else stream.src
        stream.dst = name if stream.dst in (a, b) else stream.dst
    data = SimpleNamespace(
        input_streams=[s for s in (*one.input_streams, *other.input_streams) if s.name not in inner],
        output_streams=[s for s in (*one.output_streams, *other.output_streams) if s.name not in inner],
    )
    graph.nodes[name] = SimpleNamespace(meta_data=data)
    return name


@given(st.integers(1, 4), st.integers(2, 5), st.data())
def test_chains_make_the_same_graph(columns: int, rows: int, data: st.DataObject) -> None:
    plain, fast = Graph.of(columns, rows), Graph.of(columns, rows)
    joined = nearby_chain(chain)
    left = {c: [f"{c}.{r}" for r in range(rows)] for c in range(columns)}
    for _ in range(data.draw(st.integers(1, columns * (rows - 1)))):
        column = data.draw(st.sampled_from([c for c, names in left.items() if len(names) > 1]))
        at = data.draw(st.integers(0, len(left[column]) - 2))
        pair = left[column][at : at + 2]
        assert chain(plain, *pair) == joined(fast, *pair)
        left[column][at : at + 2] = ["-".join(pair)]
        assert plain.state() == fast.state()


def test_what_a_chain_looks_at_does_not_grow_with_the_graph() -> None:
    counts = []
    for columns in (50, 200):
        graph = Graph.of(columns, 4)
        for column in range(columns):
            node = f"{column}.0"
            for row in range(1, 4):
                node = nearby_chain(chain)(graph, node, f"{column}.{row}")
        counts.append(graph.looked_at / columns)
    assert max(counts) < 20


def test_after_a_bundle_chains_are_as_they_were() -> None:
    graph = Graph.of(3, 2)
    noted_bundle(lambda graph, lists: lists)(graph, [("0.0",), ("1.0",)])
    nearby_chain(chain)(graph, "0.0", "0.1")
    assert graph.looked_at == 3 + 6


def test_tiles_are_those_that_a_search_finds() -> None:
    asked: list[tuple[int, ...]] = []

    def search(tensor: SimpleNamespace, task: tuple[int, ...]) -> str:
        asked.append(task)
        return str(next(tile for tile, tasks in tensor.global_placement.items() if task in tasks))

    tensor = SimpleNamespace(global_placement={"R0": [(0,), (1,)], "R1": [(1,), (2,)]})
    found = known_tile(search)
    assert [found(tensor, (n,)) for n in range(3)] == ["R0", "R0", "R1"]
    tensor.global_placement = {"all": [(0,), (5,)]}
    assert found(tensor, (5,)) == "all"
    assert asked == []
