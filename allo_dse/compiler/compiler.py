"""The front end: from a region to a compiled program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from inspect import signature
from traceback import walk_tb
from types import FunctionType

import numpy as np

from allo_dse.common.errors import ProgramError
from allo_dse.common.records import Frozen, replace
from allo_dse.lang.region import Instance, Region, as_region
from allo_dse.lang.schedule import DIRECTIVES, Schedule

from .model.source_file import function_source, source_file
from .program.compiled import CompiledProgram, Directive, Kernel, Watch
from .program.tensors import Construct, SharedTensor, StreamArray
from .regions.checks import check_program
from .regions.read_regions import is_typed, read_function, read_region
from .regions.region_sources import RegionSource, SharedArray, split_kernels
from .regions.schedules import checked_schedule
from .regions.task_state import Task
from .statements.calls import with_sync
from .task_classes import compile_kernel

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
            for sources in _called(kernel, task, depth):
                parts.extend(part for one in sources for part in compile_hierarchy(one, watch, depth + 1))
    return parts


def _called(kernel: Kernel, task: Task, depth: int) -> Iterator[list[RegionSource]]:
    """The regions that each task of a class calls."""
    if not task.region_calls:
        return
    first = task.region_calls[0]
    if depth >= MAX_DEPTH:
        task.fail(first.node, f"regions call each other more than {MAX_DEPTH} levels deep")
    for pid in np.argwhere(np.broadcast_to(task.mask, kernel.mesh)):
        sources = []
        for number, call in enumerate(task.region_calls):
            prefix = kernel.task_name(tuple(int(i) for i in pid)) + "_"
            prefix += f"{number}_" if len(task.region_calls) > 1 else ""
            actual = [task.parameter(position).part(pid) for position in call.arguments]
            inner = read_region(call.region, prefix, actual)
            own = tuple(int(i) for i in pid)
            sources.append(with_sync(inner, task.handovers[number], own) if task.does_more else inner)
        yield sources


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
