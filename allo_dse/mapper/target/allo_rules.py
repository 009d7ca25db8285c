"""What Allo's AIE backend builds, up to the vendor's tools: rules about folded graphs.

Source of all rules: github.com/cornell-zhang/allo, commit a098603.

`docs/allo_target.md` lists the rules and how often they agree with Allo.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from allo_dse.program.streams import StreamPort

from ..model.movement import StreamFlow
from ..model.violation import Violation
from ..streams.round_wiring import Wiring
from ..streams.tiles import GroupTiles
from ..transport.tile_limits import LOCKS_PER_END
from .allo_program import PROGRAM_RULES
from .interfaces import PORTS_PER_CORE, PortShortage
from .requests import full_queues, unanswered
from .rule import Rule, Subject
from .token_order import TokenOrder
from .transfers import NoPorts


class CorePorts:
    """A node has two tensors in each direction; arguments for one tensor are merged only when there are more."""

    name, folded = "allo_core_ports", True
    source = "allo.backend.aie.mapping.ComputationGraph.get_global_io"

    def check(self, subject: Subject) -> Iterator[Violation]:
        for own in subject.interfaces:
            if isinstance(own, PortShortage):
                where = subject.node_name(own.node)
                yield Violation(self.name, where, own.needed, PORTS_PER_CORE, ", ".join(own.tensors))
                return


class Transfers:
    """Tiles that do not lie next to each other need a transfer each, and each of them ports."""

    name, folded = "allo_transfers", True
    source = "allo.backend.aie.mlir_codegen.CodeGenerator.map_data_transfer"

    def check(self, subject: Subject) -> Iterator[Violation]:
        refusal = subject.transfers
        if isinstance(refusal, NoPorts):
            first = refusal.stream[0]
            detail = (
                f"Allo has no ports left for {subject.node_name(first.node)}; tiles lie next to each "
                "other where nodes take them by turns (cyclic), not where each has a block"
            )
            yield Violation(self.name, f"tensor {first.port.tensor.name}", 1, 0, detail)


class Requests:
    """What the host queues at once has to fit, and a result has to be on its way whenever it waits."""

    name, folded = "allo_requests", True
    source = "allo.backend.aie.mlir_codegen.CodeGenerator.aie_codegen, runtime sequence"

    def check(self, subject: Subject) -> Iterator[Violation]:
        runs = subject.transfers
        if not isinstance(runs, tuple):
            return
        queue = next(full_queues(runs), None)
        if queue is not None:
            detail = "per iteration of the outermost bundle; tiles that are needed again are requested again"
            yield Violation(self.name, queue.where, queue.needed, queue.limit, detail)
            return
        group = unanswered(runs)
        if group is not None:
            detail = f"Allo waits for a result once it has requested {group} iterations, and none is on its way"
            yield Violation(self.name, "the host", 1, 0, detail)


class Fifos:
    """Every stream that no bundle merges with another is an object FIFO of its own, with locks and memory."""

    name, folded = "core_locks", True
    source = "allo.backend.aie.mlir_codegen.CodeGenerator.aie_codegen, stream fifos"

    def check(self, subject: Subject) -> Iterator[Violation]:
        out: dict[int, list[StreamFlow]] = {}
        for stream in subject.view.links.between:
            out.setdefault(stream.source, []).append(stream)
        many = {node: streams for node, streams in out.items() if any(s.count > 1 for s in streams)}
        yield from self._locks(subject, many)
        yield from self._memory(subject, many)

    def _locks(self, subject: Subject, many: dict[int, list[StreamFlow]]) -> Iterator[Violation]:
        limit = subject.device.core.locks
        for node, streams in many.items():
            group, _ = subject.group_of(node)
            tensors = next(len(tiles.users) for tiles in subject.view.groups if tiles.group is group)
            needed = LOCKS_PER_END * (tensors + sum(s.count for s in streams))
            if needed > limit:
                detail = ", ".join(f"{s.count} FIFOs of {s.stream}" for s in streams)
                yield Violation(self.name, subject.node_name(node), needed, limit, detail)
                return

    def _memory(self, subject: Subject, many: dict[int, list[StreamFlow]]) -> Iterator[Violation]:
        device = subject.device
        for node, streams in many.items():
            group, _ = subject.group_of(node)
            own = next(
                m for m, tiles in zip(subject.mapping.memory, subject.view.groups, strict=True) if tiles.group is group
            )
            needed = own.total - own.streams + sum(s.count * s.depth * s.token_bytes for s in streams)
            if needed > device.core.memory_bytes:
                detail = ", ".join(f"{s.count} FIFOs of {s.stream}" for s in streams)
                yield Violation("core_memory", subject.node_name(node), needed, device.core.memory_bytes, detail)
                return


class RolledStreams:
    """`allo.meta_for` stays a loop: in chains of tasks that exchange tokens, no stream is picked by its variable.

    Streams that bundles have merged are one, and can be in the loop of a task that exchanges others.
    """

    name, folded = "allo_rolled_streams", True
    source = "allo.backend.aie.mapping.ComputationGraph: chain, refactor"

    def check(self, subject: Subject) -> Iterator[Violation]:
        first_node = 0
        for group, wirings in zip(subject.view.groups, subject.view.links.wirings, strict=True):
            for wiring in wirings:
                stream = _rolled_inside(group, wiring) or self._rolled_outside(subject, group, first_node, wiring)
                if stream is not None:
                    detail = f"Allo does not build {stream}: a loop picks it, in a chain of tasks that exchange tokens"
                    yield Violation(self.name, subject.node_name(first_node), 1, 0, detail)
                    return
            first_node += group.group.count

    def _rolled_outside(self, subject: Subject, group: GroupTiles, first_node: int, wiring: Wiring) -> str | None:
        """A stream array of which a loop of the node's tasks uses several FIFOs to another node."""
        if not wiring.streams:
            return None
        nodes = range(first_node, first_node + group.group.count)
        fifos = {s.stream: s.count for s in subject.view.links.between if s.source in nodes or s.target in nodes}
        for use in group.round.classes:
            for port in _rolled_ports(subject.program.kernels[use.task.kernel].classes[use.task.cls].stream_ports):
                if fifos.get(port.stream.name, 0) > 1:
                    return port.stream.name
        return None


def _rolled_inside(group: GroupTiles, wiring: Wiring) -> str | None:
    """A stream between tasks of a node that one of them uses in a loop."""
    for stream in wiring.streams:
        for leaf, position in ((stream.put_leaf, stream.put), (stream.get_leaf, stream.get)):
            ports = wiring.classes[leaf].streams
            if ports[position] in _rolled_ports(ports):
                return ports[position].stream.name
    return None


def _rolled_ports(ports: Sequence[StreamPort]) -> list[StreamPort]:
    """The ports of a class that stand for one operation of the source in a loop."""
    sites = Counter((port.location, port.direction) for port in ports)
    return [port for port in ports if port.location is not None and sites[port.location, port.direction] > 1]


ALLO_RULES: tuple[Rule, ...] = (
    *PROGRAM_RULES,
    CorePorts(),
    Transfers(),
    Requests(),
    Fifos(),
    RolledStreams(),
    TokenOrder(),
)
