"""The front end: from a region to a compiled program, and from its kernels to task classes."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from traceback import walk_tb
from types import FunctionType

import numpy as np

from allo_dse.common.errors import ProgramError
from allo_dse.common.records import Frozen, replace
from allo_dse.lang.memory import Memory
from allo_dse.lang.region import Instance, Region, as_region
from allo_dse.lang.schedule import DIRECTIVES, Schedule

from .expressions.streams import part_of_array, receive_gathered
from .ir.affine import rounds
from .ir.nest import Nest, read_nest
from .model.mlir_text import memref_type
from .model.source_file import function_source, source_file
from .model.values import Buffer, Meta, table
from .program.compiled import CompiledProgram, Directive, Kernel, TaskBody, TaskClass, TileOp, Watch
from .program.tensors import (
    Construct,
    IndexMap,
    IntArray,
    SharedTensor,
    SourceArray,
    StreamArray,
    StreamPort,
    TensorPort,
)
from .regions.checks import check_program
from .regions.read_regions import is_typed, read_function, read_region
from .regions.region_sources import KernelSource, Parameter, RegionSource, SharedArray, split_kernels
from .regions.schedules import checked_schedule
from .regions.task_state import Mask, PortUse, Split, Task
from .statements.calls import local_copy, mutable_names, stop_called, when_started, with_sync
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


def compile_kernel(source: RegionSource, kernel: KernelSource, watch: Watch | None) -> tuple[Kernel, list[Task]]:
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
            task = _compiled_tasks(source, kernel, mask)
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


def _compiled_tasks(source: RegionSource, kernel: KernelSource, mask: Mask) -> Task:
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


# A task whose body is a region call is replaced by that region's kernels.
#
#   before:  top { wrapper [2]: task 0 calls inner[2, 2], task 1 calls inner[4, 4] }
#   after:   top { wrapper_0_gemm [2, 2], wrapper_1_gemm [4, 4] }
#
# A task that does other work too stays, and exchanges tokens with the region's tasks (see `statements.calls`).


MAX_DEPTH = 16


class CompiledPart(Frozen, eq=False):
    """The kernels that one region contributes to a program."""

    source: RegionSource
    kernels: tuple[Kernel, ...]
    warnings: tuple[str, ...]
    handovers: tuple[StreamArray, ...] = ()
    shared: tuple[SharedArray, ...] = ()
    constructs: tuple[Construct, ...] = ()

    @property
    def streams(self) -> tuple[StreamArray, ...]:
        """The declared streams, and the streams that start the tasks of called regions."""
        return (*self.source.streams.values(), *self.handovers)


def compile_hierarchy(source: RegionSource, watch: Watch | None = None, depth: int = 0) -> list[CompiledPart]:
    """Compile a region and the regions that its tasks call, outermost first.

    Raises:
        ProgramError: at the first error.
    """
    if watch is not None:  # also for a task that only calls regions: it becomes at least one task
        watch.tasks(source.task_count)
    compiled = [compile_kernel(source, kernel, watch) for kernel in source.kernels]
    kernels, sets = [kernel for kernel, _ in compiled], [tasks for _, tasks in compiled]
    warnings = check_program(source, kernels, sets)
    # Tasks that only call regions are replaced by them.
    kept = [kernel for kernel, tasks in compiled if any(task.does_more or not task.region_calls for task in tasks)]
    every = [task for tasks in sets for task in tasks]
    handovers = {one.name: one for task in every for sync in task.handovers for one in (sync.start, sync.done)}
    shared = {one.parameter.tensor.name: one for task in every for one in task.shared}
    constructs = tuple(dict.fromkeys(one for task in every for one in task.constructs))
    parts = [
        CompiledPart(
            source, tuple(kept), tuple(warnings), tuple(handovers.values()), tuple(shared.values()), constructs
        )
    ]
    for kernel, tasks in compiled:
        for task in tasks:
            for inner in _called(kernel, task, depth):
                parts += compile_hierarchy(inner, watch, depth + 1)
    return parts


def _called(kernel: Kernel, task: Task, depth: int) -> Iterator[RegionSource]:
    """The regions that each task of a class calls."""
    if not task.region_calls:
        return
    first = task.region_calls[0]
    if depth >= MAX_DEPTH:
        task.fail(first.node, f"regions call each other more than {MAX_DEPTH} levels deep")
    for pid in np.argwhere(np.broadcast_to(task.mask, kernel.mesh)):
        own = tuple(pid.tolist())
        for number, call in enumerate(task.region_calls):
            prefix = kernel.task_name(own) + "_"
            prefix += f"{number}_" if len(task.region_calls) > 1 else ""
            actual = [task.parameter(position).part(pid) for position in call.arguments]
            inner = read_region(call.region, prefix, actual)
            yield with_sync(inner, task.handovers[number], own) if task.does_more else inner


def compile_region(
    region: Region | Instance | Schedule | Callable[..., object],
    params: Mapping[str, object] | None = None,
    *,
    apart: bool = False,
    watch: Watch | None = None,
) -> CompiledProgram:
    """Compile a region, or the region that a function returns for `params`.

    The source is parsed once per version of its file, so that compiling the same program with other parameters takes
    milliseconds. Nothing in it grows with the number of tasks.

    Args:
        region: a function decorated with `@df.region()`, a schedule, a plain function whose parameters have types (its
            results become arguments `return_0`, ... at the end), or a function that returns one of these.
        params: arguments of that function.
        apart: parts of a kernel that do not depend on each other are kernels of their own.
        watch: looks at the program on the way.

    Raises:
        ProgramError: when the program is wrong; it names the place in the user's source.
        Hopeless: when it is not compiled to the end.
    """
    params = dict(params or {})
    if isinstance(region, Schedule) and not params:
        return _scheduled(region)
    if isinstance(region, Instance):
        name, source = region.function.__name__, read_function(region.function, region.arguments, region.around)
    elif isinstance(region, FunctionType) and is_typed(region) and not params:
        name, source = region.__name__, read_function(region)
    else:
        name, found = _find_region(region, params)
        if isinstance(found, Schedule):
            return replace(_scheduled(found), params=params)
        source = found
    if apart:
        split_kernels(source)
    return _compiled(name, source, params, watch)


def _compiled(name: str, source: RegionSource, params: dict[str, object], watch: Watch | None) -> CompiledProgram:
    parts = compile_hierarchy(source, watch)
    kernels = tuple(kernel for part in parts for kernel in part.kernels)
    said = {  # arrays whose memory the program names
        (kernel.name, array.name): {"memory": array.memory[0], "type": array.memory[1]}
        for kernel in kernels
        for task_class in kernel.classes
        for array in task_class.arrays
        if array.memory
    }
    return CompiledProgram(
        name=name,
        tensors=tuple(parts[0].source.tensors.values()),
        streams=tuple(stream for part in parts for stream in part.streams),
        kernels=kernels,
        params=params,
        warnings=tuple(warning for part in parts for warning in part.warnings),
        constructs=tuple(one for part in parts for one in part.constructs),
        shared=tuple(SharedTensor(one.parameter.tensor, one.initial) for part in parts for one in part.shared),
        results=tuple(result for kernel in source.kernels for result in kernel.results),
        schedule=tuple(Directive("place", *key, options) for key, options in said.items()),
    )


def _scheduled(schedule: Schedule) -> CompiledProgram:
    """A program with its schedule: the result of a session, or a region with directives."""
    if schedule.is_function:
        program: CompiledProgram = schedule.session.program
        return program
    base = schedule.session.program if schedule.is_rewritten else compile_region(schedule.region)
    said = [one for one in schedule.primitives if one.name in DIRECTIVES]
    return replace(base, schedule=(*base.schedule, *checked_schedule(base, said)))


def _failed(function: FunctionType, params: dict[str, object], error: Exception) -> ProgramError:
    """Return the error for an exception that the user's function raised, at the innermost line of its file."""
    name = function.__code__.co_filename
    lines = [line for frame, line in walk_tb(error.__traceback__) if frame.f_code.co_filename == name]
    if not lines:
        return _wrong(function, f"cannot call `{function.__name__}` with parameters {params}: {error}")
    file = source_file(name)
    text = file.lines[lines[-1] - 1].rstrip()
    start = len(text) - len(text.lstrip())
    place = ast.Pass(lineno=lines[-1], col_offset=start, end_lineno=lines[-1], end_col_offset=len(text.encode()))
    return file.error(place, f"`{function.__name__}` raised {type(error).__name__}: {error}")


def _wrong(function: FunctionType, message: str, hint: str = "") -> ProgramError:
    """An error at the definition of a function; a lambda has no definition."""
    if function.__name__ == "<lambda>":
        return ProgramError(message, hint=hint)
    file, node = function_source(function)
    return file.error(node, message, hint)


def _around(builder: FunctionType, function: FunctionType, params: dict[str, object]) -> Mapping[str, object]:
    """Return the parameters of a call that made a function. The closure lacks those that only annotations name."""
    if function.__code__ not in builder.__code__.co_consts:
        return {}
    call = signature(builder).bind(**params)
    call.apply_defaults()
    return call.arguments


def _find_region(value: object, params: dict[str, object]) -> tuple[str, RegionSource | Schedule]:
    """The region, schedule or plain function, and the program's name: the function's that returned it, or its own."""
    found = as_region(value)
    if found is not None:
        if params:
            raise ProgramError(
                f"region {found.name} takes no parameters, but {', '.join(params)} are given",
                hint="pass a function that returns a region",
            )
        return found.name, read_region(found)
    if not isinstance(value, FunctionType):
        raise ProgramError(f"{value!r} is not a region", hint="decorate a function with @df.region()")
    try:
        result = value(**params)
    except ProgramError:
        raise
    except Exception as error:
        raise _failed(value, params, error) from error
    found = as_region(result)
    if isinstance(result, Schedule):
        return value.__name__, result
    if isinstance(result, FunctionType) and is_typed(result):
        return value.__name__, read_function(result, enclosing=_around(value, result, params))
    if found is None:
        hint = "return a function whose parameters have types, with or without @df.region(), or its schedule"
        raise _wrong(value, f"`{value.__name__}` returns no region", hint)
    return value.__name__, read_region(found)
