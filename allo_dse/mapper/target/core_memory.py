"""Data memory of cores as Allo's program needs it: FIFOs are at the cores where Allo puts them.

    reserved + 2 * tile per tensor FIFO + FIFOs of streams + arrays of the tasks

A FIFO between cores that share a memory is there once: in the producer's if the consumer reaches that, else in the
consumer's. Any other, and one that a memory tile turns into another layout, is there at both ends.

Sources: `CodeGenerator.aie_codegen` in `allo.backend.aie.mlir_codegen`, commit a098603, and mlir-aie's
`AIEObjectFifoStatefulTransform` (`isSharedMemory`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..model.movement import StreamFlow
from .core_arrays import array_bytes
from .fifos import body_of
from .interfaces import PortShortage, one_iteration
from .placer import Core
from .stream_layouts import turned_streams

if TYPE_CHECKING:
    from .rule import Subject


@dataclass(frozen=True)
class CoreMemory:
    """Bytes of data memory on the core of a node, by purpose."""

    node: int
    reserved: int
    tensors: int
    streams: int
    arrays: int

    @property
    def total(self) -> int:
        return self.reserved + self.tensors + self.streams + self.arrays

    def __str__(self) -> str:
        parts = {"tensors": self.tensors, "streams": self.streams, "arrays of tasks": self.arrays}
        return ", ".join(f"{name} {size:,}" for name, size in {**parts, "reserved": self.reserved}.items() if size)


def core_memory(subject: Subject, cores: Mapping[int, Core], depth: int) -> Iterator[CoreMemory]:
    """What each node needs.

    Args:
        cores: of the nodes that exchange tokens.
        depth: of the FIFOs of tensors.
    """
    turned = turned_streams(subject.program, subject.device.architecture)
    streams = stream_bytes(subject.fifos, cores, turned)
    arrays = [size for size, count in _arrays(subject) for _ in range(count)]
    for node, (own, size) in enumerate(zip(subject.interfaces, arrays, strict=True)):
        tensors = 0 if isinstance(own, PortShortage) else sum(depth * one.port.tile_bytes for one in own)
        yield CoreMemory(node, subject.device.reserved_core_bytes, tensors, streams[node], size)


def stream_bytes(fifos: Iterable[StreamFlow], cores: Mapping[int, Core], turned: Collection[str]) -> Counter[int]:
    """Bytes of FIFOs between nodes in the memory of each node's core.

    Args:
        turned: stream arrays whose tokens pass through a memory tile.
    """
    found: Counter[int] = Counter()
    for flow in fifos:
        source, target = cores[flow.source], cores[flow.target]
        ends = [flow.source, flow.target]
        if flow.stream not in turned:
            if _reaches(target, source):
                ends = [flow.source]
            elif _reaches(source, target):
                ends = [flow.target]
        for node in ends:
            found[node] += flow.count * flow.depth * flow.token_bytes
    return found


def _reaches(core: Core, memory: Core) -> bool:
    """Whether a core works on the memory of another: above, below, or to the left of it."""
    return (core[0] - memory[0], abs(core[1] - memory[1])) in ((0, 0), (0, 1), (1, 0))


def _arrays(subject: Subject) -> Iterator[tuple[int, int]]:
    """Per group of nodes the bytes of their tasks' arrays, and how many nodes there are."""
    into: dict[int, Counter[str]] = {}
    out: dict[int, Counter[str]] = {}
    for flow in subject.fifos:
        for ends, node in ((into, flow.target), (out, flow.source)):
            ends.setdefault(node, Counter())[flow.stream] += flow.count
    first_node = 0
    for group in subject.vmg.groups:
        tasks = [task for task, _ in one_iteration(body_of(group))]
        classes = [subject.program.kernels[task.kernel].classes[task.cls] for task in tasks]
        got, put = into.get(first_node, Counter()), out.get(first_node, Counter())
        yield array_bytes(classes, got, put, subject.device.architecture), group.count
        first_node += group.count
