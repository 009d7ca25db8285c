"""Whether a folded graph fits a device: every limit it exceeds, as values.

`DeviceMapping.violations` puts the parts together. `docs/devices.md` lists the constraints and the rules behind them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from allo_dse.device.device import NpuDevice
from allo_dse.program.compiled import CompiledProgram

from ..fold.vmg import VMG
from ..graph.groups import NodeGroup
from ..graph.node_names import short_node_name
from ..layouts.access import is_word_aligned, tile_loops
from ..model.buffering import Buffering
from ..model.movement import LOCKS_PER_END, WORD_BYTES, NeededDepths, StreamFlow, Transport
from ..model.violation import Violation
from ..streams.node_memory import NodeMemory
from ..streams.tile_sequences import GroupTiles
from ..streams.view import MappingView
from ..transport.hangs import waiting
from ..transport.tile_limits import tile_violations

# With more nodes than this many times the device's tiles, placing them says nothing that their number has not said.
_HOPELESS = 2


def array_violations(vmg: VMG, device: NpuDevice) -> list[Violation]:
    """Limits that numbers alone decide: tiles, host buffers, and arrays that no tile can reach."""
    return [*_compute_tiles(vmg, device), *_host_buffers(vmg, device), *_shared_arrays(vmg)]


def is_hopeless(vmg: VMG, device: NpuDevice) -> bool:
    """Whether what its nodes and tiles need says nothing that `array_violations` has not said.

    So it is with far more nodes than the device has tiles (an unfolded graph, say), and where tasks call regions with
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
    by_node = _streams_by_node(streams)
    for group, memory in zip(view.groups, memories, strict=True):
        found += _core_violations(program, group, memory, by_node, device, buffering)
    return found


def movement_violations(view: MappingView, transport: Transport, device: NpuDevice) -> list[Violation]:
    """Limits of memory tiles and shim tiles, and what of the movement between nodes cannot be."""
    found = [*stream_deadlock(view.needed_depths), *_misaligned_tiles(view)]
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


def _compute_tiles(vmg: VMG, device: NpuDevice) -> Iterator[Violation]:
    if vmg.node_count > device.compute_tiles:
        detail = f"{device.array.columns} columns of {device.array.core_rows} cores"
        yield Violation("compute_tiles", device.name, vmg.node_count, device.compute_tiles, detail)


def _shared_arrays(vmg: VMG) -> Iterator[Violation]:
    shared = vmg.program.shared
    if shared:
        yield Violation("shared_arrays", vmg.program.name, len(shared), 0, ", ".join(one.tensor.name for one in shared))


def _host_buffers(vmg: VMG, device: NpuDevice) -> Iterator[Violation]:
    used = {port.tensor.name for cls in vmg.program.task_classes for port in cls.used_ports}
    limit = device.host.usable_buffers
    if len(used) > limit:
        names = ", ".join(tensor.name for tensor in vmg.program.tensors if tensor.name in used)
        yield Violation("host_buffers", "the host", len(used), limit, names)


@dataclass
class _NodeStreams:
    """Streams to and from other nodes, and which nodes these are."""

    into: list[StreamFlow] = field(default_factory=list)
    out: list[StreamFlow] = field(default_factory=list)
    peers: set[int] = field(default_factory=set)


_NO_STREAMS = _NodeStreams()


def _streams_by_node(streams: Iterable[StreamFlow]) -> dict[int, _NodeStreams]:
    result: dict[int, _NodeStreams] = {}
    for stream in streams:
        target = result.setdefault(stream.target, _NodeStreams())
        source = result.setdefault(stream.source, _NodeStreams())
        target.into.append(stream)
        target.peers.add(stream.source)
        source.out.append(stream)
        source.peers.add(stream.target)
    return result


def _core_violations(
    program: CompiledProgram,
    group: GroupTiles,
    memory: NodeMemory,
    streams: dict[int, _NodeStreams],
    device: NpuDevice,
    buffering: Buffering,
) -> list[Violation]:
    """Limits of the cores of one node group; its nodes differ in their streams, and what needs most counts."""
    found, first_node = list[Violation](), group.first_node
    if memory.total > device.core.memory_bytes:
        largest = _place(program, group.group, memory.node - first_node)
        found.append(Violation("core_memory", largest, memory.total, device.core.memory_bytes, str(memory)))
    # What nodes need follows from these numbers, of which there are few.
    kinds: dict[tuple[int, int, int], tuple[int, _NodeStreams]] = {}
    for node in range(first_node, first_node + group.group.count):
        own = streams.get(node, _NO_STREAMS)
        kinds.setdefault((len(own.peers), len(own.into), len(own.out)), (node, own))

    def where(node: int) -> Callable[[], str]:
        return lambda: _place(program, group.group, node - first_node)

    most: dict[str, Violation] = {}
    for node, own in kinds.values():
        for one in _core_channels(where(node), group, own, device):
            most[one.constraint] = max(most.get(one.constraint, one), one, key=lambda violation: violation.needed)
    node, own = max(kinds.values(), key=lambda kind: len(kind[1].out))
    return [*found, *most.values(), *_core_descriptors(where(node), group, own.out, device, buffering)]


def _core_channels(
    where: Callable[[], str], group: GroupTiles, own: _NodeStreams, device: NpuDevice
) -> Iterator[Violation]:
    """DMA channels: one per tensor port, and for the streams to peers for which no neighbour is left.

    Streams to the peers beyond the number of neighbours take the channels that are free, in either direction.
    """
    inputs, outputs = _tensors(group, "in"), _tensors(group, "out")
    into, out = own.into, own.out
    far = max(0, len(own.peers) - device.core.max_neighbours)
    far_out = min(far, len(out), max(0, device.core.dma_out - len(outputs)))
    far_in = min(far - far_out, len(into))
    far_out = min(len(out), far - far_in)
    for direction, ports, far_streams, streams, limit in (
        ("in", inputs, far_in, into, device.core.dma_in),
        ("out", outputs, far_out, out, device.core.dma_out),
    ):
        needed = len(ports) + far_streams
        if needed > limit:
            names = [*ports, *([f"{far_streams} of {_names(streams)}"] if far_streams else [])]
            yield Violation(f"core_dma_{direction}", where(), needed, limit, ", ".join(names))


def _core_descriptors(
    where: Callable[[], str], group: GroupTiles, out: list[StreamFlow], device: NpuDevice, buffering: Buffering
) -> Iterator[Violation]:
    """Buffer descriptors (one per slot of each tensor port), locks, and the length of one descriptor."""
    core = device.core
    inputs, outputs = _tensors(group, "in"), _tensors(group, "out")
    descriptors = len(inputs) * buffering.input_depth + len(outputs) * buffering.output_depth
    if descriptors > core.buffer_descriptors:
        detail = (
            f"{len(inputs)} inputs with depth {buffering.input_depth}, "
            f"{len(outputs)} outputs with depth {buffering.output_depth}"
        )
        yield Violation("core_descriptors", where(), descriptors, core.buffer_descriptors, detail)
    locks = LOCKS_PER_END * (len(inputs) + len(outputs) + len(out))
    if locks > core.locks:
        names = ", ".join([*inputs, *outputs, *([_names(out)] if out else [])])
        yield Violation("core_locks", where(), locks, core.locks, names)
    for users in group.users.values():
        port = users[0][1].port
        words = -(-port.tile_bytes // WORD_BYTES)
        if words > core.descriptor.max_words:
            yield Violation("descriptor_length", where(), words, core.descriptor.max_words, port.tensor.name)


def stream_deadlock(needed: NeededDepths | None) -> Iterator[Violation]:
    """Tasks that wait for each other's tokens however deep their FIFOs are."""
    if needed is not None and needed.blocked:
        yield Violation(
            "stream_deadlock", "deadlock at any stream depths", len(needed.blocked), 0, "; ".join(needed.blocked)
        )


def _misaligned_tiles(view: MappingView) -> Iterator[Violation]:
    """Tiles whose rows are not whole 32-bit words, which no DMA channel can move."""
    seen = set()
    for group in view.groups:
        for users in group.users.values():
            port = users[0][1].port
            if port.tile_shape and not is_word_aligned(port) and (port.tensor.name, port.tile_shape) not in seen:
                seen.add((port.tensor.name, port.tile_shape))
                rest = port.run_bytes % WORD_BYTES or WORD_BYTES
                shape = "x".join(map(str, port.tile_shape))
                detail = (
                    f"rows of {port.run_bytes} bytes in tiles {shape} of {port.tensor.dtype}; DMA moves 32-bit words"
                )
                yield Violation("word_alignment", f"tensor {port.tensor.name}", rest, 0, detail)


def _far_rows(view: MappingView, device: NpuDevice) -> Iterator[Violation]:
    """Tiles whose rows lie further apart in DRAM than a shim descriptor can step."""
    limit, seen = device.shim.descriptor.max_step_words, set()
    for group in view.groups:
        for users in group.users.values():
            tensor, tile = users[0][1].port.tensor, users[0][1].port.tile_shape
            _, *rows = tile_loops(tile, tensor.shape, tensor.dtype.bits)
            words = max((step // WORD_BYTES for _, step in rows), default=0)
            if words > limit and (tensor.name, tile) not in seen:
                seen.add((tensor.name, tile))
                shape = "x".join(map(str, tile))
                yield Violation("descriptor_stride", f"tensor {tensor.name}", words, limit, f"tiles {shape}")


def _tensors(group: GroupTiles, direction: str) -> list[str]:
    """The tensors of the group's ports in one direction, one entry per DMA channel."""
    return [key[0] for key in group.users if key[1] == direction]


def _names(streams: Iterable[StreamFlow]) -> str:
    return ", ".join(dict.fromkeys(s.stream for s in streams))


def _place(program: CompiledProgram, group: NodeGroup, position: int) -> str:
    """A node as messages name it."""
    alike = f" and {group.count - 1} like it" if group.count > 1 else ""
    return f"core {short_node_name(program, group, position)}{alike}"
