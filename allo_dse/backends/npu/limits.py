"""Limits of a device that a folded graph exceeds, as values.

`NpuMapping.violations` puts the parts together. `docs/devices.md` lists the constraints and the rules behind them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from allo_dse.compiler.program.compiled import CompiledProgram
from allo_dse.compiler.program.tensors import TensorPort
from allo_dse.device.device import NpuDevice
from allo_dse.eval.token_exchange import stream_deadlock
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import NodeGroup, short_node_name
from allo_dse.mapper.violation import Buffering, Violation
from allo_dse.simulator.engine.engine import table_engine

from .movement.access import misaligned_tiles, tile_loops
from .movement.flows import GroupTiles
from .movement.movement import LOCKS_PER_END, WORD_BYTES, Channel, StreamFlow, Transport
from .movement.node_memory import NodeMemory
from .movement.transport import tile_violations
from .movement.view import MappingView

# Deadlocks of nodes whose tiles share a channel.
#
# A tile that several nodes take is sent when all of them have room for it, and flows of one shim channel take turns.
# So a slow node blocks the others, and a deadlock results if it waits for one of these itself:
#
#     x: 4 tiles of A, then 4 of B        A goes to x and y, and so does B: y has no room for the third tile of A before
#     y: 4 tiles of B, then 4 of A        it has had all of B, and x none for the third of B before it has had all of A
#
# Nodes of one role do the same at the same time, if none waits for another of them. This holds while each channel leads
# to one port of one role; then there is no deadlock. Otherwise nodes and channels are executed, without costs.


Peers = Sequence[Sequence[tuple[Hashable, int, Hashable]]]
"""Per node its channels: which of its own it is, the node at the other end, and which of that node's."""


def waiting(view: MappingView, transport: Transport) -> tuple[str | int, ...]:
    """Return a cycle of processes that wait for each other; empty if all tiles arrive.

    Each waits for the next, and the last for the first. Nodes are numbers, channels are described in words. The graph's
    streams alone must not deadlock, and all tiles must have a transfer.
    """
    shared = [t for t in transport.transfers if len(t.flows) > 1 or len(transport.flows[t.flows[0]].nodes) > 1]
    if not shared:
        return ()
    role, flows = roles(view, _peers(view)), transport.flows
    ends = (
        {(role[node], port) for f in t.flows for node, port in zip(flows[f].nodes, flows[f].ports, strict=True)}
        for t in shared
    )
    if all(len(own) == 1 for own in ends):  # every transfer leads to, or from, one port of nodes of one role
        return ()
    from .network import build_npu_network  # which imports costs, for few mappings

    schedules = view.periods
    network = build_npu_network(schedules, view.channels, transport, None, schedules[0].periods).network
    result = table_engine().run(network, extrapolate=True)
    if result.finished:
        return ()
    names: list[str | int] = [
        f"{f.tensor} to {len(f.nodes)} nodes" if f.direction == "in" else f.tensor for f in transport.flows
    ]
    names += [f"{transfer.tensor} of {len(transfer.flows)} flows" for transfer in transport.transfers]
    names += range(view.vmg.node_count)
    assert result.deadlock is not None
    return tuple(names[blocked.node] for blocked in result.deadlock.cycle or result.deadlock.blocked)


def roles(view: MappingView, peers: Peers) -> list[int]:
    """Per node a number, equal for nodes that do the same, on channels from and to nodes of equal roles."""
    result, count = _numbered(_work(view)), 0
    while len(set(result)) > count:
        count = len(set(result))
        told = (
            (r, *((at, result[peer], there) for at, peer, there in own)) for r, own in zip(result, peers, strict=True)
        )
        result = _numbered(told)
    return result


def _work(view: MappingView) -> Iterator[Hashable]:
    """Return, per node, all that decides its tile and token times: its group, wiring and tile patterns."""
    for number, (group, wirings) in enumerate(zip(view.groups, view.declared_links.wirings, strict=True)):
        wired = {at: kind for kind, (_, nodes) in enumerate(wirings) for at in nodes.tolist()}
        ports = [[pattern.identity for _, pattern in group.ports.sequences(key)] for key in group.users]
        for at in range(group.group.count):
            yield number, wired.get(at), *(patterns[at] for patterns in ports)


def _peers(view: MappingView) -> Peers:
    """The channels in the order in which nodes use them."""
    own = [channels for group in view.channels.groups for channels in group.channels]
    at = {(node, channel): number for node, channels in enumerate(own) for number, channel in enumerate(channels)}

    def peer(node: int, channel: Channel) -> tuple[Hashable, int, Hashable]:
        source, target, name = channel
        other = source + target - node
        return (name, node == source), other, at[other, channel]

    return [[peer(node, channel) for channel in channels] for node, channels in enumerate(own)]


def _numbered(values: Iterable[Hashable]) -> list[int]:
    number: dict[Hashable, int] = {}
    return [number.setdefault(value, len(number)) for value in values]


# With more nodes than this many times the device's tiles, placement adds nothing to the verdict on their number.
_HOPELESS = 2


def array_violations(vmg: VMG, device: NpuDevice) -> list[Violation]:
    """Limits that numbers alone decide: tiles, host buffers, and arrays that no tile can reach."""
    found, program = list[Violation](), vmg.program
    if vmg.node_count > device.compute_tiles:
        detail = f"{device.array.columns} columns of {device.array.core_rows} cores"
        found.append(Violation("compute_tiles", device.name, vmg.node_count, device.compute_tiles, detail))
    used = {port.tensor.name for cls in program.task_classes for port in cls.used_ports}
    limit = device.host.usable_buffers
    if len(used) > limit:
        names = ", ".join(tensor.name for tensor in program.tensors if tensor.name in used)
        found.append(Violation("host_buffers", "the host", len(used), limit, names))
    if program.shared:
        names = ", ".join(one.tensor.name for one in program.shared)
        found.append(Violation("shared_arrays", program.name, len(program.shared), 0, names))
    return found


def is_hopeless(vmg: VMG, device: NpuDevice) -> bool:
    """Return whether the needs of single nodes and tiles add nothing to the verdict of `array_violations`.

    This holds with far more nodes than the device has tiles (an unfolded graph, say), and if tasks call regions with
    arrays of their own.
    """
    return vmg.node_count > _HOPELESS * device.compute_tiles or bool(vmg.program.shared)


def core_violations(
    view: MappingView,
    streams: Sequence[StreamFlow],
    memories: Sequence[NodeMemory],
    device: NpuDevice,
    buffering: Buffering,
) -> list[Violation]:
    """Limits of cores.

    Streams between nodes are taken to run between neighbours, which share memory, as far as the number of neighbours
    allows; whether the nodes can be placed that way is not decided here.

    Args:
        streams: those between nodes.
        memories: what a node of each group needs at most.
    """
    program, found = view.vmg.program, list[Violation]()
    by_node: defaultdict[int, _NodeStreams] = defaultdict(_NodeStreams)
    for stream in streams:
        source, target = by_node[stream.source], by_node[stream.target]
        target.into.append(stream)
        target.peers.add(stream.source)
        source.out.append(stream)
        source.peers.add(stream.target)
    for group, memory in zip(view.groups, memories, strict=True):
        found += _core_violations(program, group, memory, by_node, device, buffering)
    return found


def movement_violations(view: MappingView, transport: Transport, device: NpuDevice) -> list[Violation]:
    """Return exceeded limits of memory tiles and shim tiles, and impossible movements between nodes."""
    found = [*stream_deadlock(view.needed_depths), *misaligned_tiles(_ports(view))]
    found += _far_rows(view, device)
    found += transport.violations
    found += tile_violations(transport, device)
    return found


def tile_deadlock(view: MappingView, transport: Transport) -> Iterator[Violation]:
    """Nodes that wait for each other's tiles, in a mapping without other violations of `movement_violations`."""
    waits = waiting(view, transport)
    if waits:
        labels = view.vmg.nodes  # names of all tasks
        names = [labels[one] if isinstance(one, int) else one for one in waits]
        nodes = [labels[one] for one in waits if isinstance(one, int)]
        detail = "each waits for the next: " + " -> ".join([*names[:6], "..." if names[6:] else names[0]])
        yield Violation("tile_deadlock", f"core {nodes[0]}", len(nodes), 0, detail)


@dataclass
class _NodeStreams:
    """Streams to and from other nodes, and which nodes these are."""

    into: list[StreamFlow] = field(default_factory=list)
    out: list[StreamFlow] = field(default_factory=list)
    peers: set[int] = field(default_factory=set)


def _core_violations(
    program: CompiledProgram,
    group: GroupTiles,
    memory: NodeMemory,
    streams: defaultdict[int, _NodeStreams],
    device: NpuDevice,
    buffering: Buffering,
) -> list[Violation]:
    """Return exceeded limits of one node group's cores; its nodes differ in their streams, and the largest need
    counts.
    """
    found, first_node = list[Violation](), group.first_node
    if memory.total > device.core.memory_bytes:
        largest = _place(program, group.group, memory.node - first_node)
        found.append(Violation("core_memory", largest, memory.total, device.core.memory_bytes, str(memory)))
    # The needs of nodes follow from these numbers, which take few values.
    kinds: dict[tuple[int, int, int], tuple[int, _NodeStreams]] = {}
    for node in range(first_node, first_node + group.group.count):
        own = streams[node]
        kinds.setdefault((len(own.peers), len(own.into), len(own.out)), (node, own))

    def where(node: int) -> Callable[[], str]:
        return lambda: _place(program, group.group, node - first_node)

    most: dict[str, Violation] = {}
    for node, own in kinds.values():
        for one in _core_limits(where(node), group, own, device, buffering):
            most[one.constraint] = max(most.get(one.constraint, one), one, key=lambda violation: violation.needed)
    return [*found, *most.values()]


def _core_limits(
    where: Callable[[], str], group: GroupTiles, own: _NodeStreams, device: NpuDevice, buffering: Buffering
) -> Iterator[Violation]:
    """DMA channels, buffer descriptors (one per slot of each tensor port), locks, and the length of one descriptor.

    A channel is needed per tensor port, and for the streams to peers for which no neighbour is left. Streams to the
    peers beyond the number of neighbours take the channels that are free, in either direction.
    """
    core, into, out = device.core, own.into, own.out
    inputs, outputs = _tensors(group, "in"), _tensors(group, "out")
    far = max(0, len(own.peers) - core.max_neighbours)
    far_out = min(far, len(out), max(0, core.dma_out - len(outputs)))
    far_in = min(far - far_out, len(into))
    far_out = min(len(out), far - far_in)
    for direction, ports, far_streams, streams, limit in (
        ("in", inputs, far_in, into, core.dma_in),
        ("out", outputs, far_out, out, core.dma_out),
    ):
        needed = len(ports) + far_streams
        if needed > limit:
            names = [*ports, *([f"{far_streams} of {_names(streams)}"] if far_streams else [])]
            yield Violation(f"core_dma_{direction}", where(), needed, limit, ", ".join(names))
    descriptors = len(inputs) * buffering.input_depth + len(outputs) * buffering.output_depth
    if descriptors > core.buffer_descriptors:
        detail = (
            f"{len(inputs)} inputs with depth {buffering.input_depth}, "
            f"{len(outputs)} outputs with depth {buffering.output_depth}"
        )
        yield Violation("core_descriptors", where(), descriptors, core.buffer_descriptors, detail)
    locks = LOCKS_PER_END * (len(inputs) + len(outputs) + len(out))
    if locks > core.locks:
        names = [*inputs, *outputs, *([_names(out)] if out else [])]
        yield Violation("core_locks", where(), locks, core.locks, ", ".join(names))
    for users in group.users.values():
        port = users[0][1].port
        words = -(-port.tile_bytes // WORD_BYTES)
        if words > core.descriptor.max_words:
            yield Violation("descriptor_length", where(), words, core.descriptor.max_words, port.tensor.name)


def _far_rows(view: MappingView, device: NpuDevice) -> Iterator[Violation]:
    """Tiles whose rows lie further apart in DRAM than a shim descriptor can step."""
    limit, seen = device.shim.descriptor.max_step_words, set()
    for port in _ports(view):
        tensor, tile = port.tensor, port.tile_shape
        _, *rows = tile_loops(tile, tensor.shape, tensor.dtype.bits)
        words = max((step // WORD_BYTES for _, step in rows), default=0)
        if words > limit and (tensor.name, tile) not in seen:
            seen.add((tensor.name, tile))
            shape = "x".join(map(str, tile))
            yield Violation("descriptor_stride", f"tensor {tensor.name}", words, limit, f"tiles {shape}")


def _ports(view: MappingView) -> Iterator[TensorPort]:
    return (users[0][1].port for group in view.groups for users in group.users.values())


def _tensors(group: GroupTiles, direction: str) -> list[str]:
    """The tensors of the group's ports in one direction, one entry per DMA channel."""
    return [key[0] for key in group.users if key[1] == direction]


def _names(streams: Iterable[StreamFlow]) -> str:
    return ", ".join(dict.fromkeys(s.stream for s in streams))


def _place(program: CompiledProgram, group: NodeGroup, position: int) -> str:
    """A node as messages name it."""
    alike = f" and {group.count - 1} like it" if group.count > 1 else ""
    return f"core {short_node_name(program, group, position)}{alike}"
