"""Rules about folded graphs for Allo's AIE backend, up to the vendor's tools.

Source of all rules: github.com/cornell-zhang/allo, commit a098603.

`docs/allo_target.md` lists the rules and how often they agree with Allo.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from allo_dse.common.records import Frozen
from allo_dse.compiler.program.compiled import TaskClass, TileOp
from allo_dse.compiler.program.tensors import StreamOp
from allo_dse.device.device import NpuDevice
from allo_dse.mapper.fold.vmg import VMG
from allo_dse.mapper.graph.groups import NodeGroup
from allo_dse.mapper.violation import Violation

from ..movement.movement import LOCKS_PER_END, StreamFlow
from .interfaces import PORTS_PER_CORE, PortShortage, body_of, one_iteration
from .placer import Core, NotPlaced, by_position
from .program_rules import PROGRAM_RULES
from .rule import AlloRule, Subject, rule
from .stream_rules import (
    chained_loops,
    chained_tensors,
    crowded_memory_tile,
    is_vectorised,
    rolled_streams,
    stream_types,
    token_order,
    turned_streams,
)
from .transfers import NoTransfer, TransferPlan, full_queues, unanswered

# Data memory of cores in Allo's program, with FIFOs on the cores that Allo chooses.
#
#     reserved + 2 * tile per tensor FIFO + FIFOs of streams + arrays of the tasks
#
# A FIFO between cores that share a memory exists once: in the producer's memory if the consumer reaches it, else in the
# consumer's. Any other FIFO exists at both ends, and so does one whose layout a memory tile changes.
#
# These have an array: every result of an operation on tiles, a tile that is filled element by element, a single value
# that is repeated to a tile, a copy of a part of a tile, an operand or result of a vectorised product in the kernel's
# layout, and each token that is got, even if the FIFO is updated in place. These have none: a sum of products that is
# passed on, a value that is copied to a tensor as a whole, and the token of the only put into a FIFO.
# `allo.meta_for` is a loop, whose body has its arrays once, unless `allo.meta_if` reads its variable. A bundle is a
# loop, too. Each task of a chain has its own arrays.
#
# Sources: `CodeGenerator.aie_codegen` and `build_core_function` in `allo.backend.aie.mlir_codegen`, `allo_opt` in
# `allo.backend.aie` and `mlir/lib/Transforms/CopyOnWrite.cpp`, commit a098603; mlir-aie's
# `AIEObjectFifoStatefulTransform` (`isSharedMemory`); and the buffers of the designs that were compared.


class CoreMemory(Frozen):
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
    """Yield the memory that each node needs.

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
    """Return whether a core can access the memory of another: above, below, or to the left of it."""
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
    """Return whether the put token has an array that is counted already."""
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


FIFO_DEPTH = 2
"""Depth of the object FIFOs of tensors: `CodeGenerator.aie_codegen`."""
MOST_COMPARING_S = 120
SECONDS_PER_ROUNDS_CUBED = 3e-9
"""Time for two nodes. Measured: 21 pairs with 512 rounds take 8 s, with 1,024 rounds 78 s."""


@rule("allo_core_ports", "allo.backend.aie.mapping.ComputationGraph.get_global_io")
def core_ports(subject: Subject) -> Iterator[Violation]:
    """A node has two tensors in each direction; arguments for one tensor are merged only when there are more."""
    for own in subject.interfaces:
        if isinstance(own, PortShortage):
            where = subject.node_name(own.node)
            yield Violation("allo_core_ports", where, own.needed, PORTS_PER_CORE, ", ".join(own.tensors))
            return


@rule("allo_transfers", "allo.backend.aie.mlir_codegen.CodeGenerator.map_data_transfer")
def transfers(subject: Subject) -> Iterator[Violation]:
    """Tiles that do not lie next to each other need a transfer each, and each of them ports."""
    refusal = subject.transfers
    if isinstance(refusal, NoTransfer):
        first, short = refusal.stream[0], refusal.shortage
        detail = f"Allo has no ports left for {subject.node_name(first.node)}"
        if refusal.parts:
            detail = f"Allo spreads its transfer over {refusal.parts} channels, and rows of tiles do not divide so"
        elif short is None:
            detail += f"; {_ADJACENT}"
        else:
            detail += f": {short}; {_one_tile_per_core(subject, short.by_tensor) or _ADJACENT}"
        needed, limit = (short.needed, short.limit) if short is not None else (1, 0)
        yield Violation("allo_transfers", f"tensor {first.port.tensor.name}", needed, limit, detail)


_ADJACENT = "tiles lie next to each other where nodes take them by turns (cyclic), not where each has a block"


def _one_tile_per_core(subject: Subject, by_tensor: Mapping[str, int]) -> str:
    """Return the mesh that the tensor with most channels needs to share them, if nodes have blocks of its tiles."""
    fold, program = subject.vmg.mesh_fold, subject.program
    if fold is None:
        return ""
    for name in sorted(by_tensor, key=lambda name: -by_tensor[name]):
        for kernel, own in zip(program.kernels, fold.kernels, strict=True):
            cut = {axis for cls in kernel.classes for p in cls.used_ports if p.tensor.name == name for axis in p.layout}
            for axis, (choice, extent) in enumerate(zip(own.axes, kernel.mesh, strict=True)):
                if axis in cut and choice.pattern == "block" and 1 < choice.spatial < extent:
                    tasks = f"map {kernel.name} to {choice.spatial} tasks along axis {axis} instead of {extent}"
                    return f"{tasks}: each core has one tile of {name}, and those next to each other share a channel"
    return ""


@rule("allo_rounds", "MulticastInterface._contiguous_data_transfer in allo.backend.aie.mlir_codegen.CodeGenerator")
def rounds(subject: Subject) -> Iterator[Violation]:
    """Allo compares nodes with possibly adjacent tiles round by round; a round is an iteration of a bundle.

    For every round of the one, Allo goes through those of the other, and looks each up in a list of those it has seen.
    """
    runs = subject.transfers
    if not isinstance(runs, tuple):
        return
    rounds: dict[str, list[int]] = {}
    for run in runs:
        rounds.setdefault(run.sample.port.tensor.name, []).extend(len(s[0].tiles) for s in run.streams)
    seconds = sum((len(own) - 1) * max(own) ** 3 for own in rounds.values()) * SECONDS_PER_ROUNDS_CUBED
    if seconds > MOST_COMPARING_S:
        most = max(map(max, rounds.values()))
        detail = f"Allo compares every two rounds of a tensor's nodes, up to {most:,} rounds each; use larger tiles"
        yield Violation("allo_rounds", "tensors", math.ceil(seconds), MOST_COMPARING_S, detail)


@rule("allo_requests", "allo.backend.aie.mlir_codegen.CodeGenerator.aie_codegen, runtime sequence")
def requests(subject: Subject) -> Iterator[Violation]:
    """Limits of the host's queue: requests queued at once must fit, and every wait needs a result on its way."""
    runs = subject.transfers
    if not isinstance(runs, tuple):
        return
    queue = next(full_queues(runs), None)
    if queue is not None:
        detail = "per iteration of the outermost bundle; tiles that are needed again are requested again"
        yield Violation("allo_requests", queue.where, queue.needed, queue.limit, detail)
        return
    group = unanswered(runs)
    if group is not None:
        detail = f"Allo waits for a result once it has requested {group} iterations, and none is on its way"
        yield Violation("allo_requests", "the host", 1, 0, detail)


@rule("core_locks", "allo.backend.aie.mlir_codegen.CodeGenerator.aie_codegen, stream fifos")
def fifos(subject: Subject) -> Iterator[Violation]:
    """Every stream that is not merged by a bundle is an object FIFO, with two locks at each end."""
    out: dict[int, list[StreamFlow]] = {}
    for stream in subject.fifos:
        out.setdefault(stream.source, []).append(stream)
    many = {node: streams for node, streams in out.items() if any(s.count > 1 for s in streams)}
    limit = subject.device.core.locks
    for node, streams in many.items():
        group, _ = subject.group_of(node)
        tensors = next(len(tiles.users) for tiles in subject.view.groups if tiles.group is group)
        needed = LOCKS_PER_END * (tensors + sum(s.count for s in streams))
        if needed > limit:
            detail = ", ".join(f"{s.count} FIFOs of {s.stream}" for s in streams)
            yield Violation("core_locks", subject.node_name(node), needed, limit, detail)
            return


@rule("allo_placement", "allo.backend.aie.mlir_codegen.CodeGenerator.map_core_func_to_physical_tiles")
def placement(subject: Subject) -> Iterator[Violation]:
    """Nodes that exchange tokens are placed in strings, which must not run out of columns."""
    refusal = subject.cores
    if isinstance(refusal, NotPlaced):
        detail = (
            "Allo finds no core for it: it lays nodes that exchange tokens side by side, column by column, and "
            "those that do so in a circle twice; fewer nodes, or fewer streams between them, leave room"
        )
        yield Violation("allo_placement", subject.node_name(refusal.node), 1, 0, detail)


@rule("core_memory", "allo.backend.aie.mlir_codegen.CodeGenerator: aie_codegen, build_core_function; allo_opt")
def memory(subject: Subject) -> Iterator[Violation]:
    """FIFOs are at the cores where Allo puts them, and every array that a task declares or computes has its place."""
    if isinstance(subject.cores, NotPlaced) or not isinstance(subject.plan, TransferPlan):
        return
    largest = max(core_memory(subject, subject.cores, FIFO_DEPTH), key=lambda own: own.total)
    limit = subject.device.core.memory_bytes
    if largest.total > limit:
        yield Violation("core_memory", subject.node_name(largest.node), largest.total, limit, str(largest))


@rule("program_memory", "allo.backend.aie.mapping.ComputationGraph.refactor (construct_kernel)")
def program_memory(subject: Subject) -> Iterator[Violation]:
    """Each task of a chain has code of its own on the core; a bundle is a loop."""
    limit = subject.device.core.program_bytes
    for node, group in subject.vmg.numbered_groups:
        least, tasks = round(_LEAST_CODE * group_code_bytes(subject.vmg, group)), len(one_iteration(body_of(group)))
        if least > limit:
            detail = (
                f"{tasks} tasks of a chain, each with code of its own, of at least so much; a shorter chain (larger "
                "tiles along it, or the axis over more cores) or a bundle, which is a loop, needs less"
            )
            yield Violation("program_memory", subject.node_name(node), least, limit, detail)
            return


def crowded_program(vmg: VMG, device: NpuDevice) -> str:
    """Return a warning where the code of a core may not fit its program memory; empty if it surely does."""
    code, limit = max(group_code_bytes(vmg, group) for group in vmg.groups), device.core.program_bytes
    if _MOST_CODE * code <= limit:
        return ""
    least, most = _LEAST_CODE * code, _MOST_CODE * code
    return f"Allo's program may not fit a core: an estimated {least:,.0f} to {most:,.0f} of {limit:,} bytes"


def group_code_bytes(vmg: VMG, group: NodeGroup) -> int:
    """Return the estimated bytes of code of each node of a group; see `code_bytes`."""
    tasks = (task for task, _ in one_iteration(body_of(group)))
    return code_bytes([vmg.program.kernels[task.kernel].classes[task.cls] for task in tasks])


# Bytes of a core's program. Allo's authors chain up to 64 products of two tiles (cornell-zhang/allo, pull request 377).
# The numbers below estimate 13.7 KB for that, which fits 16 KB: so a program has at most 1.19 times its estimate. Half
# of it is left if a task takes 64 bytes, four lock operations, three pointers and a call, in instructions of 2 to 16
# bytes (Xilinx/llvm-aie). Functions of the kernel library and loops are assumed; docs/allo_target.md.
_LEAST_CODE, _MOST_CODE = 0.5, 1.19
_START_BYTES, _PRODUCT_BYTES, _FUNCTION_BYTES = 600, 3500, 700
_CALL_BYTES, _LOCK_BYTES, _LOOP_BYTES = 64, 18, 300


def code_bytes(classes: Sequence[TaskClass]) -> int:
    """Bytes of code of a node: its tasks one after the other, and once each function that they call.

    Args:
        classes: of the tasks of one iteration.
    """
    functions: dict[object, int] = {}
    total = _START_BYTES
    for cls in classes:
        work = {(op.kind, op.shape, op.location, op.use.copy): op for op in cls.work if not op.use.sums}.values()
        calls = [op for op in work if op.kind not in ("loop", "copy", "get", "put")]
        functions |= {(op.kind, op.shape): _PRODUCT_BYTES if op.kind == "matmul" else _FUNCTION_BYTES for op in calls}
        total += sum(_LOOP_BYTES if op.kind == "loop" else _CALL_BYTES for op in work)
        total += 2 * _LOCK_BYTES * len(cls.used_ports)
    return total + sum(functions.values())


@rule("allo_stream_layout", "allo.backend.aie.mlir_codegen.CodeGenerator.aie_codegen, stream fifos; utils.Stream")
def stream_layouts(subject: Subject) -> Iterator[Violation]:
    """Operands and results of matrix products that pass through streams change their layout in a memory tile."""
    turned = turned_streams(subject.program, subject.device.architecture)
    flows = [flow for flow in by_position(subject.vmg, subject.fifos) if flow.stream in turned]
    both = next((flow for flow in flows if turned[flow.stream]), None)
    plan, cores = subject.plan, subject.cores
    if both is not None:
        detail = "a result of one product is an operand of the next, and Allo turns a stream's layout once"
        yield Violation("allo_stream_layout", f"stream {both.stream}", 1, 0, detail)
    elif isinstance(plan, TransferPlan) and not isinstance(cores, NotPlaced) and flows:
        crowded = crowded_memory_tile(flows, cores, plan.memory_ports)
        if crowded is not None:
            detail = (
                f"from {subject.node_name(crowded.source)}: its layout changes in a memory tile, and Allo finds "
                "none with a channel left; fewer cores for what is multiplied, or fewer tensors, leave some"
            )
            yield Violation("allo_stream_layout", f"stream {crowded.stream}", 1, 0, detail)


ALLO_RULES: tuple[AlloRule, ...] = (
    *PROGRAM_RULES,
    core_ports,
    transfers,
    rounds,
    requests,
    fifos,
    stream_types,
    rolled_streams,
    chained_loops,
    chained_tensors,
    placement,
    stream_layouts,
    token_order,
    memory,
    program_memory,
)
