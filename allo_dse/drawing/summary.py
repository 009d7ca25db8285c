"""Summary of a graph for its picture: nodes, or groups of alike nodes if there are many, and their streams."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass
from allo_dse.compiler.program.tensors import IntArray
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import NodeGroup, Task, Tree, leaf_tasks, short_node_name, text

MAX_BOXES = 48
MAX_ARRAYS = 18
"""With more arrays of streams than colours can tell apart, streams are shown without their names."""
_TILES = ("reads", "writes")
"""Facts whose names stand before their values."""


class Box(Frozen):
    """A node, or alike nodes.

    Attributes:
        facts: how many nodes and tasks it stands for, and the tiles it reads and writes: names and values.
        tip: its schedule in full.
    """

    name: str
    nodes: int
    facts: tuple[tuple[str, str], ...]
    tip: str

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of text below its name."""
        return tuple(f"{name} {value}" if name in _TILES else f"{value} {name}" for name, value in self.facts)


class Flow(Frozen):
    """The streams of one array from a box to another.

    Attributes:
        streams: how many.
        tokens: in all of them over the run; None where a program does not fix it.
    """

    array: str
    source: int
    target: int
    streams: int
    tokens: int | None


class Summary(Frozen):
    """The boxes of a picture and the flows between them.

    Attributes:
        level: what a box represents: "node", "group" or "kernel".
        box_of_node: (node_count,).
    """

    level: str
    boxes: tuple[Box, ...]
    flows: tuple[Flow, ...]
    box_of_node: IntArray


def summarise(vmg: VMG) -> Summary:
    """At most `MAX_BOXES` boxes: one per node, or per group of nodes with one schedule, or per kernel."""
    groups = vmg.groups
    if vmg.node_count <= MAX_BOXES:
        box_of_node = np.arange(vmg.node_count)
        program, numbered = vmg.program, [(group, n) for group in groups for n in range(group.count)]
        boxes = tuple(
            Box(short_node_name(program, group, n), 1, tuple(_facts(program, [group], "")), _schedule(program, group))
            for group, n in numbered
        )
        return Summary("node", boxes, _flows(vmg, box_of_node), box_of_node)
    keys: list[Hashable] = list(range(len(groups)))
    level = "group"
    if len(groups) > MAX_BOXES:
        keys, level = [_kernels(group) for group in groups], "kernel"
    numbers = {key: min(n, MAX_BOXES - 1) for n, key in enumerate(dict.fromkeys(keys))}
    members: list[list[NodeGroup]] = [[] for _ in range(max(numbers.values()) + 1)]
    for key, group in zip(keys, groups, strict=True):
        members[numbers[key]].append(group)
    box_of_group = [numbers[key] for key in keys]
    box_of_node = np.repeat(np.array(box_of_group, np.int64), [group.count for group in groups])
    crowded = len(set(keys)) > MAX_BOXES
    boxes = tuple(_group_box(vmg.program, own, rest=crowded and n == len(members) - 1) for n, own in enumerate(members))
    return Summary(level, boxes, _flows(vmg, box_of_node), box_of_node)


def _kernels(group: NodeGroup) -> tuple[int, ...]:
    return tuple(sorted({task.kernel for task in _tasks(group.tree)}))


def _tasks(tree: Tree) -> list[Task]:
    """The task classes in a tree, each once, in order."""
    return list(dict.fromkeys(leaf_tasks(tree if isinstance(tree, Task) else _body(tree))))


def _body(tree: Tree) -> Tree:
    return getattr(tree, "child", tree)


def _class(program: CompiledProgram, task: Task) -> TaskClass:
    return program.kernels[task.kernel].classes[task.cls]


def _group_box(program: CompiledProgram, groups: Sequence[NodeGroup], *, rest: bool) -> Box:
    nodes = sum(group.count for group in groups)
    if rest:
        name = "everything else"
    elif len(groups) == 1:
        name = " + ".join(dict.fromkeys(_label(program, task) for task in _tasks(groups[0].tree)[:3]))
    else:
        name = " + ".join(program.kernels[k].name for k in _kernels(groups[0]))
    tip = "; ".join(_schedule(program, group) for group in groups[:20])
    return Box(
        name,
        nodes,
        (("nodes" if nodes > 1 else "node", f"{nodes:,}"), *_facts(program, groups, " each" if nodes > 1 else "")),
        tip,
    )


def _label(program: CompiledProgram, task: Task) -> str:
    kernel = program.kernels[task.kernel]
    return kernel.name if len(kernel.classes) == 1 else f"{kernel.name}.{_class(program, task).name}"


def _schedule(program: CompiledProgram, group: NodeGroup) -> str:
    return text(group.tree, {task: _label(program, task) for task in _tasks(group.tree)})


def _facts(program: CompiledProgram, groups: Sequence[NodeGroup], each: str) -> Iterator[tuple[str, str]]:
    """Yield the number of tasks that a node runs, and the tiles that it reads and writes."""
    tasks = {group.tree.leaf_count for group in groups}
    if tasks != {1}:
        count = f"{min(tasks):,}" if len(tasks) == 1 else f"{min(tasks):,} to {max(tasks):,}"
        yield f"tasks{each}", count
    ports = [p for g in groups for task in _tasks(g.tree) for p in _class(program, task).tensor_ports]
    for word, wanted in zip(_TILES, ([p for p in ports if p.reads], [p for p in ports if p.writes]), strict=True):
        tiles = dict.fromkeys(f"{p.tensor.name} {'x'.join(map(str, p.tile_shape))}".strip() for p in wanted)
        if tiles:
            yield word, ", ".join(tiles)


def _flows(vmg: VMG, box_of_node: IntArray) -> tuple[Flow, ...]:
    """Streams between nodes, added up per pair of boxes and stream array."""
    edges = vmg.edges
    if not len(edges):
        return ()
    arrays, boxes = len(vmg.program.streams), int(box_of_node.max()) + 1
    pairs = (box_of_node[edges.source] * boxes + box_of_node[edges.target]) * arrays + edges.array
    keys, inverse = np.unique(pairs, return_inverse=True)
    counts = np.bincount(inverse, weights=edges.count, minlength=len(keys)).astype(np.int64)
    tokens = _tokens_per_stream(vmg.program)
    result = []
    for key, streams in zip(keys.tolist(), counts.tolist(), strict=True):
        (source, target), array = divmod(key // arrays, boxes), key % arrays
        each = tokens[array]
        total = None if each is None else each * streams
        result.append(Flow(vmg.program.streams[array].name, source, target, streams, total))
    return tuple(result) if len({flow.array for flow in result}) <= MAX_ARRAYS else _merged(result)


def _merged(flows: Sequence[Flow]) -> tuple[Flow, ...]:
    """The flows of each pair of boxes as one."""
    pairs: dict[tuple[int, int], list[Flow]] = {}
    for flow in flows:
        pairs.setdefault((flow.source, flow.target), []).append(flow)
    name = f"{len({flow.array for flow in flows}):,} arrays of streams"
    result = []
    for (source, target), own in pairs.items():
        tokens = [flow.tokens for flow in own if flow.tokens is not None]
        total = sum(tokens) if len(tokens) == len(own) else None
        result.append(Flow(name, source, target, sum(flow.streams for flow in own), total))
    return tuple(result)


def _tokens_per_stream(program: CompiledProgram) -> list[int | None]:
    """Tokens of one stream of each array, where all of its streams carry equally many."""
    seen: dict[str, set[int | None]] = {array.name: set() for array in program.streams}
    for cls in program.task_classes:
        for port in cls.stream_ports:
            if port.direction == "put":
                seen[port.stream.name].add(port.tokens)
    return [next(iter(found)) if len(found) == 1 else None for found in seen.values()]
