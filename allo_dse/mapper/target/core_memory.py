"""Data memory of cores as Allo's program needs it: FIFOs are at the cores where Allo puts them.

    reserved + 2 * tile per tensor FIFO + FIFOs of streams + arrays of the tasks

A FIFO between cores that share a memory is there once: in the producer's if the consumer reaches that, else in the
consumer's. Any other, and one that a memory tile turns into another layout, is there at both ends.

Every result of an operation on tiles has an array, and so have a tile that is filled element by element, a single value
that is repeated to a tile, a copy of a part of a tile, an operand or a result of a vectorised product that is put into
the kernel's layout, and each token that is got, also where the FIFO is worked on in place. None has the sum of products
that is handed on, what is copied to a tensor as a whole, and what the only put into a FIFO puts. `allo.meta_for` is a
loop, whose body has its arrays once, but where `allo.meta_if` looks at its variable. A bundle is a loop, too; the tasks
of a chain have their arrays each.

Sources: `CodeGenerator.aie_codegen` and `build_core_function` in `allo.backend.aie.mlir_codegen`, `allo_opt` in
`allo.backend.aie` and `mlir/lib/Transforms/CopyOnWrite.cpp`, commit a098603; mlir-aie's
`AIEObjectFifoStatefulTransform` (`isSharedMemory`); and the buffers of the designs that were compared with them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from allo_dse.program.streams import StreamOp
from allo_dse.program.tasks import TaskClass, TileOp

from ..model.movement import StreamFlow
from .fifos import body_of
from .interfaces import PortShortage, one_iteration
from .placer import Core
from .stream_layouts import is_vectorised, turned_streams

if TYPE_CHECKING:
    from .rule import Subject


class CoreMemory(Struct, frozen=True):
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
    for first_node, group in subject.vmg.numbered_groups:
        tasks = [task for task, _ in one_iteration(body_of(group))]
        classes = [subject.program.kernels[task.kernel].classes[task.cls] for task in tasks]
        got, put = into.get(first_node, Counter()), out.get(first_node, Counter())
        yield array_bytes(classes, got, put, subject.device.architecture), group.count


def array_bytes(classes: Sequence[TaskClass], got: Collection[str], put: Mapping[str, int], architecture: str) -> int:
    """Bytes of the arrays of a node.

    Args:
        classes: of the tasks of one iteration.
        got: stream arrays from other nodes.
        put: those to other nodes, with the number of FIFOs.
    """
    inside = _streams(classes, "get") & _streams(classes, "put")
    size = sum(_result_bytes(cls, architecture) for cls in classes)
    size += sum(_token_bytes(op) for op, _ in _operations(classes, "get", got, inside))
    puts = list(_operations(classes[::-1], "put", put, inside))
    names = [op.stream.name for op, _ in puts]
    in_place = (
        op for op, cls in puts if put[op.stream.name] == 1 == names.count(op.stream.name) and _computes(cls, op)
    )
    return size - sum(map(_token_bytes, in_place))


def _streams(classes: Sequence[TaskClass], direction: str) -> set[str]:
    return {port.stream.name for cls in classes for port in cls.stream_ports if port.direction == direction}


def _operations(
    classes: Sequence[TaskClass], direction: str, fifos: Collection[str], inside: Collection[str]
) -> Iterator[tuple[StreamOp, TaskClass]]:
    """Operations on FIFOs to other nodes; of a stream that a chain has inside, only that of its first task."""
    met: set[str] = set()
    for cls in classes:
        own = {(op.stream.name, op.location, op.copy): op for op in cls.stream_ops if op.direction == direction}
        for op in own.values():
            name = op.stream.name
            if name in fifos and op.stream.block and not (name in met and name in inside):
                met.add(name)
                yield op, cls


def _token_bytes(op: StreamOp) -> int:
    return math.prod(op.stream.block) * op.stream.dtype.bits // 8


def _computes(cls: TaskClass, put: StreamOp) -> bool:
    """Whether the token that is put has an array that was counted."""
    new = (op for op in cls.work if op.use.is_new and _shape(op) == put.stream.block)
    return (any(new) or _token_bytes(put) in cls.loop_arrays) and not _sums_products(cls)


def _sums_products(cls: TaskClass) -> bool:
    return any(op.use.sums for op in cls.work)


def _result_bytes(cls: TaskClass, architecture: str) -> int:
    """Bytes of what a task computes, whatever becomes of it."""
    total = sum(cls.loop_arrays)
    if _sums_products(cls):
        return total
    work = list({(op.kind, op.shape, op.location, op.use.copy): op for op in cls.work if op.shape}.values())
    for position, op in enumerate(work, 1):
        use, result = op.use, math.prod(_shape(op)) * op.dtypes[-1].bits // 8
        if op.kind == "copy":
            total += 0 if use.is_part or use.part_bytes else result if use.is_new else -result
            continue
        total += use.part_bytes + (use.is_new + (op.kind != "fill") * use.scalars) * result
        if op.kind == "matmul" and is_vectorised(op, architecture):
            total += use.result_bytes + use.part_bytes + (position < len(work)) * result
    return total


def _shape(op: TileOp) -> tuple[int, ...]:
    return (op.shape[0], op.shape[2]) if op.kind == "matmul" else op.shape
