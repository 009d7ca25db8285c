"""The front end: from a region to a compiled program."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from traceback import walk_tb
from types import FunctionType

from allo_dse.common.records import replace
from allo_dse.lang.diagnostics import ProgramError
from allo_dse.lang.region import Instance, Region, as_region
from allo_dse.lang.schedule import DIRECTIVES, Schedule
from allo_dse.program.compiled import CompiledProgram
from allo_dse.program.directive import Directive
from allo_dse.program.kernel import Kernel
from allo_dse.program.tensors import SharedTensor
from allo_dse.program.watch import Watch

from .hierarchy import compile_hierarchy
from .model.source_file import function_source, source_file
from .regions.functions import is_typed, read_function
from .regions.kernel_parts import split_kernels
from .regions.read_regions import read_region
from .regions.region_sources import RegionSource
from .regions.schedules import checked_schedule


def compile_region(
    region: Region | Instance | Schedule | Callable[..., object],
    params: Mapping[str, object] | None = None,
    *,
    apart: bool = False,
    watch: Watch | None = None,
) -> CompiledProgram:
    """Compile a region, or what a function returns for `params`.

    The source is parsed once per version of its file, so that compiling the same program with other parameters takes
    milliseconds. Nothing in it grows with the number of tasks.

    Args:
        region: a function decorated with `@df.region()`, a schedule, a function that returns one of them, or a plain
            function whose parameters have types (its results become arguments `return_0`, ... at the end).
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
        source = read_region(found)
    if apart:
        split_kernels(source)
    return _compiled(name, source, params, watch)


def _compiled(name: str, source: RegionSource, params: dict[str, object], watch: Watch | None) -> CompiledProgram:
    parts = compile_hierarchy(source, watch)
    return CompiledProgram(
        name=name,
        tensors=tuple(parts[0].source.tensors.values()),
        streams=tuple(stream for part in parts for stream in part.streams),
        kernels=tuple(kernel for part in parts for kernel in part.kernels),
        params=params,
        warnings=tuple(warning for part in parts for warning in part.warnings),
        constructs=tuple(one for part in parts for one in part.constructs),
        shared=tuple(SharedTensor(one.parameter.tensor, one.initial) for part in parts for one in part.shared),
        results=tuple(result for kernel in source.kernels for result in kernel.results),
        schedule=_places(kernel for part in parts for kernel in part.kernels),
    )


def _places(kernels: Iterable[Kernel]) -> tuple[Directive, ...]:
    """Where the program says that arrays are kept."""
    said = {
        (kernel.name, array.name): array.memory
        for kernel in kernels
        for task_class in kernel.classes
        for array in task_class.arrays
        if array.memory
    }
    return tuple(Directive("place", *key, {"memory": kind, "type": type_}) for key, (kind, type_) in said.items())


def _scheduled(schedule: Schedule) -> CompiledProgram:
    """A program with its schedule: what a session made of a function, or a region with directives."""
    if schedule.is_function:
        program: CompiledProgram = schedule.session.program
        return program
    base = schedule.session.program if schedule.is_rewritten else compile_region(schedule.region)
    said = [one for one in schedule.primitives if one.name in DIRECTIVES]
    return replace(base, schedule=(*base.schedule, *checked_schedule(base, said)))


def _failed(function: FunctionType, params: dict[str, object], error: Exception) -> ProgramError:
    """What the user's function raised, at the innermost line of its file."""
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
    """An error at the definition of a function, which a lambda does not have."""
    if function.__name__ == "<lambda>":
        return ProgramError(message, hint=hint)
    file, node = function_source(function)
    return file.error(node, message, hint)


def _find_region(value: object, params: dict[str, object]) -> tuple[str, Region | Schedule]:
    """The region or schedule, and the program's name: the function's that returned it, or its own."""
    found = as_region(value)
    if found is not None:
        if params:
            raise ProgramError(
                f"region {found.name} takes no parameters, but {', '.join(params)} are given",
                hint="pass a function that returns a region",
            )
        return found.name, found
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
    if found is None:
        hint = "return the function decorated with @df.region(), or a schedule"
        raise _wrong(value, f"`{value.__name__}` returns no region", hint)
    return value.__name__, found
