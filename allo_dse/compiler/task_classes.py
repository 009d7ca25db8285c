"""Compilation of a kernel to its task classes."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Iterator

import numpy as np

from allo_dse.common.records import replace
from allo_dse.lang.memory import Memory

from .expressions.streams import part_of_array, receive_gathered
from .ir.affine import rounds
from .ir.nest import Nest, read_nest
from .model.mlir_text import memref_type
from .model.values import Buffer, Meta, table
from .program.compiled import Kernel, TaskBody, TaskClass, TileOp, Watch
from .program.tensors import IndexMap, IntArray, SourceArray, StreamArray, StreamPort, TensorPort
from .regions.region_sources import KernelSource, Parameter, RegionSource
from .regions.task_state import Mask, PortUse, Split, Task
from .statements.calls import local_copy, mutable_names, stop_called, when_started
from .statements.expressions import lower
from .statements.loops import may_return_early, new_frame
from .statements.statements import lower_block

_MOST_TRIED = 1 << 18
"""Tasks, and values of loop variables in them, that are gone through one by one."""


def counted(task: Task, mlir: str) -> Iterator[TileOp]:
    """The work of a body, counted where loops and conditions on their variables decide how often it is done."""
    unknown = [site for site, op in enumerate(task.work) if op.count is None and op.counts is None]
    nest = read_nest(mlir) if unknown else None
    for site, op in enumerate(task.work):
        counts = None if nest is None or site not in unknown else _rounds_of(task, nest, site)
        if counts is None:
            yield op
            continue
        alike = np.unique(task.per_task(table(counts)))
        yield replace(op, count=int(alike[0])) if len(alike) == 1 else replace(op, counts=counts)


def _rounds_of(task: Task, nest: Nest, site: int) -> IntArray | None:
    """Count the executions of one piece of work in each task; broadcasts against the mesh.

    None if data decides, or if there are too many tasks or iterations to count.
    """
    paths = nest.priced.get(site, ())
    deciding = {v for path in paths for around in path for v in around.variables}
    mesh = tuple(extent if pid in deciding else 1 for pid, extent in zip(nest.pids, task.kernel.mesh, strict=True))
    if math.prod(mesh) > _MOST_TRIED:
        return None
    counts, left = np.zeros(mesh, np.int64), iter(range(_MOST_TRIED))
    for pid in np.ndindex(mesh):
        found = [rounds(path, dict(zip(nest.pids, pid, strict=True)), left) for path in paths]
        if not found or None in found:
            return None
        counts[pid] = sum(one for one in found if one is not None)
    return counts


LONGEST_PATH = 24


def compile_kernel(source: RegionSource, kernel: KernelSource, watch: Watch | None = None) -> tuple[Kernel, list[Task]]:
    """Compile a kernel; the result's classes and the compiled task sets correspond one to one.

    Raises:
        ProgramError: at the first thing that is wrong.
    """
    tasks = []
    for task in _task_sets(source, kernel):
        tasks.append(task)
        if watch is not None and not task.region_calls:
            watch.ports(_tensor_ports(task))
    tasks.sort(key=lambda task: np.unravel_index(task.mask.argmax(), task.mask.shape))  # by their smallest pid
    shape = np.broadcast_shapes(*(task.mask.shape for task in tasks))
    table = np.zeros(shape, np.int64)
    for position, task in enumerate(tasks):
        table[np.broadcast_to(task.mask, shape)] = position
    classes = tuple(_task_class(task, name) for task, name in zip(tasks, _names(tasks), strict=True))
    arguments = tuple(parameter.tensor for parameter in kernel.parameters)
    return Kernel(kernel.name, kernel.mesh, arguments, classes, table, kernel.location), tasks


def _task_sets(source: RegionSource, kernel: KernelSource) -> Iterator[Task]:
    """Compile the kernel for all tasks at once; where they differ, start over with each part."""
    pending = [np.ones((1,) * len(kernel.mesh), np.bool_)]
    while pending:
        mask = pending.pop()
        try:
            task = _compiled(source, kernel, mask)
        except Split as split:
            pending.extend(part for part in split.masks if part.any())
        except RecursionError:
            source.file.fail(kernel.node, f"kernel `{kernel.name}` is nested too deeply")
        else:
            yield task


class _CompiledTask(Task):
    """A task with the compilers of its source."""

    lower = lower
    lower_block = lower_block
    lower_streams = part_of_array
    receive = receive_gathered


def _compiled(source: RegionSource, kernel: KernelSource, mask: Mask) -> Task:
    """The tasks of a set; those that call regions are compiled again with the tokens and shared arrays this needs."""
    more, shares = False, frozenset[ast.AST]()
    while True:
        task = _CompiledTask(source, kernel, mask, does_more=more, shares=shares)
        _compile(task)
        used = [position for call in task.region_calls for position in set(call.arguments)]
        does_work = bool(task.work or task.stream_ops or task.writes or task.loops[0].has_scalar_work)
        # Regions without an argument in common can run at the same time, in place of a task that does nothing else.
        needs_tokens = bool(task.wanted) or (bool(task.region_calls) and (does_work or len(used) > len(set(used))))
        if task.wanted <= shares and (more or not needs_tokens):
            return task
        more, shares = more or needs_tokens, shares | task.wanted


def _compile(task: Task) -> None:
    task.mutable.append(mutable_names(task.kernel.node))
    with when_started(task):
        early = may_return_early(task.kernel.node)
        task.frames = [new_frame(task, leaves=early, skips=early, loop=False)]
        for position, parameter in enumerate(task.kernel.parameters):
            argument = _argument(parameter, position)
            own_copy = argument.shape == () and task.is_mutable(parameter.name)
            task.declare(parameter.name, local_copy(task, argument, parameter.node) if own_copy else argument)
        task.lower_block(task.kernel.node.body)
        stop_called(task)


def _argument(parameter: Parameter, position: int) -> Buffer:
    ssa = _ssa(parameter, position)
    type_ = memref_type(parameter.tensor.dtype, parameter.tile_shape, strided=True)
    return Buffer(ssa, parameter.tensor.dtype, parameter.tile_shape, type_, ssa, position)


def _ssa(parameter: Parameter, position: int) -> str:
    """The name of an argument, unless it could clash with the generated names of a body's other arguments."""
    name = parameter.name
    clashes = not name.isascii() or re.fullmatch(r"(pid|shared|state|external|s)\d+", name)
    return f"%arg{position}" if clashes else f"%{name}"


def _names(tasks: list[Task]) -> list[str]:
    """Names of classes: the answers of their conditions, so that they do not change with the mesh."""
    names = ["t" + "".join(task.path) if task.path else "all" for task in tasks]
    if max(map(len, names)) > LONGEST_PATH or len(set(names)) < len(names):
        return [f"c{position}" for position in range(len(tasks))]
    return names


def _task_class(task: Task, name: str) -> TaskClass:
    kernel = task.kernel
    symbol = f"{kernel.name}_{name}" if kernel.name.isascii() else f"kernel_{name}"
    arguments = [(f"%pid{axis}", "index") for axis in range(len(kernel.mesh))]
    for position, parameter in enumerate(kernel.parameters):
        arguments.append((_ssa(parameter, position), _argument(parameter, position).type))
    shared = (one.parameter for one in task.shared)
    memory = [(f"%shared{n}", one.tensor.dtype, one.tile_shape) for n, one in enumerate(shared)]
    memory += [(f"%state{n}", one.dtype, one.shape) for n, one in enumerate(task.state)]
    arguments += [(name, memref_type(dtype, shape, strided=True)) for name, dtype, shape in memory]
    uses = list(task.ports.values())
    indices = [*(f"%external{n}" for n in range(len(task.externals))), *(port.ssa for port in uses)]
    arguments += [(name, "index") for name in indices]
    mlir = task.text.finish(symbol, arguments)
    return TaskClass(
        name=name,
        kernel=kernel.name,
        tensor_ports=_tensor_ports(task),
        stream_ports=tuple(_static_port(task, part) for port in uses for part in port.fixed),
        work=tuple(counted(task, mlir)),
        stream_ops=tuple(task.stream_ops),
        body=TaskBody(symbol, mlir, tuple(p.stream if p.index is None else _static_port(task, p) for p in uses)),
        location=task.location(kernel.node),
        state=tuple(task.state),
        externals=tuple(task.externals),
        loops=tuple(task.source_loops),
        layouts=task.layouts.uses(),
        index_checks=tuple(task.index_checks),
        arrays=tuple(_named_arrays(task, [name for name, _ in arguments])),
        loop_arrays=tuple(task.loop_arrays.values()),
    )


def _named_arrays(task: Task, arguments: list[str]) -> Iterator[SourceArray]:
    """Yield the source names of the arrays of a body with these arguments."""
    task.memories |= {f"%{p.name}": p.memory for p in task.kernel.parameters if p.memory is not None}
    for (function, call, name), ssa in task.named.items():
        memory = _kept(task.memories.get(ssa))
        if ssa in arguments:
            yield SourceArray(function, call, name, arguments.index(ssa), memory=memory)
        elif ssa in task.text.arrays:
            yield SourceArray(function, call, name, None, task.text.arrays.index(ssa), memory)


def _kept(memory: Memory | None) -> tuple[str, str] | None:
    """The kind and type of a memory that code generators support, else None."""
    kind = "" if memory is None else memory.resource.lower()
    if memory is None or kind not in ("bram", "uram", "lutram"):
        return None
    return kind, (memory.storage_type or "ram_2p").lower()


def _tensor_ports(task: Task) -> tuple[TensorPort, ...]:
    parameters = [*task.kernel.parameters, *(one.parameter for one in task.shared)]
    return tuple(
        TensorPort(n, one.tensor, one.layout, one.tile_shape, one.tile, n in task.reads, n in task.writes)
        for n, one in enumerate(parameters)
    )


def _static_port(task: Task, port: PortUse) -> StreamPort:
    assert port.index is not None
    where, tokens = index_map(task, port.stream, port.index), task.published(port.tokens)
    return StreamPort(port.stream, port.direction, where, tokens, task.location(port.node))


def index_map(task: Task, stream: StreamArray, index: tuple[Meta, ...]) -> IndexMap:
    """Return the stream that each task uses: affine if possible, else a table over the whole mesh."""
    if all(i.affine is not None for i in index):
        rows = [i.affine for i in index if i.affine is not None]
        return IndexMap(stream.shape, tuple(row for row, _ in rows), tuple(offset for _, offset in rows))
    linear = np.zeros((1,) * len(task.kernel.mesh), np.int64)
    for value, extent in zip(index, stream.shape, strict=True):
        linear = linear * extent + np.clip(value.array, 0, extent - 1)
    return IndexMap(stream.shape, table=np.broadcast_to(linear, task.kernel.mesh).copy())
