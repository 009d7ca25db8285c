"""Streams inside a node: transfers between tasks of a round, and the lifetimes of blocks in its memory."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.tensors import IntArray, StreamPort
from allo_dse.mapper.graph.groups import MeshLeaves, NodeGroup
from allo_dse.mapper.graph.ports import ClassPorts, ClassUse, PortKey, Round, schedule_round
from allo_dse.mapper.graph.program_graph import ProgramGraph


class LocalStream(Frozen):
    """A stream inside a node: put by the task at one position of the round, got at another.

    Attributes:
        put_leaf, get_leaf: positions in the round.
        put, get: positions of the ports in their classes' stream ports.
        bytes: all tokens of one round; they all lie in the node's memory between put and get.
    """

    put_leaf: int
    get_leaf: int
    put: int
    get: int
    bytes: int


class Block(Frozen):
    """A block of data from its creation to its end, as positions in the round (both included).

    Attributes:
        slot: the tensor port it is written to in the end; None when it is not.
    """

    start: int
    end: int
    bytes: int
    slot: PortKey | None


class OpenEnd(Frozen):
    """A stream port whose other end is not in the node, at some positions of the round."""

    use: ClassUse
    port: StreamPort
    leaves: tuple[int, ...]


class Wiring(Frozen, eq=False, dict=True):
    """The streams of one node in one round, and the ends that lead out of it."""

    streams: tuple[LocalStream, ...]
    open_ends: tuple[OpenEnd, ...]
    classes: tuple[ClassPorts, ...]

    @cached_property
    def blocks(self) -> tuple[Block, ...]:
        """Blocks of memory between the tasks; streams that tasks update in place one after another are one block.

        Blocks that end in a stream to another node live in that stream's FIFO and are left out. So are input tiles
        that a task passes on unchanged: they stay in the slot of the input port.
        """
        inside = {(s.put_leaf, s.put) for s in self.streams}
        lives: dict[tuple[int, int], tuple[int, PortKey | None, bool]] = {}
        absorbed: set[tuple[int, int]] = set()
        # Backwards: a block that is updated in place lives as long as the block it becomes, which a later task gets.
        for stream in sorted(self.streams, key=lambda s: -s.get_leaf):
            sink = self.classes[stream.get_leaf].sinks.get(stream.get)
            life: tuple[int, PortKey | None, bool] = (stream.get_leaf, None, False)
            if sink is not None and sink.tensor is not None:
                life = (stream.get_leaf, sink.tensor, False)
            elif sink is not None and sink.put is not None:
                onward = (stream.get_leaf, sink.put)
                absorbed.add(onward)
                life = lives[onward] if onward in inside else (stream.get_leaf, None, True)
            lives[stream.put_leaf, stream.put] = life
        result = []
        for stream in self.streams:
            end, slot, leaves_node = lives[stream.put_leaf, stream.put]
            forwarded = stream.put in self.classes[stream.put_leaf].forwards
            if (stream.put_leaf, stream.put) not in absorbed and not leaves_node and not forwarded:
                result.append(Block(stream.put_leaf, end, stream.bytes, slot))
        return tuple(result)


class StreamUses(NamedTuple):
    """Uses of streams by nodes: parallel arrays, and what each `kind` stands for: class, position of the port, port."""

    node: IntArray
    leaf: IntArray
    stream: IntArray
    kind: IntArray
    kinds: list[tuple[ClassUse, int, StreamPort]]

    @property
    def is_put(self) -> NDArray[np.bool_]:
        return np.array([port.direction == "put" for _, _, port in self.kinds], np.bool_)[self.kind]

    def only(self, chosen: NDArray[np.bool_] | IntArray) -> StreamUses:
        """Return some uses, by flag or by position."""
        return StreamUses(self.node[chosen], self.leaf[chosen], self.stream[chosen], self.kind[chosen], self.kinds)


def uses_of(group: NodeGroup, graph: ProgramGraph, leaves: int) -> StreamUses:
    """Return the uses of streams by the first tasks of each node of a group, node by node and task by task."""
    found = _uses(graph, schedule_round(group.tree), group.leaves.tasks(0, leaves))
    return found.only(np.lexsort((found.leaf, found.node)))


def _uses(graph: ProgramGraph, turn: Round, tasks: IntArray) -> StreamUses:
    """Return the uses of streams by nodes that execute `tasks`: (nodes, leaves), of whole rounds."""
    columns: list[list[IntArray]] = [[np.zeros(0, np.int64)] for _ in range(4)]
    kinds: list[tuple[ClassUse, int, StreamPort]] = []
    rounds = np.arange(tasks.shape[1] // turn.length)[:, None] * turn.length
    for use in turn.classes:
        own = graph.ports.of_task(use.task)
        if not own.families:
            continue
        leaves = (rounds + use.in_round).reshape(-1)
        pids = graph.program.pids(use.task.kernel, tasks[:, leaves].reshape(-1))
        node, leaf = np.repeat(np.arange(len(tasks)), len(leaves)), np.tile(leaves, len(tasks))
        for family in own.families:
            count = len(family.members)
            kind = len(kinds) + np.repeat(np.arange(count), len(node))
            values = np.tile(node, count), np.tile(leaf, count), family.streams(graph.program, pids).reshape(-1), kind
            for column, of_family in zip(columns, values, strict=True):
                column.append(of_family)
            kinds += [(use, member, own.streams[member]) for member in family.members]
    node, leaf, stream, kind = map(np.concatenate, columns)
    return StreamUses(node, leaf, stream, kind, kinds)


def group_wirings(group: NodeGroup, graph: ProgramGraph) -> list[tuple[Wiring, IntArray]]:
    """The different wirings of a group's nodes, each with the positions of its nodes in the group.

    All nodes of a mesh fold's group are wired alike: tasks of a node are at the same distances, and so are the ends of
    affine streams. What one node shows is kept for all folds of the program with the same rounds.
    """
    ports, leaves, turn = graph.ports, group.leaves, schedule_round(group.tree)
    streams = [ports.of_task(use.task).streams for use in turn.classes]
    if not any(streams):
        return []
    everyone = np.arange(group.count)
    if isinstance(leaves, MeshLeaves) and all(port.index.is_affine for own in streams for port in own):
        # The innermost loops make up a round.
        inner = len(leaves.loops) - int(np.searchsorted(np.cumprod((1, *leaves.loops[::-1])), turn.length))
        key = (turn, leaves.loops[inner:], leaves.loop_stride[inner:])
        wiring = ports.wirings.get(key)
        if not isinstance(wiring, Wiring):
            first = leaves.base[:1, None] + leaves.offsets(0, turn.length)[None, :]
            wiring = ports.wirings[key] = _wire(graph, turn, first)[0][0]
        return [(wiring, everyone)]
    return _wire(graph, turn, leaves.tasks(0, turn.length))


def _wire(graph: ProgramGraph, turn: Round, tasks: IntArray) -> list[tuple[Wiring, IntArray]]:
    """The wirings of nodes that execute `tasks` (nodes, round length) in a round."""
    uses = _uses(graph, turn, tasks)
    puts, gets = uses.only(uses.is_put), uses.only(~uses.is_put)
    put_key, get_key = (ends.node * graph.program.stream_count + ends.stream for ends in (puts, gets))
    partner, met = _partners(put_key, get_key)
    put_met, get_met = partner[met], np.flatnonzero(met)
    order = np.lexsort((puts.leaf[put_met], gets.leaf[get_met], gets.node[get_met]))
    put_met, get_met = put_met[order], get_met[order]
    node = gets.node[get_met]
    wires = np.stack((puts.leaf[put_met], gets.leaf[get_met], puts.kind[put_met], gets.kind[get_met]), axis=1)
    left = [np.flatnonzero(~_partners(get_key, put_key)[1]), np.flatnonzero(~met)]
    classes = _classes_of_round(graph, turn)
    found: dict[tuple[bytes, ...], tuple[Wiring, list[int]]] = {}
    for number in range(len(tasks)):
        mine = wires[slice(*np.searchsorted(node, (number, number + 1)))]
        opens = [rest[e.node[rest] == number] for e, rest in zip((puts, gets), left, strict=True)]
        key = (
            mine.tobytes(),
            *(part.tobytes() for e, o in zip((puts, gets), opens, strict=True) for part in (e.leaf[o], e.kind[o])),
        )
        if key not in found:
            # Where the number of tokens is data-dependent, those that fit the stream.
            tokens = ((port.stream, port.tokens) for _, _, port in puts.kinds)
            sizes = [stream.token_bytes * (stream.depth if n is None else n) for stream, n in tokens]
            local = tuple(
                LocalStream(put_leaf, get_leaf, puts.kinds[put][1], gets.kinds[get][1], sizes[put])
                for put_leaf, get_leaf, put, get in mine.tolist()
            )
            ends = (*_open_ends(puts, opens[0]), *_open_ends(gets, opens[1]))
            found[key] = Wiring(local, ends, classes), []
        found[key][1].append(number)
    return [(wiring, np.array(numbers)) for wiring, numbers in found.values()]


def _partners(put_key: IntArray, get_key: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """For each get the position of the first put with an equal key, and whether there is one; or the reverse."""
    if not len(put_key):
        return np.zeros(len(get_key), np.int64), np.zeros(len(get_key), np.bool_)
    by_key = np.argsort(put_key, kind="stable")
    place = np.searchsorted(put_key, get_key, sorter=by_key)
    partner = by_key[np.minimum(place, len(by_key) - 1)]
    return partner, put_key[partner] == get_key


def _open_ends(ends: StreamUses, positions: IntArray) -> list[OpenEnd]:
    leaves: dict[int, list[int]] = {}
    for kind, leaf in zip(ends.kind[positions].tolist(), ends.leaf[positions].tolist(), strict=True):
        leaves.setdefault(kind, []).append(leaf)
    return [OpenEnd(ends.kinds[kind][0], ends.kinds[kind][2], tuple(places)) for kind, places in leaves.items()]


def _classes_of_round(graph: ProgramGraph, turn: Round) -> tuple[ClassPorts, ...]:
    ports = graph.ports
    result: dict[int, ClassPorts] = {}
    for use in turn.classes:
        result.update(dict.fromkeys(use.in_round.tolist(), ports.of_task(use.task)))
    return tuple(result[leaf] for leaf in range(turn.length))
