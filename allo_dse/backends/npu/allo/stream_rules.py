"""Rules about streams: Allo turns those inside chains into buffers, and those that a bundle merges into one FIFO.

Source: `ComputationGraph.chain`, `refactor` and `bundle_multi` in `allo.backend.aie.mapping`, commit a098603.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from allo_dse.compiler.program.compiled import CompiledProgram, TaskClass, TileOp
from allo_dse.compiler.program.tensors import IntArray, StreamPort
from allo_dse.mapper.graph.groups import Repeat, Seq, Task, Tree, leaf_tasks
from allo_dse.mapper.graph.ports import ClassPorts
from allo_dse.mapper.violation import Violation

from ..movement.flows import GroupTiles
from ..movement.movement import StreamFlow
from ..movement.round_wiring import LocalStream, Wiring
from .interfaces import body_of, fifos_inside
from .placer import Core
from .program_rules import ELEMENTS, no_fifo
from .rule import Subject, rule
from .transfers import MEMORY_TILE_PORTS


@rule("allo_rolled_streams", "allo.backend.aie.mapping.ComputationGraph: chain, refactor")
def rolled_streams(subject: Subject) -> Iterator[Violation]:
    """`allo.meta_for` stays a loop: in chains of tasks that exchange tokens, no stream is picked by its variable.

    Streams that bundles have merged are one, and can be in the loop of a task that exchanges others.
    """
    for group, wiring in _wirings(subject):
        inside = _rolled_inside(subject.program, group, wiring)
        stream = inside or _rolled_outside(subject, group, wiring)
        if stream is not None:
            detail = f"Allo does not build {stream}: a loop picks it, in a chain of tasks that exchange tokens"
            yield Violation("allo_rolled_streams", subject.node_name(group.first_node), 1, 0, detail)
            return


def _rolled_outside(subject: Subject, group: GroupTiles, wiring: Wiring) -> str | None:
    """Return a stream array with several FIFOs to other nodes in one loop of the node's tasks."""
    if not wiring.streams:
        return None
    fifos: Counter[tuple[str, str]] = Counter()
    for flow in subject.fifos:
        for direction, node in (("put", flow.source), ("get", flow.target)):
            if node == group.first_node:
                fifos[flow.stream, direction] += flow.count
    for use in group.round.classes:
        own = subject.vmg.graph.ports.of_task(use.task)
        for port in (own.streams[position] for position in sorted(own.rolled)):
            if fifos[port.stream.name, port.direction] > 1:
                return port.stream.name
    return None


def _wirings(subject: Subject) -> Iterator[tuple[GroupTiles, Wiring]]:
    """Yield the wiring of each node's tasks, with its group."""
    for group, wirings in zip(subject.view.groups, subject.view.links.wirings, strict=True):
        for wiring, _ in wirings:
            yield group, wiring


def _rolled_inside(program: CompiledProgram, group: GroupTiles, wiring: Wiring) -> str | None:
    """Return a stream array with several FIFOs between tasks of a node in one loop."""
    found: dict[str, None] = {}
    for stream in wiring.streams:
        for leaf, position in ((stream.put_leaf, stream.put), (stream.get_leaf, stream.get)):
            own = wiring.classes[leaf]
            if position in own.rolled:
                found[own.streams[position].stream.name] = None
    return next((name for name in found if fifos_inside(program, group.group, name) > 1), None)


@rule("allo_chained_loops", "allo.backend.aie.mapping.ComputationGraph.refactor")
def chained_loops(subject: Subject) -> Iterator[Violation]:
    """A token that chained tasks exchange becomes a buffer, so it is put and got in one loop, or in none.

    A loop that does nothing but hand on a tile is dissolved into the loop that takes it.
    """
    for group, wiring in _wirings(subject):
        for stream in wiring.streams:
            if not _is_buffer(body_of(group.group), wiring, stream):
                name = wiring.classes[stream.put_leaf].streams[stream.put].stream.name
                detail = f"Allo does not build {name}: chained tasks put and get it in different loops"
                yield Violation("allo_chained_loops", subject.node_name(group.first_node), 1, 0, detail)
                return


@rule("allo_chained_loops", "allo.backend.aie.mlir_codegen.CodeGenerator.build_core_function, nest depths of arguments")
def chained_tensors(subject: Subject) -> Iterator[Violation]:
    """Tasks with tensors are in the innermost loop of a chain's bundles, or only hand a tile on to one that is."""
    for group, wiring in _wirings(subject):
        tensor = _tensor_outside(subject, group, wiring)
        if tensor is not None:
            detail = f"Allo does not build {tensor}: its task is in a chain with a loop, and not in that loop"
            yield Violation("allo_chained_loops", subject.node_name(group.first_node), 1, 0, detail)
            return


def _tensor_outside(subject: Subject, group: GroupTiles, wiring: Wiring) -> str | None:
    """A tensor of a task outside of the innermost loop that does not hand it on to a task inside."""
    body = body_of(group.group)
    if not isinstance(body, Seq) or not any(isinstance(child, Repeat) for child in body.children):
        return None
    depth = [sum(is_loop for is_loop, _ in _path(body, leaf)) for leaf in range(body.leaf_count)]
    handed_on = {s.put_leaf for s in wiring.streams if depth[s.get_leaf] == max(depth)}
    for use in group.round.classes:
        cls = subject.program.kernels[use.task.kernel].classes[use.task.cls]
        used = [port.tensor.name for port in cls.used_ports]
        for leaf in use.in_round.tolist() if used else ():
            if depth[leaf] < max(depth) and not (wiring.classes[leaf].forwards and leaf in handed_on):
                return used[0]
    return None


def _is_buffer(body: Tree, wiring: Wiring, stream: LocalStream) -> bool:
    put, get = wiring.classes[stream.put_leaf], wiring.classes[stream.get_leaf]
    # The loops of the schedule that either task is in and the other one is not, and those of their own.
    one, other = list(_path(body, stream.put_leaf)), list(_path(body, stream.get_leaf))
    common = next((n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    put_loops = sum(is_loop for is_loop, _ in one[common:]) + _in_loop(put, stream.put)
    get_loops = sum(is_loop for is_loop, _ in other[common:]) + _in_loop(get, stream.get)
    if put_loops == get_loops == 0:
        return True
    only_hands_on = stream.put in put.forwards and len({port.location for port in put.streams}) == 1
    return put_loops == get_loops == 1 and only_hands_on


def _in_loop(ports: ClassPorts, position: int) -> bool:
    """Return whether the operation is in a loop of its task."""
    return ports.streams[position].tokens != 1 or position in ports.rolled


def _path(tree: Tree, leaf: int) -> Iterator[tuple[bool, int]]:
    """Yield the way down to a task: whether each step is into a loop, and into which iteration or child."""
    while not isinstance(tree, Task):
        if isinstance(tree, Repeat):
            number, leaf = divmod(leaf, tree.child.leaf_count)
            tree = tree.child
            yield True, number
            continue
        number = 0
        while leaf >= tree.children[number].leaf_count:
            leaf -= tree.children[number].leaf_count
            number += 1
        tree = tree.children[number]
        yield False, number


@rule("allo_source", "allo.backend.aie.mlir_codegen.CodeGenerator.aie_codegen, stream fifos")
def stream_types(subject: Subject) -> Iterator[Violation]:
    """Streams between nodes are object FIFOs; those inside a chain are buffers, of any type."""
    types = {stream.name: str(stream.dtype) for stream in subject.program.streams}
    for name in dict.fromkeys(flow.stream for flow in subject.fifos):
        if types[name] not in ELEMENTS:
            yield Violation("allo_source", f"stream {name}", 1, 0, no_fifo(types[name]))


@rule("allo_token_order", "allo.backend.aie.mapping.ComputationGraph.bundle_multi (streams take the first task's name)")
def token_order(subject: Subject) -> Iterator[Violation]:
    """Streams that a bundle has merged into one FIFO are read in the order in which they are written.

        bundle [src_3, src_2, src_1, src_0]   read by p[0].get(), p[1].get(), ...     delivers 3 first

    Mesh folds keep the order by construction (`JointFold`); graphs folded node by node are compared token by token.
    """
    if subject.vmg.mesh_fold is not None:
        return
    puts, gets = _streams_in_order(subject, "put"), _streams_in_order(subject, "get")
    for link in subject.fifos:
        if link.count > 1:  # FIFOs of their own
            continue
        put, got = puts.get((link.stream, link.source)), gets.get((link.stream, link.target))
        if put is None or got is None:
            continue
        put, got = put[np.isin(put, got)], got[np.isin(got, put)]
        if len(put) == len(got) and not np.array_equal(put, got):
            first = int(np.flatnonzero(put != got)[0])
            name = subject.program.stream_name
            detail = f"is read as {name(int(got[first]))} where {name(int(put[first]))} was written before"
            where = f"{subject.node_name(link.source)} to {subject.node_name(link.target)}"
            yield Violation("allo_token_order", f"{where}, FIFO of {link.stream}", 1, 0, detail)


def _streams_in_order(subject: Subject, direction: str) -> dict[tuple[str, int], IntArray]:
    """Per stream array and node, the streams that its tasks put to or get from, in order."""
    program, found = subject.program, dict[tuple[str, int], list[tuple[int, int, int]]]()
    for first_node, group in subject.vmg.numbered_groups:
        tasks = group.leaves.tasks()
        kinds: dict[tuple[int, int], list[int]] = {}
        for leaf, task in enumerate(leaf_tasks(group.tree)):
            kinds.setdefault((task.kernel, task.cls), []).append(leaf)
        for (kernel, cls), leaves in kinds.items():
            pids = program.pids(kernel, tasks[:, leaves].reshape(-1))
            for place, port in enumerate(program.kernels[kernel].classes[cls].stream_ports):
                if port.direction != direction:
                    continue
                streams = program.first_stream[port.stream.name] + port.index.linear(pids)
                for number, row in enumerate(streams.reshape(len(tasks), -1).tolist()):
                    own = found.setdefault((port.stream.name, first_node + number), [])
                    own += [(leaf, place, stream) for leaf, stream in zip(leaves, row, strict=True)]
    return {key: np.array([stream for _, _, stream in sorted(own)], np.int64) for key, own in found.items()}


# Streams whose layout Allo changes in transit, and the memory tiles that do it.
#
# Vectorised matrix products work on blocks of a few rows and columns. The stream's DMA brings operands from a stream,
# and results into one, into that order. This takes more loops than a core's channel has, so the stream passes through a
# memory tile.
#
# Sources: `allo_opt` in `allo.backend.aie`, `Stream.get_dimensions_to_stream` and `matmul_external_kernel_config_map`
# in `allo.backend.aie.utils`, and stream FIFOs in `CodeGenerator.aie_codegen`, commit a098603.


BLOCKS: Mapping[str, Mapping[tuple[str, str], tuple[int, int, int]]] = {
    "xdna1": {
        ("int8", "int8"): (4, 8, 8),
        ("int8", "int16"): (4, 8, 8),
        ("int8", "int32"): (4, 8, 8),
        ("int16", "int16"): (4, 4, 4),
        ("int16", "int32"): (4, 4, 4),
        ("bfloat16", "bfloat16"): (4, 8, 4),
        ("bfloat16", "float32"): (4, 8, 4),
    },
    "xdna2": {
        ("int8", "int8"): (8, 8, 8),
        ("int8", "int16"): (8, 8, 8),
        ("int8", "int32"): (8, 8, 8),
        ("int16", "int16"): (4, 4, 8),
        ("int16", "int32"): (4, 4, 8),
        ("bfloat16", "bfloat16"): (8, 8, 8),
        ("bfloat16", "float32"): (8, 8, 8),
    },
}
"""Rows, depth and columns of a block by operand and result type: the matrix products of mlir-aie's kernel library."""


def turned_streams(program: CompiledProgram, architecture: str) -> Mapping[str, bool]:
    """Return stream arrays whose tokens change layout; True if both ends need it, which Allo cannot do.

    Tasks that add products in the tokens of one array work on their blocks at both ends, so no layout changes.
    """
    ends: dict[str, set[str]] = {}
    for cls in program.task_classes:
        if products := [op for op in cls.work if op.kind == "matmul" and is_vectorised(op, architecture)]:
            for port in cls.stream_ports:
                adds = any(op.kind == "add" and op.shape == port.stream.block for op in cls.work)
                if not adds and _is_block_of(cls, port, products):
                    ends.setdefault(port.stream.name, set()).add(port.direction)
    return {name: len(directions) > 1 for name, directions in ends.items()}


def is_vectorised(product: TileOp, architecture: str) -> bool:
    """Return whether Allo uses the vectorised kernel: tiles consist of two-by-two or four-by-four blocks."""
    m, k, n = product.shape
    left, right = str(product.dtypes[0]), str(product.dtypes[1])
    block = BLOCKS.get(architecture, {}).get((left, str(product.dtypes[-1]))) if left == right else None
    if block is None:
        return False
    rows, depth, columns = block
    high = 2 if architecture == "xdna2" or left == "int16" else 4
    wide = high if left == "bfloat16" else 2
    return k % depth == 0 and m % (rows * high) == 0 and n % (columns * wide) == 0


def _is_block_of(cls: TaskClass, port: StreamPort, products: Sequence[TileOp]) -> bool:
    """Return whether tokens are unchanged operands of products, or the results that the class ends with."""
    block = port.stream.block
    if port.direction == "get":
        return any(block in (op.shape[:2], op.shape[1:]) and not _is_of_parts(op) for op in products)
    last = next(op for op in reversed(cls.work) if op.kind != "fill")
    return last in products and (last.shape[0], last.shape[2]) == block


def _is_of_parts(product: TileOp) -> bool:
    """Return whether both operands are parts of tiles into which tokens were copied."""
    m, k, n = product.shape
    left, right, _ = product.dtypes
    return product.use.part_bytes == m * k * left.bytes + k * n * right.bytes


def crowded_memory_tile(
    turned: Iterable[StreamFlow], cores: Mapping[int, Core], ports: Sequence[tuple[int, int]]
) -> StreamFlow | None:
    """The first stream that gets no channel of a memory tile; None when there is one for each.

    The tile in the producer's column comes first, then the first that can receive, though it may send by all channels
    already: Allo builds that, and its vendor's tools refuse it.

    Args:
        turned: in the order of Allo's streams.
        ports: channels taken by tensors, per memory tile: sending and receiving.
    """
    taken = [list(own) for own in ports]
    for flow in turned:
        for _ in range(flow.count):
            tile = cores[flow.source][0]
            if MEMORY_TILE_PORTS in taken[tile]:
                free = (n for n, (_, receive) in enumerate(taken) if receive < MEMORY_TILE_PORTS)
                tile = next(free, tile)
            taken[tile] = [count + 1 for count in taken[tile]]
            if max(taken[tile]) > MEMORY_TILE_PORTS:
                return flow
    return None
